//! Arithmetic as the compiler expands it: functions of the math library, division, whole numbers of both lengths.

use ptx_emulator_launcher::test_name;

use crate::support::{Gpu, Random, args, everywhere, source};

#[test]
fn arithmetic() {
    everywhere(test_name!(), source!("math.cu"), 61, |gpu| {
        floats(gpu);
        doubles(gpu);
        wholes(gpu);
    });
}

const N: usize = 200;

fn floats(gpu: &Gpu) {
    let mut random = Random::new(20);
    let x: Vec<f32> = random.floats(N).iter().map(|v| v * 20.0).collect();
    let y: Vec<f32> = random.floats(N).iter().map(|v| v * 20.0 + 0.01).collect();
    let out = gpu.fresh::<f32>(24 * N);
    gpu.run("floats", 2, 128, 0, args![&gpu.up(&x), &gpu.up(&y), &out, 200]);
    let got = gpu.down(&out);
    for i in 0..N {
        let (x, y) = (x[i], y[i]);
        let (a, b) = (f64::from(x), f64::from(y));
        let p = a.abs();
        // What is wanted, and by how much of itself the result may differ.
        let wanted = [
            (p.sqrt(), 1e-7),
            (1.0 / p.sqrt(), 3e-7),
            (a.exp(), 3e-7),
            (p.ln(), 3e-7),
            (a.sin(), 3e-7),
            (a.cos(), 3e-7),
            (a.tanh(), 3e-7),
            (erf(a), 1e-6),
            (p.powf(f64::from(y * 0.1)), 1e-6),
            (a / b, 1e-7),
            (f64::from(x % y), 1e-6),
            (a.floor(), 0.0),
            (a.ceil(), 0.0),
            (a.round_ties_even(), 0.0),
            (a.trunc(), 0.0),
            (f64::from(x * 0.1).exp2(), 3e-7),
            (p.log2(), 3e-7),
            ((a * 0.1).exp(), 1e-6),
            (p.ln(), 1e-6),
            (a / b, 1e-6),
            (a.atan2(b), 1e-6),
            (a / (1.0 + (-a).exp()), 1e-5),
            (a.min(b), 0.0),
            (a.copysign(b), 0.0),
        ];
        for (row, (wanted, tolerance)) in wanted.iter().enumerate() {
            let value = f64::from(got[row * N + i]);
            // Near zero the fast logarithm, sine and remainder have an absolute error.
            let error = (value - wanted).abs() / wanted.abs().max(0.5);
            assert!(error <= *tolerance, "function {row} of {a}, {b}: {value} and not {wanted}");
        }
    }
    gpu.promise(&got);
}

/// The error function by its series, which converges everywhere though slowly.
fn erf(x: f64) -> f64 {
    if x.abs() > 4.5 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

fn doubles(gpu: &Gpu) {
    let mut random = Random::new(21);
    let mut numbers =
        || -> Vec<f64> { random.floats(N).iter().map(|v| f64::from(*v) * 30.0 + 1e-9).collect() };
    let (x, y) = (numbers(), numbers());
    let out = gpu.fresh::<f64>(8 * N);
    gpu.run("doubles", 2, 128, 0, args![&gpu.up(&x), &gpu.up(&y), &out, 200]);
    let got = gpu.down(&out);
    for i in 0..N {
        let (a, b) = (x[i], y[i]);
        let wanted = [
            a / b,
            a.abs().sqrt(),
            (a * 0.1).exp(),
            a.abs().ln(),
            a.sin(),
            a.mul_add(b, a),
            a.floor(),
            f64::from(a as f32),
        ];
        for (row, wanted) in wanted.iter().enumerate() {
            let value = got[row * N + i];
            assert!(
                (value - wanted).abs() <= 1e-14 * (1.0 + wanted.abs()),
                "{row} of {a}, {b}: {value}, {wanted}"
            );
        }
    }
}

fn wholes(gpu: &Gpu) {
    let mut random = Random::new(22);
    let edges = [0, 1, 2, 31, 32, 0x7fff_ffff, 0x8000_0001, 0xffff_fffe, u32::MAX];
    let mut x: Vec<u32> = edges.iter().flat_map(|a| [*a; 9]).collect();
    let mut y: Vec<u32> = edges.iter().flat_map(|_| edges).collect();
    while x.len() < N {
        x.push(random.word() >> random.below(20));
        y.push(random.word() >> random.below(20));
    }
    let out = gpu.fresh::<u32>(24 * N);
    gpu.run("wholes", 2, 128, 0, args![&gpu.up(&x), &gpu.up(&y), &out, 200]);
    let got = gpu.down(&out);
    for i in 0..N {
        let wanted = whole(x[i], y[i] | 1);
        for (row, wanted) in wanted.iter().enumerate() {
            assert_eq!(got[row * N + i], *wanted, "row {row} of {:#x}, {:#x}", x[i], y[i] | 1);
        }
    }
}

fn whole(a: u32, b: u32) -> [u32; 24] {
    let (c, d) = (a.cast_signed(), b.cast_signed());
    let e = d >> 3 | 1;
    let (w, v) = (u64::from(a) << 32 | u64::from(b), u64::from(b) << 20 | u64::from(a) | 1);
    let bytes = [a.to_le_bytes(), b.to_le_bytes()].concat();
    let dot: i32 =
        (0..4).map(|k| i32::from(bytes[k].cast_signed()) * i32::from(bytes[4 + k].cast_signed())).sum();
    [
        a / b,
        a % b,
        c.wrapping_div(e).cast_unsigned(),
        c.wrapping_rem(e).cast_unsigned(),
        ((u64::from(a) * u64::from(b)) >> 32) as u32,
        ((i64::from(c) * i64::from(d)) >> 32) as u32,
        a.leading_zeros(),
        a.reverse_bits(),
        if a == 0 { 0 } else { a.trailing_zeros() + 1 },
        u32::from_le_bytes([bytes[5], bytes[1], bytes[7], bytes[3]]),
        ((u64::from(b) << 32 | u64::from(a)) << (a & 31) >> 32) as u32,
        a >> (b & 31),
        (c >> (b & 31)).cast_unsigned(),
        c.min(d).cast_unsigned(),
        a.max(b),
        c.wrapping_abs().cast_unsigned(),
        (w / v) as u32,
        (w % v) as u32,
        (w.wrapping_mul(v) >> 32) as u32,
        w.leading_zeros(),
        w.cast_signed().wrapping_div(v.cast_signed()) as u32,
        a as f32 as u32,
        (c as f32 as i32).cast_unsigned(),
        c.wrapping_add(dot).cast_unsigned(),
    ]
}
