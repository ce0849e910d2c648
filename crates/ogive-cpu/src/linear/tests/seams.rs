//! What is not a kernel: experts, several weights at once, gates, other people's formats, and wrong arguments.

use super::*;
use crate::{
    linear::{linear_each, linear_gated, linear_many},
    room::Rooms,
};
use ogive_tensor::{F8_E4M3, IQ1_M, IQ3_S, NVFP4, Q4_0, Q4_K, Q8_0, Scale};

fn taken(w: &HostWeight, path: Path) -> Arc<CpuWeight> {
    let taken = CpuWeight::new(w, Precision::Default, path).unwrap();
    Arc::new(taken.in_strips(&Pool::new(1)).unwrap_or(taken))
}

#[test]
fn each_expert_is_a_matrix_of_its_own() {
    let mut noise = Noise(20);
    let pool = Pool::new(2);
    let (rows, k) = (21, 64);
    let all = weight(&mut noise, &Q8_0, [3, rows, k]);
    let x = noise.values(5 * k);
    for path in Path::ALL.iter().copied().filter(|p| p.is_supported()) {
        for expert in 0..3 {
            let stride = rows * all.row_bytes();
            let bytes = all.bytes.part(expert * stride..(expert + 1) * stride).unwrap();
            let one = HostWeight::new("one", [1, rows, k], &Q8_0, bytes).unwrap();
            let mut got = vec![0.0; 5 * rows];
            linear(&pool, &x, 5, &taken(&all, path), expert, &mut got).unwrap();
            let want = product(&pool, &x, 5, &one, Precision::Default, path);
            assert_same(&got, &want, &format!("{path} expert {expert}"));
        }
    }
}

#[test]
fn each_head_has_the_bits_of_a_product_by_itself() {
    let mut noise = Noise(22);
    let (pool, k, rows) = (Pool::new(3), 256, 37);
    for path in Path::ALL.iter().copied().filter(|p| p.is_supported()) {
        for n in [0, 1, 2, 9, 70] {
            // Heads of one layer may be in several formats and orders.
            let order: Vec<u32> = (0..k as u32).rev().collect();
            let turned = weight(&mut noise, &Q8_0, [1, rows, k]).with_input_perm(order.into()).unwrap();
            let plain = [&Q4_K, &F16, &Q8_0, &F32].map(|f| weight(&mut noise, f, [1, rows, k]));
            let hosts: Vec<HostWeight> = plain.into_iter().chain([turned]).collect();
            let ws: Vec<_> = hosts.iter().map(|w| taken(w, path)).collect();
            let (x, heads) = (noise.values(n * hosts.len() * k), hosts.len());
            let mut got = vec![f32::NAN; n * heads * rows];
            linear_each(&pool, &x, n, &ws.iter().collect::<Vec<_>>(), &mut got).unwrap();
            for (head, w) in hosts.iter().enumerate() {
                let part = |all: &[f32], len: usize| -> Vec<f32> {
                    all.chunks(len).skip(head).step_by(heads).flatten().copied().collect()
                };
                let want = product(&pool, &part(&x, k), n, w, Precision::Default, path);
                assert_same(&part(&got, rows), &want, &format!("{path} {w:?} n={n}"));
            }
        }
    }
    let (w, v) = (weight(&mut noise, &F32, [1, 2, 3]), weight(&mut noise, &F32, [1, 3, 2]));
    let ws = [taken(&w, Path::Scalar), taken(&v, Path::Scalar)];
    assert!(linear_each(&pool, &[0.0; 6], 1, &ws.each_ref(), &mut [0.0; 4]).is_err());
}

