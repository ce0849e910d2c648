//! The definition of products with one row by blocks that stay, and their kernels against it, to the bit: every format and lengths that fill no chunk; bytes and
//! activations as wild as they come. Halves have the bits of the kernel for few rows. Then norms that are left to them: what they give, and what whoever else reads them finds.

#![allow(clippy::print_stdout)]

use super::*;
use crate::CudaBackend;
use crate::launch::tests::on;
use crate::ops::codes;
use crate::ops::int8::tests::*;
use crate::weight;
use ogive_backend::{Activation, Backend};
use ogive_tensor::{BF16, F16, F32, Format, HostWeight, Q4_0, Q4_K, Q5_K, Q6_K, Q8_0};
use ptx_emulator_launcher::{Nvrtc, test_name};

/// The product of a packed row with a row of activations where lane `l` adds up the groups 2 · l and the next of every 64.
fn product_in_whole_pairs(format: &Format, bytes: &[u8], x: &[f32]) -> f32 {
    let mut lanes = [0f32; 32];
    for (p, pair) in x.chunks(64).enumerate() {
        let both = [0, 1].map(|i| {
            let (g, per) = (2 * p + i, format.block_len / 32);
            let block = &bytes[g / per * format.block_bytes..][..format.block_bytes];
            (group(format.name, block, g % per), rounded(&pair[32 * i..][..32]))
        });
        let part = |mine: &dyn Fn(&Group, &[i32; 32]) -> i32| {
            let [first, second] = both.each_ref().map(|(w, (a, scale))| (*scale, mine(w, a) as f32));
            second.0.mul_add(second.1, first.0 * first.1)
        };
        let u = part(&|w, a| w.scales[0] * (0..32).map(|k| w.codes[k] * a[k]).sum::<i32>());
        let v = part(&|w, a| w.mins[0] * a.iter().sum::<i32>());
        let (w, lane) = (&both[0].0, &mut lanes[p % 32]);
        *lane = w.m.unwrap_or(0.0).mul_add(v, w.d.mul_add(u, *lane));
    }
    for o in [16, 8, 4, 2, 1] {
        lanes = std::array::from_fn(|l| lanes[l] + lanes[l ^ o]);
    }
    lanes[0]
}

/// The same where lane `l` adds up the groups 4 · (l / 2) + l % 2 and the second after it, of every 64.
fn product_in_sixes(format: &Format, bytes: &[u8], x: &[f32]) -> f32 {
    let mut lanes = [0f32; 32];
    for (g, x) in x.chunks(32).enumerate() {
        let (per, (a, scale)) = (format.block_len / 32, rounded(x));
        let w = group(format.name, &bytes[g / per * format.block_bytes..][..format.block_bytes], g % per);
        let sum = |h: usize| w.scales[h] * (0..16).map(|k| w.codes[16 * h + k] * a[16 * h + k]).sum::<i32>();
        let lane = &mut lanes[g % 64 / 4 * 2 + g % 2];
        *lane = scale.mul_add(w.d * (sum(0) + sum(1)) as f32, *lane);
    }
    for o in [16, 8, 4, 2, 1] {
        lanes = std::array::from_fn(|l| lanes[l] + lanes[l ^ o]);
    }
    lanes[0]
}

/// What one row's product by blocks that stay is.
fn definition_of_one(format: &Format) -> fn(&Format, &[u8], &[f32]) -> f32 {
    match format.name {
        "q4_k" | "q5_k" => product_in_whole_pairs,
        "q6_k" => product_in_sixes,
        _ => product_of,
    }
}

/// One whose blocks stay where there is one row.
fn persistent() -> CudaBackend {
    CudaBackend::builder().activations(Activations::Int8).persistent(true).build().unwrap()
}

