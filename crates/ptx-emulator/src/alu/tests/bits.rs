//! Bits, by loops over bits.

use super::*;

fn bit(x: u64, at: u32) -> bool {
    at < 64 && x >> at & 1 != 0
}

/// A word from a function of the position.
fn build(width: u32, f: impl Fn(u32) -> bool) -> u64 {
    (0..width).fold(0, |word, at| word | u64::from(f(at)) << at)
}

#[test]
fn logic() {
    for width in [16, 32, 64] {
        let edges = integers(width);
        let two: [&[u64]; 2] = [&edges, &edges];
        check(&format!("and.b{width}"), &two, width, |x| build(width, |at| bit(x[0], at) && bit(x[1], at)));
        check(&format!("or.b{width}"), &two, width, |x| build(width, |at| bit(x[0], at) || bit(x[1], at)));
        check(&format!("xor.b{width}"), &two, width, |x| build(width, |at| bit(x[0], at) != bit(x[1], at)));
        check(&format!("not.b{width}"), &two[..1], width, |x| build(width, |at| !bit(x[0], at)));
        let low = if width == 64 { !0 } else { (1 << width) - 1 };
        check(&format!("cnot.b{width}"), &two[..1], width, |x| u64::from(x[0] & low == 0));
    }
    let both: [&[u64]; 2] = [&[0, 1], &[0, 1]];
    check("and.pred", &both, 1, |x| x[0] & x[1]);
    check("or.pred", &both, 1, |x| x[0] | x[1]);
    check("xor.pred", &both, 1, |x| x[0] ^ x[1]);
    check("not.pred", &both[..1], 1, |x| !x[0]);
}

#[test]
fn shifts() {
    let amounts = amounts();
    for width in [16, 32, 64] {
        let edges = integers(width);
        let two: [&[u64]; 2] = [&edges, &amounts];
        let n = |x: &[u64]| (x[1] & 0xffff_ffff) as u32;
        check(&format!("shl.b{width}"), &two, width, |x| {
            build(width, |at| at >= n(x) && bit(x[0], at - n(x)))
        });
        for unsigned in ["b", "u"] {
            check(&format!("shr.{unsigned}{width}"), &two, width, |x| {
                build(width, |at| at.checked_add(n(x)).is_some_and(|from| from < width && bit(x[0], from)))
            });
        }
        check(&format!("shr.s{width}"), &two, width, |x| {
            build(width, |at| bit(x[0], at.saturating_add(n(x)).min(width - 1)))
        });
    }
    let edges = integers(32);
    for (mode, clamp) in [("clamp", true), ("wrap", false)] {
        let amount = move |c: u64| if clamp { (c & 0xffff_ffff).min(32) as u32 } else { c as u32 & 31 };
        let both = |x: &[u64]| x[1] << 32 | x[0];
        check(&format!("shf.l.{mode}.b32"), &[&edges, &edges, &amounts], 32, |x| {
            build(32, |at| (at + 32).checked_sub(amount(x[2])).is_some_and(|from| bit(both(x), from)))
        });
        check(&format!("shf.r.{mode}.b32"), &[&edges, &edges, &amounts], 32, |x| {
            build(32, |at| bit(both(x), at + amount(x[2])))
        });
    }
}

#[test]
fn counts() {
    for width in [32, 64] {
        let edges = integers(width);
        let one: [&[u64]; 1] = [&edges];
        let ones = |x: u64| (0..width).filter(|at| bit(x, *at)).count() as u64;
        let top = |x: u64| (0..width).rev().find(|at| bit(x, *at));
        check(&format!("popc.b{width}"), &one, 32, |x| ones(x[0]));
        check(&format!("clz.b{width}"), &one, 32, |x| {
            top(x[0]).map_or(u64::from(width), |at| u64::from(width - 1 - at))
        });
        check(&format!("brev.b{width}"), &one, width, |x| build(width, |at| bit(x[0], width - 1 - at)));
        for (name, signed) in [("u", false), ("s", true)] {
            let found = move |x: u64| {
                let sign = signed && bit(x, width - 1);
                (0..width).rev().find(|at| bit(x, *at) != sign)
            };
            check(&format!("bfind.{name}{width}"), &one, 32, |x| found(x[0]).map_or(!0, u64::from));
            check(&format!("bfind.shiftamt.{name}{width}"), &one, 32, |x| {
                found(x[0]).map_or(!0, |at| u64::from(width - 1 - at))
            });
        }
    }
}

