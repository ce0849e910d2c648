//! Formats that keep each element by itself: single, half and bfloat16, little-endian.

use super::Format;
use half::{bf16, f16};

/// IEEE single precision.
pub static F32: Format = Format {
    name: "f32",
    block_len: 1,
    block_bytes: 4,
    decode: |b, o| o[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
    encode: Some(|v, b| b.copy_from_slice(&v[0].to_le_bytes())),
};

/// IEEE half precision; encoding rounds to nearest even.
pub static F16: Format = Format {
    name: "f16",
    block_len: 1,
    block_bytes: 2,
    decode: |b, o| o[0] = f16::from_le_bytes([b[0], b[1]]).to_f32(),
    encode: Some(|v, b| b.copy_from_slice(&f16::from_f32(v[0]).to_le_bytes())),
};

/// The upper half of a single; encoding rounds to nearest even.
pub static BF16: Format = Format {
    name: "bf16",
    block_len: 1,
    block_bytes: 2,
    decode: |b, o| o[0] = bf16::from_le_bytes([b[0], b[1]]).to_f32(),
    encode: Some(|v, b| b.copy_from_slice(&bf16::from_f32(v[0]).to_le_bytes())),
};
