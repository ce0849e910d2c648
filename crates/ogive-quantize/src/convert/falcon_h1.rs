//! Falcon-H1 as GGUF has it: without factors. They are multiplied into the weights, one after the other in single precision and before anything
//! is packed, as llama.cpp's converter does it; the numbers are the same to the bit, but for weights of half precision, which it rounds
//! after each.
//!
//! A table of tokens that is the head too has one factor as the one and another as the other, so its file has both.

use super::space::{self, Space};
use super::tensors::{self, Part};
use super::{Keys, Model, refuse, settings::set_vocab_size};
use crate::{Error, Result, input::Tensor};
use ogive_tensor::{Config, F32, HostWeight, WeightInfo};
use ogive_weights::Change;
use serde_json::json;

/// GGUF's name of the architecture.
pub(super) const ARCHITECTURE: &str = "falcon-h1";

const CLASS: &str = "FalconH1ForCausalLM";

/// Rows of a matrix, and what each is multiplied by, in this order.
type Rows = (usize, [f32; 2]);

/// All rows that are left.
const REST: usize = usize::MAX;

/// Whether it is one.
pub(super) fn is(model: &Model<'_>) -> bool {
    model.architecture == ARCHITECTURE
}

/// Says in the settings how wide a state space is and how many elements a head of it has, as the class makes it of what they say.
pub(super) fn settled(class: &str, mut config: Config) -> Result<Config> {
    if class != CLASS {
        return Ok(config);
    }
    let heads = config.usize_or("mamba_n_heads", 128)?;
    let inner = match config.opt_usize("mamba_d_ssm")? {
        Some(inner) => inner,
        None => {
            let expand = f64::from(config.f32_or("mamba_expand", 2.0)?);
            (expand * config.usize("hidden_size")? as f64) as usize
        }
    };
    let auto = config.0.get("mamba_d_head").is_none_or(|said| said.is_null() || said == "auto");
    let even = inner.checked_div(heads).unwrap_or(0);
    let head_dim = if auto { even } else { config.usize("mamba_d_head")? };
    if heads.checked_mul(head_dim) != Some(inner) {
        return refuse(
            "mamba_d_head",
            format!("{heads} heads of {head_dim} elements are not {inner} together"),
        );
    }
    if let Some(settings) = config.0.as_object_mut() {
        settings.extend([("mamba_d_ssm".into(), json!(inner)), ("mamba_d_head".into(), json!(head_dim))]);
    }
    Ok(config)
}

/// GGUF's names of what a tensor becomes, and how, where it has factors. `tied` says that the table of tokens is the head too.
pub(super) fn parts(model: &Model<'_>, name: &str, tied: bool) -> Result<Option<Vec<Part>>> {
    let Some((to, None)) = model.translation.gguf_name(name).filter(|_| is(model)) else { return Ok(None) };
    let Some((place, _)) = name.rsplit_once('.') else { return Ok(None) };
    let factor = |key: &str| model.config.f32_or(key, 1.0);
    let all = |first: f32, then: f32| vec![(REST, [first, then])];
    let (input, output) = (factor("attention_in_multiplier")?, factor("attention_out_multiplier")?);
    let [of_gate, of_down] = factors(model.config, "mlp_multipliers")?;
    let rows = match place.rsplit('.').next().unwrap_or_default() {
        "q_proj" | "v_proj" => all(input, 1.0),
        "k_proj" => all(factor("key_multiplier")?, input),
        "o_proj" => all(output, 1.0),
        "in_proj" => of_input(model.config)?,
        "out_proj" => all(factor("ssm_out_multiplier")?, 1.0),
        "gate_proj" => all(of_gate, 1.0),
        "down_proj" => all(of_down, 1.0),
        "lm_head" => all(factor("lm_head_multiplier")?, 1.0),
        "embed_tokens" => all(factor("embedding_multiplier")?, 1.0),
        _ => return Ok(None),
    };
    let head = all(factor("lm_head_multiplier")?, 1.0);
    let mut parts = vec![(to, multiplied(rows.clone()))];
    if tied && place.ends_with("embed_tokens") && rows != head {
        parts.push(("output.weight".into(), multiplied(head)));
    }
    Ok(Some(parts))
}

/// The factors of a state space's first projection: the gate, inputs of heads, what states are written and read by, and steps in time.
fn of_input(config: &Config) -> Result<Vec<Rows>> {
    let sizes = sizes(config)?;
    let (inner, of_groups) = (sizes.inner(), sizes.groups.saturating_mul(sizes.state));
    let input = config.f32_or("ssm_in_multiplier", 1.0)?;
    let rows = [inner, inner, of_groups, of_groups, REST];
    let factors: [f32; 5] = factors(config, "ssm_multipliers")?;
    Ok(rows.into_iter().zip(factors).map(|(rows, factor)| (rows, [input, factor])).collect())
}

