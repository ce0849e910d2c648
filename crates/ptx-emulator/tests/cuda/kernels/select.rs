//! Top-k, bitonic sort, histogram, radix sort.

use ptx_emulator_launcher::test_name;

use crate::support::{Gpu, Random, args, everywhere, source};

#[test]
fn selections_and_sorts() {
    everywhere(test_name!(), source!("select.cu"), 61, |gpu| {
        top(gpu);
        sorts(gpu);
        histogram(gpu);
    });
}

fn top(gpu: &Gpu) {
    let n = 700;
    // Few different values: equals must come in order.
    let x: Vec<f32> = Random::new(11).floats(3 * n).iter().map(|v| (v * 40.0).round()).collect();
    let indices = gpu.fresh::<u32>(24);
    gpu.run("top8", 3, 96, 0, args![&gpu.up(&x), &indices, 700]);
    let wanted: Vec<u32> = x
        .chunks(n)
        .flat_map(|row| {
            let mut order: Vec<usize> = (0..n).collect();
            order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
            order.into_iter().take(8).map(|i| u32::try_from(i).unwrap()).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(gpu.down(&indices), wanted);
}

fn sorts(gpu: &Gpu) {
    let mut random = Random::new(12);
    let x: Vec<u32> = (0..512).map(|_| random.word()).collect();
    let device = gpu.up(&x);
    gpu.run("bitonic512", 1, 256, 0, args![&device]);
    let mut wanted = x;
    wanted.sort_unstable();
    assert_eq!(gpu.down(&device), wanted);

    let mut pairs: Vec<(u32, u32)> = (0..1024).map(|i| (random.word() & 0xff00_00ff, i)).collect();
    let (keys, values): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
    let (keys, values) = (gpu.up(&keys), gpu.up(&values));
    gpu.run("radix1024", 1, 128, 0, args![&keys, &values]);
    pairs.sort_by_key(|(key, _)| *key);
    let sorted: Vec<(u32, u32)> = gpu.down(&keys).into_iter().zip(gpu.down(&values)).collect();
    assert_eq!(sorted, pairs);
}

fn histogram(gpu: &Gpu) {
    let mut random = Random::new(13);
    let x: Vec<u8> = (0..5001).map(|_| (random.below(16) * random.below(16)) as u8).collect();
    let counts = gpu.zeros::<u32>(256);
    gpu.run("histogram", 5, 128, 0, args![&gpu.up(&x), &counts, 5001]);
    let mut wanted = vec![0; 256];
    for byte in x {
        wanted[usize::from(byte)] += 1;
    }
    assert_eq!(gpu.down(&counts), wanted);
}
