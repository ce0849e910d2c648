//! f32 and f64, judged by exact numbers; what is not finite by the host.

use std::cmp::Ordering;

use super::exact::{Big, F32, F64, Shape};
use super::*;

const MODES: [&str; 4] = ["rn", "rz", "rm", "rp"];

fn canonical(shape: Shape) -> u64 {
    if shape.mantissa == 23 { 0x7fff_ffff } else { 0xfff8_0000_0000_0000 }
}

/// Of the host, in f32 or f64.
fn native(shape: Shape, opcode: &str, x: &[u64]) -> u64 {
    macro_rules! compute {
        ($t:ident, $bits:ty) => {{
            let v: Vec<$t> = x.iter().map(|x| $t::from_bits(*x as $bits)).collect();
            let value = match opcode {
                "add" => v[0] + v[1],
                "sub" => v[0] - v[1],
                "mul" => v[0] * v[1],
                "fma" | "mad" => v[0].mul_add(v[1], v[2]),
                "div" => v[0] / v[1],
                "rcp" => 1.0 / v[0],
                _ => v[0].sqrt(),
            };
            if value.is_nan() { canonical(shape) } else { u64::from(value.to_bits()) }
        }};
    }
    if shape.mantissa == 23 { compute!(f32, u32) } else { compute!(f64, u64) }
}

/// Whether a result is the exact one rounded.
fn judge(shape: Shape, opcode: &str, mode: &'static str, x: &[u64], result: u64) -> Result<(), String> {
    let native = native(shape, opcode, x);
    let same = || if result == native { Ok(()) } else { Err(format!("expected {native:#x}")) };
    if !x.iter().all(|x| shape.is_finite(*x)) || shape.is_nan(native) {
        return same();
    }
    let v: Vec<Big> = x.iter().map(|x| shape.big(*x)).collect();
    let one = Big::new(false, 1, 0);
    let exact = match opcode {
        "add" => Some(v[0].add(&v[1])),
        "sub" => Some(v[0].add(&v[1].negate())),
        "mul" => Some(v[0].mul(&v[1])),
        "fma" | "mad" => Some(v[0].mul(&v[1]).add(&v[2])),
        _ => None,
    };
    if let Some(exact) = exact {
        if exact.sign() == Ordering::Equal {
            // Of opposite zeros or equal numbers the sum is -0.0 downwards.
            let both_signs = match opcode {
                "add" => (x[0] ^ x[1]) & shape.sign() != 0,
                "sub" => (x[0] ^ x[1]) & shape.sign() == 0,
                "mul" => false,
                _ => (x[0] ^ x[1] ^ x[2]) & shape.sign() != 0,
            };
            let expected = if both_signs && mode == "rm" { shape.sign() } else { native };
            return if result == expected { Ok(()) } else { Err(format!("expected the zero {expected:#x}")) };
        }
        return shape.rounds(result, mode, &|value| exact.cmp(value));
    }
    let (numerator, divisor) = match opcode {
        "div" => (&v[0], &v[1]),
        "rcp" => (&one, &v[0]),
        _ => {
            if x[0] & (shape.sign() - 1) == 0 {
                return same();
            }
            return shape.rounds(result, mode, &|value| match value.sign() {
                Ordering::Less => Ordering::Greater,
                _ => v[0].cmp(&value.mul(value)),
            });
        }
    };
    if numerator.sign() == Ordering::Equal || divisor.sign() == Ordering::Equal {
        return same();
    }
    let positive = divisor.sign() == Ordering::Greater;
    shape.rounds(result, mode, &|value| {
        let order = numerator.cmp(&value.mul(divisor));
        if positive { order } else { order.reverse() }
    })
}

