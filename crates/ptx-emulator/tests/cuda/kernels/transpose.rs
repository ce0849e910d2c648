//! Transposition: through shared memory with tails, and in registers by vectors.

use ptx_emulator_launcher::test_name;

use crate::support::{Gpu, Random, args, everywhere, source};

#[test]
fn transpositions() {
    everywhere(test_name!(), source!("transpose.cu"), 61, check);
}

fn check(gpu: &Gpu) {
    for (kernel, rows, columns, block) in
        [("transpose", 45usize, 70usize, (32, 8, 1)), ("transpose4", 36, 20, (4, 8, 1))]
    {
        let x = Random::new(3).floats(rows * columns);
        let y = gpu.fresh::<f32>(x.len());
        let [r, c] = [rows, columns].map(|n| u32::try_from(n).unwrap());
        let grid = if kernel == "transpose" { (c.div_ceil(32), r.div_ceil(32), 1) } else { (2, 2, 1) };
        gpu.launch(kernel, grid, block, 0, args![&gpu.up(&x), &y, r, c]);
        let wanted: Vec<f32> = (0..columns).flat_map(|c| x.chunks(columns).map(move |row| row[c])).collect();
        assert_eq!(gpu.down(&y), wanted, "{kernel}");
    }
}
