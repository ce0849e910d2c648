//! Least squares over whole-number codes: the scale (and minimum) of a sub-block of a K-quant.
//!
//! For given codes the best scale is a division, for a given scale the best codes are roundings; the joint optimum is
//! neither. So a short list of starting scales around the one that just covers the values is tried, each improved by one
//! least-squares step, and the best is kept. The list is short on purpose: the gain of a longer one is under 1 %. Squares are
//! counted by the importance of their elements; where those differ, the list is longer, and codes and scales are fitted to each other in turn.

use super::importance::{Alike, Importance};

/// Numbers seen as `scale · code - min`; neither is negative.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Affine {
    pub(super) scale: f32,
    pub(super) min: f32,
}

impl Affine {
    /// What the values are off by with codes from 0 to `levels`, squared and summed up by importance.
    fn off(self, x: &[f32], w: impl Importance, levels: f32) -> f32 {
        let inverse = inverse(self.scale);
        let mut sums = [0.0_f32; 8];
        for (i, x) in x.as_chunks::<8>().0.iter().enumerate() {
            let w = w.eight(i);
            for lane in 0..8 {
                let q = nearest(((x[lane] + self.min) * inverse).max(0.0).min(levels));
                sums[lane] += w[lane] * (self.scale * q - self.min - x[lane]).powi(2);
            }
        }
        sums.iter().sum()
    }
}

/// Sums over a sub-block for one choice of codes, by importance.
#[derive(Default)]
struct Sums {
    q: f32,
    qq: f32,
    qx: f32,
}

/// Codes the values as `v · inverse`, rounded and held within `range`, and sums up. Eight sums run side by side, because
/// the order of additions is fixed by the program and one long sum would keep the machine's wide registers idle.
fn sums(x: &[f32], w: impl Importance, inverse: f32, range: (f32, f32)) -> Sums {
    let (mut q_sum, mut qq_sum, mut qx_sum) = ([0.0_f32; 8], [0.0_f32; 8], [0.0_f32; 8]);
    for (i, x) in x.as_chunks::<8>().0.iter().enumerate() {
        let w = w.eight(i);
        for lane in 0..8 {
            let q = nearest((x[lane] * inverse).max(range.0).min(range.1));
            let wq = w[lane] * q;
            q_sum[lane] += wq;
            qq_sum[lane] += wq * q;
            qx_sum[lane] += wq * x[lane];
        }
    }
    Sums { q: q_sum.iter().sum(), qq: qq_sum.iter().sum(), qx: qx_sum.iter().sum() }
}

/// The best fit found with codes from 0 to `greatest`, for at most 32 values. Zero is always within reach, as `min` cannot
/// be negative.
pub(super) fn affine<W: Importance>(x: &[f32], w: W, greatest: u8) -> Affine {
    let low = x.iter().fold(0.0_f32, |m, &v| if v < m { v } else { m });
    let high = x.iter().fold(low, |m, &v| if v > m { v } else { m });
    let (range, levels, n) = (high - low, f32::from(greatest), w.sum(x.len()));
    if range <= 0.0 {
        return Affine { scale: 0.0, min: -low };
    }
    // Counted from the least value: sums of squares of values far from zero would drown the differences.
    let mut above = [0.0_f32; 32];
    above.iter_mut().zip(x).for_each(|(y, v)| *y = v - low);
    let y = &above[..x.len().min(32)];
    let sy = y.iter().enumerate().map(|(i, y)| w.at(i) * y).sum::<f32>();
    let syy = y.iter().enumerate().map(|(i, y)| w.at(i) * y * y).sum::<f32>();

    let fit = |Sums { q, qq, qx: qy }: Sums| {
        let det = n * qq - q * q;
        let (scale, shift) = ((n * qy - q * sy) / det, (q * qy - qq * sy) / det);
        if shift >= low {
            (Affine { scale, min: shift - low }, syy - scale * qy + shift * sy)
        } else {
            // The minimum may not be negative: a line through zero, in the values themselves.
            let (qx, xx) = (qy + low * q, syy + low * (2.0 * sy + n * low));
            (Affine { scale: qx / qq, min: 0.0 }, xx - qx * qx / qq)
        }
    };
    let mut best = Affine { scale: range / levels, min: -low };
    let mut least = f32::INFINITY;
    let mut keep = |(fit, error): (Affine, f32)| {
        let error = if W::MEASURED { fit.off(x, w, levels) } else { error };
        let better = error < least && fit.scale > 0.0 && fit.scale.is_finite() && fit.min.is_finite();
        if better {
            (best, least) = (fit, error);
        }
        better.then_some(fit)
    };
    // No worse than without importances.
    let mut last = if W::MEASURED { keep((affine(x, Alike, greatest), 0.0)) } else { None };
    for step in 0..W::STARTS {
        // Fewer levels than there are cut nothing off; more cut the extremes.
        let inverse = (levels - 0.7 + 0.1 * f32::from(step)) / range;
        last = keep(fit(sums(y, w, inverse, (0.0, levels)))).or(last);
    }
    for _ in 0..W::ROUNDS {
        let Some(Affine { scale, min }) = last else { break };
        let (mut seen, up) = ([0.0_f32; 32], min + low);
        seen.iter_mut().zip(y).for_each(|(z, y)| *z = y + up);
        let Sums { q, qq, qx } = sums(&seen[..y.len()], w, 1.0 / scale, (0.0, levels));
        last = keep(fit(Sums { q, qq, qx: qx - up * q }));
    }
    best
}

