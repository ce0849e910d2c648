//! The gate: every kernel compiles with every generation of NVRTC, for its architectures, without a warning, and spills no register nor
//! keeps an array in memory.
//!
//! All samples for all architectures, `-- --ignored --nocapture every_architecture`, take a core half an hour, at some 0.2 s each, and say
//! after each module how far they are. So every day the compilers that programs have make all samples for the architectures that paths and tables
//! were made for, each for one fewer than [`SAMPLES_FOR`] names, and of other families one sample of each module: what is code for a family alone
//! stands behind a condition that one sample shows, and how registers are given out hardly differs between devices of a family.
//! `OGIVE_CUDA_FILTER=attend,norm` takes only modules whose names contain one of these, `OGIVE_CUDA_ARCHITECTURES=80,90` only those
//! architectures.
#![allow(clippy::print_stdout)]

use ogive_cuda::{Compiled, Compiler, Resources};
use ogive_kernels::{SOURCES, Source};
use ptx_emulator_launcher::{Launcher, Nvrtc, test};
use std::collections::BTreeMap;

fn compiler(nvrtc: Nvrtc) -> Option<Compiler> {
    let folder = Launcher::new().nvrtc_folder(nvrtc, &|_| {});
    let folder = test::unless_excused(&format!("NVRTC {nvrtc}"), folder)?;
    Some(Compiler::open(nvrtc.library(&folder).unwrap()).unwrap())
}

/// The architectures for which a compiler of this generation makes samples every day, each for all of them but one, in turn: where tensor cores
/// have no bf16, where they have, and where kernels may begin before the last has ended; of the newest compiler the last of these and the newest
/// that it knows. What programs run is what NVRTC 12 and 13 make; 11 makes one sample of each module for every family, and they for every second one.
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

/// What is compiled every day: architectures and samples by their numbers, of the `number`-th module, which has so many.
fn daily(turns: &[u32], known: &[u32], number: usize, samples: usize) -> Vec<(u32, usize)> {
    let newest = known.iter().copied().max().unwrap_or(0);
    let turns: Vec<u32> = turns.iter().map(|a| if *a == NEWEST { newest } else { *a }).collect();
    let mut families: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for &architecture in known {
        families.entry(family(architecture)).or_default().push(architecture);
    }
    let in_turn = turns.iter().enumerate().flat_map(|(turn, a)| (0..samples).map(move |i| (turn, *a, i)));
    let in_turn = in_turn
        .filter(|(turn, _, i)| !(number + turn + i).is_multiple_of(turns.len()))
        .map(|(_, a, i)| (a, i));
    // Another member for each module, and another sample in each family; of compilers with such turns every second family.
    let every = if turns.is_empty() { 1 } else { 2 };
    let rest = families.values().enumerate().filter_map(|(i, members)| {
        let others: Vec<u32> = members.iter().copied().filter(|a| !turns.contains(a)).collect();
        let member =
            others.get(number / every % others.len().max(1)).filter(|_| (number + i).is_multiple_of(every));
        member.map(|a| (*a, (number + i / every) % samples))
    });
    in_turn.chain(rest).collect()
}

/// The modules that are asked for.
fn sources() -> impl Iterator<Item = &'static Source> {
    let filter = std::env::var("OGIVE_CUDA_FILTER").unwrap_or_default();
    let wanted = move |s: &&Source| filter.is_empty() || filter.split(',').any(|part| s.name.contains(part));
    SOURCES.into_iter().filter(wanted)
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

