//! `cvt`, judged by exact numbers for every pair of types.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::HashMap;

use super::exact::{BF16, Big, F16, F32, F64, Shape, TF32};
use super::ints::value;
use super::*;

const INTEGERS: [(&str, u32, bool); 8] = [
    ("u8", 8, false),
    ("s8", 8, true),
    ("u16", 16, false),
    ("s16", 16, true),
    ("u32", 32, false),
    ("s32", 32, true),
    ("u64", 64, false),
    ("s64", 64, true),
];
const FLOATS: [(&str, Shape); 4] = [("f16", F16), ("bf16", BF16), ("f32", F32), ("f64", F64)];
const MODES: [&str; 4] = ["rn", "rz", "rm", "rp"];

fn bits(shape: Shape) -> u32 {
    1 + shape.mantissa + shape.exponent
}

fn nan(shape: Shape) -> u64 {
    match shape.mantissa {
        52 => 0xfff8_0000_0000_0000,
        23 => 0x7fff_ffff,
        _ => 0x7fff,
    }
}

/// The low bits of a register that belong to the type, and the value in a test's source.
fn low(x: u64, bits: u32) -> u64 {
    x & (!0 >> (64 - bits))
}

#[test]
fn integers_to_integers() {
    for (from, width, signed) in INTEGERS {
        let edges = integers(64);
        for (to, target, target_signed) in INTEGERS {
            // Narrow results are extended to the word.
            let seen = target.max(32);
            let extend = |x: i128| value(x as u64, target, target_signed) as u64;
            check(&format!("cvt.{to}.{from}"), &[&edges], seen, |x| {
                extend(value(low(x[0], width), width, signed))
            });
            check(&format!("cvt.sat.{to}.{from}"), &[&edges], seen, |x| {
                let (least, most) = if target_signed {
                    (-1 << (target - 1), (1 << (target - 1)) - 1)
                } else {
                    (0, (1 << target) - 1)
                };
                value(low(x[0], width), width, signed).clamp(least, most) as u64
            });
        }
    }
}

/// A float's value cut to an integer, by exact numbers.
fn integral(shape: Shape, x: u64, mode: &str) -> i128 {
    let v = shape.big(x);
    let big = |n: i128| Big::new(n < 0, n.unsigned_abs(), 0);
    // Beyond 2^65 every type is full.
    let limit = 1i128 << 65;
    if v.cmp(&big(limit)) != Ordering::Less {
        return limit;
    }
    if v.cmp(&big(-limit)) != Ordering::Greater {
        return -limit;
    }
    let (mut below, mut above) = (-limit, limit);
    // The largest integer not above the value.
    while above - below > 1 {
        let middle = (above + below) / 2;
        if big(middle).cmp(&v) == Ordering::Greater { above = middle } else { below = middle }
    }
    if big(below).cmp(&v) == Ordering::Equal {
        return below;
    }
    let half = big(2 * below + 1).mul(&Big::new(false, 1, -1)).cmp(&v);
    match mode {
        "rmi" => below,
        "rpi" => above,
        "rzi" => {
            if below < 0 {
                above
            } else {
                below
            }
        }
        _ => match half {
            Ordering::Greater => below,
            Ordering::Less => above,
            Ordering::Equal => {
                if below % 2 == 0 {
                    below
                } else {
                    above
                }
            }
        },
    }
}

/// Floats around the limits of integers, too.
fn floats_and_limits(shape: Shape) -> Vec<u64> {
    let mut out = floats(shape.mantissa, shape.exponent);
    let bias = (1u64 << (shape.exponent - 1)) - 1;
    for power in [0, 1, 2, 3, 7, 8, 15, 16, 22, 23, 24, 31, 32, 51, 52, 53, 63, 64] {
        if power <= bias {
            let bits = (bias + power) << shape.mantissa;
            let half = 1u64.checked_shl(shape.mantissa.wrapping_sub(power as u32 + 1)).unwrap_or(0);
            for x in [bits, bits - 1, bits + 1, bits | half, (bits | half) + 1, (bits | half) - 1] {
                out.extend([x, x | shape.sign()]);
            }
        }
    }
    out
}