#[test]
fn many_and_gated_are_what_they_are_made_of() {
    let mut noise = Noise(21);
    let pool = Pool::new(3);
    let k = 256;
    for path in Path::ALL.iter().copied().filter(|p| p.is_supported()) {
        for n in [0, 1, 2, 6, 9] {
            let hosts = [&Q4_K, &F16, &Q8_0, &BF16, &F32].map(|f| weight(&mut noise, f, [1, 37, k]));
            let ws = hosts.each_ref().map(|w| taken(w, path));
            let x = noise.values(n * k);
            let mut outs = vec![vec![0.0; n * 37]; ws.len()];
            linear_many(&pool, &x, n, &ws.each_ref(), 0, &mut outs).unwrap();
            for (out, w) in outs.iter().zip(&hosts) {
                let want = product(&pool, &x, n, w, Precision::Default, path);
                assert_same(out, &want, &format!("{path} {w:?} n={n}"));
            }
            let square = |v: &mut [f32]| v.iter_mut().for_each(|v| *v *= *v);
            let mut gated = vec![0.0; n * 37];
            linear_gated(&pool, &x, n, &ws[0], &ws[2], 0, square, &mut gated).unwrap();
            let want: Vec<f32> = outs[0].iter().zip(&outs[2]).map(|(g, u)| g * g * u).collect();
            assert_same(&gated, &want, &format!("{path} gated n={n}"));
        }
    }
}

#[test]
fn a_weight_that_is_laid_in_part_is_the_same_weight() {
    let mut noise = Noise(27);
    let pool = Pool::new(2);
    let rows = 203;
    for path in Path::ALL.iter().copied().filter(|p| p.is_supported()) {
        for format in [&Q4_K, &F16, &Q8_0, &BF16, &F32, &IQ1_M, &IQ3_S] {
            // So long that it is laid in more turns than there are experts.
            let k = if FEW_BITS.contains(&format) { 768 } else { 256 };
            let host = weight(&mut noise, format, [2, rows, k]);
            let stored = Arc::new(CpuWeight::new(&host, Precision::Default, path).unwrap());
            let Some(mut strips) = stored.no_strips() else { continue };
            let gate = taken(&weight(&mut noise, &Q8_0, [2, rows, k]), path);
            let mut laid = vec![strips.laid()];
            while !strips.are_all() {
                strips = strips.more(&pool, &Rooms::default(), &host.bytes).unwrap();
                laid.push(strips.laid());
                let rest = (!strips.are_all()).then(|| Arc::clone(&stored));
                let w = Arc::new(stored.with_strips(strips.clone(), rest));
                let at = format!("{path} {host:?}, {} rows laid", strips.laid());
                for n in [1, 3, 12, 40] {
                    let x = noise.values(n * k);
                    for expert in 0..2 {
                        let [mut got, mut want] = [vec![0.0; n * rows], vec![0.0; n * rows]];
                        linear(&pool, &x, n, &w, expert, &mut got).unwrap();
                        linear(&pool, &x, n, &stored, expert, &mut want).unwrap();
                        assert_same(&got, &want, &at);
                        for (w, out) in [(&w, &mut got), (&stored, &mut want)] {
                            linear_gated(&pool, &x, n, &gate, w, expert, |_| {}, out).unwrap();
                        }
                        assert_same(&got, &want, &format!("{at}, gated"));
                    }
                }
                let [mut got, mut want] = [vec![0.0; k], vec![0.0; k]];
                for row in 0..2 * rows {
                    w.decode_row(row, &mut got);
                    host.decode_row(row, &mut want);
                    assert_same(&got, &want, &format!("{at}, row {row}"));
                }
            }
            assert!(laid.len() > 3 && laid.is_sorted_by(|a, b| a < b), "{path} {host:?}: {laid:?}");
            assert_eq!(laid.last(), Some(&(2 * rows)));
        }
    }
}

