//! Moves, choices, vectors.

use super::super::{pack, unpack};
use super::*;

#[test]
fn moves() {
    for (name, bits) in [
        ("b16", 16),
        ("u16", 16),
        ("s16", 16),
        ("b32", 32),
        ("u32", 32),
        ("s32", 32),
        ("f32", 32),
        ("b64", 64),
        ("u64", 64),
        ("s64", 64),
        ("f64", 64),
    ] {
        let edges = integers(bits);
        check(&format!("mov.{name}"), &[&edges], bits, |x| x[0]);
    }
    check("mov.pred", &[&[0, 1]], 1, |x| x[0]);
}

#[test]
fn choices() {
    for (name, bits) in [
        ("b16", 16),
        ("s16", 16),
        ("b32", 32),
        ("f32", 32),
        ("u32", 32),
        ("b64", 64),
        ("f64", 64),
        ("s64", 64),
    ] {
        let edges = integers(bits);
        for negated in [0, 4] {
            verify(
                &format!("selp.{name}"),
                &[&edges, &edges, &[0, 1]],
                How { negated, ..FULL },
                |x, result| {
                    let c = (x[2] & 1 != 0) != (negated != 0);
                    let low = if bits == 64 { !0 } else { (1 << bits) - 1 };
                    if (result ^ if c { x[0] } else { x[1] }) & low == 0 {
                        Ok(())
                    } else {
                        Err("the other one".into())
                    }
                },
            );
        }
        let words = integers(32);
        check(&format!("slct.{name}.s32"), &[&edges, &edges, &words], bits, |x| {
            if x[2] as u32 as i32 >= 0 { x[0] } else { x[1] }
        });
        let floats = f32s();
        check(&format!("slct.{name}.f32"), &[&edges, &edges, &floats], bits, |x| {
            if f32::from_bits(x[2] as u32) >= 0.0 { x[0] } else { x[1] }
        });
        check(&format!("slct.ftz.{name}.f32"), &[&edges, &edges, &floats], bits, |x| {
            let c = f32::from_bits(x[2] as u32);
            let c = if c.is_subnormal() { 0.0 } else { c };
            if c >= 0.0 { x[0] } else { x[1] }
        });
    }
}

#[test]
fn vectors() {
    for (ty, bits, parts) in [
        ("b16", 16, 2),
        ("b32", 32, 2),
        ("b32", 32, 4),
        ("b64", 64, 2),
        ("u64", 64, 2),
        ("f64", 64, 2),
        ("b64", 64, 4),
    ] {
        let width = bits / parts;
        let low = (1u64 << width) - 1;
        let edges = integers(bits);
        let alu = pack(&[ty], parts as usize).unwrap();
        let list = vec![edges.as_slice(); parts as usize];
        for chunk in combinations(&list, 4096).chunks(32) {
            let result = execute(&alu, &rows(chunk), FULL);
            for lane in 0..32 {
                let whole =
                    chunk[lane].iter().rev().fold(0, |whole, part| whole << (width % 64) | part & low);
                assert_eq!(result.first[lane] & (!0 >> (64 - bits)), whole, "{ty} of {parts}");
            }
        }
        let steps = unpack(&[ty], parts as usize).unwrap();
        assert_eq!(steps.len() as u32, parts / 2);
        for chunk in combinations(&[&edges], 4096).chunks(32) {
            for (at, alu) in steps.iter().enumerate() {
                for sink in [[false, false], [true, false], [false, true]] {
                    let result = execute(alu, &rows(chunk), How { sink, ..FULL });
                    for lane in 0..32 {
                        let part = |at: u32| chunk[lane][0] >> (width * at) & low;
                        let at = at as u32 * 2;
                        assert!(sink[0] || result.first[lane] == part(at), "{ty} into {parts}");
                        assert!(sink[1] || result.second[lane] == part(at + 1), "{ty} into {parts}");
                    }
                }
            }
        }
    }
    assert!(pack(&["b32"], 3).is_err());
    assert!(pack(&["b128"], 2).is_err());
    assert!(unpack(&["b16"], 4).is_err());
    assert!(unpack(&["pred"], 2).is_err());
}
