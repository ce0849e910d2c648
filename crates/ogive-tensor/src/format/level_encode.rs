//! Packing numbers for formats whose codes look up a table of levels.
//!
//! Every element's error counts alike or by its importance, as in `k_encode`: ggml weighs large elements more. The nearest level is found by a
//! table of half steps and not by comparisons, because all borders between levels are multiples of one half.

use super::float8;
use super::importance::{Alike, Importance};
use super::nonlinear::{E2M1_LEVELS, IQ4_LEVELS, half_power, half_scale};
use super::put_half;
use super::search::inverse;
use half::f16;

/// The code of the level nearest to a number between `i / 2 - 128` and the next half.
static NEAREST: [u8; 512] = {
    let (mut table, mut i) = ([0; 512], 0);
    while i < 512 {
        // In quarters, at the middle of the half step: no ties.
        let at = 2 * i as i32 + 1 - 512;
        let (mut best, mut code) = (i32::MAX, 0);
        while code < 16 {
            let away = (at - 4 * IQ4_LEVELS[code] as i32).abs();
            if away < best {
                best = away;
                table[i] = code as u8;
            }
            code += 1;
        }
        i += 1;
    }
    table
};

/// The code of the level nearest to `v`; NaN gives any.
fn nearest(v: f32) -> u8 {
    NEAREST[(v * 2.0 + 256.0).clamp(0.0, 511.0) as usize & 511]
}

/// Σqx and Σqq, by importance, of the levels nearest to the values times `inverse`, in eight lanes as in `search`.
fn sums(x: &[f32], w: impl Importance, inverse: f32) -> (f32, f32) {
    let (mut qx, mut qq) = ([0.0_f32; 8], [0.0_f32; 8]);
    for (i, x) in x.as_chunks::<8>().0.iter().enumerate() {
        let w = w.eight(i);
        for lane in 0..8 {
            let q = f32::from(IQ4_LEVELS[usize::from(nearest(x[lane] * inverse))]);
            qx[lane] += w[lane] * q * x[lane];
            qq[lane] += w[lane] * q * q;
        }
    }
    (qx.iter().sum(), qq.iter().sum())
}

/// The scale, of either sign, that fits best of a list of starts: the value furthest from zero near either end of the
/// levels.
fn search(x: &[f32], w: impl Importance) -> f32 {
    let furthest = x.iter().fold(0.0_f32, |m, &v| if v.abs() > m.abs() { v } else { m });
    if furthest == 0.0 {
        return 0.0;
    }
    let (mut best, mut most) = (furthest / -127.0, f32::MIN);
    for end in [-127.0_f32, 113.0] {
        for step in -6..=6_i8 {
            let (qx, qq) = sums(x, w, (end + 1.75 * f32::from(step)) / furthest);
            let gain = qx * qx / qq;
            if gain > most && (qx / qq).is_finite() {
                (best, most) = (qx / qq, gain);
            }
        }
    }
    best
}

/// Codes for a scale, and what is left of the values, by importance.
fn codes(x: &[f32], w: impl Importance, scale: f32, out: &mut [u8]) -> f32 {
    let inverse = inverse(scale);
    let mut error = 0.0;
    for (i, (q, &x)) in out.iter_mut().zip(x).enumerate() {
        *q = nearest(x * inverse);
        error += w.at(i) * (scale * f32::from(IQ4_LEVELS[usize::from(*q)]) - x).powi(2);
    }
    error
}

/// Element `j` shares its byte with element `j + 16`.
fn put_pairs(codes: &[u8], b: &mut [u8]) {
    let (low, high) = codes.split_at(16);
    for ((b, l), h) in b.iter_mut().zip(low).zip(high) {
        *b = l | h << 4;
    }
}

pub(super) fn iq4_nl(x: &[f32], importance: &[f32], b: &mut [u8]) {
    if importance.is_empty() { iq4_nl_by(x, Alike, b) } else { iq4_nl_by(x, importance, b) }
}

