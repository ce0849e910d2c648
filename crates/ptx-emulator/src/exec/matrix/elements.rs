//! The number formats of matrix instructions, unpacked from 32-bit registers.
//!
//! Conversions are written as arithmetic on bits and not as calls of `half`: these loops are compiled into code for AVX2, where a
//! select costs nothing and a call per element would cost everything.
#![allow(unsafe_code)]

/// A format of multiplicands: how wide it is, and which number its bits are.
pub(super) trait Element: Copy + 'static {
    /// What products are summed in.
    type Sum: Sum;
    /// Bits of one element; a register holds `32 / BITS`.
    const BITS: usize;
    /// The value of the low [`Element::BITS`] bits; what stands above them is not zero.
    fn value(bits: u32) -> Self::Sum;

    /// The elements of a register of 16-bit ones as eight rows of eight: lanes `4 g` to `4 g + 3` hold row `g`. `FAST` promises AVX2 and F16C.
    #[inline(always)]
    fn rows<const FAST: bool>(words: &[u32; 32]) -> [[Self::Sum; 8]; 8] {
        std::array::from_fn(|g| {
            std::array::from_fn(|at| Self::value(words[4 * g + at / 2] >> (16 * (at % 2))))
        })
    }

    /// The same transposed.
    #[inline(always)]
    fn columns<const FAST: bool>(words: &[u32; 32]) -> [[Self::Sum; 8]; 8] {
        let rows = Self::rows::<FAST>(words);
        std::array::from_fn(|at| std::array::from_fn(|g| rows[g][at]))
    }
}

/// A type in which products are summed.
pub(super) trait Sum: Copy + Default + PartialEq + std::fmt::Debug + 'static {
    /// `self + a * b`, wrapping for integers.
    fn plus_product(self, a: Self, b: Self) -> Self;
}

impl Sum for f32 {
    // Products of two numbers of at most 11 bits are exact, so fusing would change nothing but their underflow; and without FMA in
    // the processor it is a slow call.
    #[inline(always)]
    fn plus_product(self, a: Self, b: Self) -> Self {
        self + a * b
    }
}

impl Sum for f64 {
    #[inline(always)]
    fn plus_product(self, a: Self, b: Self) -> Self {
        a.mul_add(b, self)
    }
}

impl Sum for i32 {
    #[inline(always)]
    fn plus_product(self, a: Self, b: Self) -> Self {
        self.wrapping_add(a.wrapping_mul(b))
    }
}

macro_rules! element {
    ($(#[$doc:meta])* $name:ident, $sum:ty, $bits:expr, $value:expr $(, $half:literal)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $name;
        impl Element for $name {
            type Sum = $sum;
            const BITS: usize = $bits;
            #[inline(always)]
            fn value(bits: u32) -> $sum {
                ($value)(bits)
            }
            $(
                #[cfg(target_arch = "x86_64")]
                #[inline(always)]
                fn rows<const FAST: bool>(words: &[u32; 32]) -> [[f32; 8]; 8] {
                    if FAST {
                        // SAFETY: what `FAST` promises.
                        unsafe { super::halves::rows::<$half>(words) }
                    } else {
                        std::array::from_fn(|g| {
                            std::array::from_fn(|at| Self::value(words[4 * g + at / 2] >> (16 * (at % 2))))
                        })
                    }
                }
                #[cfg(target_arch = "x86_64")]
                #[inline(always)]
                fn columns<const FAST: bool>(words: &[u32; 32]) -> [[f32; 8]; 8] {
                    if FAST {
                        // SAFETY: what `FAST` promises.
                        unsafe { super::halves::columns::<$half>(words) }
                    } else {
                        let rows = Self::rows::<false>(words);
                        std::array::from_fn(|at| std::array::from_fn(|g| rows[g][at]))
                    }
                }
            )?
        }
    };
}

element!(
    /// `.f16`.
    F16, f32, 16, f16_value, true
);
element!(
    /// `.bf16`.
    Bf16, f32, 16, |bits: u32| f32::from_bits(bits << 16), false
);
element!(
    /// `.tf32`: a float of which the hardware sees the upper 19 bits.
    Tf32, f32, 32, |bits: u32| f32::from_bits(bits & 0xffff_e000)
);
element!(
    /// `.s8`.
    S8, i32, 8, |bits: u32| i32::from(bits as i8)
);
element!(
    /// `.u8`.
    U8, i32, 8, |bits: u32| i32::from(bits as u8)
);
element!(
    /// `.s4`.
    S4, i32, 4, |bits: u32| (bits << 28) as i32 >> 28
);
element!(
    /// `.u4`.
    U4, i32, 4, |bits: u32| (bits & 15) as i32
);
element!(
    /// `.e4m3`: no infinities, one NaN of each sign.
    E4m3, f32, 8, e4m3_value
);
element!(
    /// `.e5m2`: the upper half of a `.f16`.
    E5m2, f32, 8, |bits: u32| f16_value(bits << 8)
);

/// The value of an f16 in the low 16 bits.
#[inline(always)]
pub(super) fn f16_value(bits: u32) -> f32 {
    let magnitude = bits & 0x7fff;
    // Moved into place the exponent is short by 127 - 15; multiplying mends that, for subnormal numbers too.
    let finite = (f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000)).to_bits();
    let special = if magnitude >= 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(finite | special | (bits & 0x8000) << 16)
}

