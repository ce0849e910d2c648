//! ModernBERT (Warner et al. 2024, <https://arxiv.org/abs/2412.13663>): an encoder with rotary positions, gated MLPs, norms before each part, and
//! layers of which two in three look at their neighbourhood alone; gte-modernbert, modernbert-embed.
//!
//! The reference is transformers' `modeling_modernbert`. Local layers look around a token by an option of attention, which every backend has, and not by
//! a mask, which would grow with the square of a text.

use ogive_nn::backend::{Activation, AttnSpec, Axis, LayerCache, Rope};
use ogive_nn::tensor::{Error, Result, Tensor, serde_json::json};
use ogive_nn::{Classifier, Config, Embedding, LayerNorm, Linear, Loader, Model, Pooling, Step, activation};

#[derive(Debug)]
struct ModernBert {
    tokens: Embedding,
    norm: LayerNorm,
    blocks: Vec<Block>,
    last_norm: LayerNorm,
}

#[derive(Debug)]
struct Block {
    /// The first block has none: what it is given was normed.
    attn_norm: Option<LayerNorm>,
    qkv: Linear,
    o: Linear,
    mlp_norm: LayerNorm,
    /// What goes through the activation, and what it gates.
    up: Linear,
    act: Activation,
    down: Linear,
    spec: AttnSpec,
    rope: Rope,
}

/// Reads a checkpoint with Hugging Face's names, with or without `model.` before them.
///
/// # Errors
/// If which layers are local is said in another way than by a number, or rotary positions are stretched; else as [every `load`](crate#errors).
pub fn load(c: &Config, file: &Loader<'_>) -> Result<Box<dyn Model>> {
    let l = file.at_or_here("model", "embeddings.tok_embeddings")?;
    let every = c.usize_or("global_attn_every_n_layers", 3)?;
    let listed = c.opt_strs("layer_types")?.unwrap_or_default();
    let is_local = |i: usize| every != 0 && !i.is_multiple_of(every);
    if listed.iter().enumerate().any(|(i, kind)| (kind == "sliding_attention") != is_local(i)) {
        return Err(Error::unsupported("config", "`layer_types` are others than a number says"));
    }
    let (eps, act) = (c.f32_or("norm_eps", 1e-5)?, activation(c, "hidden_activation", Activation::Gelu)?);
    let spec = crate::bert::scores(crate::windows::unstretched(c)?)?;
    let turned = |own: &str, later: &str, usual: f32| {
        let theta = c.opt_f32(own)?.or(c.opt_f32(later)?).unwrap_or(usual);
        ogive_nn::rope_of(&Config(json!({"rope_theta": theta})), file, spec.k_dim)
    };
    let global = turned("global_rope_theta", "rope_theta", 160_000.0)?;
    let local = turned("local_rope_theta", "rope_local_base_freq", 10_000.0)?;
    // How far a token sees to either side.
    let around = spec.clone().around(c.usize_or("local_attention", 128)? / 2);
    let block = |i| {
        let l = l.at("layers").at(i);
        Ok(Block {
            attn_norm: if i == 0 { None } else { Some(l.layer_norm("attn_norm", eps)?) },
            qkv: l.linear("attn.Wqkv")?,
            o: l.linear("attn.Wo")?,
            mlp_norm: l.layer_norm("mlp_norm", eps)?,
            up: l.linear("mlp.Wi")?,
            down: l.linear("mlp.Wo")?,
            act,
            spec: if is_local(i) { around.clone() } else { spec.clone() },
            rope: if is_local(i) { local.clone() } else { global.clone() },
        })
    };
    Ok(Box::new(ModernBert {
        tokens: l.embedding("embeddings.tok_embeddings")?,
        norm: l.layer_norm("embeddings.norm", eps)?,
        blocks: (0..c.usize("num_hidden_layers")?).map(block).collect::<Result<_>>()?,
        last_norm: l.layer_norm("final_norm", eps)?,
    }))
}

/// Reads one with a head for classes.
///
/// # Errors
/// If `classifier_pooling` is neither `cls` nor `mean`; else as [`load`].
pub fn load_classifier(c: &Config, file: &Loader<'_>) -> Result<Box<dyn Model>> {
    let pooling = match c.opt_str("classifier_pooling")?.unwrap_or("cls") {
        "cls" => Pooling::Cls,
        "mean" => Pooling::Mean,
        other => {
            let why = format!("`classifier_pooling` is `{other}`; known are cls, mean");
            return Err(Error::unsupported("config", why));
        }
    };
    let (l, act) = (file.at("head"), activation(c, "classifier_activation", Activation::Gelu)?);
    let norm = l.layer_norm("norm", c.f32_or("norm_eps", 1e-5)?)?;
    let (dense, out) = (l.linear("dense")?, file.linear("classifier")?);
    Ok(Box::new(Classifier::new(load(c, file)?, pooling, dense, act, out).normed(norm)))
}

fn parts<const N: usize>(all: Vec<Tensor>) -> Result<[Tensor; N]> {
    all.try_into().map_err(|_| Error::invalid("split", "the backend gave another number of parts"))
}

impl Block {
    /// `[n, dim] -> [n, dim]`
    fn forward(&self, s: &Step<'_>, x: Tensor) -> Result<Tensor> {
        let (b, n, heads, dim) = (s.backend, x.shape().rows(), self.spec.heads, self.spec.k_dim);
        let h = self.attn_norm.as_ref().map_or_else(|| Ok(x.clone()), |norm| norm.forward(s, &x))?;
        let qkv = self.qkv.forward(s, &h)?; // [n, 3 * dim]
        let [q, k, v] = parts(b.split(&qkv, Axis::Cols, &[heads * dim; 3])?)?;
        let [q, k] = [q, k].map(|x| b.rope(x.reshape([n, heads, dim])?, &self.rope, s.plan));
        let h = b.attend(&q?, &k?, &v, &self.spec, s.plan)?; // [n, dim]
        let x = b.add(x, &self.o.forward(s, &h)?)?;
        let both = self.up.forward(s, &self.mlp_norm.forward(s, &x)?)?; // [n, 2 * ffn]
        let halves = [both.shape().cols() / 2; 2];
        let [up, gate] = parts(b.split(&both, Axis::Cols, &halves)?)?; // [n, ffn] each
        b.add(x, &self.down.forward(s, &b.mul(b.activate(up, self.act)?, &gate)?)?)
    }
}

impl Model for ModernBert {
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
        let mut x = self.norm.forward(s, &self.tokens.forward(s)?)?; // [n, dim]
        for (i, block) in self.blocks.iter().enumerate() {
            x = block.forward(s, x)?;
            s.observe(|| format!("layers.{i}"), &x);
        }
        self.last_norm.forward(s, &x)
    }

    fn head(&self, _: &Step<'_>, _: Tensor) -> Result<Tensor> {
        Err(crate::head::no_logits("encoder", ""))
    }
}
