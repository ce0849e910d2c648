//! Where a written file goes: to any writer, or to a file that gets its name only when it is whole.
//!
//! The file is written beside its final place, under a temporary name, and renamed at the end; dropped before that, it
//! is removed. So a program that is interrupted leaves no half model under a name that someone will open, and a model
//! that is being read (mapped, even) is replaced without being touched.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Large writes pass by the buffer, so it need only gather small ones.
const BUFFER: usize = 1 << 16;
/// Temporary names that are tried.
const TRIES: usize = 1000;

/// A place to write to.
pub(crate) enum Output<'w> {
    Stream(Box<dyn Write + 'w>),
    File(TempFile),
}

impl Output<'_> {
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Stream(w) => w.write_all(bytes).map_err(Error::io("writing")),
            Self::File(f) => f.write(bytes).map_err(|e| f.error("writing", e)),
        }
    }

    /// Ends the writing: a file gets its name.
    pub(crate) fn commit(self) -> Result<()> {
        match self {
            Self::Stream(mut w) => w.flush().map_err(Error::io("writing")),
            Self::File(f) => f.commit(),
        }
    }
}

/// A file under a temporary name, removed when dropped.
pub(crate) struct TempFile {
    /// `None` once it has its final name.
    file: Option<BufWriter<File>>,
    temporary: PathBuf,
    path: PathBuf,
}

impl TempFile {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        // Several writers in a process, and several processes, must not meet.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // What a link leads to is replaced, and not the link. Told now and not after an hour of writing: renaming fails on a
        // folder, and puts a file in the place of a device.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let wrong = |problem: &str| Err(Error::Write { problem: problem.into() });
        match path.metadata() {
            Ok(there) if there.is_dir() => return wrong("this is a folder; name a file"),
            Ok(there) if !there.is_file() => {
                return wrong("this is no plain file, and a model would replace it");
            }
            _ => {}
        }
        if path.parent().is_some_and(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
            return wrong("there is no such folder; make it first");
        }
        let Some(name) = path.file_name() else { return wrong("this names no file") };
        // One that was killed may have left its file, and had this number: in containers every program is the first.
        for _ in 0..TRIES {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            hidden.push(format!(".{}-{}.part", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
            let temporary = path.with_file_name(hidden);
            match OpenOptions::new().write(true).create_new(true).open(&temporary) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => {
                    return Err(Error::io("creating a temporary file beside the file")(e).in_file(&path));
                }
                Ok(file) => {
                    let file = Some(BufWriter::with_capacity(BUFFER, file));
                    return Ok(Self { file, temporary, path });
                }
            }
        }
        wrong("too many files beside it are left over from programs that were killed: remove `.NAME.*.part`")
    }

    fn error(&self, doing: &'static str, e: io::Error) -> Error {
        Error::io(doing)(e).in_file(&self.path)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.as_mut().map_or_else(|| Err(io::ErrorKind::NotConnected.into()), |f| f.write_all(bytes))
    }

    fn commit(mut self) -> Result<()> {
        if let Some(file) = &mut self.file {
            // On disk before it has its name: else a crash could leave the name with a hole behind it.
            let synced = file.flush().and_then(|()| file.get_ref().sync_all());
            synced.map_err(|e| self.error("writing", e))?;
        }
        fs::rename(&self.temporary, &self.path).map_err(|e| self.error("renaming the finished file", e))?;
        self.file = None;
        Ok(())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            // Closed before it is removed, and without writing what is left in the buffer. Nobody can be told of a
            // failure here; a leftover has a name that says what it is.
            drop(file.into_parts());
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_programs_of_this_number_left_is_passed_by() {
        let folder = tempfile::tempdir().expect("a folder for tests");
        let path = folder.path().join("m.gguf");
        let left = |n: usize| folder.path().join(format!(".m.gguf.{}-{n}.part", std::process::id()));
        (0..50).for_each(|n| fs::write(left(n), "half").expect("it can be written"));
        let mut file = TempFile::create(&path).expect("another name");
        file.write(b"whole").expect("room");
        file.commit().expect("a name");
        assert_eq!(fs::read(&path).expect("there"), b"whole");
        // What is not this program's stays.
        assert_eq!((0..50).filter(|n| left(*n).exists()).count(), 50);
        (0..3 * TRIES).for_each(|n| fs::write(left(n), "half").expect("it can be written"));
        let error = TempFile::create(&path).err().expect("no name is left").to_string();
        assert!(error.contains("left over from programs that were killed"), "{error}");
    }
}