#[inline(always)]
fn e4m3_value(bits: u32) -> f32 {
    let magnitude = bits & 0x7f;
    let finite = (f32::from_bits(magnitude << 20) * f32::from_bits(0x7b80_0000)).to_bits();
    let special = if magnitude == 0x7f { 0x7fff_ffff } else { 0 };
    f32::from_bits(finite | special | (bits & 0x80) << 24)
}

/// An f32 rounded to f16, nearest even; every NaN becomes `0x7fff` as in the hardware.
#[inline(always)]
pub(super) fn f16_bits(value: f32) -> u32 {
    let bits = value.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    // Halves of the smallest f16 are lost in the addition, which rounds to nearest even.
    let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let odd = (magnitude >> 13) & 1;
    let normal = magnitude.wrapping_add(0xc800_0fff).wrapping_add(odd) >> 13;
    let finite = if magnitude < 0x3880_0000 { small } else { normal };
    let rounded = if magnitude >= 0x4780_0000 { 0x7c00 } else { finite };
    if magnitude > 0x7f80_0000 { 0x7fff } else { rounded | sign }
}

/// The bits of a sum, with the one NaN that tensor cores give.
#[inline(always)]
pub(super) fn f32_bits(value: f32) -> u32 {
    if value.is_nan() { 0x7fff_ffff } else { value.to_bits() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f16_agrees_with_half_everywhere() {
        for bits in 0..=u16::MAX {
            let ours = f16_value(u32::from(bits));
            let theirs = half::f16::from_bits(bits).to_f32();
            assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "{bits:#06x}");
            if !ours.is_nan() {
                assert_eq!(f16_bits(ours), u32::from(bits), "{bits:#06x}");
            }
        }
        for step in 0..1u32 << 20 {
            let value = f32::from_bits(step.wrapping_mul(0x0001_000d));
            let theirs = half::f16::from_f32(value);
            if value.is_nan() {
                assert_eq!(f16_bits(value), 0x7fff);
            } else {
                assert_eq!(f16_bits(value), u32::from(theirs.to_bits()), "{value:e}");
            }
        }
    }

    #[test]
    fn small_formats_by_their_definition() {
        for bits in 0..=255u32 {
            let (sign, exponent, mantissa) = (bits >> 7, (bits >> 3) & 15, bits & 7);
            let magnitude = match (exponent, mantissa) {
                (15, 7) => f32::NAN,
                (0, m) => m as f32 / 8.0 * 2f32.powi(-6),
                (e, m) => (1.0 + m as f32 / 8.0) * 2f32.powi(e as i32 - 7),
            };
            let expected = if sign == 1 { -magnitude } else { magnitude };
            let given = E4m3::value(bits | 0xabcd_ef00);
            assert!(given == expected || given.is_nan() && expected.is_nan(), "e4m3 {bits:#x}");
            let upper = half::f16::from_bits((bits as u16) << 8).to_f32();
            let given = E5m2::value(bits | 0xabcd_ef00);
            assert!(given == upper || given.is_nan() && upper.is_nan(), "e5m2 {bits:#x}");
            assert_eq!(S4::value(bits), ((bits & 15) as i32 ^ 8) - 8);
            assert_eq!(U4::value(bits), (bits & 15) as i32);
            assert_eq!(S8::value(bits | 0x1200), (bits as i32 ^ 128) - 128);
            assert_eq!(U8::value(bits | 0x1200), bits as i32);
        }
        assert_eq!(Tf32::value(0x3f80_1fff), 1.0);
        assert_eq!(Bf16::value(0x1234_3f80), 1.0);
    }
}
