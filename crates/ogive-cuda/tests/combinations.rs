//! Every combination of driver, device, NVRTC and cuBLAS: what is taken, or the sentence that names the very thing that is missing or old.
//!
//! What must come out stands here a second time, as rules over the four, and not as a list: there are hundreds. A driver, a device and an
//! NVRTC are a process; in it cuBLAS comes and goes, as that is looked for anew by each backend.
#![allow(clippy::print_stdout)]

#[path = "common/stage.rs"]
mod stage;

use ogive_backend::Backend;
use ogive_backend::tensor::{F32, HostWeight};
use ogive_cuda::{Compute, CublasUse, CudaBackend};
use ptx_emulator_launcher::{Nvrtc, test, test_name};
use stage::{File, HERE, Situation, Stage, situation};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A driver and the device it has.
#[derive(Clone, Copy, Debug)]
enum Machine {
    NoDriver,
    /// A file that is no library.
    Broken,
    /// A library without the functions of CUDA 11.
    Old,
    NoDevice,
    /// A driver for this version of CUDA, and a device of this compute capability.
    Has((u32, u32), u32),
}

const MACHINES: [Machine; 10] = [
    Machine::NoDriver,
    Machine::Broken,
    Machine::Old,
    Machine::NoDevice,
    Machine::Has((10, 2), 80),
    Machine::Has((11, 8), 80),
    Machine::Has((12, 4), 80),
    Machine::Has((13, 5), 80),
    Machine::Has((13, 5), 61),
    Machine::Has((13, 5), 35),
];

/// An NVRTC that may be there.
#[derive(Clone, Copy, Debug)]
enum Compiler {
    Absent,
    Old,
    Real(Nvrtc),
    /// Of a generation that no build loads.
    LeftOut,
    Broken,
    /// Another library.
    Other,
    /// 12.9 without the libraries that it opens itself.
    Alone,
}

const COMPILERS: [Compiler; 9] = [
    Compiler::Absent,
    Compiler::Old,
    Compiler::Real(Nvrtc::V11),
    Compiler::Real(Nvrtc::V12),
    Compiler::Real(Nvrtc::V13),
    Compiler::LeftOut,
    Compiler::Broken,
    Compiler::Other,
    Compiler::Alone,
];

/// A cuBLAS that may be there.
#[derive(Clone, Copy, Debug)]
enum Blas {
    Absent,
    Of(u32),
    Broken,
    Other,
}

const BLAS: [Blas; 6] = [Blas::Absent, Blas::Of(11), Blas::Of(12), Blas::Of(13), Blas::Broken, Blas::Other];

/// How a file is called that is not there yet.
const AWAY: &str = ".away";

impl Machine {
    fn lay(self, s: Situation) -> Situation {
        match self {
            Self::NoDriver => s,
            Self::Broken => s.file("libcuda.so.1", File::Text),
            Self::Old => s.file("libcuda.so.1", File::Played(12, 0)),
            Self::NoDevice => s.driver().set("PTX_EMU_DEVICES", "none"),
            Self::Has((major, minor), sm) => {
                let driver = format!("driver:{}", 1000 * major + 10 * minor);
                s.driver().fault(&driver).set("PTX_EMU_DEVICES", &format!("sm_{sm}"))
            }
        }
    }

    fn driver(self) -> Option<(u32, u32)> {
        if let Self::Has(version, _) = self { Some(version) } else { None }
    }

    /// What the driver's line of the report says.
    fn words(self) -> Vec<String> {
        let installs =
            "install NVIDIA's driver (nvidia-smi must work); in a container, start it with the GPU";
        let words: &[&str] = match self {
            Self::NoDriver => &[
                "CUDA driver: libcuda.so.1 not found; looked in OGIVE_CUDA_PATH, the loader's path",
                installs,
            ],
            Self::Broken => &["/libcuda.so.1 cannot be loaded (", installs],
            Self::Old => &[
                "/libcuda.so.1 is no driver of CUDA 11 or newer (undefined symbol: cuInit); update the driver",
            ],
            Self::NoDevice => &["/libcuda.so.1; cuda:0: there is no device here; look at nvidia-smi"],
            Self::Has((major, minor), _) => {
                return vec![format!("CUDA driver: CUDA {major}.{minor} (/"), "/libcuda.so.1)".into()];
            }
        };
        words.iter().map(ToString::to_string).collect()
    }
}

