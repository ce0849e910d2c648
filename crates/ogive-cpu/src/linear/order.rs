//! Activations in the order of a weight's columns, where that is another one (act-order).
//!
//! They are moved once and not read in their new order by each kernel: packed kernels round neighbours together, and a move of
//! one row is little beside the weight that it meets.

use crate::weight::CpuWeight;
use std::{borrow::Cow, sync::Arc};

/// Whether two weights want their input in one form: in one order, as those of one layer nearly always do, for they were ordered by the same
/// activations, and for one path, as all of one backend do.
pub(super) fn alike(a: &CpuWeight, b: &CpuWeight) -> bool {
    a.order() == b.order() && a.path() == b.path()
}

/// `x`, `[n, k]`, as the columns of all of `ws` want it, or `None` if they are not [`alike`].
pub(super) fn ordered<'a>(x: &'a [f32], n: usize, ws: &[&Arc<CpuWeight>]) -> Option<Cow<'a, [f32]>> {
    let first = ws.first()?;
    if !ws.iter().all(|w| alike(w, first)) {
        return None;
    }
    let Some(order) = first.order() else { return Some(Cow::Borrowed(x)) };
    let mut moved = Vec::with_capacity(x.len());
    for row in x.chunks_exact((x.len() / n.max(1)).max(1)) {
        moved.extend(order.iter().map(|from| row[*from as usize]));
    }
    Some(Cow::Owned(moved))
}
