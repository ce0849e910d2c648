//! What device memory is taken: packed weights as the file has them, a pool that a repeated step does not make grow, limits that hold.
#![allow(clippy::print_stdout)]

mod common;

use ogive_backend::tensor::{ErrorKind, F16, F32, FORMATS, HostWeight, Q4_K, Scale};
use ogive_backend::{Backend, CacheSpec, LayerCache};
use ogive_cuda::CudaBackend;
use ptx_emulator_launcher::{Nvrtc, test_name};
use std::sync::Arc;

#[test]
fn weights_stay_packed() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let b = CudaBackend::new().unwrap();
        // Larger than what goes up in one piece.
        let (rows, cols) = (3000, 4096);
        let bytes = rows * Q4_K.row_bytes(cols);
        let packed: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
        let w =
            b.upload_weight(&HostWeight::new("w", [1, rows, cols], &Q4_K, packed.into()).unwrap()).unwrap();
        let (used, peak) = b.memory_used();
        println!("cuda: {bytes} bytes of weights take {used}, at most {peak}");
        // Whole pages of the driver's.
        assert_eq!((used, peak), (bytes.next_multiple_of(2 << 20) as u64, used));
        drop(w);
        assert_eq!(b.memory_used().0, 0);
    });
}

/// Weights of a model of some 130 MB, as a loader brings them.
fn model() -> Vec<HostWeight> {
    let weight = |rows: usize, cols: usize| {
        let bytes = vec![0; rows * Q4_K.row_bytes(cols)];
        HostWeight::new("w", [1, rows, cols], &Q4_K, bytes.into()).unwrap()
    };
    let (dim, ffn, kv) = (1024, 2816, 256);
    let layer = [(dim, dim), (kv, dim), (kv, dim), (dim, dim), (ffn, dim), (ffn, dim), (dim, ffn)];
    let layers = (0..16).flat_map(|_| layer).map(|(rows, cols)| weight(rows, cols));
    [weight(32_000, dim)].into_iter().chain(layers).chain([weight(32_000, dim)]).collect()
}

#[test]
fn weights_share_pages_and_come_again_in_the_same() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let weights = model();
        let bytes: u64 = weights.iter().map(|w| w.bytes.len() as u64).sum();
        let want = CudaBackend::estimate_memory(&weights, None).unwrap();
        println!("cuda: {} weights of {bytes} bytes take {want}", weights.len());
        assert!(want >= bytes && want <= bytes + bytes / 50, "{want} for {bytes}");
        // With no more than that, so that whatever is kept of one model has to do for the next.
        let b = CudaBackend::builder().memory(want).build().unwrap();
        for _ in 0..3 {
            let held: Vec<_> = weights.iter().map(|w| b.upload_weight(w).unwrap()).collect();
            assert_eq!(b.memory_used(), (want, want));
            drop(held);
            assert_eq!(b.memory_used(), (0, want));
        }
        // Pages of a model that is gone serve anything.
        let large = vec![0.0; usize::try_from(want / 4).unwrap() - (16 << 20)];
        drop(b.upload(&large, [large.len()].into()).unwrap());
        let held: Vec<_> = weights.iter().map(|w| b.upload_weight(w).unwrap()).collect();
        assert_eq!(b.memory_used().0, want);
        drop(held);
        assert_eq!(b.memory_used().0, 0);
    });
}

#[test]
fn where_memory_is_short_a_weight_has_its_own_pages() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let weight =
            |bytes: usize| HostWeight::new("w", [1, 1, bytes / 2], &F16, vec![0; bytes].into()).unwrap();
        let (large, small) = (weight(32 << 20), weight((1 << 20) + 256));
        let needed = CudaBackend::estimate_memory([&large, &small], None).unwrap();
        assert_eq!(needed, 38 << 20);
        let b = CudaBackend::builder().memory(34 << 20).build().unwrap();
        let first = b.upload_weight(&large).unwrap();
        let second = b.upload_weight(&small).unwrap();
        assert_eq!(b.memory_used().0, 34 << 20);
        let e = b.upload_weight(&small).unwrap_err();
        let ErrorKind::Memory { needed, available } = *e.kind() else { panic!("{e}") };
        assert_eq!((needed, available), (2 << 20, 0), "{e}");
        assert!(e.to_string().starts_with("upload_weight `w`: needs 2097152 bytes"), "{e}");
        // What is left of a page is had even so.
        let third = b.upload_weight(&weight(1 << 19)).unwrap();
        drop((first, second, third));
        assert_eq!(b.memory_used().0, 0);
    });
}

