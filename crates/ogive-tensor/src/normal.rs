//! The normal distribution: how much of it is below a number, and below which number a part of it is.
//!
//! Both by the plainest way that gives all digits, as they are asked for once for each layer of a model and never for an element: a series, and
//! halving an interval.

/// What is further out than this has no part that a number beside 1 could show.
const END: f64 = 9.0;

/// The part that is below `x`, within 1e-15: `P(X < x)` of mean 0 and variance 1 (Marsaglia 2004, <https://doi.org/10.18637/jss.v011.i04>).
///
/// ```
/// assert!((ogive_tensor::normal::cdf(1.959_963_984_540_054) - 0.975).abs() < 1e-15);
/// ```
pub fn cdf(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x.abs() >= END {
        return f64::from(u8::from(x > 0.0));
    }
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    // Terms grow at first where `x` is large, and fall from `x * x` on; there are less than 400 of them.
    loop {
        n += 2.0;
        term *= x * x / n;
        let next = sum + term;
        if next == sum {
            break;
        }
        sum = next;
    }
    let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
    (0.5 + sum * density).clamp(0.0, 1.0)
}

/// The number below which the part `p` is, the reverse of [`cdf`]; infinite for 0 and 1, and no number for what is no part.
///
/// ```
/// assert!((ogive_tensor::normal::quantile(0.95) - 1.644_853_626_951_472_7).abs() < 1e-14);
/// ```
pub fn quantile(p: f64) -> f64 {
    if p == 0.0 || p == 1.0 {
        return if p > 0.5 { f64::INFINITY } else { f64::NEG_INFINITY };
    }
    if !(0.0..1.0).contains(&p) {
        return f64::NAN;
    }
    let (mut low, mut high) = (-END, END);
    // As often as there are bits in a number.
    for _ in 0..64 {
        let middle = 0.5 * (low + high);
        if cdf(middle) < p { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From tables of 16 digits (Abramowitz and Stegun 1964, 26.1 and 26.5).
    #[test]
    fn values_are_those_of_tables() {
        for (x, p) in [
            (0.0, 0.5),
            (1.0, 0.841_344_746_068_542_9),
            (-1.0, 0.158_655_253_931_457_05),
            (2.0, 0.977_249_868_051_820_8),
            (-3.0, 1.349_898_031_630_094_6e-3),
            (6.0, 0.999_999_999_013_412_4),
        ] {
            assert!((cdf(x) - p).abs() < 2e-15, "{x}: {}", cdf(x));
        }
        assert_eq!((cdf(f64::NEG_INFINITY), cdf(f64::INFINITY), cdf(-40.0), cdf(40.0)), (0.0, 1.0, 0.0, 1.0));
        assert!(cdf(f64::NAN).is_nan());
    }

    #[test]
    fn a_quantile_is_the_way_back() {
        for i in 1..200 {
            let p = f64::from(i) / 200.0;
            assert!((cdf(quantile(p)) - p).abs() < 1e-15, "{p}");
            assert!((quantile(p) + quantile(1.0 - p)).abs() < 1e-12, "{p}");
        }
        assert_eq!((quantile(0.0), quantile(1.0)), (f64::NEG_INFINITY, f64::INFINITY));
        assert!([-0.1, 1.1, f64::NAN].into_iter().all(|p| quantile(p).is_nan()));
        // In single precision, as files keep both.
        let scale = quantile(f64::from(0.95_f32)) as f32;
        assert_eq!((scale, cdf(f64::from(scale)) as f32), (1.644_853_5, 0.95));
    }
}
