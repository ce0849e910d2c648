//! One layer of a Llama, small, run step by step: as a program would, without an engine.

use ogive_backend::tensor::{F16, F32, Format, HostWeight, Result, Tensor};
use ogive_backend::{
    Activation, AttnSpec, Backend, Batch, BlockTable, Cache, CacheSpec, Ids, LayerCache, Plan, Rope, StepKey,
    Weight,
};
use ogive_cuda::CudaBackend;

pub(crate) const DIM: usize = 64;
/// Tokens of a block, and blocks of a sequence.
const BLOCK: usize = 4;
pub(crate) const BLOCKS: u32 = 8;

/// The layer, with a cache for three sequences.
pub(crate) struct Model {
    ws: Vec<Weight>,
    rope: Rope,
    cache: Cache,
    ones: Tensor,
}

impl Model {
    /// Weights that differ with `seed`, in single precision.
    #[allow(dead_code)] // not every test program wants it
    pub(crate) fn new(b: &CudaBackend, seed: usize) -> Result<Self> {
        Self::packed(b, seed, &F32)
    }

    /// The same in another format.
    #[allow(dead_code)] // not every test program wants it
    pub(crate) fn packed(b: &CudaBackend, seed: usize, format: &'static Format) -> Result<Self> {
        Self::with(b, seed, format, &|_, w| Ok(w))
    }

    /// The same with columns in an order, as checkpoints with act-order have them: one for all weights of an input.
    #[allow(dead_code)] // not every test program wants it
    pub(crate) fn ordered(b: &CudaBackend, seed: usize, format: &'static Format) -> Result<Self> {
        const INPUTS: [u32; 8] = [5, 1, 1, 1, 2, 3, 3, 4];
        let order = |step: u32| (0..DIM as u32).map(|i| (i * (2 * step + 1) + step) % DIM as u32).collect();
        Self::with(b, seed, format, &|i, w| w.with_input_perm(order(INPUTS[i])))
    }

    fn with(
        b: &CudaBackend,
        seed: usize,
        format: &'static Format,
        change: &dyn Fn(usize, HostWeight) -> Result<HostWeight>,
    ) -> Result<Self> {
        let weight = |i: usize| {
            let value = |j: usize| ((j * 31 + i * 17 + seed * 7) % 97) as f32 / 97.0 - 0.5;
            let values: Vec<f32> = (0..DIM * DIM).map(value).collect();
            let mut bytes = vec![0; DIM * format.row_bytes(DIM)];
            format.encode_row(&values, &mut bytes)?;
            b.upload_weight(&change(i, HostWeight::new("w", [1, DIM, DIM], format, bytes.into())?)?)
        };
        let layers = vec![LayerCache::full(DIM, DIM)];
        Ok(Self {
            ws: (0..8).map(weight).collect::<Result<_>>()?,
            rope: Rope::new(vec![0.5; 16]),
            cache: b.new_cache(&CacheSpec::new(layers, BLOCK, 3 * BLOCKS as usize, 2).element(&F16))?,
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
    pub(crate) fn logits(&self, b: &CudaBackend, plan: &Plan) -> Result<Tensor> {
        let (n, [table, q, k, v, out, gate, up, down]) = (plan.batch().tokens.len(), &self.ws[..]) else {
            unreachable!("eight weights")
        };
        let x = b.embed(table, Ids::Tokens, plan)?;
        let normed = b.rms_norm(&x, &self.ones, 1e-5)?;
        let heads = |w: &Weight| b.linear(&normed, w)?.reshape([n, 2, 32]);
        let (q, k, v) = (heads(q)?, heads(k)?, b.linear(&normed, v)?);
        let spec = AttnSpec::causal(2, 2, 32);
        let y = b.rope_attend(0, q, k, &v, &self.rope, &self.cache, &spec, plan)?;
        let (x, normed) = b.add_rms_norm(x, &b.linear(&y, out)?, &self.ones, 1e-5)?;
        let y = b.linear(&b.linear_gated(&normed, gate, up, Activation::Silu)?, down)?;
        let (_, normed) = b.add_rms_norm(x, &y, &self.ones, 1e-5)?;
        b.linear(&b.outputs(&normed, plan)?, table)
    }

    /// The same, recorded under the number `key` and replayed when it comes again.
    pub(crate) fn replayed(&self, b: &CudaBackend, key: u64, batch: Batch) -> Result<Tensor> {
        let key = StepKey::of(key, &batch);
        let plan = b.plan(batch)?;
        match key {
            Some(key) => b.replay(&key, &plan, &mut |plan| self.logits(b, plan)),
            None => self.logits(b, &plan),
        }
    }

    /// The same of a step that ends with the best `k` logits of each row.
    #[allow(dead_code)]
    pub(crate) fn replayed_top_k(&self, b: &CudaBackend, key: u64, batch: Batch, k: usize) -> Result<Tensor> {
        let (key, plan) = (StepKey::of(key, &batch).unwrap().top_k(k), b.plan(batch)?);
        b.replay(&key, &plan, &mut |plan| b.top_k(self.logits(b, plan)?, k))
    }

    /// Steps of one sequence and of three in turn, from an empty cache: the bits of what each gives.
    #[allow(dead_code)] // not every test program wants it
    pub(crate) fn steps(&self, b: &CudaBackend) -> Vec<Vec<u32>> {
        let step = |i: usize| {
            let (past, n) = (i / 2, 1 + 2 * (i % 2));
            let tokens: Vec<u32> = (0..n).map(|j| ((past * 13 + j * 29) % DIM) as u32).collect();
            let y = self.replayed(b, 1, Self::batch(&tokens, past)).unwrap();
            b.download(&y).unwrap().into_iter().map(f32::to_bits).collect()
        };
        (0..24).map(step).collect()
    }
}
