//! Every way to compute a mixture against plain loops and against choice by choice: formats, uneven choices, sizes that fill no tile, on each
//! kind of device; and the order of choices, to the number.

#![allow(clippy::print_stdout)]

use super::*;
use crate::CudaBackend;
use crate::builder::Activations;
use crate::launch::tests::on;
use crate::ops::elementwise::function;
use crate::ops::matrix::tests::{info, numbers, through};
use crate::weight;
use ogive_backend::{Activation, Backend, Weight};
use ogive_tensor::{
    BF16, F8_E4M3, F16, F32, FEW_BITS, FORMATS, Format, HostWeight, MXFP4, Q4_0, Q4_K, Q6_K, Q8_0, Scale,
};
use ptx_emulator_launcher::{Nvrtc, test_name};

/// Who chooses whom.
#[derive(Clone, Copy, Debug)]
enum Choice {
    /// All spread over all.
    Even,
    /// Half of the rows want the same ones, and the last expert is wanted by none.
    Uneven,
    /// All rows want the same ones.
    Same,
}

/// `n` rows of `k` different experts each.
fn choices(choice: Choice, [n, k, experts]: [usize; 3]) -> Vec<u32> {
    let one = |row: usize, i: usize| {
        let all = experts.saturating_sub(1).max(k);
        match choice {
            Choice::Even => (row * 7 + row / 3 + i) % experts,
            Choice::Uneven if row.is_multiple_of(2) => (row * 5 + i) % all,
            Choice::Uneven | Choice::Same => (experts / 2 + i) % all,
        }
    };
    (0..n * k).map(|c| u32::try_from(one(c / k, c % k)).unwrap()).collect()
}

fn send(b: &CudaBackend, ids: &[u32]) -> Tensor {
    let bits: Vec<f32> = ids.iter().map(|id| f32::from_bits(*id)).collect();
    b.upload(&bits, [bits.len()].into()).unwrap()
}

fn orders() {
    let b = CudaBackend::new().unwrap();
    let (d, at) = (&b.device, "test");
    for (sizes @ [n, k, experts], rows) in [
        ([1, 1, 1], 8),
        ([5, 2, 3], 1),
        ([700, 2, 7], 16),
        ([40, 6, 6], 64),
        ([257, 8, 128], 64),
        ([33, 3, 300], 7),
    ] {
        for choice in [Choice::Even, Choice::Uneven, Choice::Same] {
            let ids = choices(choice, sizes);
            let [most, from, bytes] = list(n * k, experts, rows).unwrap();
            let (given, out) = (send(&b, &ids), d.tensor(at, [bytes / 4]).unwrap());
            let to = d.read(at, &out).unwrap();
            let call =
                Call::new(d, at, &GROUP, "group").at(d.read(at, &given).unwrap()).at(to).at(to + from as u64);
            let call = call.count("", n * k).count("", experts).count("", rows).count("", most);
            call.run_shared([experts, 1, 1], [SORTING, 1, 1], 4 * experts).unwrap();
            let got: Vec<u32> = b.download(&out).unwrap().iter().map(|v| v.to_bits()).collect();
            let mut order: Vec<u32> = (0..ids.len() as u32).collect();
            order.sort_by_key(|c| ids[*c as usize]);
            assert_eq!(got[..n * k], order, "{choice:?} {sizes:?}");
            let (mut tiles, mut first) = (Vec::new(), 0);
            for e in 0..experts as u32 {
                let count = ids.iter().filter(|id| **id == e).count();
                for skipped in (0..count).step_by(rows) {
                    tiles.push([e, (first + skipped) as u32, rows.min(count - skipped) as u32, 0]);
                }
                first += count;
            }
            assert!(tiles.len() <= most, "{choice:?} {sizes:?}");
            tiles.resize(most, [0; 4]);
            assert_eq!(got[from / 4..], tiles.concat(), "{choice:?} {sizes:?}");
        }
    }
}