#[test]
fn another_format_and_scales_are_decoded() {
    /// Bytes that count in quarters; by name Q4_0, which it is not.
    static QUARTERS: Format = Format {
        name: "q4_0",
        block_len: 32,
        block_bytes: 18,
        decode: |b, o| o.iter_mut().zip(b.iter().cycle()).for_each(|(o, &b)| *o = f32::from(b) / 4.0),
        encode: None,
    };
    let mut noise = Noise(22);
    let pool = Pool::new(2);
    let k = 64;
    let plain = weight(&mut noise, &Q4_0, [1, 18, k]);
    let quarters = HostWeight::new("w", [1, 18, k], &QUARTERS, plain.bytes.clone()).unwrap();
    let values = noise.values(9 * 2);
    let scaled = plain.clone().with_scale(Scale { values: values.into(), tile: [2, 32] }).unwrap();
    let both = scaled.clone().with_input_perm((0..k as u32).rev().collect()).unwrap();
    for w in [quarters, scaled, both] {
        for path in Path::ALL.iter().copied().filter(|p| p.is_supported()) {
            for n in [1, 5] {
                let x = noise.values(n * k);
                let got = product(&pool, &x, n, &w, Precision::Default, path);
                let decoded = w.decoded().unwrap();
                let want = product(&pool, &x, n, &decoded, Precision::Default, Path::Scalar);
                assert_same(&got, &want, &format!("{w:?} {path} n={n}"));
            }
        }
    }
}

/// As NVFP4's files have them, for all or for an expert, and as they come to be for rows: packed products wait for their sums.
#[test]
fn factors_of_rows_multiply_packed_products() {
    let mut noise = Noise(29);
    let pool = Pool::new(2);
    for (format, k) in [(&NVFP4, 320), (&Q4_K, 256), (&IQ3_S, 256)] {
        let (rows, n) = (37, 5);
        let plain = weight(&mut noise, format, [2, rows, k]);
        let x = noise.values(n * k);
        for tile in [[rows, k], [1, k], [20, 2 * k]] {
            let values: Vec<f32> = noise.values(2 * rows.div_ceil(tile[0]));
            let w = plain.clone().with_scale(Scale { values: values.into(), tile }).unwrap();
            for path in all_paths() {
                for expert in 0..2 {
                    let of = |w: &HostWeight| {
                        let mut out = vec![0.0; n * rows];
                        linear(&pool, &x, n, &taken(w, path), expert, &mut out).unwrap();
                        out
                    };
                    let is_packed = matches!(taken(&w, path).kernel(), Kernel::Packed(_) | Kernel::Coded(_));
                    assert!(is_packed || format == &NVFP4 && cfg!(not(target_arch = "x86_64")));
                    if !is_packed {
                        continue;
                    }
                    let factor = |r: usize| w.scale.as_ref().unwrap().of_row(w.shape, expert * rows + r)[0];
                    let want: Vec<f32> =
                        of(&plain).iter().enumerate().map(|(i, v)| v * factor(i % rows)).collect();
                    assert_same(&of(&w), &want, &format!("{format:?} {tile:?} {path} expert {expert}"));
                }
            }
        }
    }
}

/// As FP8's files have them: for tiles, for rows, for all, and none. Where kernels read them and where they do not, the product is that of the numbers.
#[test]
fn factors_of_eight_bit_floats_are_multiplied_by() {
    let mut noise = Noise(23);
    let pool = Pool::new(2);
    let (experts, rows, k) = (2, 37, 264);
    let mut plain = weight(&mut noise, &F8_E4M3, [experts, rows, k]);
    // A row with what is no number, behind all others' tokens.
    let mut bytes = plain.bytes.to_vec();
    bytes[5 * k + 9] = 0xff;
    plain.bytes = bytes.into();
    let mut all = vec![plain.clone()];
    for [tr, tc] in [[16, 128], [7, 32], [1, k], [rows, k], [64, 300], [1, 4], [5, 33], [rows, 2]] {
        let count = experts * rows.div_ceil(tr) * k.div_ceil(tc);
        let values = noise.values(count).into();
        all.push(plain.clone().with_scale(Scale { values, tile: [tr, tc] }).unwrap());
    }
    // Too large to be raised, and none.
    for value in [3e35, f32::MIN_POSITIVE, 0.0, f32::INFINITY] {
        let scale = Scale { values: [value, 1.0].into(), tile: [rows, k] };
        all.push(plain.clone().with_scale(scale).unwrap());
    }
    for w in all {
        let (decoded, precision) = (w.decoded().unwrap(), Precision::Default);
        for n in [1, 2, 3, 4, 5, 6, 11] {
            let x = noise.values(n * k);
            let want = product(&pool, &x, n, &decoded, precision, Path::Scalar);
            assert!(
                want.iter().filter(|v| v.is_nan()).count() < want.len() / 2
                    || !w.scale.as_ref().unwrap().values[0].is_finite()
            );
            for path in all_paths() {
                let what = format!("tiles {:?} {path} n={n}", w.scale.as_ref().map(|s| s.tile));
                assert_same(&product(&pool, &x, n, &w, precision, path), &want, &what);
                assert_same(&product(&pool, &x, n, &w, Precision::Exact, path), &want, &what);
            }
        }
    }
}

