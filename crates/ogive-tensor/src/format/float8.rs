//! Eight bits of floating point.
//!
//! Files have E4M3's NaN where something went wrong before they were written. It stays one, and is not made the number that would be next: a
//! weight that is damaged should not look like one that is whole.

use super::Format;

/// A sign, four bits of exponent (bias 7), three of fraction; the largest is 448, and there are no infinities but a NaN of either sign, `S.1111.111`
/// (Micikevicius et al. 2022, "FP8 Formats for Deep Learning"; what PyTorch calls `float8_e4m3fn` and safetensors `F8_E4M3`). Factors that lie
/// beside such elements are [`Scale`](crate::Scale)'s.
///
/// Encoding rounds to nearest even; what is larger than 448 becomes 448, as those who pack weights have it, and NaN stays NaN.
pub static F8_E4M3: Format = Format {
    name: "f8_e4m3",
    block_len: 1,
    block_bytes: 1,
    decode: |b, o| o[0] = VALUES[usize::from(b[0])],
    encode: Some(|v, _, b| b[0] = encoded(v[0])),
};

/// The value of each byte.
pub(super) static VALUES: [f32; 256] = values();

const fn values() -> [f32; 256] {
    let mut all = [0.0; 256];
    let mut byte = 0;
    while byte < all.len() {
        let (sign, exponent, fraction) = ((byte as u32 & 0x80) << 24, byte as u32 >> 3 & 15, byte as u32 & 7);
        let bits = match (exponent, fraction) {
            (15, 7) => 0x7fc0_0000,
            // Multiples of 2^-9, which single precision has as normal numbers.
            (0, _) => (fraction as f32 / 512.0).to_bits(),
            _ => (exponent + 120) << 23 | fraction << 20,
        };
        all[byte] = f32::from_bits(sign | bits);
        byte += 1;
    }
    all
}

pub(super) fn encoded(v: f32) -> u8 {
    let (bits, sign) = (v.to_bits() & 0x7fff_ffff, (v.to_bits() >> 24) as u8 & 0x80);
    if v.is_nan() {
        return sign | 0x7f;
    }
    let magnitude = f32::from_bits(bits);
    // Below the least normal number 2^-6 the steps are 2^-9: adding what has such steps for its last bit rounds to them.
    let nearest = if magnitude < 0.015_625 {
        (magnitude + 16_384.0).to_bits() & 15
    } else {
        // The fraction's upper three bits, with the carry into the exponent, and the exponent's bias changed.
        (bits.saturating_add(0x7_ffff + (bits >> 20 & 1)) >> 20) - (120 << 3)
    };
    sign | nearest.min(0x7e) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the paper's table, by powers of two.
    fn defined(byte: u8) -> f32 {
        let (exponent, fraction) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
        let magnitude = match (exponent, byte & 0x7f) {
            (_, 0x7f) => f32::NAN,
            (0, _) => fraction / 8.0 * 2_f32.powi(-6),
            _ => (1.0 + fraction / 8.0) * 2_f32.powi(exponent - 7),
        };
        if byte < 0x80 { magnitude } else { -magnitude }
    }

    fn decoded(byte: u8) -> f32 {
        let mut out = [0.0];
        F8_E4M3.decode_row(&[byte], &mut out);
        out[0]
    }

    #[test]
    fn every_byte_is_what_the_format_says_and_comes_back() {
        for byte in 0..=255 {
            let (got, want) = (decoded(byte), defined(byte));
            assert!(
                got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                "{byte:#x}: {got} for {want}"
            );
            assert_eq!(encoded(got), byte, "{byte:#x}");
        }
        assert_eq!((decoded(0x7e), decoded(1), decoded(0x88)), (448.0, 2_f32.powi(-9), -(2_f32.powi(-6))));
    }

    #[test]
    fn numbers_between_go_to_the_nearer_one_and_ties_to_the_even_one() {
        for low in 0..0x7e_u8 {
            let (a, b) = (defined(low), defined(low + 1));
            let middle = (a + b) / 2.0; // exact
            assert_eq!(encoded(middle), low + (low & 1), "{middle}");
            for (v, want) in [(middle.next_down(), low), (middle.next_up(), low + 1)] {
                assert_eq!((encoded(v), encoded(-v)), (want, want | 0x80), "{v}");
            }
        }
        for large in [464.0, 465.0, 1e9, f32::MAX, f32::INFINITY] {
            assert_eq!((encoded(large), encoded(-large)), (0x7e, 0xfe), "{large}");
        }
        assert_eq!((encoded(1e-30), encoded(-1e-45)), (0, 0x80));
    }
}
