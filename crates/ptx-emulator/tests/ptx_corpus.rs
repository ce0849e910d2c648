//! Every PTX file in a folder is read, found right and lowered.
//!
//! What compilers emit is megabytes and not ours, so it is made outside the repository and found by `PTX_EMU_CORPUS`; what the
//! parser must know in any case is tested beside it.

#![allow(clippy::print_stdout, reason = "skips are to be seen")]

use ptx_emulator::ptx;
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

/// Every kernel becomes a program; the variables are anywhere.
fn lowered(module: &ptx::ast::Module, path: &Path, wrong: &mut Vec<String>) {
    for kernel in module.functions.iter().filter(|function| function.entry && function.body.is_some()) {
        if let Err(error) = ptx_emulator::lower::lower(module, &kernel.name, &|_| Some(4096)) {
            wrong.push(format!("{}: {}: {error}", path.display(), kernel.name));
        }
    }
}

#[test]
fn corpus_is_accepted() {
    let Some(folder) = std::env::var_os("PTX_EMU_CORPUS") else {
        println!("skipped: PTX_EMU_CORPUS names no folder of PTX files");
        return;
    };
    let mut found = Vec::new();
    files(Path::new(&folder), &mut found);
    found.sort();
    let mut wrong = Vec::new();
    for path in &found {
        let text = std::fs::read_to_string(path).expect("a PTX file is text");
        match ptx::parse(&text) {
            Err(error) => wrong.push(format!("{}: {error}", path.display())),
            Ok(module) => {
                let errors = ptx::verify(&module).err().unwrap_or_default();
                wrong.extend(errors.iter().map(|error| format!("{}: {error}", path.display())));
                if errors.is_empty() && std::env::var_os("PTX_EMU_PARSE_ONLY").is_none() {
                    lowered(&module, path, &mut wrong);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} mistakes in {} files:\n{}", wrong.len(), found.len(), wrong.join("\n"));
}
