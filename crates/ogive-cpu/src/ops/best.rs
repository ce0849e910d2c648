//! The best elements of a row, without copying the row.

use super::read;
use crate::CpuBackend;
use ogive_backend::best_of;
use ogive_tensor::{Result, Tensor};

/// What decides: a NaN counts as the least, and both zeros are equal.
pub(super) fn key(v: f32) -> f32 {
    if v.is_nan() { f32::NEG_INFINITY } else { v }
}

pub(crate) fn argmax(b: &CpuBackend, x: &Tensor) -> Result<Vec<u32>> {
    let (values, cols) = (read("argmax", x)?, x.shape().cols());
    if cols == 0 {
        // As the definition has it: rows of nothing have no largest.
        return Ok(Vec::new());
    }
    let mut out = vec![0u32; x.shape().rows()];
    let each = (1usize << 15).div_ceil(cols);
    b.pool.chunks(&mut out, each, &|i, part| {
        for (o, row) in part.iter_mut().zip(values[i * each * cols..].chunks_exact(cols)) {
            *o = largest(row) as u32;
        }
    });
    Ok(out)
}

/// Where the largest element stands, the first of equals. The largest value of each part is found in a loop that vectorises, and only one
/// part is looked at again.
fn largest(row: &[f32]) -> usize {
    const PART: usize = 1 << 12;
    let (mut part, mut top) = (0, f32::NEG_INFINITY);
    for (i, values) in row.chunks(PART).enumerate() {
        let here = top_of(values);
        if here > top {
            (part, top) = (i, here);
        }
    }
    // Where nothing is above negative infinity, the first element is as good as any.
    let first = part * PART;
    first + row[first..].iter().position(|&v| key(v) == top).unwrap_or(0)
}

/// The largest value; negative infinity where there is no number.
fn top_of(values: &[f32]) -> f32 {
    values.iter().fold(f32::NEG_INFINITY, |m, &v| if v > m { v } else { m })
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
    // Of `parts` maxima the k-th largest is reached or passed by at least k elements, so nothing below it is wanted, nor any part that ends
    // below it.
    let tops: Vec<f32> = row.chunks(PART).map(top_of).collect();
    let mut sorted = tops.clone();
    let (_, bound, _) = sorted.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
    let bound = *bound;
    let wanted = (0u32..).step_by(PART).zip(row.chunks(PART)).zip(tops).filter(|(_, top)| *top >= bound);
    let elements = wanted.flat_map(|((first, part), _)| (first..).zip(part));
    let (ids, kept): (Vec<u32>, Vec<f32>) =
        elements.filter(|(_, v)| key(**v) >= bound).map(|(i, v)| (i, *v)).unzip();
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
        // Long enough that the best stands in a later part of `largest`, twice.
        rows.iter_mut().for_each(|row| row.resize(10_000, -200.0));
        (rows[0][7_000], rows[0][9_000]) = (500.0, 500.0);
        rows[2].fill(f32::NAN);
        let x = b.upload(&rows.concat(), [5, 10_000].into()).unwrap();
        for k in [0, 1, 3, 156, 157, 999, 10_000, 20_000] {
            let bits = |best: Vec<(u32, f32)>| -> Vec<(u32, u32)> {
                best.into_iter().map(|(i, v)| (i, v.to_bits())).collect()
            };
            for (got, row) in best(&b, &x, k).unwrap().into_iter().zip(&rows) {
                assert_eq!(bits(got), bits(best_of(row, k)), "k {k}");
            }
        }
        let want: Vec<u32> = rows.iter().map(|row| best_of(row, 1)[0].0).collect();
        assert_eq!(argmax(&b, &x).unwrap(), want);
        let empty = b.upload(&[], [3, 0].into()).unwrap();
        let plain = ogive_backend::Plain(b);
        assert_eq!(argmax(&plain.0, &empty).unwrap(), plain.argmax(&empty).unwrap());
        for shape in [[1 << 61, 0], [usize::MAX, 0]] {
            assert!(plain.upload(&[], shape.into()).is_err());
        }
    }
}
