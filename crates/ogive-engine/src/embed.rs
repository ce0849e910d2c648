//! Vectors of texts: hidden states pooled to one row for each text, or as they are, a row for each token.
//!
//! Texts are packed into steps end to end, as the engine packs sequences, and not padded to a rectangle; so many short texts
//! cost what their tokens cost. Pooling is done on the host, in double precision and in the order of the tokens: a vector is
//! the same whatever else was in the step.

use crate::Limits;
use crate::backend::{Backend, Batch, BlockTable, Cache};
use crate::nn::{self, Model, Pooling, Step};
use crate::tensor::{Error, F32, Format, Result, Tensor};
use ndarray::Array2;
use std::ops::Range;

/// Texts in one step at most: each takes pages of its own, which a step of one-token texts would waste.
const TEXTS: usize = 64;

/// The rows of a text of so many tokens that are wanted if the first so many are left out. A mean wants all, to know how wide
/// they are where none is left.
pub(crate) fn rows_of(pooling: Pooling, tokens: usize, left_out: usize) -> Range<usize> {
    let first = if left_out < tokens { left_out } else { 0 };
    match pooling {
        Pooling::Cls => first..first + 1,
        Pooling::Last => tokens.saturating_sub(1)..tokens,
        _ => 0..tokens,
    }
}

/// How to make vectors of texts.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Embed {
    /// Which hidden states count.
    pub pooling: Pooling,
    /// Whether vectors are scaled to length 1, so that their dot product is their cosine.
    pub normalize: bool,
    /// Numbers of a vector, the first of the model's; `None` for all. Scaled after the cut. Models that were trained for it keep
    /// their meaning (Kusupati et al. 2022, <https://arxiv.org/abs/2205.13147>).
    pub dimensions: Option<usize>,
    /// Rows of a step.
    pub chunk: usize,
    /// What keys and values are kept in.
    pub element: &'static Format,
}

impl Embed {
    /// So pooled and scaled to length 1, in steps of 512 rows, with a cache in single precision.
    pub fn new(pooling: Pooling) -> Self {
        Self { pooling, normalize: true, dimensions: None, chunk: 512, element: &F32 }
    }
}

/// A row for each of `texts`, none of which may be empty. `[texts, dimensions]`
///
/// # Errors
/// If a text has no tokens, if `chunk` or `dimensions` is 0, if vectors have fewer numbers than `dimensions`, or if there is no memory for
/// the cache; else as [all operators](crate::backend::Backend#errors).
pub fn embed<T: AsRef<[u32]>>(
    b: &dyn Backend,
    model: &dyn Model,
    texts: &[T],
    how: &Embed,
) -> Result<Array2<f32>> {
    embed_after(b, model, texts, &[], how)
}

/// The same where the first so many tokens of each text are not pooled: a prompt that states should be seen from and not count.
/// A mean leaves them out, the first token is the first after them, and the last stays the last. `left_out` has a number for each
/// text, or none for no text. Of a text of which nothing is left the mean is a vector of zeros, and the first token is its own.
///
/// # Errors
/// As [`embed`].
pub fn embed_after<T: AsRef<[u32]>>(
    b: &dyn Backend,
    model: &dyn Model,
    texts: &[T],
    left_out: &[usize],
    how: &Embed,
) -> Result<Array2<f32>> {
    let left_out = |i| left_out.get(i).copied().unwrap_or(0);
    let skip = |i| if how.pooling == Pooling::Mean { left_out(i) } else { 0 };
    let mut pools: Vec<Pool> = (0..texts.len()).map(|i| Pool { skip: skip(i), ..Pool::default() }).collect();
    let rows = |(i, text): (usize, &T)| rows_of(how.pooling, text.as_ref().len(), left_out(i));
    let texts = Texts::new(texts, texts.iter().enumerate().map(rows).collect());
    each_row(b, model, &texts, how, &mut |group, states, step| {
        states.iter().for_each(|(i, row)| pools[*i].add(row));
        let Some(step) = step.filter(|_| model.projects()) else { return Ok(()) };
        let own = &mut pools[group];
        let pooled = upload_pooled(b, own)?; // [texts, dim]
        let vectors = model.project(step, pooled)?; // [texts, out]
        let (values, dim) = (b.download(&vectors)?, vectors.shape().cols().max(1));
        own.iter_mut().zip(values.chunks_exact(dim)).for_each(|(pool, vector)| pool.add(vector));
        Ok(())
    })?;
    let vectors = pools.into_iter().map(|pool| pool.finish(how)).collect::<Result<Vec<_>>>()?;
    matrix(vectors)
}

