//! AVX2 with FMA and F16C, with and without VNNI: which kernel a stripe of a product takes, and the loops around it.
//!
//! A few tokens stream through the packed weight; more have a panel of rows unpacked for them. Both give the same
//! bits, so where one takes over from the other is a matter of speed alone.

pub(super) mod ahead;
pub(super) mod book;
mod book_panel;
mod book_stream;
pub(super) mod book_strip;
pub(super) mod codes;
pub(super) mod columns;
pub(super) mod dense;
pub(super) mod few;
pub(super) mod float8;
mod many;
pub(super) mod panel;
mod quantise;
mod stream;
mod strip;
pub(super) mod vnni;

pub(super) use quantise::quantise;

use crate::{
    linear::{CODED, Dense, Job, LANES, Packed, Quads, Quantised, STRIP, TILE, lay, pack},
    pool::Stripe,
    weight::Kernel,
};
use ahead::Ahead;
use panel::{Lanes, Panel};
use std::cell::RefCell;

/// From so many tokens on, rows are unpacked for them.
pub(super) const DENSE_FROM: usize = 4;

/// The same for packed rows; scales of 16 elements make unpacking dearer, and NVFP4 is laid in strips before.
const fn panel_from(f: u8) -> usize {
    match codes::elements(f) {
        16 => 8,
        _ if codes::fine(f) => 6,
        _ => 4,
    }
}

/// The same for strips, by measurement, of weights that come from memory: a stream waits less for them than whoever unpacks first. For Q8_0
/// unpacking never pays, and where little has to be done for a code, VNNI leaves more of a share to it.
const fn panel_from_strips(v: u8, f: u8) -> usize {
    match (v, f) {
        (_, codes::Q8_0) => usize::MAX,
        (_, codes::Q3_K) => 10,
        (vnni::VEX | vnni::EVEX, codes::Q4_0 | codes::Q4_1 | codes::Q2_K | codes::Q4_K | codes::TQ2) => 32,
        (vnni::VEX | vnni::EVEX, codes::Q5_0 | codes::Q5_1 | codes::MXFP4 | codes::NVFP4) => 10,
        _ => 16,
    }
}

/// Columns that are unpacked at a time: 16 rows of them fit the first cache.
pub(super) const SLICE: usize = 2048;

/// What a thread unpacks to, kept from run to run.
#[derive(Default)]
struct Scratch {
    panel: Panel,
    tile: Vec<Quads>,
    row: Vec<f32>,
    /// A part of a strip of NVFP4, whose rows are unpacked in no other form.
    laid: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Fills a stripe of the result. `V` says which encoding of VNNI is used ([`vnni`]), if any.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn stripe<const V: u8>(job: &Job<'_>, out: &mut Stripe<'_>) {
    let n = job.input.n();
    match job.kernel() {
        Kernel::Float8 if job.strip(0).is_some() => float8::stripe(job, out),
        Kernel::Decoded | Kernel::Float8 => dense_many(job, Dense::F32, out, |r, row| job.decode_row(r, row)),
        Kernel::Dense(kind) if job.strip(0).is_some() => columns::stripe(job, kind, out),
        Kernel::Dense(kind) if n >= DENSE_FROM => {
            dense_many(job, kind, out, |r, row| dense::decode(kind, job.row(r), row));
        }
        Kernel::Dense(Dense::F32) => dense_few::<{ dense::F32 }, 32>(job, Dense::F32, out),
        Kernel::Dense(Dense::F16) => dense_few::<{ dense::F16 }, 16>(job, Dense::F16, out),
        Kernel::Dense(Dense::Bf16) => dense_few::<{ dense::BF16 }, 16>(job, Dense::Bf16, out),
        Kernel::Tiled => crate::linear::scalar::stripe(job, out), // AMX has them, and its twin
        Kernel::Coded(book) => book_stream::stripe::<V>(job, book, out), // others are unpacked before
        Kernel::Packed(format) => match format {
            Packed::Q4_0 => packed::<V, { codes::Q4_0 }, 18>(job, out),
            Packed::Q4_1 => packed::<V, { codes::Q4_1 }, 20>(job, out),
            Packed::Q5_0 => packed::<V, { codes::Q5_0 }, 22>(job, out),
            Packed::Q5_1 => packed::<V, { codes::Q5_1 }, 24>(job, out),
            Packed::Q8_0 => packed::<V, { codes::Q8_0 }, 34>(job, out),
            Packed::Iq4Nl => packed::<V, { codes::IQ4_NL }, 18>(job, out),
            Packed::Mxfp4 => packed::<V, { codes::MXFP4 }, 17>(job, out),
            Packed::Nvfp4 => packed::<V, { codes::NVFP4 }, 9>(job, out),
            Packed::Q2K => packed::<V, { codes::Q2_K }, 84>(job, out),
            Packed::Q3K => packed::<V, { codes::Q3_K }, 110>(job, out),
            Packed::Q4K => packed::<V, { codes::Q4_K }, 144>(job, out),
            Packed::Q5K => packed::<V, { codes::Q5_K }, 176>(job, out),
            Packed::Q6K => packed::<V, { codes::Q6_K }, 210>(job, out),
            Packed::Iq4Xs => packed::<V, { codes::IQ4_XS }, 136>(job, out),
            Packed::Tq2 => packed::<V, { codes::TQ2 }, 66>(job, out),
            Packed::Coded => packed::<V, { codes::CODED }, CODED>(job, out),
        },
    }
}

/// Rows from `first` on; beyond the stripe's end its last row stands in, and its results are dropped.
pub(super) fn rows<'a, const R: usize>(job: &'a Job<'_>, first: usize, width: usize) -> [&'a [u8]; R] {
    std::array::from_fn(|r| job.row((first + r).min(width - 1)))
}