/// Each of these formats with one row by blocks that stay, which has codes or is rounded by them.
fn rows_alone(formats: impl Iterator<Item = &'static Format>) {
    let (b, mut r, mut count) = (persistent(), Random(5), 0);
    let (d, at) = (&b.device, "test");
    for format in formats {
        for (i, cols) in numbered(format) {
            for coded in [false, true] {
                // More rows than a grid has warps, so that some warps have several.
                let out =
                    [5, 3, 9, 1][i] + if count % 3 == 0 { 16 * d.info.multiprocessors as usize } else { 0 };
                let what = format!("{} [1, {cols}] to {out}, codes {coded}", format.name);
                let of = (format, [1, out, cols], count % 5 == 4);
                let make = |given: &Tensor, w: &CudaWeight, y: &Tensor| {
                    assert!(takes(d, 1, w));
                    let row = match coded {
                        true => Row::Codes(codes::codes(d, at, given, 0).unwrap()),
                        false => Row::of(d, at, given, w).unwrap(),
                    };
                    products(d, at, &row, &[(w, y)]).unwrap();
                };
                is_defined(&b, &mut r, &what, of, make, definition_of_one(format));
                count += 1;
            }
        }
    }
    println!("cuda: {}: {count} products", b.info().name);
}

#[test]
fn products_are_the_definition_on_sm_80() {
    on(test_name!(), Nvrtc::V12, "sm_80", || rows_alone(packed()));
}

#[test]
fn products_are_the_definition_on_sm_90() {
    on(test_name!(), Nvrtc::V13, "sm_90", || rows_alone(packed().step_by(2)));
}

#[test]
fn products_are_the_definition_on_sm_89() {
    on(test_name!(), Nvrtc::V12, "sm_89", || rows_alone(packed().skip(1).step_by(3)));
}

/// The gated form of each format.
fn gates(formats: impl Iterator<Item = &'static Format>) {
    let (b, mut r) = (persistent(), Random(6));
    let plain = CudaBackend::new().unwrap();
    for (i, format) in formats.enumerate() {
        let (out, cols) = (2 * b.info().multiprocessors as usize + 5, [256, 1280, 2304][i % 3]);
        let x: Vec<f32> = (0..cols).map(|_| r.number()).collect();
        let host = [0, 1].map(|_| weight_of(&mut r, format, [out, cols], false));
        let [gate, up] = host.each_ref().map(|w| b.upload_weight(w).unwrap());
        let got = b.linear_gated(&b.upload(&x, [1, cols].into()).unwrap(), &gate, &up, Activation::Silu);
        // The function by the same device: only the products are this file's.
        let [gate, up] = host.each_ref().map(|w| {
            let rows = w.bytes.chunks(w.row_bytes()).map(|row| definition_of_one(format)(format, row, &x));
            plain.upload(&rows.collect::<Vec<f32>>(), [1, out].into()).unwrap()
        });
        let want = plain.gated(gate, &up, Activation::Silu).unwrap();
        same(format.name, &b.download(&got.unwrap()).unwrap(), &plain.download(&want).unwrap());
    }
}

#[test]
fn gates_are_the_definition() {
    on(test_name!(), Nvrtc::V12, "sm_80", || gates(packed()));
    on(test_name!(), Nvrtc::V13, "sm_90", || gates(packed().skip(2).step_by(4)));
}

fn bits(b: &CudaBackend, y: &Tensor) -> Vec<u32> {
    b.download(y).unwrap().into_iter().map(f32::to_bits).collect()
}

/// Numbers as a weight of this format.
fn encoded(r: &mut Random, format: &'static Format, [out, cols]: [usize; 2]) -> HostWeight {
    let mut bytes = vec![0; out * format.row_bytes(cols)];
    format.encode_row(&(0..out * cols).map(|_| r.number()).collect::<Vec<_>>(), &mut bytes).unwrap();
    HostWeight::new("w", [1, out, cols], format, bytes.into()).unwrap()
}

