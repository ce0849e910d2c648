//! Which files a model is read from, for those who write files and must not write over it.

use gguf_file::split_file_name;
use std::fs;
use std::path::{Path, PathBuf};

/// Whether a path leads to a file that the model is read from: its own, another part of a split, or one of its folder's. (Another hard
/// link to one may be written to: a new file gets the name, and the old one keeps its others.)
pub fn is_of_model(path: &Path, model: &Path) -> bool {
    let Ok(file) = path.canonicalize() else { return false };
    let leads = |other: &Path| other.canonicalize().is_ok_and(|other| other == file);
    if leads(model) || parts(model).any(|part| leads(&part)) {
        return true;
    }
    let is_folder = model.is_dir();
    let names_folder = has_extension(model, &["json", "safetensors"]);
    let home = if is_folder { model } else { folder(model) };
    let Some(home) = home.canonicalize().ok().filter(|_| is_folder || names_folder) else { return false };
    // Where the name stands, for it may be a link to a file elsewhere, and where it leads, for it may be a link from elsewhere.
    let named =
        folder(path).canonicalize().ok().zip(path.file_name()).map(|(folder, name)| folder.join(name));
    if is_read(&file, &home) || named.is_some_and(|named| is_read(&named, &home)) {
        return true;
    }
    let linked = fs::read_dir(&home).into_iter().flatten().flatten().map(|entry| entry.path());
    linked.filter(|entry| entry.is_symlink() && is_read(entry, &home)).any(|entry| leads(&entry))
}

/// The other parts of a split, of which the model is the first.
fn parts(first: &Path) -> impl Iterator<Item = PathBuf> + '_ {
    let stem_and_count = || {
        let (stem, count) = first.file_name()?.to_str()?.strip_suffix(".gguf")?.rsplit_once("-00001-of-")?;
        Some((stem, count.parse::<u64>().ok()?))
    };
    let part =
        move |(stem, count)| (2..=count).map(move |n| first.with_file_name(split_file_name(stem, n, count)));
    // Where one is missing the model cannot be opened, whatever the name says of how many there are.
    stem_and_count().into_iter().flat_map(part).take_while(|part| part.exists())
}

/// Whether a Hugging Face folder's model is read from a file of this place: weights, settings, a vocabulary or a template.
fn is_read(file: &Path, home: &Path) -> bool {
    let is_called = |names: &[&str]| file.file_name().is_some_and(|name| names.iter().any(|n| name == *n));
    let is_right_there = file.parent() == Some(home);
    let is_anywhere = has_extension(file, &["safetensors", "jinja"])
        || is_called(&["config.json", "sentence_bert_config.json"]);
    let is_beside = has_extension(file, &["json"]) || is_called(&["vocab.txt"]);
    is_anywhere && file.starts_with(home) || is_beside && is_right_there
}

fn has_extension(path: &Path, any: &[&str]) -> bool {
    path.extension().is_some_and(|e| any.iter().any(|other| e == *other))
}

/// The folder that a path is in.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_has_more_files_than_the_one_that_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str| folder.path().join(name);
        fs::create_dir_all(of("h/1_Pooling")).unwrap();
        let own = ["config.json", "model.safetensors", "x-00002-of-00002.safetensors", "vocab.txt"];
        let own = own.into_iter().chain(["model.safetensors.index.json", "1_Pooling/config.json"]);
        let own: Vec<PathBuf> = own.map(|name| of("h").join(name)).collect();
        let split: Vec<PathBuf> = (1..=3).map(|n| of(&split_file_name("m", n, 3))).collect();
        let others = ["h/notes.txt", "h/l.npy", "h/1_Pooling/x.json", "config.json", "m-00004-of-00003.gguf"];
        let others = others.map(of);
        for file in own.iter().chain(&split).chain(&others) {
            fs::write(file, b"{}").unwrap();
        }
        for model in [of("h"), of("h/config.json"), of("h/model.safetensors.index.json"), own[2].clone()] {
            for file in &own {
                assert!(is_of_model(file, &model), "{} of {}", file.display(), model.display());
            }
            for file in others.iter().chain(&split) {
                assert!(!is_of_model(file, &model), "{} of {}", file.display(), model.display());
            }
        }
        for file in &split {
            assert!(is_of_model(file, &split[0]), "{}", file.display());
        }
        assert!(!others.iter().chain(&own).any(|file| is_of_model(file, &split[0])));
    }

    /// As in Hugging Face's cache, whose folders have links to what is elsewhere.
    #[test]
    #[cfg(unix)]
    fn a_model_is_found_through_links() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str| folder.path().join(name);
        fs::create_dir_all(of("h")).unwrap();
        for name in ["config", "weights", "notes", "m-00001-of-00002.gguf", "part"] {
            fs::write(of(name), b"{}").unwrap();
        }
        let links = [
            ("config", "h/config.json"),
            ("weights", "h/model.safetensors"),
            ("notes", "h/notes"),
            ("part", "m-00002-of-00002.gguf"),
            ("h/model.safetensors", "out"),
            ("m-00002-of-00002.gguf", "out2"),
        ];
        links.iter().for_each(|(to, link)| symlink(of(to), of(link)).unwrap());
        for file in ["h/model.safetensors", "weights", "config", "out"] {
            assert!(
                is_of_model(&of(file), &of("h")) && is_of_model(&of(file), &of("h/config.json")),
                "{file}"
            );
        }
        for file in ["part", "m-00002-of-00002.gguf", "out2"] {
            assert!(is_of_model(&of(file), &of("m-00001-of-00002.gguf")), "{file}");
        }
        assert!(!is_of_model(&of("h/notes"), &of("h")) && !is_of_model(&of("part"), &of("h")));
    }
}
