//! Elementary functions, one definition for every path and every caller.
//!
//! Our own and not the standard library's, for two reasons: a loop over these vectorises, and they give the same bits
//! on every platform. They are written with fused multiply-adds, which round once wherever they run, so the scalar and
//! the vector path agree bit for bit. Coefficients are Chebyshev fits made with 40 digits; each function says how far
//! it is from the true value, and the tests hold it to that.

use ogive_backend::{Activation, Xielu};
use ogive_tensor::{Error, Result};

/// `1.5 * 2^23`: adding it rounds to an integer, which then stands in the low bits.
const ROUND: f32 = 12_582_912.0;

/// Horner's rule, highest coefficient first.
#[inline(always)]
fn poly<const N: usize>(x: f32, c: [f32; N]) -> f32 {
    let mut y = c[0];
    for &c in &c[1..] {
        y = y.mul_add(x, c);
    }
    y
}

/// `y` and `n + ROUND` of `e^x = y * 2^n`, with `y` near 1; nothing of use where `n` would not be a small integer.
#[inline(always)]
fn parts_of_exp(x: f32) -> (f32, f32) {
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    // ln 2 in two parts: the product with the first is exact.
    let r = (-n).mul_add(1.428_606_8e-6, (-n).mul_add(0.693_145_75, x));
    let q = poly(r, [1.989_198e-4, 1.393_454_2e-3, 8.333_31e-3, 4.166_645_7e-2, 1.666_666_7e-1, 0.5]);
    ((r * r).mul_add(q, r) + 1.0, shifted)
}

/// `e^x` within 1 ulp where the result is normal; 0 below -103.98, infinity above 88.73, NaN for NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Outside these bounds the result is 0 or infinity anyway; inside them no exponent overflows. `clamp` keeps NaN.
    let x = x.clamp(-110.0, 100.0);
    let (y, shifted) = parts_of_exp(x);
    // 2^n in two halves, so that subnormal results are rounded once and large ones become infinity.
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = n >> 1;
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
    y * power(half) * power(n.wrapping_sub(half))
}

/// `e^x` for what is not above 0, and for NaN: the bits of [`exp`] where the result is normal, else 0.
#[inline(always)]
pub(crate) fn exp_down(x: f32) -> f32 {
    let (y, shifted) = parts_of_exp(x);
    let power = shifted.to_bits().wrapping_sub(ROUND.to_bits() - 127) << 23;
    // ln 2^-126, rounded up.
    if x < -87.336_54 { 0.0 } else { y * f32::from_bits(power) }
}

/// `1 / (1 + e^-x)` within 3 ulp.
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `tanh x` within 2 ulp.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let u = x * x;
    let near = poly(
        u,
        [2.246_003_6e-3, -8.301_696e-3, 2.175_57e-2, -5.395_759_5e-2, 1.333_329_6e-1, -3.333_333_3e-1],
    );
    let near = (u * x).mul_add(near, x);
    let far = (1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0)).copysign(x);
    if x.abs() < 0.625 { near } else { far }
}

/// `ln(1 + e^x)` within 3 ulp.
#[inline(always)]
pub(crate) fn softplus(x: f32) -> f32 {
    let e = exp(-x.abs());
    let q = poly(
        e,
        [
            2.801_642e-3,
            -1.718_426_8e-2,
            4.930_997_3e-2,
            -9.139_413_6e-2,
            1.303_336_4e-1,
            -1.636_515_3e-1,
            1.995_670_8e-1,
            -2.499_676e-1,
            3.333_324e-1,
            -0.5,
        ],
    );
    (if x < 0.0 { 0.0 } else { x }) + (e * e).mul_add(q, e)
}

/// The normal distribution's `P(X < x)`, absolutely within 2e-7.
#[inline(always)]
fn normal_cdf(x: f32) -> f32 {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    // erfc(z) e^(z^2) is smooth in 1 / (1 + z / 2).
    let t = 1.0 / z.mul_add(0.5, 1.0);
    let c = poly(
        t,
        [
            3.239_865e-2,
            -1.716_289e-1,
            3.325_686_6e-1,
            -2.189_932_8e-1,
            -8.664_944e-2,
            7.456_795e-2,
            3.905_752e-2,
            1.897_954_7e-1,
            2.444_791e-1,
            2.823_184_3e-1,
            2.820_858_5e-1,
        ],
    );
    let tail = 0.5 * t * c * exp(-z * z);
    if x > 0.0 { 1.0 - tail } else { tail }
}

/// `x P(X < x)`: the exact GELU, absolutely within 2e-7 times `max(1, |x|)`.
#[inline(always)]
pub(crate) fn gelu(x: f32) -> f32 {
    // The product of -infinity and 0 is not the limit.
    let y = x * normal_cdf(x);
    if x == f32::NEG_INFINITY { 0.0 } else { y }
}

