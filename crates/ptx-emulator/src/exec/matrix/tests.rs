//! Every product against a matrix product in f64, with fragments placed by the tables of the PTX ISA (9.7.14.5).
//!
//! The tables are written out shape by shape as the manual has them and share nothing with the rule in `product`.
#![allow(unsafe_code)]

use super::forms::{lookup, words};
use super::kernels::Form;
use super::product::Operands;
use crate::exec::registers::{Class, Registers};

/// Row and column of element `i` of `a` in `lane`, by the manual's table for the shape.
pub(in crate::exec) fn a_at(shape: &str, bits: usize, lane: usize, i: usize) -> (usize, usize) {
    let (g, t) = (lane >> 2, lane % 4);
    let low = |first: bool| if first { g } else { g + 8 };
    match (shape, bits) {
        ("m8n8k16", 8) => (g, t * 4 + i),
        ("m8n8k32", 4) => (g, t * 8 + i),
        ("m8n8k128", 1) => (g, t * 32 + i),
        ("m8n8k4", 64) => (g, t),
        ("m16n8k4", 32 | 64) => (low(i == 0), t),
        ("m16n8k8", 16) => (low(i < 2), t * 2 + (i & 1)),
        ("m16n8k8", 32 | 64) => (low(i == 0 || i == 2), if i < 2 { t } else { t + 4 }),
        ("m16n8k16", 16) => (low(i < 2 || (4..6).contains(&i)), t * 2 + (i & 1) + if i < 4 { 0 } else { 8 }),
        ("m16n8k16", 64) => (low(i & 1 == 0), if i & 1 == 0 { i * 2 + t } else { i * 2 - 2 + t }),
        ("m16n8k16", 8) => (low(i < 4), t * 4 + (i & 3)),
        ("m16n8k32", 8) => (low(i < 4 || (8..12).contains(&i)), t * 4 + (i & 3) + if i < 8 { 0 } else { 16 }),
        ("m16n8k32", 4) => (low(i < 8), t * 8 + (i & 7)),
        ("m16n8k64", 4) => {
            (low(i < 8 || (16..24).contains(&i)), t * 8 + (i & 7) + if i < 16 { 0 } else { 32 })
        }
        ("m16n8k128", 1) => (low(i < 32), t * 32 + (i & 31)),
        ("m16n8k256", 1) => {
            (low(i < 32 || (64..96).contains(&i)), t * 32 + (i & 31) + if i < 64 { 0 } else { 128 })
        }
        _ => panic!("no table for a of {shape} with {bits} bits"),
    }
}

/// Row and column of element `i` of `b`.
pub(in crate::exec) fn b_at(shape: &str, bits: usize, lane: usize, i: usize) -> (usize, usize) {
    let (g, t) = (lane >> 2, lane % 4);
    let row = match (shape, bits) {
        ("m8n8k16" | "m16n8k16", 8) => t * 4 + i,
        ("m8n8k32" | "m16n8k32", 4) => t * 8 + i,
        ("m8n8k128" | "m16n8k128", 1) => t * 32 + i,
        ("m8n8k4" | "m16n8k4", 32 | 64) => t,
        ("m16n8k8", 16) => t * 2 + i,
        ("m16n8k8", 32 | 64) => {
            if i == 0 {
                t
            } else {
                t + 4
            }
        }
        ("m16n8k16", 16) => t * 2 + (i & 1) + if i < 2 { 0 } else { 8 },
        ("m16n8k16", 64) => t + i * 4,
        ("m16n8k32", 8) => t * 4 + (i & 3) + if i < 4 { 0 } else { 16 },
        ("m16n8k64", 4) => t * 8 + (i & 7) + if i < 8 { 0 } else { 32 },
        ("m16n8k256", 1) => t * 32 + (i & 31) + if i < 32 { 0 } else { 128 },
        _ => panic!("no table for b of {shape} with {bits} bits"),
    };
    (row, g)
}

