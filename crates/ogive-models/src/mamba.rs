//! Mamba, the first: blocks of a selective state space and nothing else, a model without keys and values. Falcon-Mamba norms what steps in time, writing and reading
//! are made of.
//!
//! Gu and Dao 2023, <https://arxiv.org/abs/2312.00752>, and Zuo et al. 2024, <https://arxiv.org/abs/2410.05355>; transformers' `modeling_mamba` and
//! `modeling_falcon_mamba`. Which projections have biases the weights say.

use crate::class::{Class, LLAMA};
use crate::{decoder, hybrid, mixer::Mixer};
use ogive_nn::backend::Activation;
use ogive_nn::tensor::Result;
use ogive_nn::{Config, Loader, Mamba, MambaSpec, Model, activation};

const MAMBA: Class =
    Class { norms: [Some("norm"), None, None, None], last_norm: "norm_f", caches: 2, tied: true, ..LLAMA };

/// Reads a Mamba checkpoint with Hugging Face's names, or with state-spaces' own name of the table of tokens.
///
/// # Errors
/// If `is_causal` is off, or the sizes of states are none; else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    load_with(c, root, None)
}

/// Reads a Falcon-Mamba checkpoint.
///
/// # Errors
/// As [`load`].
pub fn load_falcon(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    load_with(c, root, Some(c.f32_or("mixer_rms_eps", 1e-6)?))
}

fn load_with(c: &Config, root: &Loader<'_>, norm: Option<f32>) -> Result<Box<dyn Model>> {
    hybrid::looks_back(c, "a state space")?;
    let dim = c.usize("hidden_size")?;
    let auto = c.0.get("time_step_rank").is_none_or(|said| said.is_null() || said == "auto");
    let spec = MambaSpec {
        inner: match c.opt_usize("intermediate_size")? {
            Some(inner) => inner,
            None => (f64::from(c.f32_or("expand", 2.0)?) * dim as f64) as usize,
        },
        state: c.usize_or("state_size", 16)?,
        rank: if auto { dim.div_ceil(16) } else { c.usize("time_step_rank")? },
        taps: c.usize_or("conv_kernel", 4)?,
        activation: activation(c, "hidden_act", Activation::Silu)?,
        norm,
    };
    let mixer = |l: &Loader<'_>, i: usize| {
        Ok(Mixer::Space(Mamba::load(&l.at("mixer"), spec, MAMBA.caches * i)?.into()))
    };
    let model = root.at_or_here("backbone", "norm_f")?;
    let own = root.optional(model.host("embedding"))?.is_some();
    let class = Class { embed: if own { "embedding" } else { "embeddings" }, ..MAMBA };
    decoder::load_alone(&class, c, [root, &model], &mixer)
}
