//! Products of activations and weights.
//!
//! The result for one token and one row of a weight is a pure function of that token and that row: the same bits however
//! many tokens there are, wherever the token stands among them, on any number of threads and on every path, but that BF16 weights
//! have a function of their own on AMX. [`dense`] and [`packed`] say which function. An activation that is not finite makes the
//! results that read it infinite or not a number, and never anything else; which payload a NaN carries is not promised.

mod apart;
mod book;
mod columns;
mod dense;
mod float8;
mod group;
mod input;
mod lines;
mod order;
mod packed;
mod quantise;
pub(crate) mod scalar;
mod strips;
#[cfg(test)]
mod tests;
mod tile;

pub(crate) use apart::{Part, gated_apart, linear_apart};
pub(crate) use book::{Book, CODED, unpack};
#[cfg(target_arch = "x86_64")]
pub(crate) use book::{Eight, IQ1, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS, LOW};
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
pub(crate) use book::{FACTOR, RAISE, SCALES};
#[cfg(target_arch = "x86_64")]
pub(crate) use columns::stay_normal;
pub(crate) use columns::{Columns, Few, Side};
#[cfg(target_arch = "x86_64")]
pub(crate) use dense::CHUNK;
pub(crate) use dense::{Dense, LANES};
#[cfg(target_arch = "x86_64")]
pub(crate) use dense::{Quads, TILE, lay};
#[cfg(target_arch = "x86_64")]
pub(crate) use float8::Factors;
pub(crate) use float8::is_read as is_float8;
#[cfg(target_arch = "x86_64")]
pub(crate) use group::{GROUP, Group, Tokens};
pub(crate) use input::{Form, Input};
#[cfg(target_arch = "x86_64")]
pub(crate) use lines::Line;
pub(crate) use lines::{Lines, TILED};
pub(crate) use packed::{E2M1_LEVELS, IQ4_LEVELS, Packed};
#[cfg(target_arch = "x86_64")]
pub(crate) use packed::{half_power, iq4_xs_scales, k_pairs, q3_scales};
#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) use quantise::some_rows;
pub(crate) use quantise::{Quantised, block_len, factors};
pub(crate) use strips::{Of, STRIP, Strips, pack};
pub(crate) use tile::FEW;
#[cfg(target_arch = "x86_64")]
pub(crate) use tile::{SLICE, Tile};

use crate::{
    pool::{Matrix, Pool, Stripe},
    weight::{CpuWeight, Kernel},
};
use ogive_tensor::{Error, Result};
use std::sync::Arc;

/// Rows that a panel of the widest kernel holds: stripes are multiples of it.
const PANEL: usize = 64;
/// Bytes of a weight that are worth a thread's asking for more, for a few tokens: each time that it asks it waits for others' lines of the
/// caches. Decoding is up to a fiftieth faster so than by pieces of a quarter.
const STRIPE_BYTES: usize = 256 << 10;
/// The same for more tokens, whose results of a stripe stay near.
const SHORT_STRIPE_BYTES: usize = 64 << 10;
/// Rows that share slices of activations, which come from far, while their sums stay near.
const STRIPE_ROWS: usize = 128;
/// The same for products in tiles of bf16, which read activations faster than they come from the third cache.
const TILED_ROWS: usize = 512;
/// And for packed products in tiles: results are written a row of a stripe at a time, each to a page of its own.
const GROUPS_ROWS: usize = 256;
/// Up to so many tokens a few rows of [`Packed::Coded`] are unpacked at a time.
const FEW_CODED: usize = 5;
/// Stripes for each thread, where there are enough rows: the last to finish holds the others up by one.
const STRIPES: usize = 8;

/// What a stripe of a result is made from: rows of one expert, and the activations.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) w: &'a CpuWeight,
    pub(crate) input: &'a Input,
    /// The stripe's first row, counted through all experts.
    first: usize,
    /// The stripe's rows as [`Packed::Coded`] and bytes of one, where they were unpacked for it.
    coded: Option<(&'a [u8], usize)>,
}

