//! Models that also see: the model's own file has the text's part. What they see with goes into a file of its own; see [`mmproj`](super::mmproj).
//!
//! The text's settings stand below `text_config`, or, in the first checkpoints of Qwen2-VL, among all others.

use super::settings::whole;
use super::{Keys, Model, refuse};
use crate::{Error, Result};
use ogive_tensor::Config;
use ogive_weights::Checkpoint;
use serde_json::{Value, json};

/// GGUF's names of what has positions that are places.
pub(super) const QWEN2: &str = "qwen2vl";
pub(super) const QWEN3: &str = "qwen3vl";

/// Classes, and that of their text where it is always the same. Of others the type of the text says it.
pub(super) const CLASSES: &[(&str, Option<&str>)] = &[
    ("Gemma3ForConditionalGeneration", Some("Gemma3ForCausalLM")),
    ("Gemma3nForConditionalGeneration", Some("Gemma3nForConditionalGeneration")),
    ("Gemma4ForConditionalGeneration", Some("Gemma4ForConditionalGeneration")),
    ("Qwen2VLForConditionalGeneration", Some("Qwen2VLForConditionalGeneration")),
    ("Qwen2_5_VLForConditionalGeneration", Some("Qwen2_5_VLForConditionalGeneration")),
    ("Qwen3VLForConditionalGeneration", Some("Qwen3VLForConditionalGeneration")),
    ("Qwen3_5ForConditionalGeneration", Some("Qwen3_5ForConditionalGeneration")),
    ("Qwen3_5MoeForConditionalGeneration", Some("Qwen3_5MoeForConditionalGeneration")),
    ("Idefics3ForConditionalGeneration", None),
    ("InternVLForConditionalGeneration", None),
    ("Llama4ForConditionalGeneration", Some("Llama4ForCausalLM")),
    ("LlavaForConditionalGeneration", None),
    ("Mistral3ForConditionalGeneration", None),
    ("SmolVLMForConditionalGeneration", None),
];

/// Classes of texts by their type.
const TEXTS: &[(&str, &str)] = &[
    ("llama", "LlamaForCausalLM"),
    ("mistral", "MistralForCausalLM"),
    ("qwen2", "Qwen2ForCausalLM"),
    ("qwen3", "Qwen3ForCausalLM"),
];

const TIED: &str = "tie_word_embeddings";

/// What DeepStack reads, which stands in the settings of the tower, is of the text too.
const DEEP: &str = "deepstack_visual_indexes";

/// Leaves of a checkpoint that also sees the settings and the class of its text, and says whether it is one.
///
/// # Errors
/// If the text is of a type that is not known.
pub(crate) fn text_alone(checkpoint: &mut Checkpoint) -> Result<bool> {
    let Some((_, text_class)) = CLASSES.iter().find(|(class, _)| *class == checkpoint.architecture) else {
        return Ok(false);
    };
    let deep = checkpoint.config.at("vision_config").0.get(DEEP).cloned();
    if checkpoint.config.has("text_config") {
        let mut text = checkpoint.config.at("text_config");
        if let (Some(whole), Some(text)) = (checkpoint.config.0.as_object(), text.0.as_object_mut()) {
            for key in ["bos_token_id", "eos_token_id", "pad_token_id", "quantization_config"] {
                if let (Some(value), None) = (whole.get(key), text.get(key)) {
                    text.insert(key.into(), value.clone());
                }
            }
            // Said of the whole or of the text; a head of its own is kept whatever they say.
            if let Some(tied) = whole.get(TIED).filter(|tied| !tied.is_null() && **tied != false) {
                text.insert(TIED.into(), tied.clone());
            }
        }
        checkpoint.config = text;
    }
    if let (Some(settings), Some(deep)) = (checkpoint.config.0.as_object_mut(), deep) {
        settings.insert(DEEP.into(), deep);
    }
    checkpoint.architecture = match text_class {
        Some(class) => (*class).to_owned(),
        None => by_type(&checkpoint.config)?.to_owned(),
    };
    let usual: &[(&str, Value)] = match (text_class, &*checkpoint.architecture) {
        (_, "Gemma3ForCausalLM") => &gemma3(),
        (None, "LlamaForCausalLM") => &llama(),
        (None, "MistralForCausalLM") => &mistral(),
        _ => &[],
    };
    if let Some(settings) = checkpoint.config.0.as_object_mut() {
        for (key, value) in usual {
            // `null` is no default: it turns a window off.
            settings.entry(*key).or_insert_with(|| value.clone());
        }
    }
    Ok(true)
}

