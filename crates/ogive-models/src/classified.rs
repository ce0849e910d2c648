//! Models that judge texts: BERT's and RoBERTa's classes for sequences, among them the rerankers ms-marco-MiniLM and bge-reranker, and Qwen3's, which
//! Qwen3-Reranker is converted to.
//!
//! The references are transformers' `BertForSequenceClassification`, `RobertaForSequenceClassification` and `GenericForSequenceClassification`. The first two
//! look at the first token, through a layer and a tanh, which the one calls a pooler and the other a part of its head; the last at the last token that is not
//! padding, through nothing. That is so of padding a text has of its own, too: a tokenizer may end texts with the token that others are filled up with
//! (Qwen3-Embedding's does), and the class learned to look before it.

use crate::{bert, llama};
use ogive_nn::backend::Activation;
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Classifier, Config, Loader, Model, Pooling};

/// Reads a BERT with a head for classes, with or without `bert.` before its own names.
///
/// # Errors
/// If the pooler is missing; else as [`bert::load`].
pub fn load_bert(c: &Config, file: &Loader<'_>) -> Result<Box<dyn Model>> {
    let root = file.at_or_here("bert", "embeddings.word_embeddings")?;
    let pooler = root.optional(root.linear("pooler.dense"))?.ok_or_else(|| {
        let why = "the file has a classifier and no pooler before it, as files by older converters of llama.cpp: its scores would \
            be others than the model learned";
        Error::unsupported("pooler.dense.weight", why)
    })?;
    let out = file.linear("classifier")?;
    let model = bert::load(c, file)?;
    Ok(Box::new(Classifier::new(model, Pooling::Cls, pooler, Activation::Tanh, out)))
}

/// Reads a RoBERTa, XLM-RoBERTa or CamemBERT with a head for classes.
///
/// # Errors
/// As [`bert::load_roberta`].
pub fn load_roberta(c: &Config, file: &Loader<'_>) -> Result<Box<dyn Model>> {
    let l = file.at("classifier");
    let (dense, out) = (l.linear("dense")?, l.linear("out_proj")?);
    let model = bert::load_roberta(c, file)?;
    Ok(Box::new(Classifier::new(model, Pooling::Cls, dense, Activation::Tanh, out)))
}

/// Reads a Qwen3 with a head for classes, which llama.cpp's files have too.
///
/// # Errors
/// If `pad_token_id` is no whole number; else as [`llama::load_qwen`].
pub fn load_qwen(c: &Config, file: &Loader<'_>) -> Result<Box<dyn Model>> {
    let out = file.linear("score")?;
    // Below 0, or beyond all ids, it is no token's.
    let padding = match &c.0["pad_token_id"] {
        none if none.is_null() => None,
        id if id.is_i64() || id.is_u64() => id.as_u64().and_then(|id| u32::try_from(id).ok()),
        other => {
            return Err(Error::invalid("config", format!("`pad_token_id` is {other} and should be an id")));
        }
    };
    let model = llama::load_qwen(c, file)?;
    Ok(Box::new(Classifier::bare(model, Pooling::Last, out).padded(padding)))
}
