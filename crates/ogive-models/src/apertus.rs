//! Apertus: Llama with norms on heads and an MLP without a gate, whose activation (xIELU) has learned numbers in each layer.
//!
//! Swiss AI 2025, <https://arxiv.org/abs/2509.14233>; transformers' `modeling_apertus`. The numbers are weights in a checkpoint and lists of
//! settings in GGUF, and are read from where they are.

use crate::class::{Class, LLAMA};
use crate::decoder;
use ogive_nn::backend::{Activation, Xielu};
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Config, FeedForward, Loader, Mlp, Model};

const APERTUS: Class =
    Class { norms: [Some("attention_layernorm"), None, Some("feedforward_layernorm"), None], ..LLAMA };

/// Reads a checkpoint with Hugging Face's names.
///
/// # Errors
/// If there are no norms of queries, and if a number of the activation is missing, or is none.
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    if !decoder::norms_heads(root)? {
        return Err(Error::missing("model.layers.0.self_attn.q_norm.weight"));
    }
    let fixed = match c.opt_str("hidden_act")? {
        None | Some("xielu") => None,
        Some(_) => Some(ogive_nn::activation(c, "hidden_act", Activation::Silu)?),
    };
    decoder::load(&APERTUS, c, root, |_, rope, spec| (Some(rope), spec), &|l, i| {
        let l = l.at("mlp");
        let activation = match fixed {
            Some(activation) => activation,
            None => Activation::Xielu(xielu(c, &l.at("act_fn"), i)?),
        };
        Ok(FeedForward::Plain(Mlp { up: l.linear("up_proj")?, down: l.linear("down_proj")?, activation }))
    })
}

/// What a layer's activation has learned: the factors before a softplus.
fn xielu(c: &Config, l: &Loader<'_>, layer: usize) -> Result<Xielu> {
    let number = |name: &str| {
        let key = format!("xielu_{name}");
        let found = match l.optional(l.tensor(name))? {
            Some(host) => host.to_vec(),
            None => {
                c.opt_f32s(&key)?.map_or_else(Vec::new, |all| all.get(layer).copied().into_iter().collect())
            }
        };
        match *found {
            [number] if number.is_finite() => Ok(number),
            [] => Err(Error::missing(&l.name(name))),
            _ => Err(Error::invalid(&l.name(name), "it should be one number")),
        }
    };
    let softplus = |x: f32| (f64::from(x).max(0.0) + (-f64::from(x).abs()).exp().ln_1p()) as f32;
    let linear = number("beta")?;
    Ok(Xielu {
        positive: softplus(number("alpha_p")?),
        negative: linear + softplus(number("alpha_n")?),
        linear,
        bound: number("eps")?,
    })
}
