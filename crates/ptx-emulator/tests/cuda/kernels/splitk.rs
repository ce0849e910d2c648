//! Sums split over blocks: the last block adds, or all wait at a barrier of the grid.

use ptx_emulator_launcher::test_name;

use crate::support::{Gpu, Random, args, close, everywhere, source};

#[test]
fn split_sums() {
    everywhere(test_name!(), source!("splitk.cu"), 61, check);
}

fn check(gpu: &Gpu) {
    let (n, k) = (128usize, 300usize);
    let mut random = Random::new(10);
    let (w, x) = (random.floats(n * k), random.floats(k));
    let wanted: Vec<f32> = w
        .chunks(k)
        .map(|row| row.iter().zip(&x).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() as f32)
        .collect();
    let (w, x) = (gpu.up(&w), gpu.up(&x));

    let (parts, tickets, y) = (gpu.fresh::<f32>(5 * n), gpu.zeros::<u32>(2), gpu.fresh::<f32>(n));
    let mut results = Vec::new();
    // Twice: the tickets are ready again.
    for _ in 0..2 {
        let arguments = args![&w, &x, &parts, &tickets, &y, 128, 300];
        gpu.launch("split_last", (5, 2, 1), (64, 1, 1), 0, arguments);
        results.push(gpu.down(&y));
    }
    close(&results[0], &wanted, 1e-5);
    assert_eq!(results[0], results[1]);
    gpu.promise(&results[0]);

    let (arrived, y) = (gpu.zeros::<u32>(1), gpu.fresh::<f32>(2 * n));
    let arguments = args![&w, &x, &parts, &arrived, &y, 128, 300];
    gpu.try_launch("split_barrier", (5, 2, 1), (64, 1, 1), 0, arguments, true).unwrap();
    let got = gpu.down(&y);
    assert_eq!(got[..n], results[0]);
    assert!(got[..n].iter().zip(&got[n..]).all(|(a, b)| a * 2.0 == *b));
}
