//! Formats that keep each element by itself: single, half and bfloat16, little-endian.

use super::{
    Format,
    float8::{F8_E4M3, VALUES},
};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// IEEE single precision.
pub static F32: Format = Format {
    name: "f32",
    block_len: 1,
    block_bytes: 4,
    decode: |b, o| o[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
    encode: Some(|v, _, b| b.copy_from_slice(&v[0].to_le_bytes())),
};

/// IEEE half precision; encoding rounds to nearest even.
pub static F16: Format = Format {
    name: "f16",
    block_len: 1,
    block_bytes: 2,
    decode: |b, o| o[0] = f16::from_le_bytes([b[0], b[1]]).to_f32(),
    encode: Some(|v, _, b| b.copy_from_slice(&f16::from_f32(v[0]).to_le_bytes())),
};

/// The upper half of a single; encoding rounds to nearest even.
pub static BF16: Format = Format {
    name: "bf16",
    block_len: 1,
    block_bytes: 2,
    decode: |b, o| o[0] = bf16::from_le_bytes([b[0], b[1]]).to_f32(),
    encode: Some(|v, _, b| b.copy_from_slice(&bf16::from_f32(v[0]).to_le_bytes())),
};

/// Elements of half precision that are decoded together.
const TOGETHER: usize = 256;

/// Decodes a row of one of these formats, many elements at a time, to the bits of their `decode`; false for another format.
pub(super) fn decode_row(format: &Format, bytes: &[u8], out: &mut [f32]) -> bool {
    if std::ptr::eq(format, &F16) {
        // With the processor's own conversion, where it has one.
        let mut halves = [f16::ZERO; TOGETHER];
        for (bytes, out) in bytes.as_chunks().0.chunks(TOGETHER).zip(out.chunks_mut(TOGETHER)) {
            let n = bytes.len().min(out.len());
            halves.iter_mut().zip(bytes).for_each(|(half, b)| *half = f16::from_le_bytes(*b));
            halves[..n].convert_to_f32_slice(&mut out[..n]);
        }
    } else if std::ptr::eq(format, &BF16) {
        out.iter_mut().zip(bytes.as_chunks().0).for_each(|(o, b)| *o = bf16::from_le_bytes(*b).to_f32());
    } else if std::ptr::eq(format, &F32) {
        out.iter_mut().zip(bytes.as_chunks().0).for_each(|(o, b)| *o = f32::from_le_bytes(*b));
    } else if std::ptr::eq(format, &F8_E4M3) {
        out.iter_mut().zip(bytes).for_each(|(o, b)| *o = VALUES[usize::from(*b)]);
    } else {
        return false;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the bits, as many as are there on both sides.
    #[test]
    fn rows_are_decoded_as_their_elements() {
        for format in [&F16, &BF16, &F32, &F8_E4M3] {
            let size = format.block_bytes;
            let bytes: Vec<u8> = (0..=u16::MAX)
                .flat_map(|v| {
                    if size == 4 {
                        u32::from(v).wrapping_mul(65_537).to_le_bytes().to_vec()
                    } else {
                        v.to_le_bytes()[..size].to_vec()
                    }
                })
                .collect();
            for (from, len, room) in
                [(0, 65_536, 65_536), (3, 1000, 1000), (9, 700, 513), (9, 257, 700), (0, 0, 4), (0, 4, 0)]
            {
                let row = &bytes[from * size..(from + len) * size];
                let (mut got, mut want) = (vec![7.0; room], vec![7.0; room]);
                format.decode_row(row, &mut got);
                for (b, o) in row.chunks_exact(size).zip(want.chunks_exact_mut(1)) {
                    (format.decode)(b, o);
                }
                let bits = |all: &[f32]| all.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert!(bits(&got) == bits(&want), "{}: {len} into {room}", format.name);
            }
            // Half an element is none.
            let mut out = [7.0; 2];
            format.decode_row(&bytes[..2 * size - size.div_ceil(2)], &mut out);
            assert_eq!(out[1], 7.0);
        }
    }
}
