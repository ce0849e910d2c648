//! Sums: a tree in shared memory, shuffles, atomics, double precision.

use ptx_emulator_launcher::test_name;

use crate::support::{Gpu, Random, args, close, everywhere, source};

#[test]
fn reductions() {
    everywhere(test_name!(), source!("reduce.cu"), 61, check);
}

fn check(gpu: &Gpu) {
    let n = 5000;
    let x = Random::new(1).floats(n);
    let (count, length) = (i32::try_from(n).unwrap(), n as f32);
    let wanted = x.iter().map(|v| f64::from(*v)).sum::<f64>() as f32;
    let device = gpu.up(&x);

    let parts = gpu.fresh::<f32>(20);
    gpu.run("sum_tree", 20, 256, 1024, args![&device, &parts, count]);
    let parts = gpu.down(&parts);
    close(&[parts.iter().sum()], &[wanted], length * f32::EPSILON);
    gpu.promise(&parts);

    let parts = gpu.fresh::<f32>(6);
    gpu.run("sum_shuffle", 6, 192, 0, args![&device, &parts, count]);
    let parts = gpu.down(&parts);
    close(&[parts.iter().sum()], &[wanted], length * f32::EPSILON);
    gpu.promise(&parts);

    let whole: Vec<i32> = (0..1000).map(|i: i32| (i * 7919) % 1013 - 500).collect();
    let out = gpu.up(&[0, i32::MIN, i32::MAX, 0, 0, 0]);
    gpu.run("count_all", 8, 128, 0, args![&gpu.up(&whole), &out, 1000]);
    let odd = i32::try_from(whole.iter().filter(|v| **v & 1 == 1).count()).unwrap();
    let wanted = [
        whole.iter().sum(),
        whole.iter().copied().max().unwrap(),
        whole.iter().copied().min().unwrap(),
        whole.iter().fold(0, |a, b| a ^ b),
        odd,
        odd,
    ];
    assert_eq!(gpu.down(&out), wanted);

    let x: Vec<f64> = (0..999).map(|i| 1.0 / f64::from(i + 1)).collect();
    let y = gpu.zeros::<f64>(1);
    gpu.run("sum_doubles", 1, 32, 0, args![&gpu.up(&x), &y, 999]);
    assert!((gpu.down(&y)[0] - x.iter().sum::<f64>()).abs() < 1e-13);
}
