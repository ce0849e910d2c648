//! cuBLAS: the products a model needs, in three precisions and in batches.
#![allow(unsafe_code)]

use cudarc::cublas::sys::cublasOperation_t::{self, CUBLAS_OP_N, CUBLAS_OP_T};
use cudarc::cublas::{CudaBlas, Gemm, GemmConfig, StridedBatchedConfig};
use cudarc::driver::DeviceRepr;
use half::{bf16, f16};
use ptx_emulator_launcher::test_name;

use crate::support::compare::product;
use crate::support::{Gpu, Random, close, in_all_settings};

const M: usize = 13;
const N: usize = 21;
const K: usize = 40;

#[test]
fn products() {
    in_all_settings(test_name!(), || {
        let gpu = Gpu::open(80);
        check::<f32>(&gpu, |v| v, |v| v, 1e-5);
        check::<f16>(&gpu, f16::from_f32, f16::to_f32, 2e-3);
        check::<bf16>(&gpu, bf16::from_f32, bf16::to_f32, 1e-2);
    });
}

/// Row-major C (m × n) = A (m × k) · Bᵀ (n × k) is column-major Cᵀ = B · Aᵀ.
fn config<T>(transa: cublasOperation_t, one: T, beta: T) -> GemmConfig<T> {
    let [m, n, k] = [M, N, K].map(|v| i32::try_from(v).unwrap());
    let lda = if transa == CUBLAS_OP_T { k } else { n };
    GemmConfig { transa, transb: CUBLAS_OP_N, m: n, n: m, k, alpha: one, lda, ldb: k, beta, ldc: n }
}

fn check<T: DeviceRepr + Copy>(gpu: &Gpu, narrow: fn(f32) -> T, wide: fn(T) -> f32, tolerance: f32)
where
    CudaBlas: Gemm<T>,
{
    let blas = CudaBlas::new(gpu.stream.clone()).unwrap();
    let batch = 3;
    let mut random = Random::new(31);
    let mut values = |len: usize| -> Vec<T> { random.floats(len).into_iter().map(narrow).collect() };
    let (a, b, c) = (values(batch * M * K), values(batch * N * K), values(batch * M * N));
    let floats = |x: &[T]| -> Vec<f32> { x.iter().map(|v| wide(*v)).collect() };
    let wanted: Vec<Vec<f32>> =
        (0..batch).map(|i| product(&floats(&a[i * M * K..]), &floats(&b[i * N * K..]), M, N, K)).collect();
    let (da, db) = (gpu.up(&a), gpu.up(&b));

    // One product, added to half of what is there.
    let mut dc = gpu.up(&c);
    // SAFETY: the matrices have the sizes that the configuration says.
    unsafe { blas.gemm(config(CUBLAS_OP_T, narrow(1.0), narrow(0.5)), &db, &da, &mut dc) }.unwrap();
    let sum: Vec<f32> = wanted[0].iter().zip(&c).map(|(p, c)| p + 0.5 * wide(*c)).collect();
    close(&floats(&gpu.down(&dc)[..M * N]), &sum, tolerance);

    // Not transposed: B stands as k × n.
    let columns: Vec<T> = (0..K).flat_map(|k| (0..N).map(move |n| n * K + k)).map(|i| b[i]).collect();
    // SAFETY: as above.
    unsafe { blas.gemm(config(CUBLAS_OP_N, narrow(1.0), narrow(0.0)), &gpu.up(&columns), &da, &mut dc) }
        .unwrap();
    close(&floats(&gpu.down(&dc)[..M * N]), &wanted[0], tolerance);

    let stride = |n: usize| i64::try_from(n).unwrap();
    let batched = StridedBatchedConfig {
        gemm: config(CUBLAS_OP_T, narrow(1.0), narrow(0.0)),
        batch_size: 3,
        stride_a: stride(N * K),
        stride_b: stride(M * K),
        stride_c: stride(M * N),
    };
    // SAFETY: as above, three times.
    unsafe { blas.gemm_strided_batched(batched, &db, &da, &mut dc) }.unwrap();
    close(&floats(&gpu.down(&dc)), &wanted.concat(), tolerance);
}
