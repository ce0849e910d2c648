//! Attention that is split over chunks of the context: what the oracle says, and the same bits in any company.
//!
//! The conformance suite's contexts are hardly longer than a chunk, so these are long.
#![allow(clippy::print_stdout)]

#[path = "common/attention.rs"]
mod attention;
mod common;

use attention::{Case, numbers};
use ogive_backend::tensor::{BF16, F32, Format, Q8_0, Result};
use ogive_backend::{AttnOption, AttnSpec, Backend, Batch, BlockTable, CacheSpec, LayerCache, StepKey};
use ogive_conformance::Oracle;
use ogive_cuda::CudaBackend;
use ptx_emulator_launcher::{Nvrtc, test_name};
use std::ops::Range;

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
            Case::new("where chunks grow", AttnSpec::causal(2, 1, 8), &[2046, 2047, 2048, 2400]),
            Case::new(
                "a window where chunks grow",
                AttnSpec::causal(2, 1, 8).with(AttnOption::Window(2100)),
                &[2047, 2400, 2046],
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
                "chunks",
                AttnSpec::causal(2, 1, 16).with(AttnOption::Chunk(300)),
                &[299, 300, 620, 20],
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
            (Case::new("", AttnSpec::causal(4, 2, 16), &[]), 2047),
            (Case::new("", AttnSpec::causal(4, 2, 16), &[]), 2048),
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

/// Contexts of more chunks than the last block takes at a time, beside the kernel that takes one after the other.
#[test]
fn many_chunks_are_put_together_in_their_order() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        const DIM: usize = 40;
        const BLOCKS: usize = 1024;
        let (b, spec) = (CudaBackend::new().unwrap(), AttnSpec::causal(3, 1, DIM));
        let first_row = |sequences: &[(usize, usize)]| -> Vec<u32> {
            let layers = vec![LayerCache::full(DIM, DIM)];
            let cache = b.new_cache(&CacheSpec::new(layers, 16, BLOCKS * sequences.len(), 2)).unwrap();
            let store = |parts: &[(usize, usize)]| {
                let mut batch = Batch::default();
                for (i, (past, rows)) in parts.iter().enumerate() {
                    let blocks = (i * BLOCKS..(i + 1) * BLOCKS).rev().map(|j| j as u32).collect();
                    batch.push(&vec![0; *rows], *past, vec![BlockTable { first: 0, blocks }], [0, 1]);
                }
                let (plan, n) = (b.plan(batch).unwrap(), parts.iter().map(|part| part.1).sum::<usize>());
                let side = |salt: u64| b.upload(&numbers(salt, n * DIM), [n, DIM].into()).unwrap();
                b.store_kv(0, &side(1), Some(&side(2)), &cache, &plan).unwrap();
                plan
            };
            store(&sequences.iter().map(|(past, _)| (0, *past)).collect::<Vec<_>>());
            let plan = store(sequences);
            let n = plan.batch().tokens.len();
            let q = b.upload(&numbers(3, n * 3 * DIM), [n, 3 * DIM].into()).unwrap();
            let y = b.download(&b.attend_cache(0, &q, &cache, &spec, &plan).unwrap()).unwrap();
            y[..3 * DIM].iter().map(|v| v.to_bits()).collect()
        };
        for past in [8447, 16_383] {
            assert_eq!(first_row(&[(past, 1)]), first_row(&[(past, 1), (0, 270)]), "after {past}");
        }
    });
}

/// Steps that are replayed while the context grows, wherever they were recorded: over more chunks than the record's first step had, past
/// where short ones end and past a power of two.
#[test]
fn replayed_steps_are_split_alike() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let tell = |b: &CudaBackend, pasts: &[Range<usize>]| -> Result<Vec<Vec<u32>>> {
            let case = Case::new("", AttnSpec::causal(4, 2, 16), &[506]);
            let cache = case.cache(b)?;
            case.store(b, &cache, case.batch([(0, 506)].into_iter()), &[1])?;
            let q = b.upload(&numbers(9, 64), [1, 64].into())?;
            let mut seen = Vec::new();
            for past in pasts.iter().cloned().flatten() {
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
        let without = CudaBackend::builder().graphs(false).build().unwrap();
        for (pasts, wanted) in [
            ([3..6, 250..260, 506..518], (3, 22, 3)),
            ([60..68, 126..130, 190..194], (1, 15, 1)),
            ([66..70, 126..136, 254..256], (1, 15, 1)),
        ] {
            let with = CudaBackend::new().unwrap();
            let [got, want] = [&with, &without].map(|b| tell(b, &pasts).unwrap());
            let wrong = got.iter().zip(&want).position(|(got, want)| got != want);
            assert_eq!(wrong, None, "the first wrong step of {pasts:?}");
            let counts = with.graphs();
            assert_eq!((counts.recorded, counts.replayed, counts.eager), wanted, "{counts:?}");
        }
    });
}

/// More rows than the second dimension of a grid counts; all but one are nobody's.
#[test]
fn a_step_may_have_more_rows_than_a_grid_is_high() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let b = CudaBackend::new().unwrap();
        let n = 65_600;
        let mut batch = Batch::default();
        batch.push(&[0], 0, Vec::new(), [0; 2]);
        batch.pad(n);
        let plan = b.plan(batch).unwrap();
        let values: Vec<f32> = (0..4 * n).map(|i| (i % 7) as f32 + 1.0).collect();
        let q = b.upload(&values, [n, 4].into()).unwrap();
        let k = b.upload(&values[..4], [1, 4].into()).unwrap();
        let out = b.attend(&q, &k, &k, &AttnSpec::causal(1, 1, 4), &plan).unwrap();
        let out = b.download(&out).unwrap();
        assert_eq!(out[..4], values[..4]);
        assert!(out[4..].iter().all(|v| *v == 0.0));
    });
}
