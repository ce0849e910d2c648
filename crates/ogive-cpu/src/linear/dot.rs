//! The definition of every product, in plain Rust.
//!
//! Single precision sums run in 16 lanes, element `k` in lane `k % 16`, and the lanes are added in a fixed tree: what one
//! 512-bit, two 256-bit or four 128-bit registers do. A row that ends inside the lanes is padded with zeros.

/// Lanes of a single precision sum.
pub(crate) const LANES: usize = 16;

/// `x · w` in single precision.
pub(crate) fn f32(x: &[f32], w: &[f32]) -> f32 {
    let mut sums = [0.0_f32; LANES];
    let (xs, ws) = (x.chunks_exact(LANES), w.chunks_exact(LANES));
    let (mut x_end, mut w_end) = ([0.0; LANES], [0.0; LANES]);
    x_end[..xs.remainder().len()].copy_from_slice(xs.remainder());
    w_end[..ws.remainder().len()].copy_from_slice(ws.remainder());
    let ends = (!xs.remainder().is_empty()).then_some((&x_end[..], &w_end[..]));
    for (x, w) in xs.zip(ws).chain(ends) {
        for ((s, &x), &w) in sums.iter_mut().zip(x).zip(w) {
            *s = x.mul_add(w, *s);
        }
    }
    add_lanes(sums)
}

/// The tree at the end: halves are added until one is left.
pub(crate) fn add_lanes(mut sums: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            sums[i] += sums[i + half];
        }
        half /= 2;
    }
    sums[0]
}
