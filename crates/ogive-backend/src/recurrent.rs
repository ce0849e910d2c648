//! Definitions of the recurrent operators, composed of required ones: rows are
//! split by sequence, run in order from the sequence's state, and laid end to
//! end again. Slow, the oracle of any kernel, and what an override calls for sizes
//! that it has none for.

use crate::{Activation, Axis, Backend, Cache, Plan};
use ogive_tensor::{Error, Result, Tensor};

/// One sequence's turn: its state and its rows of each input, to its state and
/// rows after.
type Advance<'a> = &'a mut dyn FnMut(Tensor, &[&Tensor]) -> Result<(Tensor, Tensor)>;

/// `x` is `[rows, dim]`, `w` is `[width, dim]`, the state `[width - 1, dim]`.
///
/// # Errors
/// As [`Backend::causal_conv`].
pub fn causal_conv<B: Backend + ?Sized>(
    b: &B,
    layer: usize,
    x: &Tensor,
    w: &Tensor,
    cache: &Cache,
    plan: &Plan,
) -> Result<Tensor> {
    let &[width, dim] = w.shape().dims() else {
        return Err(Error::shape("causal_conv", x.shape(), w.shape()));
    };
    if width == 0 {
        return Err(Error::shape("causal_conv", x.shape(), w.shape()));
    }
    let taps = b.split(w, Axis::Rows, &vec![1; width])?;
    each(b, layer, &[x], cache, plan, &mut |state, xs| {
        let (len, all) =
            (xs[0].shape().rows(), b.concat(&[&state.reshape([width - 1, dim])?, xs[0]], Axis::Rows)?);
        let mut y: Option<Tensor> = None;
        for (j, tap) in taps.iter().enumerate() {
            let shifted = b.split(&all, Axis::Rows, &[j, len, width - 1 - j])?.swap_remove(1);
            let term = b.mul(shifted, tap)?; // [len, dim] · [1, dim]
            y = Some(match y.take() {
                Some(y) => b.add(y, &term)?,
                None => term,
            });
        }
        Ok((b.split(&all, Axis::Rows, &[len, width - 1])?.swap_remove(1), y.unwrap_or_else(|| xs[0].clone())))
    })
}

/// `x` and `dt` are `[rows, dim]`, `a` is `[dim, n]`, `bs` and `cs` are `[rows, n]`,
/// the state `[dim, n]`: `h = exp(dt a) h + (dt x) b`, `y = h c`.
///
/// # Errors
/// As [`Backend::selective_scan`].
pub fn selective_scan<B: Backend + ?Sized>(
    b: &B,
    layer: usize,
    x: &Tensor,
    dt: &Tensor,
    a: &Tensor,
    bs: &Tensor,
    cs: &Tensor,
    cache: &Cache,
    plan: &Plan,
) -> Result<Tensor> {
    let (a_shape, dim) = (a.shape(), x.shape().cols());
    let dtx = b.mul(dt.clone(), x)?;
    each(b, layer, &[&dtx, dt, bs, cs], cache, plan, &mut |state, parts| {
        let ones = vec![1; parts[0].shape().rows()];
        let rows = |i: usize| b.split(parts[i], Axis::Rows, &ones);
        let (mut h, mut ys) = (state.reshape(a_shape)?, Vec::new());
        for (((dtx, dt), bs), cs) in rows(0)?.into_iter().zip(rows(1)?).zip(rows(2)?).zip(rows(3)?) {
            let decay = b.mul(a.clone(), &dt.reshape([dim, 1])?)?; // [dim, n] · [dim, 1]
            let new = b.mul(dtx.reshape([dim, 1])?, &bs)?; // [dim, 1] · [1, n]
            h = b.add(b.mul(b.activate(decay, Activation::Exp)?, &h)?, &new)?;
            ys.push(b.sum(&b.mul(h.clone(), &cs)?)?.reshape([1, dim])?); // [dim, n] · [1, n]
        }
        // Of a sequence without rows in this step there is nothing to lay end to end.
        let y = match ys.is_empty() {
            true => parts[0].clone(),
            false => b.concat(&ys.iter().collect::<Vec<_>>(), Axis::Rows)?,
        };
        Ok((h, y))
    })
}

