//! AVX-512 with VNNI: packed products of many tokens, which is where prefill spends its time.
//!
//! One register holds a code of each of sixteen rows four times over, one instruction multiplies it with four broadcast
//! activations, and the sums are exact: so the bits are those of AVX2, whose panels this unpacks. All else is AVX2's: a
//! stream through the weight waits for memory there already.

mod many;

use super::avx2::{
    self, PANEL_FROM, SCRATCH, SLICE, codes,
    panel::{self, Lanes, Panel},
    put, rows,
};
use crate::{
    linear::{Job, Packed, Quantised},
    pool::Stripe,
    weight::Kernel,
};

/// Fills a stripe of the result.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn stripe(job: &Job<'_>, out: &mut Stripe<'_, f32>) {
    let Kernel::Packed(format) = job.w.kernel() else { return avx2::stripe(job, out) };
    if job.input.n() < PANEL_FROM {
        return avx2::stripe(job, out);
    }
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
    let len = if codes::super_block(F) { 256 } else { 32 };
    let x = job.input.quantised();
    SCRATCH.with_borrow_mut(|(panel, _)| {
        for first in (0..out.width()).step_by(panel::ROWS) {
            let rows: [&[u8]; panel::ROWS] = rows(job, first, out.width());
            let slice = SLICE / len * N;
            for (i, start) in (0..rows[0].len()).step_by(slice).enumerate() {
                let end = rows[0].len().min(start + slice);
                let mut part = rows;
                part.iter_mut().for_each(|row| *row = &row[start..end]);
                panel.unpack::<F, N, true>(&part);
                let mut t = 0;
                while t < x.len() {
                    t += match x.len() - t {
                        8.. => tokens::<F, 8>(panel, x, i * SLICE, out, t, first),
                        4..8 => tokens::<F, 4>(panel, x, i * SLICE, out, t, first),
                        2 | 3 => tokens::<F, 2>(panel, x, i * SLICE, out, t, first),
                        _ => tokens::<F, 1>(panel, x, i * SLICE, out, t, first),
                    };
                }
            }
        }
    });
}

/// Carries the sums of `T` tokens from `t` on through one slice of the columns; returns `T`.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn tokens<const F: u8, const T: usize>(
    panel: &Panel,
    x: &[Quantised],
    from: usize,
    out: &mut Stripe<'_, f32>,
    t: usize,
    first: usize,
) -> usize {
    let mut sums = [Lanes([0.0; panel::ROWS]); T];
    if from > 0 {
        for (i, Lanes(s)) in sums.iter_mut().enumerate() {
            let row = &out.row(t + i)[first..];
            let len = row.len().min(s.len());
            s[..len].copy_from_slice(&row[..len]);
        }
    }
    if let Some(x) = x[t..].first_chunk() {
        many::many::<F, T>(panel, x, from, &mut sums);
    }
    for (i, Lanes(s)) in sums.iter().enumerate() {
        put(out, t + i, first, s);
    }
    T
}