impl Compiler {
    fn lay(self, s: Situation) -> Situation {
        match self {
            Self::Absent => s,
            Self::Old => s.file("libnvrtc.so", File::Played(11, 1)),
            Self::Real(nvrtc) => s.compiler(nvrtc),
            Self::LeftOut => s.file("libnvrtc.so", File::Played(14, 0)),
            Self::Broken => s.file("libnvrtc.so.12", File::Text),
            Self::Other => s.file("libnvrtc.so.12", File::Emulator),
            Self::Alone => s.file("libnvrtc.so.12", File::Alone(Nvrtc::V12)),
        }
    }

    /// What is said of the file, whatever driver and device there are; nothing where it may do.
    fn words(self) -> Option<&'static str> {
        Some(match self {
            Self::Absent => "libnvrtc.so not found; looked in OGIVE_CUDA_PATH, the loader's path",
            Self::Old => "/libnvrtc.so is NVRTC 11.1, and 11.8 is the oldest that will do",
            Self::LeftOut => {
                "/libnvrtc.so is of CUDA 14, which this build leaves out: it loads those of CUDA 11, 12 and 13"
            }
            Self::Broken => "/libnvrtc.so.12 cannot be loaded (",
            Self::Other => "/libnvrtc.so.12 is no NVRTC (",
            Self::Real(_) | Self::Alone => return None,
        })
    }
}

/// What NVRTC 12.9 says without its own libraries.
const BUILTINS: &str = "libnvrtc-builtins.so.12.9";

/// Major, minor and the oldest device.
fn facts(nvrtc: Nvrtc) -> ((u32, u32), u32) {
    match nvrtc {
        Nvrtc::V11 => ((11, 8), 35),
        Nvrtc::V12 => ((12, 9), 50),
        Nvrtc::V13 => ((13, 5), 75),
    }
}

/// The package to install.
fn package(kind: &str, generation: u32) -> String {
    if generation == 13 { format!("nvidia-{kind}") } else { format!("nvidia-{kind}-cu{generation}") }
}

/// What helps where there is none of `kind`, in the words of the command to run: one where driver and device are known.
fn helps(kind: &str, machine: Machine) -> String {
    let Machine::Has(driver, sm) = machine else {
        let [first, newest, oldest] = [12, 13, 11].map(|g| package(kind, g));
        return format!(
            "pip install {first} (CUDA 13: {newest}, CUDA 11: {oldest}), or point OGIVE_CUDA_PATH"
        );
    };
    let fits = |nvrtc: &Nvrtc| facts(*nvrtc).0.0 <= driver.0 && facts(*nvrtc).1 <= sm;
    match Nvrtc::ALL.into_iter().rfind(fits) {
        Some(nvrtc) => format!("pip install {}, or point OGIVE_CUDA_PATH", package(kind, facts(nvrtc).0.0)),
        None => format!("update the driver, which is for CUDA {}.{}", driver.0, driver.1),
    }
}

