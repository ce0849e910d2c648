//! The product of two matrices, fast enough to test with and the same on every run.
//!
//! Panels of A and B are packed, and a small block of the result stays in registers while k goes by; the compiler makes vectors of it. Each
//! element is summed by one thread in the order of k, so neither threads nor their number change a bit.
#![allow(unsafe_code)]

use super::element::Number;

/// Rows and columns of the block that stays in registers.
const ROWS: usize = 16;
const COLUMNS: usize = 6;
/// Products below this are not worth a thread.
const SMALL: usize = 1 << 18;

/// A matrix as it was read, and whether it is to be transposed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Factor<'a, T> {
    pub(crate) data: &'a [T],
    /// Rows as stored, which is the distance from column to column.
    pub(crate) rows: usize,
    pub(crate) transposed: bool,
}

impl<T: Number> Factor<'_, T> {
    #[inline(always)]
    fn get(&self, row: usize, column: usize) -> T {
        let (row, column) = if self.transposed { (column, row) } else { (row, column) };
        self.data.get(row + column * self.rows).copied().unwrap_or_default()
    }
}

/// `a` (m × k) times `b` (k × n), column after column.
pub(crate) fn multiply<T: Number>(
    a: Factor<'_, T>,
    b: Factor<'_, T>,
    [m, n, k]: [usize; 3],
    threads: usize,
) -> Vec<T> {
    let mut c = vec![T::default(); m * n];
    if m == 0 || n == 0 {
        return c;
    }
    let panels = pack(a, m, k);
    let wide = is_wide();
    let columns_each =
        if m * n * k < SMALL || threads < 2 { n } else { n.div_ceil(threads).next_multiple_of(COLUMNS) };
    if columns_each >= n && threads > 1 && m * n * k >= SMALL {
        // Few columns: the rows are shared out, each thread with a result of its own.
        let rows_each = m.div_ceil(threads).next_multiple_of(ROWS);
        let parts: Vec<(usize, Vec<T>)> = std::thread::scope(|scope| {
            let panels = &panels;
            let handles: Vec<_> = (0..m)
                .step_by(rows_each)
                .map(|first| {
                    scope.spawn(move || {
                        let rows = rows_each.min(m - first);
                        let mut part = vec![T::default(); rows * n];
                        let panels = panels.get(first * k..).unwrap_or_default();
                        stripe(panels, b, &mut part, [rows, n, k], 0, wide);
                        (first, part)
                    })
                })
                .collect();
            handles.into_iter().filter_map(|handle| handle.join().ok()).collect()
        });
        for (first, part) in parts {
            let rows = part.len() / n;
            for (column, values) in part.chunks(rows).enumerate() {
                if let Some(to) = c.get_mut(column * m + first..column * m + first + rows) {
                    to.copy_from_slice(values);
                }
            }
        }
        return c;
    }
    std::thread::scope(|scope| {
        for (index, part) in c.chunks_mut(m * columns_each).enumerate() {
            let columns = part.len() / m;
            let panels = &panels;
            let mut run = move || stripe(panels, b, part, [m, columns, k], index * columns_each, wide);
            if columns_each >= n {
                run();
            } else {
                scope.spawn(run);
            }
        }
    });
    c
}

/// A in panels of [`ROWS`] rows, each with its columns one after the other; what is missing is zero.
fn pack<T: Number>(a: Factor<'_, T>, m: usize, k: usize) -> Vec<T> {
    let mut panels = vec![T::default(); m.next_multiple_of(ROWS) * k];
    for (panel, first) in panels.chunks_mut((ROWS * k).max(1)).zip((0..m).step_by(ROWS)) {
        let rows = ROWS.min(m - first);
        if a.transposed {
            for row in 0..rows {
                for column in 0..k {
                    if let Some(to) = panel.get_mut(column * ROWS + row) {
                        *to = a.get(first + row, column);
                    }
                }
            }
        } else {
            for (column, to) in panel.chunks_mut(ROWS).enumerate() {
                for (row, to) in to.iter_mut().take(rows).enumerate() {
                    *to = a.get(first + row, column);
                }
            }
        }
    }
    panels
}