fn all_roundings(shape: Shape, name: &str, edges: &[u64]) {
    for (opcode, sources) in
        [("add", 2), ("sub", 2), ("mul", 2), ("fma", 3), ("mad", 3), ("div", 2), ("rcp", 1), ("sqrt", 1)]
    {
        // Three sources in all combinations take long: every other value.
        let few: Vec<_> = edges.iter().copied().step_by(if sources == 3 { 2 } else { 1 }).collect();
        let values = vec![few.as_slice(); sources];
        for mode in MODES {
            verify(&format!("{opcode}.{mode}.{name}"), &values, FULL, |x, result| {
                judge(shape, opcode, mode, x, result)
            });
        }
    }
}

#[test]
fn f32_roundings() {
    all_roundings(F32, "f32", &f32s());
}

#[test]
fn f64_roundings() {
    let edges: Vec<_> = f64s().into_iter().step_by(2).collect();
    all_roundings(F64, "f64", &edges);
}

fn flush(x: u64) -> u64 {
    if x & 0x7f80_0000 == 0 { x & 0x8000_0000 } else { x }
}

fn saturate(x: u64) -> u64 {
    let value = f32::from_bits(x as u32);
    if value.is_nan() || value <= 0.0 {
        return 0;
    }
    u64::from(if value > 1.0 { 1f32 } else { value }.to_bits())
}

#[test]
fn no_rounding_is_to_nearest() {
    let edges = f32s();
    for opcode in ["add", "sub", "mul"] {
        for ty in ["f32", "f64"] {
            let edges = if ty == "f32" { edges.clone() } else { f64s() };
            check(&format!("{opcode}.{ty}"), &[&edges, &edges], 64, |x| {
                once(&format!("{opcode}.rn.{ty}"), x)
            });
        }
    }
}

