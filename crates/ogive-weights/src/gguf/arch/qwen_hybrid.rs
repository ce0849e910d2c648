//! `qwen3next`, `qwen35` and `qwen35moe`: linear attention by the gated delta rule in most layers.
//!
//! Norms are kept as factors but for that of heads, and decays as `-exp(A_log)`. Files of Qwen3.5 have the heads of values in another order:
//! of those that share a key head the first of each, then the second of each. Hugging Face's has all that share the first key head, then all
//! that share the next. Rows are moved, packed as they are; the output's columns get an order of their own, since blocks run along them.

use super::qwen::{with_experts, with_shared_expert};
use super::qwen_vl::in_turn;
use crate::gguf::change::elements_in;
use crate::gguf::settings::{copy, whole, without_foretelling};
use crate::gguf::{Change, Header, Rule, Settings, Translation};
use ogive_tensor::{Config, Error, HostWeight, Result, WeightInfo};
use serde_json::json;

pub(super) fn qwen3_next() -> Translation {
    let t = hybrid("qwen3next", "Qwen3NextForCausalLM", |_, change| change)
        .rename("blk.{}.ssm_ba", "model.layers.{}.linear_attn.in_proj_ba")
        // As the first files have it.
        .rename("blk.{}.ssm_in", "model.layers.{}.linear_attn.in_proj_qkvz");
    with_shared_expert(with_experts(t, true))
}

pub(super) fn qwen3_5() -> Translation {
    tiled("qwen35", "Qwen3_5ForCausalLM")
}

pub(super) fn qwen3_5_moe() -> Translation {
    with_shared_expert(with_experts(tiled("qwen35moe", "Qwen3_5MoeForCausalLM"), true))
}

/// Qwen3.5's order of heads and names of projections.
fn tiled(architecture: &str, class: &str) -> Translation {
    let order = |part: Part, change: Option<Change>| match change {
        Some(change) => Some(in_groups(part).then(change)),
        None => Some(in_groups(part)),
    };
    let each = in_groups(Part::Heads);
    hybrid(architecture, class, order)
        .rename_changed("blk.{}.ssm_beta", "model.layers.{}.linear_attn.in_proj_b", &each)
        .rename_changed("blk.{}.ssm_alpha", "model.layers.{}.linear_attn.in_proj_a", &each)
        .settings(in_turn)
}

/// What all share; `order` adds to each change what the order of heads takes.
fn hybrid(
    architecture: &str,
    class: &str,
    order: impl Fn(Part, Option<Change>) -> Option<Change>,
) -> Translation {
    let t = Translation::decoder(architecture, class)
        .without("blk.{}.ffn_norm")
        .rename("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm")
        .change_all("norm.weight", &Change::less_one())
        .rename("blk.{}.ssm_norm", "model.layers.{}.linear_attn.norm");
    let tensors = [
        ("attn_qkv.weight", "in_proj_qkv.weight", Part::Channels, None),
        ("attn_gate.weight", "in_proj_z.weight", Part::Values, None),
        ("ssm_conv1d.weight", "conv1d.weight", Part::Channels, Some(Change::flat_taps())),
        ("ssm_dt.bias", "dt_bias", Part::Heads, None),
        ("ssm_a", "A_log", Part::Heads, Some(Change::logarithm())),
        ("ssm_out.weight", "out_proj.weight", Part::Inputs, None),
    ];
    let named = |t: Translation, (from, to, part, change): (&str, &str, Part, Option<Change>)| {
        let (from, to) = (format!("blk.{{}}.{from}"), format!("model.layers.{{}}.linear_attn.{to}"));
        t.rule(match order(part, change) {
            Some(change) => Rule::changed([from], to, change),
            None => Rule::new(from, to),
        })
    };
    tensors.into_iter().fold(t, named).settings(settings)
}

fn settings(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    copy(
        header,
        settings,
        &[
            ("ssm.conv_kernel", "linear_conv_kernel_dim"),
            ("ssm.state_size", "linear_key_head_dim"),
            ("ssm.group_count", "linear_num_key_heads"),
            ("ssm.time_step_rank", "linear_num_value_heads"),
            ("full_attention_interval", "full_attention_interval"),
        ],
    )?;
    // Silence is no part for readers of GGUF, and a quarter for the class.
    settings.entry("partial_rotary_factor").or_insert(json!(1.0));
    if let Some((inner, heads)) =
        header.usize("ssm.inner_size")?.zip(header.usize("ssm.time_step_rank")?.filter(|n| *n > 0))
    {
        if inner % heads != 0 {
            let why = format!("{inner} elements are not {heads} heads of one size");
            return Err(Error::invalid("ssm.inner_size", why));
        }
        settings.insert("linear_value_head_dim".into(), (inner / heads).into());
    }
    let all = whole(settings, "num_hidden_layers");
    without_foretelling(header, settings)?;
    if let Some(flags) = header.flags("attention.recurrent_layers")? {
        let layers = whole(settings, "num_hidden_layers").or(all).map_or(flags.len(), |n| n as usize);
        let kind = |linear: &bool| if *linear { "linear_attention" } else { "full_attention" };
        settings.insert("layer_types".into(), flags.iter().take(layers).map(kind).collect());
    }
    Ok(())
}

/// What of a tensor goes by the heads of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Behind queries and keys, the rows of values.
    Channels,
    /// All rows.
    Values,
    /// One row for each head, or one element.
    Heads,
    /// Columns.
    Inputs,
}

