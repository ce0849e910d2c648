//! The table of instructions in `INSTRUCTIONS.md`, what compilers write, and what must be refused.

use super::super::lookup;
use super::super::rows::PLAIN;

const TABLE: &str = include_str!("../../../INSTRUCTIONS.md");
/// Every instruction on registers in the PTX of candle's kernels and of our own, as NVRTC and nvcc emit it.
const SEEN: &str = include_str!("seen.txt");

/// All instructions that a line of the table stands for.
pub(crate) fn expand(line: &str) -> Vec<String> {
    let Some(open) = line.find(['{', '[']) else { return vec![line.to_owned()] };
    let (before, rest) = line.split_at(open);
    let optional = rest.starts_with('[');
    let close = if optional { rest.find(']') } else { rest.find('}') };
    let close = close.unwrap_or_else(|| panic!("{line}: a bracket is open"));
    let (inside, after) = (&rest[1..close], &rest[close + 1..]);
    let mut choices = Vec::new();
    if optional {
        choices.push(String::new());
        choices.extend(expand(inside));
    } else {
        choices.extend(inside.split(',').map(str::to_owned));
    }
    let tails = expand(after);
    choices
        .iter()
        .flat_map(|choice| tails.iter().map(move |tail| format!("{before}{choice}{tail}")))
        .collect()
}

fn table() -> Vec<String> {
    let blocks = TABLE.split("```alu\n").skip(1).filter_map(|block| block.split("```").next());
    let out: Vec<_> = blocks.flat_map(str::lines).flat_map(expand).collect();
    assert!(out.len() > 2000, "{} instructions", out.len());
    out
}

fn parts(text: &str) -> (&str, Vec<&str>) {
    let mut words = text.split('.');
    (words.next().unwrap_or_default(), words.collect())
}

#[test]
fn every_instruction_of_the_table_is_known() {
    for text in table() {
        let (opcode, modifiers) = parts(&text);
        match lookup(opcode, &modifiers) {
            Ok(Some(_)) => {}
            other => panic!("{text}: {:?}", other.map(|_| "unknown")),
        }
    }
}

#[test]
fn what_compilers_write_is_known() {
    for text in SEEN.lines() {
        let (opcode, modifiers) = parts(text);
        assert!(
            matches!(lookup(opcode, &modifiers), Ok(Some(_))),
            "{text}: {:?}",
            lookup(opcode, &modifiers).err()
        );
    }
    // And it is in the table.
    let table: std::collections::HashSet<_> = table().into_iter().collect();
    for text in SEEN.lines() {
        assert!(table.contains(text), "{text} is missing in INSTRUCTIONS.md");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    PLAIN.set(true);
    for text in table() {
        let (opcode, modifiers) = parts(&text);
        for extra in ["nonsense", "approx", "sync", "v2", "sat.sat", "gpu"] {
            let mut more = modifiers.clone();
            more.splice(0..0, extra.split('.'));
            let found = lookup(opcode, &more);
            // `.approx` alone may turn one instruction into another.
            let fine = found.is_err() || extra == "approx" && matches!(found, Ok(Some(_)));
            assert!(
                fine && (extra != "approx" || ["div", "rcp", "sqrt"].contains(&opcode) || found.is_err()),
                "{extra} with {text}"
            );
        }
        if let Err(e) = lookup(opcode, &modifiers[..modifiers.len() - 1]) {
            assert!(e.len() > 10, "{text}: {e}");
        }
    }
    for text in [
        "add",
        "add.",
        "add.f8",
        "add.b32",
        "add.sat.u32",
        "add.wide.s32",
        "mul.s32",
        "mul.wide.s64",
        "mad.s32",
        "div.f32",
        "rcp.f32",
        "sqrt.f32",
        "fma.f32",
        "fma.rn.sat.f64",
        "add.ftz.f64",
        "and.s32",
        "shl.u32",
        "shl.pred",
        "shf.l.b32",
        "lop3.b64",
        "lop3.xor.b32",
        "prmt.b64",
        "popc.u32",
        "bfe.b32",
        "setp.s32",
        "setp.lt.b32",
        "setp.lo.s32",
        "setp.ltu.s32",
        "setp.lo.f32",
        "setp.eq.ftz.f64",
        "set.eq.f32.f16",
        "selp.pred",
        "slct.s32.u32",
        "cvt.f32",
        "cvt.s32.f32",
        "cvt.f16.f32",
        "cvt.rni.f32.s32",
        "cvt.rna.f32.f64",
        "cvt.rn.s32.f32",
        "cvt.relu.f32.f32",
        "cvt.rs.f16x2.f32",
        "cvt.rn.tf32.f16",
        "cvt.rn.f32.tf32",
        "cvt.rn.e4m3x2.f32",
        "cvt.pack.u8.s32.b32",
        "ex2.f32",
        "ex2.approx.bf16",
        "tanh.approx.ftz.f32",
        "sin.approx.f64",
        "fma.rn.ftz.bf16",
        "add.sat.bf16",
        "min.xorsign.f32",
        "min.abs.f32",
        "mad24.lo.sat.s32",
        "add.cc.u16",
        "addc.s16",
        "vadd4.u32.u32",
        "vadd4.u32.u32.u32.sat.add",
        "mov.b128",
        "testp.f32",
        "bfind.shiftamt.b32",
        "dp4a.s32",
        "neg.u32",
    ] {
        let (opcode, modifiers) = parts(text);
        let found = lookup(opcode, &modifiers);
        assert!(!matches!(found, Ok(Some(_))), "{text} was taken");
    }
    // Not ours at all.
    for opcode in ["ld", "st", "bra", "frobnicate", "cvta", "mma", "vote", "v", ""] {
        assert!(matches!(lookup(opcode, &["b32"]), Ok(None)), "{opcode}");
    }
    PLAIN.set(false);
}
