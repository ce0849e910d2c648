//! Adapters as llama.cpp's converter writes them: a GGUF file of the model's architecture, with two matrices for each that it changes.
//!
//! The updates of rows that the converter reorders are reordered alike, and are brought back here by the same rule as the rows themselves.

use super::{Update, Updates};
use crate::formats::Formats;
use crate::gguf::{Translation, fill_in, find_translation, read as read_tensor, translations};
use crate::open::Checkpoint;
use gguf_file::Gguf;
use ogive_tensor::{Error, HostWeight, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// What the names of the two matrices end in, behind that of the matrix which they change.
const LEAVES: [&str; 2] = [".lora_a", ".lora_b"];

/// Reads a file for a model of the same architecture.
pub(super) fn read(path: &Path, model: &Checkpoint) -> Result<Updates> {
    let gguf = Gguf::open(path).map_err(|e| Error::other("opening it", e))?;
    let of = |key: &str| gguf.metadata().opt_str(key).map_err(|e| Error::other("reading its settings", e));
    let kind = of("general.type")?.unwrap_or("model");
    if kind != "adapter" {
        return Err(Error::invalid("general.type", format!("`{kind}`: this is no adapter")));
    }
    let kind = of("adapter.type")?.unwrap_or_default();
    if kind != "lora" {
        return Err(Error::unsupported("adapter.type", format!("`{kind}`; known is lora")));
    }
    const LATER: &str = "adapter.alora.invocation_tokens";
    if gguf.metadata().contains(LATER) {
        return Err(Error::unsupported(LATER, "an adapter that counts from some tokens on is not known"));
    }
    let alpha = gguf.metadata().opt_f32("adapter.lora.alpha");
    let alpha = alpha.map_err(|e| Error::other("reading its settings", e))?.unwrap_or(0.0);
    let all = translations();
    let translation = find_translation(&all, &gguf)?;
    if translation.class() != model.architecture {
        let why = format!(
            "the adapter is for a {}, and the model is a {}",
            translation.class(),
            model.architecture
        );
        return Err(Error::invalid("general.architecture", why));
    }
    let mut halves: BTreeMap<&str, [Option<HostWeight>; 2]> = BTreeMap::new();
    for tensor in gguf.tensors() {
        let leaf = LEAVES.iter().position(|leaf| tensor.name().ends_with(leaf));
        let leaf = leaf.ok_or_else(|| {
            let why = "this is no update of a matrix (`.lora_a` or `.lora_b`), and nothing else of an adapter is known";
            Error::unsupported(tensor.name(), why)
        })?;
        let matrix = tensor.name().strip_suffix(LEAVES[leaf]).unwrap_or_default();
        halves.entry(matrix).or_default()[leaf] = Some(read_tensor(&gguf, tensor, &Formats::default())?);
    }
    let update = |(tensor, halves): (&str, [Option<HostWeight>; 2])| {
        let [Some(down), Some(up)] = halves else {
            return Err(Error::invalid(tensor, "of the two matrices of its update there is one"));
        };
        let (name, up) = translated(tensor, up, translation, model)?;
        // Without it, as llama.cpp takes it.
        let factor = if alpha == 0.0 { 1.0 } else { alpha / down.shape[1].max(1) as f32 };
        let update = Update::new(&name, down, up, factor)?;
        Ok((name, update))
    };
    halves.into_iter().map(update).collect()
}

/// What the matrix is called, and how its update's outputs are ordered there.
fn translated(
    tensor: &str,
    up: HostWeight,
    translation: &Translation,
    model: &Checkpoint,
) -> Result<(String, HostWeight)> {
    let (rule, numbers) =
        translation.rule_for(tensor).filter(|(rule, _)| rule.from.len() == 1).ok_or_else(|| {
            Error::unsupported(
                tensor,
                "the adapter changes a tensor that is no matrix by itself in this architecture",
            )
        })?;
    let name = fill_in(&rule.to, &numbers);
    let name = name.strip_suffix(".weight").unwrap_or(&name).to_owned();
    let up = match &rule.change {
        None => up,
        Some(change) => change.of_outputs(&up, &model.config)?.ok_or_else(|| {
            Error::unsupported(
                tensor,
                "the adapter changes a tensor that is kept in another form in GGUF files",
            )
        })?,
    };
    Ok((name, up))
}

/// Refuses a model whose weights have factors in them: an adapter knows nothing of those.
pub(super) fn without_factors(gguf: &Gguf) -> Result<()> {
    let known = translations();
    match find_translation(&known, gguf) {
        Ok(found) if found.has_factors_in_weights() => {
            let why = format!(
                "GGUF files of `{}` have factors in their weights, which an adapter does not know of; take the model as a folder",
                found.architecture()
            );
            Err(Error::unsupported("the model", why))
        }
        _ => Ok(()),
    }
}
