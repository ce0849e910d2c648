//! `wmma`: every type, shape and layout against a product in f64.

use super::Trial;
use crate::exec::matrix::tests::{random, value, width};
use crate::fault::Kind;

fn names(class: &str, first: usize, count: usize) -> String {
    let names: Vec<String> = (first..first + count).map(|n| format!("%{class}{n}")).collect();
    format!("{{{}}}", names.join(", "))
}

/// Registers of a fragment, by the manual's table.
fn registers(part: char, ty: &str, [m, n, k]: [usize; 3]) -> usize {
    let (rows, columns) = match part {
        'a' => (m, k),
        'b' => (k, n),
        _ => (m, n),
    };
    match (part, ty) {
        ('a' | 'b', "f16") => 8,
        (_, "f64") => rows * columns / 32,
        _ => rows * columns * width(ty) / 1024,
    }
}

/// A matrix in memory: `lines` of `len` elements, `stride` apart.
struct Stored {
    bytes: Vec<u8>,
    values: Vec<Vec<f64>>,
    stride: usize,
}

fn stored(ty: &str, rows: usize, columns: usize, row_major: bool, pad: usize, state: &mut u64) -> Stored {
    let (lines, len) = if row_major { (rows, columns) } else { (columns, rows) };
    let (bits, stride) = (width(ty), len + pad);
    let mut bytes = vec![0; (lines * stride * bits).div_ceil(8)];
    let mut values = vec![vec![0.0; columns]; rows];
    for line in 0..lines {
        for i in 0..len {
            let element = random(ty, state);
            let at = (line * stride + i) * bits;
            if bits < 8 {
                bytes[at / 8] |= (element as u8) << (at % 8);
            } else {
                bytes[at / 8..at / 8 + bits / 8].copy_from_slice(&element.to_le_bytes()[..bits / 8]);
            }
            let (r, c) = if row_major { (line, i) } else { (i, line) };
            values[r][c] = value(ty, element);
        }
    }
    Stored { bytes, values, stride }
}

fn check(shape: [usize; 3], types: [&str; 4], layouts: [&str; 2], operation: &str, padded: bool) {
    let [m, n, k] = shape;
    let [d, a, b, c] = types;
    let shape_word = format!("m{m}n{n}k{k}");
    let mut state = (m * n) as u64;
    let pad = |ty: &str| if padded { 128 / width(ty) } else { 0 };
    let x = stored(a, m, k, layouts[0] == "row", pad(a), &mut state);
    let y = stored(b, k, n, layouts[1] == "row", pad(b), &mut state);
    let z = stored(c, m, n, true, 0, &mut state);
    let class = if d == "f64" { "d" } else { "r" };
    let frag = |part, first, ty| names(class, first, registers(part, ty, shape));
    let (fa, fb, fc, fd) = (frag('a', 10, a), frag('b', 20, b), frag('c', 30, c), frag('c', 40, d));
    // `b` comes by a generic address, `c` with the stride it has anyway.
    let mut body = format!(
        "    wmma.load.a.sync.aligned.{}.{shape_word}.global.{a} {fa}, [%p0], {};\n    wmma.load.b.sync.aligned.{}.{shape_word}.{b} {fb}, \
         [%p1], {};\n    wmma.load.c.sync.aligned.row.{shape_word}.global.{c} {fc}, [%p2];\n",
        layouts[0], x.stride, layouts[1], y.stride
    );
    let type_words = if a == "f16" { format!("{d}.{c}") } else { format!("{d}.{a}.{b}.{c}") };
    body += &format!(
        "    wmma.mma{operation}.sync.aligned.{}.{}.{shape_word}.{type_words} {fd}, {fa}, {fb}, {fc};\n",
        layouts[0], layouts[1]
    );
    // Stored to shared memory by columns, read from there as a matrix and stored by rows.
    body += &format!(
        "    mov.u32 %r1, shared;\n    wmma.store.d.sync.aligned.col.{shape_word}.shared.{d} [%r1], {fd}, {m};\n    bar.sync 0;\n    \
         wmma.load.c.sync.aligned.col.{shape_word}.shared.{d} {fd}, [%r1], {m};\n    wmma.store.d.sync.aligned.row.{shape_word}.global.{d} \
         [%p3], {fd}, {n};\n"
    );
    let room = (m * n * width(d) / 8) as u64;
    let trial = Trial::new(32, &body).with(&x.bytes).with(&y.bytes).with(&z.bytes).with_room(room);
    trial.run().unwrap_or_else(|fault| panic!("{fault}\n{}", trial.text()));
    let given = trial.bytes(3);
    let bytes = width(d) / 8;
    for row in 0..m {
        for column in 0..n {
            let at = (row * n + column) * bytes;
            let mut element = [0; 8];
            element[..bytes].copy_from_slice(&given[at..at + bytes]);
            let given = value(d, u64::from_le_bytes(element));
            let product: f64 = (0..k)
                .map(|i| match operation {
                    ".xor.popc" => f64::from(u8::from(x.values[row][i] != y.values[i][column])),
                    _ => x.values[row][i] * y.values[i][column],
                })
                .sum();
            let exact = product + z.values[row][column];
            let room = match d {
                "f64" => 1e-14,
                "f32" => 1e-5,
                "f16" => 2e-3,
                _ => 0.0,
            };
            assert!(
                (given - exact).abs() <= room * exact.abs().max(k as f64 / 2.0),
                "{shape_word} {types:?} {layouts:?}: ({row}, {column}) is {given} for {exact}"
            );
        }
    }
}

