//! The gate: every kernel compiles with every generation of NVRTC, for its architectures, without a warning, and spills no register nor
//! keeps an array in memory.
//!
//! To compile is slow, some 0.2 s each, and its outcome is the source's and the compiler's alone. So `compiled.txt` says of which sources all was
//! found right: every sample for the architectures that paths and tables were made for, and one for each other family. The daily tests hold its
//! lines to the sources, and compile one sample of each module, another for each source. Who changes a source runs `-- --ignored --nocapture
//! record`, which compiles what has no line, a few seconds a module, and writes the line and what docs/CUDA.md lists of registers. That the
//! outcome is in the repository and not made anew is a debt to time: all lines take eight minutes. All samples for all architectures,
//! `-- --ignored --nocapture every_architecture`, take a core half an hour.
//! `OGIVE_CUDA_FILTER=attend,norm` takes only modules whose names contain one of these, `OGIVE_CUDA_ARCHITECTURES=80,90` only those
//! architectures.
#![allow(clippy::print_stdout)]

mod record;

use ogive_cuda::{Compiled, Compiler, Resources};
use ogive_kernels::{SOURCES, Source};
use ptx_emulator_launcher::{Launcher, Nvrtc, test};
use record::{LISTED_BY, Record, Table, title};
use std::collections::BTreeMap;

fn compiler(nvrtc: Nvrtc) -> Option<Compiler> {
    let folder = Launcher::new().nvrtc_folder(nvrtc, &|_| {});
    let folder = test::unless_excused(&format!("NVRTC {nvrtc}"), folder)?;
    Some(Compiler::open(nvrtc.library(&folder).unwrap()).unwrap())
}

/// The architectures for which a compiler of this generation makes all samples before a source is recorded: where tensor cores have no bf16, where
/// they have, and where kernels may begin before the last has ended; of the newest compiler the last of these and the newest that it knows.
/// What programs run is what NVRTC 12 and 13 make. How registers are given out hardly differs between devices of a family, and what is code for a
/// family alone stands behind a condition that one sample shows.
const SAMPLES_FOR: [(Nvrtc, &[u32]); 2] = [(Nvrtc::V12, &[75, 80, 90]), (Nvrtc::V13, &[90, NEWEST])];
/// Stands for the newest architecture that a compiler knows.
const NEWEST: u32 = u32::MAX;

/// Architectures of one family have one instruction set: Kepler, Maxwell, Pascal, Volta, Turing, Ampere with Ada, Hopper, and the two of
/// Blackwell.
fn family(architecture: u32) -> u32 {
    match architecture {
        75 => 75,
        100..=119 => 100,
        other => other / 10 * 10,
    }
}

/// The architectures whose blocks have half the registers that others' have: attention runs there with as many warps as it has where nothing is
/// said.
const HALF_THE_REGISTERS: [u32; 2] = [53, 62];

/// Bytes of memory that a thread of this module may have for itself: none, as that is what an array takes whose index only a run tells, and
/// each access then goes to memory. But CUDA's `sincosf` reduces angles beyond 105615, which positions of the longest contexts reach, with an
/// array of seven words that it indexes by the angle's exponent. NVRTC 11.8 keeps it in memory up to `sm_53`, 12.9 in `rope_store` for those
/// and `sm_90`, 13.5 nowhere. Smaller angles never touch it.
fn most_stack(source: &Source) -> u32 {
    if ["rope", "rope_store"].contains(&source.name) { 32 } else { 0 }
}

/// What a module is compiled with for an architecture, of a sample.
fn defines<'a>(source: &Source, sample: &[(&'a str, &'a str)], architecture: u32) -> Vec<(&'a str, &'a str)> {
    let fewer =
        HALF_THE_REGISTERS.contains(&architecture) && ["attend", "attend_split"].contains(&source.name);
    sample.iter().copied().filter(|(name, _)| !(fewer && *name == "WARPS")).collect()
}

/// What is compiled before the `number`-th module, which has so many samples, is recorded: architectures and samples by their numbers.
fn recorded(nvrtc: Nvrtc, known: &[u32], number: usize, samples: usize) -> Vec<(u32, usize)> {
    let newest = known.iter().copied().max().unwrap_or(0);
    let all = SAMPLES_FOR.into_iter().find(|(of, _)| *of == nvrtc).map_or(&[][..], |(_, all)| all);
    let all: Vec<u32> = all.iter().map(|a| if *a == NEWEST { newest } else { *a }).collect();
    let mut families: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for &architecture in known.iter().filter(|a| !all.contains(a)) {
        families.entry(family(architecture)).or_default().push(architecture);
    }
    // Another member for each module, and another sample in each family.
    let rest = families.values().enumerate();
    let rest = rest.map(|(i, members)| (members[number % members.len()], (number + i) % samples));
    all.iter().flat_map(|a| (0..samples).map(|i| (*a, i))).chain(rest).collect()
}

