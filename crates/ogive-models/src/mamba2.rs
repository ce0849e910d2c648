//! Mamba-2: blocks of a selective state space and nothing else. A model without keys and values.
//!
//! Dao and Gu 2024, <https://arxiv.org/abs/2405.21060>; transformers' `modeling_mamba2`, by which Codestral Mamba is read. What comes out is
//! normed in groups, as in state-spaces' own program, llama.cpp and transformers 5. transformers 4 normed all of it at once, which is the same
//! where there is one group. How wide a state space is its heads say, not `expand`, and which projections have biases the weights.

use crate::class::{Class, LLAMA};
use crate::{decoder, hybrid, mixer::Mixer};
use ogive_nn::backend::Activation;
use ogive_nn::tensor::Result;
use ogive_nn::{Config, Loader, Mamba2, Mamba2Spec, Model, activation};

const MAMBA2: Class =
    Class { norms: [Some("norm"), None, None, None], last_norm: "norm_f", caches: 2, ..LLAMA };

/// Reads a checkpoint with Hugging Face's names, or with state-spaces' own name of the table of tokens.
///
/// # Errors
/// If there are bounds of steps in time, or `is_causal` is off; if sizes of states do not fit each other; else as
/// [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    hybrid::looks_back(c, "a state space")?;
    hybrid::steps_in_time(c)?;
    let groups = c.usize("n_groups")?;
    let space = Mamba2Spec {
        heads: c.usize("num_heads")?,
        head_dim: c.usize("head_dim")?,
        groups,
        state: c.usize("state_size")?,
        taps: c.usize_or("conv_kernel", 4)?,
        activation: activation(c, "hidden_act", Activation::Silu)?,
        norm: Some((groups, c.f32_or("rms_norm_eps", 1e-5)?)),
        norm_before_gate: false,
    };
    let mixer = |l: &Loader<'_>, i: usize| {
        Ok(Mixer::Mamba(Mamba2::load(&l.at("mixer"), space, MAMBA2.caches * i)?.into()))
    };
    let model = root.at_or_here("backbone", "norm_f")?;
    let own = root.optional(model.host("embedding"))?.is_some();
    let class = Class { embed: if own { "embedding" } else { "embeddings" }, ..MAMBA2 };
    decoder::load_alone(&class, c, [root, &model], &mixer)
}
