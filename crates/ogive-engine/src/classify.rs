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
    let judged = |text: &&[u32]| match model.padding() {
        // Of nothing else the first token is looked at, as transformers does.
        Some(padding) if pooling == Pooling::Last => {
            let end = text.iter().rposition(|id| *id != padding).map_or(1, |at| at + 1);
            rows_of(pooling, end.min(text.len()), 0)
        }
        _ => rows_of(pooling, text.len(), 0),
    };
    let rows = ids.iter().map(judged).collect();
    let head = Head {
        run: &|step, states| model.classes(step, states),
        width: 1,
        keep: &|scores| Ok(scores.to_vec()),
    };
    pooled(b, model, Texts { ids, types, rows }, how, &head)
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
    let rows = ids.iter().map(|text| rows_of(Pooling::Last, text.len(), 0)).collect();
    let width = model.vocab().unwrap_or(1);
    let head = Head { run: &|step, states| model.head(step, states), width, keep: &of };
    pooled(b, model, Texts { ids, types, rows }, how, &head)
}

/// What is made of pooled states.
struct Head<'h> {
    /// `[texts, dim] -> [texts, width]`
    run: &'h dyn Fn(&Step<'_>, Tensor) -> Result<Tensor>,
    /// Numbers that it gives for a text, if they are many.
    width: usize,
    /// What of each row is wanted.
    keep: &'h dyn Fn(&[f32]) -> Result<Vec<f32>>,
}

/// What `head` makes of the pooled states of texts.
fn pooled(
    b: &dyn Backend,
    model: &dyn Model,
    texts: Texts<'_>,
    how: &Embed,
    head: &Head<'_>,
) -> Result<Array2<f32>> {
    let mut pools: Vec<Pool> = texts.ids.iter().map(|_| Pool::default()).collect();
    let mut scores: Vec<Vec<f32>> = Vec::with_capacity(pools.len());
    each_row(b, model, &texts, how, &mut |group, states, step| {
        states.iter().for_each(|(i, row)| pools[*i].add(row));
        let Some(step) = step else { return Ok(()) };
        let (tokens, dim) = (step.plan.batch().tokens.len(), states.first().map_or(1, |(_, row)| row.len()));
        for part in pools[group].chunks_mut(at_once(tokens, dim, head.width)) {
            let of_texts = (head.run)(step, upload_pooled(b, part)?)?; // [texts, width]
            let (values, width) = (b.download(&of_texts)?, of_texts.shape().cols().max(1));
            values.chunks_exact(width).try_for_each(|row| (head.keep)(row).map(|kept| scores.push(kept)))?;
        }
        Ok(())
    })?;
    matrix(scores)
}

/// How many texts' scores, `width` numbers each, are made at a time behind a step of so many tokens with states of so many numbers: no more numbers than
/// those states are, which an estimate of memory counts with all that a layer makes of them. It counts a single row of logits.
fn at_once(tokens: usize, dim: usize, width: usize) -> usize {
    (tokens.saturating_mul(dim) / width.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_take_no_more_than_the_states_of_their_step() {
        // Qwen3-Reranker-0.6B: a usual step of few texts, and a long one of as many as share it.
        assert_eq!([512, 8192].map(|tokens| at_once(tokens, 1024, 151_936)), [3, 55]);
        assert_eq!([at_once(1, 48, 272), at_once(0, 0, 0), at_once(64, 1024, 1)], [1, 1, 65_536]);
    }
}
