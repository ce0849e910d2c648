//! f16 and bf16, one and two to a register, judged by exact numbers.

use std::cmp::Ordering;

use super::exact::{BF16, F16, Shape};
use super::*;

const FORMATS: [(&str, Shape); 2] = [("f16", F16), ("bf16", BF16)];

fn flush(shape: Shape, x: u64) -> u64 {
    if x & (shape.sign() - 1) < 1 << shape.mantissa { x & shape.sign() } else { x }
}

/// As f64, where sums and products of halves have their signs, zeros and infinities right, if not their last bits.
fn wide(shape: Shape, x: u64) -> f64 {
    if shape.mantissa == 7 {
        f64::from(f32::from_bits((x << 16) as u32))
    } else {
        f64::from(half::f16::from_bits(x as u16).to_f32())
    }
}

fn infinite(shape: Shape, value: f64) -> u64 {
    shape.infinity() | if value < 0.0 { shape.sign() } else { 0 }
}

/// Whether a result is the exact one rounded to nearest.
fn judge(shape: Shape, opcode: &str, x: &[u64], result: u64) -> Result<(), String> {
    let v: Vec<f64> = x.iter().map(|x| wide(shape, *x)).collect();
    let native = match opcode {
        "add" => v[0] + v[1],
        "sub" => v[0] - v[1],
        "mul" => v[0] * v[1],
        _ => v[0] * v[1] + v[2],
    };
    let is = |expected: u64| if result == expected { Ok(()) } else { Err(format!("expected {expected:#x}")) };
    if native.is_nan() {
        return is(0x7fff);
    }
    if native.is_infinite() {
        return is(infinite(shape, native));
    }
    let v: Vec<_> = x.iter().map(|x| shape.big(*x)).collect();
    let exact = match opcode {
        "add" => v[0].add(&v[1]),
        "sub" => v[0].add(&v[1].negate()),
        "mul" => v[0].mul(&v[1]),
        _ => v[0].mul(&v[1]).add(&v[2]),
    };
    if exact.sign() == Ordering::Equal {
        return is(if native.is_sign_negative() { shape.sign() } else { 0 });
    }
    shape.rounds(result, "rn", &|value| exact.cmp(value))
}

/// The packed form does to each half what the single form does.
fn packed(text: &str, ty: &str, sources: usize, halves: &[u64]) {
    let mut random = Random(11);
    let edges: Vec<_> = (0..60).map(|_| random.pick(halves) << 16 | random.pick(halves)).collect();
    check(&format!("{text}.{ty}x2"), &[edges.as_slice(); 3][..sources], 32, |x| {
        let part = |up: u32| {
            let x: Vec<_> = x.iter().map(|x| x >> up & 0xffff).collect();
            once(&format!("{text}.{ty}"), &x) & 0xffff
        };
        part(0) | part(16) << 16
    });
}

#[test]
fn roundings() {
    for (ty, shape) in FORMATS {
        let edges = floats(shape.mantissa, shape.exponent);
        for (opcode, sources) in [("add", 2), ("sub", 2), ("mul", 2), ("fma.rn", 3)] {
            let name = &opcode[..3];
            verify(&format!("{opcode}.{ty}"), &[edges.as_slice(); 3][..sources], FULL, |x, result| {
                let x: Vec<_> = x.iter().map(|x| x & 0xffff).collect();
                judge(shape, name, &x, result & 0xffff)
            });
            packed(opcode, ty, sources, &edges);
            if sources == 2 {
                packed(&format!("{opcode}.rn"), ty, sources, &edges);
            }
        }
    }
}

/// Values whose sums fall on and beside the middle between two numbers.
#[test]
fn fused_sums_beside_the_middle() {
    for (ty, shape) in FORMATS {
        let mut random = Random(3);
        let text = format!("fma.rn.{ty}x2");
        let alu = find(&text);
        let half = |random: &mut Random| {
            // Few bits and exponents near one another: ties are frequent.
            let spread = if shape.mantissa == 7 { 100 } else { 12 };
            let exponent = (1 << (shape.exponent - 1)) - 1 - spread / 2 + random.next() % spread;
            let low = random.next() & random.next() & ((1 << shape.mantissa) - 1);
            exponent << shape.mantissa | low | random.next() & shape.sign()
        };
        for _ in 0..4000 {
            let mut row = || std::array::from_fn(|_| half(&mut random) << 16 | half(&mut random));
            let sources: [[u64; 32]; 3] = [row(), row(), row()];
            let result = execute(&alu, &sources, FULL);
            for lane in 0..32 {
                for up in [0, 16] {
                    let x: Vec<_> = sources.iter().map(|row| row[lane] >> up & 0xffff).collect();
                    judge(shape, "fma", &x, result.first[lane] >> up & 0xffff)
                        .unwrap_or_else(|e| panic!("{text} of {x:x?}: {e}"));
                }
            }
        }
    }
}

