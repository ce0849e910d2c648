//! The gate: every kernel compiles with every generation of NVRTC, for its architectures, and spills no register.
//!
//! Every day, all samples for one architecture and the first of each for the oldest and the newest; everything with `--ignored`,
//! which takes minutes. `OGIVE_CUDA_FILTER=attend,norm` takes only modules whose names contain one of these,
//! `OGIVE_CUDA_ARCHITECTURES=80,90` only those architectures.
#![allow(clippy::print_stdout)]

use ogive_cuda::Compiler;
use ogive_kernels::{SOURCES, Source};
use ptx_emulator_launcher::{Error, Launcher, Nvrtc};

fn compiler(nvrtc: Nvrtc) -> Option<Compiler> {
    let folder = match Launcher::new().nvrtc_folder(nvrtc, &|_| {}) {
        Ok(folder) => folder,
        Err(e @ (Error::NoNetwork { .. } | Error::NoPip { .. } | Error::Platform { .. })) => {
            println!("skipped: {e}");
            return None;
        }
        Err(e) => panic!("{e}"),
    };
    Some(Compiler::open(nvrtc.library(&folder).unwrap()).unwrap())
}

/// The architecture that every NVRTC knows.
const MIDDLE: u32 = 80;

/// The modules that are asked for.
fn sources() -> impl Iterator<Item = &'static Source> {
    let filter = std::env::var("OGIVE_CUDA_FILTER").unwrap_or_default();
    let wanted = move |s: &&Source| filter.is_empty() || filter.split(',').any(|part| s.name.contains(part));
    SOURCES.into_iter().filter(wanted)
}

fn gate(nvrtc: Nvrtc, all: bool) {
    let Some(compiler) = compiler(nvrtc) else { return };
    let asked = std::env::var("OGIVE_CUDA_ARCHITECTURES").unwrap_or_default();
    let asked: Vec<u32> = asked.split(',').filter_map(|a| a.parse().ok()).collect();
    let known: Vec<u32> =
        compiler.architectures().iter().copied().filter(|a| asked.is_empty() || asked.contains(a)).collect();
    let some = [known.iter().min(), Some(&MIDDLE), known.iter().max()];
    let wanted: Vec<u32> = known.iter().copied().filter(|a| all || some.contains(&Some(a))).collect();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for &architecture in &wanted {
        for source in sources() {
            let most = if all || architecture == MIDDLE { source.samples.len() } else { 1 };
            for defines in source.samples.iter().take(most) {
                count += 1;
                match compiler.cubin(source, defines, architecture) {
                    Err(e) => wrong.push(format!("{defines:?}: {e}")),
                    Ok(compiled) => {
                        assert!(compiled.code.starts_with(b"\x7fELF"), "{} is no machine code", source.name);
                        for kernel in compiled.resources.iter().filter(|k| k.spilled > 0 || k.registers == 0)
                        {
                            wrong.push(format!("sm_{architecture} {defines:?}: {kernel:?}"));
                        }
                    }
                }
            }
        }
    }
    let (major, minor) = compiler.version();
    println!("NVRTC {major}.{minor}: {count} modules for sm_{wanted:?}");
    assert!(wrong.is_empty(), "NVRTC {major}.{minor}:\n{}", wrong.join("\n"));
}

#[test]
fn nvrtc_11() {
    gate(Nvrtc::V11, false);
}

#[test]
fn nvrtc_12() {
    gate(Nvrtc::V12, false);
}

#[test]
fn nvrtc_13() {
    gate(Nvrtc::V13, false);
}

/// Registers are listed for these.
const LISTED: [u32; 3] = [75, 80, 90];

/// The table in docs/CUDA.md.
#[test]
#[ignore = "prints a table"]
fn resources() {
    let Some(compiler) = compiler(Nvrtc::V12) else { return };
    println!("| kernel | defines | registers, {LISTED:?} | shared bytes |\n|---|---|---|---|");
    for source in sources() {
        for defines in source.samples {
            let compiled = LISTED.map(|a| compiler.cubin(source, defines, a).unwrap());
            let words: Vec<&str> = defines.iter().map(|(_, value)| *value).collect();
            for name in source.kernels {
                let found =
                    compiled.each_ref().map(|c| c.resources.iter().find(|k| k.kernel == *name).unwrap());
                let registers: Vec<String> = found.iter().map(|k| k.registers.to_string()).collect();
                println!(
                    "| `{name}` | {} | {} | {} |",
                    words.join(" "),
                    registers.join(", "),
                    found[2].shared
                );
            }
        }
    }
}

#[test]
#[ignore = "takes minutes"]
fn every_architecture() {
    Nvrtc::ALL.into_iter().for_each(|nvrtc| gate(nvrtc, true));
}
