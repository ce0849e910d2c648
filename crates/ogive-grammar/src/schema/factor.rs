//! What a `multipleOf` is to llguidance, to say where its 32 bits do not do.

use std::fmt;

/// `digits` over ten to the power of `places`, in lowest terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Factor {
    digits: u32,
    places: u32,
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.places == 0 {
            write!(f, "{}", self.digits)
        } else {
            write!(f, "{}e-{}", self.digits, self.places)
        }
    }
}

impl Factor {
    /// As llguidance reads it; `None` where it refuses.
    pub(super) fn new(mut value: f64) -> Option<Self> {
        let mut places = 0;
        while value.fract() != 0.0 {
            value *= 10.0;
            places += 1;
        }
        if !(1.0..=f64::from(u32::MAX)).contains(&value) {
            return None;
        }
        Some(Self::lowest(value as u32, places))
    }

    fn lowest(mut digits: u32, mut places: u32) -> Self {
        while places > 0 && digits.is_multiple_of(10) {
            digits /= 10;
            places -= 1;
        }
        Self { digits, places }
    }

    /// What can be left of the division by it, which llguidance goes through: without the twos and fives, which digits that
    /// come after bring.
    pub(super) fn remainders(&self) -> usize {
        let mut digits = self.digits;
        for prime in [2, 5] {
            while digits > 0 && digits.is_multiple_of(prime) {
                digits /= prime;
            }
        }
        digits as usize
    }

    /// The least of which both are factors. llguidance multiplies both before it divides.
    pub(super) fn with(&self, other: &Self) -> Result<Self, String> {
        let scaled = |factor: &Self, places: u32| {
            10u32.checked_pow(places.saturating_sub(factor.places))?.checked_mul(factor.digits)
        };
        let both = || {
            let (a, b) = (scaled(self, other.places)?, scaled(other, self.places)?);
            Some(Self::lowest(a.checked_mul(b)? / common(a, b), self.places.max(other.places)))
        };
        both().ok_or_else(|| {
            format!(
                "multipleOf {self} and multipleOf {other} hold at once, which is more than can be reckoned with; \
                 leave one of them, or what both divide"
            )
        })
    }

    /// Whether digits can be read one by one in 32 bits, with only what is left of the division kept.
    pub(super) fn fits(&self) -> Result<(), String> {
        let fits = || {
            let next = 10u32.checked_pow(self.places)?.checked_mul(9)?;
            self.digits.checked_mul(10)?.checked_add(next)
        };
        // What wraps is divided by a power of two.
        if self.digits.is_power_of_two() || fits().is_some() {
            return Ok(());
        }
        Err(format!(
            "multipleOf {self} has more digits than can be reckoned with; take one with at most eight"
        ))
    }
}

fn common(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { common(b, a % b) }
}