fn iq4_nl_by(x: &[f32], w: impl Importance, b: &mut [u8]) {
    let first = f16::from_f32(search(x, w)).to_f32();
    let (mut at_first, mut at_second) = ([0; 32], [0; 32]);
    let error = codes(x, w, first, &mut at_first);
    let (qx, qq) = x.iter().zip(at_first).enumerate().fold((0.0_f32, 0.0_f32), |(qx, qq), (i, (x, q))| {
        let q = f32::from(IQ4_LEVELS[usize::from(q)]);
        (qx + w.at(i) * q * x, qq + w.at(i) * q * q)
    });
    let second = f16::from_f32(qx * inverse(qq)).to_f32();
    let better = second.is_finite() && codes(x, w, second, &mut at_second) < error;
    let (d, q) = if better { (second, at_second) } else { (first, at_first) };
    put_half(b, 0, d);
    put_pairs(&q, &mut b[2..18]);
}

/// A superblock before packing: `d · scales[i] · level[codes]`.
struct Block {
    d: f32,
    scales: [i8; 8],
    codes: [u8; 256],
}

impl Block {
    /// Codes for the scales and `d`, and the error.
    fn choose(&mut self, x: &[f32], w: impl Importance) -> f32 {
        let parts = x.chunks_exact(32).zip(self.codes.chunks_exact_mut(32)).zip(self.scales).enumerate();
        parts.map(|(i, ((x, q), s))| codes(x, w.part(32 * i, 32), self.d * f32::from(s), q)).sum()
    }

    /// The `d` that fits best when codes and scales stay.
    fn refit(&self, x: &[f32], w: impl Importance) -> f32 {
        let (mut ax, mut aa) = (0.0_f32, 0.0_f32);
        let parts = x.chunks_exact(32).zip(self.codes.chunks_exact(32)).zip(self.scales);
        for (i, ((x, q), s)) in parts.enumerate() {
            let w = w.part(32 * i, 32);
            for (i, (x, &q)) in x.iter().zip(q).enumerate() {
                let a = f32::from(s) * f32::from(IQ4_LEVELS[usize::from(q)]);
                ax += w.at(i) * a * x;
                aa += w.at(i) * a * a;
            }
        }
        ax * inverse(aa)
    }
}

pub(super) fn iq4_xs(x: &[f32], importance: &[f32], b: &mut [u8]) {
    if importance.is_empty() { iq4_xs_by(x, Alike, b) } else { iq4_xs_by(x, importance, b) }
}

fn iq4_xs_by(x: &[f32], w: impl Importance, b: &mut [u8]) {
    let mut fits = [0.0_f32; 8];
    for (i, (fit, x)) in fits.iter_mut().zip(x.chunks_exact(32)).enumerate() {
        *fit = search(x, w.part(32 * i, 32));
    }
    let furthest = fits.iter().fold(0.0_f32, |m, &s| if s.abs() > m.abs() { s } else { m });
    let d = super::k_encode::half_not_below(furthest / -32.0);
    let inverse = inverse(d);
    let scales = fits.map(|s| (s * inverse).round().clamp(-32.0, 31.0) as i8);
    let mut it = Block { d, scales, codes: [0; 256] };
    let error = it.choose(x, w);
    let mut other = Block { d: f16::from_f32(it.refit(x, w)).to_f32(), ..it };
    if other.d.is_finite() && other.choose(x, w) < error {
        it = other;
    }
    b.fill(0);
    put_half(b, 0, it.d);
    let mut high = 0_u16;
    for (i, s) in it.scales.iter().enumerate() {
        let s = (s + 32) as u8;
        b[4 + i / 2] |= (s & 15) << (4 * (i % 2));
        high |= u16::from(s >> 4) << (2 * i);
    }
    b[2..4].copy_from_slice(&high.to_le_bytes());
    for (q, b) in it.codes.chunks_exact(32).zip(b[8..136].chunks_exact_mut(16)) {
        put_pairs(q, b);
    }
}

/// The code of the doubled E2M1 level nearest to a number between `i / 2` and the next half; the last of all beyond.
static NEAREST_E2M1: [u8; 21] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 7];

/// The code of the level nearest to `x / d`.
fn nearest_e2m1(x: f32, d: f32) -> u8 {
    let size = NEAREST_E2M1[((x.abs() / d * 2.0) as usize).min(20)];
    size | u8::from(x < 0.0 && size > 0) << 3
}