/// The class of a text by its type.
fn by_type(text: &Config) -> Result<&'static str> {
    let said = text.opt_str("model_type")?.unwrap_or("llama");
    let known = || {
        let known: Vec<&str> = TEXTS.iter().map(|(kind, _)| *kind).collect();
        let why = format!("texts of type `{said}` are not converted; known are {}", known.join(", "));
        Error::convert("the setting text_config.model_type", why)
    };
    TEXTS.iter().find(|(kind, _)| *kind == said).map(|(_, class)| *class).ok_or_else(known)
}

/// What `Gemma3TextConfig` takes for granted: settings of texts are sparse in checkpoints that also see.
fn gemma3() -> [(&'static str, Value); 9] {
    [
        ("num_attention_heads", json!(8)),
        ("num_key_value_heads", json!(4)),
        ("head_dim", json!(256)),
        ("query_pre_attn_scalar", json!(256)),
        ("rms_norm_eps", json!(1e-6)),
        ("max_position_embeddings", json!(131_072)),
        ("rope_theta", json!(1e6)),
        ("rope_local_base_freq", json!(1e4)),
        ("sliding_window", json!(4096)),
    ]
}

/// What `LlamaConfig` does.
fn llama() -> [(&'static str, Value); 4] {
    [
        ("num_attention_heads", json!(32)),
        ("num_hidden_layers", json!(32)),
        ("hidden_size", json!(4096)),
        ("rms_norm_eps", json!(1e-6)),
    ]
}

/// What `MistralConfig` does.
fn mistral() -> Vec<(&'static str, Value)> {
    let own = [("num_key_value_heads", json!(8)), ("sliding_window", json!(4096))];
    llama().into_iter().chain(own).collect()
}

/// Whether a tensor is of what a model sees with.
pub(super) fn is_of_tower(name: &str) -> bool {
    const PARTS: [&str; 5] =
        ["visual.", "vision_tower.", "vision_model.", "multi_modal_projector.", "connector."];
    let bare = name.strip_prefix("model.").unwrap_or(name);
    PARTS.iter().any(|part| bare.starts_with(part))
}

/// The text's name for a tensor of a checkpoint that also sees, whichever version of transformers saved it.
pub(super) fn text_name(model: &Model<'_>, name: &str) -> Option<String> {
    if !model.sees {
        return None;
    }
    let of_model = name.strip_prefix("model.language_model.").or(name.strip_prefix("model.text_model."));
    let own = of_model.map(|rest| format!("model.{rest}"));
    own.or_else(|| Some(name.strip_prefix("language_model.")?.to_owned()))
}

/// Sets what texts have whose positions are places.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>) -> Result<()> {
    let config = model.config;
    let sections = match config.at("rope_scaling").opt_usizes("mrope_section")? {
        Some(sections) => Some(sections),
        None => config.opt_usizes("mrope_section")?,
    };
    let Some(sections) = sections else {
        return refuse("rope_scaling", "it has no `mrope_section`, and pairs of this class turn by places");
    };
    set_sections(keys, sections)?;
    if model.architecture == QWEN3 {
        let deep = config.opt_usizes(DEEP)?.unwrap_or_default();
        keys.set("n_deepstack_layers", whole(DEEP, deep.len())?);
    }
    Ok(())
}

/// Sets how many pairs turn by time, down and across; a fourth number is nobody's.
pub(super) fn set_sections(keys: &mut Keys<'_>, sections: Vec<usize>) -> Result<()> {
    let misfit = || {
        let why = format!("it is {sections:?}, and GGUF has four numbers of 31 bits, not all of them 0");
        Error::convert("the setting mrope_section", why)
    };
    let four = sections.iter().copied().chain([0; 4]).take(sections.len().max(4));
    let four: Vec<i32> = four.map(|n| i32::try_from(n).map_err(|_| misfit())).collect::<Result<_>>()?;
    if four.len() > 4 || four.iter().all(|n| *n == 0) {
        return Err(misfit());
    }
    keys.set("rope.dimension_sections", four);
    Ok(())
}
