//! How DeepSeek's tokens choose their experts: all of them, or those of the best groups.
//!
//! The groups are so many experts each, one after the other, which are on a machine of their own in training.

use ogive_nn::Config;
use ogive_nn::backend::{RouterSpec, Scoring};
use ogive_nn::tensor::{Error, Result, Tensor};

/// V2's way: shares of all experts, as they are. A group is worth its best expert.
pub(crate) fn deepseek_v2(c: &Config) -> Result<RouterSpec> {
    only(c, "scoring_func", &["softmax"])?;
    if c.bool_or("norm_topk_prob", false)? {
        let why = "`norm_topk_prob` is on, which for DeepSeek-V2 has no meaning that is agreed on";
        return Err(Error::unsupported("config", why));
    }
    let router = RouterSpec::new(c.usize("num_experts_per_tok")?, Scoring::Softmax);
    let router = router.unnormalised(c.f32_or("routed_scaling_factor", 1.0)?);
    Ok(match only(c, "topk_method", &["greedy", "group_limited_greedy"])? {
        "greedy" => router,
        _ => router.grouped(c.usize("n_group")?, c.usize("topk_group")?, 1),
    })
}

/// V3's way: each expert is scored by itself, and `bias` counts for the choice. A group is worth its two best experts.
pub(crate) fn deepseek_v3(c: &Config, bias: Tensor) -> Result<RouterSpec> {
    only(c, "scoring_func", &["sigmoid"])?;
    only(c, "topk_method", &["noaux_tc"])?;
    let router = RouterSpec::new(c.usize("num_experts_per_tok")?, Scoring::Sigmoid);
    let mut router = router.grouped(c.usize_or("n_group", 1)?, c.usize_or("topk_group", 1)?, 2).biased(bias);
    router.normalise = c.bool_or("norm_topk_prob", true)?;
    router.scale = c.f32_or("routed_scaling_factor", 1.0)?;
    Ok(router)
}

/// The setting `key`, one of those that are known, of which the first is meant by silence.
fn only<'a>(c: &'a Config, key: &str, known: &[&'a str]) -> Result<&'a str> {
    let said = c.opt_str(key)?.unwrap_or(known[0]);
    if known.contains(&said) {
        return Ok(said);
    }
    let why = format!("`{key}` is `{said}`; of this class is known {}", known.join(", "));
    Err(Error::unsupported("config", why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_conformance::Oracle;
    use ogive_nn::backend::Backend;
    use ogive_nn::tensor::serde_json::{Value, json};

    fn with(settings: Value, more: Value) -> Config {
        let mut c = Config(settings);
        c.0.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        c
    }

    fn v2(more: Value) -> Result<RouterSpec> {
        let settings =
            json!({"num_experts_per_tok": 6, "routed_scaling_factor": 16.0, "n_group": 8, "topk_group": 3});
        let router = deepseek_v2(&with(settings, more))?;
        router.check(160).map(|()| router)
    }

    fn v3(more: Value) -> Result<RouterSpec> {
        let settings = json!({"num_experts_per_tok": 8, "routed_scaling_factor": 2.5, "n_group": 8, "topk_group": 4,
            "scoring_func": "sigmoid", "topk_method": "noaux_tc"});
        let bias = Oracle.upload(&[0.0; 256], [256].into()).unwrap();
        let router = deepseek_v3(&with(settings, more), bias)?;
        router.check(256).map(|()| router)
    }

    #[test]
    fn each_class_has_its_way_of_choosing() {
        let r = v2(json!({})).unwrap();
        assert_eq!((r.scoring, r.normalise, r.scale, r.groups), (Scoring::Softmax, false, 16.0, [1, 1]));
        let r = v2(json!({"topk_method": "group_limited_greedy"})).unwrap();
        assert_eq!((r.groups, r.group_best, r.bias.is_some()), ([8, 3], 1, false));
        let r = v3(json!({})).unwrap();
        assert_eq!((r.scoring, r.normalise, r.scale, r.groups), (Scoring::Sigmoid, true, 2.5, [8, 4]));
        assert_eq!((r.group_best, r.bias.is_some()), (2, true));
        let r = v3(json!({"norm_topk_prob": false, "n_group": null, "topk_group": null})).unwrap();
        assert_eq!((r.normalise, r.scale, r.groups), (false, 2.5, [1, 1]));
    }

    #[test]
    fn what_is_not_known_or_does_not_fit_is_refused() {
        let grouped = |more: Value| {
            let method = json!({"topk_method": "group_limited_greedy"});
            with(method, more).0
        };
        for (got, why) in [
            (v2(json!({"scoring_func": "sigmoid"})), "`scoring_func` is `sigmoid`"),
            (v2(json!({"topk_method": "noaux_tc"})), "of this class is known greedy, group_limited_greedy"),
            (v2(json!({"norm_topk_prob": true})), "`norm_topk_prob`"),
            (v2(grouped(json!({"n_group": 7}))), "160 experts in 7 groups"),
            (v2(grouped(json!({"n_group": 0}))), "experts in 0 groups"),
            (v2(grouped(json!({"topk_group": 9}))), "of which 9 are chosen"),
            (v2(grouped(json!({"n_group": null}))), "n_group"),
            (v2(json!({"num_experts_per_tok": 161})), "161 experts of 160"),
            (v3(json!({"scoring_func": "softmax"})), "`scoring_func` is `softmax`"),
            (v3(json!({"topk_method": "greedy"})), "`topk_method` is `greedy`"),
            (v3(json!({"num_experts_per_tok": 0})), "0 experts of 128"),
            (v3(json!({"topk_group": 0})), "of which 0 are chosen"),
            (v3(json!({"num_experts_per_tok": 129})), "129 experts of 128"),
        ] {
            let e = got.unwrap_err().to_string();
            assert!(e.contains(why), "{why}: {e}");
        }
    }
}
