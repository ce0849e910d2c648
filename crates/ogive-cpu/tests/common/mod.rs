//! What the tests share: repeatable numbers, steps cut in different ways, and comparisons.
#![allow(dead_code)]

use ogive_backend::{Backend, Batch, BlockTable, Plan, tensor::Tensor};
use ogive_cpu::{CpuBackend, Path, Precision};

/// Repeatable numbers between -1 and 1.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }
    pub(crate) fn next(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
    pub(crate) fn vec(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.next()).collect()
    }
}

/// Every path of this machine with 1, 2 and 5 threads.
pub(crate) fn backends() -> Vec<CpuBackend> {
    let paths = Path::ALL.iter().copied().filter(|p| p.is_supported());
    paths.flat_map(|path| [1, 2, 5].map(|threads| backend(path, threads))).collect()
}

pub(crate) fn backend(path: Path, threads: usize) -> CpuBackend {
    CpuBackend::builder().path(path).threads(threads).precision(Precision::Exact).build().unwrap()
}

pub(crate) fn two_threads() -> CpuBackend {
    CpuBackend::builder().threads(2).precision(Precision::Exact).build().unwrap()
}

pub(crate) fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

/// Fails unless all are within `by` of what they should be.
pub(crate) fn close(got: &[f32], want: &[f64], by: f64) {
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((f64::from(*g) - w).abs() <= by, "element {i}: {g} and {w}");
    }
}

/// Blocks of sequence `i` in a cache where each of `of` sequences has every `of`-th block.
pub(crate) fn table(i: usize, of: usize, tokens: usize, block_len: usize) -> BlockTable {
    let blocks = (0..tokens.div_ceil(block_len)).map(|b| (b * of + i) as u32).collect();
    BlockTable { first: 0, blocks }
}

/// How many tokens each step takes of each sequence: all sequences of `lens` at once, in pieces of at most `piece`.
pub(crate) fn schedule(lens: &[usize], piece: usize) -> Vec<Vec<(usize, usize, usize)>> {
    let steps = lens.iter().map(|n| n.div_ceil(piece)).max().unwrap_or(0);
    let at = |step: usize| {
        let of = |(i, &n): (usize, &usize)| {
            let past = step * piece;
            (past < n).then(|| (i, past, piece.min(n - past)))
        };
        lens.iter().enumerate().filter_map(of).collect()
    };
    (0..steps).map(at).collect()
}

/// A step of `(sequence, past, rows)`, with the rows of each input taken from its sequence.
pub(crate) fn step(
    b: &dyn Backend,
    parts: &[(usize, usize, usize)],
    total: usize,
    lens: &[usize],
    block_len: usize,
    groups: usize,
) -> Plan {
    let mut batch = Batch::default();
    for &(i, past, len) in parts {
        let tables = vec![table(i, total, lens[i], block_len); groups];
        let slots = [2 * i as u32 + (past.div_ceil(len) % 2) as u32; 2];
        batch.push(&vec![0; len], past, tables, slots);
    }
    b.plan(batch).unwrap()
}

/// Rows of a step of a sequence-wise input `[sequence][tokens * width]`.
pub(crate) fn rows(
    b: &dyn Backend,
    of: &[Vec<f32>],
    parts: &[(usize, usize, usize)],
    shape: &[usize],
) -> Tensor {
    let width: usize = shape.iter().product();
    let mut values = Vec::new();
    for &(i, past, len) in parts {
        values.extend_from_slice(&of[i][past * width..(past + len) * width]);
    }
    let n = values.len() / width;
    match *shape {
        [w] => b.upload(&values, [n, w].into()).unwrap(),
        [h, w] => b.upload(&values, [n, h, w].into()).unwrap(),
        _ => panic!("one or two extents"),
    }
}

/// Spreads a step's result back to its sequences.
pub(crate) fn collect(into: &mut [Vec<f32>], parts: &[(usize, usize, usize)], values: &[f32]) {
    let n: usize = parts.iter().map(|p| p.2).sum();
    let width = values.len() / n;
    let mut row = 0;
    for &(i, _, len) in parts {
        into[i].extend_from_slice(&values[row * width..(row + len) * width]);
        row += len;
    }
}
