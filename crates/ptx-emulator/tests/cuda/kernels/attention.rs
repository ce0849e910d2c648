//! Flash attention: online softmax between two products on tensor cores.

use ptx_emulator_launcher::test_name;

use crate::support::{Gpu, Random, args, close, everywhere, halves, halves_to_f32, source};

#[test]
fn flash_attention() {
    everywhere(test_name!(), source!("attention.cu"), 80, |gpu| {
        check(gpu, 37, 70, false);
        check(gpu, 50, 50, true);
    });
}

const HEADS: usize = 2;
const WIDTH: usize = 64;

fn check(gpu: &Gpu, queries: usize, keys: usize, causal: bool) {
    let mut random = Random::new(9);
    let [q, k, v] = [queries, keys, keys].map(|n| halves(&random.floats(HEADS * n * WIDTH)));
    let out = gpu.fresh::<f32>(HEADS * queries * WIDTH);
    let [nq, nk] = [queries, keys].map(|n| u32::try_from(n).unwrap());
    let (dq, dk, dv) = (gpu.up(&q), gpu.up(&k), gpu.up(&v));
    let arguments = args![&dq, &dk, &dv, &out, nq, nk, u32::from(causal)];
    gpu.launch("attention", (nq.div_ceil(16), HEADS as u32, 1), (32, 1, 1), 0, arguments);
    let [q, k, v] = [q, k, v].map(|bits| halves_to_f32(&bits));
    let mut wanted = Vec::new();
    for head in 0..HEADS {
        let rows = |x: &[f32], n: usize| -> Vec<Vec<f32>> {
            x[head * n * WIDTH..(head + 1) * n * WIDTH].chunks(WIDTH).map(<[f32]>::to_vec).collect()
        };
        let (k, v) = (rows(&k, keys), rows(&v, keys));
        for (i, q) in rows(&q, queries).iter().enumerate() {
            let end = if causal { i + 1 } else { keys };
            let powers: Vec<f32> = k[..end]
                .iter()
                .map(|k| (q.iter().zip(k).map(|(x, y)| x * y).sum::<f32>() * 0.125).exp())
                .collect();
            let total: f32 = powers.iter().sum();
            wanted.extend(
                (0..WIDTH).map(|d| powers.iter().zip(&v).map(|(p, v)| p * v[d]).sum::<f32>() / total),
            );
        }
    }
    let got = gpu.down(&out);
    // Probabilities are rounded to half precision.
    close(&got, &wanted, 1e-3);
    gpu.promise(&got);
}
