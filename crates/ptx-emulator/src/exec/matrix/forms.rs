//! Which forms of `mma` there are: shape, layouts and types to a kernel.
//!
//! Written out as a match and not computed from sizes: a form the ISA does not have is refused with its name, as an assembler would.

use super::elements::{Bf16, E4m3, E5m2, F16, S4, S8, Tf32, U4, U8};
use super::kernels::{AND, Bits, Doubles, FixedFloats, Floats, Form, Integers, SATURATE, form};

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

macro_rules! integers {
    ($s:ty, $u:ty, $most:literal, $m:expr, $k:expr, $a:expr, $b:expr) => {
        match ($a.starts_with('s'), $b.starts_with('s')) {
            (true, true) => form::<Integers<$s, $s, $most>>($m, $k, ["s32"; 2]),
            (true, false) => form::<Integers<$s, $u, $most>>($m, $k, ["s32"; 2]),
            (false, true) => form::<Integers<$u, $s, $most>>($m, $k, ["s32"; 2]),
            (false, false) => form::<Integers<$u, $u, $most>>($m, $k, ["s32"; 2]),
        }
    };
}

/// The kernel of a form with `.row.col`, or why there is none.
pub(super) fn lookup(words: &Words<'_>) -> Result<Form, String> {
    let found = find(words);
    let [d, a, b, c] = words.types;
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

fn find(words: &Words<'_>) -> Option<Form> {
    let [d, a, b, c] = words.types;
    let sums = [d, c];
    let floats = matches!(sums, ["f16" | "f32", "f16" | "f32"]);
    Some(match (words.shape, a, b) {
        ("m16n8k8", "f16", "f16") if floats => form::<Floats<F16, F16, 16>>(16, 8, sums),
        ("m16n8k16", "f16", "f16") if floats => form::<FixedFloats<F16, F16, 16>>(16, 16, sums),
        ("m16n8k8", "bf16", "bf16") if sums == ["f32"; 2] => form::<Floats<Bf16, Bf16, 16>>(16, 8, sums),
        ("m16n8k16", "bf16", "bf16") if sums == ["f32"; 2] => {
            form::<FixedFloats<Bf16, Bf16, 16>>(16, 16, sums)
        }
        ("m16n8k4", "tf32", "tf32") if sums == ["f32"; 2] => form::<Floats<Tf32, Tf32, 8>>(16, 4, sums),
        ("m16n8k8", "tf32", "tf32") if sums == ["f32"; 2] => form::<Floats<Tf32, Tf32, 8>>(16, 8, sums),
        ("m16n8k16" | "m16n8k32", "e4m3" | "e5m2", "e4m3" | "e5m2") if floats => {
            let k = if words.shape == "m16n8k16" { 16 } else { 32 };
            match (a, b) {
                ("e4m3", "e4m3") => form::<Floats<E4m3, E4m3, 32>>(16, k, sums),
                ("e4m3", _) => form::<Floats<E4m3, E5m2, 32>>(16, k, sums),
                (_, "e4m3") => form::<Floats<E5m2, E4m3, 32>>(16, k, sums),
                _ => form::<Floats<E5m2, E5m2, 32>>(16, k, sums),
            }
        }
        (shape, "s8" | "u8", "s8" | "u8") if sums == ["s32"; 2] => match shape {
            "m8n8k16" => integers!(S8, U8, 32, 8, 16, a, b),
            "m16n8k16" => integers!(S8, U8, 32, 16, 16, a, b),
            "m16n8k32" => integers!(S8, U8, 32, 16, 32, a, b),
            _ => return None,
        },
        (shape, "s4" | "u4", "s4" | "u4") if sums == ["s32"; 2] => match shape {
            "m8n8k32" => integers!(S4, U4, 64, 8, 32, a, b),
            "m16n8k32" => integers!(S4, U4, 64, 16, 32, a, b),
            "m16n8k64" => integers!(S4, U4, 64, 16, 64, a, b),
            _ => return None,
        },
        (shape, "b1", "b1") if sums == ["s32"; 2] && !words.bits.is_empty() => {
            let mut form = match shape {
                "m8n8k128" => form::<Bits>(8, 128, sums),
                "m16n8k128" => form::<Bits>(16, 128, sums),
                "m16n8k256" => form::<Bits>(16, 256, sums),
                _ => return None,
            };
            form.flags |= if words.bits == "and" { AND } else { 0 };
            form
        }
        (shape, "f64", "f64") if sums == ["f64"; 2] => match shape {
            "m8n8k4" => form::<Doubles>(8, 4, sums),
            "m16n8k4" => form::<Doubles>(16, 4, sums),
            "m16n8k8" => form::<Doubles>(16, 8, sums),
            "m16n8k16" => form::<Doubles>(16, 16, sums),
            _ => return None,
        },
        _ => return None,
    })
}