#[test]
fn a_step_again_takes_nothing_more() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let b = CudaBackend::new().unwrap();
        let w = HostWeight::from_f32("w", [1, 300, 64], &[0.5; 300 * 64]).unwrap();
        let (w, ones) = (b.upload_weight(&w).unwrap(), b.upload(&[1.0; 64], [64].into()).unwrap());
        let step = || {
            let x = b.upload(&[0.25; 5 * 64], [5, 64].into()).unwrap();
            let y = b.linear(&b.rms_norm(&x, &ones, 1e-5).unwrap(), &w).unwrap();
            b.download(&y).unwrap()
        };
        let (first, (used, peak)) = (step(), b.memory_used());
        for _ in 0..10 {
            assert_eq!(step().iter().map(|v| v.to_bits()).collect::<Vec<_>>(), bits(&first));
        }
        assert_eq!(b.memory_used(), (used, peak));
    });
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn a_limit_holds_and_says_what_is_missing() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let b = CudaBackend::builder().memory(16 << 20).build().unwrap();
        let large = vec![0.0; 8 << 20];
        let e = b.upload(&large, [8 << 20].into()).unwrap_err();
        let ErrorKind::Memory { needed, available } = *e.kind() else { panic!("{e}") };
        assert!(needed >= 32 << 20 && available <= 16 << 20, "{e}");
        assert!(e.to_string().contains("use a smaller context, cache or model"), "{e}");
        // What fits still does, again and again.
        for _ in 0..8 {
            b.upload(&large[..2 << 20], [2 << 20].into()).unwrap();
        }
        assert_eq!(b.memory_used().0, 0);
    });
}

#[test]
fn handles_of_two_backends_are_strangers() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let (a, b) = (CudaBackend::new().unwrap(), CudaBackend::new().unwrap());
        let x = a.upload(&[1.0, 2.0], [1, 2].into()).unwrap();
        for e in [b.download(&x).unwrap_err(), b.sum(&x).unwrap_err()] {
            assert!(matches!(e.kind(), ErrorKind::Foreign), "{e}");
        }
        assert_eq!(a.download(&a.sum(&x).unwrap()).unwrap(), [3.0]);
    });
}

#[test]
fn an_estimate_is_what_is_taken_to_the_byte() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let b = CudaBackend::new().unwrap();
        let weight = |(i, format): (usize, &&'static ogive_backend::tensor::Format)| {
            let (rows, cols) = (70 * i + 1, 512);
            let bytes = vec![0u8; rows * format.row_bytes(cols)];
            HostWeight::new(format.name, [1, rows, cols], format, bytes.into()).unwrap()
        };
        let mut weights: Vec<HostWeight> = FORMATS.iter().enumerate().map(weight).collect();
        // Ones that are decoded on their way up, and one that has an order behind its rows.
        let order: Arc<[u32]> = (0..512).rev().collect();
        let scale = Scale { values: vec![0.5; 701].into(), tile: [4, 512] };
        weights.push(weight((40, &&Q4_K)).with_scale(scale).unwrap());
        for format in [&F32, &F16, &Q4_K] {
            weights.push(weight((40, &format)).with_input_perm(Arc::clone(&order)).unwrap());
        }
        let layers = vec![
            LayerCache::full(96, 64),
            LayerCache::windowed(32, 0, 8, 1),
            LayerCache::State { len: 1000 },
            LayerCache::Shares(0),
        ];
        let spec = CacheSpec::new(layers, 16, 33, 6).element(&F16);
        let want = CudaBackend::estimate_memory(&weights, Some(&spec)).unwrap();
        let held: Vec<_> = weights.iter().map(|w| b.upload_weight(w).unwrap()).collect();
        let cache = b.new_cache(&spec).unwrap();
        assert_eq!(b.memory_used().0, want);
        drop((held, cache));
        let endless = CacheSpec::new(vec![LayerCache::full(1 << 30, 1)], 1 << 20, 1 << 30, 0);
        assert_eq!(CudaBackend::estimate_memory(&[], Some(&endless)), None);
    });
}
