//! Scores of classes, of texts or of two texts as one: what rerankers and other classifiers give.
//!
//! States are pooled on the host, as they are for vectors, and go back for the head: it is a row for each text, and so one way serves the first
//! token, the last and the mean.

use crate::backend::Backend;
use crate::embed::{Embed, Pool, Texts, each_row, matrix, rows_of};
use crate::nn::Model;
use crate::tensor::{Error, Result};
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
    let rows = ids.iter().map(|text| rows_of(pooling, text.len(), 0)).collect();
    let plain = Embed { normalize: false, dimensions: None, pooling, ..*how };
    let mut pools: Vec<Pool> = ids.iter().map(|_| Pool::default()).collect();
    let mut scores: Vec<Vec<f32>> = Vec::with_capacity(ids.len());
    each_row(b, model, &Texts { ids, types, rows }, how, &mut |group, states, step| {
        states.iter().for_each(|(i, row)| pools[*i].add(row));
        let Some(step) = step else { return Ok(()) };
        let own = pools[group].iter_mut().map(|pool| std::mem::take(pool).finish(&plain));
        let pooled = matrix(own.collect::<Result<_>>()?)?;
        let shape = [pooled.nrows(), pooled.ncols()];
        let pooled = b.upload(pooled.as_slice().unwrap_or_default(), shape.into())?; // [texts, dim]
        let of_classes = model.classes(step, pooled)?; // [texts, classes]
        let (values, classes) = (b.download(&of_classes)?, of_classes.shape().cols().max(1));
        scores.extend(values.chunks_exact(classes).map(<[f32]>::to_vec));
        Ok(())
    })?;
    matrix(scores)
}