#[test]
fn choices_are_put_in_order() {
    on(test_name!(), Nvrtc::V12, "sm_80", orders);
    on(test_name!(), Nvrtc::V11, "sm_61", orders);
}

/// Sizes of a mixture.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    n: usize,
    k: usize,
    experts: usize,
    dim: usize,
    hidden: usize,
    /// By SiLU; else squared ReLU activates.
    gated: bool,
}

/// A mixture of random weights and rows.
struct Given {
    s: Sizes,
    hosts: [HostWeight; 3],
    held: [Weight; 3],
    x: Vec<f32>,
    ids: Vec<u32>,
    shares: Vec<f32>,
}

/// A weight of numbers that sums of which stay small. FP8 has factors, for tiles that end within rows of an expert.
fn stack(format: &'static Format, seed: u64, shape @ [e, rows, cols]: [usize; 3]) -> HostWeight {
    let scale = (cols as f32).powf(-0.5);
    let values: Vec<f32> = numbers(seed, e * rows * cols).iter().map(|v| 2.0 * scale * v).collect();
    let mut bytes = vec![0; e * rows * format.row_bytes(cols)];
    for (row, to) in values.chunks(cols).zip(bytes.chunks_mut(format.row_bytes(cols))) {
        format.encode_row(row, to).unwrap();
    }
    let w = HostWeight::new("w", shape, format, bytes.into()).unwrap();
    if format != &F8_E4M3 {
        return w;
    }
    let tile = [5, 64];
    let factors =
        (0..e * rows.div_ceil(tile[0]) * cols.div_ceil(tile[1])).map(|i| 0.5 + (i % 7) as f32 / 9.0);
    w.with_scale(Scale { values: factors.collect(), tile }).unwrap()
}

