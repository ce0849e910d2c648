//! The settings that all architectures share, from GGUF's keys to those of `config.json`.
//!
//! A key that GGUF leaves out gets llama.cpp's default where Hugging Face's classes have another or none, so that a model
//! reads the same from either kind of file.

use super::{Header, rope};
use ogive_tensor::{Error, Result};
use serde_json::{Map, Value, json};

/// Settings under Hugging Face's keys.
pub type Settings = Map<String, Value>;

/// More layers than any model has; it bounds what a false count can make us list.
pub(super) const MOST_LAYERS: u64 = 10_000;

/// GGUF's keys (below the architecture) and Hugging Face's.
const COPIED: &[(&str, &str)] = &[
    ("block_count", "num_hidden_layers"),
    ("embedding_length", "hidden_size"),
    ("feed_forward_length", "intermediate_size"),
    ("context_length", "max_position_embeddings"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.key_length", "head_dim"),
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("attention.causal", "is_causal"),
    ("attention.scale", "attention_multiplier"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("rope.freq_base", "rope_theta"),
    // Not a setting of Hugging Face's classes: how hidden states become the vector of a text.
    ("pooling_type", "pooling_type"),
];

/// Token ids: keys without a prefix.
const TOKENS: &[(&str, &str)] = &[
    ("tokenizer.ggml.bos_token_id", "bos_token_id"),
    ("tokenizer.ggml.eos_token_id", "eos_token_id"),
    ("tokenizer.ggml.padding_token_id", "pad_token_id"),
];

/// Copies `(GGUF key, setting)` pairs that are there.
pub(super) fn copy(header: &Header<'_>, settings: &mut Settings, keys: &[(&str, &str)]) -> Result<()> {
    for (from, to) in keys {
        if let Some(value) = header.value(from)? {
            settings.insert((*to).into(), value);
        }
    }
    Ok(())
}

/// What every architecture starts from.
pub(super) fn common(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    copy(header, settings, COPIED)?;
    for (from, to) in TOKENS {
        if let Some(value) = header.global(from)? {
            settings.insert((*to).into(), value);
        }
    }
    let heads = settings.get("num_attention_heads").cloned();
    if let Some(heads) = heads {
        settings.entry("num_key_value_heads").or_insert(heads);
    }
    if let Some(head_dim) =
        whole(settings, "hidden_size").zip(whole(settings, "num_attention_heads")).and_then(even)
    {
        settings.entry("head_dim").or_insert(head_dim.into());
    }
    settings.entry("rope_theta").or_insert(json!(10_000.0));
    settings.entry("hidden_act").or_insert(json!("silu"));
    if let Some(window) = header.usize("attention.sliding_window")?.filter(|w| *w > 0) {
        settings.insert("sliding_window".into(), window.into());
    }
    // The embedding decides, as logits have a place for each of its rows, whatever the vocabulary says.
    let tokens = || {
        let tokens = header.gguf().metadata().get("tokenizer.ggml.tokens").and_then(|v| v.as_array());
        tokens.map(|t| t.len() as u64)
    };
    let rows = header.rows("token_embd.weight");
    let size = rows.or(header.usize("vocab_size")?.map(|n| n as u64)).or_else(tokens);
    if let Some(size) = size {
        settings.insert("vocab_size".into(), size.into());
    }
    settings.insert("tie_word_embeddings".into(), (!header.has_tensor("output.weight")).into());
    rope::fill(header, settings)
}

/// Every layer has a window but each `every`-th, unless the file counts otherwise or has a flag for each layer (which
/// llama.cpp passes over for Gemma). The list is as long as the layer count, which is bounded, or as that of the file.
/// A file that is silent on the window's size has `usual`; 0 is none in any layer.
pub(super) fn layer_types(
    header: &Header<'_>,
    settings: &mut Settings,
    usual: usize,
    every: usize,
) -> Result<()> {
    const PATTERN: &str = "attention.sliding_window_pattern";
    let window = header.usize("attention.sliding_window")?.unwrap_or(usual);
    if window > 0 {
        settings.insert("sliding_window".into(), window.into());
    }
    let slides: Vec<bool> = match header.flags(PATTERN)? {
        Some(flags) => flags,
        None => {
            let every = header.usize(PATTERN)?.unwrap_or(every) as u64;
            let layers = whole(settings, "num_hidden_layers").unwrap_or(0).min(MOST_LAYERS);
            (1..=layers).map(|i| !i.is_multiple_of(every)).collect()
        }
    };
    let kind = |slides| if slides && window > 0 { "sliding_attention" } else { "full_attention" };
    settings.insert("layer_types".into(), slides.into_iter().map(kind).collect());
    Ok(())
}

/// Layers of the first kind are those without key heads, and the others of the second: GGUF has a number of key heads for each layer of a
/// hybrid. A single one is that of all.
pub(super) fn kinds_by_key_heads(settings: &mut Settings, [without, with]: [&str; 2]) -> Result<()> {
    if !settings.contains_key("num_key_value_heads") {
        return Ok(());
    }
    let counts = of_each_layer(settings, "num_key_value_heads");
    let kind = |count: &Value| if *count == 0 { without } else { with };
    settings.insert("layer_types".into(), counts.iter().map(kind).collect());
    key_heads(settings, &counts)
}

/// Takes out what is said for each layer, nothing where nothing is said; a single value is that of all.
pub(super) fn of_each_layer(settings: &mut Settings, key: &str) -> Vec<Value> {
    let layers = whole(settings, "num_hidden_layers").unwrap_or(0).min(MOST_LAYERS) as usize;
    match settings.remove(key) {
        Some(Value::Array(each)) => each,
        Some(same) => vec![same; layers],
        None => Vec::new(),
    }
}

/// Sets how many key heads layers have that have some.
pub(super) fn key_heads(settings: &mut Settings, counts: &[Value]) -> Result<()> {
    let mut heads = counts.iter().filter(|count| **count != 0);
    if let Some(first) = heads.next() {
        if let Some(other) = heads.find(|count| *count != first) {
            let why = format!("some layers have {first} key heads and some {other}, which is not known");
            return Err(Error::unsupported("attention.head_count_kv", why));
        }
        settings.insert("num_key_value_heads".into(), first.clone());
    }
    Ok(())
}

/// Refuses experts that are scored by another function than the sigmoid, where the file says.
pub(super) fn only_sigmoids(header: &Header<'_>) -> Result<()> {
    const SIGMOID: usize = 2;
    let Some(other) = header.usize("expert_gating_func")?.filter(|f| *f != SIGMOID) else { return Ok(()) };
    let why =
        format!("experts are scored by the function of number {other}; known is {SIGMOID}, the sigmoid");
    Err(Error::unsupported("expert_gating_func", why))
}

/// Refuses a model that also sees, whose rows some converters reorder.
pub(super) fn of_one_dimension(header: &Header<'_>) -> Result<()> {
    let key = "rope.dimension_sections";
    if header.value(key)?.is_none() {
        return Ok(());
    }
    Err(Error::unsupported(key, "the file has positions of several dimensions, which are not known"))
}

/// The names of classes and, in files of Ogive, what is made of their scores, as Hugging Face's settings have them.
pub(super) fn classes(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    const KIND: &str = "ogive.classifier.problem_type";
    if let Some(kind) = header.global(KIND)? {
        if !kind.is_string() {
            return Err(Error::invalid(KIND, format!("it is {kind} and should be a name")));
        }
        settings.insert("problem_type".into(), kind);
    }
    let Some(labels) = header.list("classifier.output_labels")? else { return Ok(()) };
    let named = labels.into_iter().enumerate().map(|(i, label)| (i.to_string(), label));
    settings.insert("id2label".into(), Value::Object(named.collect()));
    Ok(())
}

/// Takes layers at the end that foretell more than one token off the count: they are no part of the model.
pub(super) fn without_foretelling(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    if let Some((layers, behind)) =
        whole(settings, "num_hidden_layers").zip(header.usize("nextn_predict_layers")?)
    {
        let first = layers.saturating_sub(behind as u64);
        let attends = |layer: u64| header.has_tensor(&format!("blk.{layer}.attn_norm.weight"));
        // A file may count them and have none.
        let left_out = first > 0 && attends(first - 1) && !attends(first);
        if left_out || header.has_tensor(&format!("blk.{first}.nextn.eh_proj.weight")) {
            settings.insert("num_hidden_layers".into(), first.into());
        }
    }
    Ok(())
}

/// A setting that is a whole number.
pub(super) fn whole(settings: &Settings, key: &str) -> Option<u64> {
    settings.get(key)?.as_u64()
}

fn even((all, parts): (u64, u64)) -> Option<u64> {
    (parts > 0 && all.is_multiple_of(parts)).then(|| all / parts)
}
