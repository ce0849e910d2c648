//! The best elements of a row, without copying the row.

use super::read;
use crate::CpuBackend;
use ogive_backend::best_of;
use ogive_tensor::{Result, Tensor};

/// What decides: a NaN counts as the least, and both zeros are equal.
fn key(v: f32) -> f32 {
    if v.is_nan() { f32::NEG_INFINITY } else { v }
}

pub(crate) fn argmax(b: &CpuBackend, x: &Tensor) -> Result<Vec<u32>> {
    let (values, cols) = (read("argmax", x)?, x.shape().cols());
    let mut out = vec![0u32; x.shape().rows()];
    if cols == 0 {
        return Ok(out);
    }
    let each = (1usize << 15).div_ceil(cols);
    b.pool.chunks(&mut out, each, &|i, part| {
        for (o, row) in part.iter_mut().zip(values[i * each * cols..].chunks_exact(cols)) {
            // The largest value first, in a loop that vectorises; then where it stands.
            let top = row.iter().fold(f32::NEG_INFINITY, |m, &v| if v > m { v } else { m });
            *o = row.iter().position(|&v| key(v) == top).unwrap_or(0) as u32;
        }
    });
    Ok(out)
}

pub(crate) fn best(b: &CpuBackend, x: &Tensor, k: usize) -> Result<Vec<Vec<(u32, f32)>>> {
    let (values, cols) = (read("best", x)?, x.shape().cols());
    let mut out = vec![Vec::new(); if cols == 0 { 0 } else { x.shape().rows() }];
    b.pool.chunks(&mut out, 1, &|i, part| {
        part.iter_mut().for_each(|o| *o = best_of_few(&values[i * cols..][..cols], k));
    });
    Ok(out)
}

/// `best_of`, looking first for a bound that lets most of a long row be left out.
fn best_of_few(row: &[f32], k: usize) -> Vec<(u32, f32)> {
    const PART: usize = 64;
    let parts = row.len() / PART;
    if k == 0 || k > parts {
        return best_of(row, k);
    }
    // Of `parts` maxima the k-th largest is reached or passed by at least k elements, so nothing below it is wanted.
    let mut tops: Vec<f32> = row
        .chunks(PART)
        .map(|part| part.iter().fold(f32::NEG_INFINITY, |m, &v| if v > m { v } else { m }))
        .collect();
    let (_, bound, _) = tops.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
    let bound = *bound;
    let (ids, kept): (Vec<u32>, Vec<f32>) =
        (0..).zip(row).filter(|(_, v)| key(**v) >= bound).map(|(i, v)| (i, *v)).unzip();
    best_of(&kept, k).into_iter().map(|(i, v)| (ids[i as usize], v)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_backend::Backend;

    #[test]
    fn agrees_with_the_definition() {
        let b = CpuBackend::builder().threads(2).build().unwrap();
        let mut rows: Vec<Vec<f32>> = (0..5u32)
            .map(|r| (0..1000u32).map(|i| ((i * 7919 + r * 31) % 257) as f32 - 128.0).collect())
            .collect();
        rows[1][500] = f32::NAN;
        rows[2].fill(f32::NAN);
        rows[3].fill(-0.0);
        rows[3][70] = 0.0;
        rows[4][3] = f32::INFINITY;
        let x = b.upload(&rows.concat(), [5, 1000].into()).unwrap();
        for k in [0, 1, 3, 15, 16, 999, 1000, 2000] {
            let bits = |best: Vec<(u32, f32)>| -> Vec<(u32, u32)> {
                best.into_iter().map(|(i, v)| (i, v.to_bits())).collect()
            };
            for (got, row) in best(&b, &x, k).unwrap().into_iter().zip(&rows) {
                assert_eq!(bits(got), bits(best_of(row, k)), "k {k}");
            }
        }
        let want: Vec<u32> = rows.iter().map(|row| best_of(row, 1)[0].0).collect();
        assert_eq!(argmax(&b, &x).unwrap(), want);
    }
}
