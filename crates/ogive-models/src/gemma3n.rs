//! Gemma 3n, the part that reads and writes text: four streams of which a block computes with one (AltUp), a learned residual beside attention,
//! inputs of layers as Gemma 4's smaller models have them, MLPs that cut off most of what they gate in the first layers, and last layers that
//! attend to what the last one of their kind before them stored.
//!
//! Gemma Team 2025, <https://ai.google.dev/gemma/docs/gemma-3n>; transformers' `modeling_gemma3n`. Of the vocabulary it has the text's part alone; see
//! `gemma3n_vocab.rs`.

use crate::gemma3n_block::Block;
use crate::gemma3n_settings::{sparsity, with_defaults};
use crate::gemma3n_vocab::vocabulary;
use crate::gemma4_layers::{Layers, said, usual, window};
use crate::head::{Cap, Head, places};
use crate::{class::LLAMA, layer_inputs::LayerInputs};
use ogive_nn::backend::{Activation, AttnOption, AttnSpec, LayerCache};
use ogive_nn::tensor::{Error, Result, Tensor, serde_json::json};
use ogive_nn::{AltUpEnds, Config, Embedding, Loader, Model, RmsNorm, Step};

#[derive(Debug)]
struct Gemma3n {
    embed: Embedding,
    embed_scale: Tensor,
    inputs: LayerInputs,
    ends: AltUpEnds,
    blocks: Vec<Block>,
    norm: RmsNorm,
    head: Head,
    cap: Option<Cap>,
}

/// Reads a checkpoint with Hugging Face's names, of the text alone or of a model that also sees and hears.
///
/// # Errors
/// If tokens see later ones (`is_causal`), if there is not a sparsity for each layer, if a layer is of another kind than the two, if no layer
/// stores what others share, or if there is a head of another vocabulary than the text's; else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let c = &with_defaults(c);
    if !c.bool_or("is_causal", true)? {
        let why = "`is_causal` is off, so that tokens would see later ones, which is not known of this class";
        return Err(Error::unsupported("config", why));
    }
    let activation = ogive_nn::activation(c, "hidden_activation", Activation::GeluTanh)?;
    let (eps, dim) = (c.f32_or("rms_norm_eps", 1e-6)?, c.usize("hidden_size")?);
    let (layers, sparsity) = (layers(c, root)?, sparsity(c)?);
    let (head, model) = places(root)?;
    let at = |i: usize| model.at("layers").at(i);
    // One by one: a false number of layers ends at the first that is missing.
    let blocks = (0..c.usize("num_hidden_layers")?).map(|i| {
        let attention = layers.attention(&at(i).at("self_attn"), c, i)?;
        Block::load(&at(i), c, i, attention, (activation, sparsity(i)))
    });
    let blocks = blocks.collect::<Result<Vec<_>>>()?;
    let inputs = LayerInputs::load(&LLAMA, c, &model, c.usize("hidden_size_per_layer_input")?, eps)?;
    let (embed, head) = vocabulary(c, &head, &model, inputs.rows())?;
    Ok(Box::new(Gemma3n {
        blocks,
        inputs,
        embed,
        head,
        embed_scale: model.constant((dim as f32).sqrt())?,
        ends: AltUpEnds::load(&model, c)?,
        norm: model.rms_norm("norm", eps)?,
        cap: Cap::set(c, "final_logit_softcapping")?.map(|cap| Cap::of(&model, cap)).transpose()?,
    }))
}

/// Reads the text's part of a checkpoint that also sees and hears.
///
/// # Errors
/// As [`load`], of what is below `text_config`.
pub fn load_nested(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    load(&c.at("text_config"), root)
}

/// How layers attend: all but each fifth within a window, where nothing else is said.
fn layers(c: &Config, root: &Loader<'_>) -> Result<Layers> {
    let spec = AttnSpec::causal(
        c.usize("num_attention_heads")?,
        c.usize("num_key_value_heads")?,
        c.usize("head_dim")?,
    );
    let spec = spec.scale(1.0);
    let turning = Config(json!({"rope_theta": c.f32_or("rope_local_base_freq", 10_000.0)?}));
    let (local, full) =
        (ogive_nn::rope_of(&turning, root, spec.k_dim)?, ogive_nn::rope_of(c, root, spec.k_dim)?);
    let slides = match said(c)? {
        Some(slides) => slides,
        None => usual(c.usize("num_hidden_layers")?, |i| (i + 1).is_multiple_of(5))?,
    };
    let kinds = [(local, spec.clone().with(AttnOption::Window(window(c)?))), (full, spec)];
    Layers::new(slides, c.usize("num_kv_shared_layers")?, kinds, false)
}

impl Model for Gemma3n {
    fn cache_layout(&self) -> Vec<LayerCache> {
        ogive_nn::group_by_window(self.blocks.iter().map(Block::cache))
    }

    fn vocab(&self) -> Option<usize> {
        Some(self.embed.rows())
    }

    fn hidden(&self, s: &Step<'_>) -> Result<Tensor> {
        let x = s.backend.mul(self.embed.forward(s)?, &self.embed_scale)?; // [n, dim]
        let inputs = self.inputs.forward(s, &x)?;
        let mut streams = self.ends.begin(s, x)?; // [n, dim] each
        for (block, input) in self.blocks.iter().zip(&inputs) {
            streams = block.forward(s, &streams, input)?;
        }
        self.norm.forward(s, &self.ends.end(s, streams)?)
    }

    fn head(&self, s: &Step<'_>, hidden: Tensor) -> Result<Tensor> {
        let logits = self.head.forward(s, &hidden)?;
        match &self.cap {
            Some(cap) => cap.forward(s, logits),
            None => Ok(logits),
        }
    }
}
