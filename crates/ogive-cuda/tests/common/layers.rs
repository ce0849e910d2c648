//! A Llama of three layers, small, on any backend: what a split one computes step by step.

use ogive_backend::tensor::{F32, HostWeight, Result, Tensor};
use ogive_backend::{
    Activation, AttnSpec, Backend, Batch, BlockTable, Cache, CacheSpec, Ids, LayerCache, Plan, Rope, StepKey,
    Weight,
};

pub(crate) const DIM: usize = 64;
pub(crate) const LAYERS: usize = 3;
/// Tokens of a block, and blocks of a sequence.
const BLOCK: usize = 4;
const BLOCKS: u32 = 8;

/// The layers, with a cache for three sequences.
pub(crate) struct Model {
    table: Weight,
    head: Weight,
    layers: Vec<Vec<Weight>>,
    rope: Rope,
    cache: Cache,
    ones: Tensor,
}

impl Model {
    /// Weights of one device are those of any.
    pub(crate) fn new(b: &dyn Backend) -> Result<Self> {
        let weight = |i: usize, name: String| {
            let value = |j: usize| ((j * 31 + i * 17) % 97) as f32 / 388.0 - 0.125;
            let values: Vec<f32> = (0..DIM * DIM).map(value).collect();
            let mut bytes = vec![0; DIM * F32.row_bytes(DIM)];
            F32.encode_row(&values, &mut bytes)?;
            b.upload_weight(&HostWeight::new(name, [1, DIM, DIM], &F32, bytes.into())?)
        };
        let layer =
            |l: usize| (0..7).map(|i| weight(7 * l + i + 2, format!("model.layers.{l}.{i}"))).collect();
        let caches = vec![LayerCache::full(DIM, DIM); LAYERS];
        Ok(Self {
            table: weight(0, "model.embed_tokens.weight".into())?,
            head: weight(1, "lm_head.weight".into())?,
            layers: (0..LAYERS).map(layer).collect::<Result<_>>()?,
            rope: Rope::new(vec![0.5; 16]),
            cache: b.new_cache(&CacheSpec::new(caches, BLOCK, 3 * BLOCKS as usize, 2))?,
            ones: b.upload(&[1.0; DIM], [DIM].into())?,
        })
    }

    /// A token for each of `tokens`, each a sequence of its own, after `past` others.
    pub(crate) fn batch(tokens: &[u32], past: usize) -> Batch {
        let mut batch = Batch::default();
        for (i, token) in (0u32..).zip(tokens) {
            let blocks = (i * BLOCKS..(i + 1) * BLOCKS).collect();
            batch.push(&[*token], past, vec![BlockTable { first: 0, blocks }], [0, 1]);
            batch.want_last();
        }
        batch
    }

    /// `[outputs, DIM]`
    pub(crate) fn logits(&self, b: &dyn Backend, plan: &Plan) -> Result<Tensor> {
        let n = plan.batch().tokens.len();
        let mut x = b.embed(&self.table, Ids::Tokens, plan)?;
        let mut normed = b.rms_norm(&x, &self.ones, 1e-5)?;
        for (i, ws) in self.layers.iter().enumerate() {
            let [q, k, v, out, gate, up, down] = &ws[..] else { unreachable!("seven weights") };
            let heads = |w: &Weight| b.linear(&normed, w)?.reshape([n, 2, 32]);
            let (q, k, v) = (heads(q)?, heads(k)?, b.linear(&normed, v)?);
            let spec = AttnSpec::causal(2, 2, 32);
            let y = b.rope_attend(i, q, k, &v, &self.rope, &self.cache, &spec, plan)?;
            let (sum, middle) = b.add_rms_norm(x, &b.linear(&y, out)?, &self.ones, 1e-5)?;
            let y = b.linear(&b.linear_gated(&middle, gate, up, Activation::Silu)?, down)?;
            (x, normed) = b.add_rms_norm(sum, &y, &self.ones, 1e-5)?;
        }
        b.linear(&b.outputs(&normed, plan)?, &self.head)
    }

    /// The same, recorded under the number `key` and replayed when it comes again.
    pub(crate) fn replayed(&self, b: &dyn Backend, key: u64, batch: Batch) -> Result<Tensor> {
        let key = StepKey::of(key, &batch);
        let plan = b.plan(batch)?;
        match key {
            Some(key) => b.replay(&key, &plan, &mut |plan| self.logits(b, plan)),
            None => self.logits(b, &plan),
        }
    }
}