#[test]
fn fields() {
    let amounts = amounts();
    for width in [32u32, 64] {
        let edges = integers(width);
        for (name, signed) in [("u", false), ("s", true)] {
            check(&format!("bfe.{name}{width}"), &[&edges, &amounts, &amounts], width, |x| {
                let (pos, len) = (x[1] as u32 & 0xff, x[2] as u32 & 0xff);
                let sign = signed && len != 0 && bit(x[0], (pos + len - 1).min(width - 1));
                build(width, |at| if at < len && pos + at < width { bit(x[0], pos + at) } else { sign })
            });
        }
        check(&format!("bfi.b{width}"), &[&edges, &edges, &amounts, &amounts], width, |x| {
            let (pos, len) = (x[2] as u32 & 0xff, x[3] as u32 & 0xff);
            build(width, |at| if at >= pos && at - pos < len { bit(x[0], at - pos) } else { bit(x[1], at) })
        });
    }
    let edges = integers(32);
    for (mode, clamp) in [("clamp", true), ("wrap", false)] {
        // As the ISA writes it.
        check(&format!("bmsk.{mode}.b32"), &[&amounts, &amounts], 32, |x| {
            let (a, b) = (x[0] as u32, x[1] as u32);
            let (a1, b1) = (a & 31, b & 31);
            let mut mask0 = !0u32 << a1;
            let mut mask1 = if a1 + b1 >= 32 { 0 } else { !0u32 << (a1 + b1) };
            if clamp && a >= 32 {
                mask0 = 0;
            }
            if clamp && (a >= 32 || b >= 32) {
                mask1 = 0;
            } else if a1 + b1 < 32 && b1 == 0 {
                mask1 = !0;
            }
            u64::from(mask0 & !mask1)
        });
        for (name, signed) in [("u32", false), ("s32", true)] {
            check(&format!("szext.{mode}.{name}"), &[&edges, &amounts], 32, |x| {
                let (a, b) = (x[0] as u32, x[1] as u32);
                let b1 = b & 31;
                let too_large = clamp && b >= 32;
                let mask = if too_large { 0 } else { !0u32 << b1 };
                let sign = b1 != 0 && !too_large && signed && a >> (b1 - 1) & 1 != 0;
                u64::from(a & !mask | if sign { mask } else { 0 })
            });
        }
    }
}

#[test]
fn nth_set_bit() {
    let (masks, bases) = (integers(32), (0..32).collect::<Vec<u64>>());
    let offsets: Vec<u64> = (-34i64..=34).map(|x| x as u32 as u64).collect();
    verify("fns.b32", &[&masks, &bases, &offsets], FULL, |x, result| {
        let (mask, base, offset) = (x[0], x[1] as u32, x[2] as u32 as i32);
        if base > 31 {
            return Ok(());
        }
        let mut expected = u64::from(u32::MAX);
        if offset == 0 {
            if bit(mask, base) {
                expected = u64::from(base);
            }
        } else {
            let (mut pos, mut count) = (base as i32, offset.unsigned_abs() - 1);
            while (0..32).contains(&pos) {
                if bit(mask, pos as u32) {
                    if count == 0 {
                        expected = pos as u64;
                        break;
                    }
                    count -= 1;
                }
                pos += offset.signum();
            }
        }
        if result == expected { Ok(()) } else { Err(format!("expected {expected:#x}")) }
    });
}

