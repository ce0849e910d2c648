//! ggml's first formats: blocks of 32 elements with one scale each, and perhaps a minimum.
//!
//! Element `j` of a block shares its byte with element `j + 16`, not with its neighbour: a vector register of nibbles
//! then splits into two halves without a shuffle. The encoders follow ggml's reference quantisers byte for byte (also in
//! which of two equal extremes decides the sign of the scale), so that files made here and there can be compared. By importance there is no
//! such reference: the scale, and the minimum, are then searched for as those of K-quants are, and Q8_0 stays what it is, as ggml's does.

use super::{
    Format, half_at,
    k_encode::through_half,
    put_half,
    search::{affine, inverse, refit_affine, refit_symmetric, signed, symmetric},
};

/// Elements of a block.
const LEN: usize = 32;

/// 4 bits, symmetric: `d · (q - 8)`.
///
/// | bytes | what |
/// |---|---|
/// | 0–1 | `d`, f16 |
/// | 2–17 | `q`: the low half of byte `j` is element `j`, the high half element `j + 16` |
pub static Q4_0: Format = Format {
    name: "q4_0",
    block_len: LEN,
    block_bytes: 18,
    decode: |b, out| {
        let d = half_at(b, 0);
        let (low, high) = out.split_at_mut(16);
        for ((&q, l), h) in b[2..18].iter().zip(low).zip(high) {
            *l = f32::from((q & 15) as i8 - 8) * d;
            *h = f32::from((q >> 4) as i8 - 8) * d;
        }
    },
    encode: Some(|v, importance, b| {
        let (d, inverse) = symmetric_scale(v, importance, 8);
        put_half(b, 0, d);
        for (j, q) in b[2..18].iter_mut().enumerate() {
            *q = code(v[j] * inverse + 8.5, 15) | code(v[j + 16] * inverse + 8.5, 15) << 4;
        }
    }),
};

/// 4 bits with a minimum: `d · q + m`.
///
/// | bytes | what |
/// |---|---|
/// | 0–1 | `d`, f16 |
/// | 2–3 | `m`, f16 |
/// | 4–19 | `q`, as in [`Q4_0`] |
pub static Q4_1: Format = Format {
    name: "q4_1",
    block_len: LEN,
    block_bytes: 20,
    decode: |b, out| {
        let (d, m) = (half_at(b, 0), half_at(b, 2));
        let (low, high) = out.split_at_mut(16);
        for ((&q, l), h) in b[4..20].iter().zip(low).zip(high) {
            *l = f32::from(q & 15) * d + m;
            *h = f32::from(q >> 4) * d + m;
        }
    },
    encode: Some(|v, importance, b| {
        let (d, inverse, min) = affine_scale(v, importance, 15);
        put_half(b, 0, d);
        put_half(b, 2, min);
        for (j, q) in b[4..20].iter_mut().enumerate() {
            let at = |j: usize| code((v[j] - min) * inverse + 0.5, 15);
            *q = at(j) | at(j + 16) << 4;
        }
    }),
};

/// 5 bits, symmetric: `d · (q - 16)`.
///
/// | bytes | what |
/// |---|---|
/// | 0–1 | `d`, f16 |
/// | 2–5 | bit `j` is the fifth bit of element `j`, little-endian |
/// | 6–21 | the low four bits of `q`, as in [`Q4_0`] |
pub static Q5_0: Format = Format {
    name: "q5_0",
    block_len: LEN,
    block_bytes: 22,
    decode: |b, out| {
        let d = half_at(b, 0);
        let fifth = u32::from_le_bytes([b[2], b[3], b[4], b[5]]);
        let (low, high) = out.split_at_mut(16);
        for (j, ((&q, l), h)) in b[6..22].iter().zip(low).zip(high).enumerate() {
            let (a, z) = five_bits(q, fifth, j);
            *l = f32::from(a as i8 - 16) * d;
            *h = f32::from(z as i8 - 16) * d;
        }
    },
    encode: Some(|v, importance, b| {
        let (d, inverse) = symmetric_scale(v, importance, 16);
        put_half(b, 0, d);
        put_five_bits(&mut b[2..22], |j| code(v[j] * inverse + 16.5, 31));
    }),
};

