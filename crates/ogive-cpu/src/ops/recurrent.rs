//! Recurrent operators in one pass over each sequence.
//!
//! Each rounds where its definition rounds, product and sum apart, and so gives the definition's bits.

use super::{make, math, norm::lane_dot, read};
use crate::{
    CpuBackend, cache, plan,
    simd::ops::{Isa, Kernel, run},
};
use ogive_backend::{Cache, Plan};
use ogive_tensor::{Error, Result, Tensor};

/// `x` is `[rows, dim]`, `w` is `[width, dim]`, the state `[width - 1, dim]`.
pub(crate) fn causal_conv(
    b: &CpuBackend,
    layer: usize,
    x: &Tensor,
    w: &Tensor,
    cache: &Cache,
    plan: &Plan,
) -> Result<Tensor> {
    const AT: &str = "causal_conv";
    let (&[width, dim], &[_, cols]) = (w.shape().dims(), x.shape().dims()) else {
        return Err(Error::shape(AT, x.shape(), w.shape()));
    };
    if cols != dim || width == 0 {
        return Err(Error::shape(AT, x.shape(), w.shape()));
    }
    plan::rows_fit(AT, x, plan)?;
    let (xs, ws, spans) = (read(AT, x)?, read(AT, w)?, &plan.batch().spans);
    let before = cache::read_state(layer, cache, plan)?;
    let kept = (width - 1) * dim;
    if before.shape().cols() != kept {
        return Err(Error::shape(AT, before.shape(), [spans.len(), kept].into()));
    }
    let (before, mut after) = (read(AT, &before)?, Vec::with_capacity(spans.len() * kept));
    let mut out = xs.to_vec(); // rows of nobody stay as they are
    for (i, span) in spans.iter().enumerate() {
        // The state and the span's rows, end to end: output row t begins at row t of it.
        let rows = span.start * dim..(span.start + span.len) * dim;
        let all = [&before[i * kept..][..kept], &xs[rows.clone()]].concat();
        super::by_rows(b, &mut out[rows], dim, |first, part| {
            for (t, y) in part.chunks_exact_mut(dim).enumerate() {
                let from = &all[(first + t) * dim..][..width * dim];
                y.iter_mut().zip(from.iter().zip(ws)).for_each(|(y, (x, w))| *y = x * w);
                for (x, w) in from.chunks_exact(dim).zip(ws.chunks_exact(dim)).skip(1) {
                    y.iter_mut().zip(x.iter().zip(w)).for_each(|(y, (x, w))| *y += x * w);
                }
            }
        });
        after.extend_from_slice(&all[all.len() - kept..]);
    }
    cache::write_state(layer, &make([spans.len(), kept], after), cache, plan)?;
    Ok(make(x.shape(), out))
}

/// The channels of one span: each piece of `out` is a channel's state `[m]` and then its outputs `[len]`.
struct Scan<'a> {
    /// First channel and number of channels.
    first: usize,
    dim: usize,
    m: usize,
    /// The span's rows: `[len, dim]`, `[len, dim]`, `[len, m]`, `[len, m]`.
    x: &'a [f32],
    dt: &'a [f32],
    b: &'a [f32],
    c: &'a [f32],
    /// `[dim, m]`
    a: &'a [f32],
    out: &'a mut [f32],
    len: usize,
}

impl Kernel for Scan<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        let m = self.m;
        for (i, channel) in self.out.chunks_exact_mut(m + self.len).enumerate() {
            let d = self.first + i;
            let (h, ys) = channel.split_at_mut(m);
            let a = &self.a[d * m..][..m];
            for (t, y) in ys.iter_mut().enumerate() {
                let dt = self.dt[t * self.dim + d];
                let dtx = dt * self.x[t * self.dim + d];
                let b = &self.b[t * m..][..m];
                for ((h, a), b) in h.iter_mut().zip(a).zip(b) {
                    *h = math::exp(a * dt) * *h + dtx * b;
                }
                *y = lane_dot(h, &self.c[t * m..][..m]);
            }
        }
    }
}

/// `x` and `dt` are `[rows, dim]`, `a` is `[dim, m]`, `bs` and `cs` are `[rows, m]`, the state `[dim, m]`.
pub(crate) fn selective_scan(
    b: &CpuBackend,
    layer: usize,
    inputs: [&Tensor; 5],
    cache: &Cache,
    plan: &Plan,
) -> Result<Tensor> {
    const AT: &str = "selective_scan";
    let [x, dt, a, bs, cs] = inputs;
    plan::rows_fit(AT, x, plan)?;
    let &[n, dim] = x.shape().dims() else { return Err(Error::shape(AT, x.shape(), a.shape())) };
    let m = a.shape().cols();
    let wanted = [(dt, [n, dim]), (a, [dim, m]), (bs, [n, m]), (cs, [n, m])];
    if let Some((odd, want)) = wanted.iter().find(|(t, want)| t.shape() != (*want).into()) {
        return Err(Error::shape(AT, odd.shape(), (*want).into()));
    }
    let (xs, dts, a, bs, cs) = (read(AT, x)?, read(AT, dt)?, read(AT, a)?, read(AT, bs)?, read(AT, cs)?);
    let (spans, before) = (&plan.batch().spans, cache::read_state(layer, cache, plan)?);
    if before.shape().cols() != dim * m {
        return Err(Error::shape(AT, before.shape(), [spans.len(), dim * m].into()));
    }
    let (before, mut after) = (read(AT, &before)?, Vec::with_capacity(spans.len() * dim * m));
    // Rows of nobody come back as the definition has them: the product of the first two inputs.
    let mut out: Vec<f32> = dts.iter().zip(xs).map(|(dt, x)| dt * x).collect();
    for (i, span) in spans.iter().enumerate() {
        let (rows, len) = (span.rows(), span.len);
        let mut work = Vec::with_capacity(dim * (m + len)); // [dim, m + len]
        for d in 0..dim {
            work.extend_from_slice(&before[(i * dim + d) * m..][..m]);
            work.resize(work.len() + len, 0.0);
        }
        super::by_rows(b, &mut work, m + len, |first, part| {
            let of = |x: &'_ [f32], cols: usize| rows.start * cols..x.len().min(rows.end * cols);
            let scan = Scan {
                first,
                dim,
                m,
                x: &xs[of(xs, dim)],
                dt: &dts[of(dts, dim)],
                b: &bs[of(bs, m)],
                c: &cs[of(cs, m)],
                a,
                out: part,
                len,
            };
            run(b.path, scan);
        });
        for d in 0..dim {
            let (h, ys) = work[d * (m + len)..][..m + len].split_at(m);
            after.extend_from_slice(h);
            ys.iter().zip(rows.clone()).for_each(|(y, row)| out[row * dim + d] = *y);
        }
    }
    cache::write_state(layer, &make([spans.len(), dim * m], after), cache, plan)?;
    Ok(make(x.shape(), out))
}
