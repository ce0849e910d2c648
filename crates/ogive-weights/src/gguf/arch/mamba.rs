//! `mamba`: the first Mamba, and Falcon-Mamba, which a flag tells from it.

use crate::gguf::settings::copy;
use crate::gguf::{Change, Header, Rule, Settings, Translation};
use ogive_tensor::Result;
use serde_json::json;

pub(super) fn mamba() -> Translation {
    let t = Translation::new("mamba", "MambaForCausalLM")
        .rename("token_embd", "backbone.embeddings")
        .rename("output_norm", "backbone.norm_f")
        .rename("output", "lm_head")
        .rename("blk.{}.attn_norm", "backbone.layers.{}.norm");
    with_spaces(t, "backbone.layers.{}.mixer").settings(settings)
}

/// Adds the tensors of a state space, which Hugging Face has at `place`. Decays are kept as `-exp(A_log)`.
pub(super) fn with_spaces(t: Translation, place: &str) -> Translation {
    let at = |leaf: &str| format!("{place}.{leaf}");
    let changed = |from: &str, leaf: &str, change: Change| Rule::changed([from], at(leaf), change);
    t.rename("blk.{}.ssm_in", &at("in_proj"))
        .rename("blk.{}.ssm_x", &at("x_proj"))
        .rename("blk.{}.ssm_dt", &at("dt_proj"))
        .rename("blk.{}.ssm_out", &at("out_proj"))
        .rule(changed("blk.{}.ssm_conv1d.weight", "conv1d.weight", Change::flat_taps()))
        .rule(Rule::new("blk.{}.ssm_conv1d.bias", at("conv1d.bias")))
        .rule(changed("blk.{}.ssm_a", "A_log", Change::logarithm()))
        .rule(Rule::new("blk.{}.ssm_d", at("D")))
}

/// What llama.cpp's converter does not write, as llama.cpp norms with one epsilon: that of Falcon-Mamba's norms of what goes into states.
const EPSILON: &str = "ssm.dt_b_c_rms_epsilon";

fn settings(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    let sizes = [
        ("ssm.conv_kernel", "conv_kernel"),
        ("ssm.state_size", "state_size"),
        ("ssm.time_step_rank", "time_step_rank"),
        ("ssm.inner_size", "intermediate_size"),
    ];
    copy(header, settings, &sizes)?;
    if header.value("ssm.dt_b_c_rms")? == Some(json!(true)) {
        settings.insert("architectures".into(), json!(["FalconMambaForCausalLM"]));
        let one = settings.get("rms_norm_eps").cloned();
        if let Some(eps) = header.value(EPSILON)?.or(one) {
            settings.insert("mixer_rms_eps".into(), eps);
        }
    }
    Ok(())
}
