//! `hunyuan-dense` and `hunyuan-moe`: Llama's names but for norms on heads. The base of rotary positions is the one that is turned by, `alpha`
//! and all. Nothing is reordered.

use crate::gguf::Translation;
use crate::gguf::settings::copy;

fn any(architecture: &str, class: &str) -> Translation {
    Translation::decoder(architecture, class)
        .rename("blk.{}.attn_q_norm", "model.layers.{}.self_attn.query_layernorm")
        .rename("blk.{}.attn_k_norm", "model.layers.{}.self_attn.key_layernorm")
}

pub(super) fn dense() -> Translation {
    any("hunyuan-dense", "HunYuanDenseV1ForCausalLM")
}

pub(super) fn moe() -> Translation {
    any("hunyuan-moe", "HunYuanMoEV1ForCausalLM")
        .rename("blk.{}.ffn_gate_inp", "model.layers.{}.mlp.gate.wg")
        .rename("blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.gate_proj")
        .rename("blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.up_proj")
        .rename("blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.down_proj")
        .rename("blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_mlp.gate_proj")
        .rename("blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_mlp.up_proj")
        .rename("blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_mlp.down_proj")
        .settings(|header, settings| {
            copy(header, settings, &[("expert_count", "num_experts"), ("expert_used_count", "moe_topk")])
        })
}
