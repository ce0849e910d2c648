//! The approximations, within the bounds of the ISA and at the values it fixes.

use super::*;

const INFINITY: u64 = 0x7f80_0000;
const NAN: u64 = 0x7fff_ffff;
const NEGATIVE: u64 = 0x8000_0000;

fn flush(x: u64) -> u64 {
    if x & INFINITY == 0 { x & NEGATIVE } else { x }
}

fn f32_of(x: u64) -> f64 {
    f64::from(f32::from_bits(x as u32))
}

/// Within `relative` of the value, or the nearest f32 where that is subnormal.
fn close(result: u64, value: f64, relative: f64, absolute: f64) -> Result<(), String> {
    let nearest = value as f32;
    let got = f32_of(result);
    let good = if value.is_nan() {
        result == NAN
    } else if nearest.is_infinite() || nearest == 0.0 {
        result == u64::from(nearest.to_bits())
    } else {
        let least = f64::from(f32::from_bits(1));
        (got - value).abs() <= (value.abs() * relative).max(absolute).max(least)
    };
    if good { Ok(()) } else { Err(format!("expected {value:e}, got {got:e}")) }
}

/// Random values of moderate size besides the edges.
fn values() -> Vec<u64> {
    let mut random = Random(9);
    let mut out = f32s();
    for _ in 0..4000 {
        let x = (random.next() % 20_000_001) as f64 / 1e5 - 100.0;
        out.push(u64::from((x as f32).to_bits()));
        out.push(u64::from(((x * 0.01) as f32).to_bits()));
    }
    out
}

/// An instruction of one source, with and without `.ftz`.
fn bounded(name: &str, relative: f64, absolute: f64, f: impl Fn(f64) -> f64) {
    let values = values();
    verify(&format!("{name}.approx.f32"), &[&values], FULL, |x, result| {
        close(result, f(f32_of(x[0])), relative, absolute)
    });
    if name == "tanh" {
        return;
    }
    verify(&format!("{name}.approx.ftz.f32"), &[&values], FULL, |x, result| {
        let value = f(f32_of(flush(x[0])));
        let small = !value.is_nan() && value.abs() < f64::from(f32::MIN_POSITIVE) * (1.0 - 2f64.powi(-24));
        if !small {
            return close(result, value, relative, absolute);
        }
        let zero = if value.is_sign_negative() { NEGATIVE } else { 0 };
        if result == zero { Ok(()) } else { Err(format!("expected the zero {zero:#x}")) }
    });
}

// Of what is computed almost exactly, half a unit in the last place and a little; the ISA's own bounds are wider.
const HALF_ULP: f64 = 1.02 / 16_777_216.0;

#[test]
fn of_f32() {
    bounded("rcp", HALF_ULP, 0.0, |x| 1.0 / x);
    bounded("sqrt", HALF_ULP, 0.0, f64::sqrt);
    bounded("rsqrt", HALF_ULP, 0.0, |x| 1.0 / x.sqrt());
    bounded("ex2", HALF_ULP, 0.0, f64::exp2);
    bounded("lg2", HALF_ULP, 0.0, f64::log2);
    bounded("tanh", HALF_ULP, 0.0, f64::tanh);
    // Angles: the error counts in units of one.
    bounded("sin", HALF_ULP, 1e-9, f64::sin);
    bounded("cos", HALF_ULP, 1e-9, f64::cos);
}

/// The tables of the ISA.
#[test]
fn at_special_values() {
    let one = u64::from(1f32.to_bits());
    for ftz in ["", ".ftz"] {
        for (name, x, expected) in [
            ("ex2", INFINITY | NEGATIVE, 0),
            ("ex2", INFINITY, INFINITY),
            ("ex2", 0, one),
            ("ex2", NEGATIVE, one),
            ("ex2", 1, one),
            ("lg2", INFINITY, INFINITY),
            ("lg2", 0, INFINITY | NEGATIVE),
            ("lg2", NEGATIVE, INFINITY | NEGATIVE),
            ("lg2", one, 0),
            ("lg2", one | NEGATIVE, NAN),
            ("lg2", INFINITY | NEGATIVE, NAN),
            ("rcp", 0, INFINITY),
            ("rcp", NEGATIVE, INFINITY | NEGATIVE),
            ("rcp", INFINITY | NEGATIVE, NEGATIVE),
            ("rsqrt", 0, INFINITY),
            ("rsqrt", NEGATIVE, INFINITY | NEGATIVE),
            ("rsqrt", INFINITY, 0),
            ("rsqrt", one | NEGATIVE, NAN),
            ("sqrt", NEGATIVE, NEGATIVE),
            ("sqrt", one | NEGATIVE, NAN),
            ("sin", NEGATIVE, NEGATIVE),
            ("sin", INFINITY, NAN),
            ("cos", 0, one),
            ("cos", INFINITY | NEGATIVE, NAN),
        ] {
            assert_eq!(once(&format!("{name}.approx{ftz}.f32"), &[x]), expected, "{name}{ftz} of {x:#x}");
        }
    }
    for (x, expected) in
        [(INFINITY, one), (INFINITY | NEGATIVE, one | NEGATIVE), (0, 0), (NEGATIVE, NEGATIVE), (NAN, NAN)]
    {
        assert_eq!(once("tanh.approx.f32", &[x]), expected, "tanh of {x:#x}");
    }
    // Powers of two are exact, down to the last subnormal one.
    for n in -149..128 {
        let power = u64::from((2f64.powi(n) as f32).to_bits());
        let x = u64::from((n as f32).to_bits());
        assert_eq!(once("ex2.approx.f32", &[x]), power);
        assert_eq!(once("ex2.approx.ftz.f32", &[x]), flush(power));
        assert_eq!(once("lg2.approx.f32", &[power]), x);
    }
}

