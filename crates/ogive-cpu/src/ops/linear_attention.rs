//! Linear attention that forgets, by the gated delta rule or without, a head at a time.
//!
//! The columns of a head's state know nothing of each other. So some are taken through all rows of a sequence before the next: they
//! stay in the nearest cache, and their sums in registers. The first row reads the state before and writes the one after, the others
//! change that. A token by itself writes it past the caches: nobody reads it before the next token, and whoever writes through them
//! reads first what is written over.
//!
//! Of the definition's products and sums those that follow each other are rounded once, and what the delta rule reads by a key is summed
//! up over even and odd elements apart. Each row is so however many there are, so cuts change no bit.

use super::{SMALL, make_in, math, read};
use crate::{
    CpuBackend, cache, plan,
    simd::{
        Path,
        ops::{Isa, Kernel, LANES, Past, run},
    },
};
use ogive_backend::{Cache, Plan};
use ogive_tensor::{Error, Result, Tensor};

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
    fn run<S: Isa>(mut self, isa: S) {
        if self.head.before.is_none() {
            self.head.state.fill(0.0);
        }
        match self.head.ys.len() {
            0 => self.head.before.into_iter().for_each(|before| self.head.state.copy_from_slice(before)),
            1 => self.all::<S, true>(isa),
            _ => self.all::<S, false>(isa),
        }
    }
}

/// What one row of a head does to its state.
#[derive(Clone, Copy)]
struct Row<'a> {
    /// `[k_dim]`
    q: &'a [f32],
    k: &'a [f32],
    /// `[v_dim]`
    v: &'a [f32],
    decay: f32,
    beta: Option<f32>,
}

impl<'a> Columns<'a, '_> {
    /// Takes all columns through all rows; `ALONE` if there is but one.
    #[inline(always)]
    fn all<S: Isa, const ALONE: bool>(&mut self, isa: S) {
        let (v_dim, mut at) = (self.of.v_dim, 0);
        // Of one row as they lie in memory, as far as there are registers; of several, as many as stay in the nearest cache.
        while ALONE && S::SUMS >= 8 && at + 8 * LANES <= v_dim {
            self.advance::<S, 8, ALONE>(isa, at);
            at += 8 * LANES;
        }
        while S::SUMS >= 8 && at + 4 * LANES <= v_dim {
            self.advance::<S, 4, ALONE>(isa, at);
            at += 4 * LANES;
        }
        while at + 2 * LANES <= v_dim {
            self.advance::<S, 2, ALONE>(isa, at);
            at += 2 * LANES;
        }
        while at + LANES <= v_dim {
            self.advance::<S, 1, ALONE>(isa, at);
            at += LANES;
        }
        (at..v_dim).for_each(|at| self.advance_one(at));
    }

    /// Row `i` of the span.
    #[inline(always)]
    fn row(&self, i: usize) -> Row<'a> {
        let Inputs { q, k, v, g, beta, key_heads, heads, k_dim, v_dim } = self.of;
        let (row, number) = (self.head.row + i, self.head.number);
        let (key, one) = ((row * key_heads + number / (heads / key_heads)) * k_dim, row * heads + number);
        let [q, k] = [q, k].map(|x| &x[key..][..k_dim]);
        Row {
            q,
            k,
            v: &v[one * v_dim..][..v_dim],
            decay: math::exp(g[one]),
            beta: beta.map(|beta| beta[one]),
        }
    }

    /// Takes `M` vectors of columns from `at` on through all rows.
    #[inline(always)]
    fn advance<S: Isa, const M: usize, const ALONE: bool>(&mut self, isa: S, at: usize) {
        // Nothing but -0 leaves a -0 as it was.
        let (none, v_dim, past) = ([isa.splat(-0.0); M], self.of.v_dim, Past::new(isa));
        for i in 0..self.head.ys.len() {
            let Row { q, k, v, decay, beta } = self.row(i);
            let Head { before, state, ys, .. } = &mut *self.head;
            let before = before.filter(|_| i == 0);
            let mut new = vectors::<S, M>(isa, &v[at..]);
            if let Some(beta) = beta {
                let (state, mut held) = (before.unwrap_or(state), [none; 2]);
                for (j, k) in k.iter().enumerate() {
                    let (s, k) = (vectors::<S, M>(isa, &state[j * v_dim + at..]), isa.splat(*k));
                    let held = &mut held[j % 2];
                    *held = std::array::from_fn(|c| isa.mul_add(s[c], k, held[c]));
                }
                let [one, minus, beta] = [1.0, -decay, beta].map(|x| isa.splat(x));
                new = std::array::from_fn(|c| {
                    let held = isa.mul_add(held[1][c], one, held[0][c]);
                    isa.mul(isa.mul_add(held, minus, new[c]), beta)
                });
            }
            let (mut read, decay) = (none, isa.splat(decay));
            for (j, (k, q)) in k.iter().zip(q).enumerate() {
                let (from, k, q) = (j * v_dim + at, isa.splat(*k), isa.splat(*q));
                let s = vectors::<S, M>(isa, before.map_or(&state[from..], |before| &before[from..]));
                let s: [S::V; M] = std::array::from_fn(|c| isa.mul_add(new[c], k, isa.mul(s[c], decay)));
                read = std::array::from_fn(|c| isa.mul_add(s[c], q, read[c]));
                for (s, to) in s.into_iter().zip(state[from..][..M * LANES].as_chunks_mut().0) {
                    if ALONE { past.store(s, to) } else { isa.store(s, to) }
                }
            }
            for (x, to) in read.into_iter().zip(ys[i][at..][..M * LANES].as_chunks_mut().0) {
                isa.store(x, to);
            }
        }
    }

    /// The same for a column that no vector holds, a number at a time.
    #[inline(always)]
    fn advance_one(&mut self, at: usize) {
        let v_dim = self.of.v_dim;
        for i in 0..self.head.ys.len() {
            let Row { q, k, v, decay, beta } = self.row(i);
            let Head { before, state, ys, .. } = &mut *self.head;
            let before = before.filter(|_| i == 0);
            let mut new = v[at];
            if let Some(beta) = beta {
                let (state, mut held) = (before.unwrap_or(state), [-0.0; 2]);
                for (j, k) in k.iter().enumerate() {
                    held[j % 2] = state[j * v_dim + at].mul_add(*k, held[j % 2]);
                }
                new = (held[1] + held[0]).mul_add(-decay, new) * beta;
            }
            let mut read = -0.0;
            for (j, (k, q)) in k.iter().zip(q).enumerate() {
                let from = j * v_dim + at;
                let s = before.map_or(state[from], |before| before[from]);
                state[from] = new.mul_add(*k, s * decay);
                read = state[from].mul_add(*q, read);
            }
            ys[i][at] = read;
        }
    }
}

/// The first `M` vectors of `from`.
#[inline(always)]
fn vectors<S: Isa, const M: usize>(isa: S, from: &[f32]) -> [S::V; M] {
    let from = from[..M * LANES].as_chunks().0;
    std::array::from_fn(|c| isa.load(&from[c]))
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
    let (mut out, own) = (b.spare.take(v_in.len()), plan.batch().spans.iter().map(|s| s.len).sum::<usize>());
    out[own * heads * v_dim..].copy_from_slice(&v_in[own * heads * v_dim..]); // rows of nobody stay as they are
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
    Ok(make_in(b, v.shape(), out))
}
