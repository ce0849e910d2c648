//! Packing numbers as K-quants: first a scale per sub-block, then the superblock's factors, then the codes.
//!
//! The scales are searched for (see `search`) and the codes chosen last, for the scales as they are after rounding, to which an
//! affine block's minima are fitted once more. Where nothing is known of the activations every element's error counts alike: ggml weighs
//! large elements more, but one weight is as likely to be multiplied by a large activation as any other. For the same reason
//! importances are taken as they are, and not times an element's size.

use super::importance::{Alike, Importance};
use super::k_quants::{LEN, six_bit_shift, six_bit_start, two_bit_shift, two_bit_start};
use super::put_half;
use super::search::{Affine, affine, code, inverse, refit_affine, refit_symmetric, symmetric};
use half::f16;

/// How often minima and codes are fitted to each other; they seldom move after the second time.
const ROUNDS: usize = 3;

/// An affine superblock before packing: `d · scales[i] · codes - dmin · mins[i]`.
struct AffineBlock<const SUBS: usize> {
    d: f32,
    dmin: f32,
    scales: [u8; SUBS],
    mins: [u8; SUBS],
    codes: [u8; LEN],
}

impl<const SUBS: usize> AffineBlock<SUBS> {
    /// `levels` is the greatest code, `fine` the greatest scale and minimum.
    fn of(x: &[f32], importance: &[f32], levels: u8, fine: u8) -> Self {
        let alike = Self::by(x, Alike, levels, fine);
        if importance.is_empty() {
            return alike;
        }
        // What is best for each sub-block need not be for all of them, which share two factors.
        let by = Self::by(x, importance, levels, fine);
        if alike.error(x, importance) < by.error(x, importance) { alike } else { by }
    }

    fn by(x: &[f32], w: impl Importance, levels: u8, fine: u8) -> Self {
        let sub = LEN / SUBS;
        let mut fits = [Affine::default(); SUBS];
        for (i, (fit, x)) in fits.iter_mut().zip(x.chunks_exact(sub)).enumerate() {
            *fit = affine(x, w.part(i * sub, sub), levels);
        }
        let greatest = |f: fn(&Affine) -> f32| fits.iter().map(f).fold(0.0, f32::max);
        let d = half_not_below(greatest(|f| f.scale) / f32::from(fine));
        let dmin = half_not_below(greatest(|f| f.min) / f32::from(fine));
        let (inverse_d, inverse_dmin) = (inverse(d), inverse(dmin));
        let mut it = Self {
            d,
            dmin,
            scales: fits.map(|f| code(f.scale * inverse_d, fine)),
            mins: fits.map(|f| code(f.min * inverse_dmin, fine)),
            codes: [0; LEN],
        };
        it.choose_codes(x, levels);
        it.refit_factors(x, w, levels);
        it.refit_subs(x, w, levels, fine);
        it.refit_factors(x, w, levels);
        it
    }

    /// Factors anew for the scales, minima and codes as they are, where that lessens the error.
    fn refit_factors(&mut self, x: &[f32], w: impl Importance, levels: u8) {
        let Some((d, dmin)) = refit_affine(x, w, &self.codes, &self.scales, &self.mins) else { return };
        let mut other = Self { d: through_half(d), dmin: through_half(dmin), ..*self };
        other.choose_codes(x, levels);
        if other.error(x, w) < self.error(x, w) {
            *self = other;
        }
    }

    /// Scales and minima anew, sub-block by sub-block, where that lessens the error. They were rounded without regard to each
    /// other, which costs much where the codes of scales are small: values whose scale became 0 would all decode to the least of
    /// them. So the scales beside each are tried too, each with the minimum that fits it.
    fn refit_subs(&mut self, x: &[f32], w: impl Importance, levels: u8, fine: u8) {
        let inverse_dmin = inverse(self.dmin);
        for (i, x) in x.chunks_exact(LEN / SUBS).enumerate() {
            let w = w.part(i * x.len(), x.len());
            let (rounded, first) = (self.scales[i], self.mins[i]);
            let codes = &mut self.codes[i * x.len()..][..x.len()];
            let mut least = distance(x, w, codes, self.d * f32::from(rounded), self.dmin * f32::from(first));
            for scale in rounded.saturating_sub(1)..=fine.min(rounded + 1) {
                let factor = self.d * f32::from(scale);
                let mut tried = [0; LEN];
                let tried = &mut tried[..x.len()];
                quantize(x, factor, self.dmin * f32::from(first), levels, tried);
                for _ in 0..ROUNDS {
                    let over = tried.iter().zip(x).enumerate();
                    let over: f32 = over.map(|(i, (&q, x))| w.at(i) * (factor * f32::from(q) - x)).sum();
                    let min = code(over / w.sum(x.len()) * inverse_dmin, fine);
                    quantize(x, factor, self.dmin * f32::from(min), levels, tried);
                    let error = distance(x, w, tried, factor, self.dmin * f32::from(min));
                    if error >= least || error.is_nan() {
                        break;
                    }
                    (least, self.scales[i], self.mins[i]) = (error, scale, min);
                    codes.copy_from_slice(tried);
                }
            }
        }
    }

