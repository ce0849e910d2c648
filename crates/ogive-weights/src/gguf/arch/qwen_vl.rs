//! `qwen2vl`, `qwen3vl` and `qwen3vlmoe`: the text's part of models that see, whose pairs turn by places.
//!
//! It is Qwen2's and Qwen3's but for that. What they see with is in a file of its own (`mmproj`). How many blocks get something of an image behind
//! them (`n_deepstack_layers`) is passed over: llama.cpp must know it as it has it all in one long row, and here what was seen says it.

use super::qwen::with_experts;
use crate::gguf::{Header, Settings, Translation};
use ogive_tensor::{Error, Result};
use serde_json::{Value, json};

/// Qwen2.5-VL's too.
pub(super) fn qwen2_vl() -> Translation {
    Translation::decoder("qwen2vl", "Qwen2VLForConditionalGeneration").settings(sections)
}

pub(super) fn qwen3_vl() -> Translation {
    Translation::decoder("qwen3vl", "Qwen3VLForConditionalGeneration").settings(sections)
}

pub(super) fn qwen3_vl_moe() -> Translation {
    let t = Translation::decoder("qwen3vlmoe", "Qwen3VLMoeForConditionalGeneration");
    with_experts(t, true).settings(sections)
}

const KEY: &str = "rope.dimension_sections";

/// How many pairs turn by time, down and across. A fourth number is nobody's.
fn sections(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    let list =
        header.list(KEY)?.ok_or_else(|| Error::missing(&format!("{}.{KEY}", header.architecture())))?;
    let sections = match list.split_at_checked(3) {
        Some((sections, rest)) if rest.iter().all(|n| *n == 0) => sections.to_vec(),
        _ => {
            let why = format!("it is {}, and should be three whole numbers and a 0", Value::from(list));
            return Err(Error::invalid(KEY, why));
        }
    };
    let scaling = settings.entry("rope_scaling").or_insert_with(|| json!({"rope_type": "default"}));
    if let Some(scaling) = scaling.as_object_mut() {
        scaling.insert("mrope_section".into(), sections.into());
    }
    Ok(())
}

/// The same of Qwen3.5, whose pairs take turns, and whose files may be of a text alone: there nothing hangs on sections, and those that are not
/// of all pairs are passed over.
pub(super) fn in_turn(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    let pairs = header.usize("rope.dimension_count")?.map(|turned| turned as u64 / 2);
    let list = header.list(KEY)?.unwrap_or_default();
    let sum = list.iter().try_fold(0_u64, |sum, n| sum.checked_add(n.as_u64()?));
    if list.is_empty() || sum != pairs {
        return Ok(());
    }
    sections(header, settings)?;
    if let Some(scaling) = settings.get_mut("rope_scaling").and_then(Value::as_object_mut) {
        scaling.insert("mrope_interleaved".into(), true.into());
    }
    Ok(())
}