/// What every byte is multiplied as, in every place of a word; what is no number makes its row none.
#[test]
fn every_eight_bit_float_is_what_it_is() {
    let pool = Pool::new(1);
    let (rows, k) = (64, 4);
    for shift in 0..4 {
        let bytes: Vec<u8> = (0..rows * k).map(|i| (i + 67 * shift) as u8).collect();
        let w = HostWeight::new("w", [1, rows, k], &F8_E4M3, bytes.into()).unwrap();
        let values = w.to_vec();
        for (path, col) in all_paths().flat_map(|path| (0..k).map(move |col| (path, col))) {
            let mut x = vec![0.0; k];
            x[col] = 1.0;
            let got = product(&pool, &x, 1, &w, Precision::Default, path);
            for (row, (got, values)) in got.iter().zip(values.chunks(k)).enumerate() {
                let is_none = values.iter().any(|v| v.is_nan());
                let want = if is_none { f32::NAN } else { values[col] };
                assert!(
                    *got == want || got.is_nan() && is_none,
                    "{path} row {row} column {col}: {got} and {want}"
                );
            }
        }
    }
}

#[test]
fn permuted_inputs_are_moved_and_then_multiplied_like_others() {
    let mut noise = Noise(24);
    let (pool, k, rows) = (Pool::new(2), 256, 37);
    let orders: [Vec<u32>; 2] =
        [(0..k as u32).rev().collect(), (0..k as u32).map(|i| i * 37 % 256).collect()];
    let hosts = [&Q4_0, &Q8_0, &Q4_K].map(|f| weight(&mut noise, f, [1, rows, k]));
    for path in Path::ALL.iter().copied().filter(|p| p.is_supported()) {
        for n in [0, 1, 2, 6, 40] {
            let x = noise.values(n * k);
            let moved = orders.each_ref().map(|order| -> Vec<f32> {
                x.chunks(k).flat_map(|row| order.iter().map(|i| row[*i as usize])).collect()
            });
            // Which order each weight has, and none.
            for which in [[0, 0, 0], [0, 1, 0], [1, 2, 1], [2, 0, 0]] {
                let (mut ws, mut want) = (Vec::new(), Vec::new());
                for (host, which) in hosts.iter().zip(which) {
                    let order = orders.get(which).map(|order| order.clone().into());
                    let own =
                        order.map_or(host.clone(), |order| host.clone().with_input_perm(order).unwrap());
                    ws.push(taken(&own, path));
                    let x = moved.get(which).unwrap_or(&x);
                    want.push(product(&pool, x, n, host, Precision::Default, path));
                    let (mut row, last) = (vec![0.0; k], rows - 1);
                    ws[ws.len() - 1].decode_row(last, &mut row);
                    assert_eq!(row, own.to_vec()[last * k..]);
                }
                let mut outs = vec![vec![0.0; n * rows]; ws.len()];
                linear_many(&pool, &x, n, &ws.iter().collect::<Vec<_>>(), 0, &mut outs).unwrap();
                for (out, want) in outs.iter().zip(&want) {
                    assert_same(out, want, &format!("{path} {which:?} n={n}"));
                }
                let mut gated = vec![0.0; n * rows];
                linear_gated(&pool, &x, n, &ws[0], &ws[1], 0, |_| {}, &mut gated).unwrap();
                let product: Vec<f32> = want[0].iter().zip(&want[1]).map(|(g, u)| g * u).collect();
                assert_same(&gated, &product, &format!("{path} {which:?} gated n={n}"));
            }
        }
    }
}