/// The modules that are asked for, and their numbers among all. By these samples are chosen, so a new one belongs behind the others.
fn sources() -> impl Iterator<Item = (usize, &'static Source)> {
    let filter = std::env::var("OGIVE_CUDA_FILTER").unwrap_or_default();
    let wanted = move |s: &Source| filter.is_empty() || filter.split(',').any(|part| s.name.contains(part));
    SOURCES.into_iter().enumerate().filter(move |(_, source)| wanted(source))
}

/// Lines of a log that must not be there. Warnings are those about a line of ours; that an architecture will be given up one day is none.
/// ptxas only notes that it makes a kernel slower than it was written, as where it waits after each product of tensor cores.
fn complaints<'a>(source: &Source, log: &'a str) -> impl Iterator<Item = &'a str> {
    // The trial's helper has no caller where a device has no tensor cores.
    let trial = source.name == "trial";
    log.lines().filter(move |line| {
        let warning = line.contains("warning") && line.contains(".cu(") && !trial;
        warning || line.contains("Potential Performance Loss") || line.contains("serialized")
    })
}

#[test]
fn complaints_are_told_from_other_lines() {
    let bad = [
        "attend.cu(7): warning #177-D: variable \"x\" was declared but never referenced",
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient \
            register resources for the wgmma pipeline in function 'linear'",
    ];
    let good = "ptxas info    : Used 40 registers, used 1 barriers\n\
        nvrtc: warning: Architectures prior to 'compute_75' are deprecated";
    let log = [bad[0], good, bad[1]].join("\n");
    let source = SOURCES.into_iter().find(|s| s.name != "trial").unwrap();
    assert_eq!(complaints(source, &log).collect::<Vec<_>>(), bad);
}

/// What a module may not be: wasteful, or complained of.
fn faults(source: &Source, what: &str, compiled: &Compiled) -> Vec<String> {
    let wasteful = |k: &&Resources| k.spilled > 0 || k.stack > most_stack(source) || k.registers == 0;
    let wasteful = compiled.resources.iter().filter(wasteful).map(|kernel| format!("{what}: {kernel:?}"));
    wasteful.chain(complaints(source, &compiled.log).map(|line| format!("{what}: {line}"))).collect()
}

/// Compiles a module so, and says what is wrong with it.
fn compile(
    compiler: &Compiler,
    source: &Source,
    (architecture, sample): (u32, usize),
) -> Result<Compiled, Vec<String>> {
    let defines = &defines(source, source.samples[sample], architecture)[..];
    let what = format!("sm_{architecture} {} {defines:?}", source.name);
    let compiled = compiler.cubin(source, defines, architecture).map_err(|e| vec![format!("{what}: {e}")])?;
    assert!(compiled.code.starts_with(b"\x7fELF"), "{what} is no machine code");
    let faults = faults(source, &what, &compiled);
    if faults.is_empty() { Ok(compiled) } else { Err(faults) }
}

/// Every source has its line, and a sample of each is what it was.
fn daily(nvrtc: Nvrtc) {
    let Some(compiler) = compiler(nvrtc) else { return };
    let (table, record, mut wrong) = (Table::read(), Record::read(), Vec::new());
    let known = compiler.architectures();
    for (number, source) in sources() {
        let digest = record::digest(source, recorded(nvrtc, known, number, source.samples.len()));
        wrong.extend(record.lacks(source, compiler.version(), digest));
        let sample = usize::try_from(digest % source.samples.len() as u64).unwrap();
        let architecture = known[number % known.len()];
        match compile(&compiler, source, (architecture, sample)) {
            Err(faults) => wrong.extend(faults),
            Ok(compiled) if nvrtc == LISTED_BY => {
                wrong.extend(table.stale(source, source.samples[sample], architecture, &compiled));
            }
            Ok(_) => {}
        }
    }
    let (major, minor) = compiler.version();
    assert!(wrong.is_empty(), "NVRTC {major}.{minor}:\n{}", wrong.join("\n"));
}

#[test]
fn nvrtc_11() {
    daily(Nvrtc::V11);
}

#[test]
fn nvrtc_12() {
    daily(Nvrtc::V12);
}

#[test]
fn nvrtc_13() {
    daily(Nvrtc::V13);
}

/// What measures or tries out devices: no step launches it.
fn in_steps(source: &Source) -> bool {
    !["probe", "trial"].contains(&source.name)
}