#[test]
fn flushing_and_saturation() {
    let edges: Vec<_> = f32s().into_iter().step_by(2).collect();
    for (opcode, sources) in [("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)] {
        let values = &[edges.as_slice(); 3][..sources];
        for mode in ["rn", "rz", "rp"] {
            let plain = format!("{opcode}.{mode}.f32");
            let flushed = |x: &[u64]| {
                let x: Vec<_> = x.iter().map(|x| flush(*x)).collect();
                flush(once(&plain, &x))
            };
            if sources == 2 || mode == "rn" {
                check(&format!("{opcode}.{mode}.ftz.f32"), values, 32, flushed);
                check(&format!("{opcode}.{mode}.sat.f32"), values, 32, |x| saturate(once(&plain, x)));
                check(&format!("{opcode}.{mode}.ftz.sat.f32"), values, 32, |x| saturate(flushed(x)));
            }
        }
    }
    for (opcode, sources) in [("div", 2), ("rcp", 1), ("sqrt", 1)] {
        for mode in ["rn", "rm"] {
            let plain = format!("{opcode}.{mode}.f32");
            check(&format!("{opcode}.{mode}.ftz.f32"), &[edges.as_slice(); 2][..sources], 32, |x| {
                let x: Vec<_> = x.iter().map(|x| flush(*x)).collect();
                flush(once(&plain, &x))
            });
        }
    }
}

#[test]
fn signs() {
    let (edges, longs) = (f32s(), f64s());
    check("abs.f32", &[&edges], 32, |x| x[0] & 0x7fff_ffff);
    check("neg.f32", &[&edges], 32, |x| x[0] ^ 0x8000_0000);
    check("abs.ftz.f32", &[&edges], 32, |x| flush(x[0]) & 0x7fff_ffff);
    check("neg.ftz.f32", &[&edges], 32, |x| flush(x[0]) ^ 0x8000_0000);
    check("abs.f64", &[&longs], 64, |x| x[0] << 1 >> 1);
    check("neg.f64", &[&longs], 64, |x| x[0] ^ 1 << 63);
    check("copysign.f32", &[&edges, &edges], 32, |x| x[0] & 0x8000_0000 | x[1] & 0x7fff_ffff);
    check("copysign.f64", &[&longs, &longs], 64, |x| x[0] >> 63 << 63 | x[1] << 1 >> 1);
}

/// The order of the ISA: -0.0 below 0.0; of NaN and a number the number.
fn extreme32(x: u64, y: u64, greater: bool) -> u64 {
    let (a, b) = (f32::from_bits(x as u32), f32::from_bits(y as u32));
    match (a.is_nan(), b.is_nan()) {
        (true, true) => 0x7fff_ffff,
        (true, false) => y,
        (false, true) => x,
        (false, false) => match (a.total_cmp(&b), greater) {
            (Ordering::Less, false) | (Ordering::Greater, true) => x,
            _ => y,
        },
    }
}

#[test]
fn extremes() {
    let edges = f32s();
    let nan = |x: &[u64]| x.iter().any(|x| F32.is_nan(*x));
    for (name, greater) in [("min", false), ("max", true)] {
        let two: [&[u64]; 2] = [&edges, &edges];
        check(&format!("{name}.f32"), &two, 32, |x| extreme32(x[0], x[1], greater));
        check(&format!("{name}.ftz.f32"), &two, 32, |x| extreme32(flush(x[0]), flush(x[1]), greater));
        check(&format!("{name}.NaN.f32"), &two, 32, |x| {
            if nan(x) { 0x7fff_ffff } else { extreme32(x[0], x[1], greater) }
        });
        check(&format!("{name}.ftz.NaN.f32"), &two, 32, |x| {
            if nan(x) { 0x7fff_ffff } else { extreme32(flush(x[0]), flush(x[1]), greater) }
        });
        check(&format!("{name}.xorsign.abs.f32"), &two, 32, |x| {
            let value = extreme32(x[0] & 0x7fff_ffff, x[1] & 0x7fff_ffff, greater);
            if F32.is_nan(value) { 0x7fff_ffff } else { value | (x[0] ^ x[1]) & 0x8000_0000 }
        });
        let few: Vec<_> = edges.iter().copied().step_by(2).collect();
        check(&format!("{name}3.f32"), &[&few, &few, &few], 32, |x| {
            extreme32(extreme32(x[0], x[1], greater), x[2], greater)
        });
        check(&format!("{name}3.NaN.abs.f32"), &[&few, &few, &few], 32, |x| {
            let x: Vec<_> = x.iter().map(|x| x & 0x7fff_ffff).collect();
            if nan(&x) { 0x7fff_ffff } else { extreme32(extreme32(x[0], x[1], greater), x[2], greater) }
        });
        let longs = f64s();
        check(&format!("{name}.f64"), &[&longs, &longs], 64, |x| {
            let (a, b) = (f64::from_bits(x[0]), f64::from_bits(x[1]));
            match (a.is_nan(), b.is_nan()) {
                (true, true) => 0xfff8_0000_0000_0000,
                (true, false) => x[1],
                (false, true) => x[0],
                (false, false) => {
                    let first = a.total_cmp(&b).is_lt() != greater;
                    if first { x[0] } else { x[1] }
                }
            }
        });
    }
}

#[test]
fn properties() {
    let (edges, longs) = (f32s(), f64s());
    for name in ["finite", "infinite", "number", "notanumber", "normal", "subnormal"] {
        let has = |shape: Shape, x: u64| {
            let magnitude = x & (shape.sign() - 1);
            let least = 1 << shape.mantissa;
            match name {
                "finite" => magnitude < shape.infinity(),
                "infinite" => magnitude == shape.infinity(),
                "number" => magnitude <= shape.infinity(),
                "notanumber" => magnitude > shape.infinity(),
                "normal" => magnitude == 0 || magnitude >= least && magnitude < shape.infinity(),
                _ => magnitude != 0 && magnitude < least,
            }
        };
        check(&format!("testp.{name}.f32"), &[&edges], 1, |x| u64::from(has(F32, x[0])));
        check(&format!("testp.{name}.f64"), &[&longs], 1, |x| u64::from(has(F64, x[0])));
    }
}