impl Given {
    fn new(b: &CudaBackend, [gate, up, down]: [&'static Format; 3], choice: Choice, s: Sizes) -> Self {
        let Sizes { n, k, experts, dim, hidden, .. } = s;
        let wide = [experts, hidden, dim];
        let hosts = [stack(gate, 1, wide), stack(up, 2, wide), stack(down, 3, [experts, dim, hidden])];
        let shares = (0..n * k).map(|c| 0.1 + (c % 7) as f32 / 8.0).collect();
        let held = hosts.each_ref().map(|w| b.upload_weight(w).unwrap());
        Self { s, hosts, held, x: numbers(4, n * dim), ids: choices(choice, [n, k, experts]), shares }
    }

    /// What `compute` gives.
    fn run(&self, b: &CudaBackend, compute: impl FnOnce(&Mixture<'_>, &Tensor, &Tensor)) -> Vec<f32> {
        let (d, at, Sizes { n, k, dim, gated, .. }) = (&b.device, "test", self.s);
        let [gate, up, down] = self.held.each_ref().map(|w| weight::read(d, at, w).unwrap());
        let (gate, up, f) = match gated {
            true => (gate, Some(up), Activation::Silu),
            false => (up, None, Activation::ReluSquared),
        };
        let (ids, shares) = (send(b, &self.ids), b.upload(&self.shares, [n, k].into()).unwrap());
        let (ids, shares) = (d.read(at, &ids).unwrap(), d.read(at, &shares).unwrap());
        let (function, bias, limit) = (function(f).unwrap(), [0; 3], 0.0);
        let m = Mixture { device: d, at, n, k, ids, shares, gate, up, down, function, bias, limit };
        let (x, y) = (b.upload(&self.x, [n, dim].into()).unwrap(), d.tensor(at, [n, dim]).unwrap());
        compute(&m, &x, &y);
        b.download(&y).unwrap()
    }

    /// Plain loops over what is left of numbers in `half`.
    fn want(&self, half: &Format) -> Vec<f64> {
        let Sizes { k, dim, hidden, n, gated, .. } = self.s;
        let x = through(half, &self.x);
        let ws = self.hosts.each_ref().map(|w| through(half, &w.to_vec()));
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        let mut y = vec![0.0; n * dim];
        for (c, (id, share)) in self.ids.iter().zip(&self.shares).enumerate() {
            let (x, e) = (&x[c / k * dim..][..dim], *id as usize);
            let row = |w: usize, r: usize, cols: usize| &ws[w][r * cols..][..cols];
            let h = (0..hidden).map(|o| {
                let [g, u] = [0, 1].map(|w| dot(x, row(w, e * hidden + o, dim)));
                if gated { (g / (1.0 + (-g).exp()) * u) as f32 } else { u.max(0.0).powi(2) as f32 }
            });
            let h = through(half, &h.collect::<Vec<_>>());
            for o in 0..dim {
                y[c / k * dim + o] += f64::from(*share) * dot(&h, row(2, e * dim + o, hidden));
            }
        }
        y
    }
}

/// The error's root mean square against that of what is right.
fn error(got: &[f32], want: &[f64]) -> f64 {
    let wrong: f64 = got.iter().zip(want).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum();
    let all: f64 = want.iter().map(|v| v * v).sum();
    assert!(got.len() == want.len() && all > 0.0);
    (wrong / all).sqrt()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// One way and choice by choice, of one mixture.
fn check(b: &CudaBackend, way: Way, formats: [&'static Format; 3], choice: Choice, s: Sizes) {
    let what = format!("{way:?} {:?} {choice:?} {s:?}", formats.map(|f| f.name));
    let given = Given::new(b, formats, choice, s);
    let run = || given.run(b, |m, x, y| experts(m, way, x, y).unwrap());
    let got = run();
    assert_eq!(bits(&got), bits(&run()), "{what}: not the same bits again");
    let exact = given.want(&F32);
    let each = given.run(b, |m, x, y| {
        m.each(m.device.read(m.at, x).unwrap(), m.device.read(m.at, y).unwrap()).unwrap();
    });
    assert!(error(&each, &exact) < 1e-6, "{what}: choice by choice is off by {:e}", error(&each, &exact));
    let (half, unit) = match way {
        Way::Single => (&F32, 2f64.powi(-20)),
        Way::Halves(Compute::F16, _) => (&F16, 2f64.powi(-11)),
        Way::Halves(..) => (&BF16, 2f64.powi(-8)),
    };
    // Roundings of three products' factors, on average; and where sums that differ in their last bits are rounded apart.
    let (stated, own) = (error(&got, &exact), error(&got, &given.want(half)));
    println!("cuda: {what}: {stated:.1e}, {own:.1e} of rounded numbers");
    assert!(stated < 2.0 * unit, "{what}: off by {stated:e}");
    assert!(own < 1e-6 + 0.2 * unit, "{what}: off by {own:e} of rounded numbers");
}

/// Lengths of rows that these formats can have and that fill nothing.
fn lengths(formats: [&Format; 3]) -> [usize; 2] {
    let length = |f: &Format, plain| match f.block_len {
        // Blocks of 32 are made of it.
        1 if f == &F8_E4M3 => 96,
        1 => plain,
        32 => 96,
        len => len,
    };
    let dim = length(formats[0], 75).max(length(formats[1], 75));
    // Rows of a packed weight are whole blocks, so the other side has them too.
    [dim, length(formats[2], 43)]
}

/// Mixtures of a few shapes with these formats in turn.
fn mixtures(b: &CudaBackend, way: Way, formats: &[[&'static Format; 3]]) {
    let rows = way.rows();
    let cases = [
        (Choice::Uneven, rows + rows / 2 + 3, 2, 5),
        (Choice::Same, rows + 5, 1, 4),
        (Choice::Even, 7, 3, 3),
        (Choice::Even, rows, 1, 1),
    ];
    for (i, formats) in formats.iter().enumerate() {
        let (choice, n, k, experts) = cases[i % cases.len()];
        let [dim, hidden] = lengths(*formats);
        for gated in [true, false] {
            check(b, way, *formats, choice, Sizes { n, k, experts, dim, hidden, gated });
        }
    }
}

const USUAL: [[&Format; 3]; 8] = [
    [&Q4_K, &Q4_K, &Q6_K],
    [&MXFP4, &MXFP4, &MXFP4],
    [&F16, &F16, &F16],
    [&Q8_0, &Q8_0, &Q8_0],
    [&Q4_0, &Q4_0, &BF16],
    [&BF16, &BF16, &Q4_0],
    [&Q4_K, &Q6_K, &Q8_0],
    [&F32, &F32, &F32],
];

/// Formats whose numbers are packed here. Of the others, of few bits, the suite has mixtures.
fn written() -> impl Iterator<Item = &'static &'static Format> {
    FORMATS.iter().filter(|format| !FEW_BITS.contains(format))
}

fn single() {
    let b = CudaBackend::new().unwrap();
    mixtures(&b, Way::Single, &USUAL);
    let all: Vec<[&Format; 3]> = written().map(|f| [*f; 3]).collect();
    mixtures(&b, Way::Single, &all);
}

#[test]
fn tiles_in_single_precision() {
    on(test_name!(), Nvrtc::V12, "sm_61", single);
}

fn tiles() {
    let b = CudaBackend::new().unwrap();
    let info = b.info().clone();
    let all: Vec<[&Format; 3]> = USUAL.iter().copied().chain(written().map(|f| [*f; 3])).collect();
    let mut count = 0;
    for (i, tiles) in TABLE.iter().filter(|t| t.from <= info.capability).enumerate() {
        for compute in
            [Compute::F16, Compute::Bf16].into_iter().filter(|c| matrix::oldest(*c) <= info.capability)
        {
            // Those that an older GPU has too are tested there, with other formats.
            let most = if tiles.from == info.capability { 6 } else { 3 };
            let turn: Vec<_> = all.iter().copied().cycle().skip(7 * i + 3 * count).take(most).collect();
            let fits = |f: &[&Format; 3]| {
                let kept = f.map(|f| Kept::of(f, [false; 2], [1, 256, 256]));
                let fits = [&kept[..], &kept[1..]].map(|kept| tiles.is_for(&info, tiles.rows[0], kept));
                assert!(fits[1] || !fits[0], "without a gate it takes less");
                fits[0]
            };
            let turn: Vec<_> = turn.into_iter().filter(fits).collect();
            assert!(turn.len() > 1, "{tiles:?}");
            mixtures(&b, Way::Halves(compute, *tiles), &turn);
            count += 1;
        }
    }
    println!("cuda: {}: {count} tiles", info.name);
    assert!(count > 0);
}

#[test]
fn tiles_of_sm_80() {
    on(test_name!(), Nvrtc::V12, "sm_80", tiles);
}

#[test]
fn tiles_of_sm_90() {
    on(test_name!(), Nvrtc::V13, "sm_90", tiles);
}

#[test]
fn tiles_of_sm_75() {
    on(test_name!(), Nvrtc::V11, "sm_75", tiles);
}

/// In integers a mixture is what the products of its experts are, one by one, to the bit.
fn integers() {
    let b = CudaBackend::builder().activations(Activations::Int8).build().unwrap();
    let formats = [[&Q4_K, &Q4_K, &Q6_K], [&Q8_0, &Q4_0, &MXFP4], [&Q6_K, &Q4_K, &Q8_0], [&MXFP4; 3]];
    let cases = formats.into_iter().enumerate().flat_map(|case| [(case, true), (case, false)]);
    for ((i, formats), gated) in cases {
        let (n, k, experts) = ([1, 3, 8, 5][i], [2, 4, 1, 3][i], 4);
        let [dim, hidden] = lengths(formats);
        let s = Sizes { n, k, experts, dim: dim * 5, hidden, gated };
        let given = Given::new(&b, formats, Choice::Uneven, s);
        let got = given.run(&b, |m, x, y| m.integers(x, m.device.read(m.at, y).unwrap()).unwrap());
        // Row by row, as several at a time have another kernel.
        let rows = given.x.chunks(s.dim).map(|row| b.upload(row, [1, s.dim].into()).unwrap());
        let rows: Vec<_> = rows.collect();
        let parts: Vec<Vec<f32>> = (0..experts)
            .map(|e| {
                let [gate, up, down] = given.hosts.each_ref().map(|w| {
                    let bytes = w.shape[1] * w.row_bytes();
                    let own = w.bytes[e * bytes..][..bytes].to_vec();
                    let one = HostWeight::new("w", [1, w.shape[1], w.shape[2]], w.format, own.into());
                    b.upload_weight(&one.unwrap()).unwrap()
                });
                let part = |x: &Tensor| {
                    let h = match gated {
                        true => b.linear_gated(x, &gate, &up, Activation::Silu),
                        false => b.activate(b.linear(x, &up).unwrap(), Activation::ReluSquared),
                    };
                    let h = h.unwrap();
                    b.download(&b.linear(&h, &down).unwrap()).unwrap()
                };
                rows.iter().flat_map(part).collect()
            })
            .collect();
        let mut want = vec![0f32; n * s.dim];
        for (c, (id, share)) in given.ids.iter().zip(&given.shares).enumerate() {
            for o in 0..s.dim {
                let at = c / k * s.dim + o;
                want[at] = share.mul_add(parts[*id as usize][at], want[at]);
            }
        }
        assert_eq!(bits(&got), bits(&want), "{s:?} {:?}", formats.map(|f| f.name));
    }
}

#[test]
fn integers_are_the_products_one_by_one() {
    on(test_name!(), Nvrtc::V12, "sm_80", integers);
    on(test_name!(), Nvrtc::V11, "sm_61", integers);
}

#[test]
fn what_is_grouped_hangs_on_sizes() {
    let kept = |format: &Format, experts| {
        [[experts, 768, 2048], [experts, 768, 2048], [experts, 2048, 768]]
            .map(|shape| Kept::of(format, [false; 2], shape))
    };
    let (new, old) = (info((8, 0), 163 << 10), info((7, 0), 96 << 10));
    let w = kept(&Q4_K, 128);
    assert_eq!(way(&new, Compute::Bf16, CHOICES, [31, 8], &w), None);
    assert_eq!(way(&new, Compute::F32, CHOICES, [32, 8], &w), Some(Way::Single));
    assert_eq!(way(&new, Compute::F32, 0, [1, 8], &w), Some(Way::Single));
    assert_eq!(way(&new, Compute::F32, usize::MAX, [5000, 8], &w), None);
    assert_eq!(way(&old, Compute::F16, CHOICES, [32, 8], &w), Some(Way::Single));
    let tiles = |info: &DeviceInfo, n| match way(info, Compute::F16, CHOICES, [n, 8], &w) {
        Some(Way::Halves(Compute::F16, tiles)) => tiles.up.rows(),
        other => panic!("{other:?}"),
    };
    assert_eq!([32, 207, 208, 1039, 1040, 5000].map(|n| tiles(&new, n)), [16, 16, 64, 64, 128, 128]);
    assert_eq!(tiles(&info((7, 5), 64 << 10), 512), 64);
    // Without a gate the last weight is still down, and single precision of either counts.
    assert_eq!(way(&new, Compute::F16, CHOICES, [31, 8], &w[1..]), None);
    assert!(matches!(way(&new, Compute::F16, CHOICES, [32, 8], &w[1..]), Some(Way::Halves(..))));
    let [_, up, _] = kept(&F16, 128);
    let [.., down] = kept(&F32, 128);
    assert_eq!(way(&new, Compute::Auto, CHOICES, [32, 8], &[up, down]), Some(Way::Single));
    // A list is as long as the worst choice needs: one row more than whole tiles, for every expert.
    assert_eq!(list(128 * 17, 128, 16).unwrap()[0], 256);
    assert_eq!(list(3, 128, 16).unwrap()[0], 3);
    assert_eq!(list(usize::MAX, 128, 16), None);
}
