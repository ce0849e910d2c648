//! Attention over the cache of a few sequences: what one step of it gives, on any backend.

use ogive_backend::tensor::{F16, Format, Result};
use ogive_backend::{AttnOption, AttnSpec, Backend, Batch, BlockTable, Cache, CacheSpec, LayerCache, Plan};

const BLOCK: usize = 16;
/// Blocks of a sequence.
const BLOCKS: usize = 160;

/// Numbers around zero, by a generator of Knuth's.
pub(crate) fn numbers(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 / (1u32 << 24) as f32 - 0.5) * 3.0
    };
    (0..n).map(|_| next()).collect()
}

#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) spec: AttnSpec,
    pub(crate) element: &'static Format,
    /// Of each sequence: tokens before the step, and rows of it in the step.
    pub(crate) sequences: Vec<(usize, usize)>,
    pub(crate) latent: bool,
    /// The scores of sinks, one a head.
    pub(crate) sinks: bool,
    /// What stands in place of the first element of the last query, the step's first key and its first value.
    pub(crate) spikes: [Option<f32>; 3],
}

impl Case {
    pub(crate) fn new(name: &'static str, spec: AttnSpec, pasts: &[usize]) -> Self {
        let sequences = pasts.iter().map(|past| (*past, 1)).collect();
        Self { name, spec, element: &F16, sequences, latent: false, sinks: false, spikes: [None; 3] }
    }

    #[allow(dead_code)] // not every test program wants it
    pub(crate) fn rows(mut self, rows: usize) -> Self {
        self.sequences.iter_mut().for_each(|s| s.1 = rows);
        self
    }

    pub(crate) fn widths(&self) -> [usize; 2] {
        match self.latent {
            true => [self.spec.k_dim, 0],
            false => [self.spec.kv_heads * self.spec.k_dim, self.spec.kv_heads * self.spec.v_dim],
        }
    }

    pub(crate) fn cache(&self, b: &dyn Backend) -> Result<Cache> {
        let [k, v] = self.widths();
        let spec = CacheSpec::new(vec![LayerCache::full(k, v)], BLOCK, BLOCKS * self.sequences.len(), 2);
        b.new_cache(&spec.element(self.element))
    }

    /// So many tokens of each sequence after so many, stored.
    pub(crate) fn batch(&self, parts: impl Iterator<Item = (usize, usize)>) -> Batch {
        let mut batch = Batch::default();
        for (i, (past, rows)) in parts.enumerate() {
            // Blocks lie last ones first, and keep their places when those behind the window are given back.
            let first = self.spec.window().map_or(0, |w| (past + 1).saturating_sub(w) / BLOCK);
            let blocks = (first..BLOCKS).map(|j| (i * BLOCKS + BLOCKS - 1 - j) as u32).collect();
            batch.push(&vec![0; rows], past, vec![BlockTable { first, blocks }], [0, 1]);
        }
        batch
    }

    pub(crate) fn store(&self, b: &dyn Backend, cache: &Cache, batch: Batch, seeds: &[u64]) -> Result<Plan> {
        let plan = b.plan(batch)?;
        let side = |dim: usize, salt: u64, spike: Option<f32>| {
            let spans = plan.batch().spans.iter().zip(seeds);
            let values = spans.flat_map(|(s, seed)| numbers(seed * 1000 + salt + s.past as u64, s.len * dim));
            let mut values: Vec<f32> = values.collect();
            values.first_mut().zip(spike).into_iter().for_each(|(v, spike)| *v = spike);
            b.upload(&values, [plan.batch().tokens.len(), dim].into())
        };
        let ([k, v], [_, key, value]) = (self.widths(), self.spikes);
        let (k, v) = (side(k, 1, key)?, if v > 0 { Some(side(v, 2, value)?) } else { None });
        b.store_kv(0, &k, v.as_ref(), cache, &plan)?;
        Ok(plan)
    }

    /// What the rows attend to, a row for each of the step. Sequences are known by their seeds.
    pub(crate) fn run(&self, b: &dyn Backend, seeds: &[u64]) -> Result<Vec<Vec<f32>>> {
        let cache = self.cache(b)?;
        self.store(b, &cache, self.batch(self.sequences.iter().map(|(past, _)| (0, *past))), seeds)?;
        let plan = self.store(b, &cache, self.batch(self.sequences.iter().copied()), seeds)?;
        let (n, width) = (plan.batch().tokens.len(), self.spec.heads * self.spec.k_dim);
        let all = seeds.iter().zip(&self.sequences);
        let mut q: Vec<f32> =
            all.flat_map(|(seed, (_, rows))| numbers(seed * 1000 + 3, rows * width)).collect();
        q.iter_mut().nth_back(width - 1).zip(self.spikes[0]).into_iter().for_each(|(v, spike)| *v = spike);
        let (q, mut spec) = (b.upload(&q, [n, width].into())?, self.spec.clone());
        if self.sinks {
            let scores = b.upload(&numbers(77, spec.heads), [spec.heads].into())?;
            spec = spec.with(AttnOption::Sinks(scores));
        }
        let y = match self.latent {
            true => b.attend_latent(0, &q, &cache, &spec, &plan)?,
            false => b.attend_cache(0, &q, &cache, &spec, &plan)?,
        };
        Ok(b.download(&y)?.chunks(y.shape().cols()).map(<[f32]>::to_vec).collect())
    }
}
