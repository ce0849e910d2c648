//! Every instruction against a plain definition written apart from it.
//!
//! A definition sees one lane. The harness does the rest once for all: rows of 32, both versions of a function, masks, a destination that is
//! also a source.
#![allow(unsafe_code)]
// Loops over lanes look at several rows.
#![allow(clippy::needless_range_loop)]

mod approx;
mod bits;
mod compare;
mod convert;
mod exact;
mod floats;
mod halves;
mod ints;
mod moves;
mod speed;
pub(crate) mod table;

use super::rows::PLAIN;
use super::{Alu, CARRY, lookup};
use crate::exec::registers::{ALL, Class, Mask, Registers, Slot};
use crate::program::{Action, NONE, Step};

/// What the destination held before.
const BEFORE: u64 = 0x5a5a_1234_a5a5_4321;

/// `fma.rn.f32` looked up; it must be known.
fn find(text: &str) -> Alu {
    let mut words = text.split('.');
    let opcode = words.next().unwrap_or_default();
    let modifiers: Vec<_> = words.collect();
    lookup(opcode, &modifiers)
        .unwrap_or_else(|e| panic!("{text}: {e}"))
        .unwrap_or_else(|| panic!("{text} is unknown"))
}

/// The results of one step over 32 lanes.
#[derive(Clone, Debug, PartialEq)]
struct Outcome {
    first: [u64; 32],
    second: [u64; 32],
    carry: Mask,
}

/// How a step is run.
#[derive(Clone, Copy, Debug)]
struct How {
    mask: Mask,
    /// The destination is this source.
    alias: Option<usize>,
    /// Negations of predicate sources.
    negated: u32,
    imm: i64,
    carry: Mask,
    /// Drop the first or second destination.
    sink: [bool; 2],
}

const FULL: How = How { mask: ALL, alias: None, negated: 0, imm: 0, carry: 0, sink: [false; 2] };

fn put(r: &mut Registers, class: Class, slot: Slot, row: &[u64; 32]) {
    for (lane, value) in row.iter().enumerate() {
        match class {
            Class::Pred => r.set_pred(slot, if value & 1 != 0 { ALL } else { 0 }, 1 << lane),
            Class::Word => r.set_word_lane(slot, lane, *value as u32),
            Class::Long => r.set_long_lane(slot, lane, *value),
        }
    }
}

fn get(r: &Registers, class: Class, slot: Slot) -> [u64; 32] {
    std::array::from_fn(|lane| match class {
        Class::Pred => u64::from(r.pred(slot) >> lane & 1),
        Class::Word => u64::from(r.word_lane(slot, lane)),
        Class::Long => r.long_lane(slot, lane),
    })
}

/// Runs an instruction once. Sources sit in slots 1 to 4 of their classes, destinations in 5 and 6.
fn execute(alu: &Alu, sources: &[[u64; 32]], how: How) -> Outcome {
    assert_eq!(alu.src.len(), sources.len(), "number of sources");
    let mut r = Registers::new(8, 8, 8);
    r.set_pred(CARRY, how.carry, ALL);
    let mut step = Step::new(Action::Alu(alu.run));
    step.flags = alu.flags | how.negated;
    step.imm = if alu.immediate.is_some() { how.imm } else { alu.imm };
    for (at, (class, row)) in alu.src.iter().zip(sources).enumerate() {
        let slot = at as Slot + 1;
        put(&mut r, *class, slot, row);
        step.src[at] = slot;
    }
    let dst = how.alias.map_or(5, |at| at as Slot + 1);
    let dst2_class = alu.dst2.unwrap_or(Class::Pred);
    if how.alias.is_none() {
        put(&mut r, alu.dst, 5, &[BEFORE; 32]);
    }
    put(&mut r, dst2_class, 6, &[BEFORE; 32]);
    step.dst = if how.sink[0] { NONE } else { dst };
    step.dst2 = if alu.dst2.is_none() || how.sink[1] { NONE } else { 6 };
    // SAFETY: the function was chosen for this processor by `lookup`.
    unsafe { (alu.run)(&mut r, &step, how.mask) };
    Outcome { first: get(&r, alu.dst, dst), second: get(&r, dst2_class, 6), carry: r.pred(CARRY) }
}

