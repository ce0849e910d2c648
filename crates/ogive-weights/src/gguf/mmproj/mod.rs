//! What a model sees with, which llama.cpp keeps in a GGUF file of its own (`mmproj`, of the architecture `clip`): as Hugging Face has it, a family to a
//! file.
//!
//! Which tower it is `clip.projector_type` says and not the architecture, so a [`Translation`] is found by that. Sources: llama.cpp's
//! `tools/mtmd/clip.cpp`, which reads such files, and the converter that writes them.

mod gemma3;
mod idefics3;
mod internvl;
mod llava;
mod pixtral;
mod qwen_vl;
mod siglip;

use super::settings::copy;
use super::{Header, Settings, Translation};
use gguf_file::Gguf;
use ogive_tensor::{Error, Result};
use serde_json::{Value, json};

/// The name under `general.architecture`.
pub(super) const ARCHITECTURE: &str = "clip";

/// What the keys begin with.
pub(super) const KEYS: &str = "clip.vision";

/// The translations this crate has.
pub(super) fn translations() -> Vec<Translation> {
    vec![
        gemma3::gemma3(),
        qwen_vl::qwen2_vl(),
        qwen_vl::qwen2_5_vl(),
        qwen_vl::qwen3_vl(),
        pixtral::pixtral(),
        idefics3::idefics3(),
        internvl::internvl(),
        llava::llava(),
    ]
}

/// The last of `all` that is for this file.
pub(super) fn find<'a>(all: &'a [Translation], gguf: &Gguf) -> Result<&'a Translation> {
    // The second where there is one for what is heard too.
    const KEY: &str = "clip.projector_type";
    let said =
        |key| gguf.metadata().opt_str(key).map_err(|e| Error::other("reading the projector's name", e));
    let name = match said(KEY)? {
        Some(name) => Some(name),
        None => said("clip.vision.projector_type")?,
    };
    let name = name.ok_or_else(|| Error::missing(KEY))?;
    all.iter().rev().find(|t| t.projector() == Some(name)).ok_or_else(|| {
        let mut known: Vec<&str> = all.iter().filter_map(Translation::projector).collect();
        known.sort_unstable();
        known.dedup();
        Error::unsupported(
            KEY,
            format!("the projector `{name}` is not known; known are {}", known.join(", ")),
        )
    })
}

/// What all such files say: of the tower as `vision_config`, and of colours.
pub(super) fn common(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    const NEEDED: &[(&str, &str)] = &[
        ("block_count", "num_hidden_layers"),
        ("embedding_length", "hidden_size"),
        ("attention.head_count", "num_attention_heads"),
        ("image_size", "image_size"),
        ("patch_size", "patch_size"),
    ];
    let mut vision = Settings::new();
    for (key, setting) in NEEDED {
        let value = header.usize(key)?.ok_or_else(|| Error::missing(&format!("{KEYS}.{key}")))?;
        vision.insert((*setting).into(), value.into());
    }
    copy(
        header,
        &mut vision,
        &[("feed_forward_length", "intermediate_size"), ("attention.layer_norm_epsilon", "layer_norm_eps")],
    )?;
    vision.insert("hidden_act".into(), activation(header)?.into());
    settings.insert("vision_config".into(), Value::Object(vision));
    let mut colours = Settings::new();
    for key in ["image_mean", "image_std"] {
        let Some(mut list) = header.list(key)? else { continue };
        // Of more the first three are read.
        list.truncate(3);
        if list.len() < 3 || !list.iter().all(Value::is_number) {
            let why =
                format!("it is {}, and should be a number for each of three colours", Value::from(list));
            return Err(Error::invalid(&format!("{KEYS}.{key}"), why));
        }
        colours.insert(key.into(), list.into());
    }
    settings.insert("image_processor".into(), Value::Object(colours));
    Ok(())
}

/// The activation of the blocks' MLPs.
fn activation(header: &Header<'_>) -> Result<&'static str> {
    let is = |key: &str| {
        let value = header.global(key)?.unwrap_or(Value::Bool(false));
        value.as_bool().ok_or_else(|| Error::invalid(key, format!("it is {value}, and should be a flag")))
    };
    match (is("clip.use_gelu")?, is("clip.use_silu")?) {
        // As ggml computes it.
        (true, false) => Ok("gelu_pytorch_tanh"),
        (false, true) => Ok("silu"),
        (false, false) => Ok("quick_gelu"),
        (true, true) => {
            Err(Error::invalid("clip.use_gelu", "`clip.use_silu` is set too, and blocks have one"))
        }
    }
}

/// The settings of the tower.
fn tower(settings: &mut Settings, change: impl FnOnce(&mut Settings)) {
    if let Some(tower) = settings.get_mut("vision_config").and_then(Value::as_object_mut) {
        change(tower);
    }
}

/// Gives settings of the tower the names that a family has for them.
fn renamed(tower: &mut Settings, names: &[(&str, &str)]) {
    for (from, to) in names {
        if let Some(value) = tower.remove(*from) {
            tower.insert((*to).into(), value);
        }
    }
}

/// The type of the model, and of its tower.
fn types(settings: &mut Settings, of_model: &str, of_tower: &str) {
    settings.insert("model_type".into(), json!(of_model));
    tower(settings, |tower| _ = tower.insert("model_type".into(), json!(of_tower)));
}

/// The MLP's first and last matrix, which the first converters called each other's names. Their shapes tell, where they differ.
fn mlp(t: Translation, up: String, down: String) -> Translation {
    let named = move |t: Translation, [first, last]: [&str; 2]| {
        t.rename(&format!("v.blk.{{}}.{first}"), &up).rename(&format!("v.blk.{{}}.{last}"), &down)
    };
    named(t, ["ffn_up", "ffn_down"]).for_file(move |t, header| {
        let inputs = |name: &str| header.gguf().tensor(name)?.dims().first().copied();
        let dim = header.usize("embedding_length").ok().flatten().map(|dim| dim as u64);
        let [up, down] = ["v.blk.0.ffn_up.weight", "v.blk.0.ffn_down.weight"].map(inputs);
        let swapped = dim.is_some() && down == dim && up != dim;
        if swapped { named(t, ["ffn_down", "ffn_up"]) } else { t }
    })
}
