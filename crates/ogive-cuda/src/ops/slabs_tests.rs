//! Slabs against plain loops over the rounded numbers, as each kind of device: what is decoded to the bit, and products within the bounds of
//! own tiles, however the weight is cut.

#![allow(clippy::print_stdout)]

use super::super::matrix::oldest;
use super::super::matrix::tests::{check, numbers, through};
use super::*;
use crate::CudaBackend;
use crate::blas::CublasUse;
use crate::launch::tests::on;
use crate::ops::few_tests::bytes_of;
use crate::weight;
use ogive_backend::Backend;
use ogive_tensor::{BF16, F8_E4M3, F16, F32, FEW_BITS, FORMATS, Format, HostWeight, Q4_K, Q8_0};
use ptx_emulator_launcher::{Nvrtc, test_name};

fn backend(compute: Compute) -> CudaBackend {
    CudaBackend::builder().compute(compute).cublas_from(1).build().unwrap()
}

fn computes(b: &CudaBackend) -> impl Iterator<Item = Compute> + use<> {
    let capability = b.info().capability;
    [Compute::F16, Compute::Bf16].into_iter().filter(move |c| oldest(*c) <= capability)
}

/// Inputs that fill nothing, where the format has such.
fn inputs(format: &Format) -> usize {
    match format.block_len {
        1 if format == &F8_E4M3 => 32 * 7,
        1 => 203,
        32 => 32 * 7,
        len => 2 * len,
    }
}

/// What a slab holds: the bits of the host's decoder, rounded, and zeros behind them.
fn decoded(b: &CudaBackend, compute: Compute, format: &'static Format, cols: usize) {
    let (half, out, first) = (if compute == Compute::F16 { &F16 } else { &BF16 }, 9, 2);
    let mut bytes = vec![0; out * format.row_bytes(cols)];
    if FEW_BITS.contains(&format) {
        bytes = bytes_of(format, 5, [out, cols]);
    } else {
        format.encode_row(&numbers(5, out * cols), &mut bytes).unwrap();
    }
    let host = HostWeight::new("w", [1, out, cols], format, bytes.into()).unwrap();
    let held = b.upload_weight(&host).unwrap();
    let (d, at) = (&b.device, "test");
    let own = weight::read(d, at, &held).unwrap();
    let (rows, pitch) = (out - first, cols.next_multiple_of(FILLED));
    let slab = d.take(at, rows * pitch * 2).unwrap();
    unpack(d, at, compute, own, [first, rows, pitch], slab.address()).unwrap();
    let mut got = Vec::new();
    let take = &mut |part: &[u8]| got.extend_from_slice(part);
    d.transfer.fetch(d.stream(), at, slab.address(), rows * pitch * 2, take).unwrap();
    let want = through(half, &host.to_vec());
    for (r, row) in got.chunks(pitch * 2).enumerate() {
        let mut values = vec![0.0; pitch];
        half.decode_row(row, &mut values);
        let want = &want[(first + r) * cols..(first + r + 1) * cols];
        let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&values[..cols]), bits(want), "{compute:?} {} row {r}", format.name);
        assert!(row[cols * 2..].iter().all(|b| *b == 0), "{compute:?} {}: not filled up", format.name);
    }
}

fn slabs_hold_what_was_packed() {
    let b = CudaBackend::new().unwrap();
    for compute in computes(&b) {
        for format in FORMATS {
            decoded(&b, compute, format, inputs(format));
        }
        for format in [&F32, &F16, &BF16] {
            decoded(&b, compute, format, 136);
        }
    }
}

#[test]
fn slabs_hold_what_was_packed_on_sm_75() {
    on(test_name!(), Nvrtc::V11, "sm_75", slabs_hold_what_was_packed);
}

#[test]
fn slabs_hold_what_was_packed_on_sm_90() {
    on(test_name!(), Nvrtc::V13, "sm_90", slabs_hold_what_was_packed);
}

