//! Vectors that stand in a sequence in place of some of its tokens, as those of images do.
//!
//! Its tokens are placeholders there, and remain what everyone counts by: lengths, pages, what was drawn. Beside them a sequence has this list.
//! Two sequences begin alike as far as their tokens are the same and their vectors too. Where rows see each other to both sides
//! ([`Vectors::mutual`]) a sequence is never cut between them: neither by steps nor by what is taken from it or shared.

use crate::backend::{Batch, CacheSpec, Input, Vectors};
use crate::tensor::{Error, Result};
use crate::{Engine, SeqId};
use std::{ops::Range, sync::Arc};

/// Vectors in place of tokens, from one on.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Placed {
    /// The first token that they stand for.
    pub at: usize,
    /// What stands there; of an image that many ask about there need be one copy.
    pub vectors: Arc<Vectors>,
}

impl Placed {
    /// Vectors in place of the tokens from `at` on.
    pub fn new(at: usize, vectors: impl Into<Arc<Vectors>>) -> Self {
        Self { at, vectors: vectors.into() }
    }

    /// Which tokens they stand for.
    pub fn tokens(&self) -> Range<usize> {
        self.at..self.at.saturating_add(self.vectors.rows())
    }
}

/// Checks that vectors stand in order and apart, for tokens that are there, and are as wide as the model's.
pub(crate) fn check(doing: &str, inputs: &[Placed], tokens: usize, dim: Option<usize>) -> Result<()> {
    let (mut next, wrong) = (0, |why: String| Err(Error::invalid(doing, why)));
    for input in inputs {
        let (Range { start, end }, width) = (input.tokens(), input.vectors.dim);
        let Some(dim) = dim else {
            let why = "the model takes no vectors in place of tokens: it was not made to see";
            return Err(Error::unsupported(doing, why));
        };
        if width != dim {
            return wrong(format!(
                "vectors of {width} elements, and the model's have {dim}: they are another model's"
            ));
        }
        if start < next || end > tokens || end == usize::MAX {
            let why = format!(
                "vectors for tokens {start} to {end}, of {tokens}, the first {next} of which have some"
            );
            return wrong(why);
        }
        next = end;
    }
    Ok(())
}

/// The end of a sequence's beginning of at most `end` tokens that cuts no vectors which must be together.
pub(crate) fn floor(inputs: &[Placed], end: usize) -> usize {
    let cut = |input: &&Placed| input.vectors.mutual && input.at < end && end < input.tokens().end;
    inputs.iter().find(cut).map_or(end, |input| input.at)
}

/// The same of beginnings that `cut` makes shorter still: what both leave as it is.
pub(crate) fn settled(inputs: &[Placed], mut end: usize, mut cut: impl FnMut(usize) -> usize) -> usize {
    loop {
        end = cut(floor(inputs, end));
        if floor(inputs, end) == end {
            return end;
        }
    }
}

/// The most rows that must be together; 1 where none must.
pub(crate) fn together(inputs: &[Placed]) -> usize {
    let mutual = inputs.iter().filter(|input| input.vectors.mutual);
    mutual.map(|input| input.vectors.rows()).max().unwrap_or(1)
}

/// Checks that rows which see each other do so in every window.
pub(crate) fn check_windows(doing: &str, rows: usize, spec: &CacheSpec) -> Result<()> {
    match spec.groups().into_iter().flatten().min() {
        Some(window) if rows > window => {
            let why = format!("{rows} rows of an image see each other, in a window of {window}");
            Err(Error::unsupported(doing, why))
        }
        _ => Ok(()),
    }
}

