//! TQ1_0 and TQ2_0: elements that are -1, 0 or 1 times one scale, for models that were trained so (BitNet's kind).
//!
//! Each layout is written down once, in the byte table of its static. Of a digit to base three the decoder keeps ggml's arithmetic and not a
//! table: a byte that no five digits make, which a damaged file may have, comes to what it comes to there.

use super::{Format, half_at};

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
    encode: None,
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
    encode: None,
};
