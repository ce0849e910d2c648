//! Weights and inputs of products, and how far a result is from what is right.

use ogive_backend::tensor::{Format, HostWeight};

/// Numbers from -0.5 to 0.5.
pub(crate) fn numbers(salt: usize, n: usize) -> Vec<f32> {
    let value = |i: usize| ((i * 7919 + salt * 104_729) % 1009) as f32 / 1009.0 - 0.5;
    (0..n).map(value).collect()
}

/// A weight of such numbers.
pub(crate) fn weight(format: &'static Format, salt: usize, [out, cols]: [usize; 2]) -> HostWeight {
    let mut bytes = vec![0; out * format.row_bytes(cols)];
    format.encode_row(&numbers(salt, out * cols), &mut bytes).unwrap();
    HostWeight::new("w", [1, out, cols], format, bytes.into()).unwrap()
}

/// The error's root mean square against that of what is right.
pub(crate) fn error(got: &[f32], want: &[f32]) -> f64 {
    let square = |v: f64| v * v;
    let wrong: f64 = got.iter().zip(want).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let all: f64 = want.iter().map(|v| square(f64::from(*v))).sum();
    assert!(got.len() == want.len() && all > 0.0);
    (wrong / all).sqrt()
}