/// A small generator of random bits.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn pick(&mut self, from: &[u64]) -> u64 {
        from[(self.next() % from.len() as u64) as usize]
    }
}

/// Combinations of values: all, if they are not too many, and random ones.
fn combinations(values: &[&[u64]], most: usize) -> Vec<Vec<u64>> {
    let mut random = Random(values.len() as u64);
    let product: usize = values.iter().map(|list| list.len()).product();
    let mut out: Vec<Vec<u64>> = Vec::new();
    for index in 0..product.min(most) {
        // Where there are too many, a random sample of them.
        let mut rest = if product <= most { index } else { (random.next() % product as u64) as usize };
        out.push(
            values
                .iter()
                .map(|list| {
                    let value = list[rest % list.len()];
                    rest /= list.len();
                    value
                })
                .collect(),
        );
    }
    for _ in 0..1024 {
        out.push(
            values
                .iter()
                .map(|list| if random.next().is_multiple_of(4) { random.pick(list) } else { random.next() })
                .collect(),
        );
    }
    while !out.len().is_multiple_of(32) {
        out.push(out[0].clone());
    }
    out
}

/// All 32 lanes of 32 combinations, as rows.
fn rows(chunk: &[Vec<u64>]) -> Vec<[u64; 32]> {
    (0..chunk[0].len()).map(|source| std::array::from_fn(|lane| chunk[lane][source])).collect()
}

/// Checks an instruction of one destination: `verify` gets the sources and the result and says what is wrong with it.
fn verify(text: &str, values: &[&[u64]], how: How, verify: impl Fn(&[u64], u64) -> Result<(), String>) {
    for plain in [false, true] {
        PLAIN.set(plain);
        let alu = find(text);
        PLAIN.set(false);
        let low = |class: Class| if class == Class::Word { 0xffff_ffff } else { !0 };
        for (index, chunk) in combinations(values, 40_000).chunks(32).enumerate() {
            let sources = rows(chunk);
            let whole = execute(&alu, &sources, how);
            for lane in 0..32 {
                let inputs: Vec<_> =
                    chunk[lane].iter().zip(&alu.src).map(|(value, class)| value & low(*class)).collect();
                if let Err(e) = verify(&inputs, whole.first[lane]) {
                    panic!("{text} (plain: {plain}) of {inputs:x?} gave {:#x}: {e}", whole.first[lane]);
                }
            }
            if index < 8 {
                masked(&alu, &sources, how, &whole, index);
            }
        }
    }
}

/// Lanes outside the mask stay as they were, and a destination may be a source.
fn masked(alu: &Alu, sources: &[[u64; 32]], how: How, whole: &Outcome, index: usize) {
    let class_before = |class: Class| match class {
        Class::Pred => BEFORE & 1,
        Class::Word => BEFORE & 0xffff_ffff,
        Class::Long => BEFORE,
    };
    let mask =
        [0x1, 0x8000_0000, 0x5555_5555, 0xffff_0000, 0x0, 0x7fff_ffff, 0x0f0f_00ff, 0xffff_fffe][index % 8];
    let alias = alu.src.iter().position(|class| *class == alu.dst);
    for alias in [None, alias] {
        let part = execute(alu, sources, How { mask, alias, ..how });
        for lane in 0..32 {
            let active = mask >> lane & 1 != 0;
            let before = match alias {
                None => class_before(alu.dst),
                Some(at) => {
                    sources[at][lane]
                        & if alu.dst == Class::Word {
                            0xffff_ffff
                        } else if alu.dst == Class::Pred {
                            1
                        } else {
                            !0
                        }
                }
            };
            let expected = if active { whole.first[lane] } else { before };
            assert_eq!(part.first[lane], expected, "lane {lane} under the mask {mask:#x}, alias {alias:?}");
        }
    }
}

