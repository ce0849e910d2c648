//! `cargo xtask platforms`: whether everything compiles, mostly tests and examples too, for platforms that this machine is not.
//!
//! The compiler needs only their standard libraries. Dependencies that would compile C or assembler get a stand-in that makes
//! nothing, for nothing is linked. Whether the code is right there is another question: `cargo xtask arm` asks it for one of them.

use crate::{ci::command, golden::done};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What `cargo xtask help` says.
pub(crate) const HELP: &str =
    "  platforms           clippy as on Linux on ARM, macOS and Windows (fetches standard libraries by rustup)
";

/// Platforms, and whether tests, examples and benches are compiled for them: Linux on ARM shares those with Linux and with ARM.
const PLATFORMS: [(&str, bool); 3] =
    [("aarch64-unknown-linux-gnu", false), ("aarch64-apple-darwin", true), ("x86_64-pc-windows-gnu", true)];

/// Lints everything for every platform whose standard library is here or can be fetched.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    // Stands in for compilers; other systems' makers build for themselves.
    if !cfg!(unix) {
        eprintln!("platforms: skipped: this wants a Unix");
        return Ok(());
    }
    let libraries = libraries(root)?;
    let here = |triple: &str| libraries.join(triple).join("lib").is_dir();
    for (triple, all) in PLATFORMS {
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
        clippy.args(all.then_some("--all-targets")).args(["--", "-D", "warnings"]);
        clippy.envs(["TARGET_CC", "TARGET_CXX", "TARGET_AR"].map(|tool| (tool, "true")));
        done(&mut clippy, &format!("cargo clippy for {triple}"))?;
    }
    Ok(())
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
    fn this_machine_s_own_library_is_found() {
        let libraries = super::libraries(&crate::root()).unwrap();
        assert!(libraries.read_dir().unwrap().count() > 0, "{}", libraries.display());
    }
}
