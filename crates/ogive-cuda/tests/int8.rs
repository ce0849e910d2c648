//! Products with 8-bit activations, by the backend's own choice: every packed format, fused forms, company, mixtures with other weights,
//! steps that are replayed and kernels that overlap.
//!
//! `ops/int8_tests.rs` has the kernels to the bit; here the conformance suite's oracle says what is right.
#![allow(clippy::print_stdout)]

mod common;
#[path = "common/llama.rs"]
mod llama;
#[path = "common/products.rs"]
mod products;

use llama::{DIM, Model};
use ogive_backend::tensor::{
    ErrorKind, F16, F32, FEW_BITS, FORMATS, HostWeight, Q4_0, Q4_K, Q6_K, Q8_0, Scale, Tensor,
};
use ogive_backend::{Activation, Backend, Batch, Estimate, Experts, Ids, RouterSpec, Scoring, StepKey};
use ogive_conformance::{Oracle, assert_conforms};
use ogive_cuda::{Activations, Builder, Compute, CudaBackend};
use products::{error, numbers, weight};
use ptx_emulator_launcher::{Nvrtc, test_name};
use std::sync::Arc;

fn builder() -> Builder {
    CudaBackend::builder().activations(Activations::Int8)
}

/// Where one row meets weights in blocks that stay, too.
fn builders() -> [Builder; 2] {
    [false, true].map(|on| builder().persistent(on))
}

/// `linear_many` of two weights and of the first alone, `linear` and `linear_gated` of these rows.
fn all(b: &dyn Backend, ws: &[HostWeight; 2], x: &[f32]) -> Vec<Vec<f32>> {
    let cols = ws[0].shape[2];
    let [w, v] = ws.each_ref().map(|w| b.upload_weight(w).unwrap());
    let x = b.upload(x, [x.len() / cols, cols].into()).unwrap();
    let mut ys = b.linear_many(&x, &[&w, &v]).unwrap();
    ys.push(b.linear(&x, &w).unwrap());
    ys.push(b.linear_gated(&x, &w, &v, Activation::Silu).unwrap());
    ys.iter().map(|y| b.download(y).unwrap()).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn every_packed_format_agrees_and_is_the_same_in_company() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        // Whatever many rows are computed in.
        let [b, stays] = builders().map(|b| b.compute(Compute::Bf16).build().unwrap());
        assert!(!b.facts().exact && !builder().build().unwrap().facts().exact);
        for format in FORMATS.iter().filter(|f| f.block_len > 1 && !FEW_BITS.contains(f)) {
            let (cols, out) = (format.block_len.max(64) * 3, 37);
            let (ws, x) = ([1, 2].map(|salt| weight(format, salt, [out, cols])), numbers(3, 8 * cols));
            let eight = all(&b, &ws, &x);
            for n in [2, 5] {
                // The last rows of the eight, by themselves.
                let got = all(&b, &ws, &x[(8 - n) * cols..]);
                for (got, among) in got.iter().zip(&eight) {
                    assert_eq!(bits(got), bits(&among[(8 - n) * out..]), "{} {n}", format.name);
                }
            }
            // One alone has a kernel of its own, which sums in another order; blocks that stay have another.
            for b in [&b, &stays] {
                for (got, among) in all(b, &ws, &x[7 * cols..]).iter().zip(&eight) {
                    let off = error(got, &among[7 * out..]);
                    assert!(off < 1e-5, "{}: one row is off by {off:e}", format.name);
                }
            }
            assert_eq!(bits(&eight[0]), bits(&eight[2]), "{}: alone and with another", format.name);
            let want = all(&Oracle, &ws, &x);
            let worst = eight.iter().zip(&want).map(|(got, want)| error(got, want)).fold(0f64, f64::max);
            println!("cuda: {:8} {worst:.1e}", format.name);
            // Codes are off by 1/254 of the largest at most, by 1/sqrt(3) of that on average; a gate has the errors of two.
            assert!((1e-4..2e-2).contains(&worst), "{}: off by {worst:e}", format.name);
        }
    });
}

