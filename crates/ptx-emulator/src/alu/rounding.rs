//! Binary floating point by integers: exact values, and one place that rounds them.
//!
//! Native arithmetic rounds to nearest; the other directions, and conversions between any two formats, go through here. One function for all formats and
//! directions and not error-free transformations for each: these instructions are rare, and this is easily seen to be right.

/// Which neighbour a value between two numbers goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    /// Nearest, ties to even (`.rn`, `.rni`).
    Nearest,
    /// Towards zero (`.rz`, `.rzi`).
    Zero,
    /// Towards minus infinity (`.rm`, `.rmi`).
    Down,
    /// Towards plus infinity (`.rp`, `.rpi`).
    Up,
    /// Nearest, ties away from zero (`.rna`).
    Away,
}

/// The rounding modifiers of arithmetic.
pub(super) const MODES: [(&str, Rounding); 4] =
    [("rn", Rounding::Nearest), ("rz", Rounding::Zero), ("rm", Rounding::Down), ("rp", Rounding::Up)];

impl Rounding {
    /// For [`Step::imm`](crate::program::Step::imm).
    pub(super) fn code(self) -> i64 {
        match self {
            Self::Nearest => 0,
            Self::Zero => 1,
            Self::Down => 2,
            Self::Up => 3,
            Self::Away => 4,
        }
    }

    /// The inverse of [`Self::code`], of the lowest three bits.
    pub(super) fn from_code(code: i64) -> Self {
        match code & 7 {
            0 => Self::Nearest,
            1 => Self::Zero,
            2 => Self::Down,
            3 => Self::Up,
            _ => Self::Away,
        }
    }

    /// Whether a magnitude between two neighbours goes to the larger: `odd` tells about the smaller one, `half` compares the
    /// part cut off (which is not zero) with half the distance.
    fn grows(self, negative: bool, odd: bool, half: std::cmp::Ordering) -> bool {
        match self {
            Self::Nearest => half.is_gt() || half.is_eq() && odd,
            Self::Away => half.is_ge(),
            Self::Zero => false,
            Self::Down => negative,
            Self::Up => !negative,
        }
    }
}

/// An IEEE-like binary format with infinities and NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// Stored bits of the mantissa.
    mantissa: u32,
    /// Bits of the exponent.
    exponent: u32,
    /// The NaN that results are.
    nan: u64,
    /// All ones in the exponent is infinity or NaN; otherwise only all ones in the exponent and the mantissa is NaN.
    infinities: bool,
}

const fn ieee(mantissa: u32, exponent: u32, nan: u64) -> Format {
    Format { mantissa, exponent, nan, infinities: true }
}

pub(super) const F16: Format = ieee(10, 5, 0x7fff);
pub(super) const BF16: Format = ieee(7, 8, 0x7fff);
pub(super) const F32: Format = ieee(23, 8, 0x7fff_ffff);
pub(super) const F64: Format = ieee(52, 11, 0xfff8_0000_0000_0000);
/// The upper 19 bits of an f32; values are shifted up by 13 to stand in a register.
pub(super) const TF32: Format = ieee(10, 8, 0x3ffff);
pub(super) const E5M2: Format = ieee(2, 5, 0x7f);
pub(super) const E4M3: Format = Format { mantissa: 3, exponent: 4, nan: 0x7f, infinities: false };

/// What bits stand for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Nan,
    /// Infinity; the field tells whether it is the negative one.
    Infinite(bool),
    Finite(Exact),
}

/// A finite value `±mantissa · 2^exponent`, a little more in magnitude where `sticky` is set.
///
/// A sticky value has at least 60 bits of mantissa, so that the unknown part lies below everything a format keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Exact {
    pub(super) negative: bool,
    pub(super) mantissa: u128,
    pub(super) exponent: i32,
    pub(super) sticky: bool,
}

impl Exact {
    /// An integer.
    pub(super) fn integer(negative: bool, magnitude: u64) -> Self {
        Self { negative, mantissa: u128::from(magnitude), exponent: 0, sticky: false }
    }

    fn is_zero(&self) -> bool {
        self.mantissa == 0 && !self.sticky
    }

    /// Cuts the value to a multiple of `2^exponent` and gives how many; magnitudes of 2^127 and more come out as `u128::MAX`.
    pub(super) fn round_to(&self, exponent: i32, mode: Rounding) -> u128 {
        let cut = exponent.saturating_sub(self.exponent);
        if self.mantissa == 0 && !self.sticky {
            return 0;
        }
        if cut <= 0 {
            let up = cut.unsigned_abs();
            return if self.mantissa.leading_zeros() > up { self.mantissa << up } else { u128::MAX };
        }
        let (kept, rest, half) = match cut {
            1..=127 => {
                let cut = cut.unsigned_abs();
                (self.mantissa >> cut, self.mantissa & ((1 << cut) - 1), 1u128 << (cut - 1))
            }
            128 => (0, self.mantissa, 1 << 127),
            // Half of the unit is above any mantissa.
            _ => (0, self.mantissa.min(1), 2),
        };
        if rest == 0 && !self.sticky {
            return kept;
        }
        let half = rest.cmp(&half).then(if self.sticky {
            std::cmp::Ordering::Greater
        } else {
            std::cmp::Ordering::Equal
        });
        kept + u128::from(mode.grows(self.negative, kept & 1 == 1, half))
    }
}