impl Job<'_> {
    /// How its rows are multiplied.
    pub(crate) fn kernel(&self) -> Kernel {
        if self.coded.is_some() { Kernel::Packed(Packed::Coded) } else { self.w.kernel() }
    }

    /// The packed bytes of row `r` of the stripe, if the weight lies as the file has it.
    pub(crate) fn row(&self, r: usize) -> &[u8] {
        match self.coded {
            Some((rows, len)) => &rows[r * len..][..len],
            None => self.w.row(self.first + r),
        }
    }

    /// The strip that row `r` of the stripe begins, if the weight lies in strips.
    pub(crate) fn strip(&self, r: usize) -> Option<&[u8]> {
        self.w.strips().map(|strips| strips.strip(self.first + r).0)
    }

    /// Factors of the strip that row `r` of the stripe begins.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn factors(&self, r: usize, factors: &mut Factors) {
        factors.fill(self.w.host(), self.first + r);
    }

    /// Row `r` of the stripe in single precision.
    pub(crate) fn decode_row(&self, r: usize, out: &mut [f32]) {
        self.w.decode_row(self.first + r, out);
    }
}

/// `x · wᵀ` for one expert of `w`. `x`: `[n, k]`, `out`: `[n, rows]`.
pub(crate) fn linear(
    pool: &Pool,
    x: &[f32],
    n: usize,
    w: &Arc<CpuWeight>,
    expert: usize,
    out: &mut [f32],
) -> Result<()> {
    check(x, n, w, expert, out.len())?;
    products(pool, x, n, &[w], expert, &mut [out]);
    Ok(())
}

/// Products of one input with one expert of several weights, in one fork and join.
pub(crate) fn linear_many(
    pool: &Pool,
    x: &[f32],
    n: usize,
    ws: &[&Arc<CpuWeight>],
    expert: usize,
    outs: &mut [Vec<f32>],
) -> Result<()> {
    if ws.len() != outs.len() {
        return Err(Error::invalid("linear_many", "as many results as weights are needed"));
    }
    ws.iter().zip(outs.iter()).try_for_each(|(w, out)| check(x, n, w, expert, out.len()))?;
    products(pool, x, n, ws, expert, &mut outs.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    Ok(())
}

/// `f(x · gateᵀ) * (x · upᵀ)` for one expert of each; `f` changes a slice in place, element by element.
pub(crate) fn linear_gated(
    pool: &Pool,
    x: &[f32],
    n: usize,
    gate: &Arc<CpuWeight>,
    up: &Arc<CpuWeight>,
    expert: usize,
    f: impl Fn(&mut [f32]) + Send + Sync + 'static,
    out: &mut [f32],
) -> Result<()> {
    let both = move |_, _, [gates, ups]: [&mut [f32]; 2]| {
        f(gates);
        gates.iter_mut().zip(ups).for_each(|(gate, up)| *gate *= *up);
    };
    gated_apart(pool, [gate, up], &[Part { expert, x, n }], both, out)
}

fn products(
    pool: &Pool,
    x: &[f32],
    n: usize,
    ws: &[&Arc<CpuWeight>],
    expert: usize,
    outs: &mut [&mut [f32]],
) {
    if x.is_empty() {
        return outs.iter_mut().for_each(|out| out.fill(0.0));
    }
    let Some(x) = order::ordered(x, n, ws) else {
        let each = ws.iter().zip(outs);
        return each.for_each(|(w, out)| products(pool, x, n, &[w], expert, &mut [&mut **out]));
    };
    let input = Arc::new(Input::new(pool, &x, n, ws));
    let rows = |w: &CpuWeight| w.shape()[1];
    let width = ws.iter().map(|w| stripe_width(pool, w, ws.iter().map(|w| rows(w)).sum(), n)).min();
    let mut outs: Vec<_> =
        ws.iter().zip(outs).map(|(w, out)| Matrix { values: out, cols: rows(w) }).collect();
    let ws: Vec<_> = ws.iter().copied().map(Arc::clone).collect();
    let of_threads = Arc::clone(&input);
    let each = move |which: usize, col, stripe: &mut Stripe<'_>| {
        fill(&ws[which], &of_threads, expert * rows(&ws[which]) + col, stripe);
    };
    pool.stripes(&mut outs, width.unwrap_or(PANEL), each);
    Input::recycle(input);
}

