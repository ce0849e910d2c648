//! DeepSeek-V2's attention: the cache keeps one short row for each token, from
//! which all heads' keys and values can be computed. Either they are, for the
//! whole context, or the projection moves to the other side of the product:
//! `absorbed` reads the short rows as they are.
//!
//! DeepSeek-AI 2024, <https://arxiv.org/abs/2405.04434>

use ogive_nn::backend::{Activation, AttnOption, AttnSpec, Axis, LayerCache, Rope, RopeLayout, Weight};
use ogive_nn::tensor::{Result, Tensor};
use ogive_nn::{Config, Embedding, GatedMlp, Linear, Loader, Model, Residual, RmsNorm, Step};

#[derive(Debug)]
struct DeepSeek {
    embed: Embedding,
    blocks: Vec<(RmsNorm, Mla, RmsNorm, GatedMlp)>,
    norm: RmsNorm,
    head: Linear,
}

#[derive(Debug)]
struct Mla {
    layer: usize,
    dims: [usize; 5], // heads, rank, rope, nope, v
    q: Linear,
    kv_a: Linear,
    kv_norm: RmsNorm,
    kv_b: Linear,
    absorbed: Option<[Vec<Weight>; 2]>, // [rank, nope] and [v, rank] of each head
    o: Linear,
    rope: Rope,
}

/// Reads a checkpoint with Hugging Face's names.
pub(crate) fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let (eps, l) = (c.f32_or("rms_norm_eps", 1e-6)?, root.at("model"));
    let blocks = (0..c.usize("num_hidden_layers")?)
        .map(|i| {
            let l = l.at("layers").at(i);
            let (mla, mlp) =
                (Mla::load(c, &l.at("self_attn"), i)?, GatedMlp::load(&l.at("mlp"), Activation::Silu)?);
            Ok((l.rms_norm("input_layernorm", eps)?, mla, l.rms_norm("post_attention_layernorm", eps)?, mlp))
        })
        .collect::<Result<_>>()?;
    let (embed, norm) = (l.embedding("embed_tokens")?, l.rms_norm("norm", eps)?);
    Ok(Box::new(DeepSeek { embed, blocks, norm, head: root.linear("lm_head")? }))
}

impl Mla {
    fn load(c: &Config, l: &Loader<'_>, layer: usize) -> Result<Self> {
        let [heads, rank, rope, nope, v] =
            ["num_attention_heads", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"]
                .map(|k| c.usize(k));
        let dims = [heads?, rank?, rope?, nope?, v?];
        let [heads, _, rope, nope, v] = dims;
        let (kv_b, starts) = (l.host("kv_b_proj")?, (0..heads).map(|h| h * (nope + v)));
        let keys = starts
            .clone()
            .map(|at| l.weight(&kv_b.rows(at..at + nope)?.transposed()?))
            .collect::<Result<_>>();
        let values = starts.map(|at| l.weight(&kv_b.rows(at + nope..at + nope + v)?)).collect::<Result<_>>();
        Ok(Self {
            layer,
            dims,
            q: l.linear("q_proj")?,
            kv_a: l.linear("kv_a_proj_with_mqa")?,
            kv_norm: l.rms_norm("kv_a_layernorm", 1e-6)?,
            kv_b: l.linear("kv_b_proj")?,
            absorbed: if c.bool_or("absorbed", false)? { Some([keys?, values?]) } else { None },
            o: l.linear("o_proj")?,
            rope: ogive_nn::rope(rope, c.f32_or("rope_theta", 10_000.0)?).layout(RopeLayout::Pairs),
        })
    }

    fn forward(&self, s: &Step<'_>, x: &Tensor) -> Result<Tensor> {
        let (b, n, [heads, rank, rope, nope, v]) = (s.backend, x.shape().rows(), self.dims);
        let q =
            b.split(&self.q.forward(s, x)?.reshape([n, heads, nope + rope])?, Axis::Cols, &[nope, rope])?;
        let q_pe = b.rope(q[1].clone(), &self.rope, s.plan)?; // [n, heads, rope]
        let kv = b.split(&self.kv_a.forward(s, x)?, Axis::Cols, &[rank, rope])?;
        let k_pe = b.rope(kv[1].clone().reshape([n, 1, rope])?, &self.rope, s.plan)?.reshape([n, rope])?;
        let row = b.concat(&[&self.kv_norm.forward(s, &kv[0])?, &k_pe], Axis::Cols)?; // [n, rank + rope]
        b.store_kv(self.layer, &row, None, s.cache, s.plan)?;
        let spec = |kv_heads, k_dim, v_dim| {
            AttnSpec::new(heads, kv_heads, k_dim, v_dim)
                .with(AttnOption::Causal)
                .scale(((nope + rope) as f32).powf(-0.5))
        };
        let o = if let Some([keys, values]) = &self.absorbed {
            let q = b.concat(&[&b.linear_each(&q[0], keys)?, &q_pe], Axis::Cols)?; // [n, heads, rank + rope]
            let o = b.attend_latent(self.layer, &q, s.cache, &spec(1, rank + rope, rank), s.plan)?;
            b.linear_each(&o.reshape([n, heads, rank])?, values)?.reshape([n, heads * v])?
        } else {
            let (rows, _) = b.gather_kv(self.layer, s.cache, s.plan)?; // [contexts, rank + rope]
            let (t, parts) = (rows.shape().rows(), b.split(&rows, Axis::Cols, &[rank, rope])?);
            let kv = self.kv_b.forward(s, &parts[0])?.reshape([t, heads, nope + v])?;
            let kv = b.split(&kv, Axis::Cols, &[nope, v])?;
            let k_pe = b.concat(&vec![&parts[1]; heads], Axis::Cols)?.reshape([t, heads, rope])?;
            let (q, k) = (b.concat(&[&q[0], &q_pe], Axis::Cols)?, b.concat(&[&kv[0], &k_pe], Axis::Cols)?);
            b.attend(&q, &k, &kv[1], &spec(heads, nope + rope, v), s.plan)?
        };
        self.o.forward(s, &o)
    }
}

impl Model for DeepSeek {
    fn cache_layout(&self) -> Vec<LayerCache> {
        self.blocks.iter().map(|(_, mla, ..)| LayerCache::full(mla.dims[1] + mla.dims[2], 0)).collect()
    }

    fn hidden(&self, s: &Step<'_>) -> Result<Tensor> {
        let mut x = Residual::new(self.embed.forward(s)?);
        let mut h;
        for (norm, mla, mlp_norm, mlp) in &self.blocks {
            (x, h) = x.normed(s, norm)?;
            x = x.add(s, mla.forward(s, &h)?)?;
            (x, h) = x.normed(s, mlp_norm)?;
            x = x.add(s, mlp.forward(s, &h)?)?;
        }
        (_, h) = x.normed(s, &self.norm)?;
        Ok(h)
    }

    fn head(&self, s: &Step<'_>, hidden: Tensor) -> Result<Tensor> {
        self.head.forward(s, &hidden)
    }
}