impl Format {
    /// Bits of all of it.
    fn sign_bit(self) -> u64 {
        1 << (self.mantissa + self.exponent)
    }

    /// The first bits that are no finite number.
    fn infinity(self) -> u64 {
        self.sign_bit() - if self.infinities { 1 << self.mantissa } else { 1 }
    }

    /// The largest finite number.
    pub(super) fn largest(self, negative: bool) -> u64 {
        (self.infinity() - 1) | self.sign(negative)
    }

    /// Whether the sign is set.
    pub(super) fn is_negative(self, bits: u64) -> bool {
        bits & self.sign_bit() != 0
    }

    /// Exponent of the lowest bit of subnormals.
    fn least(self) -> i32 {
        2 - (1 << (self.exponent - 1)) - self.mantissa as i32
    }

    /// The NaN that results are.
    pub(super) fn nan(self) -> u64 {
        self.nan
    }

    /// What these bits stand for; what is above the format's bits is ignored.
    pub(super) fn decode(self, bits: u64) -> Number {
        let negative = bits & self.sign_bit() != 0;
        let magnitude = bits & (self.sign_bit() - 1);
        if magnitude == self.infinity() && self.infinities {
            return Number::Infinite(negative);
        }
        if magnitude >= self.infinity() {
            return Number::Nan;
        }
        let field = (magnitude >> self.mantissa) as i32;
        let low = magnitude & ((1 << self.mantissa) - 1);
        let mantissa = if field == 0 { low } else { low | 1 << self.mantissa };
        Number::Finite(Exact {
            negative,
            mantissa: u128::from(mantissa),
            exponent: self.least() + (field - 1).max(0),
            sticky: false,
        })
    }

    /// The bits of a value; what is too large becomes infinity or the largest number, as the direction says.
    pub(super) fn encode(self, number: Number, mode: Rounding) -> u64 {
        let exact = match number {
            Number::Nan => return self.nan,
            Number::Infinite(negative) if !self.infinities => return self.largest(negative),
            Number::Infinite(negative) => return self.infinity() | self.sign(negative),
            Number::Finite(exact) => exact,
        };
        let sign = self.sign(exact.negative);
        if exact.is_zero() {
            return sign;
        }
        let top = 127 - exact.mantissa.leading_zeros() as i32 + exact.exponent;
        let lowest = (top - self.mantissa as i32).max(self.least());
        let kept = exact.round_to(lowest, mode) as u64;
        // A normal number has its leading one in `kept`, which adds one to the field below.
        let field = (lowest - self.least()) as u64;
        let bits =
            if field >= 1 << self.exponent { self.infinity() } else { (field << self.mantissa) + kept };
        if bits < self.infinity() {
            return bits | sign;
        }
        let stays = match mode {
            // Only saturating conversions have such a type.
            _ if !self.infinities => true,
            Rounding::Nearest | Rounding::Away => false,
            Rounding::Zero => true,
            Rounding::Down => !exact.negative,
            Rounding::Up => exact.negative,
        };
        (self.infinity() - u64::from(stays)) | sign
    }

    fn sign(self, negative: bool) -> u64 {
        if negative { self.sign_bit() } else { 0 }
    }

    /// A subnormal becomes a zero of its sign.
    pub(super) fn flush(self, bits: u64) -> u64 {
        let magnitude = bits & (self.sign_bit() - 1);
        if magnitude < 1 << self.mantissa { bits & self.sign_bit() } else { bits }
    }

    /// `a · b + c`, rounded once.
    pub(super) fn fma(self, a: u64, b: u64, c: u64, mode: Rounding) -> u64 {
        self.encode(sum(product(self.decode(a), self.decode(b)), self.decode(c), mode), mode)
    }

    /// `a + b`.
    pub(super) fn add(self, a: u64, b: u64, mode: Rounding) -> u64 {
        self.encode(sum(self.decode(a), self.decode(b), mode), mode)
    }

    /// `a · b`.
    pub(super) fn mul(self, a: u64, b: u64, mode: Rounding) -> u64 {
        self.encode(product(self.decode(a), self.decode(b)), mode)
    }

    /// `a / b`.
    pub(super) fn div(self, a: u64, b: u64, mode: Rounding) -> u64 {
        self.encode(quotient(self.decode(a), self.decode(b)), mode)
    }

