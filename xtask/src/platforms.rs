//! `cargo xtask platforms`: whether everything compiles, and tests that name a platform, for platforms that this machine is not.
//!
//! What says nothing of a platform compiles on one as on another, so not all is compiled for each: who says something is looked up in the sources.
//!
//! The compiler needs only their standard libraries. Dependencies that would compile C or assembler get a stand-in that makes
//! nothing, for nothing is linked. Whether the code is right there is another question: `cargo xtask arm` asks it for one of them.

use crate::{ci::command, golden::done};
use cargo_metadata::{Metadata, MetadataCommand};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What `cargo xtask help` says.
pub(crate) const HELP: &str =
    "  platforms           clippy as on Linux on ARM, macOS and Windows (fetches standard libraries by rustup)
";

/// What is compiled for a platform.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    /// Libraries and programs of packages that name an architecture. Linux on ARM shares the others with Linux and with macOS on ARM.
    Architecture,
    /// Libraries, programs, and tests that name a platform. Others compile as they do for Linux on x86-64, where all are linted.
    Platform,
}

const PLATFORMS: [(&str, Part); 3] = [
    ("aarch64-unknown-linux-gnu", Part::Architecture),
    ("aarch64-apple-darwin", Part::Platform),
    ("x86_64-pc-windows-gnu", Part::Platform),
];

/// What a source says of architectures. C's `char` has no sign on ARM, but for Apple's.
const ARCHITECTURES: [&str; 4] = ["target_arch", "target_endian", "target_pointer_width", "c_char"];

/// What a test says of platforms, in its file or in one that it shares.
const WORDS: [&str; 5] = ["unix", "cfg(windows", "target_os", "nix::", "libc"];

/// Lints everything for every platform whose standard library is here or can be fetched.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    // Stands in for compilers; other systems' makers build for themselves.
    if !cfg!(unix) {
        eprintln!("platforms: skipped: this wants a Unix");
        return Ok(());
    }
    let libraries = libraries(root)?;
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec();
    let metadata = metadata.map_err(|e| format!("cargo metadata failed: {e}"))?;
    let here = |triple: &str| libraries.join(triple).join("lib").is_dir();
    for (triple, part) in PLATFORMS {
        eprintln!("platforms: {triple}");
        if !here(triple) {
            let mut add = Command::new("rustup");
            add.current_dir(root).args(["target", "add", triple]);
            if let Err(why) = done(&mut add, "rustup target add") {
                eprintln!("platforms: {triple}: skipped: {why}");
                continue;
            }
        }
        let clippy = |args: Vec<&str>| {
            let mut clippy = command(root);
            clippy.args(["clippy", "--target", triple]).args(args).args(["--", "-D", "warnings"]);
            clippy.envs(["TARGET_CC", "TARGET_CXX", "TARGET_AR"].map(|tool| (tool, "true")));
            done(&mut clippy, &format!("cargo clippy for {triple}"))
        };
        match part {
            Part::Architecture => {
                let packages = naming(&metadata, &ARCHITECTURES);
                clippy(packages.iter().flat_map(|name| ["--package", name]).collect())?;
            }
            Part::Platform => {
                let tests = naming_platforms(&metadata);
                let named = tests.iter().flat_map(|name| ["--test", name]);
                clippy(["--workspace", "--lib", "--bins"].into_iter().chain(named).collect())?;
                // Tests within libraries and programs; what they say of Unix is the same on all of its kind.
                if triple.contains("windows") {
                    let packages = naming(&metadata, &WORDS);
                    let named = packages.iter().flat_map(|name| ["--package", name]);
                    clippy(["--lib", "--bins", "--profile", "test"].into_iter().chain(named).collect())?;
                }
            }
        }
    }
    Ok(())
}

/// Names of the packages whose libraries or programs say one of these words.
fn naming(metadata: &Metadata, words: &[&str]) -> Vec<String> {
    let packages = metadata.workspace_packages().into_iter().filter(|package| {
        let folder = package.manifest_path.parent().map(|folder| folder.join("src"));
        folder.is_some_and(|folder| below(folder.as_std_path(), words))
    });
    packages.map(|package| package.name.to_string()).collect()
}

/// Whether a file in this folder, or below it, says one of these words.
fn below(folder: &Path, words: &[&str]) -> bool {
    let mut entries = folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    entries.any(|path| if path.is_dir() { below(&path, words) } else { says(&path, words) })
}

fn says(path: &Path, words: &[&str]) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| words.iter().any(|word| text.contains(word)))
}

/// Names of the tests that name a platform.
fn naming_platforms(metadata: &Metadata) -> Vec<String> {
    let mut names = BTreeSet::new();
    for package in metadata.workspace_packages() {
        for test in package.targets.iter().filter(|target| target.is_test()) {
            let path = test.src_path.as_std_path();
            // Files that tests of a package share lie in folders beside them; which of them a test takes is not looked up.
            let shared = path.parent().into_iter().flat_map(|tests| tests.read_dir().into_iter().flatten());
            let shared = shared.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
            let mut shared = shared.flat_map(|folder| folder.read_dir().into_iter().flatten().flatten());
            if says(path, &WORDS) || shared.any(|entry| says(&entry.path(), &WORDS)) {
                names.insert(test.name.clone());
            }
        }
    }
    names.into_iter().collect()
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
    use super::*;

    #[test]
    fn who_names_a_platform_is_found() {
        let manifest = crate::root().join("Cargo.toml");
        let metadata = MetadataCommand::new().manifest_path(manifest).no_deps().exec().unwrap();
        let names = naming_platforms(&metadata);
        for name in ["open", "terminal", "faults"] {
            assert!(names.iter().any(|n| n == name), "{name}: {names:?}");
        }
        // They are few, which is what this is for.
        assert!(names.len() < 90 && !names.iter().any(|n| n == "vocabularies"), "{names:?}");
        let names = naming(&metadata, &ARCHITECTURES);
        for name in ["ogive-cpu", "ogive-cuda", "ptx-emulator"] {
            assert!(names.iter().any(|n| n == name), "{name}: {names:?}");
        }
        assert!(names.len() < 9 && !names.iter().any(|n| n == "ogive"), "{names:?}");
    }

    #[test]
    fn this_machine_s_own_library_is_found() {
        let libraries = libraries(&crate::root()).unwrap();
        assert!(libraries.read_dir().unwrap().count() > 0, "{}", libraries.display());
    }
}
