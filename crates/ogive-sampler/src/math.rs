//! Logarithms and powers whose last bit is the same everywhere.
//!
//! The C library's are not, and neither are Rust's, which call them. Additions, multiplications, divisions
//! and bit operations are: IEEE 754 fixes them to the last bit, and Rust never fuses two. So the few
//! functions that decide which tokens survive are made of these, a little slower than the library's.

use std::f64::consts::{LN_2, LOG2_E};

/// The natural logarithm of a positive, finite, normal x, within 4 units in the last place or 1e-15
/// (tested).
///
/// x = 2^e·m with m in [0.7, 1.42], and ln m = 2·artanh((m-1)/(m+1)) by its series up to the 21st power.
pub(crate) fn ln(x: f64) -> f64 {
    const SQRT_HALF: u64 = std::f64::consts::FRAC_1_SQRT_2.to_bits();
    let offset = x.to_bits().wrapping_sub(SQRT_HALF) as i64;
    let e = offset >> 52;
    let m = f64::from_bits(x.to_bits().wrapping_sub((e << 52) as u64));
    let s = (m - 1.0) / (m + 1.0);
    let s2 = s * s;
    let mut sum = 0.0;
    for k in (0..=10).rev() {
        sum = sum * s2 + 1.0 / f64::from(2 * k + 1);
    }
    2.0 * s * sum + e as f64 * LN_2
}

/// The binary logarithm of a positive, finite, normal x.
pub(crate) fn log2(x: f64) -> f64 {
    ln(x) / LN_2
}

/// `e^x`, within 2^-50 of the true value, relatively (tested); infinite above 709, 0 below -708.
///
/// x = n·ln 2 + r with |r| <= 0.35, Taylor's polynomial of degree 13 for e^r, and n goes straight into the
/// exponent.
pub(crate) fn exp(x: f64) -> f64 {
    // Adding 1.5·2^52 leaves the nearest integer in the low bits of the mantissa.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    // So few bits that its product with |n| <= 1023 is exact.
    const LN2_HIGH: f64 = 11_629_080.0 / 16_777_216.0;
    const LN2_LOW: f64 = -1.904_654_299_957_768e-9;
    if x > 709.0 {
        return f64::INFINITY;
    } else if x < -708.0 {
        return 0.0;
    }
    let shifted = x * LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    let mut p = 1.0;
    for k in (1..=13u32).rev() {
        p = p * r / f64::from(k) + 1.0;
    }
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(1023);
    p * f64::from_bits(exponent << 52)
}

/// `x^y` for x in [0, 1] and a finite y >= 0; 0^0 is 1.
pub(crate) fn power(x: f64, y: f64) -> f64 {
    if y == 0.0 {
        1.0
    } else if x < f64::MIN_POSITIVE {
        0.0
    } else {
        exp(ln(x) * y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ln_is_within_its_bound() {
        for i in 0..200_000u32 {
            for x in [f64::from(i + 1) * 1e-5, f64::from(f32::from_bits(1 + i * 5000)), f64::from(i) + 0.5] {
                let (got, truth) = (ln(x), x.ln());
                assert!(
                    (got - truth).abs() <= (4.0 * f64::EPSILON * truth.abs()).max(1e-15),
                    "{x}: {got} {truth}"
                );
            }
        }
        assert_eq!(ln(1.0), 0.0);
        assert_eq!(log2(8.0), 3.0);
    }

    #[test]
    fn exp_is_within_its_bound() {
        for i in -708_000..709_000 {
            let x = f64::from(i) * 1e-3;
            let (got, truth) = (exp(x), x.exp());
            assert!((got / truth - 1.0).abs() < 0.5f64.powi(50), "{x}: {got} {truth}");
        }
        assert_eq!((exp(0.0), exp(-800.0), exp(f64::NEG_INFINITY)), (1.0, 0.0, 0.0));
        assert_eq!((exp(800.0), exp(f64::INFINITY)), (f64::INFINITY, f64::INFINITY));
        assert!(exp(f64::NAN).is_nan());
    }

    #[test]
    fn powers_of_fractions() {
        for (x, y) in [(0.5, 2.0), (0.25, 0.5), (1.0, 7.0), (0.9, 1e-3), (1e-9, 3.0)] {
            let truth = f64::powf(x, y);
            assert!((power(x, y) / truth - 1.0).abs() < 1e-13, "{x} {y}");
        }
        assert_eq!((power(0.0, 0.0), power(0.0, 2.0), power(0.3, 0.0)), (1.0, 0.0, 1.0));
        assert_eq!(power(0.5, f64::from(f32::MAX)), 0.0);
    }
}
