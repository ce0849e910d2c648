//! Every PTX file in a folder is read.
//!
//! What compilers emit is megabytes and not ours, so it is made outside the repository and found by `PTX_EMU_CORPUS`; what the
//! parser must know in any case is tested beside it.

use std::path::{Path, PathBuf};

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "ptx") {
            found.push(path);
        }
    }
}

#[test]
fn corpus_is_read() {
    let Some(folder) = std::env::var_os("PTX_EMU_CORPUS") else {
        eprintln!("skipped: PTX_EMU_CORPUS names no folder of PTX files");
        return;
    };
    let mut found = Vec::new();
    files(Path::new(&folder), &mut found);
    found.sort();
    let mut wrong = Vec::new();
    for path in &found {
        let text = std::fs::read_to_string(path).expect("a PTX file is text");
        if let Err(error) = ptx_emulator::ptx::parse(&text) {
            wrong.push(format!("{}: {error}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{} of {} files:\n{}", wrong.len(), found.len(), wrong.join("\n"));
}
