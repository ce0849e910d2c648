//! What the inputs of a model's matrices are like on some text: an importance matrix, by which packing tells columns that matter.
//!
//! The method is that of llama.cpp's `imatrix`: a text is cut as for a [`Perplexity`], and of each window all tokens count. Sums have the names
//! that the checkpoint has for its weights, whatever file it is; `ogive_quantize::Importance::of_model` makes of them what a GGUF file is packed
//! by. They are kept in double precision, so that they do not depend on how many tokens came before.

use crate::backend::{Backend, Collect, Collected};
use crate::engine::{Evaluate, evaluate};
use crate::{Error, Model, Perplexity, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Sums of squares of the inputs of a model's matrices, window by window of a text.
///
/// ```no_run
/// # fn main() -> ogive::Result<()> {
/// let model = ogive::open("model-f16.gguf")?;
/// let mut calibration = ogive::Calibration::new(&model, 512)?;
/// let ids = calibration.encode(&std::fs::read("text.txt").expect("a text"))?;
/// for window in calibration.windows(&ids)? {
///     calibration.add(window)?;
/// }
/// println!("{} matrices", calibration.found().len());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Calibration {
    model: Model,
    windows: Perplexity,
    collect: Arc<Collect>,
    head: bool,
}

impl Calibration {
    /// Windows of `context` tokens through `model`.
    ///
    /// # Errors
    /// If the model is an encoder, and as [`Perplexity::new`].
    pub fn new(model: &Model, context: usize) -> Result<Self> {
        if model.is_encoder() {
            let why = "the model is an encoder, and what its matrices are given is not collected; pack it without importances";
            return Err(Error::Scoring(why.into()));
        }
        let windows = Perplexity::new(model, context)?;
        let collect = Arc::new(Collect::new(Arc::clone(model.backend())));
        Ok(Self { model: model.clone(), windows, collect, head: false })
    }

    /// Whether the head is looked at too, which mostly is packed better without. It takes the logits of every token.
    #[must_use]
    pub fn head(self, head: bool) -> Self {
        Self { head, ..self }
    }

    /// The ids of a text as [`windows`](Self::windows) wants them.
    ///
    /// # Errors
    /// As [`Perplexity::encode`].
    pub fn encode(&self, text: &[u8]) -> Result<Vec<u32>> {
        self.windows.encode(text)
    }

    /// The whole windows of a text; what is left at its end counts for nothing.
    ///
    /// # Errors
    /// If there is not one.
    pub fn windows<'i>(&self, ids: &'i [u32]) -> Result<std::slice::ChunksExact<'i, u32>> {
        self.windows.windows(ids)
    }

    /// Runs one more window and adds what matrices were given. The window begins as texts do, whatever its first token.
    ///
    /// # Errors
    /// If the window is not of the context's length, or if computing fails; what was added of the window until then stays.
    pub fn add(&mut self, window: &[u32]) -> Result<()> {
        /// Logits that a step may have.
        const MOST: usize = 1 << 24;
        let ids = self.windows.begun(window)?;
        let mut how = Evaluate::new();
        self.model.adjust(&mut how);
        (how.hidden, how.last) = (!self.head, !self.head);
        let vocab = self.model.layers().vocab().filter(|_| self.head);
        how.chunk = vocab.map_or(how.chunk, |n| how.chunk.min(MOST / n.max(1)).max(1));
        let b: &dyn Backend = &*self.collect;
        evaluate(b, &**self.model.layers(), &ids, &how)?;
        Ok(())
    }

    /// What was found so far, by the checkpoint's names of weights. Of some there is nothing: those that are multiplied in another form, as
    /// latent attention's are, and the head, unless it was [asked for](Self::head).
    pub fn found(&self) -> BTreeMap<String, Collected> {
        self.collect.found()
    }
}
