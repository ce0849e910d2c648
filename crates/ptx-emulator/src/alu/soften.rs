//! Conversions by exact values: every pair of types, every rounding, every saturation.
//!
//! One function that looks at its settings for each lane; the pairs that kernels use are in [`convert`](super::convert) and go by vectors.

use super::rounding::{BF16, E4M3, E5M2, Exact, F16, F32, F64, Format, Number, Rounding, TF32};

/// A type that is converted from or to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bits, and whether there is a sign.
    Integer(u32, bool),
    F16,
    Bf16,
    Tf32,
    F32,
    F64,
    E4m3,
    E5m2,
}

/// Kinds by number, for packing into a step.
const KINDS: [Kind; 15] = [
    Kind::Integer(8, false),
    Kind::Integer(8, true),
    Kind::Integer(16, false),
    Kind::Integer(16, true),
    Kind::Integer(32, false),
    Kind::Integer(32, true),
    Kind::Integer(64, false),
    Kind::Integer(64, true),
    Kind::F16,
    Kind::Bf16,
    Kind::Tf32,
    Kind::F32,
    Kind::F64,
    Kind::E4m3,
    Kind::E5m2,
];

impl Kind {
    /// The type named by a modifier.
    pub(super) fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "u8" => Self::Integer(8, false),
            "s8" => Self::Integer(8, true),
            "u16" => Self::Integer(16, false),
            "s16" => Self::Integer(16, true),
            "u32" => Self::Integer(32, false),
            "s32" => Self::Integer(32, true),
            "u64" => Self::Integer(64, false),
            "s64" => Self::Integer(64, true),
            "f16" => Self::F16,
            "bf16" => Self::Bf16,
            "tf32" => Self::Tf32,
            "f32" => Self::F32,
            "f64" => Self::F64,
            _ => return None,
        })
    }

    /// The floating-point format, if it is one.
    pub(super) fn format(self) -> Option<Format> {
        Some(match self {
            Self::Integer(..) => return None,
            Self::F16 => F16,
            Self::Bf16 => BF16,
            Self::Tf32 => TF32,
            Self::F32 => F32,
            Self::F64 => F64,
            Self::E4m3 => E4M3,
            Self::E5m2 => E5M2,
        })
    }

    /// Bits a value has.
    pub(super) fn bits(self) -> u32 {
        match self {
            Self::Integer(bits, _) => bits,
            Self::F16 | Self::Bf16 => 16,
            Self::Tf32 | Self::F32 => 32,
            Self::F64 => 64,
            Self::E4m3 | Self::E5m2 => 8,
        }
    }

    fn code(self) -> i64 {
        KINDS.iter().position(|kind| *kind == self).unwrap_or(0) as i64
    }
}

/// A conversion with all its modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conversion {
    pub(super) to: Kind,
    pub(super) from: Kind,
    pub(super) mode: Rounding,
    /// The value becomes an integer first (`.rni` and its like between floats).
    pub(super) integral: bool,
    /// Subnormals of f32 are zero.
    pub(super) ftz: bool,
    /// Floats are cut to 0 to 1, integers to the range of the type.
    pub(super) sat: bool,
    /// Negative results become zero.
    pub(super) relu: bool,
    /// Infinity and what is beyond the largest number become the largest number.
    pub(super) finite: bool,
}

impl Conversion {
    /// For [`Step::imm`](crate::program::Step::imm).
    pub(super) fn pack(&self) -> i64 {
        self.to.code()
            | self.from.code() << 4
            | self.mode.code() << 8
            | i64::from(self.integral) << 11
            | i64::from(self.ftz) << 12
            | i64::from(self.sat) << 13
            | i64::from(self.relu) << 14
            | i64::from(self.finite) << 15
    }

