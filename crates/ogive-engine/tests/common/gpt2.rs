//! GPT-2: learned positions, layer norms with biases, weights kept `[in, out]`.
//! The second half of the layers reads what the first half stored: no
//! published model, but the smallest that shares caches.

use ogive_nn::backend::{Activation, AttnSpec, Axis, Ids, LayerCache};
use ogive_nn::tensor::{Result, Tensor};
use ogive_nn::{Config, Embedding, LayerNorm, Linear, Loader, Model, Step};

#[derive(Debug)]
struct Gpt2 {
    tokens: Embedding,
    positions: Embedding,
    blocks: Vec<(LayerNorm, [Linear; 2], LayerNorm, [Linear; 2])>,
    norm: LayerNorm,
    spec: AttnSpec,
    dim: usize,
}

/// Reads a checkpoint with Hugging Face's names.
pub(crate) fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let (dim, heads) = (c.usize("n_embd")?, c.usize("n_head")?);
    let blocks = (0..c.usize("n_layer")?)
        .map(|i| {
            let l = root.at("h").at(i);
            let attn = [l.linear_transposed("attn.c_attn")?, l.linear_transposed("attn.c_proj")?];
            let mlp = [l.linear_transposed("mlp.c_fc")?, l.linear_transposed("mlp.c_proj")?];
            Ok((l.layer_norm("ln_1", 1e-5)?, attn, l.layer_norm("ln_2", 1e-5)?, mlp))
        })
        .collect::<Result<_>>()?;
    let (tokens, positions, norm) =
        (root.embedding("wte")?, root.embedding("wpe")?, root.layer_norm("ln_f", 1e-5)?);
    Ok(Box::new(Gpt2 {
        tokens,
        positions,
        blocks,
        norm,
        spec: AttnSpec::causal(heads, heads, dim / heads),
        dim,
    }))
}

impl Model for Gpt2 {
    fn cache_layout(&self) -> Vec<LayerCache> {
        let half = self.blocks.len().div_ceil(2);
        let own = (0..half).map(|_| LayerCache::full(self.dim, self.dim));
        own.chain((half..self.blocks.len()).map(|i| LayerCache::Shares(i - half))).collect()
    }

    fn hidden(&self, s: &Step<'_>) -> Result<Tensor> {
        let (b, half) = (s.backend, self.blocks.len().div_ceil(2));
        let mut x = b.add(self.tokens.of(s, Ids::Tokens)?, &self.positions.of(s, Ids::Positions)?)?;
        for (i, (attn_norm, [qkv, o], mlp_norm, [fc, proj])) in self.blocks.iter().enumerate() {
            let parts = b.split(&qkv.forward(s, &attn_norm.forward(s, &x)?)?, Axis::Cols, &[self.dim; 3])?;
            if i < half {
                b.store_kv(i, &parts[1], Some(&parts[2]), s.cache, s.plan)?;
            }
            let h = b.attend_cache(i, &parts[0], s.cache, &self.spec, s.plan)?;
            x = b.add(x, &o.forward(s, &h)?)?;
            let h = b.activate(fc.forward(s, &mlp_norm.forward(s, &x)?)?, Activation::GeluTanh)?;
            x = b.add(x, &proj.forward(s, &h)?)?;
        }
        self.norm.forward(s, &x)
    }

    fn head(&self, s: &Step<'_>, hidden: Tensor) -> Result<Tensor> {
        self.tokens.tied().forward(s, &hidden)
    }
}