#[test]
fn floats_to_integers() {
    for (from, shape) in FLOATS {
        let edges = floats_and_limits(shape);
        // The search for an integer is slow, and the same values come for every type.
        let known = RefCell::new(HashMap::new());
        for (to, width, signed) in INTEGERS {
            for mode in ["rni", "rzi", "rmi", "rpi"] {
                let known = &known;
                let definition = |x: u64| {
                    let x = low(x, bits(shape));
                    if shape.is_nan(x) {
                        // The ISA: zero, but the highest bit from f64 or to 64 bits; narrow types are extended to the word.
                        let wide = shape.mantissa == 52 || width == 64;
                        let bit = if wide { 1 << (width - 1) } else { 0 };
                        return value(bit, width, signed) as u64;
                    }
                    let (least, most) = if signed {
                        (-1 << (width - 1), (1 << (width - 1)) - 1)
                    } else {
                        (0, (1 << width) - 1)
                    };
                    let integer = if shape.is_finite(x) {
                        *known.borrow_mut().entry((x, mode)).or_insert_with(|| integral(shape, x, mode))
                    } else if x & shape.sign() != 0 {
                        i128::MIN
                    } else {
                        i128::MAX
                    };
                    integer.clamp(least, most) as u64
                };
                check(&format!("cvt.{mode}.{to}.{from}"), &[&edges], width.max(32), |x| definition(x[0]));
                check(&format!("cvt.{mode}.sat.{to}.{from}"), &[&edges], width.max(32), |x| definition(x[0]));
                if from == "f32" {
                    check(&format!("cvt.{mode}.ftz.{to}.f32"), &[&edges], width.max(32), |x| {
                        let x = if x[0] & 0x7f80_0000 == 0 { x[0] & 0x8000_0000 } else { x[0] };
                        definition(x)
                    });
                }
            }
        }
    }
}

#[test]
fn integers_to_floats() {
    for (from, width, signed) in INTEGERS {
        let mut edges = integers(width);
        // Halfway cases of every format.
        edges.extend([
            2049, 2051, 4098, 65519, 65520, 65521, 65535, 257, 259, 385, 16_777_217, 16_777_219, 33_554_434,
        ]);
        edges.extend([
            (1 << 53) + 1,
            (1 << 53) + 3,
            (1 << 62) + (1 << 38),
            (1 << 62) + (1 << 38) + 1,
            (1 << 30) + 64,
        ]);
        for (to, shape) in FLOATS {
            for mode in MODES {
                verify(&format!("cvt.{mode}.{to}.{from}"), &[&edges], FULL, |x, result| {
                    let v = value(low(x[0], width), width, signed);
                    let result = low(result, bits(shape).max(32));
                    if v == 0 {
                        return if result == 0 { Ok(()) } else { Err("not zero".into()) };
                    }
                    let exact = Big::new(v < 0, v.unsigned_abs(), 0);
                    shape.rounds(result, mode, &|other| exact.cmp(other))
                });
            }
            check(&format!("cvt.rn.sat.{to}.{from}"), &[&edges], bits(shape), |x| {
                let one = ((1 << (shape.exponent - 1)) - 1) << shape.mantissa;
                if value(low(x[0], width), width, signed) > 0 { one } else { 0 }
            });
        }
    }
}

/// Whether a float converted is right.
fn judge(to: Shape, from: Shape, mode: &'static str, x: u64, result: u64) -> Result<(), String> {
    let is = |expected: u64| if result == expected { Ok(()) } else { Err(format!("expected {expected:#x}")) };
    let sign = if x & from.sign() != 0 { to.sign() } else { 0 };
    if from.is_nan(x) {
        return is(nan(to));
    }
    if !from.is_finite(x) {
        return is(to.infinity() | sign);
    }
    let exact = from.big(x);
    if exact.sign() == Ordering::Equal {
        return is(sign);
    }
    to.rounds(result, mode, &|other| exact.cmp(other))
}

#[test]
fn floats_to_floats() {
    for (from, source) in FLOATS {
        let edges = floats_and_limits(source);
        for (to, target) in FLOATS.into_iter().filter(|(to, _)| *to != from) {
            let narrows = bits(target) < bits(source) || bits(target) == 16 && bits(source) == 16;
            let modes: &[&str] = if narrows { &MODES } else { &["", "rn"] };
            for mode in modes {
                let text = if mode.is_empty() {
                    format!("cvt.{to}.{from}")
                } else {
                    format!("cvt.{mode}.{to}.{from}")
                };
                let mode = if mode.is_empty() { "rn" } else { mode };
                verify(&text, &[&edges], FULL, |x, result| {
                    judge(target, source, mode, low(x[0], bits(source)), low(result, bits(target).max(32)))
                });
            }
            // Between halves of different range, and what was cut: the definitions above, put together.
            let mode = if narrows { ".rn" } else { "" };
            check(&format!("cvt{mode}.sat.{to}.{from}"), &[&edges], bits(target), |x| {
                let plain = low(once(&format!("cvt{mode}.{to}.{from}"), x), bits(target));
                let one = ((1 << (target.exponent - 1)) - 1) << target.mantissa;
                if target.is_nan(plain) || plain & target.sign() != 0 { 0 } else { plain.min(one) }
            });
            if narrows {
                assert!(lookup("cvt", &[to, from]).is_err(), "cvt.{to}.{from} without a rounding");
            }
        }
    }
}

