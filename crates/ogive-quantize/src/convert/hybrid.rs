//! Qwen3-Next and Qwen3.5 as GGUF has them: which layers have linear attention, and matrices that hold several of GGUF's.
//!
//! A checkpoint that also sees gives its text's part. What it sees with, and what foretells more than one token (`mtp`), is left out.

use super::settings::whole;
use super::{Keys, Model, granite, layer_types, refuse, seeing, tensors::Part};
use crate::Result;
use crate::input::Tensor;
use ogive_tensor::{Config, WeightInfo};
use ogive_weights::{Change, Checkpoint};

/// GGUF's names of the architectures.
pub(super) const NEXT: &str = "qwen3next";
pub(super) const DENSE: &str = "qwen35";
pub(super) const MIXTURE: &str = "qwen35moe";

/// What such layers are called.
const LINEAR: &str = "linear_attention";

/// Whether it is one of these.
pub(super) fn is(model: &Model<'_>) -> bool {
    [NEXT, DENSE, MIXTURE].contains(&model.architecture)
}

/// Leaves of Qwen3.5's settings what its classes know.
pub(super) fn only_known(checkpoint: &mut Checkpoint) {
    if !checkpoint.architecture.starts_with("Qwen3_5") {
        return;
    }
    if let Some(settings) = checkpoint.config.0.as_object_mut() {
        for key in ["norm_topk_prob", "decoder_sparse_step", "mlp_only_layers"] {
            settings.remove(key);
        }
    }
}

/// Whether a tensor is of no part that GGUF has.
pub(super) fn is_beside(model: &Model<'_>, name: &str) -> bool {
    is(model) && name.starts_with("mtp.")
}

/// Whether a layer has linear attention; no layer of another architecture.
pub(super) fn linear(model: &Model<'_>) -> Result<impl Fn(u64) -> bool> {
    let own = is(model);
    let types = if own { layer_types(model.config, &[LINEAR, "full_attention"])? } else { None };
    let every = model.config.usize_or("full_attention_interval", 4)? as u64;
    if own && types.is_none() && every == 0 {
        return refuse("full_attention_interval", "it is 0, and no layer is each 0th");
    }
    Ok(move |layer: u64| {
        own && match &types {
            Some(types) => types.get(layer as usize) == Some(&LINEAR),
            None => !(layer + 1).is_multiple_of(every),
        }
    })
}

/// Sets what these architectures have besides.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>, head_dim: usize) -> Result<()> {
    let config = model.config;
    let sizes = Sizes::read(config)?;
    let inner = sizes.heads.saturating_mul(sizes.value);
    for (key, size) in [
        ("ssm.conv_kernel", config.usize_or("linear_conv_kernel_dim", 4)?),
        ("ssm.state_size", sizes.key),
        ("ssm.group_count", sizes.keys),
        ("ssm.time_step_rank", sizes.heads),
        ("ssm.inner_size", inner),
        ("attention.key_length", head_dim),
        ("attention.value_length", head_dim),
    ] {
        keys.set(key, whole(key, size)?);
    }
    let (linear, layers) = (linear(model)?, config.usize("num_hidden_layers")? as u64);
    // Settings are bounded by what was read, and so is the list of kinds, which has one for each layer; the search ends with it.
    let every = match config.opt_strs("layer_types")?.map(|types| types.len() as u64) {
        None => Some(config.usize_or("full_attention_interval", 4)? as u64),
        Some(n) => {
            let first = (0..n).find(|layer| !linear(*layer)).map_or(n + 1, |layer| layer + 1);
            (0..n).all(|layer| linear(layer) != (layer + 1).is_multiple_of(first)).then_some(first)
        }
    };
    match every {
        Some(every) => keys.set("full_attention_interval", whole("full_attention_interval", every as usize)?),
        None => keys.set("attention.recurrent_layers", (0..layers).map(linear).collect::<Vec<bool>>()),
    }
    if model.architecture != NEXT {
        // Of three positions that are the same for text, as Qwen3.5 counts them.
        let sections = config.opt_usizes("mrope_section")?.unwrap_or_else(|| vec![11, 11, 10]);
        seeing::set_sections(keys, sections)?;
    }
    Ok(())
}

/// Gates and directions that the classes do not have, and programs that read GGUF files neither.
fn refuse_what_has_no_key(config: &Config) -> Result<()> {
    for key in ["is_causal", "attn_output_gate"] {
        if !config.bool_or(key, true)? {
            return refuse(key, "it is off, and GGUF cannot say so for this architecture");
        }
    }
    match config.opt_str("output_gate_type")? {
        None | Some("silu" | "swish") => Ok(()),
        Some(_) => refuse("output_gate_type", "linear attention of this architecture is gated by `swish`"),
    }
}

