//! Nomic's BERT (Nussbaum et al. 2024, <https://arxiv.org/abs/2402.01613>): BERT with rotary positions and gated MLPs, mostly
//! without biases; nomic-embed-text v1 and v1.5.
//!
//! The reference is the checkpoints' own `modeling_hf_nomic_bert`; transformers' `modeling_nomic_bert` computes the same.
//! Both save under names of their own and both are read. A setting that the published models leave off and that changes
//! what is computed is refused, not ignored.

use crate::bert::{Block, Encoder, scores};
use ogive_nn::backend::{Activation, Rope, RopeLayout};
use ogive_nn::tensor::{Error, Result, serde_json::json};
use ogive_nn::{Config, FeedForward, GatedMlp, Loader, Model, activation};

/// What the parts are called.
struct Names {
    norm: &'static str,
    layers: &'static str,
    qkv: &'static str,
    o: &'static str,
    norms: [&'static str; 2],
    mlp: [&'static str; 3],
}

const NOMIC: Names = Names {
    norm: "emb_ln",
    layers: "encoder.layers",
    qkv: "attn.Wqkv",
    o: "attn.out_proj",
    norms: ["norm1", "norm2"],
    mlp: ["mlp.fc12", "mlp.fc11", "mlp.fc2"],
};

const TRANSFORMERS: Names = Names {
    norm: "embeddings.LayerNorm",
    layers: "layers",
    qkv: "self_attn.qkv_proj",
    o: "self_attn.o_proj",
    norms: ["post_attention_layernorm", "post_mlp_layernorm"],
    mlp: ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"],
};

/// Reads a checkpoint with Nomic's or transformers' names, with or without `bert.` before them.
///
/// # Errors
/// If a setting is on that the published models leave off, `prenorm` or `parallel_block` say; else as [every `load`](crate#errors).
pub fn load(c: &Config, file: &Loader<'_>) -> Result<Box<dyn Model>> {
    refuse_the_unknown(c)?;
    let l = file.at_or_here("bert", "embeddings.word_embeddings")?;
    let names = if l.optional(l.layer_norm(NOMIC.norm, 0.0))?.is_some() { NOMIC } else { TRANSFORMERS };
    let eps = c.f32_or("layer_norm_epsilon", c.f32_or("layer_norm_eps", 1e-12)?)?;
    let spec = scores(c)?;
    let (rope, act) = (rotation(c, file, spec.k_dim)?, gate(c)?);
    let separate = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];
    let block = |i| {
        let l = l.at(names.layers).at(i);
        Ok(Block {
            qkv: l.linears(names.qkv, separate, [spec.heads * spec.k_dim; 3])?,
            o: l.linear(names.o)?,
            attn_norm: l.layer_norm(names.norms[0], eps)?,
            mlp: FeedForward::Dense(GatedMlp::named(&l, names.mlp, act)?),
            mlp_norm: l.layer_norm(names.norms[1], eps)?,
            spec: spec.clone(),
            rope: Some(rope.clone()),
        })
    };
    Ok(Box::new(Encoder {
        tokens: l.embedding("embeddings.word_embeddings")?,
        positions: None,
        types: l.optional(l.embedding("embeddings.token_type_embeddings"))?,
        norm: l.layer_norm(names.norm, eps)?,
        blocks: (0..c.usize("num_hidden_layers")?).map(block).collect::<Result<_>>()?,
    }))
}

/// Rotary positions. Contexts beyond the trained one stretch them where `rotary_scaling_factor` says so; the reference does
/// it for each text by its length, here the context that was asked for decides, once for all texts.
fn rotation(c: &Config, file: &Loader<'_>, head_dim: usize) -> Result<Rope> {
    let mut c = c.clone();
    let factor = c.opt_f32("rotary_scaling_factor")?;
    if let (Some(factor), Some(settings)) = (factor, c.0.as_object_mut()) {
        settings.insert("rope_scaling".into(), json!({"rope_type": "dynamic", "factor": factor}));
    }
    let rope = ogive_nn::rope_of(&c, file, head_dim)?;
    let pairs = c.bool_or("rotary_emb_interleaved", false)?;
    Ok(if pairs { rope.layout(RopeLayout::Pairs) } else { rope })
}

/// What the gate goes through: `swiglu` and its like in Nomic's settings, the bare function in transformers'.
fn gate(c: &Config) -> Result<Activation> {
    match c.opt_str("activation_function")? {
        None => activation(c, "hidden_act", Activation::Silu),
        Some("swiglu") => Ok(Activation::Silu),
        Some("geglu") => Ok(Activation::Gelu),
        Some(other) => {
            let why = format!("`activation_function` is `{other}`; known are swiglu, geglu");
            Err(Error::unsupported("config", why))
        }
    }
}

fn refuse_the_unknown(c: &Config) -> Result<()> {
    let refuse = |key: &str| {
        Err(Error::unsupported("config", format!("`{key}` is set, which is not known for this model")))
    };
    for key in
        ["prenorm", "parallel_block", "parallel_block_tied_norm", "use_rms_norm", "causal", "is_decoder"]
    {
        if c.bool_or(key, false)? {
            return refuse(key);
        }
    }
    if c.has("rotary_emb_scale_base") {
        return refuse("rotary_emb_scale_base");
    }
    if c.usize_or("moe_every_n_layers", 0)? > 0 {
        return refuse("moe_every_n_layers");
    }
    Ok(())
}