#[test]
fn flushed() {
    let flush = |x: u64| if x & 0x7f80_0000 == 0 { x & 0x8000_0000 } else { x };
    let (edges, longs) = (floats_and_limits(F32), floats_and_limits(F64));
    for text in ["rn.f16", "rz.f16", "rn.bf16", "rp.bf16", "f64"] {
        let (mode, to) = text.split_once('.').unwrap_or(("", text));
        let dot = if mode.is_empty() { "" } else { "." };
        let plain = format!("cvt{dot}{mode}.{to}.f32");
        check(&format!("cvt{dot}{mode}.ftz.{to}.f32"), &[&edges], 64, |x| once(&plain, &[flush(x[0])]));
    }
    for mode in MODES {
        check(&format!("cvt.{mode}.ftz.f32.f64"), &[&longs], 32, |x| {
            flush(once(&format!("cvt.{mode}.f32.f64"), x))
        });
    }
    check("cvt.ftz.f32.f16", &[&f16s()], 32, |x| once("cvt.f32.f16", x));
    check("cvt.ftz.f32.bf16", &[&bf16s()], 32, |x| flush(once("cvt.f32.bf16", x)));
}

#[test]
fn within_a_type() {
    for (ty, shape) in FLOATS {
        let edges = floats_and_limits(shape);
        let wide = |x: u64| low(x, bits(shape));
        check(&format!("cvt.{ty}.{ty}"), &[&edges], bits(shape), |x| {
            if shape.is_nan(wide(x[0])) { nan(shape) } else { wide(x[0]) }
        });
        for mode in ["rni", "rzi", "rmi", "rpi"] {
            verify(&format!("cvt.{mode}.{ty}.{ty}"), &[&edges], FULL, |x, result| {
                let (x, result) = (wide(x[0]), wide(result));
                let large = shape.is_finite(x)
                    && shape.big(x & (shape.sign() - 1)).cmp(&Big::new(false, 1, 60)).is_gt();
                let good = if shape.is_nan(x) {
                    result == nan(shape)
                } else if !shape.is_finite(x) || large {
                    result == x
                } else {
                    let integer = integral(shape, x, mode);
                    let expected = Big::new(integer < 0, integer.unsigned_abs(), 0);
                    shape.big(result).cmp(&expected).is_eq() && (result ^ x) & shape.sign() == 0
                };
                if good { Ok(()) } else { Err("another integer".into()) }
            });
        }
    }
    let edges = floats_and_limits(F32);
    let flush = |x: u64| if x & 0x7f80_0000 == 0 { x & 0x8000_0000 } else { x };
    for mode in ["", "rni.", "rzi.", "rmi.", "rpi."] {
        let plain = format!("cvt.{mode}f32.f32");
        let saturate = |x: u64| {
            let v = f32::from_bits(x as u32);
            if v.is_nan() || v <= 0.0 { 0 } else { u64::from(v.min(1.0).to_bits()) }
        };
        check(&format!("cvt.{mode}ftz.f32.f32"), &[&edges], 32, |x| flush(once(&plain, &[flush(x[0])])));
        check(&format!("cvt.{mode}sat.f32.f32"), &[&edges], 32, |x| saturate(once(&plain, x)));
        check(&format!("cvt.{mode}ftz.sat.f32.f32"), &[&edges], 32, |x| {
            saturate(once(&plain, &[flush(x[0])]))
        });
    }
}

/// What `.relu` and `.satfinite` make of a result.
fn limited(shape: Shape, x: u64, relu: bool, finite: bool) -> u64 {
    if shape.is_nan(x) {
        return x;
    }
    if relu && x & shape.sign() != 0 {
        return 0;
    }
    if finite && !shape.is_finite(x) { x - 1 } else { x }
}

#[test]
fn relu_satfinite_and_pairs() {
    let edges = floats_and_limits(F32);
    for (to, shape) in [("f16", F16), ("bf16", BF16)] {
        for mode in ["rn", "rz"] {
            let plain = |x: u64| low(once(&format!("cvt.{mode}.{to}.f32"), &[x]), 16);
            for (words, relu, finite) in [
                ("", false, false),
                (".relu", true, false),
                (".satfinite", false, true),
                (".relu.satfinite", true, true),
            ] {
                check(&format!("cvt.{mode}{words}.{to}.f32"), &[&edges], 16, |x| {
                    limited(shape, plain(x[0]), relu, finite)
                });
                check(&format!("cvt.{mode}{words}.{to}x2.f32"), &[&edges, &edges], 32, |x| {
                    limited(shape, plain(x[0]), relu, finite) << 16
                        | limited(shape, plain(x[1]), relu, finite)
                });
            }
        }
    }
}