/// Writes what a kernel found for rows from `first` on.
pub(super) fn put(out: &mut Stripe<'_>, t: usize, first: usize, values: &[f32]) {
    let to = &mut out.row(t)[first..];
    let len = to.len().min(values.len());
    to[..len].copy_from_slice(&values[..len]);
}

/// Writes what a kernel found for `T` tokens from `t` on; returns `T`.
pub(super) fn put_all<const R: usize, const T: usize>(
    out: &mut Stripe<'_>,
    t: usize,
    first: usize,
    values: [[f32; R]; T],
) -> usize {
    values.iter().enumerate().for_each(|(i, v)| put(out, t + i, first, v));
    T
}

#[target_feature(enable = "avx2,fma,f16c")]
fn packed<const V: u8, const F: u8, const N: usize>(job: &Job<'_>, out: &mut Stripe<'_>) {
    let n = job.input.n();
    match job.strip(0) {
        Some(_) if n < panel_from_strips(V, F) => streamed::<V, F, N>(job, out),
        None if n < panel_from(F) => packed_few::<V, F, N>(job, out),
        _ => packed_many::<V, F, N>(job, out),
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn streamed<const V: u8, const F: u8, const N: usize>(job: &Job<'_>, out: &mut Stripe<'_>) {
    for first in (0..out.width()).step_by(STRIP) {
        let Some(strip) = job.strip(first) else { return };
        let x = job.input.quantised();
        let mut t = 0;
        while t < x.len() {
            // As equal pieces as there can be.
            let pieces = (x.len() - t).div_ceil(stream::TOKENS);
            t += match x[t..][..(x.len() - t) / pieces] {
                [ref a, ref b, ref c, ref d] => {
                    put_all(out, t, first, stream::stream::<V, F, N, 4>(strip, [a, b, c, d]))
                }
                [ref a, ref b, ref c] => {
                    put_all(out, t, first, stream::stream::<V, F, N, 3>(strip, [a, b, c]))
                }
                [ref a, ref b] => put_all(out, t, first, stream::stream::<V, F, N, 2>(strip, [a, b])),
                [ref a, ..] => put_all(out, t, first, stream::stream::<V, F, N, 1>(strip, [a])),
                [] => 1,
            };
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn packed_few<const V: u8, const F: u8, const N: usize>(job: &Job<'_>, out: &mut Stripe<'_>) {
    for first in (0..out.width()).step_by(few::ROWS) {
        let rows = rows(job, first, out.width());
        let x = job.input.quantised();
        let mut t = 0;
        while t < x.len() {
            t += match x[t..] {
                [ref a, ref b, ref c] => put_all(out, t, first, few::few::<V, F, N, 3>(rows, [a, b, c])),
                [ref a, ref b, ..] => put_all(out, t, first, few::few::<V, F, N, 2>(rows, [a, b])),
                [ref a, ..] => put_all(out, t, first, few::few::<V, F, N, 1>(rows, [a])),
                [] => 1,
            };
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn packed_many<const V: u8, const F: u8, const N: usize>(job: &Job<'_>, out: &mut Stripe<'_>) {
    let len = codes::elements(F);
    SCRATCH.with_borrow_mut(|Scratch { panel, laid, .. }| {
        for first in (0..out.width()).step_by(panel::ROWS) {
            let strip = job.strip(first);
            let rows: [&[u8]; panel::ROWS] = match strip {
                Some(_) => [&[]; panel::ROWS],
                None => rows(job, first, out.width()),
            };
            let (row, slice) = (strip.map_or(rows[0].len(), |strip| strip.len() / STRIP), SLICE / len * N);
            for (i, start) in (0..row).step_by(slice).enumerate() {
                let end = row.min(start + slice);
                let mut next = None;
                match strip {
                    Some(strip) => {
                        let part = &strip[start * STRIP..end * STRIP];
                        panel.unpack_strip::<F, N>(part);
                        next = Some(Ahead::after(part));
                    }
                    None if len == 16 => {
                        laid.resize(STRIP * (end - start), 0);
                        pack(Packed::Nvfp4, &std::array::from_fn(|r| &rows[r][start..end]), laid);
                        panel.unpack_strip::<F, N>(laid);
                    }
                    None => panel.unpack::<F, N>(&std::array::from_fn(|r| &rows[r][start..end])),
                }
                meet::<V, F>(panel, job, next, i * SLICE, out, first);
            }
        }
    });
}

/// Carries the sums of all tokens, for rows from `first` on, through a panel of the columns from `from` on. What is `next` is asked for meanwhile.
#[target_feature(enable = "avx2,fma")]
fn meet<const V: u8, const F: u8>(
    panel: &Panel,
    job: &Job<'_>,
    next: Option<Ahead>,
    from: usize,
    out: &mut Stripe<'_>,
    first: usize,
) {
    let (fours, rest) = job.input.quantised().as_chunks::<{ many::TOKENS }>();
    let mut t = 0;
    for (step, x) in fours.iter().enumerate() {
        if let Some(next) = next {
            next.ask(step, fours.len());
        }
        tokens::<V, F, 4>(panel, x.each_ref(), from, out, t, first);
        t += many::TOKENS;
    }
    match rest {
        [a] => tokens::<V, F, 1>(panel, [a], from, out, t, first),
        [a, b] => tokens::<V, F, 2>(panel, [a, b], from, out, t, first),
        [a, b, c] => tokens::<V, F, 3>(panel, [a, b, c], from, out, t, first),
        _ => {}
    }
}

/// Carries the sums of some tokens through one slice of the columns.
#[target_feature(enable = "avx2,fma")]
fn tokens<const V: u8, const F: u8, const T: usize>(
    panel: &Panel,
    x: [&Quantised; T],
    from: usize,
    out: &mut Stripe<'_>,
    t: usize,
    first: usize,
) {
    let mut sums = [Lanes([0.0; panel::ROWS]); T];
    if from > 0 {
        for (i, Lanes(s)) in sums.iter_mut().enumerate() {
            let row = &out.row(t + i)[first..];
            let len = row.len().min(s.len());
            s[..len].copy_from_slice(&row[..len]);
        }
    }
    many::many::<V, F, T>(panel, x, from, &mut sums);
    for (i, Lanes(s)) in sums.iter().enumerate() {
        put(out, t + i, first, s);
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn dense_few<const W: u8, const BYTES: usize>(job: &Job<'_>, kind: Dense, out: &mut Stripe<'_>) {
    let (x, len) = job.input.dense(kind);
    let n = job.input.n();
    for first in (0..out.width()).step_by(dense::ROWS) {
        let rows = rows(job, first, out.width());
        for t in (0..n).step_by(2) {
            match n - t {
                1 => put_all(out, t, first, dense::few::<W, BYTES, 1>(kind, rows, rows_of(x, len, t))),
                _ => put_all(out, t, first, dense::few::<W, BYTES, 2>(kind, rows, rows_of(x, len, t))),
            };
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn dense_many(job: &Job<'_>, kind: Dense, out: &mut Stripe<'_>, decode: impl Fn(usize, &mut [f32])) {
    let (x, len) = job.input.dense(kind);
    let n = job.input.n();
    dense_tiles(len, out.width(), decode, |first, tile| {
        for t in (0..n).step_by(3) {
            match n - t {
                1 => put_all(out, t, first, dense::many(tile, rows_of::<1>(x, len, t))),
                2 => put_all(out, t, first, dense::many(tile, rows_of::<2>(x, len, t))),
                _ => put_all(out, t, first, dense::many(tile, rows_of::<3>(x, len, t))),
            };
        }
    });
}

/// Decodes a stripe's rows, of `len` elements with what they are padded with, and lays them side by side: calls `each` with the first
/// row of a tile and the tile, tile after tile. What stands for rows that there are not is to be dropped.
#[inline(always)] // and compiled with the instructions of whoever calls it
pub(super) fn dense_tiles(
    len: usize,
    width: usize,
    decode: impl Fn(usize, &mut [f32]),
    mut each: impl FnMut(usize, &[Quads]),
) {
    SCRATCH.with_borrow_mut(|Scratch { tile, row, .. }| {
        tile.resize(len / LANES, [[0.0; LANES]; TILE]);
        // Zeros: what rows are padded with is not decoded, and may not be what another weight's decoded to.
        row.clear();
        row.resize(len, 0.0);
        for first in (0..width).step_by(TILE) {
            for r in 0..TILE.min(width - first) {
                decode(first + r, row);
                lay(row, r, tile);
            }
            each(first, tile);
        }
    });
}

/// `T` tokens' rows of `len` from `t` on.
pub(super) fn rows_of<const T: usize>(x: &[f32], len: usize, t: usize) -> [&[f32]; T] {
    std::array::from_fn(|i| &x[(t + i) * len..][..len])
}
