//! Weights whose columns are in another order than their inputs (act-order): packed on the device, and multiplied by the kernels of others.
//!
//! Their twin is the same weight without the order, and inputs that were moved on the host: the very same bits. The conformance suite's
//! oracle, which decodes them, says what is right.
#![allow(clippy::print_stdout)]

mod common;
#[path = "common/llama.rs"]
mod llama;
#[path = "common/products.rs"]
mod products;

use llama::Model;
use ogive_backend::tensor::{ErrorKind, Format, HostWeight, Q4_0, Q4_K, Q5_0, Q8_0};
use ogive_backend::{Activation, Backend, Batch, Estimate, Experts, Ids, RouterSpec, Scoring, Weight};
use ogive_conformance::{Options, Oracle, assert_conforms};
use ogive_cuda::{Activations, Builder, Compute, CudaBackend};
use products::{error, numbers, weight};
use ptx_emulator_launcher::{Nvrtc, test_name};
use std::sync::Arc;

/// A way to compute, its name, and how far it may be from what is right.
fn builders() -> [(Builder, &'static str, f64); 5] {
    let b = CudaBackend::builder;
    [
        (b(), "f32", 1e-6),
        (b().compute(Compute::F16).cublas(false), "f16", 2f64.powi(-10)),
        (b().compute(Compute::Bf16).cublas(false), "bf16", 2f64.powi(-7)),
        (b().compute(Compute::Bf16).cublas_from(9), "bf16 by cublas", 2f64.powi(-7)),
        (b().activations(Activations::Int8), "int8", 2e-2),
    ]
}

/// An order of so many columns; another one for each `step`.
fn order(step: usize, cols: usize) -> Arc<[u32]> {
    (0..cols).map(|i| ((i * [37, 101, 11][step % 3] + 7 * step) % cols) as u32).collect()
}

fn in_order(w: &HostWeight, order: &Arc<[u32]>) -> HostWeight {
    w.clone().with_input_perm(Arc::clone(order)).unwrap()
}

/// `x` as the columns of a weight in this order want it.
fn moved(x: &[f32], order: &[u32]) -> Vec<f32> {
    x.chunks(order.len()).flat_map(|row| order.iter().map(|i| row[*i as usize])).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Which order each of three weights has; the last of them is none.
const MIXES: [[usize; 3]; 6] = [[0, 0, 0], [0, 1, 0], [1, 2, 1], [2, 0, 0], [2, 0, 2], [2, 2, 1]];

#[test]
fn products_are_those_of_moved_inputs_to_the_bit() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let (out, cols) = (37, 768);
        let hosts = [(&Q4_0, 1), (&Q8_0, 2), (&Q4_K, 3)].map(|(f, salt)| weight(f, salt, [out, cols]));
        let orders = [order(0, cols), order(1, cols)];
        for (builder, name, bound) in builders() {
            let b = builder.build().unwrap();
            let down = |y| b.download(&y).unwrap();
            let plain = hosts.each_ref().map(|w| b.upload_weight(w).unwrap());
            for n in [1, 3, 8, 9, 40] {
                let up = |x: &[f32]| b.upload(x, [n, cols].into()).unwrap();
                let x = numbers(7, n * cols);
                let mut given = orders.each_ref().map(|order| up(&moved(&x, order))).to_vec();
                given.push(up(&x));
                for mix in MIXES {
                    let what = format!("{name}, {n} rows, orders {mix:?}");
                    // An equal order that is another allocation.
                    let own = |i: usize| orders.get(mix[i]).map(|o| in_order(&hosts[i], &o.to_vec().into()));
                    let own = [0, 1, 2].map(|i| own(i).unwrap_or_else(|| hosts[i].clone()));
                    let ws = own.each_ref().map(|w| b.upload_weight(w).unwrap());
                    let want = [0, 1, 2].map(|i| b.linear(&given[mix[i]], &plain[i]).unwrap());
                    let x = up(&x);
                    let many = b.linear_many(&x, &ws.each_ref()).unwrap();
                    for (i, y) in many.into_iter().enumerate() {
                        let (got, alone) = (down(y), down(b.linear(&x, &ws[i]).unwrap()));
                        assert_eq!(bits(&got), bits(&down(want[i].clone())), "{what}: {i}");
                        assert_eq!(bits(&got), bits(&alone), "{what}: {i} alone");
                        let right = Oracle.upload(&numbers(7, n * cols), [n, cols].into()).unwrap();
                        let right = Oracle.linear(&right, &Oracle.upload_weight(&own[i]).unwrap()).unwrap();
                        let off = error(&got, &Oracle.download(&right).unwrap());
                        assert!(off < bound, "{what}: {i} is off by {off:e}");
                    }
                    let got = down(b.linear_gated(&x, &ws[0], &ws[1], Activation::Silu).unwrap());
                    let [gate, up, _] = want;
                    let want = if mix[0] == mix[1] {
                        b.linear_gated(&given[mix[0]], &plain[0], &plain[1], Activation::Silu)
                    } else {
                        b.gated(gate, &up, Activation::Silu)
                    };
                    assert_eq!(bits(&got), bits(&down(want.unwrap())), "{what}: gated");
                }
            }
            println!("cuda: {name}: {} mixes", 5 * MIXES.len());
        }
    });
}

