//! Attention over rows laid end to end.
//!
//! Options change scores in the order they are listed, after the scale; which tokens take part is no matter of order. A
//! query that sees nothing gives zeros, not NaN: that is what flash kernels give, and padding must not poison a batch.

use super::step::batch;
use super::values::{dot, make, product, read, row, zeros};
use ogive_backend::tensor::{Error, Result, Tensor};
use ogive_backend::{AttnOption, AttnSpec, Plan};

/// An option that changes a score.
enum Edit<'a> {
    SoftCap(f64),
    /// A slope for each head.
    Alibi(&'a [f32]),
    /// `[n, width]`
    Mask(&'a [f32], usize),
}

/// A query's place: its row, its head and its position.
struct Query {
    row: usize,
    head: usize,
    here: usize,
}

impl Edit<'_> {
    fn apply(&self, score: f64, query: &Query, token: usize) -> f64 {
        match self {
            Self::SoftCap(cap) => cap * (score / cap).tanh(),
            Self::Alibi(slopes) => score - f64::from(slopes[query.head]) * query.here.abs_diff(token) as f64,
            Self::Mask(mask, width) => score + f64::from(mask[query.row * width + token]),
        }
    }
}

/// The options that change scores, in order, and the sinks. The one place that must know every option: what it does not
/// know it refuses.
fn options<'a>(spec: &'a AttnSpec, n: usize, longest: usize) -> Result<(Vec<Edit<'a>>, Option<&'a [f32]>)> {
    let (mut edits, mut sinks) = (Vec::new(), None);
    let per_head = |what: &str, len: usize| {
        let why = format!("{len} {what} for {} heads", spec.heads);
        if len == spec.heads { Ok(()) } else { Err(Error::invalid("attend", why)) }
    };
    for option in &spec.options {
        match option {
            AttnOption::Causal | AttnOption::Mutual => {}
            AttnOption::Window(_) | AttnOption::Ahead(_) | AttnOption::Chunk(_) => {}
            AttnOption::SoftCap(cap) => edits.push(Edit::SoftCap(f64::from(*cap))),
            AttnOption::Alibi(slopes) => {
                per_head("slopes", slopes.len())?;
                edits.push(Edit::Alibi(slopes));
            }
            AttnOption::Sinks(scores) => {
                let scores = read("attend", scores)?;
                per_head("sinks", scores.len())?;
                sinks = Some(scores);
            }
            AttnOption::Mask(mask) => {
                if mask.shape().dims() != [n, longest] {
                    return Err(Error::shape("attend", mask.shape(), [n, longest].into()).within("mask"));
                }
                edits.push(Edit::Mask(read("attend", mask)?, longest));
            }
            AttnOption::Other(name) => {
                return Err(Error::unsupported("attend", format!("the oracle does not know `{name}`")));
            }
            other => {
                return Err(Error::unsupported("attend", format!("the oracle does not know {other:?}")));
            }
        }
    }
    Ok((edits, sinks))
}

/// `[n, heads * k_dim] -> [n, heads * v_dim]`; rows of nobody are zeros.
pub(super) fn attend(q: &Tensor, k: &Tensor, v: &Tensor, spec: &AttnSpec, plan: &Plan) -> Result<Tensor> {
    let at = "attend";
    let batch = batch(at, plan)?;
    let AttnSpec { heads, kv_heads, k_dim, v_dim, .. } = *spec;
    if heads == 0 || kv_heads == 0 || heads % kv_heads != 0 {
        return Err(Error::invalid(at, format!("{heads} heads do not share {kv_heads} evenly")));
    }
    let (n, contexts) = (batch.tokens.len(), batch.contexts());
    let qs = rows_of(q, n, heads, k_dim)?;
    let ks = rows_of(k, contexts, kv_heads, k_dim)?;
    let vs = rows_of(v, contexts, kv_heads, v_dim)?;
    let longest = batch.spans.iter().map(|s| s.context()).max().unwrap_or(0);
    let (edits, sinks) = options(spec, n, longest)?;

    let ends = spec.mutual(batch);
    let mut out = zeros(at, &[n, heads, v_dim])?;
    let mut first = 0; // the context's first row
    for span in &batch.spans {
        for (here, row_of_step) in (span.past..).zip(span.rows()) {
            let until = ends.as_ref().map_or(here + 1, |ends| ends[row_of_step]);
            let seen = spec.visible_until(here, until, span.context());
            for head in 0..heads {
                let query = Query { row: row_of_step, head, here };
                let kv = head / (heads / kv_heads);
                let place = |t: usize| (first + t) * kv_heads + kv;
                let own = row(qs, query.row * heads + head, k_dim);
                let score = |t: usize| {
                    let score = f64::from(spec.scale) * dot(own, row(ks, place(t), k_dim));
                    edits.iter().fold(score, |score, edit| edit.apply(score, &query, t))
                };
                let weights = softmax(seen.clone().map(score).collect(), sinks.map(|s| f64::from(s[head])));
                let mut sum = vec![0f64; v_dim];
                for (weight, t) in weights.iter().zip(seen.clone()) {
                    let value = row(vs, place(t), v_dim);
                    sum.iter_mut().zip(value).for_each(|(s, &v)| *s += weight * f64::from(v));
                }
                let to = &mut out[(query.row * heads + head) * v_dim..][..v_dim];
                to.iter_mut().zip(sum).for_each(|(to, s)| *to = s as f32);
            }
        }
        first += span.context();
    }
    Ok(make([n, heads * v_dim], out))
}

/// The values of a tensor of `rows` times `heads` times `dim`, whether heads are an extent or not.
fn rows_of(x: &Tensor, rows: usize, heads: usize, dim: usize) -> Result<&[f32]> {
    if x.shape().first() != rows || x.shape().len() != product("attend", &[rows, heads, dim])? {
        return Err(Error::shape("attend", x.shape(), [rows, heads, dim].into()));
    }
    read("attend", x)
}

/// Shares that add up to one, together with the sink's.
fn softmax(mut scores: Vec<f64>, sink: Option<f64>) -> Vec<f64> {
    let max = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
    if max == f64::NEG_INFINITY && !scores.iter().any(|s| s.is_nan()) {
        scores.fill(0.0);
        return scores;
    }
    scores.iter_mut().for_each(|s| *s = (*s - max).exp());
    let sum = scores.iter().sum::<f64>() + sink.map_or(0.0, |s| (s - max).exp());
    scores.iter_mut().for_each(|s| *s /= sum);
    scores
}