/// A product of its own for each head, in one fork and join: heads are many and small. `x`: `[n, heads, k]`, all of `ws` `[1, rows, k]`,
/// `out`: `[n, heads, rows]`.
pub(crate) fn linear_each(
    pool: &Pool,
    x: &[f32],
    n: usize,
    ws: &[&Arc<CpuWeight>],
    out: &mut [f32],
) -> Result<()> {
    let heads = ws.len();
    let Some([_, rows, k]) = ws.first().map(|w| w.shape()) else { return Ok(()) };
    let own: Vec<f32> = match x.is_empty() {
        true => Vec::new(),
        false => (0..heads)
            .flat_map(|head| x.chunks_exact(k).skip(head).step_by(heads))
            .flatten()
            .copied()
            .collect(),
    }; // [heads, n, k]
    let part = |(head, w)| (w, Part { expert: 0, x: &own[head * n * k..][..n * k], n });
    let products: Vec<_> = ws.iter().copied().enumerate().map(part).collect();
    let mut apart = vec![0.0; out.len()]; // [heads, n, rows]
    linear_apart(pool, &products, |_| (), &mut apart)?;
    for (i, to) in out.chunks_exact_mut(rows.max(1)).enumerate() {
        let (row, head) = (i / heads, i % heads);
        to.copy_from_slice(&apart[(head * n + row) * rows..][..rows]);
    }
    Ok(())
}

/// Rows that a thread takes at a time for `n` tokens, of `rows` in all.
fn stripe_width(pool: &Pool, w: &CpuWeight, rows: usize, n: usize) -> usize {
    let (worth, stripes) = match (w.kernel(), w.wants(n)) {
        (Kernel::Tiled, _) if n > TILED => (TILED_ROWS, STRIPES / 2),
        (_, Form::Groups) if n > TILED => (GROUPS_ROWS, STRIPES / 2),
        (_, Form::Slices) => (STRIPE_ROWS, STRIPES),
        _ => {
            let bytes = if n <= FEW { STRIPE_BYTES } else { SHORT_STRIPE_BYTES };
            (bytes.div_ceil(w.host().row_bytes().max(1)), STRIPES)
        }
    };
    let share = rows / (pool.threads() * stripes);
    worth.min(share).next_multiple_of(PANEL).max(PANEL)
}

/// Computes the stripe that begins at row `first` of `w`, counted through all experts.
fn fill(w: &CpuWeight, input: &Input, first: usize, out: &mut Stripe<'_>) {
    let w = w.form(first..first + out.width());
    match w.kernel() {
        Kernel::Coded(book) if w.strips().is_none() => book::stripe(w, book, input, first, out),
        _ => w.path().stripe(&Job { w, input, first, coded: None }, out),
    }
    let host = w.host();
    if let (Kernel::Packed(_) | Kernel::Coded(_), Some(scale)) = (w.kernel(), &host.scale) {
        let factors: Vec<f32> =
            (first..first + out.width()).map(|row| scale.of_row(host.shape, row)[0]).collect();
        for t in 0..input.n() {
            out.row(t).iter_mut().zip(&factors).for_each(|(v, factor)| *v *= factor);
        }
    }
}

/// Whether `x`, `expert` and a result of `len` fit the weight.
fn check(x: &[f32], n: usize, w: &CpuWeight, expert: usize, len: usize) -> Result<()> {
    let shape @ [experts, rows, cols] = w.shape();
    if n.checked_mul(cols) != Some(x.len()) {
        return Err(Error::shape("linear", [n, x.len() / n.max(1)].into(), shape.into()));
    }
    if n.checked_mul(rows) != Some(len) {
        return Err(Error::shape("linear", [len].into(), [n, rows].into()));
    }
    if expert >= experts {
        let why = format!("`{}` has no expert {expert}, only {experts}", w.host().name);
        return Err(Error::invalid("linear", why));
    }
    Ok(())
}