/// Long rows, more than one launch has blocks for, none, and other shapes of the input.
#[test]
fn sizes_that_are_odd() {
    common::on_device(test_name!(), Nvrtc::V13, || {
        let b = CudaBackend::new().unwrap();
        for (dims, out) in [([1, 1, 11_008], 3), ([1, 0, 64], 5), ([2, 3, 96], 7), ([1, 66_000, 32], 1)] {
            let [spans, rows, cols] = dims;
            let (host, order, n) = (weight(&Q5_0, 1, [out, cols]), order(2, cols), spans * rows);
            let x = numbers(3, n * cols);
            let run = |w: &HostWeight, x: &[f32]| {
                let (w, x) = (b.upload_weight(w).unwrap(), b.upload(x, dims.into()).unwrap());
                bits(&b.download(&b.linear(&x, &w).unwrap()).unwrap())
            };
            assert!(run(&in_order(&host, &order), &x) == run(&host, &moved(&x, &order)), "{dims:?}");
        }
        let (w, x) = (weight(&Q5_0, 1, [5, 64]), b.upload(&[0.0; 96], [1, 96].into()).unwrap());
        let e = b.linear(&x, &b.upload_weight(&in_order(&w, &order(0, 64))).unwrap()).unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::Shape { .. }), "{e}");
    });
}

#[test]
fn rows_of_a_table_are_in_their_own_order() {
    common::on_device(test_name!(), Nvrtc::V11, || {
        let b = CudaBackend::new().unwrap();
        for (format, cols) in [(&Q4_0, 96), (&Q4_K, 512)] {
            let table = in_order(&weight(format, 1, [10, cols]), &order(1, cols));
            let mut batch = Batch::default();
            batch.push(&[3, 9, 0], 0, Vec::new(), [0, 1]);
            let (w, plan) = (b.upload_weight(&table).unwrap(), b.plan(batch).unwrap());
            let got = b.download(&b.embed(&w, Ids::Tokens, &plan).unwrap()).unwrap();
            let all = table.to_vec();
            let want: Vec<f32> = [3, 9, 0].iter().flat_map(|i| &all[i * cols..][..cols]).copied().collect();
            assert_eq!(bits(&got), bits(&want), "{}", format.name);
        }
    });
}

/// Experts by `change`, gated by SiLU or activated by squared ReLU, and the mixture of `n` rows.
fn mixture(
    b: &dyn Backend,
    (experts, gated): (usize, bool),
    n: usize,
    taken: &mut dyn FnMut(),
    change: &dyn Fn(usize, HostWeight) -> HostWeight,
) -> ogive_backend::tensor::Result<ogive_backend::tensor::Tensor> {
    let (dim, hidden) = (256, 96);
    let up = |salt: usize, [rows, cols]: [usize; 2]| -> Weight {
        let all = weight(&Q8_0, salt, [experts * rows, cols]);
        let host = HostWeight::new("w", [experts, rows, cols], &Q8_0, all.bytes).unwrap();
        b.upload_weight(&change(salt, host)).unwrap()
    };
    let (gate, upward, down) = (up(0, [hidden, dim]), up(1, [hidden, dim]), up(2, [dim, hidden]));
    let experts_of = match gated {
        true => Experts::new([gate, upward, down], Activation::Silu),
        false => Experts::ungated([upward, down], Activation::ReluSquared),
    };
    let rows = |salt, cols| b.upload(&numbers(salt, n * cols), [n, cols].into()).unwrap();
    let (x, logits) = (rows(5, dim), rows(6, experts));
    let mut spec = RouterSpec::new(experts.min(2), Scoring::Sigmoid);
    (spec.normalise, spec.scale) = (false, 1.5);
    taken();
    b.moe(&x, &logits, &spec, &experts_of)
}

#[test]
fn mixtures_with_an_order_are_right() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        // Which order gate, up and down have; the last of them is none.
        for orders in [[0, 0, 1], [0, 1, 2], [2, 0, 2], [2, 2, 0]] {
            let change = |salt: usize, w: HostWeight| {
                let cols = w.shape[2];
                if orders[salt] < 2 { in_order(&w, &order(orders[salt], cols)) } else { w }
            };
            for (builder, name, bound) in builders() {
                let cases = [(1, 1), (1, 20), (4, 3), (4, 20)].map(|(e, n)| ((e, true), n));
                for (experts, n) in
                    cases.into_iter().chain([((1, false), 1), ((1, false), 20), ((4, false), 3)])
                {
                    let b = builder.clone().build().unwrap();
                    let run = |b: &dyn Backend| {
                        b.download(&mixture(b, experts, n, &mut || (), &change).unwrap()).unwrap()
                    };
                    let off = error(&run(&b), &run(&Oracle));
                    // Two products' errors, one after the other.
                    assert!(
                        off < 2.0 * bound,
                        "{name} {orders:?} {experts:?} experts, {n} rows: off by {off:e}"
                    );
                }
            }
        }
    });
}

