//! AVX-512 with VNNI: packed products, where a model spends its time.
//!
//! Sums within a block are exact, so the bits are those of AVX2 whatever the width. For many tokens one register holds
//! four codes of each of sixteen rows, and one instruction multiplies them with four broadcast activations. For few,
//! superblocks are unpacked 64 codes at a time. Dense rows for many tokens take sixteen lanes at once. All else waits for
//! memory on AVX2 already.

mod dense;
mod few;
mod many;
mod panel;

use super::avx2::{self, DENSE_FROM, SCRATCH, TILE, codes, panel::Lanes, panel_from, put, put_all, rows};
use crate::{
    linear::{Dense, Job, Packed, Tile, block_len},
    pool::Stripe,
    weight::Kernel,
};
use panel::{Both, Panel};
use std::cell::RefCell;

/// Columns that are unpacked at a time: a panel of them stays in the first cache while all tokens pass.
const SLICE: usize = 512;

thread_local! {
    /// What this thread unpacks to, and its sums; kept from run to run.
    static WIDE: RefCell<(Panel, Vec<Both<f32>>)> = RefCell::default();
}

/// Fills a stripe of the result.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn stripe(job: &Job<'_>, out: &mut Stripe<'_, f32>) {
    let format = match job.w.kernel() {
        Kernel::Packed(format) => format,
        _ if job.input.n() < DENSE_FROM => return avx2::stripe(job, out),
        Kernel::Decoded => return dense_many(job, Dense::F32, out, |r, row| job.decode_row(r, row)),
        Kernel::Dense(kind) => {
            return dense_many(job, kind, out, |r, row| avx2::dense::decode(kind, job.row(r), row));
        }
    };
    match format {
        Packed::Q4_0 => packed::<{ codes::Q4_0 }, 18>(job, out),
        Packed::Q4_1 => packed::<{ codes::Q4_1 }, 20>(job, out),
        Packed::Q5_0 => packed::<{ codes::Q5_0 }, 22>(job, out),
        Packed::Q5_1 => packed::<{ codes::Q5_1 }, 24>(job, out),
        Packed::Q8_0 => packed::<{ codes::Q8_0 }, 34>(job, out),
        Packed::Iq4Nl => packed::<{ codes::IQ4_NL }, 18>(job, out),
        Packed::Mxfp4 => packed::<{ codes::MXFP4 }, 17>(job, out),
        Packed::Q2K => packed::<{ codes::Q2_K }, 84>(job, out),
        Packed::Q3K => packed::<{ codes::Q3_K }, 110>(job, out),
        Packed::Q4K => packed::<{ codes::Q4_K }, 144>(job, out),
        Packed::Q5K => packed::<{ codes::Q5_K }, 176>(job, out),
        Packed::Q6K => packed::<{ codes::Q6_K }, 210>(job, out),
        Packed::Iq4Xs => packed::<{ codes::IQ4_XS }, 136>(job, out),
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn packed<const F: u8, const N: usize>(job: &Job<'_>, out: &mut Stripe<'_, f32>) {
    if job.input.n() >= panel_from(F) {
        packed_many::<F, N>(job, out);
    } else if codes::super_block(F) {
        packed_few::<F, N>(job, out);
    } else {
        avx2::stripe(job, out);
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn packed_few<const F: u8, const N: usize>(job: &Job<'_>, out: &mut Stripe<'_, f32>) {
    for first in (0..out.width()).step_by(avx2::few::ROWS) {
        let rows = rows(job, first, out.width());
        let x = job.input.quantised();
        let mut t = 0;
        while t < x.len() {
            t += match x[t..] {
                [ref a, ref b, ref c] => put_all(out, t, first, few::few::<F, N, 3>(rows, [a, b, c])),
                [ref a, ref b, ..] => put_all(out, t, first, few::few::<F, N, 2>(rows, [a, b])),
                [ref a, ..] => put_all(out, t, first, few::few::<F, N, 1>(rows, [a])),
                [] => 1,
            };
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn packed_many<const F: u8, const N: usize>(job: &Job<'_>, out: &mut Stripe<'_, f32>) {
    let len = if codes::super_block(F) { 256 } else { 32 };
    WIDE.with_borrow_mut(|(panel, sums)| {
        for first in (0..out.width()).step_by(panel::ROWS) {
            let rows: [&[u8]; panel::ROWS] = rows(job, first, out.width());
            sums.clear();
            sums.resize(job.input.n(), [Lanes([0.0; 16]); 2]);
            let block = block_len(rows[0].len() / N * len);
            let slice = SLICE / len * N;
            for (i, start) in (0..rows[0].len()).step_by(slice).enumerate() {
                let end = rows[0].len().min(start + slice);
                let mut part = rows;
                part.iter_mut().for_each(|row| *row = &row[start..end]);
                panel.unpack::<F, N>(&part);
                let mut rest = &mut sums[..];
                for tile in job.input.tiles() {
                    let now;
                    (now, rest) = rest.split_at_mut(tile.tokens);
                    let from = i * SLICE;
                    match tile.tokens {
                        6 => tokens::<F, 6>(panel, tile, block, from, now),
                        5 => tokens::<F, 5>(panel, tile, block, from, now),
                        4 => tokens::<F, 4>(panel, tile, block, from, now),
                        3 => tokens::<F, 3>(panel, tile, block, from, now),
                        2 => tokens::<F, 2>(panel, tile, block, from, now),
                        _ => tokens::<F, 1>(panel, tile, block, from, now),
                    }
                }
            }
            for (t, both) in sums.iter().enumerate() {
                for (to, sums) in out.row(t)[first..].chunks_mut(16).zip(both) {
                    match <&mut [f32; 16]>::try_from(&mut *to) {
                        // Of a length the compiler knows: a store and not a call.
                        Ok(to) => *to = sums.0,
                        Err(_) => to.copy_from_slice(&sums.0[..to.len()]),
                    }
                }
            }
        }
    });
}

/// Adds what one slice of the columns gives for the tokens of a tile.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn tokens<const F: u8, const T: usize>(
    panel: &Panel,
    tile: &Tile,
    block: usize,
    from: usize,
    sums: &mut [Both<f32>],
) {
    if let Some(sums) = sums.first_chunk_mut() {
        many::many::<F, T>(panel, tile, block, from, sums);
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn dense_many(job: &Job<'_>, kind: Dense, out: &mut Stripe<'_, f32>, decode: impl Fn(usize, &mut [f32])) {
    let (x, len) = job.input.dense(kind);
    let n = job.input.n();
    SCRATCH.with_borrow_mut(|(_, tile)| {
        tile.resize(TILE * len, 0.0);
        for first in (0..out.width()).step_by(TILE) {
            let count = TILE.min(out.width() - first);
            for r in 0..count {
                decode(first + r, &mut tile[r * len..][..len]);
            }
            let tile = &tile[..count * len];
            let mut t = 0;
            while t < n {
                t += match n - t {
                    4.. => dense_tokens::<4>(tile, x, len, out, t, first),
                    2 | 3 => dense_tokens::<2>(tile, x, len, out, t, first),
                    _ => dense_tokens::<1>(tile, x, len, out, t, first),
                };
            }
        }
    });
}

/// `T` tokens from `t` on times the rows of a tile; returns `T`.
#[target_feature(enable = "avx512f")]
fn dense_tokens<const T: usize>(
    tile: &[f32],
    x: &[f32],
    len: usize,
    out: &mut Stripe<'_, f32>,
    t: usize,
    first: usize,
) -> usize {
    let mut tokens = [&x[..0]; T];
    for (i, token) in tokens.iter_mut().enumerate() {
        *token = &x[(t + i) * len..][..len];
    }
    let count = tile.len() / len.max(1);
    for r in (0..count).step_by(dense::ROWS) {
        let mut rows = [&tile[..0]; dense::ROWS];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = &tile[(r + i).min(count - 1) * len..][..len];
        }
        let keep = dense::ROWS.min(count - r);
        for (i, sums) in dense::many(rows, tokens).iter().enumerate() {
            put(out, t + i, first + r, &sums[..keep]);
        }
    }
    T
}
