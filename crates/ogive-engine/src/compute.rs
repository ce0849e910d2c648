//! The forward pass of a step, and the draws from its logits.
//!
//! Nothing of the engine is changed here: draws are made on clones of the chains, which the engine takes over when the
//! whole step has succeeded.

use crate::Engine;
use crate::backend::{Batch, StepKey};
use crate::engine::Seq;
use crate::nn::{self, Step};
use crate::request::SeqId;
use crate::sampler::{Candidate, Chain, LogProbs, SampleError};
use crate::tensor::{Error, Result, Tensor};

/// A sequence, its chain after the draw, what it drew, and how likely that was if it wants to know.
pub(crate) type Drawn = (SeqId, Chain, Result<u32, SampleError>, Option<LogProbs>);

/// A step that runs.
#[derive(Debug)]
pub(crate) struct Started {
    /// What it gives: all logits of the rows that are wanted, or what [`best`](crate::backend::Backend::best) needs of them.
    logits: Tensor,
    /// For so many of each row, if that is all the draws need.
    top_k: Option<usize>,
}

/// Up to so many candidates are asked of the backend; beyond, whole rows come back.
const FEW: usize = 256;

impl Engine {
    /// The sequences of `ran` that have seen all they have when it is done.
    fn wanting(&self, ran: &[(SeqId, usize)]) -> Vec<(SeqId, &Seq)> {
        let seqs = ran.iter().filter_map(|(id, len)| Some((*id, self.seqs.get(id)?, *len)));
        let all = seqs.filter(|(_, seq, len)| seq.past + len == seq.tokens.len());
        all.map(|(id, seq, _)| (id, seq)).collect()
    }

    /// Starts the step; a backend that queues its work does not wait for it.
    pub(crate) fn launch(&self, batch: Batch, ran: &[(SeqId, usize)]) -> Result<Started> {
        let wanting = self.wanting(ran);
        let needs = wanting.iter().map(|(_, seq)| seq.chain.needs()).try_fold(0, |a, n| Some(a.max(n?)));
        // A probability has all logits in it, whatever the draw needs.
        let whole = wanting.iter().any(|(_, seq)| seq.logprobs.is_some());
        let top_k = needs.filter(|n| *n <= FEW && !whole);
        Ok(Started { logits: self.logits(batch, top_k)?, top_k })
    }

    /// Waits for the step, and draws a token for each sequence of `ran` that has then seen all it has.
    pub(crate) fn draw(&self, started: &Started, ran: &[(SeqId, usize)]) -> Result<Vec<Drawn>> {
        let (Started { logits, top_k }, wanting) = (started, self.wanting(ran));
        if wanting.is_empty() {
            return Ok(Vec::new());
        }
        let mut drawn = Vec::with_capacity(wanting.len());
        match *top_k {
            Some(k) => {
                let rows = self.backend.best(logits, k)?;
                for ((id, seq), row) in wanting.iter().zip(rows) {
                    let list = row.into_iter().map(|(id, logit)| Candidate { id, logit }).collect();
                    let mut chain = seq.chain.clone();
                    let token = chain.sample_candidates(list, &seq.tokens);
                    drawn.push((*id, chain, token, None));
                }
            }
            None => {
                let (values, vocab) = (self.backend.download(logits)?, logits.shape().cols().max(1));
                for ((id, seq), row) in wanting.iter().zip(values.chunks(vocab)) {
                    let mut chain = seq.chain.clone();
                    let token = chain.sample(row, &seq.tokens);
                    let of = |n| Some(LogProbs::new(row, *token.as_ref().ok()?, n));
                    let logprobs = seq.logprobs.and_then(of);
                    drawn.push((*id, chain, token, logprobs));
                }
            }
        }
        if drawn.len() != wanting.len() {
            let why = format!("{} rows of logits for {} sequences", drawn.len(), wanting.len());
            return Err(Error::invalid("step", why));
        }
        Ok(drawn)
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
