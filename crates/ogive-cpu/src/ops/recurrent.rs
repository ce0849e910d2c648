//! Recurrent operators in one pass over each sequence.
//!
//! Each rounds where its definition rounds, product and sum apart, and so gives the definition's bits.

use super::{make, make_in, math, norm::lane_dot, read, rows_of_part};
use crate::{
    CpuBackend, cache, plan,
    simd::ops::{Isa, Kernel, LANES, run},
};
use ogive_backend::{Cache, Plan};
use ogive_tensor::{Error, Result, Tensor};

/// Channels that are taken together: with their taps and as many rows as there are taps they stay in the nearest cache.
const CHANNELS: usize = 32 * LANES;

/// Some rows of a span of a convolution.
struct Convolved<'a> {
    /// What went before the span: `[width - 1, dim]`
    before: &'a [f32],
    /// All of the span's rows: `[len, dim]`
    xs: &'a [f32],
    /// `[width, dim]`
    ws: &'a [f32],
    dim: usize,
    /// The first of these rows in the span.
    first: usize,
    /// `[rows, dim]`
    out: &'a mut [f32],
    /// With the span's last rows, what goes before its next ones: `[width - 1, dim]`
    after: Option<&'a mut [f32]>,
}

impl Convolved<'_> {
    /// Row `i` of what went before and the span's rows, end to end.
    #[inline(always)]
    fn row(&self, i: usize) -> &[f32] {
        match (i * self.dim).checked_sub(self.before.len()) {
            Some(from) => &self.xs[from..][..self.dim],
            None => &self.before[i * self.dim..][..self.dim],
        }
    }

    /// `N` channels from `at` on of the output's row `i` of these: tap after tap, as the definition has it.
    #[inline(always)]
    fn one<const N: usize>(&self, i: usize, at: usize) -> [f32; N] {
        // The first summand as it is: nothing but -0 leaves a -0 as it was.
        let mut sum = [-0.0; N];
        for (j, w) in self.ws.chunks_exact(self.dim).enumerate() {
            let (x, w) = (&self.row(self.first + i + j)[at..][..N], &w[at..][..N]);
            (0..N).for_each(|c| sum[c] += x[c] * w[c]);
        }
        sum
    }

    fn keep(&mut self) {
        let (dim, len) = (self.dim, self.xs.len() / self.dim);
        let Some(after) = self.after.take() else { return };
        after.chunks_exact_mut(dim).enumerate().for_each(|(i, to)| to.copy_from_slice(self.row(len + i)));
    }
}

impl Kernel for &mut Convolved<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        let (dim, out) = (self.dim, std::mem::take(&mut self.out));
        for from in (0..dim).step_by(CHANNELS) {
            let to = dim.min(from + CHANNELS);
            for (i, y) in out.chunks_exact_mut(dim).enumerate() {
                let mut at = from;
                while at + 4 * LANES <= to {
                    y[at..][..4 * LANES].copy_from_slice(&self.one::<{ 4 * LANES }>(i, at));
                    at += 4 * LANES;
                }
                (at..to).for_each(|at| y[at..][..1].copy_from_slice(&self.one::<1>(i, at)));
            }
        }
        self.keep();
    }
}

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
    if cols != dim || width == 0 || dim == 0 {
        return Err(Error::shape(AT, x.shape(), w.shape()));
    }
    plan::rows_fit(AT, x, plan)?;
    let (xs, ws, spans) = (read(AT, x)?, read(AT, w)?, &plan.batch().spans);
    let mut out = b.spare.take(xs.len());
    // Rows of nobody, behind all others, stay as they are.
    let own = spans.iter().map(|s| s.len * dim).sum::<usize>();
    out[own..].copy_from_slice(&xs[own..]);
    let kept = (width - 1) * dim;
    let nothing = vec![0.0; if spans.iter().any(|s| s.past == 0) { kept } else { 0 }];
    cache::advance_states(AT, layer, kept, cache, plan, |states| {
        let each = rows_of_part(b, own, dim);
        let (mut rest, mut parts) = (&mut out[..own], Vec::new());
        for (span, (before, after)) in spans.iter().zip(states) {
            let (rows, behind) = std::mem::take(&mut rest).split_at_mut(span.len * dim);
            rest = behind;
            let (before, xs) = (before.unwrap_or(&nothing), &xs[span.start * dim..][..span.len * dim]);
            let of_part = each.unwrap_or(span.len).max(1);
            let first = parts.len();
            parts.extend(rows.chunks_mut(of_part * dim).enumerate().map(|(i, out)| Convolved {
                before,
                xs,
                ws,
                dim,
                first: i * of_part,
                out,
                after: None,
            }));
            if parts.len() == first {
                parts.push(Convolved { before, xs, ws, dim, first: 0, out: &mut [], after: None });
            }
            if let Some(last) = parts.last_mut() {
                last.after = Some(after);
            }
        }
        let compute = |parts: &mut [Convolved<'_>]| parts.iter_mut().for_each(|part| run(b.path, part));
        match each {
            None => compute(&mut parts),
            Some(_) => b.pool.chunks(&mut parts, 1, &|_, parts| compute(parts)),
        }
    })?;
    Ok(make_in(b, x.shape(), out))
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
