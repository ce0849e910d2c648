//! `cargo xtask arm`: the CPU backend on 64-bit ARM, built here and run by qemu.
//!
//! What that takes is on few machines, and nothing of it should have to be installed: Debian's packages are unpacked into
//! cargo's target folder, a Rust with the standard library for both among them, and the machine's own stay as they are. Only
//! apt's lists are asked for, in a folder of ours too. Machines that qemu plays differ in what they multiply with; the program
//! must tell on each what it tells everywhere.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{emu::target_folder, golden::done};

/// What `cargo xtask help` says.
pub(crate) const HELP: &str =
    "  arm                 the CPU backend's tests and the demo model on 64-bit ARM, under qemu (x86-64 Debian)
";

const TRIPLE: &str = "aarch64-unknown-linux-gnu";
/// What is asked for; the rest follows from it.
const PACKAGES: [&str; 5] = [
    "rustc-web",
    "libstd-rust-web-dev:arm64",
    "gcc-aarch64-linux-gnu",
    "libc6-dev-arm64-cross",
    "qemu-user-static",
];
/// Processors that qemu plays, and the path that each should take.
const MACHINES: [(&str, &str); 3] =
    [("max", "neon-i8mm"), ("neoverse-n1", "neon-dotprod"), ("cortex-a72", "neon")];

/// Builds and runs everything; says why where packages cannot be had.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let target = target_folder(root)?;
    let tools = match Tools::set_up(&target.join("arm")) {
        Ok(tools) => tools,
        Err(Missing::Platform(why)) => {
            say(&format!("skipped: {why}"));
            return Ok(());
        }
        Err(Missing::Failed(why)) => return Err(format!("arm: {why}")),
    };
    let test = |cpu: &str, args: &[&str]| {
        say(&format!("{cpu}: cargo test {}", args.join(" ")));
        done(tools.cargo(root, cpu).arg("test").args(args), "cargo test")
    };
    for (cpu, _) in MACHINES {
        test(cpu, &["--package", "ogive-cpu", "--lib"])?;
    }
    // Attention reads its cache by instructions of its own.
    test(MACHINES[0].0, &["--package", "ogive-cpu", "--test", "attend", "a_single_row"])?;
    say("the demo model");
    let (best, _) = MACHINES[0];
    done(tools.cargo(root, best).args(["build", "--package", "ogive-cli", "--quiet"]), "cargo build")?;
    let program = target.join(TRIPLE).join("debug/ogive");
    let readme = root.join("README.md");
    let readme = std::fs::read_to_string(&readme).map_err(|e| format!("{}: {e}", readme.display()))?;
    for (cpu, path) in MACHINES.into_iter().chain([(best, "scalar")]) {
        let force = if path == "scalar" { path } else { "" };
        let mut ogive = tools.qemu(cpu);
        ogive.arg(&program).args(["run", "--seed", "7", "Once upon a time"]).env("OGIVE_CPU_FORCE", force);
        let output =
            ogive.stdin(Stdio::null()).output().map_err(|e| format!("qemu cannot be started: {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        check(&format!("{cpu}, {path}"), path, &text, &String::from_utf8_lossy(&output.stderr), &readme)?;
    }
    say("every machine took its path and told what README.md shows");
    test(best, &["--package", "ogive-tensor", "--lib", "--tests"])?;
    // On this machine all paths are tested that the others have. Definitions in plain Rust are tested where they are faster.
    let slow = ["--skip", "scalar_", "--skip", "definitions"];
    test(best, &[&["--package", "ogive-cpu", "--test", "*", "--"], &slow[..]].concat())
}

/// Whether a run took `path` and told what the readme shows.
fn check(what: &str, path: &str, text: &str, told: &str, readme: &str) -> Result<(), String> {
    if text.trim().is_empty() || !readme.contains(text.trim()) {
        return Err(format!("arm: {what} tells what README.md does not show:\n{text}\n{told}"));
    }
    if !told.lines().any(|line| line.ends_with(&format!(", {path}"))) {
        return Err(format!("arm: {what} does not take {path}:\n{told}"));
    }
    Ok(())
}

/// Why there are no tools.
enum Missing {
    /// They are not to be had for this machine.
    Platform(String),
    /// They should be, and something went wrong.
    Failed(String),
}

impl From<String> for Missing {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// Unpacked packages.
struct Tools {
    folder: PathBuf,
}

impl Tools {
    /// Unpacks what is missing in `folder`.
    fn set_up(folder: &Path) -> Result<Self, Missing> {
        let tools = Self { folder: folder.join("root") };
        let mark = folder.join("complete");
        if std::fs::read_to_string(&mark).is_ok_and(|had| had == PACKAGES.join(" ")) {
            return Ok(tools);
        }
        let starts = |program: &str| {
            Command::new(program)
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok()
        };
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) || !starts("apt-get") || !starts("dpkg") {
            return Err(Missing::Platform(
                "the packages are Debian's for x86-64, and this is something else".into(),
            ));
        }
        say("fetching Debian's packages (once, some 300 MB)");
        let failed = |e: std::io::Error| Missing::Failed(format!("{}: {e}", folder.display()));
        for part in ["lists/partial", "cache/archives/partial", "debs", "root"] {
            std::fs::create_dir_all(folder.join(part)).map_err(failed)?;
        }
        if let Err(why) = done(apt(folder).args(["--quiet", "--quiet", "update"]), "apt-get update") {
            return Err(Missing::Platform(format!("Debian's lists cannot be had ({why})")));
        }
        // Nothing is installed: apt only says what would be.
        let mut plan = apt(folder);
        plan.args(["--simulate", "--no-install-recommends", "install"]).args(PACKAGES);
        let plan = plan.output().map_err(failed)?;
        if !plan.status.success() {
            let why = String::from_utf8_lossy(&plan.stderr).trim().to_string();
            return Err(Missing::Platform(format!("not all of {} can be had:\n{why}", PACKAGES.join(", "))));
        }
        let names = named(&String::from_utf8_lossy(&plan.stdout));
        done(apt(folder).current_dir(folder.join("debs")).arg("download").args(&names), "apt-get download")?;
        for deb in std::fs::read_dir(folder.join("debs")).map_err(failed)? {
            let deb = deb.map_err(failed)?.path();
            done(Command::new("dpkg").arg("--extract").arg(&deb).arg(&tools.folder), "dpkg --extract")?;
            std::fs::remove_file(deb).map_err(failed)?;
        }
        std::fs::write(&mark, PACKAGES.join(" ")).map_err(failed)?;
        Ok(tools)
    }

    /// Cargo for ARM, whose programs run on `cpu`.
    fn cargo(&self, root: &Path, cpu: &str) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let setting = |name: &str| format!("CARGO_TARGET_{}_{name}", TRIPLE.to_uppercase().replace('-', "_"));
        let usr = self.folder.join("usr");
        let runner = self.qemu(cpu);
        let words = std::iter::once(runner.get_program()).chain(runner.get_args());
        let runner: Vec<_> = words.map(|w| w.to_string_lossy().into_owned()).collect();
        cargo
            .current_dir(root)
            .env("CARGO_BUILD_TARGET", TRIPLE)
            .env("RUSTC", usr.join("bin/rustc"))
            // Else a rustup that runs us puts its own first.
            .env("LD_LIBRARY_PATH", usr.join("lib/x86_64-linux-gnu"))
            .env(setting("LINKER"), usr.join("bin/aarch64-linux-gnu-gcc"))
            .env(setting("RUSTFLAGS"), format!("-Clink-arg=--sysroot={}", self.folder.display()))
            .env(setting("RUNNER"), runner.join(" "));
        cargo
    }

    /// qemu, before the program it is to run.
    fn qemu(&self, cpu: &str) -> Command {
        let mut qemu = Command::new(self.folder.join("usr/bin/qemu-aarch64-static"));
        qemu.arg("-L").arg(self.folder.join("usr/aarch64-linux-gnu")).args(["-cpu", cpu]);
        qemu
    }
}

