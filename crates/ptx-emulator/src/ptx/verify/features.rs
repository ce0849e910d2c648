//! Which instruction needs which architecture and which version of PTX.
//!
//! A row names an opcode and modifiers that must all be there. All rows that match must be met, so a row need only say what it
//! adds: `mma` needs `sm_70`, `mma` with `bf16` needs `sm_80`.

use super::super::ast::{Instruction, Module};

/// Version of PTX, major and minor.
type Version = (u32, u32);

/// Opcode, modifiers that are all there, lowest architecture, lowest version.
const FEATURES: &[(&str, &[&str], u32, Version)] = &[
    ("abs", &["bf16"], 80, (7, 0)),
    ("abs", &["bf16x2"], 80, (7, 0)),
    ("abs", &["f16"], 53, (6, 5)),
    ("abs", &["f16x2"], 53, (6, 5)),
    ("activemask", &[], 30, (6, 2)),
    ("add", &["bf16"], 90, (7, 8)),
    ("add", &["bf16x2"], 90, (7, 8)),
    ("add", &["f16"], 53, (4, 2)),
    ("add", &["f16x2"], 53, (4, 2)),
    ("add", &["f32x2"], 100, (8, 6)),
    ("add", &["s16x2"], 90, (8, 0)),
    ("add", &["u16x2"], 90, (8, 0)),
    ("alloca", &[], 52, (7, 3)),
    ("applypriority", &[], 80, (7, 4)),
    ("atom", &["acq_rel"], 70, (6, 0)),
    ("atom", &["acquire"], 70, (6, 0)),
    ("atom", &["add", "bf16"], 90, (7, 8)),
    ("atom", &["add", "bf16x2"], 90, (7, 8)),
    ("atom", &["add", "f16"], 70, (6, 3)),
    ("atom", &["add", "f16x2"], 60, (6, 2)),
    ("atom", &["add", "f64"], 60, (5, 0)),
    ("atom", &["b128"], 90, (8, 3)),
    ("atom", &["cas", "b16"], 70, (6, 3)),
    ("atom", &["cluster"], 90, (7, 8)),
    ("atom", &["cta"], 60, (5, 0)),
    ("atom", &["gpu"], 60, (5, 0)),
    ("atom", &["L2::cache_hint"], 80, (7, 4)),
    ("atom", &["relaxed"], 70, (6, 0)),
    ("atom", &["release"], 70, (6, 0)),
    ("atom", &["sys"], 60, (5, 0)),
    ("atom", &["v2"], 90, (8, 1)),
    ("atom", &["v4"], 90, (8, 1)),
    ("atom", &["v8"], 90, (8, 1)),
    ("bar", &["warp"], 30, (6, 0)),
    ("barrier", &[], 30, (6, 0)),
    ("barrier", &["cluster"], 90, (7, 8)),
    ("bmsk", &[], 70, (7, 6)),
    ("brx", &[], 30, (6, 0)),
    ("copysign", &[], 20, (2, 0)),
    ("cp", &["async"], 80, (7, 0)),
    ("cp", &["async", "bulk"], 90, (8, 0)),
    ("cp", &["async", "bulk", "shared::cta", "global", "mbarrier::complete_tx::bytes"], 90, (8, 6)),
    ("createpolicy", &[], 80, (7, 4)),
    ("cvt", &["bf16"], 80, (7, 0)),
    ("cvt", &["bf16", "f16"], 90, (7, 8)),
    ("cvt", &["bf16", "f64"], 90, (7, 8)),
    ("cvt", &["bf16", "s16"], 90, (7, 8)),
    ("cvt", &["bf16", "s32"], 90, (7, 8)),
    ("cvt", &["bf16", "s64"], 90, (7, 8)),
    ("cvt", &["bf16", "s8"], 90, (7, 8)),
    ("cvt", &["bf16", "u16"], 90, (7, 8)),
    ("cvt", &["bf16", "u32"], 90, (7, 8)),
    ("cvt", &["bf16", "u64"], 90, (7, 8)),
    ("cvt", &["bf16", "u8"], 90, (7, 8)),
    ("cvt", &["bf16x2"], 80, (7, 0)),
    ("cvt", &["e4m3x2"], 89, (7, 8)),
    ("cvt", &["e5m2x2"], 89, (7, 8)),
    ("cvt", &["f16x2", "f32"], 80, (7, 0)),
    ("cvt", &["relu"], 80, (7, 0)),
    ("cvt", &["tf32"], 80, (7, 0)),
    ("cvt", &["tf32", "rn"], 90, (7, 8)),
    ("cvt", &["tf32", "rz"], 90, (7, 8)),
    ("discard", &[], 80, (7, 4)),
    ("dp2a", &[], 61, (5, 0)),
    ("dp4a", &[], 61, (5, 0)),
    ("elect", &[], 90, (8, 0)),
    ("ex2", &["bf16"], 90, (7, 8)),
    ("ex2", &["bf16x2"], 90, (7, 8)),
    ("ex2", &["f16"], 75, (7, 0)),
    ("ex2", &["f16x2"], 75, (7, 0)),
    ("fence", &[], 70, (6, 0)),
    ("fence", &["cluster"], 90, (7, 8)),
    ("fence", &["proxy", "async"], 90, (8, 0)),
    ("fma", &["bf16"], 80, (7, 0)),
    ("fma", &["bf16x2"], 80, (7, 0)),
    ("fma", &["f16"], 53, (4, 2)),
    ("fma", &["f16x2"], 53, (4, 2)),
    ("fma", &["f32x2"], 100, (8, 6)),
    ("fma", &["relu"], 80, (7, 0)),
    ("fns", &[], 30, (6, 0)),
    ("getctarank", &[], 90, (7, 8)),
    ("griddepcontrol", &[], 90, (7, 8)),
    ("isspacep", &["param"], 70, (7, 7)),
    ("isspacep", &["shared::cluster"], 90, (7, 8)),
    ("istypep", &[], 30, (4, 0)),
    ("ld", &["L1::evict_first"], 70, (7, 4)),
    ("ld", &["L1::evict_last"], 70, (7, 4)),
    ("ld", &["L1::no_allocate"], 70, (7, 4)),
    ("ld", &["L2::128B"], 75, (7, 4)),
    ("ld", &["L2::256B"], 80, (7, 4)),
    ("ld", &["L2::64B"], 75, (7, 4)),
    ("ld", &["L2::cache_hint"], 80, (7, 4)),
    ("ld", &["acquire"], 70, (6, 0)),
    ("ld", &["b128"], 70, (8, 3)),
    ("ld", &["cluster"], 90, (7, 8)),
    ("ld", &["nc"], 32, (3, 1)),
    ("ld", &["relaxed"], 70, (6, 0)),
    ("ld", &["shared::cluster"], 90, (7, 8)),
    ("ld", &["v8"], 100, (8, 8)),
    ("ldmatrix", &[], 75, (6, 5)),
    ("ldmatrix", &["m16n16"], 100, (8, 6)),
    ("lop3", &[], 50, (4, 3)),
    ("lop3", &["and"], 70, (8, 2)),
    ("lop3", &["or"], 70, (8, 2)),
    ("mapa", &[], 90, (7, 8)),
    ("match", &[], 70, (6, 0)),
    ("max", &["bf16"], 80, (7, 0)),
    ("max", &["bf16x2"], 80, (7, 0)),
    ("max", &["f16"], 80, (7, 0)),
    ("max", &["f16x2"], 80, (7, 0)),
    ("max", &["NaN"], 80, (7, 0)),
    ("max", &["s16x2"], 90, (8, 0)),
    ("max", &["s32", "relu"], 90, (8, 0)),
    ("max", &["u16x2"], 90, (8, 0)),
    ("max", &["xorsign"], 86, (7, 2)),
    ("mbarrier", &[], 80, (7, 0)),
    ("mbarrier", &["complete_tx"], 90, (8, 0)),
    ("mbarrier", &["expect_tx"], 90, (8, 0)),
    ("mbarrier", &["parity"], 80, (7, 1)),
    ("mbarrier", &["try_wait"], 90, (7, 8)),
    ("min", &["bf16"], 80, (7, 0)),
    ("min", &["bf16x2"], 80, (7, 0)),
    ("min", &["f16"], 80, (7, 0)),
    ("min", &["f16x2"], 80, (7, 0)),
    ("min", &["NaN"], 80, (7, 0)),
    ("min", &["s16x2"], 90, (8, 0)),
    ("min", &["s32", "relu"], 90, (8, 0)),
    ("min", &["u16x2"], 90, (8, 0)),
    ("min", &["xorsign"], 86, (7, 2)),
    ("mma", &[], 70, (6, 4)),
    ("mma", &["bf16"], 80, (7, 0)),
    ("mma", &["e4m3"], 89, (8, 4)),
    ("mma", &["e5m2"], 89, (8, 4)),
    ("mma", &["f64"], 80, (7, 0)),
    ("mma", &["m16n8k128"], 80, (7, 0)),
    ("mma", &["m16n8k16"], 80, (7, 0)),
    ("mma", &["m16n8k256"], 80, (7, 0)),
    ("mma", &["m16n8k32"], 80, (7, 0)),
    ("mma", &["m16n8k4"], 80, (7, 0)),
    ("mma", &["m16n8k64"], 80, (7, 0)),
    ("mma", &["m16n8k8"], 75, (6, 5)),
    ("mma", &["m16n8k8", "f64"], 90, (7, 8)),
    ("mma", &["m16n8k16", "f64"], 90, (7, 8)),
    ("mma", &["m16n8k4", "f64"], 90, (7, 8)),
    ("mma", &["s4"], 75, (6, 5)),
    ("mma", &["s8"], 75, (6, 5)),
    ("mma", &["sp"], 80, (7, 1)),
    ("mma", &["tf32"], 80, (7, 0)),
    ("mma", &["u4"], 75, (6, 5)),
    ("mma", &["u8"], 75, (6, 5)),
    ("movmatrix", &[], 75, (7, 8)),
    ("mul", &["bf16"], 90, (7, 8)),
    ("mul", &["bf16x2"], 90, (7, 8)),
    ("mul", &["f16"], 53, (4, 2)),
    ("mul", &["f16x2"], 53, (4, 2)),
    ("mul", &["f32x2"], 100, (8, 6)),
    ("multimem", &[], 90, (8, 1)),
    ("nanosleep", &[], 70, (6, 2)),
    ("neg", &["bf16"], 80, (7, 0)),
    ("neg", &["bf16x2"], 80, (7, 0)),
    ("neg", &["f16"], 53, (6, 0)),
    ("neg", &["f16x2"], 53, (6, 0)),
    ("prefetch", &["L2::evict_last"], 80, (7, 4)),
    ("prefetch", &["L2::evict_normal"], 80, (7, 4)),
    ("red", &["acq_rel"], 70, (6, 0)),
    ("red", &["add", "bf16"], 90, (7, 8)),
    ("red", &["add", "bf16x2"], 90, (7, 8)),
    ("red", &["add", "f16"], 70, (6, 3)),
    ("red", &["add", "f16x2"], 60, (6, 2)),
    ("red", &["add", "f64"], 60, (5, 0)),
    ("red", &["async"], 90, (8, 1)),
    ("red", &["cluster"], 90, (7, 8)),
    ("red", &["cta"], 60, (5, 0)),
    ("red", &["gpu"], 60, (5, 0)),
    ("red", &["L2::cache_hint"], 80, (7, 4)),
    ("red", &["relaxed"], 70, (6, 0)),
    ("red", &["release"], 70, (6, 0)),
    ("red", &["sys"], 60, (5, 0)),
    ("red", &["v2"], 90, (8, 1)),
    ("red", &["v4"], 90, (8, 1)),
    ("red", &["v8"], 90, (8, 1)),
    ("redux", &[], 80, (7, 0)),
    ("redux", &["f32"], 100, (8, 6)),
    ("set", &["bf16"], 90, (7, 8)),
    ("set", &["bf16x2"], 90, (7, 8)),
    ("set", &["f16"], 53, (4, 2)),
    ("set", &["f16x2"], 53, (4, 2)),
    ("setmaxnreg", &[], 90, (8, 0)),
    ("setp", &["bf16"], 90, (7, 8)),
    ("setp", &["bf16x2"], 90, (7, 8)),
    ("setp", &["f16"], 53, (4, 2)),
    ("setp", &["f16x2"], 53, (4, 2)),
    ("shf", &[], 32, (3, 1)),
    ("shfl", &["sync"], 30, (6, 0)),
    ("st", &["L1::no_allocate"], 70, (7, 4)),
    ("st", &["L2::cache_hint"], 80, (7, 4)),
    ("st", &["async"], 90, (8, 1)),
    ("st", &["b128"], 70, (8, 3)),
    ("st", &["bulk"], 100, (8, 6)),
    ("st", &["cluster"], 90, (7, 8)),
    ("st", &["relaxed"], 70, (6, 0)),
    ("st", &["release"], 70, (6, 0)),
    ("st", &["shared::cluster"], 90, (7, 8)),
    ("st", &["v8"], 100, (8, 8)),
    ("stmatrix", &[], 90, (7, 8)),
    ("sub", &["bf16"], 90, (7, 8)),
    ("sub", &["bf16x2"], 90, (7, 8)),
    ("sub", &["f16"], 53, (4, 2)),
    ("sub", &["f16x2"], 53, (4, 2)),
    ("szext", &[], 70, (7, 6)),
    ("tanh", &[], 75, (7, 0)),
    ("tanh", &["bf16"], 90, (7, 8)),
    ("tanh", &["bf16x2"], 90, (7, 8)),
    ("tcgen05", &[], 100, (8, 6)),
    ("tensormap", &[], 90, (8, 3)),
    ("vote", &["sync"], 30, (6, 0)),
    ("wgmma", &[], 90, (8, 0)),
    ("wmma", &[], 70, (6, 0)),
    ("wmma", &["bf16"], 80, (7, 0)),
    ("wmma", &["f64"], 80, (7, 0)),
    ("wmma", &["m32n8k16"], 70, (6, 1)),
    ("wmma", &["m8n32k16"], 70, (6, 1)),
    ("wmma", &["s8"], 72, (6, 3)),
    ("wmma", &["tf32"], 80, (7, 0)),
    ("wmma", &["u8"], 72, (6, 3)),
];

