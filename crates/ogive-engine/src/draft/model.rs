//! Guesses by another model, which is smaller and so draws faster.

use super::{Asked, Draft, Patience};
use crate::backend::LayerCache;
use crate::nn::Model;
use crate::tensor::{Error, Result};
use crate::{Engine, Request, SeqId};
use std::collections::HashMap;

/// Guesses what another model finds most likely: one that has the same tokens and takes a small part of the time.
///
/// It has an engine of its own, whose sequences follow those they guess for. Several are drafted together, and a guess ends before the first token
/// that the model does not find [likely](Self::min_probability). Of a text in which it is not sure again and again it is asked ever more seldom. A sequence that is longer than that engine's context is not guessed for.
#[derive(Debug)]
pub struct DraftModel {
    engine: Engine,
    /// By the names of those that are guessed for.
    seqs: HashMap<SeqId, Own>,
    /// The least logarithm of a probability.
    least: f64,
}

/// A sequence of the draft's engine.
#[derive(Clone, Copy, Debug)]
struct Own {
    id: SeqId,
    /// With tokens that the model is not sure of.
    patience: Patience,
}

impl DraftModel {
    /// Guesses by `engine`, whose limits are to allow as many sequences of as long a context as there are to be guessed for, and to
    /// [take them back](crate::Limits::rewind) by one token more than are guessed. Whether its tokens mean the same is for the caller to know.
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

    /// How likely the model must find a token to guess it, 0 to 1: 0.5 unless said otherwise. What is less likely is not worth a row. With 0, or
    /// what is no number, every token is guessed, and a device need not send whole rows of logits.
    #[must_use]
    pub fn min_probability(self, probability: f32) -> Self {
        let least = if probability > 0.0 { f64::from(probability.min(1.0)).ln() } else { f64::NEG_INFINITY };
        Self { least, ..self }
    }

    /// Has the model go on behind what a sequence has; `None` where it cannot.
    fn start(&mut self, asked: &Asked<'_>) -> Result<Option<SeqId>> {
        let Asked { id, tokens, max_tokens } = *asked;
        let mut request = Request::new(tokens, max_tokens).keep();
        if self.least > f64::NEG_INFINITY {
            request = request.logprobs(0);
        }
        if tokens.len() >= self.engine.limits().context || self.engine.would_take(&request).is_err() {
            return Ok(None);
        }
        let Some(own) = self.seqs.get_mut(&id) else {
            let own = self.engine.add(request)?;
            self.seqs.insert(id, Own { id: own, patience: Patience::default() });
            return Ok(Some(own));
        };
        if !own.patience.rested() {
            return Ok(None);
        }
        let own = own.id;
        // It may still read a prompt, or draw what it guessed last.
        self.engine.pause(own);
        let had = self.engine.tokens(own).unwrap_or_default();
        let common = had.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        if common < had.len() {
            self.engine.rewind(own, common)?;
        }
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
            let events = self.engine.step()?;
            // Who still reads a long prompt goes on when it is asked again: nobody is to wait for all of it.
            if events.is_empty() {
                break;
            }
            for event in events {
                let Some(i) = own.iter().position(|own| *own == Some(event.id)) else { continue };
                let sure = event.logprobs.as_ref().is_none_or(|found| found.chosen.logprob >= self.least);
                if guesses[i].is_empty()
                    && let Some(own) = self.seqs.get_mut(&asked[i].id)
                {
                    own.patience.learn(!sure);
                }
                match event.token.filter(|_| sure) {
                    Some(token) => guesses[i].push(token),
                    None => drop(self.engine.pause(event.id)),
                }
            }
        }
        Ok(guesses)
    }

    fn forget(&mut self, id: SeqId) {
        if let Some(own) = self.seqs.remove(&id) {
            self.engine.cancel(own.id);
        }
    }
}