/// `q` and `k` are `[rows, key_heads, k_dim]`, `v` is `[rows, heads, v_dim]`, `g` and `beta`, if there, are `[rows, heads]`, the
/// state `[heads, k_dim, v_dim]`. Sums go over the keys' elements in their order.
///
/// # Errors
/// As [`Backend::linear_attention`].
pub fn linear_attention<B: Backend + ?Sized>(
    b: &B,
    layer: usize,
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    g: &Tensor,
    beta: Option<&Tensor>,
    cache: &Cache,
    plan: &Plan,
) -> Result<Tensor> {
    let misfit = || Error::shape("linear_attention", k.shape(), v.shape());
    let (&[n, key_heads, k_dim], &[_, heads, v_dim]) = (k.shape().dims(), v.shape().dims()) else {
        return Err(misfit());
    };
    if [key_heads, k_dim, heads, v_dim].contains(&0) || heads % key_heads != 0 {
        return Err(misfit());
    }
    // Each key head as often as heads read it.
    let spread = |x: &Tensor| {
        let x = x.clone().reshape([n * key_heads, k_dim])?;
        b.concat(&vec![&x; heads / key_heads], Axis::Cols)?.reshape([n, heads, k_dim])
    };
    // `Sᵀ x` of each head: `[heads * k_dim, v_dim], [1, heads, k_dim] -> [heads, v_dim]`
    let read = |s: &Tensor, x: &Tensor| {
        let terms =
            b.mul(s.clone(), &x.clone().reshape([heads * k_dim, 1])?)?.reshape([heads, k_dim * v_dim])?;
        let mut terms = b.split(&terms, Axis::Cols, &vec![v_dim; k_dim])?.into_iter();
        let first = terms.next().ok_or_else(misfit)?;
        terms.try_fold(first, |sum, term| b.add(sum, &term))
    };
    let (q, k, decay) = (spread(q)?, spread(k)?, b.activate(g.clone(), Activation::Exp)?);
    let mut inputs = vec![v, &q, &k, &decay];
    inputs.extend(beta);
    each(b, layer, &inputs, cache, plan, &mut |state, parts| {
        let ones = vec![1; parts[0].shape().first()];
        let rows = |i: usize| Ok(b.split(parts[i], Axis::Rows, &ones)?.into_iter());
        let mut betas = if beta.is_some() { Some(rows(4)?) } else { None };
        let (mut s, mut ys) = (state.reshape([heads * k_dim, v_dim])?, Vec::new());
        for (((v, q), k), decay) in rows(0)?.zip(rows(1)?).zip(rows(2)?).zip(rows(3)?) {
            s = b.mul(s.reshape([heads, k_dim * v_dim])?, &decay.reshape([heads, 1])?)?;
            s = s.reshape([heads * k_dim, v_dim])?;
            let mut new = v.reshape([heads, v_dim])?;
            if let Some(beta) = betas.as_mut().and_then(Iterator::next) {
                let minus = b.upload(&[-1.0], [1, 1].into())?;
                let lacks = b.add(new, &b.mul(read(&s, &k)?, &minus)?)?;
                new = b.mul(lacks, &beta.reshape([heads, 1])?)?;
            }
            let new = b.concat(&vec![&new; k_dim], Axis::Cols)?.reshape([heads * k_dim, v_dim])?;
            s = b.add(s, &b.mul(new, &k.reshape([heads * k_dim, 1])?)?)?;
            ys.push(read(&s, &q)?.reshape([1, heads, v_dim])?);
        }
        // Of a sequence without rows in this step there is nothing to lay end to end.
        let y = match ys.is_empty() {
            true => parts[0].clone(),
            false => b.concat(&ys.iter().collect::<Vec<_>>(), Axis::Rows)?,
        };
        Ok((s, y))
    })
}

/// Runs `f` for each sequence. Rows of nobody come back as the first input has them.
fn each<B: Backend + ?Sized>(
    b: &B,
    layer: usize,
    inputs: &[&Tensor],
    cache: &Cache,
    plan: &Plan,
    f: Advance<'_>,
) -> Result<Tensor> {
    let (counts, spans) = (plan.batch().row_counts(), plan.batch().spans.len());
    let parts = inputs.iter().map(|x| b.split(x, Axis::Rows, &counts)).collect::<Result<Vec<_>>>()?;
    let states = b.split(&b.read_state(layer, cache, plan)?, Axis::Rows, &vec![1; spans])?;
    let (mut after, mut out) = (Vec::new(), Vec::new());
    for (i, state) in states.into_iter().enumerate() {
        let xs: Vec<&Tensor> = parts.iter().map(|p| &p[i]).collect();
        let (state, y) = f(state, &xs)?;
        let len = state.shape().len();
        after.push(state.reshape([1, len])?);
        out.push(y);
    }
    if !after.is_empty() {
        b.write_state(layer, &b.concat(&after.iter().collect::<Vec<_>>(), Axis::Rows)?, cache, plan)?;
    }
    out.push(parts[0][spans].clone());
    b.concat(&out.iter().collect::<Vec<_>>(), Axis::Rows)
}
