//! `cargo xtask golden`: tiny random models and what transformers computes with them, which the tests hold our models to.
//!
//! The Python environment is made here and kept in cargo's target folder, so that the one command is all there is to know.
//! torch's CPU build is on an index of its own. Where that cannot be reached, PyPI's is taken, which on x86-64 Linux is
//! built for CUDA: without its 3 GB of libraries, but for the runtime (its kernels are registered when it loads). In place
//! of the others stand links to a library that has none of their functions. They are only looked up when they are called,
//! and without a GPU nothing calls them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cargo_metadata::MetadataCommand;

/// What `cargo xtask help` says.
pub(crate) const HELP: &str =
    "  golden ARCH…|all    makes the tests' tiny models and their logits with transformers (1 GB of downloads, once)
";

const TORCH: &str = "torch==2.11.0";
const TORCH_CPU: &str = "https://download.pytorch.org/whl/cpu";
const CUDA_RUNTIME: &str = "nvidia-cuda-runtime==13.0.96";
/// What else a torch for CUDA 13 asks the loader for.
const STAND_INS: [&str; 12] = [
    "libcublas.so.13",
    "libcublasLt.so.13",
    "libcudnn.so.9",
    "libcufft.so.12",
    "libcufile.so.0",
    "libcupti.so.13",
    "libcurand.so.10",
    "libcusolver.so.12",
    "libcusparse.so.12",
    "libcusparseLt.so.0",
    "libnccl.so.2",
    "libnvshmem_host.so.3",
];

/// Makes the models called `names`; `all` makes every one.
pub(crate) fn run(root: &Path, names: &[&str]) -> Result<(), String> {
    if names.is_empty() {
        return Err(format!("golden: of which architectures?\n\n{HELP}"));
    }
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec();
    let target = metadata.map_err(|e| format!("cargo metadata failed: {e}"))?.target_directory;
    let scripts = root.join("xtask/golden");
    let python = environment(&target.into_std_path_buf().join("golden"), &scripts)?;
    let mut make = Command::new(python);
    make.arg("-B").arg(scripts.join("make.py")).arg(root).args(names);
    // The hub is never asked: everything is made here.
    make.env("HF_HUB_OFFLINE", "1");
    done(&mut make, "make.py")
}

/// A Python that has torch and transformers in exactly the versions asked for.
fn environment(folder: &Path, scripts: &Path) -> Result<PathBuf, String> {
    let failed = |e: std::io::Error| format!("golden: {}: {e}", folder.display());
    let list = scripts.join("requirements.txt");
    let wanted = format!("{TORCH}\n{}", std::fs::read_to_string(&list).map_err(failed)?);
    let (mark, bin) = (folder.join("complete"), if cfg!(windows) { "Scripts" } else { "bin" });
    let python = folder.join(bin).join("python");
    if std::fs::read_to_string(&mark).is_ok_and(|had| had == wanted) {
        return Ok(python);
    }
    say("setting up Python, torch and transformers (once)");
    let system = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    done(Command::new(system).args(["-m", "venv", "--clear"]).arg(folder), "python3 -m venv")?;
    let pip = |args: &[&str]| {
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(args);
        pip
    };
    done(pip(&["--requirement"]).arg(&list), "pip")?;
    let mut cpu = pip(&["--no-deps", "--retries", "0", "--timeout", "15", "--index-url", TORCH_CPU, TORCH]);
    if !cpu.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        say(&format!("{TORCH_CPU} does not answer: taking PyPI's torch, without its GPU libraries"));
        done(&mut pip(&["--no-deps", TORCH]), "pip")?;
        if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            done(&mut pip(&["--no-deps", CUDA_RUNTIME]), "pip")?;
            stand_ins(folder)?;
        }
    }
    std::fs::write(&mark, wanted).map_err(failed)?;
    Ok(python)
}

/// Puts links to torch's own base library where its GPU libraries would be.
fn stand_ins(folder: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("golden: {}: {e}", folder.display());
    for python in std::fs::read_dir(folder.join("lib")).map_err(failed)? {
        let lib = python.map_err(failed)?.path().join("site-packages/torch/lib");
        #[cfg(unix)]
        for name in STAND_INS.iter().filter(|_| lib.is_dir()) {
            std::os::unix::fs::symlink("libc10.so", lib.join(name)).map_err(failed)?;
        }
        #[cfg(not(unix))]
        let _ = (lib, STAND_INS);
    }
    Ok(())
}

/// Runs it; `what` is what a failure is called.
pub(crate) fn done(command: &mut Command, what: &str) -> Result<(), String> {
    let status = command.stdin(Stdio::null()).status();
    match status.map_err(|e| format!("{what} cannot be started: {e}"))? {
        status if status.success() => Ok(()),
        status => Err(format!("{what} failed ({status}); what it said stands above")),
    }
}

fn say(text: &str) {
    eprintln!("golden: {text}");
}