    /// The square root.
    pub(super) fn sqrt(self, a: u64, mode: Rounding) -> u64 {
        self.encode(root(self.decode(a)), mode)
    }
}

fn product(a: Number, b: Number) -> Number {
    match (a, b) {
        (Number::Nan, _) | (_, Number::Nan) => Number::Nan,
        (Number::Infinite(x), Number::Infinite(y)) => Number::Infinite(x != y),
        (Number::Infinite(x), Number::Finite(y)) | (Number::Finite(y), Number::Infinite(x)) => {
            if y.is_zero() { Number::Nan } else { Number::Infinite(x != y.negative) }
        }
        (Number::Finite(x), Number::Finite(y)) => Number::Finite(Exact {
            negative: x.negative != y.negative,
            mantissa: x.mantissa * y.mantissa,
            exponent: x.exponent + y.exponent,
            sticky: false,
        }),
    }
}

/// The mode decides the sign of an exact zero.
fn sum(a: Number, b: Number, mode: Rounding) -> Number {
    let (x, y) = match (a, b) {
        (Number::Nan, _) | (_, Number::Nan) => return Number::Nan,
        (Number::Infinite(x), Number::Infinite(y)) => {
            return if x == y { Number::Infinite(x) } else { Number::Nan };
        }
        (Number::Infinite(x), _) | (_, Number::Infinite(x)) => return Number::Infinite(x),
        (Number::Finite(x), Number::Finite(y)) => (x, y),
    };
    if x.is_zero() && y.is_zero() {
        let negative = if x.negative == y.negative { x.negative } else { mode == Rounding::Down };
        return Number::Finite(Exact { negative, ..x });
    }
    if x.is_zero() {
        return Number::Finite(y);
    }
    if y.is_zero() {
        return Number::Finite(x);
    }
    // Mantissas have at most 106 bits. With the top at bit 125 there are 20 below: a shift by more than that means that the sum keeps
    // its top bit or loses one, and one bit that says "more" at the bottom is enough.
    let lift = |v: Exact| {
        let up = v.mantissa.leading_zeros() - 2;
        Exact { mantissa: v.mantissa << up, exponent: v.exponent - up as i32, ..v }
    };
    let (x, y) = (lift(x), lift(y));
    let (large, small) = if x.exponent >= y.exponent { (x, y) } else { (y, x) };
    let down = (large.exponent - small.exponent).unsigned_abs();
    let moved = if down > 126 {
        1
    } else {
        small.mantissa >> down | u128::from(small.mantissa.trailing_zeros() < down)
    };
    let (negative, mantissa) = if large.negative == small.negative {
        (large.negative, large.mantissa + moved)
    } else if large.mantissa >= moved {
        (large.negative, large.mantissa - moved)
    } else {
        (small.negative, moved - large.mantissa)
    };
    let negative = if mantissa == 0 { mode == Rounding::Down } else { negative };
    Number::Finite(Exact { negative, mantissa, exponent: large.exponent, sticky: false })
}

fn quotient(a: Number, b: Number) -> Number {
    match (a, b) {
        (Number::Nan, _) | (_, Number::Nan) | (Number::Infinite(_), Number::Infinite(_)) => Number::Nan,
        (Number::Infinite(x), Number::Finite(y)) => Number::Infinite(x != y.negative),
        (Number::Finite(x), Number::Infinite(y)) => {
            Number::Finite(Exact { negative: x.negative != y, mantissa: 0, exponent: 0, sticky: false })
        }
        (Number::Finite(x), Number::Finite(y)) => {
            let negative = x.negative != y.negative;
            if y.is_zero() {
                return if x.is_zero() { Number::Nan } else { Number::Infinite(negative) };
            }
            // A numerator of 127 bits over at most 53 leaves at least 74.
            let up = x.mantissa.leading_zeros().saturating_sub(1).min(126);
            let lifted = x.mantissa << up;
            Number::Finite(Exact {
                negative,
                mantissa: lifted / y.mantissa,
                exponent: x.exponent - y.exponent - up as i32,
                sticky: lifted % y.mantissa != 0,
            })
        }
    }
}

fn root(a: Number) -> Number {
    match a {
        Number::Nan | Number::Infinite(true) => Number::Nan,
        Number::Infinite(false) => a,
        Number::Finite(x) if x.is_zero() => a,
        Number::Finite(x) if x.negative => Number::Nan,
        Number::Finite(x) => {
            // At least 126 bits under the root, and an even exponent.
            let up = x.mantissa.leading_zeros() - 1;
            let up = if (x.exponent - up as i32) % 2 == 0 { up } else { up - 1 };
            let lifted = x.mantissa << up;
            let mantissa = lifted.isqrt();
            Number::Finite(Exact {
                negative: false,
                mantissa,
                exponent: (x.exponent - up as i32) / 2,
                sticky: mantissa * mantissa != lifted,
            })
        }
    }
}