#[test]
fn rows_can_be_decoded() {
    let mut noise = Noise(23);
    let w = weight(&mut noise, &Q4_K, [1, 5, 256]);
    let mut row = vec![0.0; 256];
    taken(&w, Path::Scalar).decode_row(3, &mut row);
    assert_eq!(row, w.to_vec()[3 * 256..][..256]);
}

#[test]
fn empty_shapes() {
    let pool = Pool::new(2);
    for path in Path::ALL.iter().copied().filter(|p| p.is_supported()) {
        for shape in [[1, 0, 32], [1, 5, 0], [1, 0, 0]] {
            for format in [&F32, &Q8_0] {
                let w = HostWeight::new("w", shape, format, Vec::new().into()).unwrap();
                for n in [0, 1, 6] {
                    let got = product(&pool, &vec![1.0; n * shape[2]], n, &w, Precision::Default, path);
                    assert_eq!(got, vec![0.0; n * shape[1]]);
                }
            }
        }
    }
}

#[test]
fn wrong_arguments_are_errors() {
    let mut noise = Noise(24);
    let pool = Pool::new(2);
    let w = taken(&weight(&mut noise, &Q8_0, [2, 3, 32]), Path::Scalar);
    let (x, mut out) = (vec![0.0; 32], vec![0.0; 3]);
    assert!(linear(&pool, &x, 1, &w, 1, &mut out).is_ok());
    let e = linear(&pool, &x, 1, &w, 2, &mut out).unwrap_err().to_string();
    assert_eq!(e, "linear: `w` has no expert 2, only 2");
    assert!(linear(&pool, &x[1..], 1, &w, 0, &mut out).is_err());
    assert!(linear(&pool, &x, 2, &w, 0, &mut out).is_err());
    assert!(linear(&pool, &x, 1, &w, 0, &mut out[1..]).is_err());
    assert!(linear_many(&pool, &x, 1, &[&w, &w], 0, &mut [vec![0.0; 3]]).is_err());
    assert!(linear_gated(&pool, &x, 1, &w, &w, 2, |_| {}, &mut out).is_err());
}

#[test]
fn dense_rows_longer_than_a_part_of_a_panel() {
    let mut noise = Noise(26);
    let pool = Pool::new(2);
    let k = 32 * (128 + 9);
    for format in [&F32, &F16, &BF16] {
        let w = weight(&mut noise, format, [1, 40, k]);
        let mut x = noise.values(25 * k);
        // Too small for products of pairs of bf16, in one piece of several.
        x[3 * k] = 1e-40;
        let twins = Twins::new(&pool, &x, 25, &w, Precision::Default);
        for path in fast_paths() {
            for n in [1, 7, 25] {
                let got = product(&pool, &x[..n * k], n, &w, Precision::Default, path);
                assert_same(&got, &twins.of(path)[..n * 40], &format!("{format:?} {path} n={n}"));
            }
        }
    }
}

/// The same for more tokens than stream, and fewer rows of a last panel.
#[test]
fn long_dense_rows_for_few_tokens_and_many() {
    let mut noise = Noise(28);
    let pool = Pool::new(2);
    // A first, a middle and a last part, of singles and of pairs.
    let (rows, k) = (53, 8 * (2 * 128 + 9));
    for format in [&F32, &F16, &BF16] {
        let w = weight(&mut noise, format, [1, rows, k]);
        let most = most(&w);
        let mut x = noise.values(most * k);
        // Too small for products of pairs of bf16, in some pieces of many.
        x[3 * k + 1] = 1e-40;
        x[30 * k + k - 1] = 1e-40;
        let twins = Twins::new(&pool, &x, most, &w, Precision::Default);
        for path in fast_paths() {
            for n in counts(&w, path) {
                let got = product(&pool, &x[..n * k], n, &w, Precision::Default, path);
                assert_same(&got, &twins.of(path)[..n * rows], &format!("{format:?} {path} n={n}"));
            }
        }
    }
}

