//! GPT-NeoX, the architecture of Pythia (Black et al. 2022, <https://arxiv.org/abs/2204.06745>): layer norms with biases,
//! attention and MLP side by side on the same stream, rotary positions on a quarter of each head.
//!
//! The reference is transformers' `modeling_gpt_neox`. Its checkpoints keep a head's query, key and value one below the
//! other, head after head; the rows are put in the order q, k, v when they are loaded, so that nothing below has to know.

use ogive::backend::{Activation, AttnSpec, Axis, LayerCache, Rope};
use ogive::nn::{Embedding, LayerNorm, Linear, Loader, Mlp, Model, Step, activation, heads_of, rope};
use ogive::tensor::{Config, Error, HostWeight, Result, Tensor};

#[derive(Debug)]
struct GptNeoX {
    embed: Embedding,
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
    rope: Rope,
    spec: AttnSpec,
    /// Whether the MLP reads what attention read, and not what came of it.
    parallel: bool,
}

/// Reads a checkpoint with Hugging Face's names.
///
/// # Errors
/// If `rope_scaling` is there, if another setting is missing or of a wrong type, or if a weight is missing or does not fit.
pub fn load(c: &Config, file: &Loader<'_>) -> Result<Box<dyn Model>> {
    if c.has("rope_scaling") {
        return Err(Error::unsupported("config", "`rope_scaling`: no GPT-NeoX was published with one"));
    }
    let eps = c.f32_or("layer_norm_eps", 1e-5)?;
    let l = file.at("gpt_neox");
    let blocks = 0..c.usize("num_hidden_layers")?;
    let embed = l.embedding("embed_in")?;
    Ok(Box::new(GptNeoX {
        blocks: blocks.map(|i| Block::load(&l.at("layers").at(i), c, i, eps)).collect::<Result<_>>()?,
        norm: l.layer_norm("final_layer_norm", eps)?,
        head: file.head("embed_out", &embed, c.bool_or("tie_word_embeddings", false)?)?,
        embed,
    }))
}

/// The place of each row of q, k and v in the file, where they are head by head.
fn by_head(heads: usize, dim: usize) -> Vec<usize> {
    let row = |(part, head): (usize, usize)| (0..dim).map(move |i| (head * 3 + part) * dim + i);
    (0..3).flat_map(|part| (0..heads).map(move |head| (part, head))).flat_map(row).collect()
}

/// `query_key_value` with its rows and biases in that order.
fn load_qkv(l: &Loader<'_>, heads: usize, dim: usize) -> Result<Linear> {
    let (name, order) = ("attention.query_key_value", by_head(heads, dim));
    let weight = l.weight(&l.host(name)?.reordered(&order)?)?;
    let in_order = |host: HostWeight| {
        let had = host.to_vec();
        let sorted: Option<Vec<f32>> = order.iter().map(|&i| had.get(i).copied()).collect();
        let sorted = sorted.ok_or_else(|| Error::invalid(&host.name, "fewer biases than rows"))?;
        l.backend().upload(&sorted, [sorted.len()].into())
    };
    let bias = l.optional(l.tensor(&format!("{name}.bias")))?.map(in_order).transpose()?;
    Ok(Linear::new(weight, bias))
}

impl Block {
    fn load(l: &Loader<'_>, c: &Config, layer: usize, eps: f32) -> Result<Self> {
        let (heads, dim) = heads_of(c)?;
        let turning = (dim as f32 * c.f32_or("rotary_pct", 0.25)?) as usize;
        if turning > dim {
            return Err(Error::invalid("config", "`rotary_pct` should be 0 to 1"));
        }
        Ok(Self {
            layer,
            attn_norm: l.layer_norm("input_layernorm", eps)?,
            qkv: load_qkv(l, heads, dim)?,
            o: l.linear("attention.dense")?,
            mlp_norm: l.layer_norm("post_attention_layernorm", eps)?,
            mlp: Mlp {
                up: l.linear("mlp.dense_h_to_4h")?,
                down: l.linear("mlp.dense_4h_to_h")?,
                activation: activation(c, "hidden_act", Activation::Gelu)?,
            },
            rope: rope(turning, c.f32_or("rotary_emb_base", 10_000.0)?),
            spec: AttnSpec::causal(heads, heads, dim),
            parallel: c.bool_or("use_parallel_residual", true)?,
        })
    }

    /// `[n, dim] -> [n, dim]`
    fn forward(&self, s: &Step<'_>, x: Tensor) -> Result<Tensor> {
        let (b, n) = (s.backend, x.shape().rows());
        let (heads, k_dim) = (self.spec.heads, self.spec.k_dim);
        let qkv = self.qkv.forward(s, &self.attn_norm.forward(s, &x)?)?; // [n, 3 * dim]
        let mut parts = b.split(&qkv, Axis::Cols, &[heads * k_dim; 3])?.into_iter();
        let (Some(q), Some(k), Some(v)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(Error::invalid("split", "three parts were asked for"));
        };
        let (q, k) = (q.reshape([n, heads, k_dim])?, k.reshape([n, heads, k_dim])?);
        let h = b.rope_attend(self.layer, q, k, &v, &self.rope, s.cache, &self.spec, s.plan)?; // [n, dim]
        let attended = self.o.forward(s, &h)?;
        let x = if self.parallel { x } else { b.add(x, &attended)? };
        let h = self.mlp.forward(s, &self.mlp_norm.forward(s, &x)?)?;
        let x = if self.parallel { b.add(x, &attended)? } else { x };
        b.add(x, &h)
    }
}

impl Model for GptNeoX {
    fn cache_layout(&self) -> Vec<LayerCache> {
        let width = |block: &Block| block.spec.heads * block.spec.k_dim;
        self.blocks.iter().map(|block| LayerCache::full(width(block), width(block))).collect()
    }

    fn hidden(&self, s: &Step<'_>) -> Result<Tensor> {
        let mut x = self.embed.forward(s)?; // [n, dim]
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