/// Refuses settings that GGUF cannot say, and tensors of other sizes than the settings say: the file's readers go by those.
pub(super) fn check(model: &Model<'_>, tensors: &[Tensor]) -> Result<()> {
    if !is(model) {
        return Ok(());
    }
    let config = model.config;
    refuse_what_has_no_key(config)?;
    let Sizes { keys, heads, key, value } = Sizes::read(config)?;
    let (all_keys, values) = (keys.saturating_mul(key), heads.saturating_mul(value));
    let channels = all_keys.saturating_mul(2).saturating_add(values);
    let head_dim = config.usize_or("head_dim", 256)?;
    let queries = config.usize("num_attention_heads")?.saturating_mul(head_dim);
    let shared = config.usize("num_key_value_heads")?.saturating_mul(head_dim);
    let experts = config.usize_or("num_experts", 0)?;
    let sizes = [
        (".attn_q.weight", 1, queries.saturating_mul(2)),
        (".attn_k.weight", 1, shared),
        (".attn_v.weight", 1, shared),
        (".attn_output.weight", 0, queries),
        (".attn_qkv.weight", 1, channels),
        (".attn_gate.weight", 1, values),
        (".ssm_ba.weight", 1, heads.saturating_mul(2)),
        (".ssm_alpha.weight", 1, heads),
        (".ssm_beta.weight", 1, heads),
        (".ssm_conv1d.weight", 1, channels),
        (".ssm_conv1d.weight", 0, config.usize_or("linear_conv_kernel_dim", 4)?.max(1)),
        (".ssm_dt.bias", 0, heads),
        (".ssm_a", 0, heads),
        (".ssm_norm.weight", 0, value),
        (".ssm_out.weight", 0, values),
        ("_exps.weight", 2, experts),
    ];
    super::tensors::fit(tensors, &sizes)
}

/// GGUF's names of what a tensor becomes that has several of them, and how; of experts in one tensor too.
pub(super) fn parts(model: &Model<'_>, name: &str) -> Option<Vec<Part>> {
    let own = is(model).then_some(name)?;
    let named = |at: &str, leaf: &str| Some(model.translation.gguf_name(&format!("{at}.{leaf}.weight"))?.0);
    // Qwen3.5's files have another order of heads, and its checkpoints other matrices.
    if let Some(at) = own.strip_suffix(".in_proj_qkvz.weight").filter(|_| model.architecture == NEXT) {
        let both = [("in_proj_qkv", false), ("in_proj_z", true)];
        return both
            .into_iter()
            .map(|(leaf, gate)| Some((named(at, leaf)?, Some(projected(gate)))))
            .collect();
    }
    if let Some(at) = own.strip_suffix(".gate_up_proj") {
        let both = [("gate_proj", 0), ("up_proj", 1)];
        return both
            .into_iter()
            .map(|(leaf, half)| Some((named(at, leaf)?, Some(granite::half(half)))))
            .collect();
    }
    let at = own.strip_suffix(".experts.down_proj")?;
    Some(vec![(named(&format!("{at}.experts"), "down_proj")?, None)])
}

/// Of the rows of each key head those of queries, keys and values, one kind below the other, or those of the gate.
fn projected(gate: bool) -> Change {
    let misfit = || {
        let why =
            "its shape is not that of the configured heads; do weights and config.json belong together?";
        ogive_tensor::Error::invalid("in_proj_qkvz", why)
    };
    // Heads of keys, and of each its rows of keys and of values.
    let cut = move |shape: [usize; 3], config: &Config| {
        let Sizes { keys, heads, key, value } = Sizes::read(config)?;
        let each = (heads / keys).checked_mul(value);
        let of_one = each.and_then(|each| each.checked_add(key)?.checked_mul(2));
        let rows = of_one.and_then(|rows| rows.checked_mul(keys));
        match (each, rows) {
            (Some(each), Some(rows)) if rows == shape[1] && shape[0] == 1 => Ok([keys, key, each]),
            _ => Err(misfit()),
        }
    };
    let count = move |[keys, key, each]: [usize; 3]| if gate { keys * each } else { keys * (2 * key + each) };
    Change::new(
        move |of, config| {
            let w = of.first().ok_or_else(misfit)?;
            let rows = count(cut(w.shape, config)?);
            Ok(WeightInfo::new(&*w.name, [1, rows, w.shape[2]], w.format))
        },
        move |of, config| {
            let w = of.first().ok_or_else(misfit)?;
            let [keys, key, each] = cut(w.shape, config)?;
            if w.bytes.is_empty() {
                // Nothing bounds the shape.
                return Err(misfit());
            }
            let parts = [0..key, key..2 * key, 2 * key..2 * key + each, 2 * key + each..2 * (key + each)];
            let of_all = |part: std::ops::Range<usize>| {
                (0..keys).flat_map(move |head| part.clone().map(move |row| head * 2 * (key + each) + row))
            };
            let order: Vec<usize> = parts.into_iter().flat_map(of_all).collect();
            let (all, n) = (w.reordered(&order)?, count([keys, key, each]));
            if gate { all.rows(order.len() - n..order.len()) } else { all.rows(0..n) }
        },
    )
}

/// Heads, and elements of one; there are some of each, and heads share those of keys evenly.
struct Sizes {
    keys: usize,
    heads: usize,
    key: usize,
    value: usize,
}

impl Sizes {
    fn read(config: &Config) -> ogive_tensor::Result<Self> {
        let (keys, heads) =
            (config.usize_or("linear_num_key_heads", 16)?, config.usize_or("linear_num_value_heads", 32)?);
        let (key, value) =
            (config.usize_or("linear_key_head_dim", 128)?, config.usize_or("linear_value_head_dim", 128)?);
        if [keys, heads, key, value].contains(&0) || !heads.is_multiple_of(keys) {
            let why = format!("{heads} heads of {value} elements cannot share {keys} key heads of {key}");
            return Err(ogive_tensor::Error::invalid("config", why));
        }
        Ok(Self { keys, heads, key, value })
    }
}
