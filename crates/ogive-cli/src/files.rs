//! Files that commands read and write.
//!
//! What is read is read whole, and so up to a bound: a path may lead to `/dev/zero`. It could be read in parts where a text is only
//! printed, but a token's end may depend on all the text that follows: merges have no bound, patterns look ahead, normalizers
//! reorder. So nothing here reads in parts.
//!
//! A file gets its name when it is complete, so that a script never reads half of one and what was there stays until then. Where
//! it cannot be written is told before anything is computed: an answer of minutes is not to be lost for a misspelt folder.

use crate::error::{Doing, Error, Result};
use crate::figures::Bytes;
use ogive::weights::is_of_model;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

/// Bytes that are read at most: a few hundred million tokens.
const MOST: u64 = 1 << 30;

/// A file's bytes. `doing` says what it is read for.
pub(crate) fn read(path: &Path, doing: impl Display) -> Result<Vec<u8>> {
    all(File::open(path).doing(&doing)?, MOST, doing)
}

/// All of stdin.
pub(crate) fn stdin() -> Result<Vec<u8>> {
    all(io::stdin().lock(), MOST, "reading stdin")
}

/// The same as text.
pub(crate) fn stdin_text() -> Result<String> {
    text(stdin()?, "reading stdin")
}

/// The same without the line break that `echo` and editors end a text with.
pub(crate) fn stdin_line() -> Result<String> {
    let mut text = stdin_text()?;
    if text.ends_with('\n') {
        text.truncate(text.len() - 1 - usize::from(text.ends_with("\r\n")));
    }
    Ok(text)
}

/// Bytes that should be text.
pub(crate) fn text(bytes: Vec<u8>, doing: impl Display) -> Result<String> {
    String::from_utf8(bytes).map_err(|e| {
        Error::failed(format_args!("{doing}: it is no UTF-8 at byte {}", e.utf8_error().valid_up_to()))
    })
}

fn all(reader: impl Read, most: u64, doing: impl Display) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(most + 1).read_to_end(&mut bytes).doing(&doing)?;
    if bytes.len() as u64 > most {
        let why =
            format_args!("{doing}: there is more than {}, the most that is read at a time", Bytes(most));
        return Err(Error::failed(why));
    }
    Ok(bytes)
}

/// Whether a file could be written there, and would not replace the model it is made with.
pub(crate) fn check(path: &Path, model: &Path) -> Result<()> {
    let wrong = if path.is_dir() {
        "this is a folder; name a file"
    } else if !folder(path).is_dir() {
        "there is no such folder"
    } else if is_of_model(path, model) {
        "this is the model; write to another name"
    } else {
        return Ok(());
    };
    Err(Error::failed(format_args!("writing {}: {wrong}", path.display())))
}

/// The same for a session, which replaces what is there.
pub(crate) fn check_session(path: &Path, model: &Path) -> Result<()> {
    if path.exists() && !path.is_file() && !path.is_dir() {
        let why = "this is no plain file, and a session would replace it";
        return Err(Error::failed(format_args!("writing {}: {why}", path.display())));
    }
    check(path, model)
}

/// Whether nothing is there yet that a model would replace, or that is to be. What is no plain file is for the writer to refuse.
pub(crate) fn check_new(path: &Path, force: bool) -> Result<()> {
    if !force && path.is_file() {
        let why = "there is something of this name already; choose another, or overwrite it with --force";
        return Err(Error::failed(format_args!("writing {}: {why}", path.display())));
    }
    Ok(())
}

/// Writes a file, or nothing.
pub(crate) fn write(path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    whole(path, content).doing(format_args!("writing {}", path.display()))
}

/// Where a file lies.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes beside the file and renames. What is there and is no plain file, a pipe say, is written to as it is; what a link leads
/// to is replaced, and not the link.
fn whole(path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        let mut file = BufWriter::new(File::options().write(true).open(path)?);
        content(&mut file)?;
        return file.flush();
    }
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    let old = fs::metadata(&path).ok();
    #[cfg(unix)]
    if old.is_none() {
        // What any new file has, less the process's mask, and not a temporary file's privacy.
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let temporary = builder.prefix(".ogive").tempfile_in(folder(&path))?;
    // The file itself, for the other kind adds its own path to every error.
    let mut file = BufWriter::new(temporary.as_file());
    content(&mut file)?;
    file.flush()?;
    drop(file);
    // Who was to read what was there is to read this. (A file system that has no permissions says so, and needs none.)
    #[cfg(unix)]
    if let Some(old) = old {
        let _ = temporary.as_file().set_permissions(old.permissions());
    }
    temporary.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_not_read_to_it() {
        assert_eq!(all(&b"12345"[..], 5, "reading").unwrap(), b"12345");
        let Err(Error::Failed(why)) = all(io::repeat(0), 4096, "reading x") else { panic!("it was read") };
        assert_eq!(why, "reading x: there is more than 4.00 KiB, the most that is read at a time");
        let Err(Error::Failed(why)) = text(b"ab\xff".to_vec(), "reading x") else { panic!("it is text") };
        assert_eq!(why, "reading x: it is no UTF-8 at byte 2");
    }

    #[test]
    fn half_of_a_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let full = |out: &mut dyn Write| {
            out.write_all(&[1; 100_000])?;
            Err(io::ErrorKind::StorageFull.into())
        };
        assert!(write(&path, full).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        write(&path, |out| out.write_all(b"one")).unwrap();
        assert!(write(&path, full).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    #[cfg(unix)]
    fn who_may_read_a_file_does_not_change_when_it_is_replaced() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        fs::write(&path, b"").unwrap();
        let usual = mode(&path);
        fs::remove_file(&path).unwrap();
        write(&path, |out| out.write_all(b"new")).unwrap();
        assert_eq!(mode(&path), usual, "what any new file has");
        for kept in [0o600, 0o640, 0o666] {
            fs::set_permissions(&path, fs::Permissions::from_mode(kept)).unwrap();
            write(&path, |out| out.write_all(b"again")).unwrap();
            assert_eq!(mode(&path), kept);
        }
    }

    #[test]
    #[cfg(unix)]
    fn links_stay_links() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&path, b"old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write(&link, |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn places_where_nothing_can_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str| folder.path().join(name);
        fs::write(of("config.json"), b"{}").unwrap();
        fs::write(of("notes.npy"), b"").unwrap();
        let why = |path: &Path, model: &Path| match check(path, model) {
            Err(Error::Failed(why)) => why,
            other => format!("{other:?}"),
        };
        assert!(why(folder.path(), Path::new("m")).ends_with("this is a folder; name a file"));
        assert!(why(&of("no/x"), Path::new("m")).ends_with("there is no such folder"));
        assert!(why(&of("config.json"), &of("config.json")).contains("this is the model"));
        assert!(why(&of("config.json"), folder.path()).contains("this is the model"));
        assert_eq!(why(&of("notes.npy"), folder.path()), "Ok(())");
        assert_eq!(why(&of("new"), folder.path()), "Ok(())");
    }
}
