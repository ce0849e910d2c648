//! GPT-2 (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"): learned positions, layer norms
//! with biases, one matrix for queries, keys and values.
//!
//! The reference is transformers' `modeling_gpt2`. Its checkpoints keep matrices as `[in, out]`, other than nearly
//! everybody's; `linear_transposed` turns them when they are loaded, so that nothing below has to know.

use ogive_nn::backend::{Activation, AttnSpec, Axis, Ids, LayerCache};
use ogive_nn::tensor::{Error, Result, Tensor};
use ogive_nn::{Config, Embedding, LayerNorm, Linear, Loader, Mlp, Model, Step, activation, heads_of};

#[derive(Debug)]
struct Gpt2 {
    tokens: Embedding,
    positions: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}

#[derive(Debug)]
struct Block {
    /// The cache layer it owns.
    layer: usize,
    attn_norm: LayerNorm,
    qkv: Linear,
    o: Linear,
    mlp_norm: LayerNorm,
    mlp: Mlp,
    dim: usize,
    spec: AttnSpec,
}

/// Reads a checkpoint with Hugging Face's names, with or without `transformer.` before them: the first published ones
/// have it not.
///
/// # Errors
/// If `is_causal` is off, if `quantization_config` is there, or if fewer positions were learned than the context needs; else as
/// [every `load`](crate#errors).
pub fn load(c: &Config, file: &Loader<'_>) -> Result<Box<dyn Model>> {
    if !c.bool_or("is_causal", true)? {
        return Err(Error::unsupported(
            "config",
            "`is_causal` is off: a GPT-2 that looks ahead is not known",
        ));
    }
    // GPTQ's packers have turned the matrices that they packed, and only those.
    if c.has("quantization_config") {
        let why = "`quantization_config` is there: a packed GPT-2 is not read; take the model before it was packed, or a GGUF of it";
        return Err(Error::unsupported("config", why));
    }
    let l = file.at_or_here("transformer", "wte")?;
    let eps = c.f32_or("layer_norm_epsilon", 1e-5)?;
    let blocks = 0..c.usize("num_hidden_layers")?;

    let tokens = l.embedding("wte")?;
    Ok(Box::new(Gpt2 {
        positions: l.positions("wpe")?,
        blocks: blocks.map(|i| Block::load(&l.at("h").at(i), c, i, eps)).collect::<Result<_>>()?,
        norm: l.layer_norm("ln_f", eps)?,
        head: file.head("lm_head", &tokens, c.bool_or("tie_word_embeddings", true)?)?,
        tokens,
    }))
}

impl Block {
    fn load(l: &Loader<'_>, c: &Config, layer: usize, eps: f32) -> Result<Self> {
        let (heads, dim) = heads_of(c)?;
        let mut spec = AttnSpec::causal(heads, heads, dim);
        if !c.bool_or("scale_attn_weights", true)? {
            spec.scale = 1.0;
        }
        if c.bool_or("scale_attn_by_inverse_layer_idx", false)? {
            spec.scale /= (layer + 1) as f32;
        }
        Ok(Self {
            layer,
            attn_norm: l.layer_norm("ln_1", eps)?,
            qkv: l.linear_transposed("attn.c_attn")?,
            o: l.linear_transposed("attn.c_proj")?,
            mlp_norm: l.layer_norm("ln_2", eps)?,
            mlp: Mlp {
                up: l.linear_transposed("mlp.c_fc")?,
                down: l.linear_transposed("mlp.c_proj")?,
                activation: activation(c, "activation_function", Activation::GeluTanh)?,
            },
            dim: heads * dim,
            spec,
        })
    }

    /// `[n, dim] -> [n, dim]`
    fn forward(&self, s: &Step<'_>, x: Tensor) -> Result<Tensor> {
        let b = s.backend;
        let qkv = self.qkv.forward(s, &self.attn_norm.forward(s, &x)?)?; // [n, 3 * dim]
        let qkv = b.split(&qkv, Axis::Cols, &[self.dim; 3])?;
        b.store_kv(self.layer, &qkv[1], Some(&qkv[2]), s.cache, s.plan)?;
        let h = b.attend_cache(self.layer, &qkv[0], s.cache, &self.spec, s.plan)?; // [n, dim]
        let x = b.add(x, &self.o.forward(s, &h)?)?;
        let h = self.mlp.forward(s, &self.mlp_norm.forward(s, &x)?)?;
        b.add(x, &h)
    }
}

impl Model for Gpt2 {
    fn cache_layout(&self) -> Vec<LayerCache> {
        self.blocks.iter().map(|block| LayerCache::full(block.dim, block.dim)).collect()
    }

    fn hidden(&self, s: &Step<'_>) -> Result<Tensor> {
        let mut x = s.backend.add(self.tokens.forward(s)?, &self.positions.of(s, Ids::Positions)?)?; // [n, dim]
        for block in &self.blocks {
            x = block.forward(s, x)?;
            s.observe(|| format!("h.{}", block.layer), &x);
        }
        self.norm.forward(s, &x)
    }

    fn head(&self, s: &Step<'_>, hidden: Tensor) -> Result<Tensor> {
        self.head.forward(s, &hidden)
    }
}