#[test]
fn large_angles() {
    for x in [1e7f32, 2e7, 1e10, 3.4e38, -5e8] {
        let bits = u64::from(x.to_bits());
        let (sin, cos) = f64::from(x).sin_cos();
        close(once("sin.approx.ftz.f32", &[bits]), sin, HALF_ULP, 1e-7).unwrap();
        close(once("cos.approx.f32", &[bits]), cos, HALF_ULP, 1e-7).unwrap();
    }
}

#[test]
fn quotients() {
    let edges = f32s();
    verify("div.full.f32", &[&edges, &edges], FULL, |x, result| {
        close(result, f32_of(x[0]) / f32_of(x[1]), 2f64.powi(-22), 0.0)
    });
    for (text, ftz) in [("div.approx.f32", false), ("div.approx.ftz.f32", true)] {
        verify(text, &[&edges, &edges], FULL, |x, result| {
            let x: Vec<_> = x.iter().map(|x| if ftz { flush(*x) } else { *x }).collect();
            let (a, b) = (f32_of(x[0]), f32_of(x[1]));
            let value = a / b;
            // The ISA: beyond 2^126 the quotient is 0, and NaN if the dividend is infinite.
            if b.abs() > 2f64.powi(126) && b.is_finite() {
                let expected = if a.is_nan() || a.is_infinite() { NAN } else { (x[0] ^ x[1]) & NEGATIVE };
                return if result == expected { Ok(()) } else { Err(format!("expected {expected:#x}")) };
            }
            if ftz && value.abs() < f64::from(f32::MIN_POSITIVE) {
                return if result & !NEGATIVE == 0 || result & !NEGATIVE == 0x80_0000 {
                    Ok(())
                } else {
                    Err("not flushed".into())
                };
            }
            // Twice rounded, an infinite quotient may be the largest number and the other way round.
            if value.is_finite() && value.abs() > f64::from(f32::MAX) * (1.0 - 1e-6) {
                return Ok(());
            }
            close(result, value, 2f64.powi(-22), f64::from(f32::from_bits(2)))
        });
    }
}

#[test]
fn of_f64() {
    let edges = f64s();
    let upper = |x: u64| x & !0xffff_ffff;
    let flush = |x: f64| if x.abs() < f64::MIN_POSITIVE { 0f64.copysign(x) } else { x };
    for (name, f) in [("rcp", (|x| 1.0 / x) as fn(f64) -> f64), ("rsqrt", |x| 1.0 / x.sqrt())] {
        verify(&format!("{name}.approx.ftz.f64"), &[&edges], FULL, |x, result| {
            let value = flush(f(flush(f64::from_bits(upper(x[0])))));
            let got = f64::from_bits(result);
            let good = if value.is_nan() {
                got.is_nan()
            } else {
                got == value || ((got - value) / value).abs() < 2f64.powi(-20)
            };
            if good && result as u32 == 0 { Ok(()) } else { Err(format!("expected {value:e}")) }
        });
    }
    verify("rsqrt.approx.f64", &[&edges], FULL, |x, result| {
        let value = 1.0 / f64::from_bits(x[0]).sqrt();
        let got = f64::from_bits(result);
        if value.is_nan() && got.is_nan() || got == value {
            Ok(())
        } else {
            Err(format!("expected {value:e}"))
        }
    });
}

#[test]
fn of_halves() {
    use half::{bf16, f16};
    let all: Vec<u64> = (0..0x1_0000).collect();
    let flush16 = |x: u64| if x & 0x7c00 == 0 { x & 0x8000 } else { x };
    let flush_b = |x: u64| if x & 0x7f80 == 0 { x & 0x8000 } else { x };
    let f = |x: u64| f16::from_bits(x as u16).to_f64();
    let b = |x: u64| bf16::from_bits(x as u16).to_f64();
    let to_f = |x: f64| if x.is_nan() { 0x7fff } else { u64::from(f16::from_f64(x).to_bits()) };
    let to_b = |x: f64| if x.is_nan() { 0x7fff } else { u64::from(bf16::from_f64(x).to_bits()) };
    // The values pass through f32: at a tie of the half format the last bit may be the other one.
    let near = |text: &str, expected: &dyn Fn(u64) -> u64| {
        verify(text, &[&all], FULL, |x, result| {
            let (result, expected) = (result & 0xffff, expected(x[0] & 0xffff));
            if result.abs_diff(expected) <= 1 { Ok(()) } else { Err(format!("expected {expected:#x}")) }
        });
    };
    near("ex2.approx.f16", &|x| to_f(f(x).exp2()));
    near("ex2.approx.ftz.bf16", &|x| flush_b(to_b(b(flush_b(x)).exp2())));
    near("tanh.approx.f16", &|x| to_f(f(x).tanh()));
    near("tanh.approx.bf16", &|x| to_b(b(x).tanh()));
    check("ex2.approx.ftz.f16", &[&all], 16, |x| {
        flush16(once("ex2.approx.f16", &[flush16(x[0] & 0xffff)]) & 0xffff)
    });
    let pairs: Vec<u64> = (0..4000u64).map(|x| x.wrapping_mul(0x9e37_79b9) & 0xffff_ffff).collect();
    for (text, ty) in [
        ("ex2.approx", "f16"),
        ("ex2.approx.ftz", "f16"),
        ("ex2.approx.ftz", "bf16"),
        ("tanh.approx", "f16"),
        ("tanh.approx", "bf16"),
    ] {
        check(&format!("{text}.{ty}x2"), &[&pairs], 32, |x| {
            let one = |x: u64| once(&format!("{text}.{ty}"), &[x]) & 0xffff;
            one(x[0] >> 16) << 16 | one(x[0] & 0xffff)
        });
    }
}