    fn factors(&self, i: usize) -> (f32, f32) {
        (self.d * f32::from(self.scales[i]), self.dmin * f32::from(self.mins[i]))
    }

    fn choose_codes(&mut self, x: &[f32], levels: u8) {
        let sub = LEN / SUBS;
        for i in 0..SUBS {
            let (scale, min) = self.factors(i);
            quantize(&x[i * sub..][..sub], scale, min, levels, &mut self.codes[i * sub..][..sub]);
        }
    }

    fn error(&self, x: &[f32], w: impl Importance) -> f32 {
        let sub = LEN / SUBS;
        let subs = x.chunks_exact(sub).zip(self.codes.chunks_exact(sub)).enumerate();
        subs.map(|(i, (x, q))| distance(x, w.part(i * sub, sub), q, self.factors(i).0, self.factors(i).1))
            .sum()
    }
}

/// The codes nearest to values seen as `scale · code - min`.
fn quantize(x: &[f32], scale: f32, min: f32, levels: u8, codes: &mut [u8]) {
    let inverse = inverse(scale);
    for (q, x) in codes.iter_mut().zip(x) {
        *q = code((x + min) * inverse, levels);
    }
}

/// What the codes are off by, squared and summed up by importance.
fn distance(x: &[f32], w: impl Importance, codes: &[u8], scale: f32, min: f32) -> f32 {
    let both = x.iter().zip(codes).enumerate();
    both.map(|(i, (x, &q))| w.at(i) * (scale * f32::from(q) - min - x).powi(2)).sum()
}

/// A symmetric superblock before packing: `d · scales[i] · (codes - half)`.
struct SymmetricBlock {
    d: f32,
    scales: [i8; 16],
    codes: [u8; LEN],
}

impl SymmetricBlock {
    /// Codes go from 0 to `2 · half - 1`, scales from `-fine` to `fine - 1`.
    fn of(x: &[f32], importance: &[f32], half: i8, fine: f32) -> Self {
        let alike = Self::by(x, Alike, half, fine);
        if importance.is_empty() {
            return alike;
        }
        let by = Self::by(x, importance, half, fine);
        if alike.error(x, importance, half) < by.error(x, importance, half) { alike } else { by }
    }

    fn by(x: &[f32], w: impl Importance, half: i8, fine: f32) -> Self {
        let mut fits = [0.0_f32; 16];
        for (i, (fit, x)) in fits.iter_mut().zip(x.chunks_exact(16)).enumerate() {
            *fit = symmetric(x, w.part(16 * i, 16), half);
        }
        let furthest = fits.iter().fold(0.0_f32, |m, &s| if s.abs() > m.abs() { s } else { m });
        let d = half_not_below(furthest / -fine);
        let inverse = inverse(d);
        let scales = fits.map(|s| (s * inverse).round().clamp(-fine, fine - 1.0) as i8);
        let mut it = Self { d, scales, codes: [0; LEN] };
        it.choose_codes(x, half);
        let d = through_half(refit_symmetric(x, w, &it.codes, &it.scales, half).unwrap_or(it.d));
        let mut other = Self { d, ..it };
        other.choose_codes(x, half);
        if other.error(x, w, half) < it.error(x, w, half) { other } else { it }
    }

    fn choose_codes(&mut self, x: &[f32], half: i8) {
        let zero = f32::from(half);
        for (i, (q, x)) in self.codes.chunks_exact_mut(16).zip(x.chunks_exact(16)).enumerate() {
            let inverse = inverse(self.d * f32::from(self.scales[i]));
            for (q, x) in q.iter_mut().zip(x) {
                *q = code(x * inverse + zero, 2 * half as u8 - 1);
            }
        }
    }

    fn error(&self, x: &[f32], w: impl Importance, half: i8) -> f32 {
        let zero = f32::from(half);
        let mut sum = 0.0;
        for (i, (x, q)) in x.chunks_exact(16).zip(self.codes.chunks_exact(16)).enumerate() {
            let scale = self.d * f32::from(self.scales[i]);
            let (both, w) = (x.iter().zip(q).enumerate(), w.part(16 * i, 16));
            sum +=
                both.map(|(i, (x, &q))| w.at(i) * (scale * (f32::from(q) - zero) - x).powi(2)).sum::<f32>();
        }
        sum
    }
}