/// Row and column of element `i` of `c` and `d`.
pub(in crate::exec) fn c_at(lane: usize, i: usize) -> (usize, usize) {
    let (g, t) = (lane >> 2, lane % 4);
    (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1))
}

pub(in crate::exec) fn width(ty: &str) -> usize {
    match ty {
        "f64" => 64,
        "f32" | "s32" | "tf32" => 32,
        "f16" | "bf16" => 16,
        "s8" | "u8" | "e4m3" | "e5m2" => 8,
        "s4" | "u4" => 4,
        "b1" => 1,
        _ => panic!("{ty}"),
    }
}

/// The value of an element by the definition of its type.
pub(in crate::exec) fn value(ty: &str, bits: u64) -> f64 {
    match ty {
        "f64" => f64::from_bits(bits),
        "f32" => f64::from(f32::from_bits(bits as u32)),
        "tf32" => f64::from(f32::from_bits(bits as u32 >> 13 << 13)),
        "s32" => f64::from(bits as u32 as i32),
        "f16" => half::f16::from_bits(bits as u16).to_f64(),
        "bf16" => half::bf16::from_bits(bits as u16).to_f64(),
        "s8" => f64::from(bits as u8 as i8),
        "u8" => f64::from(bits as u8),
        "s4" => f64::from(((bits & 15) as i8) << 4 >> 4),
        "u4" | "b1" => bits as f64,
        "e5m2" => half::f16::from_bits((bits as u16) << 8).to_f64(),
        "e4m3" => {
            let (e, m) = ((bits >> 3) & 15, (bits & 7) as f64 / 8.0);
            let magnitude = if e == 0 { m / 64.0 } else { (1.0 + m) * 2f64.powi(e as i32 - 7) };
            if bits >> 7 & 1 == 1 { -magnitude } else { magnitude }
        }
        _ => panic!("{ty}"),
    }
}

/// Bits of an element that is finite and of moderate size.
pub(in crate::exec) fn random(ty: &str, state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let draw = *state >> 20;
    let small = (draw % 4001) as f64 / 1000.0 - 2.0;
    match ty {
        "f64" => small.to_bits(),
        "f32" | "tf32" => u64::from((small as f32).to_bits()),
        "s32" => (draw % 100_000).wrapping_sub(50_000) & 0xffff_ffff,
        "f16" => u64::from(half::f16::from_f64(small).to_bits()),
        "bf16" => u64::from(half::bf16::from_f64(small).to_bits()),
        "e5m2" => draw & 0x80 | (draw % 0x45),
        "e4m3" => draw & 0x80 | (draw % 0x45),
        _ => draw & ((1 << width(ty)) - 1),
    }
}

pub(super) struct Bench {
    pub(super) form: Form,
    pub(super) registers: Registers,
    slots: [Vec<u32>; 4],
}

impl Bench {
    pub(super) fn new(text: &str) -> Self {
        let modifiers: Vec<&str> = text.split('.').skip(1).collect();
        let form = lookup(&words(&modifiers).unwrap()).unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut next = 0..;
        let slots = form.counts.map(|count| next.by_ref().take(count).collect());
        Self { form, registers: Registers::new(64, 64, 0), slots }
    }

    /// Puts element `i` of operand `operand` into a lane.
    fn put(&mut self, operand: usize, bits: usize, lane: usize, i: usize, element: u64) {
        let at = i * bits;
        if self.form.class == Class::Long {
            self.registers.set_long_lane(self.slots[operand][i], lane, element);
        } else {
            let slot = self.slots[operand][at / 32];
            let word = self.registers.word_lane(slot, lane) | (element as u32) << (at % 32);
            self.registers.set_word_lane(slot, lane, word);
        }
    }