/// The version of the NVRTC that is used, or what the error says.
fn opened(machine: Machine, compiler: Compiler) -> Result<String, Vec<String>> {
    let Machine::Has(driver, sm) = machine else {
        let words = machine.words().into_iter();
        // An error names the library apart, and a missing device has no file.
        return Err(words.map(|w| w.replace("/libcuda.so.1; cuda:0", "cuda:0")).collect());
    };
    let help = helps("cuda-nvrtc", machine);
    let nvrtc = match compiler {
        Compiler::Real(nvrtc) => nvrtc,
        // It does not come as far as to the driver.
        Compiler::Alone if sm >= facts(Nvrtc::V12).1 => {
            return Err(vec![" is NVRTC 12.9 and compiles nothing (".into(), BUILTINS.into(), help]);
        }
        Compiler::Alone => Nvrtc::V12,
        other => return Err(vec!["NVRTC: ".into(), other.words().unwrap().into(), help]),
    };
    let (version, oldest) = facts(nvrtc);
    let named = format!(" is NVRTC {}.{}", version.0, version.1);
    if sm < oldest {
        return Err(vec![named, format!(", which does not know sm_{sm}"), help]);
    }
    if version <= driver {
        return Ok(format!("NVRTC {}.{}", version.0, version.1));
    }
    let newer =
        format!("newer than the driver, which is for CUDA {}.{}: update the driver", driver.0, driver.1);
    let older = match driver.0 {
        10 => ";".to_owned(),
        // Not any of that generation.
        same if same == version.0 => format!(
            " or install an older NVRTC (pip install \"{}<{same}.{}\")",
            package("cuda-nvrtc", same),
            driver.1 + 1
        ),
        major => format!(" or install an older NVRTC (pip install {})", package("cuda-nvrtc", major)),
    };
    Err(vec![named, newer + &older])
}

/// What NVRTC's line of the report says, and whether that is all there is to say.
fn compiler_line(machine: Machine, compiler: Compiler) -> (Vec<String>, bool) {
    let nvrtc = match compiler {
        Compiler::Real(nvrtc) => nvrtc,
        Compiler::Alone => Nvrtc::V12,
        other => return (vec![other.words().unwrap().into(), helps("cuda-nvrtc", machine)], false),
    };
    let (version, _) = facts(nvrtc);
    let found = format!("NVRTC: {}.{} (/", version.0, version.1);
    match (machine, opened(machine, compiler)) {
        (Machine::Has(_, sm), Err(_)) if sm < facts(nvrtc).1 => {
            (vec![found, format!("; none for sm_{sm}: {}", helps("cuda-nvrtc", machine))], false)
        }
        (Machine::Has(..), Err(words)) if matches!(compiler, Compiler::Alone) => {
            (vec![found, "; 12.9 compiles nothing (".into(), BUILTINS.into(), words[2].clone()], false)
        }
        // A driver may take what a newer compiler of its generation makes: only a device tells.
        (Machine::Has(driver, _), Err(words)) if driver.0 < version.0 => {
            (vec![found, words.last().unwrap().trim_end_matches(';').into()], false)
        }
        _ => (vec![found], true),
    }
}

/// What is said of a cuBLAS beside this machine, with what helps; nothing where it is taken.
fn blas_words(machine: Machine, blas: Blas) -> Option<Vec<String>> {
    let driver = machine.driver();
    let generation = if let Blas::Of(g) = blas { g } else { 12 };
    let what = match (blas, driver) {
        (Blas::Absent, _) => "libcublas.so not found; looked in ".to_owned(),
        (_, Some((major, minor))) if generation > major => {
            format!("/libcublas.so.{generation} is newer than the driver, which is for CUDA {major}.{minor}")
        }
        (Blas::Broken, _) => "/libcublas.so.12 cannot be loaded (".into(),
        (Blas::Other, _) => "/libcublas.so.12 is no cuBLAS of CUDA 11 or newer (".into(),
        (Blas::Of(_), _) => return None,
    };
    Some(vec![what, format!("optional, for long prompts: {}", helps("cublas", machine))])
}

impl Blas {
    /// Where it lies below the folder that is looked in. A path that was once opened gives the same library for good, so each has its own.
    fn place(self) -> Option<(&'static str, File)> {
        Some(match self {
            Self::Absent => return None,
            Self::Of(11) => ("lib64/libcublas.so.11", File::Emulator),
            Self::Of(12) => ("lib64/libcublas.so.12", File::Emulator),
            Self::Of(_) => ("lib64/libcublas.so.13", File::Emulator),
            Self::Broken => ("lib/libcublas.so.12", File::Text),
            Self::Other => ("targets/x86_64-linux/lib/libcublas.so.12", File::Played(12, 0)),
        })
    }
}

