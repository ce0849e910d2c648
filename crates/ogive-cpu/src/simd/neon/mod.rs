//! 64-bit ARM: which kernel a stripe of a product takes, and the loops around it.
//!
//! A register holds four codes of each of four rows, and `sdot` multiplies them with four activations that stand in one lane of
//! another: weights in strips are made for it. Weights that lie as the file has them are laid in strips on the way, so that there
//! is one way to read a format. One and two tokens stream through the packed weight ([`stream`]); more have a panel of rows
//! unpacked for them ([`many`]). [`dot`] has the three ways to multiply.

mod asm;
mod dense;
mod dot;
mod many;
mod panel;
mod quantise;
mod stream;
mod strip;

pub(super) use asm::widen;
pub(super) use dot::{Dot, Dotprod, I8mm, Plain};
pub(super) use quantise::quantise;

use super::formats as f;
use crate::{
    linear::{CODED, Dense, Job, Packed, Quantised, STRIP, block_len, pack},
    pool::Stripe,
    weight::Kernel,
};
use many::TOKENS;
use panel::Panel;
use std::cell::RefCell;

/// Up to so many tokens stream through a packed weight.
const FEW: usize = 2;
/// From so many tokens on, dense rows are decoded for them.
const DENSE_FROM: usize = 4;
/// Dense rows decoded at a time.
const TILE: usize = 16;
/// Panels that tokens pass together.
const PANELS: usize = 4;
/// Columns that are unpacked at a time: four panels of them take 16 KiB and stay in the first cache while all tokens pass.
const SLICE: usize = 512;

/// What a thread keeps from run to run.
#[derive(Default)]
struct Scratch {
    panels: [Panel; PANELS],
    /// `[tokens]`
    sums: Vec<[[f32; panel::ROWS]; PANELS]>,
    /// Strips of a weight that does not lie so.
    strips: Vec<u8>,
    /// Decoded rows.
    rows: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Fills a stripe of the result.
#[target_feature(enable = "neon")]
pub(super) fn stripe<D: Dot>(d: D, job: &Job<'_>, out: &mut Stripe<'_>) {
    match job.kernel() {
        Kernel::Decoded | Kernel::Float8 => dense_many(job, Dense::F32, out, |r, row| job.decode_row(r, row)),
        Kernel::Dense(kind) if job.input.n() >= DENSE_FROM => {
            dense_many(job, kind, out, |r, row| dense::decode(kind, job.row(r), row));
        }
        Kernel::Dense(Dense::F32) => dense_few::<{ dense::F32 }, 32>(job, Dense::F32, out),
        Kernel::Dense(Dense::F16) => dense_few::<{ dense::F16 }, 16>(job, Dense::F16, out),
        Kernel::Dense(Dense::Bf16) => dense_few::<{ dense::BF16 }, 16>(job, Dense::Bf16, out),
        Kernel::Tiled => crate::linear::scalar::stripe(job, out), // AMX has them, and its twin
        Kernel::Coded(_) => {}                                    // is unpacked before
        Kernel::Packed(format) => match format {
            Packed::Q4_0 => packed::<D, { f::Q4_0 }, 18>(d, job, format, out),
            Packed::Q4_1 => packed::<D, { f::Q4_1 }, 20>(d, job, format, out),
            Packed::Q5_0 => packed::<D, { f::Q5_0 }, 22>(d, job, format, out),
            Packed::Q5_1 => packed::<D, { f::Q5_1 }, 24>(d, job, format, out),
            Packed::Q8_0 => packed::<D, { f::Q8_0 }, 34>(d, job, format, out),
            Packed::Iq4Nl => packed::<D, { f::IQ4_NL }, 18>(d, job, format, out),
            Packed::Mxfp4 => packed::<D, { f::MXFP4 }, 17>(d, job, format, out),
            Packed::Nvfp4 => {} // is decoded: `Packed::is_multiplied`
            Packed::Q2K => packed::<D, { f::Q2_K }, 84>(d, job, format, out),
            Packed::Q3K => packed::<D, { f::Q3_K }, 110>(d, job, format, out),
            Packed::Q4K => packed::<D, { f::Q4_K }, 144>(d, job, format, out),
            Packed::Q5K => packed::<D, { f::Q5_K }, 176>(d, job, format, out),
            Packed::Q6K => packed::<D, { f::Q6_K }, 210>(d, job, format, out),
            Packed::Iq4Xs => packed::<D, { f::IQ4_XS }, 136>(d, job, format, out),
            Packed::Tq2 => packed::<D, { f::TQ2 }, 66>(d, job, format, out),
            Packed::Coded => packed::<D, { f::CODED }, CODED>(d, job, format, out),
        },
    }
}

#[target_feature(enable = "neon")]
fn packed<D: Dot, const F: u8, const N: usize>(d: D, job: &Job<'_>, format: Packed, out: &mut Stripe<'_>) {
    SCRATCH.with_borrow_mut(|scratch| {
        let mut strips = std::mem::take(&mut scratch.strips);
        for first in (0..out.width()).step_by(2 * STRIP) {
            // Where the stripe ends, the first strip stands in for the second, and its results are dropped.
            let second = if first + STRIP < out.width() { first + STRIP } else { first };
            let both = match (job.strip(first), job.strip(second)) {
                (Some(low), Some(high)) => [low, high],
                _ => lay(job, format, [first, second], out.width(), &mut strips),
            };
            if job.input.n() <= FEW {
                streamed::<D, F, N>(d, job, both, first, out);
            } else {
                panelled::<D, F, N>(d, job, both, first, scratch, out);
            }
        }
        scratch.strips = strips;
    });
}

/// Lays the rows from two on in strips; beyond the stripe's end its last row stands in.
fn lay<'a>(
    job: &Job<'_>,
    format: Packed,
    first: [usize; 2],
    width: usize,
    strips: &'a mut Vec<u8>,
) -> [&'a [u8]; 2] {
    let len = STRIP * job.row(first[0]).len();
    strips.resize(2 * len, 0);
    let (low, high) = strips.split_at_mut(len);
    for (strip, first) in [&mut *low, &mut *high].into_iter().zip(first) {
        pack(format, &std::array::from_fn(|r| job.row((first + r).min(width - 1))), strip);
    }
    [low, high]
}