/// With TRACE every kernel takes a slot and reads the clock, without it none does. One sample of a module.
fn misread_clocks(compiler: &Compiler, source: &Source, architecture: u32) -> Vec<String> {
    // What a device lacks instructions for is a trap.
    let defines = source.samples.iter().find(|s| architecture > 75 || !s.contains(&("HALF", "bf16")));
    let mut defines = defines.unwrap_or(&source.samples[0]).to_vec();
    let ptx = |defines: &[(&str, &str)]| {
        String::from_utf8(compiler.ptx(source, defines, architecture).unwrap().code).unwrap()
    };
    let plain = ptx(&defines);
    assert!(!plain.contains("%globaltimer") && !plain.contains("%laneid"), "{}", source.name);
    let parameters = |ptx: &str| ptx.matches("\n\t.param ").count() + ptx.matches("\n.param ").count();
    let plain = parameters(&plain);
    defines.push(("TRACE", "1"));
    let traced = ptx(&defines);
    let mut wrong = Vec::new();
    if parameters(&traced) != plain + source.kernels.len() {
        wrong.push(format!("{}: not one parameter more where it is traced", source.name));
    }
    for kernel in source.kernels {
        let body = traced.split_once(&format!(".entry {kernel}(")).unwrap().1;
        let body = body.split("\n}").next().unwrap();
        // When the first block begins, and where threads leave.
        let clocks = body.matches("%globaltimer").count();
        if clocks < 2 && !body.contains("trap;") {
            wrong.push(format!("{kernel} of {defines:?} reads the clock {clocks} times where it is traced"));
        }
    }
    let log = compiler.cubin(source, &defines, architecture).unwrap().log;
    wrong.extend(complaints(source, &log).map(|line| format!("{}, traced: {line}", source.name)));
    wrong
}

/// One sample of a module as kernels are that overlap, for the first architecture that has it.
fn worse_overlapping(compiler: &Compiler, source: &Source, number: usize) -> Vec<String> {
    let mut defines = source.samples[number % source.samples.len()].to_vec();
    defines.push(("OVERLAP", "1"));
    let what = format!("{} {defines:?}", source.name);
    faults(source, &what, &compiler.cubin(source, &defines, 90).unwrap())
}

#[test]
fn the_table_has_a_row_for_each_kernel_and_sample() {
    let every = SOURCES.into_iter().flat_map(|source| {
        source.samples.iter().flat_map(|sample| source.kernels.iter().map(|kernel| title(kernel, sample)))
    });
    let table = Table::read();
    let first = every.clone().zip(table.titles()).find(|(want, row)| want != row);
    assert!(first.is_none(), "docs/CUDA.md: {first:?}; {}", record::WRITES);
    assert_eq!(table.titles().count(), every.count(), "rows in docs/CUDA.md; {}", record::WRITES);
}

#[test]
#[ignore = "writes compiled.txt and a table in docs/CUDA.md"]
fn record() {
    let (mut table, mut record, mut wrong) = (Table::read(), Record::read(), Vec::new());
    for nvrtc in Nvrtc::ALL {
        let Some(compiler) = compiler(nvrtc) else { continue };
        for (number, source) in sources() {
            let chosen = recorded(nvrtc, compiler.architectures(), number, source.samples.len());
            let digest = record::digest(source, chosen.iter().copied());
            if record.lacks(source, compiler.version(), digest).is_none() {
                continue;
            }
            let before = wrong.len();
            for (architecture, sample) in chosen {
                match compile(&compiler, source, (architecture, sample)) {
                    Err(faults) => wrong.extend(faults),
                    Ok(compiled) if nvrtc == LISTED_BY => {
                        table.list(source, source.samples[sample], architecture, &compiled);
                    }
                    Ok(_) => {}
                }
            }
            if in_steps(source) {
                let traced_for = [(Nvrtc::V11, 80), (Nvrtc::V12, 75), (Nvrtc::V13, 90)];
                let (_, architecture) = traced_for.into_iter().find(|(of, _)| *of == nvrtc).unwrap();
                wrong.extend(misread_clocks(&compiler, source, architecture));
                if nvrtc != Nvrtc::V11 {
                    wrong.extend(worse_overlapping(&compiler, source, number));
                }
            }
            println!("NVRTC {nvrtc}: {}, {} complaints", source.name, wrong.len() - before);
            if wrong.len() == before {
                // First, as what has a line is not compiled again.
                table.write();
                record.add(source, compiler.version(), digest);
                record.write();
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "takes half an hour"]
fn every_architecture() {
    let asked = std::env::var("OGIVE_CUDA_ARCHITECTURES").unwrap_or_default();
    let asked: Vec<u32> = asked.split(',').filter_map(|a| a.parse().ok()).collect();
    let mut wrong = Vec::new();
    for nvrtc in Nvrtc::ALL {
        let Some(compiler) = compiler(nvrtc) else { continue };
        let known = compiler.architectures().iter().filter(|a| asked.is_empty() || asked.contains(a));
        let (mut count, of) = (0, sources().count());
        for (number, (_, source)) in sources().enumerate() {
            for (&architecture, sample) in
                known.clone().flat_map(|a| (0..source.samples.len()).map(move |i| (a, i)))
            {
                count += 1;
                wrong.extend(compile(&compiler, source, (architecture, sample)).err().into_iter().flatten());
            }
            let complaints = wrong.len();
            println!(
                "NVRTC {nvrtc}: {} of {of}, {}: {count} compiled, {complaints} complaints",
                number + 1,
                source.name
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
