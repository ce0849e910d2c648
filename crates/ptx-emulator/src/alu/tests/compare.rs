//! `setp` and `set`, by the relation as the ISA tells it.

use std::cmp::Ordering;

use super::exact::{BF16, F16, F32, F64, Shape};
use super::ints::value;
use super::*;

const INTEGER: [&str; 6] = ["eq", "ne", "lt", "le", "gt", "ge"];
const UNSIGNED: [(&str, &str); 4] = [("lo", "lt"), ("ls", "le"), ("hi", "gt"), ("hs", "ge")];
const FLOAT: [&str; 14] =
    ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"];

/// `None` is unordered.
fn holds(relation: &str, order: Option<Ordering>) -> bool {
    let Some(order) = order else { return relation.ends_with('u') || relation == "nan" };
    match relation.get(..2).unwrap_or_default() {
        "eq" => order.is_eq(),
        "ne" => order.is_ne(),
        "lt" => order.is_lt(),
        "le" => order.is_le(),
        "gt" => order.is_gt(),
        "ge" => order.is_ge(),
        _ => relation == "num",
    }
}

fn boolean(operator: &str, t: bool, c: bool) -> bool {
    match operator {
        "and" => t && c,
        "or" => t || c,
        _ => t != c,
    }
}

/// A comparison with and without the third source, both destinations and sinks; `test` gives both results before the operator.
fn all(relation: &str, ty: &str, edges: &[u64], test: impl Fn(&[u64]) -> (bool, bool)) {
    let low = |alu: &Alu, x: u64| if alu.src[0] == Class::Word { x & 0xffff_ffff } else { x };
    for plain in [false, true] {
        PLAIN.set(plain);
        let alu = find(&format!("setp.{relation}.{ty}"));
        let with: Vec<_> =
            ["and", "or", "xor"].map(|op| (op, find(&format!("setp.{relation}.{op}.{ty}")))).into();
        PLAIN.set(false);
        for (index, chunk) in combinations(&[edges, edges, &[0, 1]], 8192).chunks(32).enumerate() {
            let rows = rows(chunk);
            let mask = if index % 4 == 3 { 0xff00_f0f1 } else { ALL };
            let result = execute(&alu, &rows[..2], How { mask, ..FULL });
            for lane in 0..32 {
                let x: Vec<_> = chunk[lane][..2].iter().map(|x| low(&alu, *x)).collect();
                let (p, q) = test(&x);
                let expected =
                    if mask >> lane & 1 != 0 { (p.into(), q.into()) } else { (BEFORE & 1, BEFORE & 1) };
                assert_eq!(
                    (result.first[lane], result.second[lane]),
                    expected,
                    "setp.{relation}.{ty} {x:x?} {plain}"
                );
            }
            let (op, alu) = &with[index % 3];
            for (negated, sink) in [(0, [false, true]), (4, [true, false])] {
                let result = execute(alu, &rows, How { negated, sink, ..FULL });
                for lane in 0..32 {
                    let x: Vec<_> = chunk[lane][..2].iter().map(|x| low(alu, *x)).collect();
                    let c = (chunk[lane][2] & 1 != 0) != (negated != 0);
                    let (p, q) = test(&x);
                    if !sink[0] {
                        assert_eq!(
                            result.first[lane],
                            u64::from(boolean(op, p, c)),
                            "setp.{relation}.{op}.{ty} {x:x?} {c}"
                        );
                    }
                    if !sink[1] {
                        assert_eq!(
                            result.second[lane],
                            u64::from(boolean(op, q, c)),
                            "setp.{relation}.{op}.{ty} {x:x?} {c}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn of_integers() {
    for (name, width, signed) in [
        ("u16", 16, false),
        ("s16", 16, true),
        ("u32", 32, false),
        ("s32", 32, true),
        ("u64", 64, false),
        ("s64", 64, true),
    ] {
        let edges = integers(width);
        let test = |relation: &str, x: &[u64]| {
            let order = value(x[0], width, signed).cmp(&value(x[1], width, signed));
            let t = holds(relation, Some(order));
            (t, !t)
        };
        for relation in INTEGER {
            all(relation, name, &edges, |x| test(relation, x));
            check(&format!("set.{relation}.u32.{name}"), &[&edges, &edges], 32, |x| {
                if test(relation, x).0 { !0 } else { 0 }
            });
        }
        if !signed {
            for (relation, same) in UNSIGNED {
                all(relation, name, &edges, |x| test(same, x));
            }
        }
        for relation in ["eq", "ne"] {
            all(relation, &format!("b{width}"), &edges, |x| test(relation, x));
        }
    }
}

/// The order of floats, by their bits.
fn order(shape: Shape, x: u64, y: u64, ftz: bool) -> Option<Ordering> {
    let bits = |x: u64| x & (shape.sign() | (shape.sign() - 1));
    if shape.is_nan(bits(x)) || shape.is_nan(bits(y)) {
        return None;
    }
    let key = |x: u64| {
        let magnitude = (bits(x) & (shape.sign() - 1)) as i128;
        let magnitude = if ftz && magnitude < 1 << shape.mantissa { 0 } else { magnitude };
        if x & shape.sign() != 0 { -magnitude } else { magnitude }
    };
    Some(key(x).cmp(&key(y)))
}

#[test]
fn of_floats() {
    for (name, shape, ftz) in [
        ("f32", F32, false),
        ("ftz.f32", F32, true),
        ("f64", F64, false),
        ("f16", F16, false),
        ("ftz.f16", F16, true),
        ("bf16", BF16, false),
    ] {
        let edges = floats(shape.mantissa, shape.exponent);
        for relation in FLOAT {
            let test = |x: &[u64]| {
                let t = holds(relation, order(shape, x[0], x[1], ftz));
                (t, !t)
            };
            all(relation, name, &edges, test);
            let one = match shape.mantissa {
                10 => ("f16", 0x3c00, 16),
                7 => ("bf16", 0x3f80, 16),
                _ => ("f32", 0x3f80_0000, 32),
            };
            let (flush, ty) = name.split_once('.').unwrap_or(("", name));
            let flush = if flush.is_empty() { String::new() } else { format!(".{flush}") };
            for (to, yes, bits) in [one, ("s32", 0xffff_ffff, 32)] {
                check(&format!("set.{relation}{flush}.{to}.{ty}"), &[&edges, &edges], bits, |x| {
                    if test(x).0 { yes } else { 0 }
                });
            }
        }
    }
}

#[test]
fn of_pairs() {
    for (name, shape, ftz, one) in
        [("f16x2", F16, false, 0x3c00), ("ftz.f16x2", F16, true, 0x3c00), ("bf16x2", BF16, false, 0x3f80)]
    {
        let halves = floats(shape.mantissa, shape.exponent);
        let mut random = Random(5);
        let edges: Vec<_> = (0..80).map(|_| random.pick(&halves) << 16 | random.pick(&halves)).collect();
        for relation in FLOAT {
            let test = |x: &[u64]| {
                let low = holds(relation, order(shape, x[0] & 0xffff, x[1] & 0xffff, ftz));
                let high = holds(relation, order(shape, x[0] >> 16, x[1] >> 16, ftz));
                (low, high)
            };
            all(relation, name, &edges, test);
            let (flush, ty) = name.split_once('.').unwrap_or(("", name));
            let flush = if flush.is_empty() { String::new() } else { format!(".{flush}") };
            for (to, yes) in [(ty, one), ("u32", 0xffff)] {
                check(&format!("set.{relation}{flush}.{to}.{ty}"), &[&edges, &edges], 32, |x| {
                    let (low, high) = test(x);
                    (if low { yes } else { 0 }) | (if high { yes << 16 } else { 0 })
                });
            }
        }
    }
}

#[test]
fn set_with_a_predicate() {
    let edges = f32s();
    for op in ["and", "or", "xor"] {
        check(&format!("set.lt.{op}.f32.f32"), &[&edges, &edges, &[0, 1]], 32, |x| {
            let t = holds("lt", order(F32, x[0], x[1], false));
            if boolean(op, t, x[2] & 1 != 0) { 0x3f80_0000 } else { 0 }
        });
    }
}