/// A product of two rows, which is for cuBLAS if there is one.
fn product(b: &CudaBackend) -> Vec<f32> {
    let values: Vec<f32> = (0..8 * 32).map(|i| (i % 13) as f32 - 6.0).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let w = b.upload_weight(&HostWeight::new("w", [1, 8, 32], &F32, bytes.into()).unwrap()).unwrap();
    let x = b.upload(&values[..64], [2, 32].into()).unwrap();
    b.download(&b.linear(&x, &w).unwrap()).unwrap()
}

/// In the process of a machine and a compiler: what is heard without a cuBLAS, and with each.
fn case() {
    // The harness has begun a line.
    println!();
    let folder = PathBuf::from(std::env::var_os("OGIVE_CUDA_PATH").unwrap());
    let mut values = None;
    for blas in BLAS {
        let file = blas.place().map(|(place, _)| (folder.join(format!("{place}{AWAY}")), folder.join(place)));
        if let Some((away, here)) = &file {
            std::fs::rename(away, here).unwrap();
        }
        match CudaBackend::builder().compute(Compute::Bf16).cublas_from(2).build() {
            Ok(b) => {
                println!("{blas:?} built: {}", b.facts().description);
                // Small whole numbers: the same whoever multiplies.
                let y = product(&b);
                assert_eq!(values.get_or_insert(y.clone()), &y, "{blas:?}");
                match b.cublas() {
                    CublasUse::Started { path, .. } => println!("{blas:?} started: {}", path.display()),
                    other => println!("{blas:?} cublas: {other}"),
                }
            }
            Err(e) => {
                println!("{blas:?} error: {e}");
                // It may show only when a device is opened.
                assert!(CudaBackend::unavailable().is_none_or(|why| why.to_string() == e.to_string()), "{e}");
            }
        }
        ogive_cuda::report().to_string().lines().for_each(|line| println!("{blas:?} report: {line}"));
        if let Some((away, here)) = &file {
            std::fs::rename(here, away).unwrap();
        }
    }
}

/// Every word in its order.
#[track_caller]
fn holds(line: &str, words: &[String], told: &dyn Fn() -> String) {
    let mut rest = line;
    for word in words {
        let at = rest.find(word.as_str()).unwrap_or_else(|| panic!("no {word:?} in {line:?}: {}", told()));
        rest = &rest[at + word.len()..];
    }
}

