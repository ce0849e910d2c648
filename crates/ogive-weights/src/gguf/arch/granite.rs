//! `granite`, `granitemoe` and `granitehybrid`: Llama's names and its order of q and k rows, and four factors. Most layers of the last have a
//! selective state space in place of attention; which those are is told by how many key heads each has.
//!
//! llama.cpp takes a factor of 0 for none, as it does silence; scores have the usual scale then. Bamba's files are `granitehybrid` too, with heads
//! that turn in part. llama.cpp's converter interleaves whole heads all the same, which is undone here, so that the model is that of the folder;
//! llama.cpp itself turns other elements of such a file together. Files of Ogive have that part alone interleaved, and say so by a key of their own.

use super::{llama::interleaved, mamba2};
use crate::gguf::settings::{copy, kinds_by_key_heads};
use crate::gguf::{Change, Header, Settings, Translation};
use ogive_tensor::{Error, Result};
use serde_json::json;

pub(super) fn granite() -> Translation {
    interleaved("granite", "GraniteForCausalLM").settings(turning).settings(factors)
}

pub(super) fn granite_moe() -> Translation {
    with_experts(interleaved("granitemoe", "GraniteMoeForCausalLM")).settings(turning).settings(
        |header, settings| {
            if header.usize("expert_shared_feed_forward_length")?.is_some_and(|n| n > 0) {
                settings.insert("architectures".into(), json!(["GraniteMoeSharedForCausalLM"]));
            }
            Ok(())
        },
    )
}

pub(super) fn granite_hybrid() -> Translation {
    let t = with_experts(interleaved("granitehybrid", "GraniteMoeHybridForCausalLM"));
    let t = t.for_file(|t, header| match in_part(header) {
        Ok(true) => t,
        // What else it is than yes or no is an error of the settings.
        _ => t
            .change_all("attn_q.weight", &Change::split_whole_heads("num_attention_heads"))
            .change_all("attn_q.bias", &Change::split_whole_heads("num_attention_heads"))
            .change_all("attn_k.weight", &Change::split_whole_heads("num_key_value_heads"))
            .change_all("attn_k.bias", &Change::split_whole_heads("num_key_value_heads")),
    });
    mamba2::with_spaces(t, "model.layers.{}.mamba", "mamba_n_groups").settings(|header, settings| {
        in_part(header)?;
        // Silence is none for readers of GGUF, and some for the class.
        settings.entry("num_local_experts").or_insert(json!(0));
        let turns = header.bool("rope.scaling.finetuned")?.unwrap_or(true);
        settings.insert("position_embedding_type".into(), json!(if turns { "rope" } else { "nope" }));
        let keys = [
            ("ssm.conv_kernel", "mamba_d_conv"),
            ("ssm.state_size", "mamba_d_state"),
            ("ssm.group_count", "mamba_n_groups"),
        ];
        copy(header, settings, &keys)?;
        mamba2::heads(header, settings, ["mamba_n_heads", "mamba_d_head"])?;
        kinds_by_key_heads(settings, ["mamba", "attention"])
    })
}

/// Whether of rows of queries and keys that part of a head is interleaved that turns.
fn in_part(header: &Header<'_>) -> Result<bool> {
    const KEY: &str = "ogive.rope.interleaved_in_part";
    let Some(value) = header.global(KEY)? else { return Ok(false) };
    value.as_bool().ok_or_else(|| Error::invalid(KEY, format!("it is {value} and should be true or false")))
}

/// Adds experts and what all tokens meet beside them, which is Llama's MLP where there are none.
fn with_experts(to: Translation) -> Translation {
    to.rename("blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.router.layer")
        .rename("blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.experts.gate_proj")
        .rename("blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.experts.up_proj")
        .rename("blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.output_linear")
        .rename("blk.{}.ffn_gate_shexp", "model.layers.{}.shared_mlp.gate_proj")
        .rename("blk.{}.ffn_up_shexp", "model.layers.{}.shared_mlp.up_proj")
        .rename("blk.{}.ffn_down_shexp", "model.layers.{}.shared_mlp.output_linear")
        .settings(|header, settings| {
            let keys = [
                ("expert_count", "num_local_experts"),
                ("expert_used_count", "num_experts_per_tok"),
                ("expert_shared_feed_forward_length", "shared_intermediate_size"),
            ];
            copy(header, settings, &keys)
        })
        .settings(factors)
}

fn turning(header: &Header<'_>, _: &mut Settings) -> Result<()> {
    if !header.bool("rope.scaling.finetuned")?.unwrap_or(true) {
        let why = "the file says that no positions are turned, which is not known of this architecture";
        return Err(Error::unsupported("rope.scaling.finetuned", why));
    }
    Ok(())
}

fn factors(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    let keys = [
        ("embedding_scale", "embedding_multiplier"),
        ("residual_scale", "residual_multiplier"),
        ("logit_scale", "logits_scaling"),
    ];
    copy(header, settings, &keys)?;
    let names = keys.map(|(_, name)| name).into_iter().chain(["attention_multiplier"]);
    for name in names {
        if settings.get(name).is_some_and(|v| v.as_f64() == Some(0.0)) {
            settings.remove(name);
        }
    }
    Ok(())
}
