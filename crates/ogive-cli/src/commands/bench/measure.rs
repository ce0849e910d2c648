//! One measurement.
//!
//! The tokens that a sequence has before (its depth) are read once and kept: after a measurement the sequences are wound
//! back. Where a cache cannot be wound back, as that of a recurrent model, they are read again, outside the clock.

use super::guesses::Known;
use crate::error::{Error, Result};
use ogive::Model;
use ogive::backend::{Trace, TraceEntry};
use ogive::engine::{Engine, Finish, Limits, Request, SeqId};
use ogive::sampler::Rng;
use ogive::tensor::Format;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rows of a step, as sessions have it.
const STEP: usize = 512;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) prompt: usize,
    pub(super) tokens: usize,
    pub(super) depth: usize,
    pub(super) sequences: usize,
    /// What keys and values are kept in.
    pub(super) element: &'static Format,
}

impl Load {
    /// Tokens that a sequence grows to.
    pub(super) fn context(&self) -> Option<usize> {
        self.filled().checked_add(self.prompt.max(self.tokens))?.checked_add(2)
    }

    /// Tokens that a sequence has before: it cannot have none.
    fn filled(&self) -> usize {
        self.depth.max(1)
    }
}

/// What was measured once.
#[derive(Debug)]
pub(super) struct Window {
    /// Tokens read or drawn.
    pub(super) tokens: usize,
    pub(super) time: Duration,
    /// What the backend was asked for, where it is traced.
    pub(super) entries: Vec<TraceEntry>,
}

impl Window {
    /// Tokens a second.
    pub(super) fn rate(&self) -> f64 {
        self.tokens as f64 / self.time.as_secs_f64()
    }
}

/// A model and the sequences that it is measured with.
#[derive(Debug)]
pub(super) struct Bench {
    engine: Engine,
    trace: Option<Trace>,
    load: Load,
    vocabulary: u64,
    rng: Rng,
    /// What sequences have before.
    depths: Vec<Vec<u32>>,
    /// Sequences that have their depth, and one token more that was drawn and not yet read.
    filled: Vec<SeqId>,
    /// What was drawn last, behind all that came before.
    texts: Vec<Vec<u32>>,
    /// How many guesses there were when guesses were measured last, and how many of them were right.
    pub(super) guesses: [u64; 2],
}

impl Bench {
    pub(super) fn new(model: &Model, load: Load) -> Result<Self> {
        Self::with(model, load, None)
    }

    /// The same through a backend that keeps count.
    pub(super) fn traced(model: &Model, load: Load) -> Result<Self> {
        Self::with(model, load, Some(Trace::new(Arc::clone(model.backend()))))
    }

    fn with(model: &Model, load: Load, trace: Option<Trace>) -> Result<Self> {
        let context = load.context().unwrap_or(usize::MAX);
        let limits = Limits::new(context)
            .sequences(load.sequences)
            .step_tokens(STEP.min(context).max(load.sequences))
            .element(load.element);
        let engine = match &trace {
            Some(trace) => Engine::new(Arc::new(trace.clone()), Arc::clone(model.layers()), limits)?,
            None => model.engine(limits)?,
        };
        // What the engine takes may be less than what settings and tokenizer know.
        let said = match model.layers().vocab() {
            None => model.config().opt_usize("vocab_size")?,
            taken => taken,
        };
        let vocabulary = match said {
            Some(n) => n,
            None => model.tokenizer()?.vocab_size(),
        };
        let vocabulary = u64::try_from(vocabulary)?.clamp(1, u64::from(u32::MAX));
        // One seed for all: whoever compares two runs compares the same tokens.
        let (depths, filled, texts, guesses) = Default::default();
        Ok(Self { engine, trace, load, vocabulary, rng: Rng::new(0), depths, filled, texts, guesses })
    }

    /// Reads a prompt, as one sequence.
    pub(super) fn prefill(&mut self) -> Result<Window> {
        let n = self.load.prompt;
        if self.load.depth == 0 {
            let prompt = self.random(n);
            return self.timed(n, |bench| bench.engine.add(Request::new(prompt, 1)).map(|_| ()));
        }
        self.fill(1)?;
        let Some(&id) = self.filled.first() else { return Err(Error::failed("no sequence to measure")) };
        // The token that was drawn is read too.
        let prompt = self.random(n - 1);
        let window = self.timed(n, |bench| bench.engine.resume(id, Request::new(prompt, 1).keep()))?;
        self.wind_back()?;
        Ok(window)
    }

    /// Draws tokens, all sequences together.
    pub(super) fn decode(&mut self) -> Result<Window> {
        self.fill(self.load.sequences)?;
        let window = self.timed(self.load.tokens * self.filled.len(), |bench| {
            let request = || Request::new([], bench.load.tokens).keep();
            bench.filled.iter().try_for_each(|id| bench.engine.resume(*id, request()))
        })?;
        let text = |id: &SeqId| self.engine.tokens(*id).map(<[u32]>::to_vec);
        self.texts = self.filled.iter().filter_map(text).collect();
        self.wind_back()?;
        Ok(window)
    }

    /// The same with up to `most` guesses in a step, all of them right or all wrong. Of wrong ones an engine makes fewer and fewer.
    pub(super) fn decode_guessed(&mut self, most: usize, right: bool) -> Result<Window> {
        if self.texts.is_empty() {
            self.decode()?;
        }
        let known = Known { texts: self.texts.clone(), right };
        let before = self.engine.stats();
        self.engine.speculate(Some(Box::new(known)), most);
        let window = self.decode();
        self.engine.speculate(None, 0);
        let now = self.engine.stats();
        self.guesses = [now.drafted - before.drafted, now.accepted - before.accepted];
        window
    }

    /// Starts something and runs it to its end.
    fn timed(
        &mut self,
        tokens: usize,
        begin: impl FnOnce(&mut Self) -> ogive::tensor::Result<()>,
    ) -> Result<Window> {
        let seen = |bench: &Self| bench.trace.as_ref().map_or_else(Vec::new, Trace::take);
        // What came before is not of this.
        drop(seen(self));
        let start = Instant::now();
        begin(self)?;
        self.finish()?;
        Ok(Window { tokens, time: start.elapsed(), entries: seen(self) })
    }

    /// Gives `sequences` sequences their depth.
    fn fill(&mut self, sequences: usize) -> Result<()> {
        while self.filled.len() < sequences {
            let i = self.filled.len();
            if i == self.depths.len() {
                let prompt = self.random(self.load.filled());
                self.depths.push(prompt);
            }
            self.filled.push(self.engine.add(Request::new(&*self.depths[i], 1).keep())?);
        }
        self.finish()
    }

    fn wind_back(&mut self) -> Result<()> {
        let depth = self.load.filled();
        for id in std::mem::take(&mut self.filled) {
            if self.engine.rewind(id, depth + 1)? == depth {
                self.filled.push(id);
            } else {
                self.engine.cancel(id);
            }
        }
        Ok(())
    }

    /// Runs until nothing is left to do.
    fn finish(&mut self) -> Result<()> {
        while !self.engine.is_idle() {
            for event in self.engine.step()? {
                if let Some(Finish::Failed(e)) = event.finish {
                    return Err(e.into());
                }
            }
        }
        Ok(())
    }

    fn random(&mut self, n: usize) -> Vec<u32> {
        (0..n).map(|_| u32::try_from(self.rng.below(self.vocabulary)).unwrap_or(0)).collect()
    }
}