fn gate(nvrtc: Nvrtc, everything: bool) {
    let Some(compiler) = compiler(nvrtc) else { return };
    let table = if nvrtc == LISTED_BY { table() } else { Vec::new() };
    let asked = std::env::var("OGIVE_CUDA_ARCHITECTURES").unwrap_or_default();
    let asked: Vec<u32> = asked.split(',').filter_map(|a| a.parse().ok()).collect();
    let known = compiler.architectures();
    let turns = SAMPLES_FOR.into_iter().find(|(of, _)| *of == nvrtc).map_or(&[][..], |(_, turns)| turns);
    let (mut wrong, mut count) = (Vec::new(), BTreeMap::<u32, usize>::new());
    for (number, source) in sources().enumerate() {
        let chosen = match everything {
            true => known.iter().flat_map(|a| (0..source.samples.len()).map(|i| (*a, i))).collect(),
            false => daily(turns, known, number, source.samples.len()),
        };
        for (architecture, sample) in chosen {
            if !asked.is_empty() && !asked.contains(&architecture) {
                continue;
            }
            *count.entry(architecture).or_default() += 1;
            let defines = &defines(source, source.samples[sample], architecture)[..];
            let what = format!("sm_{architecture} {} {defines:?}", source.name);
            match compiler.cubin(source, defines, architecture) {
                Err(e) => wrong.push(format!("{what}: {e}")),
                Ok(compiled) => {
                    assert!(compiled.code.starts_with(b"\x7fELF"), "{what} is no machine code");
                    wrong.extend(faults(source, &what, &compiled));
                    wrong.extend(stale(&table, source, source.samples[sample], architecture, &compiled));
                }
            }
        }
        if everything {
            let (compiled, of) = (count.values().sum::<usize>(), sources().count());
            println!(
                "NVRTC {nvrtc}: {} of {of}, {}: {compiled} compiled, {} complaints",
                number + 1,
                source.name,
                wrong.len()
            );
        }
    }
    let (major, minor) = compiler.version();
    println!("NVRTC {major}.{minor}: modules for each architecture: {count:?}");
    assert!(wrong.is_empty(), "NVRTC {major}.{minor}:\n{}", wrong.join("\n"));
    let whole = asked.is_empty() && sources().count() == SOURCES.len();
    assert!(!whole || known.iter().all(|a| count.contains_key(a)), "of {known:?} some were left out");
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

/// One sample of each module, by one of the three compilers in turn, for an architecture of its time: with TRACE every kernel takes a slot and
/// reads the clock, without it none does.
#[test]
fn only_traced_kernels_read_the_clock() {
    for (turn, (nvrtc, architecture)) in
        [(Nvrtc::V11, 80), (Nvrtc::V12, 75), (Nvrtc::V13, 90)].into_iter().enumerate()
    {
        let Some(compiler) = compiler(nvrtc) else { return };
        let timed = sources().filter(|s| !["probe", "trial"].contains(&s.name));
        for source in timed.skip(turn).step_by(3) {
            // What a device lacks instructions for is a trap.
            let defines = source.samples.iter().find(|s| architecture > 75 || !s.contains(&("HALF", "bf16")));
            let mut defines = defines.unwrap_or(&source.samples[0]).to_vec();
            let ptx = |defines: &[(&str, &str)]| {
                String::from_utf8(compiler.ptx(source, defines, architecture).unwrap().code).unwrap()
            };
            let plain = ptx(&defines);
            assert!(!plain.contains("%globaltimer") && !plain.contains("%laneid"), "{}", source.name);
            let parameters =
                |ptx: &str| ptx.matches("\n\t.param ").count() + ptx.matches("\n.param ").count();
            let plain = parameters(&plain);
            defines.push(("TRACE", "1"));
            let traced = ptx(&defines);
            let kernels = source.kernels.len();
            assert_eq!(parameters(&traced), plain + kernels, "{}", source.name);
            for kernel in source.kernels {
                let body = traced.split_once(&format!(".entry {kernel}(")).unwrap().1;
                let body = body.split("\n}").next().unwrap();
                // When the first block begins, and where threads leave.
                let clocks = body.matches("%globaltimer").count();
                assert!(clocks >= 2 || body.contains("trap;"), "{kernel} of {defines:?}: {clocks}");
            }
            let log = compiler.cubin(source, &defines, architecture).unwrap().log;
            assert_eq!(complaints(source, &log).count(), 0, "{}: {log}", source.name);
        }
    }
}

/// One sample of each module as kernels are that overlap, for the first architecture that has it: 12 s for both compilers.
#[test]
fn overlapping_kernels_are_no_worse() {
    for nvrtc in [Nvrtc::V12, Nvrtc::V13] {
        let Some(compiler) = compiler(nvrtc) else { return };
        let mut wrong = Vec::new();
        for (number, source) in sources().filter(|s| !["probe", "trial"].contains(&s.name)).enumerate() {
            let mut defines = source.samples[number % source.samples.len()].to_vec();
            defines.push(("OVERLAP", "1"));
            let what = format!("{} {defines:?}", source.name);
            wrong.extend(faults(source, &what, &compiler.cubin(source, &defines, 90).unwrap()));
        }
        assert!(wrong.is_empty(), "NVRTC {nvrtc}:\n{}", wrong.join("\n"));
    }
}

/// Registers are listed for these, by this compiler.
const LISTED: [u32; 3] = [75, 80, 90];
const LISTED_BY: Nvrtc = Nvrtc::V12;
/// What prints the table.
const PRINTS: &str = "cargo test -p ogive-cuda --test kernels -- --ignored --nocapture resources";

/// Kernel and defines, as the table has them.
fn title(kernel: &str, sample: &[(&str, &str)]) -> [String; 2] {
    let words: Vec<&str> = sample.iter().map(|(_, value)| *value).collect();
    [format!("`{kernel}`"), words.join(" ")]
}

/// Rows of the table in docs/CUDA.md: kernel, defines, registers, shared bytes.
fn table() -> Vec<[String; 4]> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/CUDA.md")).unwrap();
    let lines = text.lines().skip_while(|line| !line.starts_with("| kernel | defines |")).skip(2);
    let row = |line: &str| {
        let cells: Vec<String> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
        let [_, kernel, defines, registers, shared, _] = <[String; 6]>::try_from(cells).unwrap();
        [kernel, defines, registers, shared]
    };
    lines.take_while(|line| line.starts_with('|')).map(row).collect()
}