/// What was pooled of each text, neither cut nor scaled, where the model's next layers can read it; the pools are empty then. `[texts, dim]`
pub(crate) fn upload_pooled(b: &dyn Backend, pools: &mut [Pool]) -> Result<Tensor> {
    let whole = Embed { normalize: false, dimensions: None, ..Embed::new(Pooling::Mean) };
    let pooled = pools.iter_mut().map(|pool| std::mem::take(pool).finish(&whole));
    let pooled = matrix(pooled.collect::<Result<_>>()?)?;
    b.upload(pooled.as_slice().unwrap_or_default(), [pooled.nrows(), pooled.ncols()].into())
}

/// The vectors of every token of `texts`, none of which may be empty, without pooling: for those who compare texts token by
/// token (Khattab and Zaharia 2020, <https://arxiv.org/abs/2004.12832>), or pool in a way of their own. For each text
/// `[tokens, dimensions]`
///
/// # Errors
/// As [`embed`].
pub fn embed_tokens<T: AsRef<[u32]>>(
    b: &dyn Backend,
    model: &dyn Model,
    texts: &[T],
    how: &Embed,
) -> Result<Vec<Array2<f32>>> {
    let mut all: Vec<Vec<Vec<f32>>> = texts.iter().map(|_| Vec::new()).collect();
    let texts = Texts::new(texts, texts.iter().map(|text| 0..text.as_ref().len()).collect());
    each_row(b, model, &texts, how, &mut |_, states, _| {
        states.iter().try_for_each(|(i, row)| {
            let mut pool = Pool::default();
            pool.add(row);
            all[*i].push(pool.finish(how)?);
            Ok(())
        })
    })?;
    all.into_iter().map(matrix).collect()
}

/// Rows of one length below each other.
pub(crate) fn matrix(rows: Vec<Vec<f32>>) -> Result<Array2<f32>> {
    let shape = (rows.len(), rows.first().map_or(0, Vec::len));
    Array2::from_shape_vec(shape, rows.concat()).map_err(|e| Error::other("embed", e))
}

/// Texts and what is wanted of them.
pub(crate) struct Texts<'a> {
    pub(crate) ids: Vec<&'a [u32]>,
    /// The type of each token, or none where all are of type 0.
    pub(crate) types: Vec<&'a [u32]>,
    /// The rows of each whose states are handed on.
    pub(crate) rows: Vec<Range<usize>>,
}

impl<'a> Texts<'a> {
    fn new<T: AsRef<[u32]>>(texts: &'a [T], rows: Vec<Range<usize>>) -> Self {
        Self { ids: texts.iter().map(AsRef::as_ref).collect(), types: vec![&[]; texts.len()], rows }
    }
}

/// Who is handed states: the texts that share steps; of which text each row is, in order; and, when all of these texts were handed on, their
/// last step.
pub(crate) type Take<'t> = dyn FnMut(Range<usize>, &[(usize, &[f32])], Option<&Step<'_>>) -> Result<()> + 't;

