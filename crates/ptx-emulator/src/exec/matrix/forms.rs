//! Which forms of `mma` there are: shape, layouts and types to a kernel.
//!
//! Written out as a match and not computed from sizes: a form the ISA does not have is refused with its name, as an assembler would.

use super::elements::{Bf16, E4m3, E5m2, F16, S4, S8, Tf32, U4, U8};
use super::kernels::{Bits, Doubles, Floats, Form, Integers, SATURATE, form};
use super::product::{Packed, Whole};

/// The words of an `mma` after the opcode, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Words<'a> {
    pub(super) shape: &'a str,
    pub(super) layouts: [&'a str; 2],
    pub(super) saturate: bool,
    /// `d`, `a`, `b`, `c`.
    pub(super) types: [&'a str; 4],
    /// `xor` or `and`, for single bits.
    pub(super) bits: &'a str,
}

/// Sorts the modifiers of `mma` (of `wmma.mma` too).
pub(super) fn words<'a>(modifiers: &[&'a str]) -> Result<Words<'a>, String> {
    let mut out = Words::default();
    let mut layouts = Vec::new();
    let mut types = Vec::new();
    let mut seen = (false, false);
    for &word in modifiers {
        match word {
            "mma" => {}
            "sync" => seen.0 = true,
            "aligned" => seen.1 = true,
            "row" | "col" => layouts.push(word),
            "satfinite" => out.saturate = true,
            "rn" => {}
            "xor" | "and" => out.bits = word,
            "popc" => {}
            "kind::f8f6f4" => {}
            "f16" | "bf16" | "tf32" | "f32" | "f64" | "s8" | "u8" | "s4" | "u4" | "b1" | "s32" | "e4m3"
            | "e5m2" => {
                types.push(word);
            }
            _ if word.starts_with('m') && word.contains('n') && word.contains('k') => out.shape = word,
            _ => return Err(format!(".{word} is not a modifier of mma that is known here")),
        }
    }
    if seen != (true, true) {
        return Err("only .sync.aligned is known".into());
    }
    out.layouts = match layouts[..] {
        [a, b] => [a, b],
        _ => return Err("it needs two layouts, such as .row.col".into()),
    };
    out.types = match types[..] {
        [d, a, b, c] => [d, a, b, c],
        // `wmma.mma` of f16 names only the accumulators.
        [d, c] => [d, "f16", "f16", c],
        _ => return Err("it needs four types, such as .f32.bf16.bf16.f32".into()),
    };
    Ok(out)
}

macro_rules! floats {
    ($a:ty, $b:ty, $m:literal, $k:literal, $d:expr, $c:expr) => {
        match ($d, $c) {
            ("f32", "f32") => Some(form::<Floats<$a, $b, Whole, Whole, $m, $k>>()),
            ("f16", "f16") => Some(form::<Floats<$a, $b, Packed, Packed, $m, $k>>()),
            ("f32", "f16") => Some(form::<Floats<$a, $b, Packed, Whole, $m, $k>>()),
            ("f16", "f32") => Some(form::<Floats<$a, $b, Whole, Packed, $m, $k>>()),
            _ => None,
        }
    };
}

macro_rules! integers {
    ($s:ty, $u:ty, $m:literal, $k:literal, $a:expr, $b:expr) => {
        match ($a.starts_with('s'), $b.starts_with('s')) {
            (true, true) => Some(form::<Integers<$s, $s, $m, $k>>()),
            (true, false) => Some(form::<Integers<$s, $u, $m, $k>>()),
            (false, true) => Some(form::<Integers<$u, $s, $m, $k>>()),
            (false, false) => Some(form::<Integers<$u, $u, $m, $k>>()),
        }
    };
}

macro_rules! bits {
    ($m:literal, $k:literal, $operation:expr) => {
        match $operation {
            "xor" => Some(form::<Bits<$m, $k, false>>()),
            "and" => Some(form::<Bits<$m, $k, true>>()),
            _ => None,
        }
    };
}