pub(super) fn q2_k(x: &[f32], importance: &[f32], b: &mut [u8]) {
    let it = AffineBlock::<16>::of(x, importance, 3, 15);
    b.fill(0);
    for ((b, s), m) in b.iter_mut().zip(it.scales).zip(it.mins) {
        *b = s | m << 4;
    }
    put_two_bits(&mut b[16..80], &it.codes, 0);
    put_half(b, 80, it.d);
    put_half(b, 82, it.dmin);
}

pub(super) fn q3_k(x: &[f32], importance: &[f32], b: &mut [u8]) {
    let it = SymmetricBlock::of(x, importance, 4, 32.0);
    b.fill(0);
    for (e, q) in it.codes.iter().enumerate() {
        b[e % 32] |= (q >> 2) << (e / 32);
    }
    put_two_bits(&mut b[32..96], &it.codes, 0);
    for (i, s) in it.scales.iter().enumerate() {
        let s = (s + 32) as u8;
        b[96 + i % 8] |= (s & 15) << (4 * (i / 8));
        b[104 + i % 4] |= (s >> 4) << (2 * (i / 4));
    }
    put_half(b, 108, it.d);
}

pub(super) fn q4_k(x: &[f32], importance: &[f32], b: &mut [u8]) {
    let it = AffineBlock::<8>::of(x, importance, 15, 63);
    put_pairs(b, &it);
    put_nibbles(&mut b[16..144], &it.codes);
}

pub(super) fn q5_k(x: &[f32], importance: &[f32], b: &mut [u8]) {
    let it = AffineBlock::<8>::of(x, importance, 31, 63);
    put_pairs(b, &it);
    b[16..48].fill(0);
    for (e, q) in it.codes.iter().enumerate() {
        b[16 + e % 32] |= (q >> 4) << (e / 32);
    }
    put_nibbles(&mut b[48..176], &it.codes);
}

pub(super) fn q6_k(x: &[f32], importance: &[f32], b: &mut [u8]) {
    let it = SymmetricBlock::of(x, importance, 32, 128.0);
    b.fill(0);
    for (i, q) in it.codes.chunks_exact(16).enumerate() {
        for (b, q) in b[six_bit_start(i)..][..16].iter_mut().zip(q) {
            *b |= (q & 15) << six_bit_shift(i);
        }
    }
    put_two_bits(&mut b[128..192], &it.codes, 4);
    for (b, s) in b[192..208].iter_mut().zip(it.scales) {
        *b = s.cast_unsigned();
    }
    put_half(b, 208, it.d);
}

/// Two bits of each code, from `bit` up.
fn put_two_bits(b: &mut [u8], codes: &[u8; LEN], bit: u32) {
    for (i, q) in codes.chunks_exact(16).enumerate() {
        for (b, q) in b[two_bit_start(i)..][..16].iter_mut().zip(q) {
            *b |= (q >> bit & 3) << two_bit_shift(i);
        }
    }
}

/// The low four bits of each code.
fn put_nibbles(b: &mut [u8], codes: &[u8; LEN]) {
    for (b, q) in b.chunks_exact_mut(32).zip(codes.chunks_exact(64)) {
        for (l, b) in b.iter_mut().enumerate() {
            *b = (q[l] & 15) | q[l + 32] << 4;
        }
    }
}

/// Factors, scales and minima of Q4_K and Q5_K.
fn put_pairs(b: &mut [u8], it: &AffineBlock<8>) {
    put_half(b, 0, it.d);
    put_half(b, 2, it.dmin);
    let (s, m) = (&it.scales, &it.mins);
    for i in 0..4 {
        b[4 + i] = s[i] | s[4 + i] >> 4 << 6;
        b[8 + i] = m[i] | m[4 + i] >> 4 << 6;
        b[12 + i] = (s[4 + i] & 15) | m[4 + i] << 4;
    }
}

/// A factor as it is stored, but not much nearer to zero than it was: the steps of a small f16 are coarse, and the
/// largest scale, a multiple of the factor, would be cut off. Nor does a factor become zero, which would lose the block.
pub(super) fn half_not_below(v: f32) -> f32 {
    let h = f16::from_f32(v);
    if h.to_f32().abs() < v.abs() * 0.999 { f16::from_bits(h.to_bits() + 1).to_f32() } else { h.to_f32() }
}

/// What is left of a factor once it is stored.
pub(super) fn through_half(v: f32) -> f32 {
    f16::from_f32(v).to_f32()
}