/// Some columns of the result.
fn stripe<T: Number>(
    panels: &[T],
    b: Factor<'_, T>,
    c: &mut [T],
    [m, columns, k]: [usize; 3],
    first_column: usize,
    wide: bool,
) {
    let mut packed = vec![T::default(); COLUMNS * k];
    for first in (0..columns).step_by(COLUMNS) {
        let wanted = COLUMNS.min(columns - first);
        for (index, to) in packed.chunks_mut(COLUMNS).enumerate() {
            for (column, to) in to.iter_mut().enumerate() {
                *to =
                    if column < wanted { b.get(index, first_column + first + column) } else { T::default() };
            }
        }
        for (panel, row) in panels.chunks((ROWS * k).max(1)).zip((0..m).step_by(ROWS)) {
            let mut block = [[T::default(); ROWS]; COLUMNS];
            #[cfg(target_arch = "x86_64")]
            if wide {
                // SAFETY: `wide` says that the processor has these features.
                unsafe { block_wide(panel, &packed, &mut block) };
            } else {
                block_plain(panel, &packed, &mut block);
            }
            #[cfg(not(target_arch = "x86_64"))]
            {
                let _ = wide;
                block_plain(panel, &packed, &mut block);
            }
            let rows = ROWS.min(m - row);
            for (column, values) in block.iter().enumerate().take(wanted) {
                let at = (first + column) * m + row;
                if let Some(to) = c.get_mut(at..at + rows) {
                    to.copy_from_slice(&values[..rows]);
                }
            }
        }
    }
}

#[inline(always)]
fn block_plain<T: Number>(a: &[T], b: &[T], block: &mut [[T; ROWS]; COLUMNS]) {
    let mut sums = *block;
    for (a, b) in a.chunks_exact(ROWS).zip(b.chunks_exact(COLUMNS)) {
        for (sum, b) in sums.iter_mut().zip(b) {
            for (sum, a) in sum.iter_mut().zip(a) {
                *sum = a.fma(*b, *sum);
            }
        }
    }
    *block = sums;
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn block_wide<T: Number>(a: &[T], b: &[T], block: &mut [[T; ROWS]; COLUMNS]) {
    block_plain(a, b, block);
}

fn is_wide() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[cfg(test)]
mod tests {
    use super::{Factor, multiply};

    /// The definition.
    fn plain(a: Factor<'_, i32>, b: Factor<'_, i32>, [m, n, k]: [usize; 3]) -> Vec<i32> {
        let mut c = vec![0i32; m * n];
        for column in 0..n {
            for row in 0..m {
                for index in 0..k {
                    c[column * m + row] += a.get(row, index) * b.get(index, column);
                }
            }
        }
        c
    }

    #[test]
    fn every_shape_and_transposition_is_the_definition() {
        let data: Vec<i32> = (0..4000).map(|i| (i * 7919) % 19 - 9).collect();
        for [m, n, k] in [[1, 1, 1], [16, 6, 8], [17, 7, 3], [5, 40, 9], [40, 1, 33], [3, 3, 0], [0, 4, 2]] {
            for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
                for threads in [1, 3] {
                    let a = Factor { data: &data, rows: if ta { k } else { m }, transposed: ta };
                    let b = Factor { data: &data[7..], rows: if tb { n } else { k }, transposed: tb };
                    assert_eq!(
                        multiply(a, b, [m, n, k], threads),
                        plain(a, b, [m, n, k]),
                        "{m} {n} {k} {ta} {tb}"
                    );
                }
            }
        }
    }

    #[test]
    fn threads_do_not_change_a_bit() {
        let data: Vec<f32> = (0..40000).map(|i| ((i * 7919) % 1000) as f32 * 1e-3 - 0.3).collect();
        for [m, n, k] in [[130, 70, 64], [2000, 1, 150], [1, 2000, 150]] {
            let a = Factor { data: &data, rows: m, transposed: false };
            let b = Factor { data: &data, rows: k, transposed: false };
            let one = multiply(a, b, [m, n, k], 1);
            assert_eq!(one, multiply(a, b, [m, n, k], 4));
            let exact: f64 = (0..k).map(|i| f64::from(a.get(0, i)) * f64::from(b.get(i, 0))).sum();
            assert!((f64::from(one[0]) - exact).abs() < 1e-3);
        }
    }
}
