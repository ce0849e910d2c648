//! `tokenizer.json` and what lies beside it, as `tokenizer.ggml.*`.
//!
//! Ids, kinds and roles are asked of `ogive-tokenizer`, which has checked the files; what is read here besides is how tokens
//! are spelt and what merges with what. A BPE over characters becomes SentencePiece's, whose merges go by scores: a
//! token's score is the rank of the first merge that makes it. That is not the same in every case, and neither are
//! normalizers, which GGUF does not have. So the vocabulary that was made is opened and both are tried on a text.

use super::{gemma3n, pieces, roberta, unigram};
use crate::{Error, Result};
use gguf_file::{Metadata, StringArray};
use ogive_tokenizer::{EncodeOptions, TokenKind, Tokenizer, pre_tokenizer_name};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// What is read of the file, with a model of the kind it is of.
#[derive(Deserialize)]
pub(super) struct File<M> {
    pub(super) model: M,
    #[serde(default)]
    pub(super) added_tokens: Vec<Added>,
    #[serde(default)]
    pub(super) pre_tokenizer: Value,
    #[serde(default)]
    pub(super) normalizer: Value,
}

#[derive(Deserialize)]
struct Kind {
    model: KindOfModel,
}

#[derive(Deserialize)]
struct KindOfModel {
    r#type: Option<String>,
}

#[derive(Deserialize)]
struct Model {
    vocab: HashMap<String, u32>,
    merges: Vec<Merge>,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Joined(String),
    Pair(String, String),
}

#[derive(Deserialize)]
pub(super) struct Added {
    id: u32,
    content: String,
}

impl Merge {
    /// The two halves. `None` for a merge that is none.
    fn halves(&self) -> Option<(&str, &str)> {
        match self {
            Self::Joined(text) => text.split_once(' '),
            Self::Pair(a, b) => Some((a, b)),
        }
    }
}

pub(super) fn wrong(why: impl Into<String>) -> Error {
    Error::convert("tokenizer.json", why)
}

/// Sets the vocabulary's keys, for an embedding of so many rows, and says what readers do otherwise with it.
pub(super) fn set(
    metadata: &mut Metadata,
    folder: &Path,
    rows: u64,
    model: &super::Model<'_>,
) -> Result<Vec<String>> {
    let tokenizer = Tokenizer::from_folder(folder)?;
    // Of models that compare two texts, and of their kin.
    if metadata.str("general.architecture").is_ok_and(|own| own == "bert" || own == roberta::MODERN)
        && let Some(separates) = roberta::separates(&tokenizer)
    {
        metadata.set("tokenizer.ggml.add_sep_token", separates);
    }
    set_tokens(metadata, folder, rows, &tokenizer)?;
    let made = Tokenizer::from_gguf(metadata)?;
    roberta::check_pairs(model, &tokenizer, &made)?;
    Ok(unigram::note(&tokenizer, &made)?.into_iter().collect())
}

