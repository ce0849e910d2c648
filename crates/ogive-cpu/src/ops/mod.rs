//! The operators that are neither products with weights nor attention, a file for each family.
//!
//! A tensor here is a list of `f32` and nothing else: activations are small beside weights, and one element type keeps
//! every operator a single loop.

pub(crate) mod best;
pub(crate) mod elementwise;
pub(crate) mod experts;
pub(crate) mod linear_attention;
pub(crate) mod math;
pub(crate) mod norm;
pub(crate) mod recurrent;
pub(crate) mod rope;
pub(crate) mod route;
pub(crate) mod shape;

use crate::{CpuBackend, memory, spare::Values};
use ogive_tensor::{Error, ErrorKind, Result, Shape, Tensor};

/// Fewer elements than this are not worth waking a thread for.
pub(crate) const SMALL: usize = 1 << 14;

/// Wraps values that fill `shape`.
pub(crate) fn make(shape: impl Into<Shape>, values: Vec<f32>) -> Tensor {
    let shape = shape.into();
    debug_assert_eq!(shape.len(), values.len());
    Tensor::new(shape, Values::from(values))
}

/// The same of values from the backend's spare buffers, to which they go back.
pub(crate) fn make_in(b: &CpuBackend, shape: impl Into<Shape>, values: Vec<f32>) -> Tensor {
    let shape = shape.into();
    debug_assert_eq!(shape.len(), values.len());
    Tensor::new(shape, Values::of(&b.spare, values))
}

/// Zeros for so many rows, or an error where there is no memory for them: for numbers that no buffer bounds.
pub(crate) fn zeros(at: &str, rows: usize, cols: usize) -> Result<Vec<f32>> {
    // Asked for and given back: zeroed pages then take real memory only when they are written.
    let len = rows.checked_mul(cols).filter(|len| Vec::<f32>::new().try_reserve_exact(*len).is_ok());
    len.map(|len| vec![0.0; len]).ok_or_else(|| {
        let needed = rows.saturating_mul(cols).saturating_mul(4) as u64;
        Error::new(at, ErrorKind::Memory { needed, available: memory::available().unwrap_or(0) })
    })
}

/// The elements of `x`, as many as its shape says.
pub(crate) fn read<'a>(at: &str, x: &'a Tensor) -> Result<&'a [f32]> {
    let values = x.data::<Values>().map_err(|e| e.within(at))?;
    if values.len() != x.shape().len() {
        let why = format!("a buffer of {} elements under the shape {:?}", values.len(), x.shape());
        return Err(Error::invalid(at, why));
    }
    Ok(values)
}

/// The elements of `x` for overwriting: its own buffer where no one else holds it, a copy otherwise.
pub(crate) fn take(b: &CpuBackend, at: &str, x: Tensor) -> Result<(Shape, Owned)> {
    read(at, &x)?;
    let shape = x.shape();
    let mut x = x;
    if x.data_mut::<Values>().is_none() {
        x = make_in(b, shape, copy(b, read(at, &x)?));
    }
    Ok((shape, Owned(x)))
}

/// A copy in a spare buffer.
pub(crate) fn copy(b: &CpuBackend, x: &[f32]) -> Vec<f32> {
    let mut out = b.spare.take(x.len());
    by_parts(b, &mut out, |first, part| part.copy_from_slice(&x[first..][..part.len()]));
    out
}

/// A tensor that no one else holds.
pub(crate) struct Owned(Tensor);

impl Owned {
    /// Its elements.
    pub(crate) fn values(&mut self) -> &mut [f32] {
        // `take` made sure that the buffer is ours alone.
        self.0.data_mut::<Values>().map_or(&mut [], |v| &mut **v)
    }
    /// The tensor.
    pub(crate) fn done(self) -> Tensor {
        self.0
    }
}

/// Runs `f(first row, rows)` on parts of `values`, each some whole rows of `cols`, on several threads where that pays.
pub(crate) fn by_rows(b: &CpuBackend, values: &mut [f32], cols: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    if cols == 0 || values.is_empty() {
        return;
    }
    match rows_of_part(b, values.len(), cols) {
        None => f(0, values),
        Some(each) => b.pool.chunks(values, each * cols, &|i, part| f(i * each, part)),
    }
}

/// Rows that a thread takes at a time, where several threads pay.
fn rows_of_part(b: &CpuBackend, len: usize, cols: usize) -> Option<usize> {
    let rows = len / cols;
    let each = || rows.div_ceil(4 * b.pool.threads()).max(SMALL / 4 / cols).max(1);
    (len >= SMALL && rows > 1).then(each)
}

/// [`by_rows`] for two lists of as many rows, which are written together.
pub(crate) fn by_rows_of_two(
    b: &CpuBackend,
    [x, y]: [&mut [f32]; 2],
    cols: usize,
    f: impl Fn(usize, [&mut [f32]; 2]) + Sync,
) {
    if cols == 0 || x.is_empty() {
        return;
    }
    let Some(each) = rows_of_part(b, x.len(), cols) else { return f(0, [x, y]) };
    let parts = x.chunks_mut(each * cols).zip(y.chunks_mut(each * cols));
    let mut parts: Vec<_> = parts.map(|(x, y)| [x, y]).collect();
    b.pool.chunks(&mut parts, 1, &|i, parts| {
        parts.iter_mut().for_each(|[x, y]| f(i * each, [x, y]));
    });
}

/// [`by_rows`] for operators without rows: `f(first element, elements)`.
pub(crate) fn by_parts(b: &CpuBackend, values: &mut [f32], f: impl Fn(usize, &mut [f32]) + Sync) {
    by_rows(b, values, 1, f);
}