/// MXFP4 by the exponent with the least error of three: the one that ggml takes, which lets the largest value be cut off
/// by up to a quarter, and its neighbours.
pub(super) fn mxfp4(x: &[f32], importance: &[f32], b: &mut [u8]) {
    if importance.is_empty() { mxfp4_by(x, Alike, b) } else { mxfp4_by(x, importance, b) }
}

fn mxfp4_by(x: &[f32], w: impl Importance, b: &mut [u8]) {
    let furthest = x.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
    let usual = (furthest.to_bits() >> 23) as i32 - 2;
    // What errors are counted in: the squares of large ones would be infinite.
    let unit = half_power(usual.clamp(0, 254) as u8);
    let (mut least, mut best) = (f32::INFINITY, (0, [0; 32]));
    for e in [usual, usual + 1, usual - 1] {
        let e = e.clamp(0, 254) as u8;
        let (d, mut q, mut error) = (half_power(e), [0; 32], 0.0_f32);
        for (i, (q, &x)) in q.iter_mut().zip(x).enumerate() {
            // A division, for the inverse of the least power is infinite.
            *q = nearest_e2m1(x, d);
            error += w.at(i) * ((d * f32::from(E2M1_LEVELS[usize::from(*q)]) - x) / unit).powi(2);
        }
        if error < least {
            (least, best) = (error, (e, q));
        }
    }
    b[0] = best.0;
    put_pairs(&best.1, &mut b[1..17]);
}

/// NVFP4 by the scale with the least error of six: those that make the furthest value the last level, as ggml's does, or the one before
/// it, and their neighbours.
pub(super) fn nvfp4(x: &[f32], importance: &[f32], b: &mut [u8]) {
    if importance.is_empty() { nvfp4_by(x, Alike, b) } else { nvfp4_by(x, importance, b) }
}

fn nvfp4_by(x: &[f32], w: impl Importance, b: &mut [u8]) {
    let (scales, codes) = b.split_at_mut(4);
    let parts = scales.iter_mut().zip(codes.chunks_exact_mut(8)).zip(x.chunks_exact(16));
    for (i, ((s, to), x)) in parts.enumerate() {
        let w = w.part(16 * i, 16);
        let furthest = x.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
        let (mut least, mut best) = (f32::INFINITY, (0, [0; 16]));
        let near = |last: f32| {
            let usual = float8::encoded(furthest / last) & 0x7f;
            [usual, usual + 1, usual.saturating_sub(1)].map(|s| s.clamp(1, 0x7e))
        };
        for s in [6.0, 4.0].into_iter().flat_map(near) {
            let (d, mut q, mut error) = (half_scale(s), [0; 16], 0.0_f32);
            for (i, (q, &x)) in q.iter_mut().zip(x).enumerate() {
                *q = nearest_e2m1(x, d);
                // Parts of what there is: squares of large numbers would be infinite.
                error += w.at(i) * ((d * f32::from(E2M1_LEVELS[usize::from(*q)]) - x) / furthest).powi(2);
            }
            if error < least {
                (least, best) = (error, (s, q));
            }
        }
        *s = best.0;
        let (low, high) = best.1.split_at(8);
        for ((b, l), h) in to.iter_mut().zip(low).zip(high) {
            *b = l | h << 4;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_find_the_nearest_level() {
        let away = |levels: &[i8], v: f32| {
            levels.iter().map(|l| (f32::from(*l) - v).abs()).fold(f32::INFINITY, f32::min)
        };
        for i in -1400..=1400_i16 {
            let v = f32::from(i) / 10.0 + 0.013;
            let code = usize::from(nearest(v));
            assert_eq!((f32::from(IQ4_LEVELS[code]) - v).abs(), away(&IQ4_LEVELS, v), "{v}");
            let v = v.abs() / 8.0;
            let code = usize::from(NEAREST_E2M1[((v * 2.0) as usize).min(20)]);
            assert_eq!((f32::from(E2M1_LEVELS[code]) - v).abs(), away(&E2M1_LEVELS[..8], v), "{v}");
        }
    }
}