/// 5 bits with a minimum: `d · q + m`.
///
/// | bytes | what |
/// |---|---|
/// | 0–1 | `d`, f16 |
/// | 2–3 | `m`, f16 |
/// | 4–7 | bit `j` is the fifth bit of element `j`, little-endian |
/// | 8–23 | the low four bits of `q`, as in [`Q4_0`] |
pub static Q5_1: Format = Format {
    name: "q5_1",
    block_len: LEN,
    block_bytes: 24,
    decode: |b, out| {
        let (d, m) = (half_at(b, 0), half_at(b, 2));
        let fifth = u32::from_le_bytes([b[4], b[5], b[6], b[7]]);
        let (low, high) = out.split_at_mut(16);
        for (j, ((&q, l), h)) in b[8..24].iter().zip(low).zip(high).enumerate() {
            let (a, z) = five_bits(q, fifth, j);
            *l = f32::from(a) * d + m;
            *h = f32::from(z) * d + m;
        }
    },
    encode: Some(|v, importance, b| {
        let (d, inverse, min) = affine_scale(v, importance, 31);
        put_half(b, 0, d);
        put_half(b, 2, min);
        put_five_bits(&mut b[4..24], |j| code((v[j] - min) * inverse + 0.5, 31));
    }),
};

/// 8 bits, symmetric: `d · q`.
///
/// | bytes | what |
/// |---|---|
/// | 0–1 | `d`, f16 |
/// | 2–33 | `q`, i8 |
pub static Q8_0: Format = Format {
    name: "q8_0",
    block_len: LEN,
    block_bytes: 34,
    decode: |b, out| {
        let d = half_at(b, 0);
        for (&q, o) in b[2..34].iter().zip(out) {
            *o = f32::from(q as i8) * d;
        }
    },
    encode: Some(|v, _, b| {
        // Eight at a time: which is the largest does not depend on the order. By their bits, of which those of no number are the
        // largest: the scale then is none either, and with it the block.
        let mut largest = [0_i32; 8];
        for v in v.as_chunks::<8>().0 {
            largest = std::array::from_fn(|i| largest[i].max(v[i].abs().to_bits().cast_signed()));
        }
        let d = f32::from_bits(largest.into_iter().fold(0, i32::max).cast_unsigned()) / 127.0;
        let inverse = inverse(d);
        put_half(b, 0, d);
        for (q, x) in b[2..34].iter_mut().zip(v) {
            *q = signed(x * inverse).cast_unsigned();
        }
    }),
};

/// Elements `j` and `j + 16` from their shared byte and the word of fifth bits.
fn five_bits(q: u8, fifth: u32, j: usize) -> (u8, u8) {
    ((q & 15) | ((fifth >> j) << 4 & 16) as u8, (q >> 4) | (fifth >> (j + 12) & 16) as u8)
}

/// Writes the word of fifth bits and the bytes of low bits that [`five_bits`] reads.
fn put_five_bits(b: &mut [u8], at: impl Fn(usize) -> u8) {
    let mut fifth = 0_u32;
    for j in 0..16 {
        let (a, z) = (at(j), at(j + 16));
        b[4 + j] = (a & 15) | z << 4;
        fifth |= u32::from(a >> 4) << j | u32::from(z >> 4) << (j + 16);
    }
    b[..4].copy_from_slice(&fifth.to_le_bytes());
}

/// `value` cut to a whole number from 0 to `max`; NaN gives 0.
fn code(value: f32, max: u8) -> u8 {
    (value as u8).min(max)
}

/// The scale and its inverse, for codes from `-half` to `half - 1`: the one that maps the value furthest from 0, with its sign, to
/// `-half`, or, by importance, the best that is found.
fn symmetric_scale(v: &[f32], importance: &[f32], half: i8) -> (f32, f32) {
    let furthest = v.iter().fold(0.0_f32, |m, &x| if x.abs() > m.abs() { x } else { m });
    let d = furthest / -f32::from(half);
    let d = if importance.is_empty() { d } else { searched_scale(v, importance, half, d) };
    (d, inverse(d))
}

