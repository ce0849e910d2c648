//! The base of rotary positions that an `alpha` makes.
//!
//! Here and not with the architecture that has it: what converts models knows no architectures, and writes the base that they turn by.

use crate::{Config, Error, Result};

/// The base that heads of `head_dim` elements are turned by where `rope_scaling` is `dynamic` and has an `alpha` (HunYuan): `rope_theta`
/// times `alpha` to the power of `head_dim / (head_dim - 2)`, whatever the context, as transformers' `modeling_hunyuan_v1_dense` has it. `None`
/// where there is none, or it is 0.
///
/// # Errors
/// If a setting is of a wrong type, one of the two numbers is not above 0, or the base is none that a single can hold.
pub fn rope_theta_by_alpha(config: &Config, head_dim: usize) -> Result<Option<f32>> {
    let scaling = config.at("rope_scaling");
    let alpha = scaling.opt_f32("alpha")?.filter(|alpha| *alpha != 0.0);
    let Some(alpha) = alpha.filter(|_| scaling.0.get("rope_type").is_some_and(|kind| kind == "dynamic"))
    else {
        return Ok(None);
    };
    let (theta, dim) = (config.f32_or("rope_theta", 10_000.0)?, head_dim as f64);
    let base = (f64::from(theta) * f64::from(alpha).powf(dim / (dim - 2.0).max(1.0))) as f32;
    if theta > 0.0 && alpha > 0.0 && base > 0.0 && base.is_finite() {
        return Ok(Some(base));
    }
    let why = format!(
        "`rope_theta` {theta} and `alpha` {alpha} should be above 0, and the base that they make no more than a single can hold"
    );
    Err(Error::invalid("config", why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_base_is_one_or_refused() {
        let of = |alpha: f64, theta: f64| {
            let scaling = json!({"rope_type": "dynamic", "alpha": alpha});
            rope_theta_by_alpha(&Config(json!({"rope_scaling": scaling, "rope_theta": theta})), 4)
        };
        // 10 to the power of 4 / 2.
        assert_eq!(of(10.0, 100.0).unwrap(), Some(1e4));
        assert_eq!(of(0.0, 100.0).unwrap(), None);
        let plain = Config(json!({"rope_scaling": {"rope_type": "linear", "alpha": 10.0}}));
        assert_eq!(rope_theta_by_alpha(&plain, 4).unwrap(), None);
        for (alpha, theta) in [(-2.0, 100.0), (1e38, 100.0), (1e300, 100.0), (10.0, -1.0), (1e-30, 1.0)] {
            assert!(of(alpha, theta).unwrap_err().to_string().contains("`alpha`"), "{alpha} {theta}");
        }
    }
}
