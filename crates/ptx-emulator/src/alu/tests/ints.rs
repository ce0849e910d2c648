//! Integer arithmetic, by i128.

use super::*;

/// The integer types: name, bits, signed.
const TYPES: [(&str, u32, bool); 6] = [
    ("u16", 16, false),
    ("s16", 16, true),
    ("u32", 32, false),
    ("s32", 32, true),
    ("u64", 64, false),
    ("s64", 64, true),
];

/// The value of bits.
pub(super) fn value(bits: u64, width: u32, signed: bool) -> i128 {
    let bits = if width == 64 { bits } else { bits & ((1 << width) - 1) };
    if signed && bits >> (width - 1) != 0 { i128::from(bits) - (1i128 << width) } else { i128::from(bits) }
}

fn over_types(opcode: &str, sources: usize, f: impl Fn(&[i128], u32, bool) -> i128) {
    for (name, width, signed) in TYPES {
        let edges = integers(width);
        let values = vec![edges.as_slice(); sources];
        check(&format!("{opcode}.{name}"), &values, width, |x| {
            let x: Vec<_> = x.iter().map(|x| value(*x, width, signed)).collect();
            f(&x, width, signed) as u64
        });
    }
}

#[test]
fn sums() {
    over_types("add", 2, |x, _, _| x[0] + x[1]);
    over_types("sub", 2, |x, _, _| x[0] - x[1]);
    let edges = integers(32);
    let cut = |x: i128| x.clamp(-(1 << 31), (1 << 31) - 1) as u64;
    check("add.sat.s32", &[&edges, &edges], 32, |x| cut(value(x[0], 32, true) + value(x[1], 32, true)));
    check("sub.sat.s32", &[&edges, &edges], 32, |x| cut(value(x[0], 32, true) - value(x[1], 32, true)));
}

#[test]
fn products() {
    over_types("mul.lo", 2, |x, _, _| x[0].wrapping_mul(x[1]));
    // The u64 product needs 128 bits without a sign.
    over_types("mul.hi", 2, |x, width, signed| {
        if signed { (x[0] * x[1]) >> width } else { ((x[0] as u128 * x[1] as u128) >> width) as i128 }
    });
    over_types("mad.lo", 3, |x, _, _| x[0].wrapping_mul(x[1]).wrapping_add(x[2]));
    over_types("mad.hi", 3, |x, width, signed| {
        let high =
            if signed { (x[0] * x[1]) >> width } else { ((x[0] as u128 * x[1] as u128) >> width) as i128 };
        high + x[2]
    });
    for (name, width, signed) in &TYPES[..4] {
        let (edges, sums) = (integers(*width), integers(2 * width));
        check(&format!("mul.wide.{name}"), &[&edges, &edges], 2 * width, |x| {
            (value(x[0], *width, *signed) * value(x[1], *width, *signed)) as u64
        });
        check(&format!("mad.wide.{name}"), &[&edges, &edges, &sums], 2 * width, |x| {
            (value(x[0], *width, *signed) * value(x[1], *width, *signed) + i128::from(x[2])) as u64
        });
    }
    let edges = integers(32);
    check("mad.hi.sat.s32", &[&edges, &edges, &edges], 32, |x| {
        let high = (value(x[0], 32, true) * value(x[1], 32, true)) >> 32;
        (high + value(x[2], 32, true)).clamp(-(1 << 31), (1 << 31) - 1) as u64
    });
}

#[test]
fn products_of_24_bits() {
    let edges = integers(32);
    for (name, signed) in [("u32", false), ("s32", true)] {
        let product = move |x: &[u64]| value(x[0], 24, signed) * value(x[1], 24, signed);
        check(&format!("mul24.lo.{name}"), &[&edges, &edges], 32, |x| product(x) as u64);
        check(&format!("mul24.hi.{name}"), &[&edges, &edges], 32, |x| (product(x) >> 16) as u64);
        check(&format!("mad24.lo.{name}"), &[&edges, &edges, &edges], 32, |x| {
            (product(x) + i128::from(x[2])) as u64
        });
        check(&format!("mad24.hi.{name}"), &[&edges, &edges, &edges], 32, |x| {
            ((product(x) >> 16) + i128::from(x[2])) as u64
        });
    }
    check("mad24.hi.sat.s32", &[&edges, &edges, &edges], 32, |x| {
        let high = (value(x[0], 24, true) * value(x[1], 24, true)) >> 16;
        (high + value(x[2], 32, true)).clamp(-(1 << 31), (1 << 31) - 1) as u64
    });
}

#[test]
fn quotients() {
    over_types("div", 2, |x, _, _| if x[1] == 0 { -1 } else { x[0] / x[1] });
    over_types("rem", 2, |x, _, _| if x[1] == 0 { -1 } else { x[0] % x[1] });
}

