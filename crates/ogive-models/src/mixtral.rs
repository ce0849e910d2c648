//! Mixtral: Llama with a mixture of experts for its MLP.
//!
//! Jiang et al. 2024, <https://arxiv.org/abs/2401.04088>; transformers' `modeling_mixtral`.

use crate::{llama, windows};
use ogive_nn::backend::{Activation, RouterSpec, Scoring};
use ogive_nn::tensor::Result;
use ogive_nn::{Config, FeedForward, Loader, Model, Moe};

/// Reads a checkpoint with Hugging Face's names; experts stacked or one by one.
///
/// # Errors
/// If there are not `num_local_experts` of each projection; else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let n = c.usize("num_local_experts")?;
    let router = RouterSpec::new(c.usize_or("num_experts_per_tok", 2)?, Scoring::Softmax);
    let activation = ogive_nn::activation(c, "hidden_act", Activation::Silu)?;
    llama::load_with(c, root, windows::same(c)?, &|l, _| {
        let moe = Moe::load(&l.at("block_sparse_moe"), n, router.clone(), ["w1", "w3", "w2"], activation)?;
        Ok(FeedForward::Moe(moe))
    })
}
