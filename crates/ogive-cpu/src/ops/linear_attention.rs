//! Linear attention that forgets, by the gated delta rule or without, a head at a time, in place.
//!
//! The columns of a head's state know nothing of each other. So some are taken through all rows of a sequence before the next: they
//! stay in the nearest cache, and their sums in registers. What is rounded, and in which order, is as in the definition: products and
//! sums apart, keys' elements one after the other.

use super::{SMALL, make, math, read};
use crate::{
    CpuBackend, cache, plan,
    simd::{
        Path,
        ops::{Isa, Kernel, LANES, run},
    },
};
use ogive_backend::{Cache, Plan};
use ogive_tensor::{Error, Result, Tensor};

/// Columns that are taken together: four registers of the widest vectors, whose sums are under way at once.
const MANY: usize = 4 * LANES;

/// A head of one span.
struct Head<'a> {
    number: usize,
    /// The first of the span's rows.
    row: usize,
    before: Option<&'a [f32]>,
    /// `[k_dim, v_dim]`
    state: &'a mut [f32],
    /// `[v_dim]` for each of the span's rows.
    ys: Vec<&'a mut [f32]>,
}

/// What all heads read.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    /// `[n, key_heads, k_dim]`
    q: &'a [f32],
    k: &'a [f32],
    /// `[n, heads, v_dim]`
    v: &'a [f32],
    /// `[n, heads]`
    g: &'a [f32],
    beta: Option<&'a [f32]>,
    key_heads: usize,
    heads: usize,
    k_dim: usize,
    v_dim: usize,
}

struct Columns<'a, 'b> {
    of: Inputs<'a>,
    head: &'b mut Head<'a>,
}

impl Kernel for Columns<'_, '_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(mut self, _: S) {
        match self.head.before {
            Some(before) => self.head.state.copy_from_slice(before),
            None => self.head.state.fill(0.0),
        }
        let (v_dim, mut at) = (self.of.v_dim, 0);
        while at + MANY <= v_dim {
            self.advance::<MANY>(at);
            at += MANY;
        }
        while at + LANES <= v_dim {
            self.advance::<LANES>(at);
            at += LANES;
        }
        (at..v_dim).for_each(|at| self.advance::<1>(at));
    }
}

impl Columns<'_, '_> {
    /// Takes `N` columns from `at` on through all rows.
    #[inline(always)]
    fn advance<const N: usize>(&mut self, at: usize) {
        let Inputs { q, k, v, g, beta, key_heads, heads, k_dim, v_dim } = self.of;
        let Head { number, row, state, ys, .. } = &mut *self.head;
        for (i, y) in ys.iter_mut().enumerate() {
            let key = ((*row + i) * key_heads + *number / (heads / key_heads)) * k_dim;
            let (q, k, one) = (&q[key..][..k_dim], &k[key..][..k_dim], (*row + i) * heads + *number);
            let decay = math::exp(g[one]);
            // The first summand as it is: nothing but -0 leaves a -0 as it was.
            let mut held = [-0.0f32; N];
            if beta.is_some() {
                for (s, k) in state.chunks_exact(v_dim).zip(k) {
                    let s = &s[at..][..N];
                    for j in 0..N {
                        held[j] += s[j] * decay * k;
                    }
                }
            }
            let v = &v[one * v_dim + at..][..N];
            let new: [f32; N] = match beta {
                Some(beta) => std::array::from_fn(|j| (v[j] - held[j]) * beta[one]),
                None => std::array::from_fn(|j| v[j]),
            };
            let mut read = [-0.0f32; N];
            for ((s, k), q) in state.chunks_exact_mut(v_dim).zip(k).zip(q) {
                let s = &mut s[at..][..N];
                for j in 0..N {
                    s[j] = s[j] * decay + new[j] * k;
                    read[j] += s[j] * q;
                }
            }
            y[at..][..N].copy_from_slice(&read);
        }
    }
}

fn compute<'a>(path: Path, of: Inputs<'a>, heads: &mut [Head<'a>]) {
    heads.iter_mut().for_each(|head| run(path, Columns { of, head }));
}

/// `q`, `k` are `[rows, key_heads, k_dim]`, `v` is `[rows, heads, v_dim]`, `g` and `beta`, if there, are `[rows, heads]`.
pub(crate) fn linear_attention(
    b: &CpuBackend,
    layer: usize,
    [q, k, v, g]: [&Tensor; 4],
    beta: Option<&Tensor>,
    cache: &Cache,
    plan: &Plan,
) -> Result<Tensor> {
    const AT: &str = "linear_attention";
    plan::rows_fit(AT, v, plan)?;
    let (&[n, key_heads, k_dim], &[_, heads, v_dim]) = (k.shape().dims(), v.shape().dims()) else {
        return Err(Error::shape(AT, k.shape(), v.shape()));
    };
    if [key_heads, k_dim, heads, v_dim].contains(&0) || heads % key_heads != 0 {
        return Err(Error::shape(AT, k.shape(), v.shape()));
    }
    let wanted = [v.shape().with_first(n), k.shape(), [n, heads].into(), [n, heads].into()];
    let given = [v, q, g].into_iter().chain(beta);
    if let Some((odd, want)) = given.zip(wanted).find(|(t, want)| t.shape() != *want) {
        return Err(Error::shape(AT, odd.shape(), want));
    }
    let beta = beta.map(|beta| read(AT, beta)).transpose()?;
    let [q, k, v_in, g] = [read(AT, q)?, read(AT, k)?, read(AT, v)?, read(AT, g)?];
    let of = Inputs { q, k, v: v_in, g, beta, key_heads, heads, k_dim, v_dim };
    let size = k_dim.saturating_mul(v_dim); // of a head's state
    let mut out = v_in.to_vec(); // rows of nobody stay as they are
    cache::advance_states(AT, layer, heads.saturating_mul(size), cache, plan, |states| {
        let mut rest = out.chunks_exact_mut(v_dim);
        let mut items = Vec::with_capacity(states.len() * heads);
        for (span, (before, after)) in plan.batch().spans.iter().zip(states) {
            let first = items.len();
            items.extend(after.chunks_exact_mut(size).enumerate().map(|(number, state)| Head {
                number,
                row: span.start,
                before: before.map(|before| &before[number * size..][..size]),
                state,
                ys: Vec::with_capacity(span.len),
            }));
            for _ in 0..span.len {
                items[first..].iter_mut().zip(&mut rest).for_each(|(head, y)| head.ys.push(y));
            }
        }
        let work = items.len() * size + n * heads * size;
        match work < SMALL {
            true => compute(b.path, of, &mut items),
            false => b.pool.chunks(&mut items, 1, &|_, heads| compute(b.path, of, heads)),
        }
    })?;
    Ok(make(v.shape(), out))
}
