//! The definition of products in integers, and every kernel against it, to the bit: every format, numbers of rows, outputs of a warp and
//! lengths that fill no chunk; bytes and activations as wild as they come. Then the stated bound against exact products.

#![allow(clippy::print_stdout)]

use super::*;
use crate::CudaBackend;
use crate::launch::tests::on;
use crate::ops::few_tests::{FEW, factor, group_of_few, group_of_nvfp4, half, is_few, set_factor};
use crate::weight;
use ogive_backend::{Activation, Backend};
use ogive_tensor::{F16, FORMATS, Format, HostWeight, Q4_0, Q4_K, Q5_K, Q6_K, Q8_0};
use ptx_emulator_launcher::{Nvrtc, test_name};

/// A generator of Knuth's.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    /// Between -1 and 1.
    pub(crate) fn number(&mut self) -> f32 {
        (self.bits() >> 8) as f32 / (1u32 << 23) as f32 - 1.0
    }
}

/// Where a block has halves.
fn halves(name: &str) -> &'static [usize] {
    match name {
        "mxfp4" | "nvfp4" => &[],
        "q4_0" | "q5_0" | "q8_0" | "iq4_nl" | "iq4_xs" => &[0],
        "q2_k" => &[80, 82],
        "q3_k" => &[108],
        "q6_k" => &[208],
        _ => &[0, 2],
    }
}

/// 32 elements of a weight: element `j` is `d * scales[j / 16] * codes[j] + m * mins[j / 16]`, or `apart[j / 16] * codes[j]`.
pub(crate) struct Group {
    pub(crate) codes: [i32; 32],
    pub(crate) scales: [i32; 2],
    pub(crate) mins: [i32; 2],
    pub(crate) d: f32,
    pub(crate) m: Option<f32>,
    pub(crate) apart: Option<[f32; 2]>,
}