/// Instructions of one architecture only, which its name says with an `a` (`sm_90a`).
const OWN: &[&str] = &["setmaxnreg", "tcgen05", "wgmma"];

/// Architectures and the version of PTX that brought them.
const ARCHITECTURES: &[(u32, Version)] = &[
    (50, (4, 0)),
    (52, (4, 1)),
    (53, (4, 2)),
    (60, (5, 0)),
    (61, (5, 0)),
    (62, (5, 0)),
    (70, (6, 0)),
    (72, (6, 1)),
    (75, (6, 3)),
    (80, (7, 0)),
    (86, (7, 1)),
    (87, (7, 4)),
    (89, (7, 8)),
    (90, (7, 8)),
    (100, (8, 6)),
    (101, (8, 6)),
    (103, (8, 8)),
    (120, (8, 7)),
    (121, (8, 8)),
];

/// What a module is compiled for.
#[derive(Clone, Debug)]
pub(super) struct Arch {
    /// 80 of `sm_80`.
    pub(super) number: u32,
    own: bool,
    name: String,
    version: Version,
}

impl Arch {
    pub(super) fn of(module: &Module) -> Self {
        let name = module.target.first().cloned().unwrap_or_default();
        let number = arch(&name).unwrap_or(0);
        Self { number, own: !suffix(&name).is_empty(), name, version: module.version }
    }
}

