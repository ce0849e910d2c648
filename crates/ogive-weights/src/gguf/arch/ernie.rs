//! `ernie4_5` and `ernie4_5-moe`: Baidu's ERNIE 4.5. Neighbours turn together in Hugging Face's files as well, so nothing is reordered.

use super::deepseek::with_stacks;
use crate::gguf::settings::{copy, of_one_dimension, whole};
use crate::gguf::{Header, Rule, Settings, Translation};
use ogive_tensor::Result;
use serde_json::json;

pub(super) fn ernie() -> Translation {
    Translation::decoder("ernie4_5", "Ernie4_5ForCausalLM").settings(|header, _| of_one_dimension(header))
}

pub(super) fn ernie_moe() -> Translation {
    with_stacks(Translation::decoder("ernie4_5-moe", "Ernie4_5_MoeForCausalLM"))
        .rule(Rule::new("blk.{}.exp_probs_b.bias", "model.layers.{}.mlp.moe_statics.e_score_correction_bias"))
        .settings(|header, settings| {
            of_one_dimension(header)?;
            mixture(header, settings)
        })
}

fn mixture(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    settings.insert("moe_layer_start_index".into(), json!(0));
    settings.insert("moe_num_shared_experts".into(), json!(0));
    copy(
        header,
        settings,
        &[
            ("expert_count", "moe_num_experts"),
            ("expert_used_count", "moe_k"),
            ("expert_shared_count", "moe_num_shared_experts"),
            ("expert_feed_forward_length", "moe_intermediate_size"),
            ("leading_dense_block_count", "moe_layer_start_index"),
            ("interleave_moe_layer_step", "moe_layer_interval"),
        ],
    )?;
    // Whether there is one llama.cpp asks its width.
    if header.usize("expert_shared_feed_forward_length")?.unwrap_or(0) == 0 {
        settings.insert("moe_num_shared_experts".into(), json!(0));
    } else if whole(settings, "moe_num_shared_experts") == Some(0) {
        settings.insert("moe_num_shared_experts".into(), json!(1));
    }
    Ok(())
}
