//! `cargo xtask emu-corpus`: PTX that nobody here wrote, to run through the emulator.
//!
//! candle-kernels come from crates.io by their exact version and are compiled as their own build script would, by nvcc from pinned
//! wheels. nvcc and not NVRTC, because they include headers of the host; it wants a C++ compiler on the machine, the one thing here
//! that cannot be fetched.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cargo_metadata::MetadataCommand;
use ptx_emulator_launcher::Launcher;

/// What is compiled. Exact: the tests know the kernels by their names and arguments.
const CRATE: &str = "candle-kernels";
const VERSION: &str = "0.11.1";
/// The flags of its build script.
const FLAGS: [&str; 4] = ["--ptx", "--expt-relaxed-constexpr", "-std=c++17", "-O3"];
const ARCH: &str = "80";
/// Ten files make the same kernels for a format each, and nvcc takes most of its time for them: those of a small block and of a large one do.
const INSTANCES: &str = "mmq_instance_";
const FORMATS: [&str; 2] = ["q4_0", "q6_k"];

/// What `cargo xtask help` says.
pub(crate) const HELP: &str =
    "  emu-corpus          compiles candle-kernels to PTX for the emulator's tests (a few minutes, once)\n";

/// Compiles what is not there yet.
pub(crate) fn run(launcher: &Launcher) -> Result<(), String> {
    let failed = |e: &dyn std::fmt::Display| format!("emu-corpus: {e}");
    let cache = launcher.cache_folder().map_err(|e| failed(&e))?;
    let out = cache.join(format!("{CRATE}-{VERSION}-sm_{ARCH}"));
    if out.join("complete").is_file() {
        return Ok(());
    }
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        eprintln!("skipped: emu-corpus: nvcc's wheels are for x86-64 Linux");
        return Ok(());
    }
    if !has_host_compiler() {
        eprintln!("skipped: emu-corpus: nvcc needs g++, which is not there; install it to test {CRATE}");
        return Ok(());
    }
    let nvcc = launcher.nvcc_folder(&|text| eprintln!("emu-corpus: {text}")).map_err(|e| failed(&e))?;
    make_executable(&nvcc).map_err(|e| failed(&e))?;
    let source = source(&cache)?;
    std::fs::create_dir_all(&out).map_err(|e| format!("emu-corpus: making {}: {e}", out.display()))?;
    let kernels = kernels(&source)?;
    eprintln!("emu-corpus: compiling {} files of {CRATE} {VERSION} (once)", kernels.len());
    let next = std::sync::Mutex::new(kernels.iter());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let outcomes: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let work = || {
            loop {
                let file = next.lock().map_err(|e| failed(&e))?.next();
                let Some(file) = file else { return Ok(()) };
                compile(&nvcc, &source, file, &out)?;
            }
        };
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or(Err("emu-corpus: a thread died".into())))
            .collect()
    });
    outcomes.into_iter().collect::<Result<(), String>>()?;
    std::fs::write(out.join("complete"), "").map_err(|e| failed(&e))
}

fn has_host_compiler() -> bool {
    let probe = Command::new("g++").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    probe.is_ok_and(|status| status.success())
}

/// pip does not keep the mark of programs that wheels of libraries carry.
#[cfg_attr(not(unix), expect(unused_variables, reason = "there is no such mark"))]
fn make_executable(nvcc: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    for folder in ["bin", "nvvm/bin"] {
        use std::os::unix::fs::PermissionsExt;
        for entry in std::fs::read_dir(nvcc.join(folder))? {
            let path = entry?.path();
            if path.is_file() {
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
            }
        }
    }
    Ok(())
}

/// The crate's folder: cargo fetches it for a package that depends on it and checks it as any other.
fn source(cache: &Path) -> Result<PathBuf, String> {
    let scratch = cache.join("corpus-manifest");
    let manifest = scratch.join("Cargo.toml");
    let text = format!(
        "[workspace]\n[package]\nname = \"corpus\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[lib]\npath = \"empty.rs\"\n\
         [dependencies]\n{CRATE} = \"={VERSION}\"\n"
    );
    std::fs::create_dir_all(&scratch)
        .and_then(|()| std::fs::write(scratch.join("empty.rs"), ""))
        .and_then(|()| std::fs::write(&manifest, text))
        .map_err(|e| format!("emu-corpus: writing {}: {e}", manifest.display()))?;
    let metadata = MetadataCommand::new().manifest_path(&manifest).exec();
    let metadata = metadata.map_err(|e| format!("emu-corpus: fetching {CRATE} {VERSION}: {e}"))?;
    let package = metadata.packages.iter().find(|package| package.name.as_str() == CRATE);
    package
        .and_then(|package| package.manifest_path.parent())
        .map(|folder| folder.join("src").into_std_path_buf())
        .ok_or_else(|| format!("emu-corpus: cargo does not say where {CRATE} is"))
}

/// The `.cu` files, those of folders within too.
fn kernels(source: &Path) -> Result<Vec<PathBuf>, String> {
    let mut open = vec![source.to_path_buf()];
    let mut found = Vec::new();
    while let Some(folder) = open.pop() {
        let entries = std::fs::read_dir(&folder)
            .map_err(|e| format!("emu-corpus: reading {}: {e}", folder.display()))?;
        for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "cu") && is_wanted(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn is_wanted(path: &Path) -> bool {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    stem.strip_prefix(INSTANCES).is_none_or(|format| FORMATS.contains(&format))
}

fn compile(nvcc: &Path, source: &Path, file: &Path, out: &Path) -> Result<(), String> {
    let Some(stem) = file.file_stem() else { return Ok(()) };
    let ptx = out.join(stem).with_extension("ptx");
    if ptx.is_file() {
        return Ok(());
    }
    let part = ptx.with_extension("part");
    let output = Command::new(nvcc.join("bin/nvcc"))
        .args(FLAGS)
        .arg(format!("-gencode=arch=compute_{ARCH},code=compute_{ARCH}"))
        .arg("-I")
        .arg(nvcc.join("include"))
        .arg("-I")
        .arg(nvcc.join("include/cccl"))
        .arg("-I")
        .arg(source)
        .arg("-o")
        .arg(&part)
        .arg(file)
        .output()
        .map_err(|e| format!("emu-corpus: nvcc cannot be started: {e}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("emu-corpus: nvcc on {}: {said}", file.display()));
    }
    std::fs::rename(&part, &ptx).map_err(|e| format!("emu-corpus: moving {}: {e}", part.display()))
}