/// GELU's tanh approximation.
#[inline(always)]
pub(crate) fn gelu_tanh(x: f32) -> f32 {
    0.5 * x * (1.0 + tanh(0.797_884_6 * (0.044_715 * x * x).mul_add(x, x)))
}

/// `x * sigmoid(1.702 x)` within 3 ulp of it with `1.702 x` rounded.
#[inline(always)]
pub(crate) fn quick_gelu(x: f32) -> f32 {
    x / (1.0 + exp(-1.702 * x))
}

/// `x * sigmoid(x)` within 3 ulp.
#[inline(always)]
pub(crate) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// `max(0, x)`
#[inline(always)]
pub(crate) fn relu(x: f32) -> f32 {
    // A comparison, as `max` would make 0 of what is no number.
    if x < 0.0 { 0.0 } else { x }
}

/// `max(0, x)^2`, rounded once.
#[inline(always)]
pub(crate) fn relu_squared(x: f32) -> f32 {
    let x = relu(x);
    x * x
}

/// `e^x - 1 - x` for what is not above 0, within 3e-7 of its value.
#[inline(always)]
fn beside_tangent(x: f32) -> f32 {
    // Taylor's series, as the difference has no digits left near 0.
    let near = poly(
        x,
        [
            2.505_210_8e-8,
            2.755_732e-7,
            2.755_732e-6,
            2.480_158_7e-5,
            1.984_127e-4,
            1.388_888_9e-3,
            8.333_334e-3,
            4.166_666_8e-2,
            1.666_666_7e-1,
            0.5,
        ],
    );
    let far = exp(x) - 1.0 - x;
    if x > -1.0 { x * x * near } else { far }
}

/// xIELU.
#[inline(always)]
pub(crate) fn xielu(x: f32, f: Xielu) -> f32 {
    // Comparisons, as `min` would make the bound of what is no number.
    let bounded = if x > f.bound { f.bound } else { x };
    let below = f.negative * (beside_tangent(bounded) + (bounded - x));
    let curved = if x > 0.0 { f.positive * x * x } else { below };
    f.linear.mul_add(x, curved)
}

/// One activation, chosen once for a whole slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Silu,
    Gelu,
    GeluTanh,
    QuickGelu,
    Tanh,
    Exp,
    Softplus,
    Sigmoid,
    Relu,
    ReluSquared,
    Xielu(Xielu),
}

impl Function {
    /// What `f` asks for; an error for one this backend does not know.
    pub(crate) fn of(f: Activation) -> Result<Self> {
        Ok(match f {
            Activation::Silu => Self::Silu,
            Activation::Gelu => Self::Gelu,
            Activation::GeluTanh => Self::GeluTanh,
            Activation::QuickGelu => Self::QuickGelu,
            Activation::Tanh => Self::Tanh,
            Activation::Exp => Self::Exp,
            Activation::Softplus => Self::Softplus,
            Activation::Sigmoid => Self::Sigmoid,
            Activation::Relu => Self::Relu,
            Activation::ReluSquared => Self::ReluSquared,
            Activation::Xielu(numbers) => Self::Xielu(numbers),
            other => return Err(Error::unsupported("activate", format!("the CPU backend has no {other:?}"))),
        })
    }