/// Hands on the states of the wanted rows of each text.
pub(crate) fn each_row(
    b: &dyn Backend,
    model: &dyn Model,
    texts: &Texts<'_>,
    how: &Embed,
    take: &mut Take<'_>,
) -> Result<()> {
    let Texts { ids: texts, types, rows } = texts;
    if let Some(i) = texts.iter().position(|t| t.is_empty()) {
        return Err(Error::invalid("embed", format!("text {i} has no tokens")));
    }
    if how.chunk == 0 {
        return Err(Error::invalid("embed", "steps need at least one row"));
    }
    let Some(longest) = texts.iter().map(|t| t.len()).max() else { return Ok(()) };
    let groups = groups(texts, how.chunk);
    let most = groups.iter().map(Range::len).max().unwrap_or(1);
    let limits =
        Limits::new(longest).sequences(most).step_tokens(how.chunk.max(longest)).element(how.element);
    let spec = limits.cache_spec(model.cache_layout())?;
    let pages =
        |group: &Range<usize>| texts[group.clone()].iter().map(|t| t.len().div_ceil(limits.block_len));
    let all = groups.iter().map(|g| pages(g).sum::<usize>()).max().unwrap_or(0);
    // Windowed groups keep all their blocks here, as in `evaluate`.
    let spec = spec.clone().blocks(vec![all; spec.blocks.len()]);
    let (cache, tables) = (b.new_cache(&spec)?, spec.blocks.len());
    for group in groups {
        let mut first = 0;
        let blocks = pages(&group).map(|n| {
            let blocks = (first..first + n as u32).collect();
            first += n as u32;
            vec![BlockTable { first: 0, blocks }; tables]
        });
        let own = group.clone().zip(blocks);
        let members: Vec<_> = own
            .map(|(i, tables)| Member { text: texts[i], types: types[i], rows: rows[i].clone(), tables })
            .collect();
        run(b, model, &cache, &members, group, how.chunk, take)?;
    }
    Ok(())
}

/// Consecutive texts that fit one step; one that fits none is alone.
fn groups(texts: &[&[u32]], rows: usize) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut left = 0;
    for (i, text) in texts.iter().enumerate() {
        match groups.last_mut().filter(|g| text.len() <= left && g.len() < TEXTS) {
            Some(group) => group.end = i + 1,
            None => {
                groups.push(i..i + 1);
                left = rows;
            }
        }
        left = left.saturating_sub(text.len());
    }
    groups
}

/// A text of a group.
struct Member<'a> {
    text: &'a [u32],
    types: &'a [u32],
    /// Those of its rows that are handed on.
    rows: Range<usize>,
    tables: Vec<BlockTable>,
}

/// One group: a step, or several for a long text of a model that looks back only.
fn run(
    b: &dyn Backend,
    model: &dyn Model,
    cache: &Cache,
    members: &[Member<'_>],
    group: Range<usize>,
    chunk: usize,
    take: &mut Take<'_>,
) -> Result<()> {
    let longest = members.iter().map(|m| m.text.len()).max().unwrap_or(0);
    // A text that looks ahead must be in one step, and several texts always are.
    let chunk = if model.causal() && members.len() == 1 { chunk } else { longest.max(1) };
    let mut past = 0;
    while past < longest {
        let (mut batch, mut wanted) = (Batch::default(), Vec::new());
        for (i, Member { text, types, rows, tables }) in members.iter().enumerate() {
            let part = &text[past..text.len().min(past + chunk)];
            let (start, slots) = (batch.tokens.len(), [2 * i as u32, 2 * i as u32 + 1]);
            let turned = (past / chunk).is_multiple_of(2);
            batch.push(part, past, tables.clone(), if turned { slots } else { [slots[1], slots[0]] });
            let kinds = types.iter().skip(past).take(part.len());
            batch.types.iter_mut().skip(start).zip(kinds).for_each(|(to, kind)| *to = *kind);
            let here = |row: usize| row.clamp(past, past + part.len()) - past;
            let here = here(rows.start)..here(rows.end);
            wanted.push(here.len());
            batch.outputs.extend(here.map(|row| (start + row) as u32));
        }
        let none = batch.outputs.is_empty();
        let plan = b.plan(batch)?;
        let step = Step::new(b, &plan, cache);
        nn::prepare(b, cache, &plan)?;
        let hidden = model.hidden(&step)?;
        past += chunk;
        let (values, dim) = match none {
            true => (Vec::new(), 1),
            false => {
                let hidden = b.outputs(&hidden, &plan)?;
                (b.download(&hidden)?, hidden.shape().cols().max(1))
            }
        };
        let whose = wanted.into_iter().zip(group.clone()).flat_map(|(n, i)| std::iter::repeat_n(i, n));
        let states: Vec<(usize, &[f32])> = whose.zip(values.chunks_exact(dim)).collect();
        take(group.clone(), &states, (past >= longest).then_some(&step))?;
    }
    Ok(())
}

/// A sum of rows.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    sum: Vec<f64>,
    rows: usize,
    /// Rows that are still to be left out.
    skip: usize,
}

