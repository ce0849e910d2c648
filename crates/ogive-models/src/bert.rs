//! BERT (Devlin et al. 2018, <https://arxiv.org/abs/1810.04805>) and what is built like it: all-MiniLM, bge, e5, gte; and RoBERTa (Liu et al. 2019,
//! <https://arxiv.org/abs/1907.11692>) with XLM-RoBERTa: bge-m3, multilingual-e5, arctic-embed. Each token sees all of its text; a norm stands
//! after each sum and not before each block; positions are learned.
//!
//! The references are transformers' `modeling_bert` and `modeling_xlm_roberta`, without the pooler and the heads for training, which the vectors of
//! texts do not go through. Keys and values never enter a cache: a text is whole in its step, so they are attended to as
//! they are, unrounded, and an encoder needs no pages. Nomic's BERT is this encoder with other parts in its blocks.

use ogive_nn::backend::{Activation, AttnSpec, Ids, LayerCache, Rope};
use ogive_nn::tensor::{Error, Result, Tensor};
use ogive_nn::{Config, Embedding, FeedForward, LayerNorm, Linear, Loader, Mlp, Model, Step, activation};

/// Embeddings, a norm, blocks.
#[derive(Debug)]
pub(crate) struct Encoder {
    pub(crate) tokens: Embedding,
    pub(crate) positions: Option<Embedding>,
    pub(crate) types: Option<Embedding>,
    pub(crate) norm: LayerNorm,
    pub(crate) blocks: Vec<Block>,
}

/// Attention and an MLP, each summed with its input and normed.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) qkv: [Linear; 3],
    pub(crate) o: Linear,
    pub(crate) attn_norm: LayerNorm,
    pub(crate) mlp: FeedForward,
    pub(crate) mlp_norm: LayerNorm,
    pub(crate) spec: AttnSpec,
    pub(crate) rope: Option<Rope>,
}

/// Reads a checkpoint with Hugging Face's names, with or without `bert.` before them.
///
/// # Errors
/// If `is_decoder` is on, if positions are not absolute, or if fewer were learned than the context needs; else as
/// [every `load`](crate#errors).
pub fn load(c: &Config, file: &Loader<'_>) -> Result<Box<dyn Model>> {
    read(c, file, "bert", 0)
}

/// Reads a RoBERTa, with or without `roberta.` before its names. Its first position stands behind that of padding, and a token of padding has none
/// of its own here: texts are not filled up.
///
/// # Errors
/// If `pad_token_id` is missing; else as [`load`].
pub fn load_roberta(c: &Config, file: &Loader<'_>) -> Result<Box<dyn Model>> {
    read(c, file, "roberta", c.usize("pad_token_id")?.saturating_add(1))
}

/// `unused`: positions that no token has, before the first.
fn read(c: &Config, file: &Loader<'_>, name: &str, unused: usize) -> Result<Box<dyn Model>> {
    if c.bool_or("is_decoder", false)? {
        return Err(Error::unsupported(
            "config",
            "`is_decoder` is on: a BERT that looks back only is not known",
        ));
    }
    let kind = c.opt_str("position_embedding_type")?.unwrap_or("absolute");
    if kind != "absolute" {
        let why = format!("`position_embedding_type` is `{kind}`; known is absolute");
        return Err(Error::unsupported("config", why));
    }
    let root = file.at_or_here(name, "embeddings.word_embeddings")?;
    let (l, eps) = (root.at("embeddings"), c.f32_or("layer_norm_eps", 1e-12)?);
    let (dim, spec, act) =
        (c.usize("hidden_size")?, scores(c)?, activation(c, "hidden_act", Activation::Gelu)?);
    let block = |i| {
        let l = root.at("encoder").at("layer").at(i);
        Ok(Block {
            qkv: l.at("attention.self").linears("qkv", ["query", "key", "value"], [dim; 3])?,
            o: l.linear("attention.output.dense")?,
            attn_norm: l.layer_norm("attention.output.LayerNorm", eps)?,
            mlp: FeedForward::Plain(Mlp {
                up: l.linear("intermediate.dense")?,
                down: l.linear("output.dense")?,
                activation: act,
            }),
            mlp_norm: l.layer_norm("output.LayerNorm", eps)?,
            spec: spec.clone(),
            rope: None,
        })
    };
    Ok(Box::new(Encoder {
        tokens: l.embedding("word_embeddings")?,
        positions: Some(l.positions_behind("position_embeddings", unused)?),
        types: l.optional(l.embedding("token_type_embeddings"))?,
        norm: l.layer_norm("LayerNorm", eps)?,
        blocks: (0..c.usize("num_hidden_layers")?).map(block).collect::<Result<_>>()?,
    }))
}

/// The attention of every layer: all heads have keys of their own, and nothing is hidden.
pub(crate) fn scores(c: &Config) -> Result<AttnSpec> {
    let (heads, dim) = ogive_nn::heads_of(c)?;
    Ok(AttnSpec::new(heads, heads, dim, dim))
}

impl Block {
    /// `[n, dim] -> [n, dim]`
    fn forward(&self, s: &Step<'_>, x: Tensor) -> Result<Tensor> {
        let (b, n, spec) = (s.backend, x.shape().rows(), &self.spec);
        let [q, k, v] = Linear::forward_many(s, &x, self.qkv.each_ref())?; // [n, dim] each
        let mut qk = [q, k].map(|x| x.reshape([n, spec.heads, spec.k_dim]));
        if let Some(rope) = &self.rope {
            qk = qk.map(|x| b.rope(x?, rope, s.plan));
        }
        let [q, k] = qk;
        let h = b.attend(&q?, &k?, &v, spec, s.plan)?; // [n, dim]
        let x = self.attn_norm.forward(s, &b.add(x, &self.o.forward(s, &h)?)?)?;
        let h = self.mlp.forward(s, &x)?;
        self.mlp_norm.forward(s, &b.add(x, &h)?)
    }
}

impl Model for Encoder {
    fn cache_layout(&self) -> Vec<LayerCache> {
        Vec::new()
    }

    fn vocab(&self) -> Option<usize> {
        Some(self.tokens.rows())
    }

    fn causal(&self) -> bool {
        false
    }

    fn hidden(&self, s: &Step<'_>) -> Result<Tensor> {
        s.whole_texts()?;
        let mut x = self.tokens.forward(s)?; // [n, dim]
        for (table, ids) in [(&self.positions, Ids::Positions), (&self.types, Ids::Types)] {
            if let Some(table) = table {
                x = s.backend.add(x, &table.of(s, ids)?)?;
            }
        }
        x = self.norm.forward(s, &x)?;
        for (i, block) in self.blocks.iter().enumerate() {
            x = block.forward(s, x)?;
            s.observe(|| format!("layer.{i}"), &x);
        }
        Ok(x)
    }

    fn head(&self, _: &Step<'_>, _: Tensor) -> Result<Tensor> {
        Err(crate::head::no_logits("encoder", ""))
    }
}