/// So many factors; 1 each where nothing is said.
fn factors<const N: usize>(config: &Config, key: &str) -> Result<[f32; N]> {
    let Some(all) = config.opt_f32s(key)? else { return Ok([1.0; N]) };
    let why = format!("it has {} factors in place of {N}", all.len());
    all.try_into().or_else(|_| refuse(key, why))
}

/// A matrix, or its biases, with its rows multiplied; none where that changes nothing.
fn multiplied(rows: Vec<Rows>) -> Option<Change> {
    if rows.iter().all(|(_, factors)| *factors == [1.0; 2]) {
        return None;
    }
    let none = || ogive_tensor::Error::missing("a tensor to multiply");
    Some(Change::new(
        move |of, _| of.first().map(|w| WeightInfo::new(&*w.name, w.shape, &F32)).ok_or_else(none),
        move |of, _| {
            let w = of.first().ok_or_else(none)?;
            let mut values = w.to_vec();
            let mut left = values.chunks_mut(w.shape[2].max(1));
            for (n, factors) in &rows {
                for value in left.by_ref().take(*n).flatten() {
                    factors.iter().for_each(|factor| *value *= factor);
                }
            }
            HostWeight::from_f32(&*w.name, w.shape, &values)
        },
    ))
}

/// Sets what this architecture has besides.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>) -> Result<()> {
    let config = model.config;
    space::refuse_what_has_no_key(config)?;
    space::only(config, "hidden_act", "silu")?;
    if has_norm(config)? && config.bool_or("mamba_norm_before_gate", true)? {
        return refuse("mamba_norm_before_gate", "readers of GGUF norm behind the gate");
    }
    if !config.bool_or("mamba_use_mlp", true)? {
        return refuse("mamba_use_mlp", "it is off, and blocks of this class have MLPs");
    }
    if config.at("rope_scaling").opt_str("rope_type")? == Some("llama3") {
        return refuse(
            "rope_scaling",
            "readers of GGUF pass factors of frequencies over for this architecture",
        );
    }
    set_vocab_size(keys, config)?;
    sizes(config)?.set(keys)
}

/// Whether what states give is normed.
fn has_norm(config: &Config) -> Result<bool> {
    Ok(config.bool_or("mamba_rms_norm", false)?)
}

/// The sizes of a state space.
fn sizes(config: &Config) -> Result<Space> {
    Space::read(config, config.usize("mamba_d_head")?)
}

/// Refuses tensors that the file's readers pass over or miss, and those of other sizes than the settings say, by which they go.
pub(super) fn check(model: &Model<'_>, all: &[Tensor]) -> Result<()> {
    if !is(model) {
        return Ok(());
    }
    let config = model.config;
    space::biases(all, &["ssm_in.bias", "ssm_out.bias", "attn_output.bias"])?;
    let heads = ["attn_q.bias", "attn_k.bias", "attn_v.bias"];
    if let Some(t) = all.iter().find(|t| heads.iter().any(|end| t.name.ends_with(end))) {
        let why = "it is one of attention's biases, and readers of GGUF pass over that of its output";
        return Err(Error::convert(format!("the tensor {}", t.name), why));
    }
    let has_norm = has_norm(config)?;
    if has_norm != all.iter().any(|t| t.name.ends_with(".ssm_norm.weight")) {
        let why = if has_norm { "the model has no norms" } else { "it is off, and the model has norms" };
        return refuse("mamba_rms_norm", format!("{why} of what states give"));
    }
    sizes(config)?.check(all)?;
    let size = |key: &str| config.usize(key);
    let heads = size("num_attention_heads")?;
    let even = size("hidden_size")?.checked_div(heads).unwrap_or(0);
    let dim = config.usize_or("head_dim", even)?;
    let shared = config.usize_or("num_key_value_heads", heads)?.saturating_mul(dim);
    let (queries, width) = (heads.saturating_mul(dim), size("intermediate_size")?);
    let sizes = [
        (".attn_q.weight", 1, queries),
        (".attn_k.weight", 1, shared),
        (".attn_v.weight", 1, shared),
        (".attn_output.weight", 0, queries),
        (".ffn_gate.weight", 1, width),
        (".ffn_up.weight", 1, width),
        (".ffn_down.weight", 0, width),
    ];
    tensors::fit(all, &sizes)
}
