//! A hash table, a lock, and every atomic.

use std::collections::HashMap;

use ptx_emulator_launcher::test_name;

use crate::support::{Gpu, Random, args, everywhere, source};

#[test]
fn atomics() {
    everywhere(test_name!(), source!("hash.cu"), 61, |gpu| {
        table(gpu);
        words(gpu);
    });
}

#[test]
fn a_lock_within_a_warp() {
    everywhere(test_name!(), source!("hash.cu"), 70, |gpu| {
        let (lock, sum) = (gpu.zeros::<i32>(1), gpu.zeros::<u64>(1));
        gpu.run("locked_sum", 3, 48, 0, args![&lock, &sum, 100]);
        let wanted = (0..100).fold(0u64, |sum, _| sum.wrapping_mul(3).wrapping_add(1));
        assert_eq!(gpu.down(&sum), [wanted]);
    });
}

fn table(gpu: &Gpu) {
    let mut random = Random::new(14);
    let x: Vec<u64> = (0..900).map(|_| u64::from(random.below(300)) << 32 | 7).collect();
    let slots = 512u32;
    let (keys, counts) = (gpu.up(&vec![u64::MAX; 512]), gpu.zeros::<u32>(512));
    let device = gpu.up(&x);
    gpu.run("count_keys", 8, 128, 0, args![&device, &keys, &counts, slots, 900]);
    let mut wanted: HashMap<u64, u32> = HashMap::new();
    for key in &x {
        *wanted.entry(*key).or_default() += 1;
    }
    let found: HashMap<u64, u32> =
        gpu.down(&keys).into_iter().zip(gpu.down(&counts)).filter(|(key, _)| *key != u64::MAX).collect();
    assert_eq!(found, wanted);

    let asked: Vec<u64> = (0..400).map(|i| i << 32 | 7).collect();
    let answers = gpu.fresh::<u32>(400);
    gpu.run("look_up", 4, 128, 0, args![&gpu.up(&asked), &keys, &counts, &answers, slots, 400]);
    let wanted: Vec<u32> = asked.iter().map(|key| wanted.get(key).copied().unwrap_or(0)).collect();
    assert_eq!(gpu.down(&answers), wanted);
}

fn words(gpu: &Gpu) {
    let w = gpu.up(&[1u32, 1000, u32::MAX, 0, 0, 50, 10, 5, 3, 0]);
    let (s, l) = (gpu.up(&[0i32, -1000]), gpu.up(&[0u64, 0, u64::MAX, 0]));
    let (f, old) = (gpu.up(&[0.5f32]), gpu.fresh::<u32>(32));
    gpu.run("atomics", 1, 32, 0, args![&w, &s, &l, &f, &old]);
    let xor = (0..32u32).fold(0, |a, t| a ^ (t * 77));
    // 32 increments from 5 over 0..=20, and 32 decrements from 3 over 9..=0.
    assert_eq!(gpu.down(&w), [497, 504, 0, u32::MAX, xor, 5, 31, (5 + 32) % 21, 1, 1496]);
    assert_eq!(gpu.down(&s), [-28, -69]);
    assert_eq!(gpu.down(&l), [496 << 33, 31 << 40, !31, 0xffff_ffff << 20]);
    assert_eq!(gpu.down(&f), [496.5]);
    let mut seen = gpu.down(&old);
    seen.sort_unstable();
    let mut wanted: Vec<u32> = (0..32).map(|i| (5 + i) % 21).collect();
    wanted.sort_unstable();
    assert_eq!(seen, wanted);
}