/// How many tokens two sequences begin with alike.
pub(crate) fn alike(a: (&[u32], &[Placed]), b: (&[u32], &[Placed])) -> usize {
    let tokens = a.0.iter().zip(b.0).take_while(|(a, b)| a == b).count();
    let same = |a: &Placed, b: &Placed| {
        a.at == b.at && (Arc::ptr_eq(&a.vectors, &b.vectors) || a.vectors == b.vectors)
    };
    let mut pairs = (0..a.1.len().max(b.1.len())).map(|i| (a.1.get(i), b.1.get(i)));
    let differs = pairs.find_map(|pair| match pair {
        // Looked at only where it matters: comparing takes all their numbers.
        (Some(a), Some(b)) if a.at.min(b.at) >= tokens || same(a, b) => None,
        (a, b) => a.into_iter().chain(b).map(|input| input.at).min(),
    });
    differs.map_or(tokens, |at| tokens.min(at))
}

/// Puts vectors and places of the rows from `start` on, which are the tokens from `past` on, into a step.
pub(crate) fn push(inputs: &[Placed], batch: &mut Batch, start: usize, past: usize) {
    let rows = batch.tokens.len() - start;
    if inputs.is_empty() || rows == 0 {
        return;
    }
    for input in inputs {
        let tokens = input.tokens();
        let part = tokens.start.max(past)..tokens.end.min(past + rows);
        if !part.is_empty() {
            let of = Arc::clone(&input.vectors);
            batch.inputs.push(Input::new(
                start + part.start - past,
                part.start - input.at..part.end - input.at,
                of,
            ));
        }
    }
    let places: Vec<[u32; 3]> = (past..past + rows).map(|token| place(inputs, token)).collect();
    batch.place(start, &places);
}

/// Where a token stands.
fn place(inputs: &[Placed], token: usize) -> [u32; 3] {
    let mut before = 0;
    for input in inputs.iter().take_while(|input| input.at <= token) {
        let Range { start, end } = input.tokens();
        if token < end {
            let begin = u32::try_from(start - before).unwrap_or(u32::MAX);
            return input.vectors.place(token - start).map(|at| begin.saturating_add(at));
        }
        // What follows is nearer than there are tokens.
        before += input.vectors.rows().saturating_sub(input.vectors.advance());
    }
    [u32::try_from(token - before).unwrap_or(u32::MAX); 3]
}

impl Engine {
    /// What stands in place of tokens of a sequence, in order; `None` once it is gone.
    pub fn inputs(&self, id: SeqId) -> Option<&[Placed]> {
        self.seqs.get(&id).map(|seq| &*seq.inputs)
    }

    /// How many of its tokens a sequence has in common with one that begins with `prompt` and has `inputs` in place of some of those.
    pub fn common(&self, id: SeqId, prompt: &[u32], inputs: &[Placed]) -> usize {
        self.seqs.get(&id).map_or(0, |seq| alike((&seq.tokens, &seq.inputs), (prompt, inputs)))
    }