#[test]
fn other_weights_and_more_rows_stay_as_they_are() {
    common::on_device(test_name!(), Nvrtc::V13, || {
        let (b, plain) = (builder().build().unwrap(), CudaBackend::new().unwrap());
        let plain_ws = [weight(&F16, 1, [37, 256]), weight(&F32, 2, [37, 256])];
        let packed = [weight(&Q4_K, 1, [37, 256]), weight(&Q6_K, 2, [37, 256])];
        for (ws, n) in [(&plain_ws, 1), (&plain_ws, 5), (&packed, 65), (&packed, 130)] {
            let x = numbers(3, n * 256);
            assert_eq!(all(&b, ws, &x), all(&plain, ws, &x), "{n}");
        }
        // A packed gate beside one that is not: each as it would be alone.
        let mixed = [weight(&Q4_K, 1, [37, 256]), weight(&F16, 2, [37, 256])];
        let (x, same) = (numbers(3, 256), [weight(&Q4_K, 1, [37, 256]), weight(&Q4_K, 2, [37, 256])]);
        let (got, exact) = (all(&b, &mixed, &x), all(&plain, &mixed, &x));
        assert_eq!(bits(&got[0]), bits(&all(&b, &same, &x)[0]));
        assert_eq!(bits(&got[1]), bits(&exact[1]));
        assert!(error(&got[3], &exact[3]) < 2e-2 && got[3] != exact[3]);
        // One whose factors stand beside it is kept in single precision.
        let scale = Scale { values: vec![0.5; 37].into(), tile: [1, 256] };
        let scaled = weight(&Q4_0, 1, [37, 256]).with_scale(scale).unwrap();
        let run = |b: &CudaBackend| {
            let (w, x) =
                (b.upload_weight(&scaled).unwrap(), b.upload(&numbers(3, 256), [1, 256].into()).unwrap());
            b.download(&b.linear(&x, &w).unwrap()).unwrap()
        };
        assert_eq!(bits(&run(&b)), bits(&run(&plain)));
    });
}

/// Choices of more inputs than a warp has on its way are, to the bit, what the products of their experts give one by one.
#[test]
fn long_choices_are_the_products_one_by_one() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let (b, dim) = (builder().build().unwrap(), 256);
        for (up, down, hidden) in [(&Q4_K, &Q6_K, 2304), (&Q8_0, &Q4_0, 1056)] {
            let each = [0, 1, 2].map(|e| {
                let [gate, up] = [1, 2].map(|salt| weight(up, 3 * e + salt, [hidden, dim]));
                [gate, up, weight(down, 3 * e + 3, [dim, hidden])]
            });
            let send = |w: &HostWeight| b.upload_weight(w).unwrap();
            let stack = |i: usize| {
                let bytes: Vec<u8> = each.iter().flat_map(|ws| ws[i].bytes.to_vec()).collect();
                let (format, [_, out, cols]) = (each[0][i].format, each[0][i].shape);
                send(&HostWeight::new("w", [3, out, cols], format, bytes.into()).unwrap())
            };
            let activation = Activation::Silu;
            let experts = Experts::new([stack(0), stack(1), stack(2)], activation);
            let x = b.upload(&numbers(5, 2 * dim), [2, dim].into()).unwrap();
            // What a row's experts are, in the order they are chosen.
            let order = [[1, 2, 0], [0, 2, 1]];
            let logits = b.upload(&[0.0, 2.0, 1.0, 2.0, 0.0, 1.0], [2, 3].into()).unwrap();
            let routing = b.route(&logits, &RouterSpec::new(3, Scoring::Softmax)).unwrap();
            let shares = b.download(&routing.weights).unwrap();
            let got = b.download(&b.experts(&x, &routing, &experts).unwrap()).unwrap();
            // Row by row, as several at a time have another kernel.
            let rows = numbers(5, 2 * dim);
            let rows: Vec<_> = rows.chunks(dim).map(|row| b.upload(row, [1, dim].into()).unwrap()).collect();
            let parts = each.each_ref().map(|[gate, up, down]| {
                let [gate, up, down] = [gate, up, down].map(send);
                let part = |x: &Tensor| {
                    let h = b.linear_gated(x, &gate, &up, activation).unwrap();
                    b.download(&b.linear(&h, &down).unwrap()).unwrap()
                };
                rows.iter().flat_map(part).collect::<Vec<_>>()
            });
            let sum = |i: usize| {
                let chosen = order[i / dim].iter().zip(&shares[i / dim * 3..]);
                chosen.fold(0f32, |sum, (e, share)| share.mul_add(parts[*e][i], sum))
            };
            assert_eq!(bits(&got), bits(&(0..2 * dim).map(sum).collect::<Vec<_>>()), "{}", up.name);
        }
    });
}