#[test]
fn signs_and_extremes() {
    for (name, width, _) in TYPES.iter().filter(|(_, _, signed)| *signed) {
        let edges = integers(*width);
        check(&format!("abs.{name}"), &[&edges], *width, |x| value(x[0], *width, true).unsigned_abs() as u64);
        check(&format!("neg.{name}"), &[&edges], *width, |x| -value(x[0], *width, true) as u64);
    }
    over_types("min", 2, |x, _, _| if x[0] < x[1] { x[0] } else { x[1] });
    over_types("max", 2, |x, _, _| if x[0] > x[1] { x[0] } else { x[1] });
    over_types("sad", 3, |x, _, _| x[2] + (x[0] - x[1]).abs());
    let edges = integers(32);
    let of = |x: &[u64]| (value(x[0], 32, true), value(x[1], 32, true));
    check("min.relu.s32", &[&edges, &edges], 32, |x| of(x).0.min(of(x).1).max(0) as u64);
    check("max.relu.s32", &[&edges, &edges], 32, |x| of(x).0.max(of(x).1).max(0) as u64);
}

/// An instruction with a carry over lanes, carries in and out.
fn with_carry(text: &str, takes: bool, gives: bool, bits: u32, expected: impl Fn(&[u64], u128) -> u128) {
    let edges = integers(bits);
    let alu = find(text);
    let sources = alu.src.len();
    for (index, chunk) in combinations(&vec![edges.as_slice(); sources], 20_000).chunks(32).enumerate() {
        let carry = 0x9e37_79b9u32.wrapping_mul(index as u32 + 1);
        let mask = if index % 3 == 0 { 0x0ff0_ffff } else { ALL };
        let result = execute(&alu, &rows(chunk), How { mask, carry, ..FULL });
        for lane in 0..32 {
            let active = mask >> lane & 1 != 0;
            let low = if bits == 64 { u64::MAX } else { 0xffff_ffff };
            let inputs: Vec<_> = chunk[lane].iter().map(|x| x & low).collect();
            let carry_in = carry >> lane & 1;
            let wide = expected(&inputs, if takes { u128::from(carry_in) } else { 0 });
            if active {
                assert_eq!(result.first[lane], wide as u64 & low, "{text} of {inputs:x?}, carry {carry_in}");
            }
            let out = if gives && active { (wide >> bits & 1) as u32 } else { carry_in };
            assert_eq!(
                result.carry >> lane & 1,
                out,
                "carry of {text} of {inputs:x?}, carry {carry_in}, active {active}"
            );
        }
    }
}

#[test]
fn carries() {
    for (bits, names) in [(32, ["u32", "s32"]), (64, ["u64", "s64"])] {
        for name in names {
            let signed = name.starts_with('s');
            let add = |x: &[u64], c: u128| u128::from(x[0]) + u128::from(x[1]) + c;
            let sub = |x: &[u64], c: u128| u128::from(x[0]).wrapping_sub(u128::from(x[1])).wrapping_sub(c);
            with_carry(&format!("add.cc.{name}"), false, true, bits, add);
            with_carry(&format!("addc.{name}"), true, false, bits, add);
            with_carry(&format!("addc.cc.{name}"), true, true, bits, add);
            with_carry(&format!("sub.cc.{name}"), false, true, bits, sub);
            with_carry(&format!("subc.{name}"), true, false, bits, sub);
            with_carry(&format!("subc.cc.{name}"), true, true, bits, sub);
            let low = u128::MAX >> (128 - bits);
            let product =
                move |x: &[u64]| (value(x[0], bits, signed).wrapping_mul(value(x[1], bits, signed))) as u128;
            let lo = move |x: &[u64], c: u128| (product(x) & low) + u128::from(x[2]) + c;
            let hi = move |x: &[u64], c: u128| (product(x) >> bits & low) + u128::from(x[2]) + c;
            with_carry(&format!("mad.lo.cc.{name}"), false, true, bits, lo);
            with_carry(&format!("madc.lo.{name}"), true, false, bits, lo);
            with_carry(&format!("madc.lo.cc.{name}"), true, true, bits, lo);
            with_carry(&format!("mad.hi.cc.{name}"), false, true, bits, hi);
            with_carry(&format!("madc.hi.{name}"), true, false, bits, hi);
            with_carry(&format!("madc.hi.cc.{name}"), true, true, bits, hi);
        }
    }
}

#[test]
fn a_sum_of_128_bits_by_four_words() {
    let (a, b) =
        (0xffff_ffff_0000_0001_ffff_ffff_ffff_fffeu128, 0x0000_0001_ffff_ffff_0000_0000_0000_0003u128);
    let (mut carry, mut sum) = (0, 0u128);
    for at in 0..4 {
        let text = ["add.cc.u32", "addc.cc.u32", "addc.cc.u32", "addc.u32"][at];
        let part = |x: u128| [(x >> (32 * at)) as u64 & 0xffff_ffff; 32];
        let result = execute(&find(text), &[part(a), part(b)], How { carry, ..FULL });
        carry = result.carry;
        sum |= u128::from(result.first[7]) << (32 * at);
    }
    assert_eq!(sum, a.wrapping_add(b));
}
