//! `mamba2`, and layers with a selective state space, as the architectures that have some share them.

use crate::gguf::settings::copy;
use crate::gguf::{Change, Header, Rule, Settings, Translation};
use ogive_tensor::{Error, Result};

pub(super) fn mamba2() -> Translation {
    let t = Translation::new("mamba2", "Mamba2ForCausalLM")
        .rename("token_embd", "backbone.embeddings")
        .rename("output_norm", "backbone.norm_f")
        .rename("output", "lm_head")
        .rename("blk.{}.attn_norm", "backbone.layers.{}.norm");
    with_spaces(t, "backbone.layers.{}.mixer", "n_groups").settings(|header, settings| {
        let sizes = [
            ("ssm.conv_kernel", "conv_kernel"),
            ("ssm.state_size", "state_size"),
            ("ssm.group_count", "n_groups"),
        ];
        copy(header, settings, &sizes)?;
        heads(header, settings, ["num_heads", "head_dim"])
    })
}

/// Adds their tensors, which Hugging Face has at `place`. Decays are kept as `-exp(A_log)`, one in a row of its own, and the norm of what comes
/// out with a row for each of as many groups as the setting `groups` says.
pub(super) fn with_spaces(t: Translation, place: &str, groups: &'static str) -> Translation {
    let each = Change::flat(None);
    let at = |leaf: &str| format!("{place}.{leaf}");
    let changed = |from: &str, leaf: &str, change: &Change| Rule::changed([from], at(leaf), change.clone());
    t.rename("blk.{}.ssm_in", &at("in_proj"))
        .rename("blk.{}.ssm_out", &at("out_proj"))
        .rule(changed("blk.{}.ssm_conv1d.weight", "conv1d.weight", &Change::flat_taps()))
        .rule(Rule::new("blk.{}.ssm_conv1d.bias", at("conv1d.bias")))
        .rule(Rule::new("blk.{}.ssm_dt.bias", at("dt_bias")))
        .rule(changed("blk.{}.ssm_a", "A_log", &each.clone().then(Change::logarithm())))
        .rule(changed("blk.{}.ssm_d", "D", &each))
        .rule(changed("blk.{}.ssm_norm.weight", "norm.weight", &Change::flat(Some(groups))))
}

/// Sets how many heads there are and of how many elements each, by these settings.
pub(super) fn heads(
    header: &Header<'_>,
    settings: &mut Settings,
    [heads, head_dim]: [&'static str; 2],
) -> Result<()> {
    copy(header, settings, &[("ssm.time_step_rank", heads)])?;
    let (inner, count) = (header.usize("ssm.inner_size")?, header.usize("ssm.time_step_rank")?);
    if let Some((inner, count)) = inner.zip(count.filter(|n| *n > 0)) {
        if inner % count != 0 {
            let why = format!("{inner} elements are not {count} heads of one size");
            return Err(Error::invalid("ssm.inner_size", why));
        }
        settings.insert(head_dim.into(), (inner / count).into());
    }
    Ok(())
}
