//! `tokenizer.ggml.model` = `t5`: SentencePiece's Unigram, of T5, XLM-RoBERTa and their kin.
//!
//! What is done to a text before is what `tokenizers` does for these models' folders, marks for spaces apart, which a file says in flags:
//! so a text is cut alike from either, but for white space at its end, which some folders' files keep (bge-m3's) and none of these. llama.cpp takes the longest match of the compiled rules, and cuts across spaces.

use super::{Rest, bad, damaged, finish, scores, table};
use crate::model::Model;
use crate::normalize::{Normalizer, SPACE_MARK};
use crate::precompiled::Precompiled;
use crate::pretokenize::{Prepend, Step};
use crate::tokenizer::Strip;
use crate::unigram::{Piece, Unigram};
use crate::vocab::TokenKind;
use crate::{Result, Tokenizer};
use gguf_file::{Array, Metadata, Value};

const RULES: &str = "tokenizer.ggml.precompiled_charsmap";

pub(super) fn unigram(metadata: &Metadata) -> Result<Tokenizer> {
    let table = table(metadata)?;
    let scores = scores(metadata, table.texts.len())?;
    let (vocab, bytes) = table.spelt_with_marks()?;
    let mut pieces = Vec::with_capacity(scores.len());
    for ((id, text, kind), score) in table.iter().zip(&scores) {
        let text = std::str::from_utf8(text)
            .map_err(|_| damaged(format!("token {id} ({:?}) is not UTF-8", table.text(id))))?;
        pieces.push(Piece { text, id, score: f64::from(*score), of_text: kind == TokenKind::Normal });
    }
    let cls = table.role(metadata, "cls", None, false)?;
    let special = table.special(metadata, [cls, Some(1), Some(2)])?;
    let model = Unigram::new(pieces.into_iter(), *bytes, special.unknown)?;
    let flag = |key: &str| metadata.opt_bool(&format!("tokenizer.ggml.{key}")).map_err(bad);
    let merged = flag("remove_extra_whitespaces")?.unwrap_or(true);
    // Where spaces are merged, each word has one before it.
    let prefix = flag("add_space_prefix")?.unwrap_or(true) || merged;
    let mut normalizers = Vec::new();
    normalizers.extend(rules(metadata)?.map(Normalizer::Precompiled));
    normalizers.push(Normalizer::Spaces { merged, prefix });
    let mark = SPACE_MARK.chars().next().unwrap_or(' ');
    let rest = Rest {
        vocab,
        normalizers,
        steps: vec![Step::Metaspace { mark, prepend: Prepend::Never, split: true }],
        model: Model::Unigram(Box::new(model)),
        bytes,
        special,
        add_bos: false,
        add_eos: true,
        strip: if prefix { Strip::AfterAdded } else { Strip::Never },
    };
    finish(metadata, &table, rest).map(Tokenizer::from_parts)
}

/// The compiled rules, in an array of bytes.
fn rules(metadata: &Metadata) -> Result<Option<Precompiled>> {
    let bytes: Vec<u8> = match metadata.get(RULES).map(Value::as_array) {
        None => return Ok(None),
        Some(Some(Array::U8(bytes))) => bytes.to_vec(),
        Some(Some(Array::I8(bytes))) => bytes.iter().map(|b| b.cast_unsigned()).collect(),
        Some(_) => return Err(damaged(format!("{RULES} should be an array of bytes"))),
    };
    if bytes.is_empty() { Ok(None) } else { Precompiled::new(&bytes).map(Some) }
}