/// The scale, its inverse and the minimum, for codes from 0 to `levels`: those that spread the codes over all values, or, by importance,
/// the best that are found.
fn affine_scale(v: &[f32], importance: &[f32], levels: u8) -> (f32, f32, f32) {
    let (min, max) = v.iter().fold((f32::MAX, f32::MIN), |(lo, hi), &x| {
        (if x < lo { x } else { lo }, if x > hi { x } else { hi })
    });
    let d = (max - min) / f32::from(levels);
    let (d, min) = if importance.is_empty() {
        (d, min)
    } else {
        searched_scale_and_min(v, importance, levels, (d, min))
    };
    (d, inverse(d), min)
}

/// `alike` is what is taken without importances.
#[inline(never)]
fn searched_scale(v: &[f32], importance: &[f32], half: i8, alike: f32) -> f32 {
    let zero = f32::from(half);
    let choose = |d: &f32, q: &mut [u8; LEN]| {
        let inverse = inverse(*d);
        weighed_error(v, importance, q, |x, q| {
            *q = code(x * inverse + zero + 0.5, 2 * half as u8 - 1);
            d * (f32::from(*q) - zero)
        })
    };
    let mut best = Best::new(through_half(symmetric(v, importance, half)), choose);
    if let Some(d) = refit_symmetric(v, importance, &best.codes, &[1], half) {
        best.or(through_half(d), choose);
    }
    best.or(through_half(alike), choose);
    best.of
}

/// `alike` is what is taken without importances.
#[inline(never)]
fn searched_scale_and_min(v: &[f32], importance: &[f32], levels: u8, alike: (f32, f32)) -> (f32, f32) {
    // Seen from the greatest, no minimum is above 0, which is all that the search asks for.
    let max = v.iter().fold(f32::MIN, |m, &x| if x > m { x } else { m });
    let mut below = [0.0; LEN];
    below.iter_mut().zip(v).for_each(|(y, x)| *y = x - max);
    let choose = |(d, min): &(f32, f32), q: &mut [u8; LEN]| {
        let inverse = inverse(*d);
        weighed_error(v, importance, q, |x, q| {
            *q = code((x - min) * inverse + 0.5, levels);
            d * f32::from(*q) + min
        })
    };
    let stored = |d: f32, min: f32| (through_half(d), through_half(min));
    let fit = affine(&below, importance, levels);
    let mut best = Best::new(stored(fit.scale, max - fit.min), choose);
    if let Some((d, under)) = refit_affine(&below, importance, &best.codes, &[1], &[1]) {
        best.or(stored(d, max - under), choose);
    }
    best.or(stored(alike.0, alike.1), choose);
    best.of
}

/// Of scales, or scales with minima, the one whose values are off by least.
struct Best<T> {
    of: T,
    codes: [u8; LEN],
    error: f32,
}

impl<T> Best<T> {
    /// `choose` chooses codes, and says what they are off by.
    fn new(of: T, choose: impl Fn(&T, &mut [u8; LEN]) -> f32) -> Self {
        let mut codes = [0; LEN];
        let error = choose(&of, &mut codes);
        Self { of, codes, error }
    }

    /// Takes another that is better.
    fn or(&mut self, of: T, choose: impl Fn(&T, &mut [u8; LEN]) -> f32) {
        let other = Self::new(of, choose);
        if other.error < self.error {
            *self = other;
        }
    }
}

/// Chooses codes, and says what they are off by, squared and summed up by importance; `choose` gives what a code comes to.
fn weighed_error(v: &[f32], importance: &[f32], q: &mut [u8], choose: impl Fn(f32, &mut u8) -> f32) -> f32 {
    let all = v.iter().zip(importance).zip(q);
    all.map(|((&x, w), q)| w * (choose(x, q) - x).powi(2)).sum()
}