fn set_tokens(metadata: &mut Metadata, folder: &Path, rows: u64, tokenizer: &Tokenizer) -> Result<()> {
    let bytes = std::fs::read(folder.join("tokenizer.json")).map_err(|e| wrong(e.to_string()))?;
    let parse = |e: serde_json::Error| wrong(format!("reading it failed: {e}"));
    // Of Gemma 3n those that its layers have inputs for.
    let of = |name: &str| metadata.str("general.architecture").is_ok_and(|own| own == name);
    let (cut, gemma4) = (of(gemma3n::ARCHITECTURE), of("gemma4"));
    let kind: Kind = serde_json::from_slice(&bytes).map_err(parse)?;
    match kind.model.r#type.as_deref() {
        None | Some("BPE") => {}
        Some("WordPiece") => return pieces::set(metadata, tokenizer, &bytes, rows, cut),
        Some("Unigram") => return unigram::set(metadata, tokenizer, &bytes, rows, cut),
        Some(kind) => {
            let known = "BPE, Unigram, WordPiece";
            return Err(wrong(format!(
                "a model of type {kind} has no place in a GGUF file that Ogive reads; known are {known}"
            )));
        }
    }
    let file: File<Model> = serde_json::from_slice(&bytes).map_err(parse)?;
    let names = spellings(&file.model.vocab, &file.added_tokens, tokenizer, rows, cut)?;
    let kinds: Vec<i32> = (0..names.len() as u32).map(|id| number(tokenizer.token_kind(id))).collect();
    let pieces = file.model.byte_fallback;
    // Gemma 4's merges are its own, and go by their ranks.
    let gemma4 = pieces && gemma4;
    let (kind, pre) = match pieces {
        true if gemma4 => ("gemma4", "gemma4"),
        true => ("llama", "default"),
        false => ("gpt2", pre_tokenizer_name(&file.pre_tokenizer, file.model.ignore_merges)?),
    };
    metadata.set("tokenizer.ggml.model", kind);
    metadata.set("tokenizer.ggml.pre", pre);
    metadata.set("tokenizer.ggml.tokens", names.iter().collect::<StringArray>());
    if pieces {
        metadata.set("tokenizer.ggml.scores", scores(&file, &names)?);
    }
    metadata.set("tokenizer.ggml.token_type", kinds);
    if !pieces || gemma4 {
        metadata.set("tokenizer.ggml.merges", merges(&file)?);
    }
    roles(metadata, tokenizer);
    if pieces {
        metadata.set("tokenizer.ggml.add_space_prefix", adds_space(&file));
    }
    for (name, template) in tokenizer.chat_templates() {
        match name.as_str() {
            "default" => metadata.set("tokenizer.chat_template", template.as_str()),
            other => metadata.set(&format!("tokenizer.chat_template.{other}"), template.as_str()),
        };
    }
    check(tokenizer, metadata)
}

/// How each token is spelt, by id; what no file names is filled up, as llama.cpp's converter does. Where the table was `cut`, tokens behind its end
/// are left out.
pub(super) fn spellings(
    vocab: &HashMap<String, u32>,
    added: &[Added],
    tokenizer: &Tokenizer,
    rows: u64,
    cut: bool,
) -> Result<Vec<String>> {
    let count = tokenizer.vocab_size();
    let rows = usize::try_from(rows).unwrap_or(usize::MAX);
    if count > rows && !cut {
        return Err(wrong(format!("it has {count} tokens, and the embedding {rows} rows")));
    }
    let mut names: Vec<Option<String>> = vec![None; rows];
    let added = added.iter().map(|a| (&a.content, vocab.get(&a.content).unwrap_or(&a.id)));
    for (text, id) in vocab.iter().chain(added) {
        if let Some(name) = names.get_mut(*id as usize) {
            *name = Some(text.clone());
        }
    }
    // Tokens that tokenizer_config.json adds.
    for (text, id) in tokenizer.added_tokens().filter(|(text, _)| !text.is_empty()) {
        if let Some(name @ None) = names.get_mut(id as usize) {
            *name = Some(text.to_owned());
        }
    }
    let fill = |(id, name): (u32, Option<String>)| name.unwrap_or_else(|| format!("[PAD{id}]"));
    Ok((0..).zip(names).map(fill).collect())
}

/// GGUF's number of a kind.
pub(super) fn number(kind: Option<TokenKind>) -> i32 {
    match kind {
        Some(TokenKind::Normal) => 1,
        Some(TokenKind::Unknown) => 2,
        Some(TokenKind::Control) => 3,
        Some(TokenKind::UserDefined) => 4,
        Some(TokenKind::Byte) => 6,
        _ => 5,
    }
}

/// Scores by which SentencePiece merges as the file does: the earlier a merge, the greater.
fn scores(file: &File<Model>, names: &[String]) -> Result<Vec<f32>> {
    let mut ranks: HashMap<String, usize> = HashMap::with_capacity(file.model.merges.len());
    for (rank, merge) in file.model.merges.iter().enumerate() {
        let (a, b) = merge.halves().ok_or_else(|| wrong(format!("merge {rank} is not two tokens")))?;
        ranks.entry(format!("{a}{b}")).or_insert(rank);
    }
    // Singles hold every number up to 2^24, and no vocabulary has as many merges.
    let worst = file.model.merges.len() + 1;
    Ok(names.iter().map(|name| -(ranks.get(name).map_or(worst, |rank| rank + 1) as f32)).collect())
}

