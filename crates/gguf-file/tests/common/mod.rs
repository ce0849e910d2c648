//! What several test files need: where the shared test data lie, files to read, and a way to touch all that is in one.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::print_stdout, reason = "skips are to be seen")]

pub(crate) mod encode;
pub(crate) mod samples;
pub(crate) mod touch;

use std::path::{Path, PathBuf};

/// The folder of shared test data beside the project, or `None`, said on the terminal.
pub(crate) fn shared() -> Option<PathBuf> {
    let folder = std::env::var_os("OGIVE_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: shared test data not found");
    None
}

/// All files below `folder` whose name ends in `.gguf`, sorted.
pub(crate) fn gguf_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).expect("the folder can be listed") {
            let path = entry.expect("the entry can be read").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "gguf") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
