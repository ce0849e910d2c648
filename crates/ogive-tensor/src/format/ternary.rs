//! TQ1_0 and TQ2_0: elements that are -1, 0 or 1 times one scale, for models that were trained so (BitNet's kind).
//!
//! Each layout is written down once, in the byte table of its static. Of a digit to base three the decoder keeps ggml's arithmetic and not a
//! table: a byte that no five digits make, which a damaged file may have, comes to what it comes to there.
//!
//! The encoders follow ggml's byte for byte: the scale is the largest size, which loses nothing of weights that were trained so. A search
//! would lose less of others, which these formats are not for.

use super::{
    Format, half_at, put_half,
    search::{inverse, signed},
};

/// The largest size, and the digits of numbers by it: 0, 1 and 2 for -1, 0 and 1.
fn digits(v: &[f32]) -> (f32, [u8; 256]) {
    let d = v.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
    let (inverse, mut digits) = (inverse(d), [1; 256]);
    for (q, x) in digits.iter_mut().zip(v) {
        *q = (signed(x * inverse).clamp(-1, 1) + 1).cast_unsigned();
    }
    (d, digits)
}

/// Five elements to a byte: `d · (q - 1)`, in superblocks of 256.
///
/// | bytes | what |
/// |---|---|
/// | 0–31 | digit `n` of byte `i` is element `32 n + i`, for `n` below five |
/// | 32–47 | digit `n` of byte `32 + i` is element `160 + 16 n + i` |
/// | 48–51 | digit `n` of byte `48 + i` is element `240 + 4 n + i`, for `n` below four |
/// | 52–53 | `d`, f16 |
///
/// Digit `n` of a byte is that before the point, of three times the fraction that `byte · 3^n / 256` has: ⌈`256 / 243` · the digits as a
/// number to base three⌉ is stored, so that it takes two multiplications and no division.
pub static TQ1_0: Format = Format {
    name: "tq1_0",
    block_len: 256,
    block_bytes: 54,
    decode: |b, out| {
        let d = half_at(b, 52);
        let (first, rest) = out.split_at_mut(160);
        let (second, third) = rest.split_at_mut(80);
        for (bytes, out) in [(&b[..32], first), (&b[32..48], second), (&b[48..52], third)] {
            for (o, power) in out.chunks_exact_mut(bytes.len()).zip([1, 3, 9, 27, 81]) {
                for (o, byte) in o.iter_mut().zip(bytes) {
                    let digit = (u16::from(byte.wrapping_mul(power)) * 3) >> 8;
                    *o = (f32::from(digit) - 1.0) * d;
                }
            }
        }
    },
    encode: Some(|v, _, b| {
        let (d, digits) = digits(v);
        put_half(b, 52, d);
        for (start, at, len, each) in [(0, 0, 32, 5), (32, 160, 16, 5), (48, 240, 4, 4)] {
            for (i, byte) in b[start..start + len].iter_mut().enumerate() {
                let number = (0..5).fold(0, |number, n| {
                    number * 3 + if n < each { u16::from(digits[at + len * n + i]) } else { 0 }
                });
                *byte = (number * 256).div_ceil(243) as u8;
            }
        }
    }),
};

/// Four elements to a byte: `d · (q - 1)`, in superblocks of 256.
///
/// | bytes | what |
/// |---|---|
/// | 0–63 | `q`: bits `2 j` and `2 j + 1` of byte `32 n + i` are element `128 n + 32 j + i` |
/// | 64–65 | `d`, f16 |
///
/// ggml writes no 3, but reads it as 2.
pub static TQ2_0: Format = Format {
    name: "tq2_0",
    block_len: 256,
    block_bytes: 66,
    decode: |b, out| {
        let d = half_at(b, 64);
        for (i, o) in out.chunks_exact_mut(32).enumerate() {
            for (o, byte) in o.iter_mut().zip(&b[32 * (i / 4)..]) {
                *o = (f32::from(byte >> (2 * (i % 4)) & 3) - 1.0) * d;
            }
        }
    },
    encode: Some(|v, _, b| {
        let (d, digits) = digits(v);
        put_half(b, 64, d);
        for (i, byte) in b[..64].iter_mut().enumerate() {
            let at = 128 * (i / 32) + i % 32;
            *byte = (0..4).fold(0, |byte, j| byte | digits[at + 32 * j] << (2 * j));
        }
    }),
};