fn merges(file: &File<Model>) -> Result<StringArray> {
    let merge = |(rank, merge): (usize, &Merge)| match merge.halves() {
        Some((a, b)) if !a.contains(' ') && !b.contains(' ') => Ok(format!("{a} {b}")),
        _ => Err(wrong(format!("merge {rank} is not two tokens in the alphabet of bytes"))),
    };
    let merges: Vec<String> = file.model.merges.iter().enumerate().map(merge).collect::<Result<_>>()?;
    Ok(merges.iter().collect())
}

/// Whether encoding puts a space before a text.
pub(super) fn adds_space<M>(file: &File<M>) -> bool {
    fn any(json: &Value, list: &str, adds: fn(&Value) -> bool) -> bool {
        adds(json) || json[list].as_array().is_some_and(|all| all.iter().any(adds))
    }
    any(&file.normalizer, "normalizers", |n| n["type"] == "Prepend")
        || any(&file.pre_tokenizer, "pretokenizers", |p| {
            p["type"] == "Metaspace" && p["prepend_scheme"] != "never" && p["add_prefix_space"] != false
        })
}

/// Tokens with a role, and whether they are added.
pub(super) fn roles(metadata: &mut Metadata, tokenizer: &Tokenizer) {
    let special = tokenizer.special();
    // The key of the separator is misspelt in the format.
    for (role, id) in [
        ("bos", special.bos),
        ("eos", special.eos),
        ("eot", special.eot.filter(|id| Some(*id) != special.eos)),
        ("eom", special.eom),
        ("unknown", special.unknown),
        ("seperator", special.separator),
        ("padding", special.padding),
        ("mask", special.mask),
    ] {
        if let Some(id) = id {
            metadata.set(&format!("tokenizer.ggml.{role}_token_id"), id);
        }
    }
    metadata.set("tokenizer.ggml.add_bos_token", tokenizer.add_bos());
    metadata.set("tokenizer.ggml.add_eos_token", tokenizer.add_eos());
}

/// Words of many kinds, composed as normalizers leave them.
const PROBE: &str = "Once upon a time, there was a little girl named Lily. She didn't know: it's 1,234.56 o'clock!\n\n\
    \tHELLO world  with   spaces\nfn main() { println!(\"{}\", x[0] + 12345678); } // https://example.org/?q=a&b=c#d\n\
    Grüße, ça va? Привет мир. 日本語のテキスト 한국어 ελληνικά עברית हिन्दी 🙂👍🏽 — “quotes” … €5\r\n  end ";

/// That both vocabularies cut alike: the folder's, and the one that was made of it.
pub(super) fn check(tokenizer: &Tokenizer, metadata: &Metadata) -> Result<()> {
    check_by(tokenizer, metadata, |text| text)
}

/// The same, of what `part` leaves of a text.
pub(super) fn check_by(
    tokenizer: &Tokenizer,
    metadata: &Metadata,
    part: impl Fn(&str) -> &str,
) -> Result<()> {
    let made = Tokenizer::from_gguf(metadata)?;
    let options = EncodeOptions { add_special: true, parse_special: false };
    for text in PROBE.split_inclusive('\n').chain([PROBE]).map(part) {
        if tokenizer.encode(text, options)? != made.encode(text, options)? {
            let text: String = text.chars().take(40).collect();
            return Err(wrong(format!(
                "a GGUF vocabulary would cut {text:?} otherwise; its normalizer, pre_tokenizer or merges have no place there"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tokens_of_the_config_keep_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, value: Value| {
            std::fs::write(folder.path().join(name), value.to_string()).unwrap();
        };
        write(
            "tokenizer.json",
            json!({
                "decoder": {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                "model": {"type": "BPE", "vocab": {"a": 0, "▁": 1}, "merges": []},
            }),
        );
        write("tokenizer_config.json", json!({"added_tokens_decoder": {"3": {"content": "▁▁"}}}));
        let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
        assert_eq!(tokenizer.token_bytes(3).unwrap(), b"  ");
        let vocab = HashMap::from([("a".to_owned(), 0), ("▁".to_owned(), 1)]);
        let names = spellings(&vocab, &[], &tokenizer, 5, false).unwrap();
        assert_eq!(names, ["a", "▁", "[PAD2]", "▁▁", "[PAD4]"]);
    }
}
