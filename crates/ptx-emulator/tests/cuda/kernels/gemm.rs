//! Matrix products on tensor cores: two buffers filled by `cp.async`, in f16, bf16, tf32 and int8.

use cudarc::driver::{CudaSlice, DeviceRepr, ValidAsZeroBits};
use ptx_emulator_launcher::test_name;

use crate::support::compare::{as_bf16, product};
use crate::support::{Gpu, Random, args, close, everywhere, halves, halves_to_f32, source, to_bf16};

/// Tails in both directions.
const M: usize = 75;
const N: usize = 41;

#[test]
fn products_on_tensor_cores() {
    everywhere(test_name!(), source!("gemm.cu"), 80, |gpu| {
        let k = 96;
        let mut random = Random::new(8);
        let (a, b) = (random.floats(M * k), random.floats(N * k));

        let (ha, hb) = (halves(&a), halves(&b));
        let got = multiply::<f32, _>(gpu, "gemm_half", &gpu.up(&ha), &gpu.up(&hb), 2 * k);
        close(&got, &product(&halves_to_f32(&ha), &halves_to_f32(&hb), M, N, k), 1e-5);
        gpu.promise(&got);

        let (ua, ub) = (gpu.up(&to_bf16(&a)), gpu.up(&to_bf16(&b)));
        let got = multiply::<f32, _>(gpu, "gemm_bfloat", &ua, &ub, 2 * k);
        close(&got, &product(&as_bf16(&a), &as_bf16(&b), M, N, k), 1e-5);
        gpu.promise(&got);

        // The hardware looks at the 10 upper bits of the fraction; here the others are zero.
        let cut =
            |x: &[f32]| -> Vec<f32> { x.iter().map(|v| f32::from_bits(v.to_bits() & !0x1fff)).collect() };
        let (a, b) = (cut(&a), cut(&b));
        let got = multiply::<f32, _>(gpu, "gemm_tf32", &gpu.up(&a), &gpu.up(&b), 4 * k);
        close(&got, &product(&a, &b, M, N, k), 1e-5);
        gpu.promise(&got);

        let k = 192;
        let (a, b) = (random.bytes(M * k), random.bytes(N * k));
        let got = multiply::<i32, _>(gpu, "gemm_int8", &gpu.up(&a), &gpu.up(&b), k);
        let wanted: Vec<i32> = a
            .chunks(k)
            .flat_map(|row| b.chunks(k).map(|column| dot(row, column)).collect::<Vec<_>>())
            .collect();
        assert_eq!(got, wanted);
    });
}

fn dot(a: &[i8], b: &[i8]) -> i32 {
    a.iter().zip(b).map(|(x, y)| i32::from(*x) * i32::from(*y)).sum()
}

fn multiply<T, E>(gpu: &Gpu, kernel: &str, a: &CudaSlice<E>, b: &CudaSlice<E>, bytes: usize) -> Vec<T>
where
    T: DeviceRepr + ValidAsZeroBits + Clone,
{
    let c = gpu.fresh::<T>(M * N);
    let [m, n, bytes] = [M, N, bytes].map(|v| u32::try_from(v).unwrap());
    gpu.launch(kernel, (n.div_ceil(32), m.div_ceil(64), 1), (128, 1, 1), 0, args![a, b, &c, m, n, bytes]);
    gpu.down(&c)
}
