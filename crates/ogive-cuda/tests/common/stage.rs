//! Situations: the libraries of CUDA that a process finds, and what it then says of them.
//!
//! Each is a process of its own that finds the libraries of one folder and no others: the emulator as the driver, compilers as NVIDIA
//! makes them, and files that play what cannot be had.
#![allow(dead_code)] // not every test program wants all of it

use ogive_backend::Backend;
use ogive_cuda::CudaBackend;
use ptx_emulator_launcher::{LIBRARY, Launcher, Nvrtc, test};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

/// What stands for a situation's folder in the value of a variable.
pub(crate) const HERE: &str = "{here}";
/// Set in a process without the emulator that is to say what it finds.
const ALONE: &str = "OGIVE_TEST_ALONE";

/// What lies under a library's name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum File {
    /// The emulator, which is a driver and no NVRTC.
    Emulator,
    /// No library.
    Text,
    /// A link to another file of the folder.
    Link(&'static str),
    /// The begin of the file of another, of so many bytes: a copy that was cut off.
    Cut(&'static Self, u64),
    /// A link to the compiler's library, where those that it opens lie beside it.
    Linked(Nvrtc),
    /// The compiler's library without those beside it, which it opens when it compiles.
    Alone(Nvrtc),
    /// An NVRTC that says it is of this version and compiles nothing.
    Played(u32, u32),
}

/// What is there, and what is said of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Situation {
    pub(crate) name: String,
    files: Vec<(String, File)>,
    compilers: Vec<Nvrtc>,
    set: Vec<(&'static str, String)>,
    /// In the error of opening a device.
    error: Vec<String>,
    /// In the report.
    report: Vec<String>,
    /// It shows only when a device is opened.
    late: bool,
}

pub(crate) fn situation(name: &str) -> Situation {
    Situation { name: name.into(), ..Situation::default() }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

impl Situation {
    pub(crate) fn named(self, name: &str) -> Self {
        Self { name: name.into(), ..self }
    }

    pub(crate) fn file(mut self, name: &str, file: File) -> Self {
        self.files.push((name.into(), file));
        self
    }

    pub(crate) fn driver(self) -> Self {
        self.file("libcuda.so.1", File::Emulator)
    }

    pub(crate) fn compiler(mut self, nvrtc: Nvrtc) -> Self {
        self.compilers.push(nvrtc);
        self
    }

    /// A variable of its environment; [`HERE`] in its value is the situation's folder.
    pub(crate) fn set(mut self, variable: &'static str, value: &str) -> Self {
        self.set.push((variable, value.into()));
        self
    }

    pub(crate) fn fault(self, fault: &str) -> Self {
        self.set("PTX_EMU_FAULT", fault)
    }

    /// What the error says, and the report too.
    pub(crate) fn both(mut self, words: &[&str]) -> Self {
        self.report.extend(owned(words));
        self.error(words)
    }

    pub(crate) fn error(mut self, words: &[&str]) -> Self {
        self.error.extend(owned(words));
        self
    }

    pub(crate) fn report(mut self, words: &[&str]) -> Self {
        self.report.extend(owned(words));
        self
    }

    pub(crate) fn late(mut self) -> Self {
        self.late = true;
        self
    }
}

/// In the process of a situation: what can be heard of it.
fn case() {
    // The harness has begun a line.
    println!();
    if let Some(e) = CudaBackend::unavailable() {
        println!("unavailable: {e}");
    }
    match CudaBackend::new() {
        Ok(backend) => println!("built: {}", backend.facts().description),
        Err(e) => println!("error: {e}\nbrief: {}", e.brief()),
    }
    ogive_cuda::report().to_string().lines().for_each(|line| println!("report: {line}"));
}

/// Whether this is such a process; then it has done its work.
pub(crate) fn is_case() -> bool {
    let is = test::case().is_some() || std::env::var_os(ALONE).is_some();
    if is {
        case();
    }
    is
}

/// The file under another name.
fn link(from: &Path, to: &Path) {
    let from = std::fs::canonicalize(from).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(from, to).unwrap();
    #[cfg(not(unix))]
    std::fs::copy(from, to).unwrap();
}

/// A library of NVRTC's functions that says it is of this version, built by the compiler that built this test. Before 11.2 it has not all.
fn play(major: u32, minor: u32, to: &Path) {
    static ONE: Mutex<()> = Mutex::new(());
    let _alone = ONE.lock();
    if to.exists() {
        return;
    }
    let mut text = format!(
        "#[no_mangle] pub extern \"C\" fn nvrtcVersion(major: &mut i32, minor: &mut i32) -> i32 {{ *major = {major}; *minor = {minor}; 0 }}\n"
    );
    if (major, minor) >= (11, 2) {
        for (name, sets) in [("NumSupportedArchs", 1), ("SupportedArchs", 80)] {
            text.push_str(&format!(
                "#[no_mangle] pub extern \"C\" fn nvrtcGet{name}(n: &mut i32) -> i32 {{ *n = {sets}; 0 }}\n"
            ));
        }
        let names = "CreateProgram CompileProgram DestroyProgram GetProgramLogSize GetProgramLog \
            GetPTXSize GetPTX GetCUBINSize GetCUBIN";
        for name in names.split(' ') {
            text.push_str(&format!("#[no_mangle] pub extern \"C\" fn nvrtc{name}() -> i32 {{ 1 }}\n"));
        }
    }
    let source = to.with_extension("rs");
    std::fs::write(&source, text).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let mut command = Command::new(rustc);
    command
        .args(["--crate-type", "cdylib", "--crate-name", "played", "-A", "warnings", "-o"])
        .arg(to)
        .arg(source);
    let out = command.stdin(Stdio::null()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// Where things are that a situation is made of.
pub(crate) struct Stage {
    pub(crate) test: &'static str,
    folder: tempfile::TempDir,
    /// The emulator; `None` for situations that need none.
    emulator: Option<(Launcher, PathBuf)>,
}

impl Stage {
    /// Without the emulator.
    pub(crate) fn bare(test: &'static str) -> Self {
        Self { test, folder: tempfile::tempdir().unwrap(), emulator: None }
    }

    /// With it, and every compiler; `None`, after a word, where they cannot be had.
    pub(crate) fn emulated(test: &'static str) -> Option<Self> {
        let launcher = Launcher::new().every_nvrtc().patience(Duration::from_secs(300));
        let all = test::unless_excused(test, launcher.environment(&|_| {}))?;
        let library = all.iter().find(|(name, _)| name == LIBRARY).map(|(_, path)| PathBuf::from(path));
        Some(Self { emulator: Some((launcher, library.unwrap())), ..Self::bare(test) })
    }

    /// The folder of the situation.
    pub(crate) fn folder(&self, s: &Situation) -> PathBuf {
        self.folder.path().join(s.name.replace(|c: char| !c.is_ascii_alphanumeric(), "-"))
    }

    /// Puts the libraries of the situation in its folder.
    fn lay(&self, s: &Situation) -> PathBuf {
        let folder = self.folder(s);
        std::fs::create_dir(&folder).unwrap();
        for (name, file) in &s.files {
            let to = folder.join(name);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            self.lay_file(file, &to);
        }
        for nvrtc in &s.compilers {
            let from = self.emulator.as_ref().unwrap().0.nvrtc_folder(*nvrtc, &|_| {}).unwrap();
            // What it opens itself lies beside it.
            for file in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
                link(&file.path(), &folder.join(file.file_name()));
            }
        }
        folder
    }

    /// Puts this file there.
    fn lay_file(&self, file: &File, to: &Path) {
        match file {
            File::Emulator => link(&self.emulator.as_ref().unwrap().1, to),
            File::Link(name) => link(&to.with_file_name(name), to),
            File::Cut(whole, len) => {
                let from = to.with_extension("whole");
                self.lay_file(whole, &from);
                let mut begin = std::fs::File::open(from).unwrap().take(*len);
                std::io::copy(&mut begin, &mut std::fs::File::create(to).unwrap()).unwrap();
            }
            File::Linked(nvrtc) => {
                let folder = self.emulator.as_ref().unwrap().0.nvrtc_folder(*nvrtc, &|_| {}).unwrap();
                link(&nvrtc.library(&folder).unwrap(), to);
            }
            File::Alone(nvrtc) => {
                let folder = self.emulator.as_ref().unwrap().0.nvrtc_folder(*nvrtc, &|_| {}).unwrap();
                let from = std::fs::canonicalize(nvrtc.library(&folder).unwrap()).unwrap();
                // A hundred megabytes, where it cannot be a link. One by name would lead to those beside it.
                std::fs::hard_link(&from, to).or_else(|_| std::fs::copy(&from, to).map(|_| ())).unwrap();
            }
            File::Text => std::fs::write(to, "This is no library.\n".repeat(9)).unwrap(),
            File::Played(major, minor) => {
                let played = self.folder.path().join(format!("played-{major}.{minor}.so"));
                play(*major, *minor, &played);
                std::fs::copy(&played, to).unwrap();
            }
        }
    }

    /// What is heard in the situation.
    pub(crate) fn hear(&self, s: &Situation) -> test::Report {
        let folder = self.lay(s);
        let mut set: Vec<(OsString, OsString)> = Vec::new();
        for name in ["LD_LIBRARY_PATH", "HOME", "VIRTUAL_ENV", "CONDA_PREFIX"] {
            set.push((name.into(), folder.clone().into()));
        }
        for name in ["OGIVE_CUDA_PATH", "CUDA_PATH", "CUDA_ROOT", "CUDA_HOME"] {
            set.push((name.into(), "".into()));
        }
        set.push(("OGIVE_CUDA_CACHE".into(), concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels").into()));
        let here = folder.display().to_string();
        set.extend(s.set.iter().map(|(name, value)| (name.into(), value.replace(HERE, &here).into())));
        let report = match &self.emulator {
            Some((launcher, _)) => {
                let launcher = set.into_iter().fold(launcher.clone(), |l, (name, value)| l.set(name, value));
                test::run(self.test, &s.name, &launcher).unwrap()
            }
            None => {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.args(["--exact", self.test, "--nocapture", "--test-threads=1"]).envs(set);
                let out = command.env(ALONE, "1").stdin(Stdio::null()).output().unwrap();
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let (passed, ending) = (out.status.success(), out.status.to_string());
                test::Report { passed, ending, stdout: text(&out.stdout), stderr: text(&out.stderr) }
            }
        };
        report.ok()
    }

    /// Holds what is heard in each against what should be, and against what is heard in all others.
    pub(crate) fn tell_apart(&self, all: &[Situation]) {
        let mut sentences: HashMap<String, &str> = HashMap::new();
        for s in all {
            let heard = self.hear(s);
            let told = || format!("{}:\n{}{}", s.name, heard.stdout, heard.stderr);
            let error = heard.values("error").next().unwrap_or_else(|| panic!("no error: {}", told()));
            let report = heard.values("report").collect::<Vec<_>>().join("\n");
            println!("{}: {error}\n{report}\n", s.name);
            s.error
                .iter()
                .for_each(|word| assert!(error.contains(word), "no {word:?} in the error of {}", told()));
            s.report
                .iter()
                .for_each(|word| assert!(report.contains(word), "no {word:?} in the report of {}", told()));
            // What is wrong comes first, without what helps, and is not empty.
            let brief = heard.values("brief").next().unwrap();
            assert!(brief.len() > 10 && error.contains(brief) && !brief.contains(';'), "{}", told());
            let unavailable = heard.values("unavailable").next();
            assert_eq!(unavailable, if s.late { None } else { Some(error) }, "{}", told());
            assert_eq!(heard.values("report").count(), 3, "{}", told());
            // Two situations do not differ by their folders.
            let folder = self.folder(s).display().to_string();
            if let Some(other) = sentences.insert(error.replace(&folder, ""), &s.name) {
                panic!("said in {other}, too: {}", told());
            }
        }
        println!("cuda: {} sentences", sentences.len());
    }
}