    fn get(&self, operand: usize, bits: usize, lane: usize, i: usize) -> u64 {
        let at = i * bits;
        if self.form.class == Class::Long {
            return self.registers.long_lane(self.slots[operand][i], lane);
        }
        let word = self.registers.word_lane(self.slots[operand][at / 32], lane);
        if bits == 16 { u64::from(word >> (at % 32) & 0xffff) } else { u64::from(word) }
    }

    pub(super) fn compute(&mut self, variant: usize) {
        let [d, a, b, c] = &self.slots;
        let at = Operands { d, a, b, c };
        // SAFETY: the variants listed are those whose features this processor has.
        unsafe { self.form.computes[variant](&mut self.registers, at, self.form.flags) }
    }
}

fn check(text: &str) {
    let modifiers: Vec<&str> = text.split('.').skip(1).collect();
    let words = words(&modifiers).unwrap();
    let shape = words.shape;
    let types = words.types;
    let k: usize = shape.split('k').nth(1).unwrap().parse().unwrap();
    let m = if shape.starts_with("m16") { 16 } else { 8 };
    let [d_bits, a_bits, b_bits, c_bits] = types.map(width);
    let variants = Bench::new(text).form.computes.len();
    for seed in 0..8 {
        let mut results = Vec::new();
        for variant in 0..variants {
            let mut state = seed * 977 + 5;
            let mut bench = Bench::new(text);
            let mut a = vec![vec![0f64; k]; m];
            let mut b = vec![vec![0f64; 8]; k];
            let mut c = vec![vec![0f64; 8]; m];
            for lane in 0..32 {
                for i in 0..m * k / 32 {
                    let (row, column) = a_at(shape, a_bits, lane, i);
                    let element = random(types[1], &mut state);
                    a[row][column] = value(types[1], element);
                    bench.put(1, a_bits, lane, i, element);
                }
                for i in 0..k / 4 {
                    let (row, column) = b_at(shape, b_bits, lane, i);
                    let element = random(types[2], &mut state);
                    b[row][column] = value(types[2], element);
                    bench.put(2, b_bits, lane, i, element);
                }
                for i in 0..m / 4 {
                    let (row, column) = c_at(lane, i);
                    let element = random(types[3], &mut state);
                    c[row][column] = value(types[3], element);
                    bench.put(3, c_bits, lane, i, element);
                }
            }
            bench.compute(variant);
            let mut bits = Vec::new();
            for lane in 0..32 {
                for i in 0..m / 4 {
                    let (row, column) = c_at(lane, i);
                    let product: f64 = (0..k)
                        .map(|x| match words.bits {
                            "xor" => f64::from(u8::from(a[row][x] != b[x][column])),
                            _ => a[row][x] * b[x][column],
                        })
                        .sum();
                    let exact = product + c[row][column];
                    let element = bench.get(0, d_bits, lane, i);
                    let given = value(types[0], element);
                    let room = match types[0] {
                        "f64" => 1e-14,
                        "f32" => 1e-5,
                        "f16" => 2e-3,
                        _ => 0.0,
                    };
                    assert!(
                        (given - exact).abs() <= room * exact.abs().max(k as f64 / 2.0),
                        "{text}: ({row}, {column}) is {given} and not {exact}"
                    );
                    bits.push(element);
                }
            }
            results.push(bits);
        }
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{text}: the variants differ");
    }
}

#[test]
fn floats_against_the_tables() {
    for shape in ["m16n8k8", "m16n8k16"] {
        for (d, c) in [("f32", "f32"), ("f16", "f16"), ("f32", "f16"), ("f16", "f32")] {
            check(&format!("mma.sync.aligned.{shape}.row.col.{d}.f16.f16.{c}"));
        }
        check(&format!("mma.sync.aligned.{shape}.row.col.f32.bf16.bf16.f32"));
    }
    check("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32");
    check("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32");
    for shape in ["m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"] {
        check(&format!("mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64"));
    }
    for a in ["e4m3", "e5m2"] {
        for b in ["e4m3", "e5m2"] {
            for d in ["f32", "f16"] {
                if d == "f16" && (a, b) != ("e4m3", "e4m3") {
                    continue;
                }
                check(&format!("mma.sync.aligned.m16n8k32.row.col.f32.{a}.{b}.{d}"));
                check(&format!("mma.sync.aligned.m16n8k16.row.col.f32.{a}.{b}.{d}"));
            }
        }
    }
}