#[target_feature(enable = "neon")]
fn streamed<D: Dot, const F: u8, const N: usize>(
    d: D,
    job: &Job<'_>,
    strips: [&[u8]; 2],
    first: usize,
    out: &mut Stripe<'_>,
) {
    for (i, strip) in strips.into_iter().enumerate() {
        let first = first + i * STRIP;
        if first >= out.width() {
            return;
        }
        match job.input.quantised() {
            [a, b] => {
                let block = block_len(a.codes.len());
                let [a, b] = stream::stream::<D::Few, F, N, 2>(d.few(), strip, [a, b], block);
                put(out, 0, first, &a);
                put(out, 1, first, &b);
            }
            each => {
                for (t, a) in each.iter().enumerate() {
                    let block = block_len(a.codes.len());
                    put(out, t, first, &stream::stream::<D::Few, F, N, 1>(d.few(), strip, [a], block)[0]);
                }
            }
        }
    }
}

#[target_feature(enable = "neon")]
fn panelled<D: Dot, const F: u8, const N: usize>(
    d: D,
    job: &Job<'_>,
    strips: [&[u8]; 2],
    first: usize,
    Scratch { panels, sums, .. }: &mut Scratch,
    out: &mut Stripe<'_>,
) {
    let x = job.input.quantised();
    let count = (out.width() - first).div_ceil(panel::ROWS).min(PANELS);
    sums.clear();
    sums.resize(x.len(), [[0.0; panel::ROWS]; PANELS]);
    let slice = SLICE / strip::elements(F) * N * STRIP;
    for (i, start) in (0..strips[0].len()).step_by(slice).enumerate() {
        let end = strips[0].len().min(start + slice);
        for (i, panel) in panels[..count].iter_mut().enumerate() {
            panel.unpack::<D, F, N>(&strips[i / 2][start..end], i % 2 == 1);
        }
        for (x, sums) in x.chunks(TOKENS).zip(sums.chunks_mut(TOKENS)) {
            for (p, panel) in panels[..count].iter().enumerate() {
                let from = i * SLICE;
                match (x, &mut *sums) {
                    ([a, b, c, e], [i, j, k, l]) => {
                        let to = [&mut i[p], &mut j[p], &mut k[p], &mut l[p]];
                        tokens::<D, F, 4>(d, panel, [a, b, c, e], from, to);
                    }
                    ([a, b, c], [i, j, k]) => {
                        tokens::<D, F, 3>(d, panel, [a, b, c], from, [&mut i[p], &mut j[p], &mut k[p]]);
                    }
                    ([a, b], [i, j]) => tokens::<D, F, 2>(d, panel, [a, b], from, [&mut i[p], &mut j[p]]),
                    ([a], [i]) => tokens::<D, F, 1>(d, panel, [a], from, [&mut i[p]]),
                    _ => {}
                }
            }
        }
    }
    for (t, sums) in sums.iter().enumerate() {
        put(out, t, first, sums.as_flattened());
    }
}