#[test]
fn an_estimate_counts_what_is_rounded() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let ws = [weight(&Q4_K, 1, [37, 4096]), weight(&Q6_K, 2, [70, 4096])];
        for n in [1, 7, 9] {
            let (b, estimate) = (builder().build().unwrap(), Estimate::of(builder().sizes()));
            let step = |b: &dyn Backend, taken: &mut dyn FnMut()| {
                let [w, v] = ws.each_ref().map(|w| b.upload_weight(w).unwrap());
                let x = b.upload(&numbers(3, n * 4096), [n, 4096].into()).unwrap();
                taken();
                b.linear_many(&x, &[&w, &v]).map(|mut ys| ys.swap_remove(1))
            };
            let counted = estimate.activations(|| step(&estimate, &mut || ())).unwrap().peak;
            let mut before = 0;
            step(&b, &mut || before = b.memory_used().0).unwrap();
            assert_eq!(b.memory_used().1 - before, counted, "{n}");
        }
    });
}

/// What a norm leaves beside its result is counted there and not with the products, of which those in an order take their own.
#[test]
fn an_estimate_counts_what_norms_leave() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let order: Arc<[u32]> = (0..4096).rev().collect();
        let plain = [weight(&Q4_K, 1, [37, 4096]), weight(&Q6_K, 2, [70, 4096])];
        let ordered = plain.clone().map(|w| w.with_input_perm(order.clone()).unwrap());
        for (ws, n) in [(&plain, 1), (&plain, 8), (&plain, 9), (&ordered, 1), (&ordered, 8)] {
            let (b, estimate) = (builder().build().unwrap(), Estimate::of(builder().sizes()));
            let step = |b: &dyn Backend, taken: &mut dyn FnMut()| {
                let [w, v] = ws.each_ref().map(|w| b.upload_weight(w).unwrap());
                let x = b.upload(&numbers(3, n * 4096), [n, 4096].into()).unwrap();
                let ones = b.upload(&[1.0; 4096], [4096].into()).unwrap();
                taken();
                let normed = b.rms_norm(&x, &ones, 1e-6)?;
                let y = b.linear_many(&normed, &[&w, &v])?.swap_remove(1);
                // Overwritten, it has nothing beside it.
                let x = b.activate(normed, Activation::Silu)?;
                let (sum, normed) = b.add_rms_norm(b.mul(x.clone(), &x)?, &x, &ones, 1e-6)?;
                drop((x, sum, y));
                b.linear(&normed, &v)
            };
            let counted = estimate.activations(|| step(&estimate, &mut || ())).unwrap().peak;
            let mut before = 0;
            step(&b, &mut || before = b.memory_used().0).unwrap();
            assert_eq!(b.memory_used().1 - before, counted, "{n}");
        }
    });
}

