//! The repository's models as GGUF files, made by `ogive-quantize` of their folders.
#![allow(dead_code)]

use crate::common::every;
use ogive_nn::tensor::serde_json::{self, Value, json};
use ogive_quantize::gguf_file::Gguf;
use ogive_quantize::{FileFormat, Input, Quantize};
use ogive_weights::{Checkpoint, OpenOptions};
use std::path::{Path, PathBuf};

/// Any of the repository's models.
pub(crate) fn named(name: &str) -> PathBuf {
    every().into_iter().find(|(own, _)| own == name).unwrap().1
}

/// The folder as a GGUF file that was opened, or the refusal.
pub(crate) fn as_gguf(
    folder: &Path,
    format: &str,
    change: impl FnOnce(&mut Value),
) -> ogive_quantize::Result<Checkpoint> {
    Ok(OpenOptions::new().of_gguf(gguf_of(folder, format, change)?.into())?)
}

/// The folder as a GGUF file, or the refusal.
pub(crate) fn gguf_of(
    folder: &Path,
    format: &str,
    change: impl FnOnce(&mut Value),
) -> ogive_quantize::Result<Gguf> {
    Ok(Gguf::from_bytes(gguf_bytes(folder, format, change)?)?)
}

/// The same as bytes. Decoders have no vocabulary, so they get that of an encoder, which has as many tokens.
pub(crate) fn gguf_bytes(
    folder: &Path,
    format: &str,
    change: impl FnOnce(&mut Value),
) -> ogive_quantize::Result<Vec<u8>> {
    packed(folder, format, change, |copy| Input::open(copy))
}

/// What the folder's model sees with as a GGUF file's bytes, or the refusal.
pub(crate) fn mmproj_bytes(
    folder: &Path,
    format: &str,
    change: impl FnOnce(&mut Value),
) -> ogive_quantize::Result<Vec<u8>> {
    packed(folder, format, change, |copy| {
        // Pixtral's files have the vector of a token, which no vocabulary here has; any will do.
        let added = json!({"added_tokens_decoder": {"130": {"content": "[IMG_BREAK]"}}});
        std::fs::write(copy.join("tokenizer_config.json"), added.to_string()).unwrap();
        Input::open_mmproj(copy)
    })
}

fn packed(
    folder: &Path,
    format: &str,
    change: impl FnOnce(&mut Value),
    open: impl FnOnce(&Path) -> ogive_quantize::Result<Input>,
) -> ogive_quantize::Result<Vec<u8>> {
    let copy = tempfile::tempdir().unwrap();
    let to = |name: &str| copy.path().join(name);
    std::fs::copy(folder.join("model.safetensors"), to("model.safetensors")).unwrap();
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(named("bert").join(name), to(name)).unwrap();
    }
    let mut config: Value =
        serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
    (config["bos_token_id"], config["eos_token_id"]) = (json!(2), json!(3));
    change(&mut config);
    std::fs::write(to("config.json"), config.to_string()).unwrap();
    let mut file = Vec::new();
    let quantize = Quantize::new(FileFormat::find(format)?);
    quantize.write_to(&open(copy.path())?, &mut file, |_| true)?;
    Ok(file)
}
