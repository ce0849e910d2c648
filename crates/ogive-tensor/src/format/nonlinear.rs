//! Formats whose codes look up a table of levels instead of counting evenly.
//!
//! Each layout is written down once, in the byte table of its static; `level_encode` writes what is read here.

use super::{Format, float8, half_at, level_encode};

/// The levels of [`IQ4_NL`] and [`IQ4_XS`]: denser near zero, as trained weights are.
pub(super) static IQ4_LEVELS: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The levels of [`MXFP4`] and [`NVFP4`], doubled: 0, ½, 1, 1½, 2, 3, 4, 6 with either sign (E2M1).
pub(super) static E2M1_LEVELS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// 4 bits that choose from 16 uneven levels: `d · level[q]`, in blocks of 32.
///
/// | bytes | what |
/// |---|---|
/// | 0–1 | `d`, f16 |
/// | 2–17 | `q`: the low half of byte `j` is element `j`, the high half element `j + 16` |
///
/// The levels are −127, −104, −83, −65, −49, −35, −22, −10, 1, 13, 25, 38, 53, 69, 89, 113.
pub static IQ4_NL: Format = Format {
    name: "iq4_nl",
    block_len: 32,
    block_bytes: 18,
    decode: |b, out| look_up(&b[2..18], half_at(b, 0), &IQ4_LEVELS, out),
    encode: Some(level_encode::iq4_nl),
};

/// The levels of [`IQ4_NL`] in superblocks of 256: `d · (s - 32) · level[q]` with a 6-bit scale for each 32 elements.
///
/// | bytes | what |
/// |---|---|
/// | 0–1 | `d`, f16 |
/// | 2–3 | bits `2i` and `2i + 1` are the high bits of scale `i`, little-endian |
/// | 4–7 | the low four bits of scale `i`: half `i % 2` of byte `i / 2` |
/// | 8–135 | 16 bytes of `q` for each 32 elements, as in [`IQ4_NL`] |
pub static IQ4_XS: Format = Format {
    name: "iq4_xs",
    block_len: 256,
    block_bytes: 136,
    decode: |b, out| {
        let d = half_at(b, 0);
        let high = u16::from_le_bytes([b[2], b[3]]);
        for (i, (q, o)) in b[8..136].chunks_exact(16).zip(out.chunks_exact_mut(32)).enumerate() {
            let low = b[4 + i / 2] >> (4 * (i % 2)) & 15;
            let scale = i16::from(low) | ((high >> (2 * i) & 3) << 4).cast_signed();
            look_up(q, d * f32::from(scale - 32), &IQ4_LEVELS, o);
        }
    },
    encode: Some(level_encode::iq4_xs),
};

/// The Open Compute Project's MXFP4: E2M1 elements in blocks of 32 with a power of two, `2^(e - 127) · value[q]`.
///
/// | bytes | what |
/// |---|---|
/// | 0 | `e`, the exponent (E8M0) |
/// | 1–16 | `q`: the low half of byte `j` is element `j`, the high half element `j + 16` |
///
/// The values are 0, ½, 1, 1½, 2, 3, 4, 6 and their negatives. As in ggml, an exponent of 255 is no NaN but the largest
/// power.
pub static MXFP4: Format = Format {
    name: "mxfp4",
    block_len: 32,
    block_bytes: 17,
    decode: |b, out| look_up(&b[1..17], half_power(b[0]), &E2M1_LEVELS, out),
    encode: Some(level_encode::mxfp4),
};

/// NVIDIA's NVFP4: E2M1 elements in blocks of 64 with a scale in E4M3 for each 16, `s · value[q]` (ggml's `block_nvfp4`).
///
/// | bytes | what |
/// |---|---|
/// | 0–3 | `s` of 16 elements each, E4M3 whose sign is ignored |
/// | 4–35 | 8 bytes of `q` for each 16 elements: the low half of byte `j` is element `j`, the high half element `j + 8` |
///
/// The values are those of [`MXFP4`]. As in ggml, a scale of `0x7f` is no NaN but 0, and `0xff` is 480. What multiplies a whole
/// matrix beside it is a [`Scale`](crate::Scale).
pub static NVFP4: Format = Format {
    name: "nvfp4",
    block_len: 64,
    block_bytes: 36,
    decode: |b, out| {
        let (scales, codes) = b.split_at(4);
        for ((s, q), o) in scales.iter().zip(codes.chunks_exact(8)).zip(out.chunks_exact_mut(16)) {
            let (d, (low, high)) = (half_scale(*s), o.split_at_mut(8));
            for ((&q, l), h) in q.iter().zip(low).zip(high) {
                *l = d * f32::from(E2M1_LEVELS[usize::from(q & 15)]);
                *h = d * f32::from(E2M1_LEVELS[usize::from(q >> 4)]);
            }
        }
    },
    encode: Some(level_encode::nvfp4),
};

/// Half of what a scale of [`NVFP4`] means, because the levels are doubled.
pub(super) fn half_scale(s: u8) -> f32 {
    match s {
        0x7f => 0.0,
        0xff => 240.0,
        s => float8::VALUES[usize::from(s & 0x7f)] * 0.5,
    }
}

/// 32 elements from 16 bytes of codes.
fn look_up(codes: &[u8], d: f32, levels: &[i8; 16], out: &mut [f32]) {
    let (low, high) = out.split_at_mut(16);
    for ((&q, l), h) in codes.iter().zip(low).zip(high) {
        *l = d * f32::from(levels[usize::from(q & 15)]);
        *h = d * f32::from(levels[usize::from(q >> 4)]);
    }
}

/// `2^(e - 128)`: half of what E8M0 means, because the levels are doubled. The two least are subnormal.
pub(super) fn half_power(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { u32::from(e - 1) << 23 })
}