/// Checks an instruction against a function; the lowest `bits` of the result count.
fn check(text: &str, values: &[&[u64]], bits: u32, expected: impl Fn(&[u64]) -> u64) {
    let count = if bits == 64 { !0 } else { (1 << bits) - 1 };
    verify(text, values, FULL, |inputs, result| {
        let expected = expected(inputs) & count;
        if result & count == expected { Ok(()) } else { Err(format!("expected {expected:#x}")) }
    });
}

/// One lane of an instruction.
fn once(text: &str, inputs: &[u64]) -> u64 {
    let sources: Vec<_> = inputs.iter().map(|value| [*value; 32]).collect();
    execute(&find(text), &sources, FULL).first[0]
}

/// Integers at which something happens, for a width.
fn integers(bits: u32) -> Vec<u64> {
    let mut out =
        vec![0, 1, 2, 3, 5, 7, 10, 0x55, 0xaa, 100, 255, 256, 0xffff, 0x1_0000, 0x1234_5678_9abc_def0];
    for power in [3, 4, 7, 8, 15, 16, 23, 24, 30, 31, 32, 33, 47, 62, 63] {
        if power < bits {
            out.extend([(1 << power) - 1, 1 << power, (1 << power) + 1]);
        }
    }
    let negative: Vec<_> = out.iter().map(|value: &u64| value.wrapping_neg()).collect();
    out.extend(negative);
    let mask = if bits == 64 { !0 } else { (1 << bits) - 1 };
    let mut out: Vec<_> = out.into_iter().map(|value| value & mask).collect();
    out.sort_unstable();
    out.dedup();
    out
}

/// Shift amounts, lengths and positions.
fn amounts() -> Vec<u64> {
    let mut out: Vec<u64> = (0..70).collect();
    out.extend([127, 128, 200, 255, 256, 257, 300, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff]);
    out
}

/// Floats at which something happens, as bits of a format with this many bits of mantissa and exponent.
fn floats(mantissa: u32, exponent: u32) -> Vec<u64> {
    let one = ((1 << (exponent - 1)) - 1) << mantissa;
    let infinity = ((1 << exponent) - 1) << mantissa;
    let ulp = 1u64;
    let half = 1 << (mantissa - 1);
    let mut out = vec![
        0,
        ulp,
        2,
        3,
        half,
        (1 << mantissa) - 1,
        1 << mantissa,
        (1 << mantissa) + 1,
        (2 << mantissa) + 1,
        one,
        one + ulp,
        one - ulp,
        one | half,
        one + (1 << mantissa),
        one - (1 << mantissa),
        one - (1 << mantissa) + 1,
        one + half + 1,
        (one + (3 << mantissa)) | half,
        one + (u64::from(mantissa) << mantissa),
        one + (u64::from(mantissa) << mantissa) + 1,
        one + (u64::from(mantissa + 1) << mantissa) + 1,
        one - (u64::from(mantissa) << mantissa),
        one - (u64::from(mantissa + 1) << mantissa),
        one - (u64::from(mantissa + 1) << mantissa) + 1,
        infinity - 1,
        infinity - 2,
        infinity - (1 << mantissa),
        infinity,
        infinity | half,
        infinity | 1,
        infinity | ((1 << mantissa) - 1),
    ];
    let sign = 1 << (mantissa + exponent);
    let negative: Vec<_> = out.iter().map(|value| value | sign).collect();
    out.extend(negative);
    out
}

fn f32s() -> Vec<u64> {
    floats(23, 8)
}

fn f64s() -> Vec<u64> {
    floats(52, 11)
}

fn f16s() -> Vec<u64> {
    floats(10, 5)
}

fn bf16s() -> Vec<u64> {
    floats(7, 8)
}
