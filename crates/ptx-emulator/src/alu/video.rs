//! The video instructions: arithmetic on four bytes, on two halves or on one word, with a second operation after it.
//!
//! Selectors on operands (`r1.b3210`) are not known; without them each byte meets its own. One function that looks at its settings
//! serves all: of these only `vabsdiff4` is still one instruction on hardware.

use super::Alu;
use super::rows::once;
use super::words::Words;
use crate::exec::registers::{Class, Mask, Registers};
use crate::program::Step;

/// What is computed, by the opcode without its `v` and its number.
const OPERATIONS: [(&str, i64); 7] =
    [("add", 0), ("sub", 1), ("avrg", 2), ("absdiff", 3), ("min", 4), ("max", 5), ("set", 6)];
const RELATIONS: [(&str, i64); 6] = [("eq", 0), ("ne", 1), ("lt", 2), ("le", 3), ("gt", 4), ("ge", 5)];
/// What is done with the third source.
const SECOND: [(&str, i64); 3] = [("add", 1), ("min", 2), ("max", 3)];

pub(super) fn lookup(words: &mut Words<'_>) -> Result<Option<Alu>, String> {
    let Some(name) = words.opcode.strip_prefix('v') else { return Ok(None) };
    let name_only = name.trim_end_matches(['2', '4']);
    let width = match name.strip_prefix(name_only) {
        Some("") => 32,
        Some("2") => 16,
        Some("4") => 8,
        _ => return Ok(None),
    };
    let Some((_, operation)) = OPERATIONS.iter().find(|(known, _)| *known == name_only) else {
        return Ok(None);
    };
    if width == 32 && *operation == 2 {
        return Ok(None);
    }
    let relation = if *operation == 6 { words.choose("a relation", &RELATIONS)? } else { 0 };
    let second = words.one_of(if width == 32 { &SECOND } else { &SECOND[..1] }).unwrap_or(0);
    let sat = *operation != 6 && words.flag("sat");
    if sat && second != 0 && width != 32 {
        return Err(format!("{}: .sat does not go with .add", words.opcode));
    }
    let mut signs = 0;
    let types = if *operation == 6 { 2 } else { 3 };
    for _ in 0..types {
        let sign = words.pop().and_then(|word| match word {
            "s32" => Some(1),
            "u32" => Some(0),
            _ => None,
        });
        let missing = || format!("{} needs {types} types of .u32 and .s32", words.opcode);
        signs = signs << 1 | sign.ok_or_else(missing)?;
    }
    // Taken from the end: the destination's sign is the lowest bit of three.
    let (to, of_a, of_b) =
        if types == 3 { (signs & 1, signs >> 1 & 1, signs >> 2) } else { (0, signs & 1, signs >> 1) };
    let imm =
        operation | relation << 4 | second << 8 | i64::from(sat) << 12 | to << 13 | of_a << 14 | of_b << 15;
    let run = match width {
        8 => once!(|r, s, m| row::<8>(r, s, m)),
        16 => once!(|r, s, m| row::<16>(r, s, m)),
        _ => once!(|r, s, m| row::<32>(r, s, m)),
    };
    let sources = if width == 32 && second == 0 { 2 } else { 3 };
    Ok(Some(Alu { imm, ..Alu::new(run, Class::Word, &[Class::Word; 3][..sources]) }))
}

fn row<const WIDTH: u32>(r: &mut Registers, s: &Step, mask: Mask) {
    let second = s.imm >> 8 & 3;
    let (a, b) = (r.word(s.src[0]), r.word(s.src[1]));
    // Of one word there is no merging: without a second operation there is no third source.
    let c = if WIDTH == 32 && second == 0 { [0; 32] } else { r.word(s.src[2]) };
    let signed = s.imm >> 13 & 1 != 0;
    let part = |word: u32, at: u32, bit: i64| {
        let up = 64 - WIDTH;
        let bits = u64::from(word) >> (WIDTH * at) << up;
        if s.imm >> bit & 1 != 0 { bits as i64 >> up } else { (bits >> up) as i64 }
    };
    let d = std::array::from_fn(|lane| {
        let mut sum = c[lane];
        let mut merged = 0;
        for at in 0..32 / WIDTH {
            let value = compute(s.imm, part(a[lane], at, 14), part(b[lane], at, 15));
            let value = if s.imm >> 12 & 1 != 0 { saturate(value, WIDTH, signed) } else { value };
            sum = sum.wrapping_add(value as u32);
            merged |= (value as u32 & (!0 >> (32 - WIDTH))) << (WIDTH * at);
        }
        match second {
            0 => merged,
            1 => sum,
            2 if signed => (merged as i32).min(c[lane] as i32) as u32,
            2 => merged.min(c[lane]),
            _ if signed => (merged as i32).max(c[lane] as i32) as u32,
            _ => merged.max(c[lane]),
        }
    });
    r.set_word(s.dst, &d, mask);
}

fn compute(imm: i64, a: i64, b: i64) -> i64 {
    match imm & 15 {
        0 => a + b,
        1 => a - b,
        2 => (a + b + i64::from(a + b >= 0)) >> 1,
        3 => (a - b).abs(),
        4 => a.min(b),
        5 => a.max(b),
        _ => i64::from(match imm >> 4 & 15 {
            0 => a == b,
            1 => a != b,
            2 => a < b,
            3 => a <= b,
            4 => a > b,
            _ => a >= b,
        }),
    }
}

fn saturate(value: i64, width: u32, signed: bool) -> i64 {
    if signed {
        value.clamp(-1 << (width - 1), (1 << (width - 1)) - 1)
    } else {
        value.clamp(0, (1 << width) - 1)
    }
}