/// apt-get, with lists of its own that know ARM's packages too.
fn apt(folder: &Path) -> Command {
    let mut apt = Command::new("apt-get");
    for (name, value) in [
        ("APT::Architectures::", "amd64".to_string()),
        ("APT::Architectures::", "arm64".to_string()),
        ("APT::Sandbox::User", "".to_string()),
        ("Debug::NoLocking", "1".to_string()),
        ("Dir::State::Lists", format!("{}/", folder.join("lists").display())),
        ("Dir::Cache", format!("{}/", folder.join("cache").display())),
    ] {
        apt.args(["-o", &format!("{name}={value}")]);
    }
    apt
}

/// The packages that apt would install and that are needed here: of ARM's only the standard library, for programs for ARM find
/// what else they need among the cross compiler's.
fn named(plan: &str) -> Vec<String> {
    let new = plan.lines().filter_map(|line| line.strip_prefix("Inst ")?.split(' ').next());
    new.filter(|name| !name.ends_with(":arm64") || PACKAGES.contains(name)).map(String::from).collect()
}

fn say(text: &str) {
    eprintln!("arm: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_names_what_is_needed() {
        let plan = "Remv rustc [1.85]\nInst libc6:arm64 (2.36 Debian [arm64])\nInst libllvm22 (1:22 Debian [amd64])\n\
                    Inst libstd-rust-web-dev:arm64 (1.96 Debian [arm64])\nConf libllvm22 (1:22 Debian [amd64])\n";
        assert_eq!(named(plan), ["libllvm22", "libstd-rust-web-dev:arm64"]);
    }

    #[test]
    fn another_text_and_another_path_are_faults() {
        let (readme, told) = ("# Ogive\n\nOnce upon a time.\n", "using the CPU, 2 threads, neon\nanswer: 3");
        assert!(check("max", "neon", "Once upon a time.\n", told, readme).is_ok());
        assert!(
            check("max", "neon", "Once upon a tim!\n", told, readme).unwrap_err().contains("does not show")
        );
        assert!(check("max", "neon", "", told, readme).is_err());
        assert!(
            check("max", "neon-i8mm", "Once upon a time.", told, readme).unwrap_err().contains("neon-i8mm")
        );
    }
}
