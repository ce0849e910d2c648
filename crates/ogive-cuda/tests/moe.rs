//! Mixtures of experts by the backend's own choice of a way: few rows and many, in every `Compute` and in integers; steps that are replayed;
//! what they take.
//!
//! `ops/grouped_tests.rs` has each way by itself; here the conformance suite's oracle says what is right.
#![allow(clippy::print_stdout)]

mod common;
#[path = "common/products.rs"]
mod products;

use ogive_backend::tensor::{F16, F32, Format, HostWeight, MXFP4, Q4_K, Q6_K, Q8_0, Result, Tensor};
use ogive_backend::{
    Activation, Backend, Batch, BlockTable, Estimate, Experts, RouterSpec, Scoring, StepKey,
};
use ogive_conformance::{Oracle, assert_conforms};
use ogive_cuda::{Activations, Builder, Compute, CudaBackend};
use products::{error, numbers, weight};
use ptx_emulator_launcher::{Nvrtc, test_name};
use std::sync::Arc;

const EXPERTS: usize = 6;
const DIM: usize = 256;

/// A weight of smaller numbers for each expert.
fn stack(format: &'static Format, salt: usize, shape @ [e, rows, cols]: [usize; 3]) -> HostWeight {
    let mut bytes = vec![0; e * rows * format.row_bytes(cols)];
    let values: Vec<f32> = numbers(salt, e * rows * cols).iter().map(|v| v * 0.2).collect();
    format.encode_row(&values, &mut bytes).unwrap();
    HostWeight::new("w", shape, format, bytes.into()).unwrap()
}

/// A layer: its experts, and rows for it.
struct Layer {
    experts: Experts,
    spec: RouterSpec,
}

impl Layer {
    /// Without a gate.
    fn ungated(self) -> Self {
        let Experts { up, down, .. } = self.experts;
        Self { experts: Experts::ungated([up, down], Activation::ReluSquared), ..self }
    }

    fn new(b: &dyn Backend, [up, down]: [&'static Format; 2], k: usize, f: Activation) -> Self {
        let hidden = down.block_len.max(32) * 3;
        let up = |salt| b.upload_weight(&stack(up, salt, [EXPERTS, hidden, DIM])).unwrap();
        let down = b.upload_weight(&stack(down, 3, [EXPERTS, DIM, hidden])).unwrap();
        let experts = Experts::new([up(1), up(2), down], f);
        Self { experts, spec: RouterSpec::new(k, Scoring::Softmax) }
    }

    /// `[n, DIM]` and `[n, EXPERTS]`
    fn rows(b: &dyn Backend, n: usize) -> [Tensor; 2] {
        let up = |salt, cols| b.upload(&numbers(salt, n * cols), [n, cols].into()).unwrap();
        [up(5, DIM), up(6, EXPERTS)]
    }

    fn run(&self, b: &dyn Backend, n: usize) -> Vec<f32> {
        let [x, logits] = Self::rows(b, n);
        b.download(&b.moe(&x, &logits, &self.spec, &self.experts).unwrap()).unwrap()
    }
}

fn builders() -> [(Builder, &'static str, f64); 4] {
    let b = CudaBackend::builder;
    [
        (b(), "f32", 1e-6),
        (b().compute(Compute::F16), "f16", 2f64.powi(-10)),
        (b().compute(Compute::Bf16), "bf16", 2f64.powi(-7)),
        (b().compute(Compute::Bf16).activations(Activations::Int8), "bf16 and int8", 2e-2),
    ]
}

#[test]
fn few_rows_and_many_agree() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        for (builder, name, bound) in builders() {
            let b = builder.build().unwrap();
            let functions = [Activation::Silu, Activation::Gelu, Activation::GeluTanh];
            for (i, formats) in [[&Q4_K, &Q6_K], [&MXFP4, &MXFP4], [&F16, &Q8_0]].into_iter().enumerate() {
                let (k, f) = ([2, 4, EXPERTS][i], functions[i]);
                let layer = |b: &dyn Backend| Layer::new(b, formats, k, f);
                let layers = [
                    ("gated", layer(&b), layer(&Oracle)),
                    ("ungated", layer(&b).ungated(), layer(&Oracle).ungated()),
                ];
                for (n, (what, on, of)) in
                    [1, 4, 8, 9, 70].into_iter().flat_map(|n| layers.iter().map(move |l| (n, l)))
                {
                    let off = error(&on.run(&b, n), &of.run(&Oracle, n));
                    let what = format!("{name} {} {what}, {n} rows", formats[0].name);
                    println!("cuda: {what}: {off:.1e}");
                    assert!(off < bound, "{what}: off by {off:e}");
                }
            }
        }
    });
}