#[test]
fn flushing_saturation_and_relu() {
    let edges = f16s();
    let nan = |shape: Shape, x: u64| x & 0x7fff > shape.infinity();
    let saturate = move |x: u64| if nan(F16, x) || x & 0x8000 != 0 { 0 } else { x.min(0x3c00) };
    for (opcode, sources) in [("add", 2), ("sub", 2), ("mul", 2), ("fma.rn", 3)] {
        let values = &[edges.as_slice(); 3][..sources];
        let plain = |x: &[u64]| once(&format!("{opcode}.f16"), x) & 0xffff;
        let flushed = |x: &[u64]| {
            let x: Vec<_> = x.iter().map(|x| flush(F16, x & 0xffff)).collect();
            flush(F16, plain(&x))
        };
        check(&format!("{opcode}.ftz.f16"), values, 16, flushed);
        check(&format!("{opcode}.sat.f16"), values, 16, |x| saturate(plain(x)));
        check(&format!("{opcode}.ftz.sat.f16"), values, 16, |x| saturate(flushed(x)));
        packed(&format!("{opcode}.ftz"), "f16", sources, &edges);
        packed(&format!("{opcode}.sat"), "f16", sources, &edges);
    }
    for (ty, shape) in FORMATS {
        let edges = floats(shape.mantissa, shape.exponent);
        check(&format!("fma.rn.relu.{ty}"), &[&edges, &edges, &edges], 16, |x| {
            let plain = once(&format!("fma.rn.{ty}"), x) & 0xffff;
            if plain & 0x8000 != 0 && !nan(shape, plain) { 0 } else { plain }
        });
        packed("fma.rn.relu", ty, 3, &edges);
    }
}

#[test]
fn extremes() {
    for (ty, shape) in FORMATS {
        let edges = floats(shape.mantissa, shape.exponent);
        let flushes: &[bool] = if ty == "f16" { &[false, true] } else { &[false] };
        for (name, greater) in [("min", false), ("max", true)] {
            let pick = |x: u64, y: u64| {
                let (a, b) = (wide(shape, x), wide(shape, y));
                match (a.is_nan(), b.is_nan()) {
                    (true, true) => 0x7fff,
                    (true, false) => y,
                    (false, true) => x,
                    (false, false) => {
                        if a.total_cmp(&b).is_lt() != greater {
                            x
                        } else {
                            y
                        }
                    }
                }
            };
            for ftz in flushes {
                let word = if *ftz { ".ftz" } else { "" };
                let see = |x: u64| if *ftz { flush(shape, x & 0xffff) } else { x & 0xffff };
                let two: [&[u64]; 2] = [&edges, &edges];
                check(&format!("{name}{word}.{ty}"), &two, 16, |x| pick(see(x[0]), see(x[1])));
                check(&format!("{name}{word}.NaN.{ty}"), &two, 16, |x| {
                    let nan = x.iter().any(|x| wide(shape, x & 0xffff).is_nan());
                    if nan { 0x7fff } else { pick(see(x[0]), see(x[1])) }
                });
                check(&format!("{name}{word}.xorsign.abs.{ty}"), &two, 16, |x| {
                    let value = pick(see(x[0]) & 0x7fff, see(x[1]) & 0x7fff);
                    if wide(shape, value).is_nan() { 0x7fff } else { value | (x[0] ^ x[1]) & 0x8000 }
                });
                for more in ["", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs"] {
                    packed(&format!("{name}{word}{more}"), ty, 2, &edges);
                }
            }
        }
    }
}

#[test]
fn signs() {
    for (ty, shape) in FORMATS {
        let edges = floats(shape.mantissa, shape.exponent);
        check(&format!("abs.{ty}"), &[&edges], 16, |x| x[0] & 0x7fff);
        check(&format!("neg.{ty}"), &[&edges], 16, |x| x[0] ^ 0x8000);
        packed("abs", ty, 1, &edges);
        packed("neg", ty, 1, &edges);
    }
    let edges = f16s();
    check("abs.ftz.f16", &[&edges], 16, |x| flush(F16, x[0] & 0x7fff));
    check("neg.ftz.f16", &[&edges], 16, |x| flush(F16, x[0] & 0xffff) ^ 0x8000);
    packed("abs.ftz", "f16", 1, &edges);
    packed("neg.ftz", "f16", 1, &edges);
}