#[test]
fn products() {
    let layouts = [["row", "col"], ["row", "row"], ["col", "col"], ["col", "row"]];
    for shape in [[16, 16, 16], [32, 8, 16], [8, 32, 16]] {
        for layouts in layouts {
            for types in [
                ["f32", "f16", "f16", "f32"],
                ["f16", "f16", "f16", "f16"],
                ["f32", "f16", "f16", "f16"],
                ["f16", "f16", "f16", "f32"],
                ["f32", "bf16", "bf16", "f32"],
                ["s32", "s8", "s8", "s32"],
                ["s32", "u8", "u8", "s32"],
            ] {
                check(shape, types, layouts, "", false);
            }
            check(shape, ["f32", "f16", "f16", "f32"], layouts, "", true);
        }
    }
    for layouts in layouts {
        check([16, 16, 8], ["f32", "tf32", "tf32", "f32"], layouts, "", false);
        check([8, 8, 4], ["f64"; 4], layouts, "", false);
    }
    check([8, 8, 32], ["s32", "s4", "s4", "s32"], ["row", "col"], "", false);
    check([8, 8, 32], ["s32", "u4", "u4", "s32"], ["row", "col"], "", false);
    check([8, 8, 128], ["s32", "b1", "b1", "s32"], ["row", "col"], ".xor.popc", false);
    check([8, 8, 128], ["s32", "b1", "b1", "s32"], ["row", "col"], ".and.popc", false);
}

#[test]
fn misuse() {
    let load = |address: &str| {
        format!(
            "    wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {}, [{address}], 16;\n",
            names("r", 1, 8)
        )
    };
    let apart = "    mad.wide.u32 %l1, %tid, 32, %p0;\n".to_owned() + &load("%l1");
    Trial::new(32, &apart).with(&[0; 4096]).fails(Kind::Misuse, "must be the same");
    Trial::new(32, &load("%p0+2")).with(&[0; 4096]).fails(Kind::Misaligned, "16");
    Trial::new(32, &load("%p0")).with(&[0; 500]).fails(Kind::OutOfBounds, "of the 500-byte");
    Trial::new(31, &load("%p0")).with(&[0; 512]).fails(Kind::WrongMask, "all 32 lanes");
}