/// A mixture is computed as the least exact of its formats asks for, but in single precision if any is.
#[test]
fn mixtures_are_computed_as_they_are_kept() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let run = |compute, formats| {
            let b = CudaBackend::builder().compute(compute).build().unwrap();
            Layer::new(&b, formats, 2, Activation::Silu).run(&b, 40)
        };
        let kept = [
            ([&F16, &F16], Compute::F16),
            ([&Q4_K, &Q6_K], Compute::Bf16),
            ([&F16, &Q8_0], Compute::Bf16),
            ([&F32, &F16], Compute::F32),
        ];
        for (formats, compute) in kept {
            assert_eq!(run(Compute::Auto, formats), run(compute, formats), "{compute:?}");
        }
    });
}

/// However many rows are grouped, results are those of choice by choice up to the order of sums.
#[test]
fn grouped_or_not_is_the_same() {
    common::on_device(test_name!(), Nvrtc::V11, || {
        let run = |from: usize, n: usize| {
            let b = CudaBackend::builder().grouped_from(from).build().unwrap();
            Layer::new(&b, [&Q4_K, &Q6_K], 2, Activation::Silu).run(&b, n)
        };
        for n in [1, 3, 40] {
            let (grouped, each) = (run(0, n), run(usize::MAX, n));
            assert!(error(&grouped, &each) < 1e-6 && grouped != each, "{n} rows");
        }
    });
}

/// One to eight rows in integers are the same bits in any company.
#[test]
fn integers_are_the_same_in_company() {
    common::on_device(test_name!(), Nvrtc::V13, || {
        let b = CudaBackend::builder().activations(Activations::Int8).build().unwrap();
        let layer = Layer::new(&b, [&Q4_K, &Q6_K], 2, Activation::Silu);
        let eight = layer.run(&b, 8);
        for n in [1, 2, 5] {
            let rows = layer.run(&b, n);
            assert_eq!(rows, eight[..rows.len()], "{n}");
        }
        let plain = CudaBackend::new().unwrap();
        let single = Layer::new(&plain, [&Q4_K, &Q6_K], 2, Activation::Silu).run(&plain, 8);
        assert_ne!(eight, single, "it was computed in single precision");
    });
}

/// A step whose rows are grouped is recorded, and replayed with other choices than those it was recorded with.
#[test]
fn a_step_is_replayed_with_other_choices() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        for (builder, name, _) in builders() {
            let tell = |graphs: bool| -> (Vec<Vec<f32>>, u64) {
                let b = builder.clone().graphs(graphs).build().unwrap();
                let layer = Layer::new(&b, [&Q4_K, &Q8_0], 2, Activation::Silu);
                let router = b.upload_weight(&weight(&F16, 9, [EXPERTS, DIM])).unwrap();
                let table = b.upload_weight(&weight(&F16, 8, [50, DIM])).unwrap();
                let step = |i: u32, n: u32| -> Result<Vec<f32>> {
                    let mut batch = Batch::default();
                    for row in 0..n {
                        let blocks = vec![BlockTable { first: 0, blocks: vec![row] }];
                        batch.push(&[(i * 11 + row * row) % 50], 0, blocks, [0, 1]);
                        batch.want_last();
                    }
                    let (key, plan) = (StepKey::of(1, &batch).unwrap(), b.plan(batch)?);
                    let y = b.replay(&key, &plan, &mut |plan| {
                        let x = b.embed(&table, ogive_backend::Ids::Tokens, plan)?;
                        let y = b.moe(&x, &b.linear(&x, &router)?, &layer.spec, &layer.experts)?;
                        b.outputs(&y, plan)
                    })?;
                    b.download(&y)
                };
                let steps = (0..16).map(|i| step(i / 2, if i % 2 == 0 { 3 } else { 20 }).unwrap()).collect();
                (steps, b.graphs().replayed)
            };
            let ((eager, none), (replayed, some)) = (tell(false), tell(true));
            assert!(none == 0 && some > 8, "{name}: {some} replayed");
            assert!(eager == replayed, "{name}");
            assert!(eager[1] != eager[3], "{name}: the steps are one");
        }
    });
}

