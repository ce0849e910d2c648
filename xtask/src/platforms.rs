//! `cargo xtask platforms`: whether everything compiles, mostly tests and examples too, for platforms that this machine is not.
//!
//! The compiler needs only their standard libraries. Dependencies that would compile C or assembler get a stand-in that makes
//! nothing, for nothing is linked. Whether the code is right there is another question: `cargo xtask arm` asks it for one of them.

use crate::{ci::command, golden::done};
use cargo_metadata::MetadataCommand;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What `cargo xtask help` says.
pub(crate) const HELP: &str =
    "  platforms           clippy as on Linux on ARM, macOS and Windows (fetches standard libraries by rustup)
";

/// What is compiled for a platform besides libraries and programs.
#[derive(Clone, Copy, PartialEq)]
enum Tests {
    /// Nothing: Linux on ARM shares tests with Linux and with ARM.
    None,
    /// Tests that name a platform. The others compile as they do for Linux and for Windows, where all are linted.
    Unix,
    /// With examples and benches.
    All,
}

const PLATFORMS: [(&str, Tests); 3] = [
    ("aarch64-unknown-linux-gnu", Tests::None),
    ("aarch64-apple-darwin", Tests::Unix),
    ("x86_64-pc-windows-gnu", Tests::All),
];

/// What a test says of platforms, in its file or in one that it shares.
const WORDS: [&str; 4] = ["unix", "target_os", "nix::", "libc"];

/// Lints everything for every platform whose standard library is here or can be fetched.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    // Stands in for compilers; other systems' makers build for themselves.
    if !cfg!(unix) {
        eprintln!("platforms: skipped: this wants a Unix");
        return Ok(());
    }
    let libraries = libraries(root)?;
    let here = |triple: &str| libraries.join(triple).join("lib").is_dir();
    for (triple, tests) in PLATFORMS {
        eprintln!("platforms: {triple}");
        if !here(triple) {
            let mut add = Command::new("rustup");
            add.current_dir(root).args(["target", "add", triple]);
            if let Err(why) = done(&mut add, "rustup target add") {
                eprintln!("platforms: {triple}: skipped: {why}");
                continue;
            }
        }
        let mut clippy = command(root);
        clippy.args(["clippy", "--workspace", "--target", triple]);
        match tests {
            Tests::None => {}
            Tests::Unix => {
                clippy.args(["--lib", "--bins"]);
                clippy.args(naming_platforms(root)?.iter().flat_map(|name| ["--test", name]));
            }
            Tests::All => {
                clippy.arg("--all-targets");
            }
        }
        clippy.args(["--", "-D", "warnings"]);
        clippy.envs(["TARGET_CC", "TARGET_CXX", "TARGET_AR"].map(|tool| (tool, "true")));
        done(&mut clippy, &format!("cargo clippy for {triple}"))?;
    }
    Ok(())
}

/// Names of the tests that name a platform.
fn naming_platforms(root: &Path) -> Result<Vec<String>, String> {
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec();
    let metadata = metadata.map_err(|e| format!("cargo metadata failed: {e}"))?;
    let says = |path: &Path| {
        std::fs::read_to_string(path).is_ok_and(|text| WORDS.iter().any(|word| text.contains(word)))
    };
    let mut names = BTreeSet::new();
    for package in metadata.workspace_packages() {
        for test in package.targets.iter().filter(|target| target.is_test()) {
            let path = test.src_path.as_std_path();
            // Files that tests of a package share lie in folders beside them; which of them a test takes is not looked up.
            let shared = path.parent().into_iter().flat_map(|tests| tests.read_dir().into_iter().flatten());
            let shared = shared.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
            let mut shared = shared.flat_map(|folder| folder.read_dir().into_iter().flatten().flatten());
            if says(path) || shared.any(|entry| says(&entry.path())) {
                names.insert(test.name.clone());
            }
        }
    }
    Ok(names.into_iter().collect())
}

/// The folder of the compiler's standard libraries, one to a platform.
fn libraries(root: &Path) -> Result<PathBuf, String> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let rustc = rustc.current_dir(root).args(["--print", "sysroot"]).stdin(Stdio::null()).output();
    let output = rustc.map_err(|e| format!("rustc cannot be started: {e}"))?;
    Ok(Path::new(String::from_utf8_lossy(&output.stdout).trim()).join("lib/rustlib"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn tests_that_name_a_platform_are_found() {
        let names = super::naming_platforms(&crate::root()).unwrap();
        for name in ["open", "terminal", "faults"] {
            assert!(names.iter().any(|n| n == name), "{name}: {names:?}");
        }
        // They are few, which is what this is for.
        assert!(names.len() < 90 && !names.iter().any(|n| n == "vocabularies"), "{names:?}");
    }

    #[test]
    fn this_machine_s_own_library_is_found() {
        let libraries = super::libraries(&crate::root()).unwrap();
        assert!(libraries.read_dir().unwrap().count() > 0, "{}", libraries.display());
    }
}