    /// Applies it to every element.
    #[inline(always)]
    pub(crate) fn apply(self, x: &mut [f32]) {
        match self {
            Self::Silu => x.iter_mut().for_each(|v| *v = silu(*v)),
            Self::Gelu => x.iter_mut().for_each(|v| *v = gelu(*v)),
            Self::GeluTanh => x.iter_mut().for_each(|v| *v = gelu_tanh(*v)),
            Self::QuickGelu => x.iter_mut().for_each(|v| *v = quick_gelu(*v)),
            Self::Tanh => x.iter_mut().for_each(|v| *v = tanh(*v)),
            Self::Exp => x.iter_mut().for_each(|v| *v = exp(*v)),
            Self::Softplus => x.iter_mut().for_each(|v| *v = softplus(*v)),
            Self::Sigmoid => x.iter_mut().for_each(|v| *v = sigmoid(*v)),
            Self::Relu => x.iter_mut().for_each(|v| *v = relu(*v)),
            Self::ReluSquared => x.iter_mut().for_each(|v| *v = relu_squared(*v)),
            Self::Xielu(numbers) => x.iter_mut().for_each(|v| *v = xielu(*v, numbers)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worst(f: fn(f32) -> f32, truth: fn(f64) -> f64, from: f32, to: f32) -> f64 {
        let step = (to - from) / 200_000.0;
        (0..=200_000)
            .map(|i| from + step * i as f32)
            .map(|x| {
                let want = truth(f64::from(x));
                let ulp = f64::from(f32::from_bits((want.abs() as f32).max(f32::MIN_POSITIVE).to_bits() + 1))
                    - f64::from((want.abs() as f32).max(f32::MIN_POSITIVE));
                (f64::from(f(x)) - want).abs() / ulp
            })
            .fold(0.0, f64::max)
    }

    #[test]
    fn are_as_close_as_they_say() {
        let exp_worst = worst(exp, f64::exp, -87.0, 88.7).max(worst(exp, f64::exp, -1.0, 1.0));
        assert!(exp_worst <= 1.0, "exp {exp_worst}");
        let sigmoid_worst = worst(sigmoid, |x| 1.0 / (1.0 + (-x).exp()), -80.0, 80.0);
        assert!(sigmoid_worst <= 3.0, "sigmoid {sigmoid_worst}");
        let tanh_worst = worst(tanh, f64::tanh, -10.0, 10.0).max(worst(tanh, f64::tanh, -1.0, 1.0));
        assert!(tanh_worst <= 2.0, "tanh {tanh_worst}");
        let soft = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
        let soft_worst = worst(softplus, soft, -80.0, 80.0).max(worst(softplus, soft, -2.0, 2.0));
        assert!(soft_worst <= 3.0, "softplus {soft_worst}");
        let silu_worst = worst(silu, |x| x / (1.0 + (-x).exp()), -80.0, 80.0);
        assert!(silu_worst <= 3.0, "silu {silu_worst}");
        let beside = |x: f64| if x > -1e-2 { x * x * (0.5 + x / 6.0 + x * x / 24.0) } else { x.exp_m1() - x };
        let beside_worst =
            worst(beside_tangent, beside, -80.0, 0.0).max(worst(beside_tangent, beside, -2.0, 0.0));
        assert!(beside_worst <= 4.0, "beside_tangent {beside_worst}");
        let turned = |x: f64| x / (1.0 + f64::from(-1.702f32 * x as f32).exp());
        let quick_worst = worst(quick_gelu, turned, -47.0, 47.0);
        assert!(quick_worst <= 3.0, "quick_gelu {quick_worst}");
    }

    /// The integral of the normal density by Simpson's rule.
    fn cdf(x: f64) -> f64 {
        let (n, density) = (2000, |t: f64| (-0.5 * t * t).exp() / (2.0 * std::f64::consts::PI).sqrt());
        let h = x / f64::from(n);
        let inner: f64 = (1..n).map(|i| density(h * f64::from(i)) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
        0.5 + h / 3.0 * (density(0.0) + inner + density(x))
    }

    #[test]
    fn gelu_is_close() {
        for i in -800..=800 {
            let x = i as f32 * 0.0125;
            let want = f64::from(x) * cdf(f64::from(x));
            let far = (f64::from(gelu(x)) - want).abs() / f64::from(x.abs().max(1.0));
            assert!(far < 2e-7, "gelu({x}) {far}");
        }
    }

    #[test]
    fn going_down_the_bits_are_the_same_until_there_is_nothing() {
        for i in 0..2_000_000 {
            let x = i as f32 * -5e-5;
            let normal = exp(x) >= f32::MIN_POSITIVE;
            assert_eq!(exp_down(x).to_bits(), if normal { exp(x).to_bits() } else { 0 }, "{x}");
        }
        let edge = (-87.336_54f32).to_bits();
        assert!((edge - 2..edge + 3).all(|b| {
            let x = f32::from_bits(b);
            exp_down(x) == if exp(x) >= f32::MIN_POSITIVE { exp(x) } else { 0.0 }
        }));
        assert_eq!((exp_down(f32::NEG_INFINITY), exp_down(f32::MIN), exp_down(-0.0)), (0.0, 0.0, 1.0));
        assert!(exp_down(f32::NAN).is_nan());
    }

    #[test]
    fn limits_are_right() {
        let inf = f32::INFINITY;
        assert_eq!((exp(-inf), exp(inf), exp(0.0), exp(-104.5), exp(89.0)), (0.0, inf, 1.0, 0.0, inf));
        assert_eq!((tanh(inf), tanh(-inf), sigmoid(inf), sigmoid(-inf)), (1.0, -1.0, 1.0, 0.0));
        assert_eq!((gelu(inf), gelu(-inf), softplus(inf), softplus(-inf)), (inf, 0.0, inf, 0.0));
        assert_eq!((relu(inf), relu(-inf), relu(-2.0)), (inf, 0.0, 0.0));
        assert_eq!((relu_squared(inf), relu_squared(-inf), relu_squared(-2.0)), (inf, 0.0, 0.0));
        for f in [exp, tanh, sigmoid, gelu, softplus, silu, gelu_tanh, quick_gelu, relu, relu_squared] {
            assert!(f(f32::NAN).is_nan());
        }
        // Subnormal results are there too, rounded once or nearly so.
        assert!((f64::from(exp(-100.0)) / (-100.0f64).exp() - 1.0).abs() < 0.02);
    }
}