/// Halves, alone, in company and gated, with wild ones, and rows that fill no chunk; of those that are no whole eights nothing is asked.
fn halves() {
    let (b, plain, mut r) = (persistent(), CudaBackend::new().unwrap(), Random(9));
    let d = &b.device;
    for (i, cols) in [8, 248, 512, 1288, 2560].into_iter().enumerate() {
        for format in [&F16, &BF16] {
            // Once more rows than a grid has warps, so that some have several.
            let most = if i == 2 { 16 * d.info.multiprocessors as usize } else { 0 };
            let outs = [most + 7, 3, 40];
            let host = outs.map(|out| match i % 2 {
                0 => encoded(&mut r, format, [out, cols]),
                _ => weight_of(&mut r, format, [out, cols], true),
            });
            let x = rows_of(&mut r, 1, cols);
            let run = |b: &CudaBackend| {
                let ws = host.each_ref().map(|w| b.upload_weight(w).unwrap());
                let up = b.upload_weight(&host[0]).unwrap();
                let taken = takes(&b.device, 1, weight::read(&b.device, "test", &ws[0]).unwrap());
                assert_eq!(taken, b.device.persistent);
                let x = b.upload(&x, [1, cols].into()).unwrap();
                let mut all = b.linear_many(&x, &ws.each_ref()).unwrap();
                all.push(b.linear(&x, &ws[0]).unwrap());
                all.push(b.linear_gated(&x, &ws[0], &up, Activation::Silu).unwrap());
                all.iter().map(|y| b.download(y).unwrap()).collect::<Vec<_>>()
            };
            for (k, (got, want)) in run(&b).iter().zip(run(&plain)).enumerate() {
                same(&format!("{} [1, {cols}], {k}", format.name), got, &want);
            }
        }
    }
    for (format, cols) in [(&F16, 12), (&BF16, 511), (&F32, 512)] {
        let w = b.upload_weight(&encoded(&mut r, format, [3, cols])).unwrap();
        assert!(!takes(d, 1, weight::read(d, "test", &w).unwrap()), "{} {cols}", format.name);
    }
}

#[test]
fn halves_have_the_bits_of_few_rows() {
    on(test_name!(), Nvrtc::V12, "sm_80", halves);
    on(test_name!(), Nvrtc::V13, "sm_90", halves);
}

/// Weights of one input in a launch, of formats that are alike and not in any places, and one more than a launch takes: each has the bits that it
/// has alone.
#[test]
fn weights_together_are_those_alone() {
    on(test_name!(), Nvrtc::V12, "sm_90", || {
        let (b, mut r, cols) = (persistent(), Random(7), 1536);
        let alike = [&Q4_K, &Q4_K, &Q6_K, &Q4_K];
        for formats in
            [&alike[..3], &alike, &[&Q6_K, &Q4_K, &Q4_K], &[&Q5_K, &Q8_0, &Q4_0], &[&Q4_K, &Q5_K, &Q4_K]]
        {
            let outs = [140, 3, 9, 5];
            let all = formats.iter().zip(outs).map(|(format, out)| encoded(&mut r, format, [out, cols]));
            let ws: Vec<_> = all.map(|w| b.upload_weight(&w).unwrap()).collect();
            let x = b.upload(&rows_of(&mut r, 1, cols), [1, cols].into()).unwrap();
            let together = b.linear_many(&x, &ws.iter().collect::<Vec<_>>()).unwrap();
            for (i, (y, w)) in together.iter().zip(&ws).enumerate() {
                assert_eq!(bits(&b, y), bits(&b, &b.linear(&x, w).unwrap()), "{i}");
            }
        }
    });
}