/// 90 of `sm_90a`.
pub(super) fn arch(target: &str) -> Option<u32> {
    let digits = target.strip_prefix("sm_")?.trim_end_matches(['a', 'f']);
    digits.parse().ok()
}

/// `a` of `sm_90a`, or nothing.
pub(super) fn suffix(target: &str) -> &str {
    target.trim_start_matches(|c: char| !c.is_ascii_digit()).trim_start_matches(|c: char| c.is_ascii_digit())
}

/// The version an architecture came with, if that is known here.
pub(super) fn version_of(arch: u32, suffix: &str) -> Option<Version> {
    let (_, version) = ARCHITECTURES.iter().find(|(number, _)| *number == arch)?;
    Some(if suffix.is_empty() { *version } else { (*version).max((8, 0)) })
}

/// What an instruction's form needs beyond what its words say.
fn form_needs(instruction: &Instruction) -> Option<(u32, Version)> {
    let has = |modifier: &str| instruction.modifiers.iter().any(|m| m == modifier);
    let operands = instruction.operands.len();
    match instruction.opcode.as_str() {
        // With a count.
        "mbarrier" if has("arrive") && !has("noComplete") && !has("expect_tx") && operands == 3 => {
            Some((90, (7, 8)))
        }
        // Of three values.
        "max" | "min" if operands == 4 => Some((100, (8, 8))),
        _ if has("shared::cta") || has("param::entry") || has("param::func") => Some((0, (7, 8))),
        _ => None,
    }
}

