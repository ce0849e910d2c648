//! Scores of classes, of texts or of two texts as one: what rerankers and other classifiers give; and of models without such a head, how likely single
//! tokens are to come next.
//!
//! States are pooled on the host, as they are for vectors, and go back for the head: it is a row for each text, and so one way serves the first
//! token, the last and the mean.

use crate::backend::Backend;
use crate::embed::{Embed, Pool, Texts, each_row, matrix, rows_of, upload_pooled};
use crate::nn::{Model, Pooling, Step};
use crate::tensor::{Error, Result, Tensor};
use ndarray::Array2;

/// The scores of every class, as the model's head gives them, for each of `texts`, none of which may be empty: their ids, and the type of each
/// token (BERT's segments), or none where all are of type 0. Of `how` only what steps are like counts. `[texts, classes]`
///
/// # Errors
/// If the model has no classes, or if a text has neither as many types as tokens nor none; else as [`embed`](crate::embed()).
pub fn classify<T: AsRef<[u32]>>(
    b: &dyn Backend,
    model: &dyn Model,
    texts: &[(T, T)],
    how: &Embed,
) -> Result<Array2<f32>> {
    let Some(pooling) = model.judges() else {
        let why = "the model has no head for classes of texts, as rerankers have one";
        return Err(Error::unsupported("classify", why));
    };
    let ids: Vec<&[u32]> = texts.iter().map(|(ids, _)| ids.as_ref()).collect();
    let types: Vec<&[u32]> = texts.iter().map(|(_, types)| types.as_ref()).collect();
    let misfit = |(ids, types): (&&[u32], &&[u32])| !types.is_empty() && types.len() != ids.len();
    if let Some(i) = ids.iter().zip(&types).position(misfit) {
        let why = format!("text {i} has {} tokens and {} types", ids[i].len(), types[i].len());
        return Err(Error::invalid("classify", why));
    }
    pooled(b, model, (ids, types), pooling, how, &|step, states| model.classes(step, states), &|scores| {
        Ok(scores.to_vec())
    })
}

/// The logits of each of `tokens` behind each of `texts`, none of which may be empty: of a model that says by its next token what it thinks of a text
/// (Qwen3-Reranker). Of `how` only what steps are like counts. `[texts, tokens]`
///
/// # Errors
/// If the model has no logits, or none of such a token; else as [`embed`](crate::embed()).
pub fn next_logits<T: AsRef<[u32]>>(
    b: &dyn Backend,
    model: &dyn Model,
    texts: &[T],
    tokens: &[u32],
    how: &Embed,
) -> Result<Array2<f32>> {
    let ids: Vec<&[u32]> = texts.iter().map(AsRef::as_ref).collect();
    let types = vec![&[][..]; ids.len()];
    let of = |logits: &[f32]| {
        let one = |token: &u32| {
            let known = logits.len();
            let why =
                || Error::invalid("logits", format!("token {token} is outside a vocabulary of {known}"));
            logits.get(*token as usize).copied().ok_or_else(why)
        };
        tokens.iter().map(one).collect()
    };
    pooled(b, model, (ids, types), Pooling::Last, how, &|step, states| model.head(step, states), &of)
}

/// What `head` makes of the pooled states of texts, ids and types, and `keep` keeps of each row of that.
fn pooled(
    b: &dyn Backend,
    model: &dyn Model,
    (ids, types): (Vec<&[u32]>, Vec<&[u32]>),
    pooling: Pooling,
    how: &Embed,
    head: &dyn Fn(&Step<'_>, Tensor) -> Result<Tensor>,
    keep: &dyn Fn(&[f32]) -> Result<Vec<f32>>,
) -> Result<Array2<f32>> {
    let rows = ids.iter().map(|text| rows_of(pooling, text.len(), 0)).collect();
    let mut pools: Vec<Pool> = ids.iter().map(|_| Pool::default()).collect();
    let mut scores: Vec<Vec<f32>> = Vec::with_capacity(ids.len());
    each_row(b, model, &Texts { ids, types, rows }, how, &mut |group, states, step| {
        states.iter().for_each(|(i, row)| pools[*i].add(row));
        let Some(step) = step else { return Ok(()) };
        let of_texts = head(step, upload_pooled(b, &mut pools[group])?)?; // [texts, classes]
        let (values, classes) = (b.download(&of_texts)?, of_texts.shape().cols().max(1));
        values.chunks_exact(classes).try_for_each(|row| keep(row).map(|kept| scores.push(kept)))
    })?;
    matrix(scores)
}