/// Adds what one slice of the columns gives for a few tokens.
#[target_feature(enable = "neon")]
fn tokens<D: Dot, const F: u8, const T: usize>(
    d: D,
    panel: &Panel,
    x: [&Quantised; T],
    from: usize,
    sums: [&mut [f32; panel::ROWS]; T],
) {
    let block = block_len(x[0].codes.len());
    match strip::parts(F) {
        1 => many::many::<D, 1, T>(d, panel, x, block, from, sums),
        8 => many::many::<D, 8, T>(d, panel, x, block, from, sums),
        _ => many::many::<D, 16, T>(d, panel, x, block, from, sums),
    }
}

/// Writes what a kernel found for rows from `first` on.
fn put(out: &mut Stripe<'_>, t: usize, first: usize, values: &[f32]) {
    let to = &mut out.row(t)[first..];
    let len = to.len().min(values.len());
    to[..len].copy_from_slice(&values[..len]);
}

#[target_feature(enable = "neon")]
fn dense_few<const W: u8, const BYTES: usize>(job: &Job<'_>, kind: Dense, out: &mut Stripe<'_>) {
    let (x, len) = job.input.dense(kind);
    let n = job.input.n();
    for first in (0..out.width()).step_by(dense::ROWS) {
        let rows = std::array::from_fn(|r| job.row((first + r).min(out.width() - 1)));
        for t in (0..n).step_by(3) {
            match n - t {
                1 => put_rows(out, t, first, dense::few::<W, BYTES, 1>(kind, rows, rows_of(x, len, t))),
                2 => put_rows(out, t, first, dense::few::<W, BYTES, 2>(kind, rows, rows_of(x, len, t))),
                _ => put_rows(out, t, first, dense::few::<W, BYTES, 3>(kind, rows, rows_of(x, len, t))),
            }
        }
    }
}

#[target_feature(enable = "neon")]
fn dense_many(job: &Job<'_>, kind: Dense, out: &mut Stripe<'_>, decode: impl Fn(usize, &mut [f32])) {
    let (x, len) = job.input.dense(kind);
    let n = job.input.n();
    SCRATCH.with_borrow_mut(|Scratch { rows, .. }| {
        // Zeros: what rows are padded with is not decoded, and may not be what another weight's decoded to.
        rows.clear();
        rows.resize(TILE * len, 0.0);
        for first in (0..out.width()).step_by(TILE) {
            let count = TILE.min(out.width() - first);
            for r in 0..count {
                decode(first + r, &mut rows[r * len..][..len]);
            }
            let row = |r: usize| &rows[r.min(count - 1) * len..][..len];
            for t in (0..n).step_by(3) {
                for r in (0..count).step_by(dense::ROWS) {
                    let w = std::array::from_fn(|i| row(r + i));
                    match n - t {
                        1 => put_rows(out, t, first + r, dense::many(w, rows_of::<1>(x, len, t))),
                        2 => put_rows(out, t, first + r, dense::many(w, rows_of::<2>(x, len, t))),
                        _ => put_rows(out, t, first + r, dense::many(w, rows_of::<3>(x, len, t))),
                    }
                }
            }
        }
    });
}

/// `T` tokens' rows of `len` from `t` on.
fn rows_of<const T: usize>(x: &[f32], len: usize, t: usize) -> [&[f32]; T] {
    std::array::from_fn(|i| &x[(t + i) * len..][..len])
}

/// Writes what dense rows from `first` on gave for tokens from `t` on; a stripe ends where its rows do.
fn put_rows<const T: usize>(out: &mut Stripe<'_>, t: usize, first: usize, values: [[f32; dense::ROWS]; T]) {
    values.iter().enumerate().for_each(|(i, v)| put(out, t + i, first, v));
}