/// What the target lacks for an instruction.
pub(super) fn missing(instruction: &Instruction, arch: &Arch) -> Option<String> {
    let opcode = instruction.opcode.as_str();
    let has = |modifier: &&str| instruction.modifiers.iter().any(|m| m == modifier);
    let what = || {
        let words = std::iter::once(opcode).chain(instruction.modifiers.iter().map(String::as_str));
        words.collect::<Vec<_>>().join(".")
    };
    let start = FEATURES.partition_point(|(name, ..)| *name < opcode);
    let rows = FEATURES.iter().skip(start).take_while(|(name, ..)| *name == opcode);
    let rows = rows
        .filter(|(_, needed, ..)| needed.iter().all(has))
        .map(|&(_, _, number, version)| (number, version));
    for (number, version) in rows.chain(form_needs(instruction)) {
        if arch.number < number {
            return Some(format!(
                "{} needs sm_{number} or newer; the text says .target {}",
                what(),
                arch.name
            ));
        }
        if arch.version < version {
            let (major, minor) = arch.version;
            return Some(format!(
                "{} needs .version {}.{} or newer; the text says {major}.{minor}",
                what(),
                version.0,
                version.1
            ));
        }
    }
    if OWN.contains(&opcode) && !arch.own {
        return Some(format!(
            "{} needs a target of one architecture, such as sm_90a; the text says {}",
            what(),
            arch.name
        ));
    }
    let unsynchronised = matches!(opcode, "shfl" | "vote") && !has(&"sync");
    if unsynchronised && arch.number >= 70 && arch.version >= (6, 4) {
        return Some(format!(
            "{} without .sync is gone since sm_70; the text says .target {}",
            what(),
            arch.name
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::FEATURES;

    #[test]
    fn table_is_sorted() {
        assert!(FEATURES.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    }
}
