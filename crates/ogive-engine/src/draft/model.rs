//! Guesses by another model, which is smaller and so draws faster.

use super::{Asked, Draft};
use crate::backend::LayerCache;
use crate::nn::Model;
use crate::tensor::{Error, Result};
use crate::{Engine, Request, SeqId};
use std::collections::HashMap;

/// Guesses what another model finds most likely: one that has the same tokens and takes a small part of the time.
///
/// It has an engine of its own, whose sequences follow those they guess for. Several are drafted together, and a guess ends before the first token
/// that the model is not [sure](Self::sure) of. A sequence that is longer than that engine's context is not guessed for.
#[derive(Debug)]
pub struct DraftModel {
    engine: Engine,
    /// By the names of those that are guessed for.
    seqs: HashMap<SeqId, SeqId>,
    /// The least logarithm of a probability.
    least: f64,
}

impl DraftModel {
    /// Guesses by `engine`, whose limits are to allow as many sequences of as long a context as there are to be guessed for. Whether its tokens
    /// mean the same is for the caller to know.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn new(engine: Engine) -> Result<Self> {
        Self::check(&*engine.model)?;
        Ok(Self { engine, seqs: HashMap::new(), least: 0.5f64.ln() })
    }

    /// Whether `model` can be one.
    ///
    /// # Errors
    /// If it has states: each wrong guess would have all before it computed again.
    pub fn check(model: &dyn Model) -> Result<()> {
        if model.cache_layout().iter().any(|layer| matches!(layer, LayerCache::State { .. })) {
            let why =
                "it keeps states, which cannot go back behind a wrong guess; take one that only attends";
            return Err(Error::unsupported("draft model", why));
        }
        Ok(())
    }

    /// How likely the model must find a token to guess it, 0 to 1: 0.5 unless said otherwise. What is less is not worth a row.
    #[must_use]
    pub fn sure(self, probability: f32) -> Self {
        Self { least: f64::from(probability).ln(), ..self }
    }

    /// Has the model go on behind what a sequence has; `None` where it cannot.
    fn start(&mut self, asked: &Asked<'_>) -> Result<Option<SeqId>> {
        let Asked { id, tokens, most } = *asked;
        let mut request = Request::new(tokens, most).logprobs(0).keep();
        if tokens.len() >= self.engine.limits().context || self.engine.would_take(&request).is_err() {
            return Ok(None);
        }
        let Some(own) = self.seqs.get(&id).copied() else {
            let own = self.engine.add(request)?;
            self.seqs.insert(id, own);
            return Ok(Some(own));
        };
        // A draft that failed may have left it running.
        self.engine.pause(own);
        let had = self.engine.tokens(own).unwrap_or_default();
        let common = had.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        self.engine.rewind(own, common)?;
        request.prompt.drain(..common);
        self.engine.resume(own, request)?;
        Ok(Some(own))
    }
}

impl Draft for DraftModel {
    fn guess(&mut self, asked: &[Asked<'_>]) -> Result<Vec<Vec<u32>>> {
        let mut own = Vec::with_capacity(asked.len());
        for asked in asked {
            own.push(self.start(asked)?);
        }
        let mut guesses = vec![Vec::new(); asked.len()];
        while !self.engine.is_idle() {
            for event in self.engine.step()? {
                let Some(i) = own.iter().position(|own| *own == Some(event.id)) else { continue };
                let likely = event.logprobs.as_ref().is_some_and(|found| found.chosen.logprob >= self.least);
                match event.token.filter(|_| likely) {
                    Some(token) => guesses[i].push(token),
                    None => drop(self.engine.pause(event.id)),
                }
            }
        }
        Ok(guesses)
    }

    fn forget(&mut self, id: SeqId) {
        if let Some(own) = self.seqs.remove(&id) {
            self.engine.cancel(own);
        }
    }
}