const IQ4: [i32; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
const E2M1: [i32; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The i-th 32 of a block's elements.
pub(crate) fn group(name: &str, b: &[u8], i: usize) -> Group {
    if let Some((_, unit)) = FEW.iter().find(|(few, _)| *few == name) {
        return group_of_few(*unit, name, b, i);
    }
    if name == "nvfp4" {
        return group_of_nvfp4(b, i);
    }
    let byte = |at: usize| i32::from(b[at]);
    let nibble = |at: usize, j: usize| byte(at + j % 16) >> (4 * (j / 16)) & 15;
    let (n, j4) = (i / 4, i % 4);
    let mut o = Group { codes: [0; 32], scales: [1; 2], mins: [1; 2], d: f32::NAN, m: None, apart: None };
    if let [first, second @ ..] = halves(name) {
        o.d = half(b, *first);
        o.m = second.first().map(|at| half(b, *at));
    }
    let fifth = |at: usize, j: usize| (byte(at + j / 8) >> (j % 8) & 1) << 4;
    let code = |j: usize| match name {
        "q4_0" => nibble(2, j) - 8,
        "q4_1" => nibble(4, j),
        "q5_0" => (nibble(6, j) | fifth(2, j)) - 16,
        "q5_1" => nibble(8, j) | fifth(4, j),
        "q8_0" => i32::from(b[2 + j].cast_signed()),
        "iq4_nl" => IQ4[nibble(2, j) as usize],
        "mxfp4" => E2M1[nibble(1, j) as usize],
        "q2_k" => byte(16 + 32 * n + j) >> (2 * j4) & 3,
        "q3_k" => ((byte(32 + 32 * n + j) >> (2 * j4) & 3) | (byte(j) >> i & 1) << 2) - 4,
        "q4_k" => byte(16 + 32 * (i / 2) + j) >> (4 * (i % 2)) & 15,
        "q5_k" => (byte(48 + 32 * (i / 2) + j) >> (4 * (i % 2)) & 15) | (byte(16 + j) >> i & 1) << 4,
        "q6_k" => {
            let low = byte(64 * n + 32 * (j4 % 2) + j) >> (4 * (j4 / 2)) & 15;
            (low | (byte(128 + 32 * n + j) >> (2 * j4) & 3) << 4) - 32
        }
        "iq4_xs" => IQ4[nibble(8 + 16 * i, j) as usize],
        _ => panic!("{name}"),
    };
    o.codes.iter_mut().enumerate().for_each(|(j, to)| *to = code(j));
    let sixteen = |h: usize| 2 * i + h;
    for h in 0..2 {
        let k = sixteen(h);
        match name {
            "q2_k" => (o.scales[h], o.mins[h]) = (byte(k) & 15, byte(k) >> 4),
            "q3_k" => {
                let (low, high) = (byte(96 + k % 8) >> (4 * (k / 8)), byte(104 + k % 4) >> (2 * (k / 4)));
                o.scales[h] = (low & 15 | (high & 3) << 4) - 32;
            }
            "q4_k" | "q5_k" => {
                (o.scales[h], o.mins[h]) = if i < 4 {
                    (byte(4 + i) & 63, byte(8 + i) & 63)
                } else {
                    (byte(8 + i) & 15 | byte(i) >> 6 << 4, byte(8 + i) >> 4 | byte(4 + i) >> 6 << 4)
                }
            }
            "q6_k" => o.scales[h] = i32::from(b[192 + k].cast_signed()),
            "iq4_xs" => {
                let high = (byte(2) | byte(3) << 8) >> (2 * i) & 3;
                o.scales[h] = (byte(4 + i / 2) >> (4 * (i % 2)) & 15 | high << 4) - 32;
            }
            _ => {}
        }
    }
    match name {
        "mxfp4" => o.d = 2f64.powi(byte(0) - 128) as f32,
        // Minima are taken off.
        "q2_k" | "q4_k" | "q5_k" => o.m = o.m.map(|m| -m),
        _ => {}
    }
    o
}

/// 32 activations as codes and a scale.
pub(crate) fn rounded(x: &[f32]) -> ([i32; 32], f32) {
    let most = x.iter().map(|v| v.to_bits() & 0x7fff_ffff).max().unwrap_or(0);
    let (mut codes, most) = ([0; 32], f32::from_bits(most));
    if !most.is_finite() {
        return (codes, f32::NAN);
    }
    if most < 2f32.powi(-120) {
        return (codes, 0.0);
    }
    let inverse = 127.0 / most;
    codes.iter_mut().zip(x).for_each(|(c, v)| *c = (v * inverse).round_ties_even() as i32);
    (codes, most / 127.0)
}

/// The product of a packed row with a row of activations: sums of 32 are exact integers, lane `g % 32` adds up groups `g`, and lanes are
/// summed in a tree.
pub(crate) fn product_of(format: &Format, bytes: &[u8], x: &[f32]) -> f32 {
    let mut lanes = [0f32; 32];
    for (g, x) in x.chunks(32).enumerate() {
        let (per, (a, scale)) = (format.block_len / 32, rounded(x));
        let block = &bytes[g / per * format.block_bytes..][..format.block_bytes];
        let w = group(format.name, block, g % per);
        let sum = |j: usize| (0..16).map(|k| w.codes[16 * j + k] * a[16 * j + k]).sum::<i32>();
        let all = |j: usize| a[16 * j..][..16].iter().sum::<i32>();
        let mut p = w.d * (w.scales[0] * sum(0) + w.scales[1] * sum(1)) as f32;
        if let Some([low, high]) = w.apart {
            p = high.mul_add(sum(1) as f32, low * sum(0) as f32);
        }
        if let Some(m) = w.m {
            p = m.mul_add((w.mins[0] * all(0) + w.mins[1] * all(1)) as f32, p);
        }
        lanes[g % 32] = scale.mul_add(p, lanes[g % 32]);
    }
    for o in [16, 8, 4, 2, 1] {
        lanes = std::array::from_fn(|l| lanes[l] + lanes[l ^ o]);
    }
    lanes[0]
}

/// The same of one row with formats that go straight to registers: lane `l` adds up half `l % 2` of the groups 2 · (l / 2) and the next of every 32.
fn product_in_pairs(format: &Format, bytes: &[u8], x: &[f32]) -> f32 {
    let mut lanes = [0f32; 32];
    let (pairs, halves): (Vec<_>, _) = (x.chunks(64).collect(), [0, 1]);
    for (p, pair) in pairs.iter().enumerate() {
        let both = [0, 1].map(|i| {
            let (g, per) = (2 * p + i, format.block_len / 32);
            let block = &bytes[g / per * format.block_bytes..][..format.block_bytes];
            (group(format.name, block, g % per), rounded(&pair[32 * i..][..32]))
        });
        for h in halves {
            let part = |mine: &dyn Fn(&Group, &[i32; 32]) -> i32| {
                let [first, second] = both.each_ref().map(|(w, (a, scale))| (*scale, mine(w, a) as f32));
                second.0.mul_add(second.1, first.0 * first.1)
            };
            let range = 16 * h..16 * h + 16;
            let u = part(&|w, a| w.scales[h] * range.clone().map(|k| w.codes[k] * a[k]).sum::<i32>());
            let v = part(&|w, a| w.mins[h] * a[range.clone()].iter().sum::<i32>());
            let (w, lane) = (&both[0].0, &mut lanes[(2 * p + h) % 32]);
            *lane = w.m.unwrap_or(0.0).mul_add(v, w.d.mul_add(u, *lane));
        }
    }
    for o in [16, 8, 4, 2, 1] {
        lanes = std::array::from_fn(|l| lanes[l] + lanes[l ^ o]);
    }
    lanes[0]
}

/// What one row's product is, and by `dp4a` what one of `n` is.
pub(crate) fn definition(format: &Format, n: usize) -> fn(&Format, &[u8], &[f32]) -> f32 {
    if n == 1 && ["q4_k", "q5_k"].contains(&format.name) { product_in_pairs } else { product_of }
}

/// The same of several rows by tensor cores: part `p` of eight adds up the groups of every eighth 256 inputs, and parts are added in their order.
/// Where halves of a group have factors of their own, each sum of 16 is multiplied by its own.
fn product_in_parts(format: &Format, bytes: &[u8], x: &[f32]) -> f32 {
    let mut parts = [0f32; Tile::PARTS];
    for (g, x) in x.chunks(32).enumerate() {
        let (per, (a, scale)) = (format.block_len / 32, rounded(x));
        let block = &bytes[g / per * format.block_bytes..][..format.block_bytes];
        let w = group(format.name, block, g % per);
        let sum = |j: usize| (0..16).map(|k| w.codes[16 * j + k] * a[16 * j + k]).sum::<i32>();
        let all = |j: usize| a[16 * j..][..16].iter().sum::<i32>() as f32;
        let halves = ["q2_k", "q3_k", "q6_k", "nvfp4", "iq1_m", "iq2_xs", "iq2_s"].contains(&format.name);
        let mut p = match halves {
            true => {
                let [low, high] = w.apart.unwrap_or(w.scales.map(|scale| w.d * scale as f32));
                high.mul_add(sum(1) as f32, low * sum(0) as f32)
            }
            false => w.d * w.scales[0] as f32 * (sum(0) + sum(1)) as f32,
        };
        if let Some(m) = w.m {
            let [low, high] = w.mins.map(|min| m * min as f32);
            p = if halves {
                low.mul_add(all(0), high.mul_add(all(1), p))
            } else {
                low.mul_add(all(0) + all(1), p)
            };
        }
        let part = &mut parts[32 * g / Tile::CHUNK % Tile::PARTS];
        *part = scale.mul_add(p, *part);
    }
    parts.into_iter().skip(1).fold(parts[0], |sum, part| sum + part)
}

/// Packed formats.
pub(crate) fn packed() -> impl Iterator<Item = &'static Format> {
    FORMATS.iter().copied().filter(|f| f.block_len > 1)
}

/// Random bytes; halves are finite unless they may be `wild`.
pub(crate) fn weight_of(
    r: &mut Random,
    format: &'static Format,
    [out, cols]: [usize; 2],
    wild: bool,
) -> HostWeight {
    let mut bytes: Vec<u8> = (0..out * format.row_bytes(cols)).map(|_| r.bits() as u8).collect();
    for block in bytes.chunks_mut(format.block_bytes).filter(|_| !wild) {
        if is_few(format.name) {
            let half = factor(format.name, block);
            set_factor(format.name, block, if half & 0x7c00 == 0x7c00 { half ^ 0x4000 } else { half });
            continue;
        }
        for at in halves(format.name) {
            if block[at + 1] & 0x7c == 0x7c {
                block[at + 1] ^= 0x40;
            }
        }
        if format.name == "mxfp4" {
            // So that sums of all stay finite.
            block[0] = block[0] / 2 + 60;
        }
    }
    HostWeight::new("w", [1, out, cols], format, bytes.into()).unwrap()
}

/// Rows of all kinds: usual ones, with zeros and with large elements, all zeros, tiny, huge, with what is no number.
pub(crate) fn rows_of(r: &mut Random, n: usize, cols: usize) -> Vec<f32> {
    let mut x = Vec::with_capacity(n * cols);
    for row in 0..n {
        let kind = r.bits() % if row == 0 { 2 } else { 8 };
        for j in 0..cols {
            let v = r.number();
            x.push(match kind {
                2 => 0.0,
                3 => v * 2f32.powi(-119 - (j / 32 % 4) as i32),
                4 => v * f32::MAX,
                5 if j == cols / 2 => f32::INFINITY,
                6 if j == cols - 1 => f32::NAN,
                7 => (v * 127.0).round() * 0.5 + if j % 32 == 0 { 63.5 } else { 0.0 },
                _ if r.bits().is_multiple_of(97) => v * 300.0,
                _ => v,
            });
        }
    }
    x
}

pub(crate) fn same(what: &str, got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!(g.to_bits() == w.to_bits() || g.is_nan() && w.is_nan(), "{what}: {g:e} for {w:e} at {i}");
    }
}