/// Every format in several slabs, the last one shorter, and sizes that fill nothing.
fn products() {
    let info = CudaBackend::devices().unwrap().remove(0);
    let mut count = 0;
    for compute in computes(&CudaBackend::new().unwrap()) {
        let b = backend(compute);
        if !b.device.blas.is_there(&b.device).unwrap() {
            // A GPU machine may have none; the emulator has.
            assert!(!info.name.contains("emulator"), "{}", b.cublas());
            return println!("skipped: {}", b.cublas());
        }
        let mut run = |format, limit, sizes: [usize; 3]| {
            count += 1;
            check(&b, &format!("slabs of {limit} bytes,"), compute, format, sizes, |x, w, y| {
                assert!(with(&b.device, "test", limit, x, w, y, sizes[0]).unwrap());
            });
        };
        for (i, format) in FORMATS.iter().filter(|f| !FEW_BITS.contains(f)).enumerate() {
            let cols = inputs(format);
            let row = 2 * cols.next_multiple_of(FILLED);
            // One row at a time, slabs that do not divide the outputs, and all in one.
            run(format, [1, 5 * row, MOST][i % 3], [1 + 7 * i % 40, 23, cols]);
        }
        // A slab of whole tiles, and one more row than two of them hold.
        run(&Q4_K, 128 * 512, [3, 257, 256]);
        // What needs no slab: halves in rows that begin at sixteen bytes; and what does.
        let own = if compute == Compute::F16 { &F16 } else { &BF16 };
        for cols in [3, 64, 72, 77] {
            run(own, 1, [5, 19, cols]);
        }
        run(&Q8_0, 1, [1, 1, 32]);
        assert!(matches!(b.cublas(), CublasUse::Started { version: [11..=99, ..], .. }), "{}", b.cublas());
        assert_eq!(b.memory_used().0, 0);
    }
    println!("cuda: {}: {count} products by cuBLAS", info.name);
    assert!(count > 0);
}

#[test]
fn products_on_sm_75() {
    on(test_name!(), Nvrtc::V11, "sm_75", products);
}

#[test]
fn products_on_sm_80() {
    on(test_name!(), Nvrtc::V12, "sm_80", products);
}

#[test]
fn products_on_sm_90() {
    on(test_name!(), Nvrtc::V13, "sm_90", products);
}

/// Threads that multiply at once get what they would get alone.
#[test]
fn threads_do_not_meet() {
    on(test_name!(), Nvrtc::V12, "sm_80", || {
        let b = backend(Compute::Bf16);
        let weight = |salt| {
            let values = numbers(salt, 70 * 256);
            b.upload_weight(&HostWeight::from_f32("w", [1, 70, 256], &values).unwrap()).unwrap()
        };
        let (ws, x) = ([weight(1), weight(2)], b.upload(&numbers(3, 20 * 256), [20, 256].into()).unwrap());
        let run = |w| -> Vec<u32> {
            b.download(&b.linear(&x, w).unwrap()).unwrap().into_iter().map(f32::to_bits).collect()
        };
        let want = ws.each_ref().map(run);
        std::thread::scope(|scope| {
            for (w, want) in ws.iter().zip(&want) {
                scope.spawn(move || (0..8).for_each(|_| assert_eq!(&run(w), want)));
            }
        });
    });
}

#[test]
fn weights_are_cut_to_fit() {
    for (out, cols, limit) in [
        (4096, 4096, 20 << 20),
        (14336, 4096, 25 << 20),
        (4096, 14336, 8 << 20),
        (1, 1, 1),
        (1000, 64, 100_000),
    ] {
        let s = Slabs::of([out, cols], limit).unwrap();
        let bytes = s.rows * s.pitch * 2;
        assert!(s.rows >= 1 && s.rows <= out && s.pitch >= cols && s.pitch.is_multiple_of(FILLED), "{s:?}");
        assert!(bytes <= s.bytes && s.bytes <= limit.max(bytes), "{s:?}");
        assert!(s.rows == 1 || bytes <= limit, "{s:?}");
        // None is much smaller than the others.
        let (count, last) = (out.div_ceil(s.rows), out - (out - 1) / s.rows * s.rows);
        assert!(count == 1 || last + WHOLE * count >= s.rows, "{s:?}: {last} rows are left");
    }
    assert_eq!(Slabs::of([1, usize::MAX], MOST), None);
    let s = Slabs::of([4096, 4096], 20 << 20).unwrap();
    assert_eq!((s.rows, s.bytes), (2048, 16 << 20));
}

#[test]
fn the_table_is_in_order() {
    let rows = |capability| from(capability).map(|l| [l.decoded, l.ready]);
    for (capability, decoded) in [((7, 5), 128), ((8, 6), 256), ((8, 9), 128), ((10, 3), 512), ((12, 1), 128)]
    {
        assert_eq!(rows(capability), Some([decoded; 2]));
    }
    assert_eq!((rows((6, 1)), rows((9, 0))), (None, Some([96, 2])));
}
