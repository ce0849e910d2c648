//! RoBERTa and its kin, and heads for classes, as `bert`.
//!
//! llama.cpp knows one graph for all: positions begin at the first row of their table, so the rows that no token has are cut off, and a head is a
//! layer `cls`, a tanh and `cls.output`. That is also what a BERT's pooler and classifier are, so they become these, though llama.cpp's own converter
//! leaves the pooler out and its scores are then others.

use super::tensors::of_one;
use super::{Keys, Model, refuse};
use crate::input::Tensor;
use crate::{Error, Result};
use gguf_file::StringArray;
use ogive_tokenizer::Tokenizer;
use ogive_weights::Change;

/// GGUF's number for models that rank texts.
pub(super) const RANK: u32 = 4;

/// Whether a class has a head for classes of texts.
pub(super) fn judges(class: &str) -> bool {
    class.ends_with("ForSequenceClassification")
}

fn is_kin(class: &str) -> bool {
    ["Camembert", "Roberta", "XLMRoberta"].iter().any(|kin| class.starts_with(kin))
}

/// A tensor's name as [`BertForSequenceClassification`] has it.
pub(super) fn own_name(name: &str) -> String {
    let name = ["bert.", "roberta."].iter().find_map(|model| name.strip_prefix(model)).unwrap_or(name);
    for (own, usual) in [("classifier.dense.", "pooler.dense."), ("classifier.out_proj.", "classifier.")] {
        if let Some(leaf) = name.strip_prefix(own) {
            return format!("{usual}{leaf}");
        }
    }
    name.to_owned()
}

/// What an encoder has for its training and for other answers than it is converted for.
pub(super) fn is_beside(model: &Model<'_>, name: &str) -> bool {
    let heads = ["cls.", "lm_head."].iter().any(|head| name.starts_with(head));
    model.is_encoder() && (heads || !judges(model.class) && name.starts_with("pooler."))
}

/// The table of positions without rows that no token has.
pub(super) fn positions(model: &Model<'_>) -> Result<Option<Change>> {
    if !is_kin(model.class) {
        return Ok(None);
    }
    let (unused, left) =
        (model.config.usize("pad_token_id")?, model.config.usize("max_position_embeddings")?);
    let unused = unused.saturating_add(1);
    let misfit = || {
        let why = "the table of positions has not as many rows as the settings say";
        ogive_tensor::Error::invalid("position_embeddings", why)
    };
    let fits = move |[experts, rows, cols]: [usize; 3]| {
        (experts == 1 && rows.checked_sub(unused) == Some(left)).then_some([1, left, cols])
    };
    Ok(Some(of_one(misfit, fits, move |table, [_, rows, _]| table.rows(unused..unused + rows))))
}

/// Sets what a head for classes is told by, and refuses a model without one that should have it.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>, tensors: &[Tensor]) -> Result<()> {
    if !judges(model.class) {
        return Ok(());
    }
    for name in ["cls.weight", "cls.bias", "cls.output.weight", "cls.output.bias"] {
        if tensors.iter().all(|t| t.name != name) {
            let why = "the folder has none that becomes it, and the model judges texts by it; is the download complete?";
            return Err(Error::convert(format!("the tensor {name}"), why));
        }
    }
    let out = tensors.iter().find(|t| t.name == "cls.output.weight");
    let classes = out.and_then(|t| t.dims.get(1)).copied().unwrap_or(1);
    let named = |i: u64| model.config.0["id2label"][i.to_string()].as_str().map(ToOwned::to_owned);
    // More than a file has rows for are never asked for.
    let labels = (0..classes).map(|i| named(i).unwrap_or_else(|| format!("LABEL_{i}")));
    keys.set("classifier.output_labels", labels.collect::<StringArray>());
    keys.set("pooling_type", RANK);
    Ok(())
}

/// Whether another separator stands between two texts. `None` where a file cannot say how they are one, with types of tokens or without.
pub(super) fn separates(tokenizer: &Tokenizer) -> Option<bool> {
    let ([before, after], (between, types)) = (tokenizer.around(), tokenizer.pair(&[], &[])?);
    let plain = [before, after, after].concat();
    let separator: Vec<u32> = tokenizer.special().separator.into_iter().collect();
    match types.iter().all(|kind| *kind == 0) {
        _ if between == plain => Some(false),
        true if between == [before, after, &separator, after].concat() => Some(true),
        _ => None,
    }
}

/// That two texts are one in the file that was made as they are in the folder, where the model takes such.
pub(super) fn check_pairs(class: &str, tokenizer: &Tokenizer, made: &Tokenizer) -> Result<()> {
    // Ids that both have: what is asked is what stands around them.
    let of = |tokenizer: &Tokenizer| tokenizer.pair(&[0, 0], &[0, 0, 0]);
    match judges(class) && (of(tokenizer).is_none() || of(tokenizer) != of(made)) {
        true => refuse("post_processor", "GGUF cannot say how two texts are one, as this tokenizer has it"),
        false => Ok(()),
    }
}