fn backend() -> CudaBackend {
    CudaBackend::builder().activations(Activations::Int8).build().unwrap()
}

/// Lengths of rows: a block, some that fill no chunk, several chunks.
pub(crate) fn lengths(format: &Format) -> [usize; 4] {
    if format.block_len == 32 { [32, 416, 1056, 3 * 1024 + 96] } else { [256, 768, 1280, 4096 + 256] }
}

/// The same with their numbers; of a format of very few bits one of them, more than a chunk: it differs from others in how a group is read alone.
pub(crate) fn numbered(format: &Format) -> impl Iterator<Item = (usize, usize)> {
    let one = is_few(format.name);
    lengths(format).into_iter().enumerate().filter(move |(i, _)| !one || *i == 2)
}

/// A product of random rows and a random weight is its definition, a row of the weight's bytes with one of the activations, however it is made.
pub(crate) fn is_defined(
    b: &CudaBackend,
    r: &mut Random,
    what: &str,
    (format, [n, out, cols], wild): (&'static Format, [usize; 3], bool),
    make: impl FnOnce(&Tensor, &CudaWeight, &Tensor),
    definition: fn(&Format, &[u8], &[f32]) -> f32,
) {
    let d = &b.device;
    let (host, x) = (weight_of(r, format, [out, cols], wild), rows_of(r, n, cols));
    let held = b.upload_weight(&host).unwrap();
    let (given, y) = (b.upload(&x, [n, cols].into()).unwrap(), d.tensor("test", [n, out]).unwrap());
    make(&given, weight::read(d, "test", &held).unwrap(), &y);
    let row = |o: usize| &host.bytes[o * host.row_bytes()..][..host.row_bytes()];
    let want = (0..n * out).map(|i| definition(format, row(i % out), &x[i / out * cols..][..cols]));
    same(what, &b.download(&y).unwrap(), &want.collect::<Vec<f32>>());
}

/// Each of these formats with every number of rows at a time and of outputs of a warp.
fn products(formats: impl Iterator<Item = &'static Format>) {
    let (b, mut r, mut count) = (backend(), Random(1), 0);
    let (d, at) = (&b.device, "test");
    for format in formats {
        for (i, cols) in numbered(format) {
            for (n, outs) in [(1, 1), ([2, 3, 4, 2][i], 2), ([5, 8, 7, 6][i], 2), (8, 1)] {
                let out = [13, 3, 9, 1][i];
                let what = format!("{} [{n}, {cols}] to {out}, {outs} of a warp", format.name);
                let of = (format, [n, out, cols], count % 5 == 4);
                let make = |given: &Tensor, w: &CudaWeight, y: &Tensor| {
                    assert!(takes(d, n, w));
                    let codes = codes::codes(d, at, given, 0).unwrap();
                    with(d, at, &codes, &[(w, y)], n, outs).unwrap();
                };
                is_defined(&b, &mut r, &what, of, make, definition(format, n));
                count += 1;
            }
        }
    }
    println!("cuda: {}: {count} products", b.info().name);
}

#[test]
fn products_are_the_definition_on_sm_80() {
    on(test_name!(), Nvrtc::V12, "sm_80", || products(packed()));
}

#[test]
fn products_are_the_definition_on_sm_90() {
    on(test_name!(), Nvrtc::V13, "sm_90", || products(packed().step_by(3)));
}

#[test]
fn products_are_the_definition_on_sm_61() {
    on(test_name!(), Nvrtc::V11, "sm_61", || products(packed().skip(1).step_by(3)));
}

/// Each of these formats in tiles of each number of rows, of one and of two sixteens of outputs.
fn tiles(formats: impl Iterator<Item = &'static Format>) {
    let (b, mut r, mut count) = (backend(), Random(4), 0);
    let (d, at) = (&b.device, "test");
    for format in formats {
        for (i, cols) in numbered(format) {
            for (n, mt) in [[(2, 1), (64, 2)], [(8, 2), (13, 1)], [(24, 2), (16, 2)], [(5, 1), (40, 1)]][i] {
                let out = [37, 3, 50, 16][i];
                let what = format!("{} [{n}, {cols}] to {out}, {mt} sixteens", format.name);
                let of = (format, [n, out, cols], count % 5 == 4);
                let make = |given: &Tensor, w: &CudaWeight, y: &Tensor| {
                    let codes = codes::given(d, at, given, 0).unwrap();
                    // Two sixteens of q8_0 are more than some devices have room for.
                    let tile = [mt, 1].map(|mt| Tile::of(n, mt, std::iter::once(w.kept().block())));
                    let tile = tile.into_iter().find(|tile| tile.fits(&d.info)).unwrap();
                    by_tensor_cores(d, at, &codes, &[(w, y)], n, tile).unwrap();
                };
                is_defined(&b, &mut r, &what, of, make, product_in_parts);
                count += 1;
            }
        }
    }
    println!("cuda: {}: {count} products", b.info().name);
}

#[test]
fn tiles_are_the_definition_on_sm_80() {
    on(test_name!(), Nvrtc::V12, "sm_80", || tiles(packed()));
}

#[test]
fn tiles_are_the_definition_on_sm_90() {
    on(test_name!(), Nvrtc::V13, "sm_90", || tiles(packed().step_by(3)));
}

/// The gated form of every two neighbours among the formats, and of each with itself.
fn gates() {
    let (b, mut r) = (backend(), Random(2));
    let plain = CudaBackend::new().unwrap();
    let all: Vec<&Format> = packed().collect();
    for (i, format) in all.iter().enumerate() {
        for other in [format, &all[(i + 1) % all.len()]] {
            let (n, out, cols) = ([1, 3, 8][i % 3], 6, [256, 1280, 2304][i / 3 % 3]);
            let x: Vec<f32> = (0..n * cols).map(|_| r.number()).collect();
            let [gate, up] = [format, other].map(|f| weight_of(&mut r, f, [out, cols], false));
            let got = {
                let [gate, up] = [&gate, &up].map(|w| b.upload_weight(w).unwrap());
                let x = b.upload(&x, [n, cols].into()).unwrap();
                b.download(&b.linear_gated(&x, &gate, &up, Activation::Silu).unwrap()).unwrap()
            };
            let product = |w: &HostWeight, i: usize| {
                let row = &w.bytes[i % out * w.row_bytes()..][..w.row_bytes()];
                let of = if n >= codes::MMA { product_in_parts } else { definition(w.format, n) };
                of(w.format, row, &x[i / out * cols..][..cols])
            };
            // The function by the same device: only the products are this file's.
            let of = |w: &HostWeight| {
                let values: Vec<f32> = (0..n * out).map(|i| product(w, i)).collect();
                plain.upload(&values, [n, out].into()).unwrap()
            };
            let want = plain.gated(of(&gate), &of(&up), Activation::Silu).unwrap();
            same(&format!("{} and {}", format.name, other.name), &got, &plain.download(&want).unwrap());
        }
    }
}

#[test]
fn gates_are_the_definition() {
    on(test_name!(), Nvrtc::V12, "sm_80", gates);
}

/// What `Activations::Int8` states holds for the definition, and so for the kernels.
#[test]
fn the_stated_bound_holds() {
    let mut r = Random(3);
    for format in packed() {
        for cols in lengths(format) {
            let host = weight_of(&mut r, format, [1, cols], false);
            let (w, x) = (host.to_vec(), rows_of(&mut r, 1, cols));
            let (mut exact, mut bound, mut size) = (0f64, 0f64, 0f64);
            for (x, w) in x.chunks(32).zip(w.chunks(32)) {
                let most = x.iter().fold(0f64, |m, v| m.max(f64::from(v.abs())));
                let sizes: f64 = w.iter().map(|w| f64::from(w.abs())).sum();
                exact += x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum::<f64>();
                // What a minimum and a code's product cancel is rounded in both.
                let group = most * f64::from(w.iter().fold(0f32, |m, v| m.max(v.abs()))) * 32.0;
                (bound, size) = (bound + most * sizes / 253.0, size + group);
            }
            let got = f64::from(product_of(format, &host.bytes, &x));
            let sums = size * 64.0 * 2f64.powi(-24) * (cols as f64 / 32.0).sqrt();
            assert!((got - exact).abs() <= bound + sums, "{} {cols}: {got} for {exact}", format.name);
        }
    }
}

/// Weights of one input in a launch, of formats that are alike and not in any places, and one more than a launch takes: each has the bits that it
/// has alone.
#[test]
fn weights_together_are_those_alone() {
    on(test_name!(), Nvrtc::V12, "sm_80", || {
        let (b, mut r, cols) = (backend(), Random(3), 1536);
        let alike = [&Q4_K, &Q4_K, &Q6_K, &Q4_K];
        for formats in [
            &alike[..3],
            &alike,
            &[&Q4_K, &Q6_K, &Q4_K],
            &[&Q6_K, &Q4_K, &Q4_K],
            &[&Q5_K, &Q8_0, &Q4_0],
            &[&Q8_0, &Q5_K],
            &[&F16, &F16, &F16],
            &[&F16, &Q4_K, &Q4_K],
        ] {
            let outs = [13, 3, 9, 5];
            let mut up = |format: &'static Format, out| {
                let mut bytes = vec![0; out * format.row_bytes(cols)];
                format
                    .encode_row(&(0..out * cols).map(|_| r.number()).collect::<Vec<_>>(), &mut bytes)
                    .unwrap();
                b.upload_weight(&HostWeight::new("w", [1, out, cols], format, bytes.into()).unwrap()).unwrap()
            };
            let ws: Vec<_> = formats.iter().zip(outs).map(|(format, out)| up(format, out)).collect();
            for n in [1, 5] {
                let x = b.upload(&rows_of(&mut r, n, cols), [n, cols].into()).unwrap();
                let bits =
                    |y: &Tensor| b.download(y).unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>();
                let together = b.linear_many(&x, &ws.iter().collect::<Vec<_>>()).unwrap();
                for (i, (y, w)) in together.iter().zip(&ws).enumerate() {
                    assert_eq!(bits(y), bits(&b.linear(&x, w).unwrap()), "{i} of {n} rows");
                }
            }
        }
    });
}