#[test]
fn an_estimate_counts_what_is_taken_beside() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        for ((builder, name, _), gated) in
            builders().into_iter().flat_map(|b| [(b.clone(), true), (b, false)])
        {
            for n in [1, 8, 9, 70, 300] {
                let (b, estimate) = (builder.clone().build().unwrap(), Estimate::of(builder.sizes()));
                let step = |b: &dyn Backend, taken: &mut dyn FnMut()| {
                    let layer = Layer::new(b, [&Q4_K, &Q8_0], 2, Activation::Silu);
                    let layer = if gated { layer } else { layer.ungated() };
                    let [x, logits] = Layer::rows(b, n);
                    taken();
                    b.moe(&x, &logits, &layer.spec, &layer.experts)
                };
                let counted = estimate.activations(|| step(&estimate, &mut || ())).unwrap().peak;
                let mut before = 0;
                step(&b, &mut || before = b.memory_used().0).unwrap();
                assert_eq!(b.memory_used().1 - before, counted, "{name} {n}, gated: {gated}");
            }
        }
    });
}

/// Rows that a norm gave come rounded, which is counted with the norm.
#[test]
fn an_estimate_knows_what_a_norm_left() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let builder = CudaBackend::builder().activations(Activations::Int8);
        for n in [1, 8, 9] {
            let (b, estimate) = (builder.clone().build().unwrap(), Estimate::of(builder.sizes()));
            let step = |b: &dyn Backend, taken: &mut dyn FnMut()| {
                let layer = Layer::new(b, [&Q4_K, &Q8_0], 2, Activation::Silu);
                let ([x, logits], ones) = (Layer::rows(b, n), b.upload(&[1.0; DIM], [DIM].into())?);
                taken();
                b.moe(&b.rms_norm(&x, &ones, 1e-6)?, &logits, &layer.spec, &layer.experts)
            };
            let counted = estimate.activations(|| step(&estimate, &mut || ())).unwrap().peak;
            let mut before = 0;
            step(&b, &mut || before = b.memory_used().0).unwrap();
            assert_eq!(b.memory_used().1 - before, counted, "{n}");
        }
    });
}

/// Weights of single precision and f16 would have to be multiplied as they are.
#[test]
fn operators_conform() {
    common::on_device(test_name!(), Nvrtc::V11, || {
        for (builder, name, _) in builders().into_iter().skip(1) {
            println!("cuda: {name}");
            let b: Arc<dyn Backend> = Arc::new(builder.build().unwrap());
            let packed = ["q2", "q3", "q4", "q5", "q6", "q8", "iq", "mxfp4"].map(|of| format!("moe/{of}"));
            let biased = ["moe/biases/mxfp4", "moe/clamped/q8_0", "moe/biases-clamped/mxfp4"];
            let others = ["moe/bf16", "moe/ungated/q4", "moe/ungated/mxfp4", "moe/refused", "extremes/moe"];
            for part in packed.iter().map(|part| &**part).chain(biased).chain(others) {
                assert_conforms(&b, &common::with_one_of_few_bits().filter(part));
            }
        }
    });
}