    /// The inverse of [`Self::pack`].
    pub(super) fn unpack(imm: i64) -> Self {
        let kind = |code: i64| KINDS[(code & 15).min(14) as usize];
        Self {
            to: kind(imm),
            from: kind(imm >> 4),
            mode: Rounding::from_code(imm >> 8),
            integral: imm >> 11 & 1 != 0,
            ftz: imm >> 12 & 1 != 0,
            sat: imm >> 13 & 1 != 0,
            relu: imm >> 14 & 1 != 0,
            finite: imm >> 15 & 1 != 0,
        }
    }

    /// The value converted; what the source has above its bits is ignored. Integers come out extended to 64 bits, tf32 as f32.
    pub(super) fn apply(&self, bits: u64) -> u64 {
        let number = self.number(bits);
        match (self.to, self.to.format()) {
            (Kind::Integer(width, signed), _) => self.integer(number, width, signed),
            (_, Some(format)) => {
                let value = self.float(number, format);
                if self.to == Kind::Tf32 { value << 13 } else { value }
            }
            (_, None) => 0,
        }
    }

    fn number(&self, bits: u64) -> Number {
        match (self.from, self.from.format()) {
            (_, Some(format)) => {
                let bits = if self.ftz && self.from == Kind::F32 { format.flush(bits) } else { bits };
                format.decode(bits)
            }
            (Kind::Integer(width, signed), None) => {
                let up = 64 - width;
                let negative = signed && (bits << up) as i64 >> 63 != 0;
                let magnitude =
                    if negative { ((bits << up) as i64 >> up).unsigned_abs() } else { bits << up >> up };
                Number::Finite(Exact::integer(negative, magnitude))
            }
            (_, None) => Number::Nan,
        }
    }

    fn integer(&self, number: Number, width: u32, signed: bool) -> u64 {
        let from_integer = self.from.format().is_none();
        if from_integer && !self.sat {
            // Cut off or extended: the 64-bit pattern of the value, then of the width.
            let Number::Finite(value) = number else { return 0 };
            let pattern = value.round_to(0, Rounding::Zero) as u64;
            let pattern = if value.negative { pattern.wrapping_neg() } else { pattern };
            let up = 64 - width;
            return if signed { ((pattern << up) as i64 >> up) as u64 } else { pattern << up >> up };
        }
        let (least, most) = if signed {
            (1u128 << (width - 1), (1u128 << (width - 1)) - 1)
        } else {
            (0, (1u128 << width) - 1)
        };
        let (negative, magnitude) = match number {
            // Documented: zero, unless one of the types has 64 bits; then the highest bit alone.
            Number::Nan => {
                let wide = self.from == Kind::F64 || width == 64;
                (signed, if wide { 1 << (width - 1) } else { 0 })
            }
            Number::Infinite(negative) => (negative, u128::MAX),
            Number::Finite(value) => (value.negative, value.round_to(0, self.mode)),
        };
        if negative { (magnitude.min(least) as u64).wrapping_neg() } else { magnitude.min(most) as u64 }
    }

    fn float(&self, number: Number, format: Format) -> u64 {
        let number = match number {
            Number::Finite(value) if self.integral && value.exponent < 0 => {
                let magnitude = value.round_to(0, self.mode);
                Number::Finite(Exact { mantissa: magnitude, exponent: 0, sticky: false, ..value })
            }
            other => other,
        };
        // Rounding to an integer has used the mode up; the integer fits the format it came from.
        let mode = if self.integral { Rounding::Nearest } else { self.mode };
        let mut bits = format.encode(number, mode);
        if self.ftz && self.to == Kind::F32 {
            bits = format.flush(bits);
        }
        let negative = format.is_negative(bits);
        let decoded = format.decode(bits);
        if decoded == Number::Nan {
            return if self.sat { 0 } else { format.nan() };
        }
        if (self.sat || self.relu) && negative {
            return 0;
        }
        if self.sat {
            let one = format.encode(Number::Finite(Exact::integer(false, 1)), Rounding::Nearest);
            return bits.min(one);
        }
        if self.finite && matches!(decoded, Number::Infinite(_)) {
            return format.largest(negative);
        }
        bits
    }
}