/// The factors of scales and minima that fit best when codes, scales and minima stay.
pub(super) fn refit_affine(
    x: &[f32],
    w: impl Importance,
    codes: &[u8],
    scales: &[u8],
    mins: &[u8],
) -> Option<(f32, f32)> {
    let sub = x.len() / scales.len();
    let (mut aa, mut ab, mut bb, mut ax, mut bx) = (0.0_f32, 0.0_f32, 0.0_f32, 0.0_f32, 0.0_f32);
    for (e, (&v, &q)) in x.iter().zip(codes).enumerate() {
        let (a, b) = (f32::from(scales[e / sub]) * f32::from(q), -f32::from(mins[e / sub]));
        let (wa, wb) = (w.at(e) * a, w.at(e) * b);
        aa += wa * a;
        ab += wa * b;
        bb += wb * b;
        ax += wa * v;
        bx += wb * v;
    }
    if bb == 0.0 {
        return (aa > 0.0 && (ax / aa).is_finite()).then(|| (ax / aa, 0.0));
    }
    let det = aa * bb - ab * ab;
    let (d, dmin) = ((ax * bb - bx * ab) / det, (bx * aa - ax * ab) / det);
    (det > 0.0 && d >= 0.0 && dmin >= 0.0 && d.is_finite() && dmin.is_finite()).then_some((d, dmin))
}

/// The scale, of either sign, that fits best with codes from `-half` to `half - 1`.
pub(super) fn symmetric<W: Importance>(x: &[f32], w: W, half: i8) -> f32 {
    let furthest = x.iter().fold(0.0_f32, |m, &v| if v.abs() > m.abs() { v } else { m });
    if furthest == 0.0 {
        return 0.0;
    }
    let n = f32::from(half);
    // Of a fit s = Σqx / Σqq the error is Σxx - (Σqx)² / Σqq: only the last term is compared.
    let (mut best, mut most) = (furthest / -n, f32::MIN);
    for step in -9..=9_i8 {
        let inverse = -(n + 0.1 * f32::from(step)) / furthest;
        let Sums { qq, qx, .. } = sums(x, w, inverse, (-n, n - 1.0));
        let gain = qx * qx / qq;
        if gain > most && (qx / qq).is_finite() {
            (best, most) = (qx / qq, gain);
        }
    }
    for _ in 0..W::ROUNDS {
        let Sums { qq, qx, .. } = sums(x, w, 1.0 / best, (-n, n - 1.0));
        let gain = qx * qx / qq;
        if gain <= most || gain.is_nan() || !(qx / qq).is_finite() {
            break;
        }
        (best, most) = (qx / qq, gain);
    }
    best
}

/// The factor of scales that fits best when codes and scales stay.
pub(super) fn refit_symmetric(
    x: &[f32],
    w: impl Importance,
    codes: &[u8],
    scales: &[i8],
    half: i8,
) -> Option<f32> {
    let sub = x.len() / scales.len();
    let (mut aa, mut ax) = (0.0_f32, 0.0_f32);
    for (e, (&v, &q)) in x.iter().zip(codes).enumerate() {
        let a = f32::from(scales[e / sub]) * (f32::from(q) - f32::from(half));
        aa += w.at(e) * a * a;
        ax += w.at(e) * a * v;
    }
    (aa > 0.0 && (ax / aa).is_finite()).then(|| ax / aa)
}

/// 1.5 · 2²³: added to a value up to 2²² in size, it leaves no bits for a fraction.
const NO_FRACTION: f32 = 12_582_912.0;

/// The nearest whole number, of two the even one, for values up to 2²² in size. Machines without a rounding instruction do this
/// much faster than the standard library's rounding.
fn nearest(v: f32) -> f32 {
    (v + NO_FRACTION) - NO_FRACTION
}

/// `value.round() as i8`: the nearest whole number, of two the one farther from zero. The standard library's rounding is a call
/// where the machine at hand need not have an instruction for it; this is compiled into vectors.
pub(super) fn signed(value: f32) -> i8 {
    let value = if value.is_nan() { 0.0 } else { value.clamp(-128.0, 127.0) };
    let whole = nearest(value);
    let fraction = value - whole;
    let code = (value + NO_FRACTION).to_bits() as i32 - NO_FRACTION.to_bits() as i32;
    // Of two equally near ones that is the even one.
    (code + i32::from(fraction == 0.5 && value > 0.0) - i32::from(fraction == -0.5 && value < 0.0)) as i8
}

/// `value` rounded to a whole number from 0 to `max`; NaN gives 0.
pub(super) fn code(value: f32, max: u8) -> u8 {
    ((value + 0.5) as u8).min(max)
}

/// `1 / d`, or 0 for 0.
pub(super) fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

#[cfg(test)]
mod tests {
    use super::signed;

    #[test]
    fn rounding_to_eight_bits_is_that_of_the_standard_library() {
        let near = (-1040..=1040).flat_map(|i| {
            let v = i as f32 / 8.0;
            [v.next_down(), v, v.next_up()]
        });
        let far = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, f32::MIN_POSITIVE, -0.0];
        for v in near.chain(far) {
            assert_eq!(signed(v), v.round() as i8, "{v}");
        }
    }
}