/// Where each element along such a part comes from: to Hugging Face's order of heads, or from it.
fn order(part: Part, to_groups: bool, len: usize, config: &Config) -> Result<Vec<usize>> {
    let (keys, heads) = (config.usize("linear_num_key_heads")?, config.usize("linear_num_value_heads")?);
    let value = config.usize_or("linear_value_head_dim", 128)?;
    let (before, each) = match part {
        Part::Channels => {
            let of_keys = keys.checked_mul(config.usize_or("linear_key_head_dim", 128)?);
            (of_keys.and_then(|n| n.checked_mul(2)), value)
        }
        Part::Values | Part::Inputs => (Some(0), value),
        Part::Heads => (Some(0), 1),
    };
    let fits = |before: &usize| heads.checked_mul(each).and_then(|n| n.checked_add(*before)) == Some(len);
    let misfit = || format!("{len} elements are not {heads} heads of {each} behind {before:?}");
    let before = before.filter(fits).filter(|_| keys > 0 && heads.is_multiple_of(keys));
    let before = before.ok_or_else(|| Error::invalid("the heads of values", misfit()))?;
    let sharing = heads / keys;
    let head = |h: usize| match to_groups {
        true => h % sharing * keys + h / sharing,
        false => h % keys * sharing + h / keys,
    };
    let moved = (0..heads).flat_map(|h| (0..each).map(move |e| (h, e)));
    Ok((0..before).chain(moved.map(|(h, e)| before + head(h) * each + e)).collect())
}

/// Heads of values in Hugging Face's order, by the key heads that they share.
fn in_groups(part: Part) -> Change {
    let way = move |to_groups: bool| {
        Change::of_one(WeightInfo::clone, move |w, config| {
            let [_, rows, cols] = w.shape;
            // Where each has a key head of its own, both orders are one. Where there are no bytes, nothing bounds the shape.
            let same = config.usize("linear_num_key_heads")? == config.usize("linear_num_value_heads")?;
            if same || w.bytes.is_empty() {
                return Ok(w.clone());
            }
            let along_cols = part == Part::Inputs || rows == 1;
            let order = order(part, to_groups, if along_cols { cols } else { rows }, config);
            let order = order.map_err(|e| e.within(&w.name))?;
            if part == Part::Inputs {
                return inputs_in(w, &order, to_groups);
            }
            if along_cols { elements_in(w, &order) } else { w.reordered(&order) }
        })
    };
    way(true).undone_by(way(false))
}

/// Columns in another order: read, they stay where they are and say which input is theirs; written, they are moved.
fn inputs_in(w: &HostWeight, order: &[usize], read: bool) -> Result<HostWeight> {
    if !read {
        return w.transposed()?.reordered(order)?.transposed();
    }
    let mut inputs = vec![0; order.len()];
    for (input, &column) in (0..).zip(order) {
        inputs[column] = input;
    }
    w.clone().with_input_perm(inputs.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(keys: usize, heads: usize) -> Config {
        Config(
            json!({"linear_num_key_heads": keys, "linear_num_value_heads": heads, "linear_key_head_dim": 1,
            "linear_value_head_dim": 2}),
        )
    }

    #[test]
    fn heads_go_from_turns_to_groups_and_back() {
        let of = |part, to_groups, len| order(part, to_groups, len, &config(2, 6)).unwrap();
        // The third head shares the first key head as the first and second do: it is the third turn's first.
        assert_eq!(of(Part::Heads, true, 6), [0, 2, 4, 1, 3, 5]);
        assert_eq!(of(Part::Heads, false, 6), [0, 3, 1, 4, 2, 5]);
        assert_eq!(of(Part::Values, true, 12), [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]);
        assert_eq!(of(Part::Channels, true, 16)[..8], [0, 1, 2, 3, 4, 5, 8, 9]);
        assert!(order(Part::Heads, true, 7, &config(2, 6)).is_err());
        assert!(order(Part::Heads, true, 5, &config(2, 5)).is_err());
        assert!(order(Part::Heads, true, 6, &config(0, 6)).is_err());
    }

    #[test]
    fn what_is_changed_is_changed_back() {
        let values: Vec<f32> = (0..96).map(|v| v as f32 * 0.37 - 37.0).collect();
        for (part, shape, change) in [
            (Part::Channels, [1, 16, 6], in_groups(Part::Channels)),
            (Part::Values, [1, 12, 8], in_groups(Part::Values)),
            (Part::Inputs, [1, 8, 12], in_groups(Part::Inputs)),
            (Part::Heads, [1, 6, 16], in_groups(Part::Heads)),
            (Part::Heads, [1, 1, 6], in_groups(Part::Heads).then(Change::logarithm())),
            (Part::Channels, [16, 1, 6], in_groups(Part::Channels).then(Change::flat_taps())),
        ] {
            let config = config(2, 6);
            let w = HostWeight::from_f32("w", shape, &values[..shape.iter().product()]).unwrap();
            let back = change.reversed().unwrap();
            let there = back.apply(std::slice::from_ref(&w), &config).unwrap();
            let info = back.info(&[WeightInfo::new("w", shape, w.format)], &config).unwrap();
            assert_eq!((there.shape, there.format), (info.shape, info.format), "{part:?}");
            assert_ne!(there.to_vec(), w.to_vec(), "{part:?}");
            let again = change.apply(&[there], &config).unwrap();
            let alike = again.to_vec().iter().zip(w.to_vec()).all(|(a, b)| (a - b).abs() <= 1e-6 * b.abs());
            assert!(alike, "{part:?}");
        }
    }
}
