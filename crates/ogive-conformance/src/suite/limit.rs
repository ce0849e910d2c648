//! How far values may be from those expected, and how that is measured.
//!
//! An element of a long sum may cancel to nothing, so its own relative error says little: sums are measured against the
//! root mean square of all expected values, functions of one number element by element. And where there are but a few
//! sums, all may cancel: then they are measured against the size such sums usually have, which the case knows. A mean hides one element among
//! thousands, so none may be much further off than the mean allows.

/// How an error is measured.
#[derive(Clone, Copy, Debug)]
enum Measure {
    /// The largest difference over the root mean square of what is expected.
    Rms,
    /// The largest difference over the element expected plus this much.
    Element(f32),
    /// The squared differences over the squares expected, and the largest of the differences.
    MeanSquare,
}

/// How many times the root of its bound on the mean square a single element may be off: what normal errors never are, and those of
/// products of products hardly.
const WORST: f64 = 30.0;

/// A measure and the largest value it may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    measure: Measure,
    most: f64,
    /// The least that the root mean square of what is expected counts as.
    usual: f64,
}

/// How far off a result was.
pub(crate) struct Error {
    /// As a fraction of what is allowed.
    pub(crate) of_limit: f64,
    /// The element that differs most, with what was got and expected.
    pub(crate) at: (usize, f32, f32),
}

impl Limit {
    pub(crate) fn rms(most: f32) -> Self {
        Self { measure: Measure::Rms, most: most.into(), usual: 1e-30 }
    }
    pub(crate) fn element(most: f32, floor: f32) -> Self {
        Self { measure: Measure::Element(floor), most: most.into(), usual: 1e-30 }
    }
    pub(crate) fn mean_square(most: f32) -> Self {
        Self { measure: Measure::MeanSquare, most: most.into(), usual: 1e-30 }
    }
    /// A limit wider by a factor, for inputs that magnify rounding.
    #[must_use]
    pub(crate) fn times(self, factor: f64) -> Self {
        Self { most: self.most * factor, ..self }
    }

    /// The same limit on values whose root mean square is usually about `size`.
    #[must_use]
    pub(crate) fn usually(self, size: f64) -> Self {
        Self { usual: size.max(1e-30), ..self }
    }

    /// How far `got` is from `want`, which are of one length. NaN agrees with NaN and an infinity with itself; with a
    /// limit of 0 equal values are equal bits but for that.
    pub(crate) fn error(&self, got: &[f32], want: &[f32]) -> Error {
        let squares =
            |v: &[f32]| v.iter().map(|&v| f64::from(v).powi(2)).filter(|v| v.is_finite()).sum::<f64>();
        let rms = (squares(want) / want.len().max(1) as f64).sqrt();
        let difference = |got: f32, want: f32| match () {
            () if got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()) => 0.0,
            () if !got.is_finite() || !want.is_finite() => f64::INFINITY,
            // Zeros of both signs differ only where bits are asked for.
            () => (f64::from(got) - f64::from(want)).abs().max(f64::MIN_POSITIVE),
        };
        let scaled = |got: f32, want: f32| match (self.measure, difference(got, want)) {
            (_, 0.0) => 0.0,
            (Measure::Rms | Measure::MeanSquare, d) => d / rms.max(self.usual),
            (Measure::Element(floor), d) => d / (f64::from(want).abs() + f64::from(floor)).max(1e-300),
        };
        let (mut worst, mut at, mut sum) = (0f64, (0, 0.0, 0.0), 0f64);
        for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
            let e = scaled(got, want);
            sum += e * e;
            if e > worst || i == 0 {
                (worst, at) = (e, (i, got, want));
            }
        }
        let of_limit = match self.measure {
            _ if worst == 0.0 => 0.0,
            Measure::MeanSquare => {
                (sum / got.len().max(1) as f64 / self.most).max(worst / (WORST * self.most.sqrt()))
            }
            Measure::Rms | Measure::Element(_) => worst / self.most,
        };
        Error { of_limit, at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_what_it_says() {
        let of = |l: Limit, got: &[f32], want: &[f32]| l.error(got, want).of_limit;
        assert!((of(Limit::rms(0.1), &[1.1, 1.0], &[1.0, 1.0]) - 1.0).abs() < 1e-5);
        assert!((of(Limit::element(0.1, 1.0), &[0.1, 9.0], &[0.0, 9.0]) - 1.0).abs() < 1e-5);
        assert!((of(Limit::mean_square(0.5), &[2.0, 1.0], &[1.0, 1.0]) - 1.0).abs() < 1e-5);
        let unusual = Limit::mean_square(0.5).usually(2.0);
        assert!((of(unusual, &[1.0], &[0.0]) - 0.5).abs() < 1e-5);
        // One of a hundred thousand is nothing to the mean.
        let (mut got, want) = ([1.0; 100_000], [1.0; 100_000]);
        got[99_999] = 0.0;
        assert!(of(Limit::mean_square(5e-4), &got, &want) > 1.0);
        let bits = Limit::rms(0.0);
        assert_eq!(of(bits, &[f32::NAN, f32::INFINITY], &[f32::NAN, f32::INFINITY]), 0.0);
        assert_eq!(of(bits, &[0.0], &[-0.0]), f64::INFINITY);
        assert_eq!(of(Limit::rms(1e9), &[f32::NAN], &[1.0]), f64::INFINITY);
        assert!(of(Limit::rms(1e-5), &[0.0], &[-0.0]) < 1e-3);
    }
}