#[test]
fn tf32() {
    let edges = floats_and_limits(F32);
    for mode in ["rn", "rz", "rna"] {
        verify(&format!("cvt.{mode}.tf32.f32"), &[&edges], FULL, |x, result| {
            if result & 0x1fff != 0 && !F32.is_nan(x[0]) {
                return Err("bits below the format".into());
            }
            if F32.is_nan(x[0]) {
                return if TF32.is_nan(result >> 13) { Ok(()) } else { Err("no NaN".into()) };
            }
            judge(TF32, F32, mode, x[0], result >> 13)
        });
        check(&format!("cvt.{mode}.satfinite.tf32.f32"), &[&edges], 32, |x| {
            limited(TF32, once(&format!("cvt.{mode}.tf32.f32"), x) >> 13, false, true) << 13
        });
    }
    check("cvt.rn.relu.tf32.f32", &[&edges], 32, |x| {
        limited(TF32, once("cvt.rn.tf32.f32", x) >> 13, true, false) << 13
    });
}

/// All 256 values of an 8-bit float: e4m3 has no infinity, e5m2 is the upper half of an f16.
fn small(name: &str, x: u64) -> Option<f64> {
    if name == "e5m2" {
        let value = half::f16::from_bits((x << 8) as u16).to_f64();
        return (!value.is_nan()).then_some(value);
    }
    let magnitude = x & 0x7f;
    if magnitude == 0x7f {
        return None;
    }
    let (field, low) = (magnitude >> 3, (magnitude & 7) as f64);
    let value = if field == 0 { low * 2f64.powi(-9) } else { (8.0 + low) * 2f64.powi(field as i32 - 10) };
    Some(if x & 0x80 != 0 { -value } else { value })
}

#[test]
fn floats_of_8_bits() {
    let edges = floats_and_limits(F32);
    for (name, largest) in [("e4m3", 0x7e), ("e5m2", 0x7b)] {
        // The nearest of all values; of two at the same distance the even one.
        let nearest = |x: f64| -> u64 {
            if x.is_nan() {
                return 0x7f;
            }
            let sign = if x.is_sign_negative() { 0x80 } else { 0 };
            let distance = |code: u64| (small(name, code).unwrap_or(f64::INFINITY) - x.abs()).abs();
            let best = (0..=largest)
                .min_by(|a, b| distance(*a).total_cmp(&distance(*b)).then((a & 1).cmp(&(b & 1))));
            best.unwrap_or(0) | sign
        };
        let f = |x: u64| f64::from(f32::from_bits(x as u32));
        // What is infinite or far beyond has all distances infinite or rounded alike.
        let of = |x: f64| if x.abs() > 1e6 { largest | if x < 0.0 { 0x80 } else { 0 } } else { nearest(x) };
        check(&format!("cvt.rn.satfinite.{name}x2.f32"), &[&edges, &edges], 16, |x| {
            of(f(x[0])) << 8 | of(f(x[1]))
        });
        let relu = |x: u64| if x & 0x80 != 0 && x & 0x7f <= largest { 0 } else { x };
        check(&format!("cvt.rn.satfinite.relu.{name}x2.f32"), &[&edges, &edges], 16, |x| {
            relu(of(f(x[0]))) << 8 | relu(of(f(x[1])))
        });
        let halves: Vec<_> = f16s().iter().map(|x| x << 16 | x ^ 1).collect();
        let h = |x: u64| half::f16::from_bits(x as u16).to_f64();
        check(&format!("cvt.rn.satfinite.{name}x2.f16x2"), &[&halves], 16, |x| {
            of(h(x[0] >> 16)) << 8 | of(h(x[0]))
        });
        let codes: Vec<u64> = (0..256).map(|code| code << 8 | (255 - code)).collect();
        let back =
            |x: u64| small(name, x & 0xff).map_or(0x7fff, |x| u64::from(half::f16::from_f64(x).to_bits()));
        check(&format!("cvt.rn.f16x2.{name}x2"), &[&codes], 32, |x| back(x[0] >> 8) << 16 | back(x[0]));
    }
}

#[test]
fn packing() {
    let edges = integers(32);
    for (to, least, most) in [("u16", 0, 65535), ("s16", -32768, 32767)] {
        check(&format!("cvt.pack.sat.{to}.s32"), &[&edges, &edges], 32, |x| {
            let cut = |x: u64| (x as u32 as i32).clamp(least, most) as u16 as u64;
            cut(x[0]) << 16 | cut(x[1])
        });
    }
    for (to, width, least, most) in
        [("u8", 8, 0, 255), ("s8", 8, -128, 127), ("u4", 4, 0, 15), ("s2", 2, -2, 1)]
    {
        check(&format!("cvt.pack.sat.{to}.s32.b32"), &[&edges, &edges, &edges], 32, |x| {
            let cut = |x: u64| (x as u32 as i32).clamp(least, most) as u64 & ((1 << width) - 1);
            x[2] << (2 * width) | cut(x[0]) << width | cut(x[1])
        });
    }
}