/// Whoever reads the result of a norm that is left to products, and the sum that it is of, in whatever order.
#[test]
fn norms_are_there_when_they_are_read() {
    on(test_name!(), Nvrtc::V12, "sm_90", || {
        let (b, other) =
            (persistent(), CudaBackend::builder().activations(Activations::Int8).build().unwrap());
        for (cols, format) in [(256, &Q8_0), (1056, &F16), (1056, &Q8_0), (2304, &Q8_0), (2304, &BF16)] {
            let mut r = Random(8);
            let mut numbers = |n: usize| (0..n).map(|_| r.number()).collect::<Vec<f32>>();
            let (x, residual, factors) = (numbers(cols), numbers(cols), numbers(cols));
            let host = encoded(&mut r, format, [5, cols]);
            let row = |b: &CudaBackend, v: &[f32]| b.upload(v, [1, cols].into()).unwrap();
            let normed = |b: &CudaBackend, added: bool| {
                let (x, factors) = (row(b, &x), b.upload(&factors, [cols].into()).unwrap());
                match added {
                    true => b.add_rms_norm(row(b, &residual), &x, &factors, 1e-5).unwrap(),
                    false => (row(b, &residual), b.rms_norm(&x, &factors, 1e-5).unwrap()),
                }
            };
            for added in [false, true] {
                let (sum, out) = normed(&other, added);
                let held = other.upload_weight(&host).unwrap();
                let product = other.download(&other.linear(&out, &held).unwrap()).unwrap();
                let (sum, out) = (bits(&other, &sum), bits(&other, &out));
                let held = b.upload_weight(&host).unwrap();
                // The sum of squares is added up in another order.
                let is_product = |y: &Tensor| {
                    for (got, want) in b.download(y).unwrap().iter().zip(&product) {
                        let off = (got - want).abs();
                        assert!(
                            off <= 1e-4 * want.abs().max(1.0),
                            "{} {cols}: {got} for {want}",
                            format.name
                        );
                    }
                };
                let is_open = |x: &Tensor| Device::deferred(x).is_some_and(|norm| norm.state().is_some());

                let (s, o) = normed(&b, added);
                assert!(is_open(&o));
                is_product(&b.linear(&o, &held).unwrap());
                // The product left the sum, and its norm is still to be had; a second product needs neither.
                assert_eq!(bits(&b, &s), sum);
                assert!(is_open(&o));
                is_product(&b.linear(&o, &held).unwrap());
                assert_eq!((bits(&b, &s), bits(&b, &o)), (sum.clone(), out.clone()));
                assert!(!is_open(&o));
                is_product(&b.linear(&o, &held).unwrap());

                // Each read first; each where the other is gone.
                let (s, o) = normed(&b, added);
                assert_eq!((bits(&b, &o), bits(&b, &s)), (out.clone(), sum.clone()));
                let (s, o) = normed(&b, added);
                drop(o);
                assert_eq!(bits(&b, &s), sum);
                let (s, o) = normed(&b, added);
                drop(s);
                assert_eq!(bits(&b, &o), out);
                let (s, o) = normed(&b, added);
                drop(s);
                is_product(&b.linear(&o, &held).unwrap());

                // Nothing is written over what a norm is still to read.
                let (s, o) = normed(&b, added);
                is_product(&b.linear(&o, &held).unwrap());
                let twice = b.add(s, &row(&b, &residual)).unwrap();
                assert_eq!(bits(&b, &o), out);
                drop(twice);
                // Neither used: nothing is kept.
                let before = b.memory_used().0;
                drop(normed(&b, added));
                assert_eq!(b.memory_used().0, before);
            }
        }
    });
}

/// What a kernel declares counts among the 48 kB that it has without asking. With eight warps of halves, as devices of 99 kB have them, a row of 4096
/// floats and the weights take just these, and two lines at a time with a row of 2048 as well.
fn norms_beside_what_kernels_declare() {
    let (b, mut r) = (persistent(), Random(11));
    let other = CudaBackend::builder().activations(Activations::Int8).build().unwrap();
    for (cols, format) in [(2048, &BF16), (4096, &F16)] {
        let sizes = [1, 2].map(|lines| Block::of(&b.device.info, false, lines).shared(cols));
        assert!(sizes.contains(&(48 << 10)), "{cols}: {sizes:?}");
        let host = [0, 1].map(|_| encoded(&mut r, format, [5, cols]));
        let [x, residual, factors] = [0; 3].map(|_| (0..cols).map(|_| r.number()).collect::<Vec<f32>>());
        let run = |b: &CudaBackend, gated: bool| {
            let row = |v: &[f32]| b.upload(v, [1, cols].into()).unwrap();
            let factors = b.upload(&factors, [cols].into()).unwrap();
            let (_, normed) = b.add_rms_norm(row(&residual), &row(&x), &factors, 1e-5).unwrap();
            let [gate, up] = host.each_ref().map(|w| b.upload_weight(w).unwrap());
            let y = match gated {
                true => b.linear_gated(&normed, &gate, &up, Activation::Silu),
                false => b.linear(&normed, &gate),
            };
            b.download(&y.unwrap()).unwrap()
        };
        for gated in [false, true] {
            for (got, want) in run(&b, gated).iter().zip(run(&other, gated)) {
                // The sum of squares is added up in another order.
                assert!(
                    (got - want).abs() <= 1e-4 * want.abs().max(1.0),
                    "{cols}, {gated}: {got} for {want}"
                );
            }
        }
    }
}

#[test]
fn what_kernels_declare_counts_among_what_they_are_granted() {
    on(test_name!(), Nvrtc::V12, "sm_89", norms_beside_what_kernels_declare);
    on(test_name!(), Nvrtc::V13, "sm_120", norms_beside_what_kernels_declare);
}