/// What the table says otherwise of a module that was compiled.
fn stale(
    table: &[[String; 4]],
    source: &Source,
    sample: &[(&str, &str)],
    architecture: u32,
    compiled: &Compiled,
) -> Vec<String> {
    let Some(column) = LISTED.iter().position(|a| *a == architecture) else { return Vec::new() };
    let mut wrong = Vec::new();
    for name in source.kernels {
        let title = title(name, sample);
        // That there is a row, another test says.
        let Some([.., registers, shared]) = table.iter().find(|row| row[..2] == title) else { continue };
        let found = compiled.resources.iter().find(|k| k.kernel == *name).unwrap();
        let listed = registers.split(", ").nth(column).unwrap_or_default();
        let last = column + 1 == LISTED.len();
        if listed != found.registers.to_string() || last && *shared != found.shared.to_string() {
            wrong.push(format!(
                "sm_{architecture} {title:?}: docs/CUDA.md says otherwise than {found:?}; {PRINTS}"
            ));
        }
    }
    wrong
}

#[test]
fn the_table_has_a_row_for_each_kernel_and_sample() {
    let every = SOURCES.into_iter().flat_map(|source| {
        source.samples.iter().flat_map(|sample| source.kernels.iter().map(|kernel| title(kernel, sample)))
    });
    let table: Vec<[String; 2]> =
        table().into_iter().map(|[kernel, defines, ..]| [kernel, defines]).collect();
    let first = every.clone().zip(&table).find(|(want, row)| want != *row);
    assert!(first.is_none(), "docs/CUDA.md: {first:?}; {PRINTS}");
    assert_eq!(table.len(), every.count(), "rows in docs/CUDA.md; {PRINTS}");
}

/// The table in docs/CUDA.md.
#[test]
#[ignore = "prints a table"]
fn resources() {
    let Some(compiler) = compiler(LISTED_BY) else { return };
    println!("| kernel | defines | registers, {LISTED:?} | shared bytes |\n|---|---|---|---|");
    for source in sources() {
        for defines in source.samples {
            let compiled = LISTED.map(|a| compiler.cubin(source, defines, a).unwrap());
            for name in source.kernels {
                let [title, words] = title(name, defines);
                let found =
                    compiled.each_ref().map(|c| c.resources.iter().find(|k| k.kernel == *name).unwrap());
                let registers: Vec<String> = found.iter().map(|k| k.registers.to_string()).collect();
                println!("| {title} | {words} | {} | {} |", registers.join(", "), found[2].shared);
            }
        }
    }
}

#[test]
#[ignore = "takes minutes"]
fn every_architecture() {
    Nvrtc::ALL.into_iter().for_each(|nvrtc| gate(nvrtc, true));
}