    /// Checks vectors for a sequence's `tokens`: as [`check`] does, and that those which must be in one step have room in every step and in every
    /// window.
    pub(crate) fn check_inputs(&self, doing: &str, inputs: &[Placed], tokens: usize) -> Result<()> {
        check(doing, inputs, tokens, self.model.takes_vectors())?;
        let rows = together(inputs);
        // Each of the others may have a row.
        let step = self.limits.step_tokens.saturating_sub(self.limits.sequences.saturating_sub(1));
        if rows > step.max(1) {
            let why = format!("{rows} rows of an image must be in one step, which has room for {step}");
            return Err(Error::invalid(
                doing,
                format!("{why}; ask for larger steps (`Limits::step_tokens`)"),
            ));
        }
        check_windows(doing, rows, self.cache.spec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vectors(rows: usize, value: f32) -> Vectors {
        Vectors::new(vec![value; 2 * rows], 2).unwrap()
    }

    fn grid(rows: u32, cols: u32) -> Vectors {
        let places = (0..rows * cols).map(|i| [0, i / cols, i % cols]).collect();
        vectors((rows * cols) as usize, 1.0).places(places).unwrap()
    }

    #[test]
    fn tokens_behind_an_image_stand_nearer() {
        let inputs = [Placed::new(2, grid(2, 3)), Placed::new(9, grid(1, 2))];
        let at = |token| place(&inputs, token);
        assert_eq!([0, 1].map(at), [[0; 3], [1; 3]]);
        assert_eq!([2, 4, 5, 7].map(at), [[2, 2, 2], [2, 2, 4], [2, 3, 2], [2, 3, 4]]);
        // Six tokens take three positions, two take two.
        assert_eq!([8, 9, 10, 11].map(at), [[5; 3], [6; 3], [6, 6, 7], [8; 3]]);
    }

    #[test]
    fn a_step_has_the_rows_that_are_in_it() {
        let inputs = [Placed::new(2, grid(2, 3)), Placed::new(9, vectors(2, 5.0))];
        let mut batch = Batch::default();
        batch.push(&[7; 3], 4, Vec::new(), [0, 1]);
        batch.push(&[0; 8], 4, Vec::new(), [2, 3]);
        push(&inputs, &mut batch, 3, 4);
        let parts: Vec<_> = batch.inputs.iter().map(|input| (input.rows.clone(), input.first)).collect();
        assert_eq!(parts, [(3..7, 2), (8..10, 0)]);
        assert_eq!(batch.positions, [4, 5, 6, 2, 2, 2, 2, 5, 6, 7, 8]);
        assert_eq!((batch.places[2], batch.places[3], batch.places[6]), ([6; 3], [2, 2, 4], [2, 3, 4]));
        // Behind them only positions differ.
        let mut behind = Batch::default();
        behind.push(&[0], 12, Vec::new(), [0, 1]);
        push(&inputs, &mut behind, 0, 12);
        assert_eq!((&*behind.positions, behind.places.len(), behind.inputs.len()), (&[9][..], 0, 0));
    }

    #[test]
    fn beginnings_are_alike_as_far_as_their_vectors_are() {
        let image = Arc::new(vectors(3, 1.0));
        let at = |at, of: &Arc<Vectors>| Placed::new(at, of.clone());
        let tokens = [1, 9, 9, 9, 2, 3];
        let with = |a: &[Placed], b: &[Placed]| alike((&tokens, a), (&tokens[..5], b));
        assert_eq!(with(&[], &[]), 5);
        assert_eq!(with(&[at(1, &image)], &[at(1, &image)]), 5);
        assert_eq!(with(&[at(1, &image)], &[at(1, &Arc::new(vectors(3, 1.0)))]), 5);
        assert_eq!(with(&[at(1, &image)], &[at(1, &Arc::new(vectors(3, 2.0)))]), 1);
        assert_eq!(with(&[at(1, &image)], &[at(1, &Arc::new(vectors(2, 1.0)))]), 1);
        assert_eq!(with(&[at(1, &image)], &[]), 1);
        assert_eq!(with(&[], &[at(2, &image)]), 2);
        assert_eq!(alike((&[4], &[at(0, &image)]), (&[5], &[])), 0);
    }

    #[test]
    fn what_must_be_together_is_not_cut() {
        let inputs = [Placed::new(2, vectors(3, 1.0).mutual()), Placed::new(6, vectors(3, 1.0))];
        assert_eq!([0, 2, 3, 4, 5, 7].map(|end| floor(&inputs, end)), [0, 2, 2, 2, 5, 7]);
    }

    #[test]
    fn vectors_that_do_not_fit_are_refused() {
        let check = |inputs: &[Placed], dim| check("adding", inputs, 6, dim).map_err(|e| e.to_string());
        let ok = [Placed::new(0, vectors(3, 1.0)), Placed::new(3, vectors(3, 1.0))];
        assert_eq!(check(&ok, Some(2)), Ok(()));
        assert!(check(&ok, Some(3)).unwrap_err().contains("the model's have 3"));
        assert!(check(&ok, None).unwrap_err().contains("not made to see"));
        assert_eq!(check(&[], None), Ok(()));
        for (a, b) in [(1, 3), (0, 4), (3, 0), (0, usize::MAX)] {
            assert!(check(&[a, b].map(|at| Placed::new(at, vectors(3, 1.0))), Some(2)).is_err(), "{a} {b}");
        }
    }
}