/// What was heard of a machine and a compiler is what must be; gives each sentence with what it must be the only one of.
fn check(machine: Machine, compiler: Compiler, heard: &test::Report, folder: &Path) -> Vec<(String, String)> {
    let told = || format!("{machine:?}, {compiler:?}:\n{}\n{}", heard.stdout, heard.stderr);
    let here = folder.display().to_string();
    let mut sentences = Vec::new();
    for blas in BLAS {
        let value = |key: &str| heard.values(&format!("{blas:?} {key}")).next().map(|v| v.to_owned());
        match (opened(machine, compiler), value("built"), value("error")) {
            (Ok(version), Some(built), None) => {
                assert!(built.ends_with(&version), "{version}: {}", told());
                match (value("started"), value("cublas"), blas_words(machine, blas)) {
                    // Too old for products in a half, so nothing is for cuBLAS.
                    (None, Some(used), _) if matches!(machine, Machine::Has(_, ..75)) => {
                        assert_eq!(used, "cuBLAS not yet wanted", "{}", told());
                    }
                    (Some(path), None, None) => {
                        assert!(path.ends_with(blas.place().unwrap().0), "{}", told());
                    }
                    (None, Some(used), Some(words)) => holds(&used, &words, &told),
                    other => panic!("{blas:?}: {other:?}: {}", told()),
                }
            }
            (Err(words), None, Some(error)) => {
                holds(&error, &words, &told);
                // Two machines may lack the same, and want the same package.
                let cause = match (machine, compiler) {
                    // It is too new for the device before it is not whole.
                    (Machine::Has(_, ..50), Compiler::Alone) => {
                        format!("{machine:?} {:?}", Compiler::Real(Nvrtc::V12))
                    }
                    (Machine::Has(..), Compiler::Real(_)) => format!("{machine:?} {compiler:?}"),
                    (Machine::Has(..), _) => format!("{compiler:?} {}", helps("cuda-nvrtc", machine)),
                    _ => format!("{machine:?}"),
                };
                sentences.push((error.replace(&here, ""), cause));
            }
            other => panic!("{blas:?}: {other:?}: {}", told()),
        }
        let key = format!("{blas:?} report");
        let lines: Vec<&str> = heard.values(&key).collect();
        let [of_driver, of_compiler, of_blas] = lines[..] else { panic!("{blas:?}: {}", told()) };
        holds(of_driver, &machine.words(), &told);
        let (words, whole) = compiler_line(machine, compiler);
        holds(of_compiler, &words, &told);
        assert_eq!(whole, !of_compiler.contains("; "), "{of_compiler}: {}", told());
        match blas_words(machine, blas) {
            Some(words) => holds(of_blas, &words, &told),
            None => assert_eq!(of_blas, format!("cuBLAS: {here}/{}", blas.place().unwrap().0), "{}", told()),
        }
    }
    sentences
}

#[test]
fn every_combination_is_told_apart() {
    if test::case().is_some() {
        return case();
    }
    if !cfg!(all(feature = "cuda-11", feature = "cuda-12", feature = "cuda-13")) {
        return println!("skipped: this build leaves a generation out");
    }
    let Some(stage) = Stage::emulated(test_name!()) else { return };
    let lay = |machine: Machine, compiler: Compiler| {
        let s = situation(&format!("{machine:?} {compiler:?}"));
        let s = BLAS
            .iter()
            .filter_map(|blas| blas.place())
            .fold(s, |s, (place, file)| s.file(&format!("{place}{AWAY}"), file));
        compiler.lay(machine.lay(s)).set("OGIVE_CUDA_PATH", HERE)
    };
    // What a whole compiler made is kept on disk from here on, and must not hide one that is not.
    stage.hear(&lay(Machine::Has((13, 5), 80), Compiler::Real(Nvrtc::V12)).named("a whole one"));
    let bare = stage.hear(&lay(Machine::NoDriver, Compiler::Absent).named("a look"));
    let key = "Absent report";
    if let Some(line) = bare.values(key).find(|line| !line.contains(" not found; looked in ")) {
        return println!("skipped: {}: this machine has one: {line}", stage.test);
    }
    let all = MACHINES.iter().flat_map(|machine| COMPILERS.map(|compiler| (*machine, compiler)));
    let (all, sentences) = (Mutex::new(all), Mutex::new(HashMap::new()));
    let work = || {
        loop {
            let Some((machine, compiler)) = all.lock().unwrap().next() else { return };
            let s = lay(machine, compiler);
            let (heard, folder) = (stage.hear(&s), stage.folder(&s));
            for (sentence, cause) in check(machine, compiler, &heard, &folder) {
                let mut sentences = sentences.lock().unwrap();
                let other = sentences.entry(sentence).or_insert_with(|| cause.clone());
                assert_eq!(*other, cause, "{}", heard.stdout);
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let sentences = sentences.into_inner().unwrap();
    let mut causes: Vec<&String> = sentences.values().collect();
    causes.sort();
    causes.dedup();
    // Each cause has one sentence, whatever else there is.
    assert_eq!(causes.len(), sentences.len(), "{sentences:#?}");
    let count = MACHINES.len() * COMPILERS.len() * BLAS.len();
    println!("cuda: {count} combinations, {} sentences", sentences.len());
}