impl Pool {
    pub(crate) fn add(&mut self, row: &[f32]) {
        self.sum.resize(row.len(), 0.0);
        if let Some(left) = self.skip.checked_sub(1) {
            self.skip = left;
            return;
        }
        self.sum.iter_mut().zip(row).for_each(|(sum, v)| *sum += f64::from(*v));
        self.rows += 1;
    }

    /// The mean, cut and of length 1 if so asked; a vector of zeros stays one.
    pub(crate) fn finish(mut self, how: &Embed) -> Result<Vec<f32>> {
        let own = self.sum.len();
        let dimensions = how.dimensions.unwrap_or(own);
        if dimensions > own || dimensions == 0 {
            let why = format!("vectors of {dimensions} numbers were asked for, and the model's have {own}");
            return Err(Error::invalid("embed", why));
        }
        self.sum.truncate(dimensions);
        let mean: Vec<f64> = self.sum.iter().map(|v| v / self.rows.max(1) as f64).collect();
        let length = mean.iter().map(|v| v * v).sum::<f64>().sqrt();
        let by = if how.normalize && length > 0.0 { length } else { 1.0 };
        Ok(mean.iter().map(|v| (v / by) as f32).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_share_a_step_while_they_fit() {
        let texts = [3, 3, 4, 11, 1, 10].map(|n| vec![0u32; n]);
        let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
        assert_eq!(groups(&texts, 10), [0..3, 3..4, 4..5, 5..6]);
        let many = vec![&[0u32][..]; 130];
        assert_eq!(groups(&many, 1000), [0..64, 64..128, 128..130]);
    }

    #[test]
    fn a_pooling_wants_rows_that_are_there() {
        assert_eq!([0, 2, 3, 9].map(|left_out| rows_of(Pooling::Cls, 3, left_out)), [0..1, 2..3, 0..1, 0..1]);
        assert_eq!(
            [0, 2, 3, 9].map(|left_out| rows_of(Pooling::Last, 3, left_out)),
            [2..3, 2..3, 2..3, 2..3]
        );
        assert_eq!([0, 9].map(|left_out| rows_of(Pooling::Mean, 3, left_out)), [0..3, 0..3]);
    }

    #[test]
    fn zeros_have_no_direction() {
        let mut pool = Pool::default();
        pool.add(&[0.0, 0.0]);
        assert_eq!(pool.finish(&Embed::new(Pooling::Mean)).unwrap(), [0.0, 0.0]);
    }

    #[test]
    fn a_mean_leaves_out_what_it_is_told_to() {
        let mean = |skip| {
            let mut pool = Pool { skip, ..Pool::default() };
            [[9.0, 9.0], [3.0, 4.0], [5.0, 0.0]].iter().for_each(|row| pool.add(row));
            pool.finish(&Embed { normalize: false, ..Embed::new(Pooling::Mean) }).unwrap()
        };
        assert_eq!((mean(1), mean(3), mean(4)), (vec![4.0, 2.0], vec![0.0; 2], vec![0.0; 2]));
    }

    #[test]
    fn a_cut_vector_is_scaled_after_the_cut() {
        let how = |dimensions| Embed { dimensions: Some(dimensions), ..Embed::new(Pooling::Mean) };
        let finish = |how: &Embed| {
            let mut pool = Pool::default();
            [[3.0, 4.0, 0.0], [3.0, 4.0, 9.0]].iter().for_each(|row| pool.add(row));
            pool.finish(how)
        };
        assert_eq!(finish(&how(2)).unwrap(), [0.6, 0.8]);
        assert_eq!(finish(&Embed { normalize: false, ..how(3) }).unwrap(), [3.0, 4.0, 4.5]);
        for none in [0, 4] {
            let e = finish(&how(none)).unwrap_err().to_string();
            assert!(e.contains(&format!("vectors of {none} numbers")) && e.contains("have 3"), "{e}");
        }
    }
}