#[test]
fn integers_against_the_tables() {
    for (types, shapes) in [
        (["s8", "u8"], ["m8n8k16", "m16n8k16", "m16n8k32"]),
        (["s4", "u4"], ["m8n8k32", "m16n8k32", "m16n8k64"]),
    ] {
        for shape in shapes {
            for a in types {
                for b in types {
                    check(&format!("mma.sync.aligned.{shape}.row.col.s32.{a}.{b}.s32"));
                    check(&format!("mma.sync.aligned.{shape}.row.col.satfinite.s32.{a}.{b}.s32"));
                }
            }
        }
    }
    for shape in ["m8n8k128", "m16n8k128", "m16n8k256"] {
        for operation in ["xor", "and"] {
            check(&format!("mma.sync.aligned.{shape}.row.col.s32.b1.b1.s32.{operation}.popc"));
        }
    }
}

#[test]
fn the_sum_wraps_or_saturates() {
    for (text, expected) in [
        ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", i32::MIN + 99),
        ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32", i32::MAX),
    ] {
        let mut bench = Bench::new(text);
        bench.put(1, 8, 0, 0, 10);
        bench.put(2, 8, 0, 0, 10);
        bench.put(3, 32, 0, 0, i32::MAX as u64);
        bench.compute(0);
        assert_eq!(bench.get(0, 32, 0, 0) as u32 as i32, expected);
    }
}

#[test]
fn special_values() {
    let text = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";
    for variant in 0..Bench::new(text).form.computes.len() {
        let mut bench = Bench::new(text);
        bench.put(1, 16, 0, 0, 0x7c00); // Infinity times zero.
        bench.put(1, 16, 4, 0, 0x7c00);
        bench.put(2, 16, 4, 0, 0x3c00); // Infinity times one, in column 1.
        bench.put(1, 16, 8, 0, 0x0001); // The smallest subnormal.
        bench.compute(variant);
        assert_eq!(bench.get(0, 32, 0, 0), 0x7fff_ffff);
        assert_eq!(bench.get(0, 32, 4, 1), 0x7f80_0000);
        assert_eq!(bench.get(0, 32, 8, 1), u64::from(2f32.powi(-24).to_bits()));
    }
}

#[test]
fn forms_that_do_not_exist() {
    for text in [
        "mma.sync.aligned.m16n8k16.col.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16",
        "mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32",
        "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
        "mma.m16n8k16.row.col.f32.f16.f16.f32",
    ] {
        let modifiers: Vec<&str> = text.split('.').skip(1).collect();
        assert!(words(&modifiers).and_then(|words| lookup(&words)).is_err(), "{text}");
    }
}

/// `cargo test -p ptx-emulator --lib matrix::tests::speed -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stderr)]
fn speed() {
    for (text, products) in [
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 2048),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 2048),
        ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", 2048),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 1024),
        ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", 4096),
        ("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32", 4096),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", 256),
    ] {
        let mut bench = Bench::new(text);
        for variant in 0..bench.form.computes.len() {
            let rounds = 200_000u32;
            let start = std::time::Instant::now();
            for _ in 0..rounds {
                bench.compute(variant);
            }
            let seconds = start.elapsed().as_secs_f64();
            let rate = f64::from(rounds) * f64::from(products) / seconds / 1e9;
            eprintln!(
                "{text} variant {variant}: {rate:.2} GMAC/s, {:.0} ns",
                seconds * 1e9 / f64::from(rounds)
            );
        }
    }
}
