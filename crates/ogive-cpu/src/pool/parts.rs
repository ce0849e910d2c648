//! Results that are computed part by part: chunks of a list, stripes of a matrix.

use super::{Base, Pool};
use std::sync::Arc;

/// Values in rows of `cols`. What does not fill a row is left alone.
#[derive(Debug)]
pub(crate) struct Matrix<'a> {
    pub(crate) values: &'a mut [f32],
    pub(crate) cols: usize,
}

/// Neighbouring columns of a matrix, on their own.
#[derive(Debug)]
pub(crate) struct Stripe<'a> {
    values: &'a mut [f32],
    width: usize,
}

impl<'a> Stripe<'a> {
    /// Rows of `width`.
    pub(crate) fn new(values: &'a mut [f32], width: usize) -> Self {
        Self { values, width }
    }

    /// Columns of the stripe.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// The stripe's part of row `r`.
    ///
    /// # Panics
    /// If there is no such row.
    pub(crate) fn row(&mut self, r: usize) -> &mut [f32] {
        &mut self.values[r * self.width..][..self.width]
    }

    /// Its rows, one behind the other.
    pub(crate) fn values(&mut self) -> &mut [f32] {
        self.values
    }
}

/// What the stripes of one matrix are, and where it begins.
struct Part {
    /// How many stripes the matrices before it have.
    first: usize,
    rows: usize,
    cols: usize,
    base: Base<f32>,
}

/// Has `run` call `f` with each piece.
fn pieces<T: Send>(
    out: &mut [T],
    chunk: usize,
    f: &(dyn Fn(usize, &mut [T]) + Sync),
    run: impl FnOnce(usize, &(dyn Fn(usize) + Sync)),
) {
    let (chunk, len) = (chunk.max(1), out.len());
    let base = Base(out.as_mut_ptr());
    run(len.div_ceil(chunk), &|i| {
        let start = i * chunk;
        // SAFETY: each `i` is given to one call, so pieces do not overlap; they lie inside `out`, which is borrowed until `run` returns.
        let piece = unsafe { std::slice::from_raw_parts_mut(base.get().add(start), chunk.min(len - start)) };
        f(i, piece);
    });
}

impl Pool {
    /// Cuts `out` into pieces of `chunk` elements (the last may be shorter) and calls `f` with the number of each and the
    /// piece.
    pub(crate) fn chunks<T: Send>(&self, out: &mut [T], chunk: usize, f: &(dyn Fn(usize, &mut [T]) + Sync)) {
        pieces(out, chunk, f, |items, f| self.run(items, f));
    }

    /// The same as [`Pool::run_unless_busy`] does it.
    pub(crate) fn chunks_unless_busy<T: Send>(
        &self,
        out: &mut [T],
        chunk: usize,
        f: &(dyn Fn(usize, &mut [T]) + Sync),
    ) {
        pieces(out, chunk, f, |items, f| self.run_unless_busy(items, f));
    }

    /// Has `fill` compute each piece of `out` from its number, as [`Pool::compute`] says: piece `i` begins at element `starts[i]`, and the
    /// last start is the end of all. It writes every value that anybody reads: what they are before means nothing.
    ///
    /// # Panics
    /// If a piece begins behind its end, or ends behind that of `out`.
    pub(crate) fn compute_pieces(
        &self,
        out: &mut [f32],
        starts: &Arc<[usize]>,
        fill: impl Fn(usize, &mut [f32]) + Send + Sync + 'static,
    ) {
        assert!(starts.is_sorted() && starts.last().is_none_or(|end| *end <= out.len()));
        let base = Base(out.as_mut_ptr());
        let of_threads = Arc::clone(starts);
        let compute = move |i: usize, values: &mut Vec<f32>| {
            values.resize(of_threads[i + 1] - of_threads[i], 0.0);
            spoil(values);
            fill(i, values);
        };
        self.compute(starts.len().saturating_sub(1), Arc::new(compute), &|i, values| {
            // SAFETY: the piece lies inside `out`, which is borrowed until `compute` returns, behind those before it, and is put down once.
            let to = unsafe { std::slice::from_raw_parts_mut(base.get().add(starts[i]), values.len()) };
            to.copy_from_slice(values);
        });
    }

    /// Cuts the columns of each matrix into stripes of `width` (the last may be narrower) and has `fill` compute them from the number of
    /// the matrix and the first column, as [`Pool::compute`] says: how threads share a product by rows of the weight. It writes every
    /// value: what they are before means nothing.
    ///
    /// A stripe is computed apart and then put in its place. Rows of a matrix lie far apart, in the same few sets of a cache, so they
    /// had better be written once and not read.
    pub(crate) fn stripes(
        &self,
        outs: &mut [Matrix<'_>],
        width: usize,
        fill: impl Fn(usize, usize, &mut Stripe<'_>) + Send + Sync + 'static,
    ) {
        let width = width.max(1);
        let mut items = 0;
        let part = |m: &mut Matrix<'_>| {
            let (first, rows) = (items, m.values.len().checked_div(m.cols).unwrap_or(0));
            items += m.cols.div_ceil(width);
            Part { first, rows, cols: m.cols, base: Base(m.values.as_mut_ptr()) }
        };
        let parts: Arc<[Part]> = outs.iter_mut().map(part).collect();
        let place = move |parts: &[Part], i: usize| {
            let which = parts.partition_point(|part| part.first <= i) - 1;
            let col = (i - parts[which].first) * width;
            (which, col, width.min(parts[which].cols - col))
        };
        let of_threads = Arc::clone(&parts);
        let compute = move |i: usize, values: &mut Vec<f32>| {
            let (which, col, width) = place(&of_threads, i);
            values.resize(of_threads[which].rows * width, 0.0);
            spoil(values);
            fill(which, col, &mut Stripe::new(values, width));
        };
        self.compute(items, Arc::new(compute), &|i, values| {
            let (which, col, width) = place(&parts, i);
            let Part { cols, base, .. } = &parts[which];
            for (row, from) in values.chunks_exact(width).enumerate() {
                // SAFETY: column `col` and the next are in row `row` of this matrix, which is borrowed until `compute` returns; each
                // item is put down once, so no two threads have the same columns.
                let to = unsafe { std::slice::from_raw_parts_mut(base.get().add(row * cols + col), width) };
                to.copy_from_slice(from);
            }
        });
    }
}

/// Where it costs little, what was there before is no number.
fn spoil(values: &mut [f32]) {
    if cfg!(debug_assertions) {
        values.fill(f32::NAN);
    }
}