#[test]
fn permutations() {
    let edges = [0x0011_2233, 0x8899_aabb, 0x7f80_ff01, 0xdead_beef, 0];
    let selectors: Vec<u64> = (0..0x1_0000).step_by(37).collect();
    let byte = |x: &[u64], at: u64| ((x[1] << 32 | x[0]) >> (8 * at)) & 0xff;
    check("prmt.b32", &[&edges, &edges, &selectors], 32, |x| {
        (0..4).fold(0, |word, at| {
            let nibble = x[2] >> (4 * at) & 15;
            let picked = byte(x, nibble & 7);
            let picked = if nibble & 8 == 0 {
                picked
            } else if picked & 0x80 != 0 {
                0xff
            } else {
                0
            };
            word | picked << (8 * at)
        })
    });
    // The table of the ISA: for each of the two low bits of the selector the bytes, highest first.
    let modes: [(&str, [[u64; 4]; 4]); 6] = [
        ("f4e", [[3, 2, 1, 0], [4, 3, 2, 1], [5, 4, 3, 2], [6, 5, 4, 3]]),
        ("b4e", [[5, 6, 7, 0], [6, 7, 0, 1], [7, 0, 1, 2], [0, 1, 2, 3]]),
        ("rc8", [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]]),
        ("ecl", [[3, 2, 1, 0], [3, 2, 1, 1], [3, 2, 2, 2], [3, 3, 3, 3]]),
        ("ecr", [[0, 0, 0, 0], [1, 1, 1, 0], [2, 2, 1, 0], [3, 2, 1, 0]]),
        ("rc16", [[1, 0, 1, 0], [3, 2, 3, 2], [1, 0, 1, 0], [3, 2, 3, 2]]),
    ];
    for (mode, table) in modes {
        check(&format!("prmt.b32.{mode}"), &[&edges, &edges, &selectors], 32, |x| {
            table[(x[2] & 3) as usize].iter().fold(0, |word, at| word << 8 | byte(x, *at))
        });
    }
}

#[test]
fn any_function_of_three_bits() {
    let edges = integers(32);
    let table = |x: &[u64], lut: i64| {
        build(32, |at| {
            let index =
                u32::from(bit(x[0], at)) << 2 | u32::from(bit(x[1], at)) << 1 | u32::from(bit(x[2], at));
            lut >> index & 1 != 0
        })
    };
    let few: Vec<_> = edges.iter().copied().step_by(5).collect();
    for lut in 0..256 {
        verify("lop3.b32", &[&few, &few, &few], How { imm: lut, ..FULL }, |x, result| {
            if result == table(x, lut) { Ok(()) } else { Err(format!("table {lut:#x}")) }
        });
    }
    for lut in [0, 0x96, 0xe8, 0x80, 0xff] {
        for (name, and) in [("and", true), ("or", false)] {
            let alu = find(&format!("lop3.{name}.b32"));
            assert_eq!(alu.immediate, Some(3));
            for chunk in combinations(&[&few, &few, &few, &[0, 1]], 2000).chunks(32) {
                for (negated, sink) in [(0, false), (8, false), (0, true)] {
                    let how = How { imm: lut, negated, sink: [sink, false], ..FULL };
                    let result = execute(&alu, &rows(chunk), how);
                    for lane in 0..32 {
                        let x: Vec<_> = chunk[lane].iter().map(|x| x & 0xffff_ffff).collect();
                        let d = table(&x, lut);
                        let q = (x[3] & 1 != 0) != (negated != 0);
                        let p = if and { d != 0 && q } else { d != 0 || q };
                        if !sink {
                            assert_eq!(result.first[lane], d);
                        }
                        assert_eq!(result.second[lane], u64::from(p), "{name} {lut:#x} {x:x?}");
                    }
                }
            }
        }
    }
}
