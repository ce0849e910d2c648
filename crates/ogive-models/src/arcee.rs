//! Arcee (AFM): Llama with an MLP of squared ReLU without a gate.
//!
//! Arcee AI 2025, <https://www.arcee.ai/blog/announcing-the-arcee-foundation-model-family>; transformers' `modeling_arcee`.

use crate::llama;
use ogive_nn::backend::Activation;
use ogive_nn::tensor::Result;
use ogive_nn::{Config, FeedForward, Loader, Mlp, Model};

/// Reads a checkpoint with Hugging Face's names. Its class knows no window.
///
/// # Errors
/// None of its own; those of [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let activation = ogive_nn::activation(c, "hidden_act", Activation::ReluSquared)?;
    llama::load_with(c, root, |_| None, &|l, _| {
        let l = l.at("mlp");
        Ok(FeedForward::Plain(Mlp { up: l.linear("up_proj")?, down: l.linear("down_proj")?, activation }))
    })
}
