//! Prefix sums: in a block, and in one pass over many that wait for one another.

use ptx_emulator_launcher::test_name;

use crate::support::{Gpu, Random, args, everywhere, source};

#[test]
fn prefix_sums() {
    everywhere(test_name!(), source!("scan.cu"), 61, check);
}

fn check(gpu: &Gpu) {
    let n = 7000;
    let mut random = Random::new(2);
    let x: Vec<u32> = (0..n).map(|_| random.below(1000)).collect();
    let (device, count) = (gpu.up(&x), i32::try_from(n).unwrap());
    let scan = |x: &[u32]| -> Vec<u32> {
        x.iter()
            .scan(0, |sum, v| {
                *sum += v;
                Some(*sum)
            })
            .collect()
    };

    let y = gpu.fresh::<u32>(n);
    gpu.run("scan_blocks", 28, 256, 0, args![&device, &y, count]);
    let wanted: Vec<u32> = x.chunks(256).flat_map(scan).collect();
    assert_eq!(gpu.down(&y), wanted);

    let (state, ticket) = (gpu.zeros::<u64>(28), gpu.zeros::<u32>(1));
    let y = gpu.fresh::<u32>(n);
    gpu.run("scan_lookback", 28, 256, 0, args![&device, &y, &state, &ticket, count]);
    assert_eq!(gpu.down(&y), scan(&x));
}