#[test]
fn too_little_memory_for_what_is_rounded_is_the_usual_error() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        // Enough for a slab of small pieces and for eight rows, not for their codes.
        let (b, cols) = (builder().memory(8 << 20).build().unwrap(), 1 << 17);
        let w = b.upload_weight(&weight(&Q4_0, 1, [2, cols])).unwrap();
        let used = b.memory_used().0;
        let x = b.upload(&numbers(3, 8 * cols), [8, cols].into()).unwrap();
        let e = b.linear(&x, &w).unwrap_err();
        let ErrorKind::Memory { needed, .. } = *e.kind() else { panic!("{e}") };
        assert!(needed >= 10 << 17 && e.to_string().contains("linear"), "{e}");
        drop(x);
        assert_eq!(b.memory_used().0, used);
        let x = b.upload(&numbers(3, cols), [1, cols].into()).unwrap();
        assert!(b.download(&b.linear(&x, &w).unwrap()).unwrap().iter().all(|v| v.is_finite()));
    });
}

/// What steps give, from an empty cache, and how many of them were replayed.
fn steps(builder: &Builder) -> (Vec<Vec<u32>>, u64) {
    let b = builder.clone().build().unwrap();
    let model = Model::packed(&b, 0, &Q8_0).unwrap();
    (model.steps(&b), b.graphs().replayed)
}

#[test]
fn replayed_and_overlapping_steps_are_the_same_bits() {
    common::on_kind(test_name!(), Nvrtc::V12, Some("sm_90"), || {
        for builder in builders() {
            let (want, none) = steps(&builder.clone().graphs(false));
            assert_eq!(none, 0);
            for overlap in [false, true] {
                let (got, replayed) = steps(&builder.clone().overlap(overlap));
                assert!(got == want && replayed > 10, "{overlap}: {replayed} replayed");
            }
            assert_eq!(steps(&builder.overlap(true).graphs(false)).0, want);
            assert_ne!(steps(&CudaBackend::builder()).0, want, "it was computed in single precision");
        }
    });
}

/// What a norm leaves goes back with the step, so that one which ends with a norm can be recorded.
#[test]
fn a_step_that_ends_with_a_norm_is_replayed() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let run = |persistent: bool, graphs: bool| {
            let b = builder().persistent(persistent).graphs(graphs).build().unwrap();
            let table = b.upload_weight(&weight(&Q8_0, 1, [DIM, DIM])).unwrap();
            let ones = b.upload(&[1.0; DIM], [DIM].into()).unwrap();
            let step = |i: u32| {
                let mut batch = Batch::default();
                batch.push(&[i * 7], 0, Vec::new(), [0, 1]);
                batch.want_last();
                let (key, plan) = (StepKey::of(1, &batch).unwrap(), b.plan(batch).unwrap());
                let y = b.replay(&key, &plan, &mut |plan| {
                    b.rms_norm(&b.embed(&table, Ids::Tokens, plan)?, &ones, 1e-6)
                });
                // The result is lent, and rounded where it is multiplied.
                let y = y.unwrap();
                let product = b.linear(&y, &table).unwrap();
                [y, product].map(|y| bits(&b.download(&y).unwrap()))
            };
            ((0..8).map(step).collect::<Vec<_>>(), b.graphs().replayed)
        };
        for persistent in [false, true] {
            let ((want, none), (got, replayed)) = (run(persistent, false), run(persistent, true));
            assert!(got == want && none == 0 && replayed > 3, "{persistent}: {replayed} replayed");
        }
    });
}

#[test]
fn operators_conform() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        for builder in builders() {
            let b: Arc<dyn Backend> = Arc::new(builder.build().unwrap());
            for part in [
                "linear/q",
                "linear/mxfp4",
                "linear_many",
                "linear_gated/q4_k",
                "linear_gated/q6_k",
                "norm",
                "replay",
            ] {
                assert_conforms(&b, &common::with_one_of_few_bits().filter(part));
            }
        }
    });
}
