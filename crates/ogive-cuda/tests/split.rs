//! Attention that is split over chunks of the context: what the oracle says, and the same bits however many chunks there are.
//!
//! The conformance suite's contexts are shorter than a chunk, so these are long.
#![allow(clippy::print_stdout)]

mod common;

use ogive_backend::tensor::{BF16, F16, F32, Format, Q8_0, Result};
use ogive_backend::{
    AttnOption, AttnSpec, Backend, Batch, BlockTable, Cache, CacheSpec, LayerCache, StepKey,
};
use ogive_conformance::Oracle;
use ogive_cuda::CudaBackend;
use ptx_emulator_launcher::{Nvrtc, test_name};

const BLOCK: usize = 16;
/// Blocks of a sequence.
const BLOCKS: usize = 64;

/// Numbers around zero, by a generator of Knuth's.
fn numbers(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 / (1u32 << 24) as f32 - 0.5) * 3.0
    };
    (0..n).map(|_| next()).collect()
}

#[derive(Clone)]
struct Case {
    name: &'static str,
    spec: AttnSpec,
    element: &'static Format,
    /// Tokens of each sequence before the step, and rows of it in the step.
    pasts: Vec<usize>,
    rows: usize,
    latent: bool,
    /// The scores of sinks, one a head.
    sinks: bool,
}

impl Case {
    fn new(name: &'static str, spec: AttnSpec, pasts: &[usize]) -> Self {
        Self { name, spec, element: &F16, pasts: pasts.into(), rows: 1, latent: false, sinks: false }
    }

    fn widths(&self) -> [usize; 2] {
        match self.latent {
            true => [self.spec.k_dim, 0],
            false => [self.spec.kv_heads * self.spec.k_dim, self.spec.kv_heads * self.spec.v_dim],
        }
    }

    fn cache(&self, b: &dyn Backend) -> Result<Cache> {
        let [k, v] = self.widths();
        let spec = CacheSpec::new(vec![LayerCache::full(k, v)], BLOCK, BLOCKS * self.pasts.len(), 2);
        b.new_cache(&spec.element(self.element))
    }

    /// The blocks of sequence `i`, last ones first, but for `gone` that were given back.
    fn table(i: usize, gone: usize) -> Vec<BlockTable> {
        let blocks = (0..BLOCKS - gone).map(|j| (i * BLOCKS + BLOCKS - 1 - gone - j) as u32).collect();
        vec![BlockTable { first: gone, blocks }]
    }

    /// So many tokens of each sequence after so many, stored.
    fn batch(&self, parts: impl Iterator<Item = (usize, usize)>) -> Batch {
        let mut batch = Batch::default();
        for (i, (past, rows)) in parts.enumerate() {
            let behind = self.spec.window().map_or(0, |w| (past + 1).saturating_sub(w) / BLOCK);
            let gone = if rows == self.rows { behind } else { 0 };
            // Blocks keep their numbers when older ones are given back.
            let mut table = Self::table(i, 0);
            table[0].first = gone;
            table[0].blocks.drain(..gone);
            batch.push(&vec![0; rows], past, table, [0, 1]);
        }
        batch
    }

    fn store(
        &self,
        b: &dyn Backend,
        cache: &Cache,
        batch: Batch,
        seeds: &[u64],
    ) -> Result<ogive_backend::Plan> {
        let plan = b.plan(batch)?;
        let side = |dim: usize, salt: u64| {
            let spans = plan.batch().spans.iter().zip(seeds);
            let values = spans.flat_map(|(s, seed)| numbers(seed * 1000 + salt + s.past as u64, s.len * dim));
            b.upload(&values.collect::<Vec<_>>(), [plan.batch().tokens.len(), dim].into())
        };
        let [k, v] = self.widths();
        let (k, v) = (side(k, 1)?, if v > 0 { Some(side(v, 2)?) } else { None });
        b.store_kv(0, &k, v.as_ref(), cache, &plan)?;
        Ok(plan)
    }

