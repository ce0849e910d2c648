//! Attention that is split over chunks of the context: what the oracle says, and the same bits in any company.
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
    /// Of each sequence: tokens before the step, and rows of it in the step.
    sequences: Vec<(usize, usize)>,
    latent: bool,
    /// The scores of sinks, one a head.
    sinks: bool,
}

impl Case {
    fn new(name: &'static str, spec: AttnSpec, pasts: &[usize]) -> Self {
        let sequences = pasts.iter().map(|past| (*past, 1)).collect();
        Self { name, spec, element: &F16, sequences, latent: false, sinks: false }
    }

    fn rows(mut self, rows: usize) -> Self {
        self.sequences.iter_mut().for_each(|s| s.1 = rows);
        self
    }

    fn widths(&self) -> [usize; 2] {
        match self.latent {
            true => [self.spec.k_dim, 0],
            false => [self.spec.kv_heads * self.spec.k_dim, self.spec.kv_heads * self.spec.v_dim],
        }
    }

    fn cache(&self, b: &dyn Backend) -> Result<Cache> {
        let [k, v] = self.widths();
        let spec = CacheSpec::new(vec![LayerCache::full(k, v)], BLOCK, BLOCKS * self.sequences.len(), 2);
        b.new_cache(&spec.element(self.element))
    }

    /// So many tokens of each sequence after so many, stored.
    fn batch(&self, parts: impl Iterator<Item = (usize, usize)>) -> Batch {
        let mut batch = Batch::default();
        for (i, (past, rows)) in parts.enumerate() {
            // Blocks lie last ones first, and keep their places when those behind the window are given back.
            let first = self.spec.window().map_or(0, |w| (past + 1).saturating_sub(w) / BLOCK);
            let blocks = (first..BLOCKS).map(|j| (i * BLOCKS + BLOCKS - 1 - j) as u32).collect();
            batch.push(&vec![0; rows], past, vec![BlockTable { first, blocks }], [0, 1]);
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
        self.store(b, &cache, self.batch(self.sequences.iter().map(|(past, _)| (0, *past))), seeds)?;
        let plan = self.store(b, &cache, self.batch(self.sequences.iter().copied()), seeds)?;
        let (n, width) = (plan.batch().tokens.len(), self.spec.heads * self.spec.k_dim);
        let all = seeds.iter().zip(&self.sequences);
        let q: Vec<f32> = all.flat_map(|(seed, (_, rows))| numbers(seed * 1000 + 3, rows * width)).collect();
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
    let seeds: Vec<u64> = (1..=case.sequences.len() as u64).collect();
    let (got, want) = (case.run(b, &seeds).unwrap(), case.run(&Oracle, &seeds).unwrap());
    let pairs = got.iter().flatten().zip(want.iter().flatten());
    let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    println!("cuda: {:28} {worst:.1e}", case.name);
    assert!(worst < 2e-5, "{}: off by {worst:e}", case.name);
    assert!(want.iter().flatten().any(|v| v.abs() > 1e-3), "{}: all zeros", case.name);
}

fn all_agree(name: &str, nvrtc: Nvrtc) {
    common::on_device(name, nvrtc, || {
        let b = CudaBackend::new().unwrap();
        let element = |element: &'static Format, case: Case| Case { element, ..case };
        let cases = [
            Case::new("one head", AttnSpec::causal(1, 1, 32), &[299]),
            Case::new("a group of four", AttnSpec::causal(8, 2, 32), &[600, 255, 0]),
            element(&F32, Case::new("a group of three, f32", AttnSpec::causal(6, 2, 16), &[256, 511])),
            element(&BF16, Case::new("a group of nine, bf16", AttnSpec::causal(9, 1, 16), &[300])),
            element(&Q8_0, Case::new("q8_0", AttnSpec::causal(4, 2, 32), &[400, 10])),
            Case::new("three rows each", AttnSpec::causal(2, 1, 8), &[254, 510]).rows(3),
            Case::new(
                "where blocks and chunks end",
                AttnSpec::causal(2, 1, 8),
                &[254, 255, 256, 511, 512, 15, 16],
            ),
            Case::new("odd sizes", AttnSpec::new(4, 2, 5, 3).with(AttnOption::Causal), &[300]),
            Case::new("all of the context", AttnSpec::new(2, 2, 16, 16), &[300]).rows(2),
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
                "a window that ends with a chunk",
                AttnSpec::causal(2, 1, 16).with(AttnOption::Window(256)),
                &[511, 512, 767, 255],
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

#[test]
fn agrees_with_the_oracle_nvrtc_11() {
    all_agree(test_name!(), Nvrtc::V11);
}

#[test]
fn agrees_with_the_oracle_nvrtc_12() {
    all_agree(test_name!(), Nvrtc::V12);
}

#[test]
fn agrees_with_the_oracle_nvrtc_13() {
    all_agree(test_name!(), Nvrtc::V13);
}

/// A sequence's bits do not depend on its company: neither on how long other contexts are, nor on how many rows there are, so
/// neither on whether the step is split.
#[test]
fn the_same_bits_in_any_company() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let b = CudaBackend::new().unwrap();
        let windowed = || AttnSpec::causal(4, 2, 32).with(AttnOption::Window(90));
        let capped = || AttnSpec::causal(4, 1, 32).with(AttnOption::SoftCap(3.0));
        let element = |element: &'static Format, case: Case| Case { element, ..case };
        let cases = [
            (Case::new("", AttnSpec::causal(4, 2, 32), &[]), 200),
            (Case::new("", AttnSpec::causal(4, 2, 32), &[]), 290),
            (Case { sinks: true, ..element(&Q8_0, Case::new("", windowed(), &[])) }, 230),
            (element(&BF16, Case::new("", capped(), &[])), 255),
            (element(&F32, Case::new("", AttnSpec::causal(6, 2, 16), &[])), 256),
        ];
        for (case, past) in cases {
            let row = |sequences: &[(usize, usize)], seeds: &[u64], at: usize| {
                let case = Case { sequences: sequences.into(), ..case.clone() };
                case.run(&b, seeds).unwrap()[at].iter().map(|v| v.to_bits()).collect::<Vec<_>>()
            };
            let alone = row(&[(past, 1)], &[5], 0);
            assert_eq!(alone, row(&[(700, 1), (past, 1)], &[6, 5], 1), "after a longer one");
            assert_eq!(alone, row(&[(past, 1), (40, 1), (1000, 1)], &[5, 8, 7], 0), "before others");
            assert_eq!(alone, row(&[(past, 1), (0, 270)], &[5, 9], 0), "beside a prompt");
        }
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
