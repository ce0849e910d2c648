//! How much the engine may take: decided once, before anything is reserved.

use crate::backend::{CacheSpec, LayerCache, group_windows};
use crate::tensor::{Error, F16, Format, Result};

/// How large sequences, steps and the cache may grow.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Tokens of a sequence, prompt and answer together.
    pub context: usize,
    /// Sequences that run at a time; more may wait.
    pub sequences: usize,
    /// Rows of a step, prompts and decodes together.
    pub step_tokens: usize,
    /// Tokens of a cache block.
    pub block_len: usize,
    /// Tokens that all sequences together may keep; `None` for every sequence's whole context.
    pub cache_tokens: Option<usize>,
    /// What keys and values are kept in.
    pub element: &'static Format,
    /// Tokens by which sequences can always be cut without being computed anew, where layers have windows.
    pub rewind: usize,
}

impl Limits {
    /// One sequence of up to `context` tokens, steps of 512 rows, blocks of 32 tokens, keys and values in half
    /// precision.
    pub fn new(context: usize) -> Self {
        Self {
            context,
            sequences: 1,
            step_tokens: 512,
            block_len: 32,
            cache_tokens: None,
            element: &F16,
            rewind: 0,
        }
    }

    /// Another length of a sequence, prompt and answer together.
    #[must_use]
    pub fn context(self, tokens: usize) -> Self {
        Self { context: tokens, ..self }
    }

    /// Another number of sequences.
    #[must_use]
    pub fn sequences(self, sequences: usize) -> Self {
        Self { sequences, ..self }
    }

    /// Another number of rows a step.
    #[must_use]
    pub fn step_tokens(self, step_tokens: usize) -> Self {
        Self { step_tokens, ..self }
    }

    /// Another length of a block.
    #[must_use]
    pub fn block_len(self, block_len: usize) -> Self {
        Self { block_len, ..self }
    }

    /// Less cache than every sequence's whole context: sequences then wait for each other's pages.
    #[must_use]
    pub fn cache_tokens(self, tokens: usize) -> Self {
        Self { cache_tokens: Some(tokens), ..self }
    }

    /// Keys and values kept in another format.
    #[must_use]
    pub fn element(self, element: &'static Format) -> Self {
        Self { element, ..self }
    }

    /// Keeps so many tokens more than windows see: a sequence that is cut by no more ([`Engine::rewind`](crate::Engine::rewind)) goes on from there.
    /// Layers without windows keep all anyway, and states cannot be cut.
    #[must_use]
    pub fn rewind(self, tokens: usize) -> Self {
        Self { rewind: tokens, ..self }
    }

    /// What a model with these cache layers needs reserved.
    ///
    /// # Errors
    /// If a limit is 0, if a step could not hold a row of each sequence or the cache one whole context, if there were more blocks than can
    /// be numbered, or if a row is no whole number of the element's blocks.
    pub fn cache_spec(&self, layers: Vec<LayerCache>) -> Result<CacheSpec> {
        let bad = |why: String| Err(Error::invalid("engine limits", why));
        if self.context == 0 || self.sequences == 0 || self.block_len == 0 {
            return bad("context, sequences and block_len must be at least 1".into());
        }
        if self.step_tokens < self.sequences {
            return bad(format!(
                "{} rows a step are too few for {} sequences",
                self.step_tokens, self.sequences
            ));
        }
        let Some(all) = self.cache_tokens.or(self.context.checked_mul(self.sequences)) else {
            return bad(format!(
                "{} contexts of {} tokens are more than can be counted",
                self.sequences, self.context
            ));
        };
        if all < self.context {
            return bad(format!("a cache of {all} tokens is too small for one context of {}", self.context));
        }
        let one = self.context.div_ceil(self.block_len);
        // Sequences do not share blocks, so each may waste part of one.
        let full =
            if self.cache_tokens.is_some() { all.div_ceil(self.block_len) } else { one * self.sequences };
        let blocks = |window: &Option<usize>| match window {
            Some(w) => {
                let kept = w.saturating_add(self.rewind);
                let each = windowed_blocks(kept, self.step_tokens, self.block_len).min(one);
                full.min(each.saturating_mul(self.sequences))
            }
            None => full,
        };
        let blocks: Vec<usize> = group_windows(&layers).iter().map(blocks).collect();
        let has_states = layers.iter().any(|l| matches!(l, LayerCache::State { .. }));
        let slots = if has_states { self.sequences.saturating_mul(2) } else { 0 };
        if let Some(n) = blocks.iter().chain([&slots]).find(|n| u32::try_from(**n).is_err()) {
            let (c, q) = (self.context, self.sequences);
            let why =
                format!("{q} contexts of {c} tokens need {n} blocks or states, more than can be numbered");
            return bad(format!("{why}; ask for a shorter context or fewer sequences"));
        }
        let spec = CacheSpec::new(layers, self.block_len, 0, slots).element(self.element).blocks(blocks);
        spec.check()?;
        Ok(spec)
    }
}

/// Blocks that a sequence holds at most where only the last `window` tokens are looked at, in steps of up to `step`.
pub(crate) fn windowed_blocks(window: usize, step: usize, block_len: usize) -> usize {
    window.saturating_add(step).div_ceil(block_len).saturating_add(1)
}