    /// What the rows attend to, a row for each of the step. Sequences are known by their seeds.
    fn run(&self, b: &dyn Backend, seeds: &[u64]) -> Result<Vec<Vec<f32>>> {
        let cache = self.cache(b)?;
        self.store(b, &cache, self.batch(self.pasts.iter().map(|past| (0, *past))), seeds)?;
        let plan =
            self.store(b, &cache, self.batch(self.pasts.iter().map(|past| (*past, self.rows))), seeds)?;
        let (n, width) = (plan.batch().tokens.len(), self.spec.heads * self.spec.k_dim);
        let q: Vec<f32> = seeds.iter().flat_map(|seed| numbers(seed * 1000 + 3, self.rows * width)).collect();
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

fn agrees(b: &CudaBackend, case: &Case) {
    let seeds: Vec<u64> = (1..=case.pasts.len() as u64).collect();
    let (got, want) = (case.run(b, &seeds).unwrap(), case.run(&Oracle, &seeds).unwrap());
    let pairs = got.iter().flatten().zip(want.iter().flatten());
    let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    println!("cuda: {:28} {worst:.1e}", case.name);
    assert!(worst < 2e-5, "{}: off by {worst:e}", case.name);
    assert!(want.iter().flatten().any(|v| v.abs() > 1e-3), "{}: all zeros", case.name);
}

#[test]
fn agrees_with_the_oracle() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let b = CudaBackend::new().unwrap();
        let element = |element: &'static Format, case: Case| Case { element, ..case };
        let cases = [
            Case::new("one head", AttnSpec::causal(1, 1, 32), &[299]),
            Case::new("a group of four", AttnSpec::causal(8, 2, 32), &[600, 255, 0]),
            element(&F32, Case::new("a group of three, f32", AttnSpec::causal(6, 2, 16), &[256, 511])),
            element(&BF16, Case::new("a group of nine, bf16", AttnSpec::causal(9, 1, 16), &[300])),
            element(&Q8_0, Case::new("q8_0", AttnSpec::causal(4, 2, 32), &[400, 10])),
            Case { rows: 3, ..Case::new("three rows each", AttnSpec::causal(2, 1, 8), &[254, 510]) },
            Case::new("odd sizes", AttnSpec::new(4, 2, 5, 3).with(AttnOption::Causal), &[300]),
            Case { rows: 2, ..Case::new("all of the context", AttnSpec::new(2, 2, 16, 16), &[300]) },
            Case::new(
                "a window within a chunk",
                AttnSpec::causal(4, 2, 16).with(AttnOption::Window(100)),
                &[500, 300, 20],
            ),
            Case::new(
                "a window over chunks",
                AttnSpec::causal(4, 2, 16).with(AttnOption::Window(300)),
                &[700],
            ),
            Case::new(
                "a window that is not causal",
                AttnSpec::new(2, 2, 16, 16).with(AttnOption::Window(64)),
                &[600],
            ),
            Case::new("a soft cap", AttnSpec::causal(4, 2, 16).with(AttnOption::SoftCap(2.0)), &[300]),
            Case::new(
                "slopes",
                AttnSpec::causal(4, 2, 16).with(AttnOption::Alibi([0.5, 0.25, 0.1, 0.01].into())),
                &[300],
            ),
            Case { sinks: true, ..Case::new("sinks", AttnSpec::causal(4, 2, 16), &[300, 5]) },
            Case {
                latent: true,
                ..Case::new("latent", AttnSpec::new(5, 1, 40, 24).with(AttnOption::Causal), &[300, 30])
            },
        ];
        cases.iter().for_each(|case| agrees(&b, case));
    });
}

/// A sequence's bits do not depend on how long the longest context of the step is, and a window's not on what is behind it.
#[test]
fn the_same_bits_however_many_chunks() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let b = CudaBackend::new().unwrap();
        let case = |pasts: &[usize]| Case::new("", AttnSpec::causal(4, 2, 32), pasts);
        let alone = case(&[290]).run(&b, &[5]).unwrap();
        let longer = case(&[700, 290]).run(&b, &[6, 5]).unwrap();
        let longest = case(&[290, 40, 1000]).run(&b, &[5, 8, 7]).unwrap();
        let bits = |row: &[f32]| row.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&alone[0]), bits(&longer[1]));
        assert_eq!(bits(&alone[0]), bits(&longest[0]));
    });
}

/// Steps that are replayed while the context grows past a power of two.
#[test]
fn replayed_steps_are_split_alike() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let tell = |b: &CudaBackend| -> Result<Vec<Vec<u32>>> {
            let case = Case::new("", AttnSpec::causal(4, 2, 16), &[506]);
            let cache = case.cache(b)?;
            case.store(b, &cache, case.batch([(0, 506)].into_iter()), &[1])?;
            let q = b.upload(&numbers(9, 64), [1, 64].into())?;
            let mut seen = Vec::new();
            for past in 506..518 {
                let plan = case.store(b, &cache, case.batch([(past, 1)].into_iter()), &[1])?;
                let mut f = |plan: &_| b.attend_cache(0, &q, &cache, &case.spec, plan);
                let y = match StepKey::of(1, plan.batch()) {
                    Some(key) => b.replay(&key, &plan, &mut f)?,
                    None => f(&plan)?,
                };
                seen.push(b.download(&y)?.into_iter().map(f32::to_bits).collect());
            }
            Ok(seen)
        };
        let (with, without) =
            (CudaBackend::new().unwrap(), CudaBackend::builder().graphs(false).build().unwrap());
        assert_eq!(tell(&with).unwrap(), tell(&without).unwrap());
        let counts = with.graphs();
        assert_eq!((counts.recorded, counts.replayed, counts.eager), (2, 10, 2), "{counts:?}");
    });
}