#[test]
fn they_take_their_packed_size_and_four_bytes_a_column() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let b = CudaBackend::new().unwrap();
        for format in [&Q4_0, &Q8_0, &Q4_K] as [&'static Format; 3] {
            let (rows, cols) = (1000, 4096);
            let host = in_order(&weight(format, 1, [rows, cols]), &order(0, cols));
            let held = b.upload_weight(&host).unwrap();
            let (used, bytes) = (b.memory_used().0, (host.bytes.len() + 4 * cols) as f64);
            println!("cuda: {}: {bytes} bytes take {used}", format.name);
            // Pieces are rounded up to whole pages of the driver's.
            assert!((bytes..=bytes + f64::from(2 << 20)).contains(&(used as f64)), "{}: {used}", format.name);
            assert_eq!(CudaBackend::estimate_memory([&host], None), Some(used));
            drop(held);
            assert_eq!(b.memory_used().0, 0);
        }
    });
}

#[test]
fn an_estimate_counts_what_is_moved() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let cols = 4096;
        let hosts =
            [weight(&Q4_K, 1, [37, cols]), weight(&Q4_0, 2, [70, cols]), weight(&Q4_K, 3, [70, cols])];
        for (builder, name, _) in builders() {
            for n in [1, 7, 9, 40] {
                for mix in MIXES {
                    let (b, estimate) = (builder.clone().build().unwrap(), Estimate::of(builder.sizes()));
                    let step = |b: &dyn Backend, taken: &mut dyn FnMut()| {
                        let own = |i: usize| match mix[i] {
                            2 => hosts[i].clone(),
                            which => in_order(&hosts[i], &order(which, cols)),
                        };
                        let ws = [0, 1, 2].map(|i| b.upload_weight(&own(i)).unwrap());
                        let x = b.upload(&numbers(3, n * cols), [n, cols].into()).unwrap();
                        taken();
                        b.linear_many(&x, &ws.each_ref()).map(|mut ys| ys.swap_remove(1))
                    };
                    let counted = estimate.activations(|| step(&estimate, &mut || ())).unwrap().peak;
                    let mut before = 0;
                    step(&b, &mut || before = b.memory_used().0).unwrap();
                    assert_eq!(b.memory_used().1 - before, counted, "{name}, {n} rows, orders {mix:?}");
                }
            }
            // A mixture takes no more than is counted.
            let change = |salt: usize, w: HostWeight| {
                let cols = w.shape[2];
                in_order(&w, &order(salt, cols))
            };
            for gated in [true, false] {
                let (b, estimate) = (builder.clone().build().unwrap(), Estimate::of(builder.sizes()));
                let step =
                    |b: &dyn Backend, taken: &mut dyn FnMut()| mixture(b, (1, gated), 20, taken, &change);
                let counted = estimate.activations(|| step(&estimate, &mut || ())).unwrap().peak;
                let mut before = 0;
                step(&b, &mut || before = b.memory_used().0).unwrap();
                let taken = b.memory_used().1 - before;
                assert!(taken <= counted && counted < 2 * taken, "{name}: {taken} taken, {counted} counted");
            }
        }
    });
}

/// What steps give, from an empty cache, and how many of them were replayed.
fn steps(builder: &Builder) -> (Vec<Vec<u32>>, u64) {
    let b = builder.clone().build().unwrap();
    let model = Model::ordered(&b, 0, &Q8_0).unwrap();
    (model.steps(&b), b.graphs().replayed)
}

#[test]
fn replayed_and_overlapping_steps_are_the_same_bits() {
    common::on_kind(test_name!(), Nvrtc::V12, Some("sm_90"), || {
        for activations in [Activations::Float, Activations::Int8] {
            let builder = CudaBackend::builder().activations(activations);
            let (want, none) = steps(&builder.clone().graphs(false));
            assert_eq!(none, 0);
            for overlap in [false, true] {
                let (got, replayed) = steps(&builder.clone().overlap(overlap));
                assert!(got == want && replayed > 10, "{activations:?} {overlap}: {replayed} replayed");
            }
        }
    });
}

#[test]
fn operators_conform() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        for (builder, name, _) in builders().into_iter().skip(1) {
            println!("cuda: {name}");
            let b: Arc<dyn Backend> = Arc::new(builder.build().unwrap());
            for part in ["linear/q4_0/scale-and", "linear/q6_k/scale-and", "linear/mxfp4/scale-and"] {
                assert_conforms(&b, &Options::new().filter(part));
            }
        }
    });
}
