//! The forward pass of a step, and the draws from its logits.
//!
//! Nothing of the engine is changed here: draws are made on clones of the chains, which the engine takes over when the
//! whole step has succeeded.

use crate::Engine;
use crate::backend::{Batch, StepKey};
use crate::engine::Seq;
use crate::nn::{self, Step};
use crate::sampler::{Candidate, Chain, LogProbs, SampleError};
use crate::schedule::Part;
use crate::tensor::{Error, Result, Tensor};
use std::borrow::Cow;
use std::collections::VecDeque;

/// A token that was drawn, the chain after it, and how likely it was where the sequence wants to know.
#[derive(Debug)]
pub(crate) struct Draw {
    pub(crate) chain: Chain,
    pub(crate) token: Result<u32, SampleError>,
    pub(crate) logprobs: Option<LogProbs>,
}

/// A step that runs.
#[derive(Debug)]
pub(crate) struct Started {
    /// What it gives: all logits of the rows that are wanted, or what [`best`](crate::backend::Backend::best) needs of them.
    logits: Tensor,
    /// For so many of each row, if that is all the draws need.
    top_k: Option<usize>,
}

/// What came back of a step, row by row.
enum Rows {
    /// The best candidates.
    Best(Vec<Vec<(u32, f32)>>),
    /// All logits, so many a row.
    Whole(Vec<f32>, usize),
}

impl Rows {
    fn len(&self) -> usize {
        match self {
            Self::Best(rows) => rows.len(),
            Self::Whole(values, vocab) => values.len() / vocab,
        }
    }

    /// Draws from row `i`, of which there are more.
    fn draw(&self, i: usize, mut chain: Chain, history: &[u32], logprobs: Option<usize>) -> Draw {
        match self {
            Self::Best(rows) => {
                let list = rows[i].iter().map(|&(id, logit)| Candidate { id, logit }).collect();
                let token = chain.sample_candidates(list, history);
                Draw { chain, token, logprobs: None }
            }
            Self::Whole(values, vocab) => {
                let row = &values[i * *vocab..][..*vocab];
                let token = chain.sample(row, history);
                let of = |n| Some(LogProbs::new(row, *token.as_ref().ok()?, n));
                let logprobs = logprobs.and_then(of);
                Draw { chain, token, logprobs }
            }
        }
    }

    /// Draws for a sequence from the rows from `first` on: one token, and one more behind each guess that was right.
    fn draw_for(&self, seq: &Seq, first: usize, guessed: usize) -> VecDeque<Draw> {
        let (mut chain, mut history) = (seq.chain.clone(), Cow::Borrowed(&*seq.tokens));
        let mut draws = VecDeque::new();
        for i in 0..=guessed {
            let draw = self.draw(first + i, chain, &history, seq.logprobs);
            let right = match draw.token {
                Ok(token) if i < guessed && seq.guesses.tokens[i] == token => Some(token),
                _ => None,
            };
            let Some(token) = right.filter(|token| !seq.stop.contains(token)) else {
                draws.push_back(draw);
                break;
            };
            chain = draw.chain.clone();
            history.to_mut().push(token);
            draws.push_back(draw);
        }
        draws
    }
}

/// Up to so many candidates are asked of the backend; beyond, whole rows come back.
const FEW: usize = 256;

impl Engine {
    /// The sequence that a part of a step is of, if a token is drawn for it: where it has then seen all it has.
    fn wanting(&self, part: &Part) -> Option<&Seq> {
        self.seqs.get(&part.id).filter(|seq| seq.past + part.len == seq.tokens.len())
    }

    /// Starts the step; a backend that queues its work does not wait for it.
    pub(crate) fn launch(&self, batch: Batch, ran: &[Part]) -> Result<Started> {
        let mut wanting = ran.iter().filter_map(|part| self.wanting(part));
        let needs = wanting.clone().map(|seq| seq.chain.needs()).try_fold(0, |a, n| Some(a.max(n?)));
        // A probability has all logits in it, whatever the draw needs.
        let whole = wanting.any(|seq| seq.logprobs.is_some());
        let top_k = needs.filter(|n| *n <= FEW && !whole);
        Ok(Started { logits: self.logits(batch, top_k)?, top_k })
    }

    /// Waits for the step, and draws for each sequence of `ran` that has then seen all it has; for the others nothing.
    pub(crate) fn draw(&self, started: &Started, ran: &[Part]) -> Result<Vec<VecDeque<Draw>>> {
        let Started { logits, top_k } = started;
        let wanted = |part: &Part| self.wanting(part).map_or(0, |_| 1 + part.guessed);
        let wanted: usize = ran.iter().map(wanted).sum();
        if wanted == 0 {
            return Ok(ran.iter().map(|_| VecDeque::new()).collect());
        }
        let rows = match *top_k {
            Some(k) => Rows::Best(self.backend.best(logits, k)?),
            None => Rows::Whole(self.backend.download(logits)?, logits.shape().cols().max(1)),
        };
        // Behind those there may be some that are nobody's.
        if rows.len() < wanted {
            let why = format!("{} rows of logits where {wanted} were wanted", rows.len());
            return Err(Error::invalid("step", why));
        }
        let mut first = 0;
        let draw = |part: &Part| {
            let Some(seq) = self.wanting(part) else { return VecDeque::new() };
            let draws = rows.draw_for(seq, first, part.guessed);
            first += 1 + part.guessed;
            draws
        };
        Ok(ran.iter().map(draw).collect())
    }

    /// The logits that `batch` wants, `[outputs, vocab]`, or what [`best`](crate::backend::Backend::best) needs of them.
    fn logits(&self, batch: Batch, top_k: Option<usize>) -> Result<Tensor> {
        let key = StepKey::of(self.key, &batch).map(|key| key.top_k(top_k.unwrap_or(0)));
        let plan = self.backend.plan(batch)?;
        nn::prepare(&*self.backend, &self.cache, &plan)?;
        let step_logits = |plan: &_| {
            let logits = self.model.logits(&Step::new(&*self.backend, plan, &self.cache))?;
            // With the step, so that a recorded one is all that is launched.
            match top_k {
                Some(k) => self.backend.top_k(logits, k),
                None => Ok(logits),
            }
        };
        match key {
            Some(key) => self.backend.replay(&key, &plan, &mut |plan| step_logits(plan)),
            None => step_logits(&plan),
        }
    }
}