#[test]
fn what_is_rounded_to_bf16_is_a_weight_in_bf16() {
    let mut noise = Noise(27);
    let pool = Pool::new(2);
    let x = noise.values(3 * 70);
    for format in [&F32, &F16] {
        let w = weight(&mut noise, format, [2, 5, 70]);
        let rounded = crate::weight::rounded(&pool, &w).unwrap();
        let mut bytes = vec![0; 2 * 10 * 70];
        BF16.encode_row(&w.to_vec(), &mut bytes).unwrap();
        let want = HostWeight::new("w", [2, 5, 70], &BF16, bytes.into()).unwrap();
        assert_eq!((&*rounded.bytes, rounded.format.name), (&*want.bytes, "bf16"));
        for path in fast_paths() {
            let [got, want] = [&rounded, &want].map(|w| product(&pool, &x, 3, w, Precision::Default, path));
            assert_same(&got, &want, &format!("{format:?} {path}"));
        }
    }
    // What is packed, or BF16 already, stays as it is.
    for format in [&Q8_0, &BF16] {
        let w = weight(&mut noise, format, [1, 2, 64]);
        assert!(std::ptr::eq(crate::weight::rounded(&pool, &w).unwrap().format, w.format));
    }
}

/// Weights that two backends took in for different paths: each is multiplied as its own wants it.
#[test]
fn weights_of_several_paths_meet_in_one_product() {
    let (mut noise, pool, k) = (Noise(27), Pool::new(2), 256);
    let paths: Vec<Path> = Path::ALL.iter().copied().filter(|p| p.is_supported()).collect();
    for format in [&F32, &BF16, &Q8_0, &IQ3_S] {
        let host = weight(&mut noise, format, [1, 40, k]);
        for n in [1, 5, 33, 300] {
            let x = noise.values(n * k);
            for (&a, &b) in paths.iter().flat_map(|a| paths.iter().map(move |b| (a, b))) {
                let ws = [taken(&host, a), taken(&host, b)];
                let mut outs = vec![vec![f32::NAN; n * 40]; 2];
                linear_many(&pool, &x, n, &ws.each_ref(), 0, &mut outs).unwrap();
                let want = [a, b].map(|path| product(&pool, &x, n, &host, Precision::Default, path));
                let what = format!("{} {a} {b} n={n}", format.name);
                outs.iter().zip(&want).for_each(|(out, want)| assert_same(out, want, &what));
                let mut gated = vec![f32::NAN; n * 40];
                linear_gated(&pool, &x, n, &ws[0], &ws[1], 0, |_| {}, &mut gated).unwrap();
                let want: Vec<f32> = want[0].iter().zip(&want[1]).map(|(g, u)| g * u).collect();
                assert_same(&gated, &want, &what);
            }
        }
    }
}

/// What rows are padded with is zeros, whatever an earlier weight decoded to on the same thread.
#[test]
fn padding_is_no_other_weights_numbers() {
    let pool = Pool::new(1);
    let bf16 = |values: &[f32], shape: [usize; 3]| {
        let bytes: Vec<u8> = values.iter().flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes()).collect();
        HostWeight::new("w", shape, &BF16, bytes.into()).unwrap()
    };
    let (wild, tame) = (bf16(&[1.0, 2.0, 3.0, f32::INFINITY], [1, 1, 4]), bf16(&[1.0; 15], [1, 5, 3]));
    for path in Path::ALL.iter().copied().filter(|p| p.is_supported()) {
        for n in [1, 2, 3, 9] {
            product(&pool, &vec![1.0; 4 * n], n, &wild, Precision::Exact, path);
            let got = product(&pool, &vec![1.0; 3 * n], n, &tame, Precision::Exact, path);
            assert_eq!(got, vec![3.0; 5 * n], "{path} n={n}");
        }
    }
}
