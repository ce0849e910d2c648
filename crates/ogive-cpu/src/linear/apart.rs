//! Products of different rows, or with different rows of weights, in one fork and join: those of all heads, or of all experts that a
//! step's rows chose.
//!
//! One of them alone is too little work for many threads, and where tokens come one by one a fork and a join for each would cost as
//! much as a good part of the product.

use super::{Input, check, fill, order, stripe_width};
use crate::{
    ops::SMALL,
    pool::{Matrix, Pool, Stripe},
    weight::CpuWeight,
};
use ogive_tensor::{Error, Result};
use std::{cell::RefCell, ops::Range, sync::Arc};

thread_local! {
    /// A stripe of the second of two products, kept from run to run.
    static UPS: RefCell<Vec<f32>> = RefCell::default();
}

/// Rows and the expert of a weight that they are multiplied with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) expert: usize,
    /// `[n, k]`
    pub(crate) x: &'a [f32],
    pub(crate) n: usize,
}

/// A part and the weight that it is multiplied with.
pub(crate) type Product<'a> = (&'a Arc<CpuWeight>, Part<'a>);
/// A part and the weights that read its rows.
type Want<'a> = (Part<'a>, Vec<&'a Arc<CpuWeight>>);

/// `f(x · wᵀ)` of each part, with a weight of its own; `f` changes a slice in place, element by element. `out` has the results, `[n, rows]` each,
/// one behind the other.
pub(crate) fn linear_apart(
    pool: &Pool,
    products: &[Product<'_>],
    f: impl Fn(&mut [f32]) + Send + Sync + 'static,
    out: &mut [f32],
) -> Result<()> {
    let (products, mut outs) = that_are_there(products, out)?;
    let inputs = inputs(pool, &products.iter().map(|(w, part)| (*part, vec![*w])).collect::<Vec<_>>());
    let width = width(pool, &products);
    let own = products.iter().zip(&inputs);
    let own: Vec<_> = own
        .map(|((w, part), input)| (Arc::clone(w), part.expert * w.shape()[1], Arc::clone(input)))
        .collect();
    pool.stripes(&mut outs, width, move |i, col, stripe| {
        let (w, first, input) = &own[i];
        fill(w, input, first + col, stripe);
        f(stripe.values());
    });
    inputs.into_iter().for_each(Input::recycle);
    Ok(())
}

/// Two products of each part, of which `f` makes one: from the part's number (of those that have anything to multiply), some columns and
/// those of either it leaves what is asked for in the first. `out` is as in [`linear_apart`], with zeros where there is nothing to multiply.
pub(crate) fn gated_apart(
    pool: &Pool,
    [gate, up]: [&Arc<CpuWeight>; 2],
    parts: &[Part<'_>],
    f: impl Fn(usize, Range<usize>, [&mut [f32]; 2]) + Send + Sync + 'static,
    out: &mut [f32],
) -> Result<()> {
    if gate.shape() != up.shape() {
        return Err(Error::shape("gated_apart", gate.shape().into(), up.shape().into()));
    }
    let products: Vec<_> = parts.iter().map(|part| (gate, *part)).collect();
    let (products, mut outs) = that_are_there(&products, out)?;
    let with = |ws: &[&Arc<CpuWeight>]| {
        inputs(pool, &products.iter().map(|(_, part)| (*part, ws.to_vec())).collect::<Vec<_>>())
    };
    let (of_gate, of_up) = if order::alike(gate, up) {
        let both = with(&[gate, up]);
        (both.clone(), both)
    } else {
        (with(&[gate]), with(&[up]))
    };
    let (width, rows) = (width(pool, &products), gate.shape()[1]);
    let inputs = of_gate.iter().cloned().zip(of_up.iter().cloned());
    let own = products.iter().zip(inputs);
    let own: Vec<_> = own.map(|((_, part), inputs)| (part.expert * rows, part.n, inputs)).collect();
    let (gate, up) = (Arc::clone(gate), Arc::clone(up));
    pool.stripes(&mut outs, width, move |i, col, gates| {
        UPS.with_borrow_mut(|ups| {
            let (first, n, (of_gate, of_up)) = &own[i];
            ups.resize(n * gates.width(), 0.0);
            let (mut ups, cols) = (Stripe::new(ups, gates.width()), col..col + gates.width());
            fill(&gate, of_gate, first + col, gates);
            fill(&up, of_up, first + col, &mut ups);
            f(i, cols, [gates.values(), ups.values()]);
        });
    });
    of_gate.into_iter().chain(of_up).for_each(Input::recycle);
    Ok(())
}

/// Checks products and gives those that have anything to multiply, with the room for each in `out`; the others' is filled with zeros.
fn that_are_there<'a, 'o>(
    products: &[Product<'a>],
    mut out: &'o mut [f32],
) -> Result<(Vec<Product<'a>>, Vec<Matrix<'o>>)> {
    let (mut there, mut outs) = (Vec::with_capacity(products.len()), Vec::with_capacity(products.len()));
    for &(w, part) in products {
        let cols = w.shape()[1];
        let len = part.n.saturating_mul(cols).min(out.len());
        let values;
        (values, out) = out.split_at_mut(len);
        check(part.x, part.n, w, part.expert, len)?;
        if part.x.is_empty() {
            values.fill(0.0);
        } else {
            there.push((w, part));
            outs.push(Matrix { values, cols });
        }
    }
    if !out.is_empty() {
        return Err(Error::invalid("linear", format!("{} results more than are asked for", out.len())));
    }
    Ok((there, outs))
}

/// The forms of each part's rows that its weights need, which have one order of columns. What is the same for neighbours is made once.
fn inputs(pool: &Pool, wants: &[Want<'_>]) -> Vec<Arc<Input>> {
    let of = |(part, ws): &Want<'_>| {
        let x = order::ordered(part.x, part.n, ws)?;
        Some(Arc::new(Input::new(pool, &x, part.n, ws)))
    };
    let same = |a: &Want<'_>, b: &Want<'_>| {
        std::ptr::eq(a.0.x, b.0.x)
            && a.1.iter().map(|w| Arc::as_ptr(w)).eq(b.1.iter().map(|w| Arc::as_ptr(w)))
    };
    let runs: Vec<_> = wants.chunk_by(same).collect();
    let mut made = vec![None; runs.len()];
    let elements: usize = runs.iter().map(|run| run[0].0.x.len()).sum();
    if elements >= SMALL && runs.len() >= pool.threads() {
        pool.chunks(&mut made, 1, &|i, made| made[0] = of(&runs[i][0]));
    } else {
        runs.iter().zip(&mut made).for_each(|(run, made)| *made = of(&run[0]));
    }
    runs.iter().zip(made).flat_map(|(run, input)| run.iter().filter_map(move |_| input.clone())).collect()
}

/// Rows of weights that a thread takes at a time.
fn width(pool: &Pool, products: &[Product<'_>]) -> usize {
    let all = products.iter().map(|(w, _)| w.shape()[1]).sum();
    products.iter().map(|(w, part)| stripe_width(pool, w, all, part.n)).min().unwrap_or(1)
}