/// The kernel of a form with `.row.col`, or why there is none.
pub(super) fn lookup(words: &Words<'_>) -> Result<Form, String> {
    let [d, a, b, c] = words.types;
    let found = match (words.shape, a, b) {
        ("m16n8k8", "f16", "f16") => floats!(F16, F16, 16, 8, d, c),
        ("m16n8k16", "f16", "f16") => floats!(F16, F16, 16, 16, d, c),
        ("m16n8k8", "bf16", "bf16") if d == "f32" => floats!(Bf16, Bf16, 16, 8, d, c),
        ("m16n8k16", "bf16", "bf16") if d == "f32" => floats!(Bf16, Bf16, 16, 16, d, c),
        ("m16n8k4", "tf32", "tf32") if d == "f32" => floats!(Tf32, Tf32, 16, 4, d, c),
        ("m16n8k8", "tf32", "tf32") if d == "f32" => floats!(Tf32, Tf32, 16, 8, d, c),
        ("m16n8k16", "e4m3", "e4m3") => floats!(E4m3, E4m3, 16, 16, d, c),
        ("m16n8k16", "e4m3", "e5m2") => floats!(E4m3, E5m2, 16, 16, d, c),
        ("m16n8k16", "e5m2", "e4m3") => floats!(E5m2, E4m3, 16, 16, d, c),
        ("m16n8k16", "e5m2", "e5m2") => floats!(E5m2, E5m2, 16, 16, d, c),
        ("m16n8k32", "e4m3", "e4m3") => floats!(E4m3, E4m3, 16, 32, d, c),
        ("m16n8k32", "e4m3", "e5m2") => floats!(E4m3, E5m2, 16, 32, d, c),
        ("m16n8k32", "e5m2", "e4m3") => floats!(E5m2, E4m3, 16, 32, d, c),
        ("m16n8k32", "e5m2", "e5m2") => floats!(E5m2, E5m2, 16, 32, d, c),
        (shape, "s8" | "u8", "s8" | "u8") if (d, c) == ("s32", "s32") => match shape {
            "m8n8k16" => integers!(S8, U8, 8, 16, a, b),
            "m16n8k16" => integers!(S8, U8, 16, 16, a, b),
            "m16n8k32" => integers!(S8, U8, 16, 32, a, b),
            _ => None,
        },
        (shape, "s4" | "u4", "s4" | "u4") if (d, c) == ("s32", "s32") => match shape {
            "m8n8k32" => integers!(S4, U4, 8, 32, a, b),
            "m16n8k32" => integers!(S4, U4, 16, 32, a, b),
            "m16n8k64" => integers!(S4, U4, 16, 64, a, b),
            _ => None,
        },
        (shape, "b1", "b1") if (d, c) == ("s32", "s32") => match shape {
            "m8n8k128" => bits!(8, 128, words.bits),
            "m16n8k128" => bits!(16, 128, words.bits),
            "m16n8k256" => bits!(16, 256, words.bits),
            _ => None,
        },
        (shape, "f64", "f64") if (d, c) == ("f64", "f64") => match shape {
            "m8n8k4" => Some(form::<Doubles<8, 4>>()),
            "m16n8k4" => Some(form::<Doubles<16, 4>>()),
            "m16n8k8" => Some(form::<Doubles<16, 8>>()),
            "m16n8k16" => Some(form::<Doubles<16, 16>>()),
            _ => None,
        },
        _ => None,
    };
    let integer = matches!(a, "s8" | "u8" | "s4" | "u4");
    match found {
        Some(mut form) if words.layouts == ["row", "col"] && (integer || !words.saturate) => {
            if words.saturate {
                form.flags |= SATURATE;
            }
            Ok(form)
        }
        _ => Err(format!(
            "no product {} .{}.{} of {a} and {b} from {c} to {d}{}",
            words.shape,
            words.layouts[0],
            words.layouts[1],
            if words.saturate { " with .satfinite" } else { "" },
        )),
    }
}
