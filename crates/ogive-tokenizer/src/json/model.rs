//! The `model` section: BPE and Unigram are read and checked here, the other models by the `tokenizers` crate.
//!
//! BPE is what language models use, and its sections are large (280,000 merges in Llama 3): they are read straight into the shape
//! that a model is built from. Over bytes that model is our own, otherwise the crate's.

use super::damaged;
use crate::bpe::Bpe;
use crate::model::Model;
use crate::unigram::{Piece, Unigram};
use crate::vocab::byte_token;
use crate::{Result, TokenizerError, byte_level};
use ahash::AHashSet;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::HashMap;
use std::fmt;
use tokenizers::Model as _;
use tokenizers::models::ModelWrapper;
use tokenizers::models::bpe::{BPE, Vocab};

/// What the rest of the file needs to know of the model.
pub(super) struct Read {
    pub(super) model: Model,
    pub(super) tokens: Vec<(String, u32)>,
    pub(super) unknown: Option<String>,
    /// Tokens like `<0x0A>` stand for bytes.
    pub(super) byte_fallback: bool,
}

#[derive(Deserialize)]
struct Peek {
    r#type: Option<String>,
    merges: Option<de::IgnoredAny>,
    unk_token: Option<String>,
    #[serde(default)]
    byte_fallback: bool,
}

#[derive(Deserialize)]
struct BpeJson {
    vocab: Ids,
    merges: Vec<Merge>,
    dropout: Option<f32>,
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    fuse_unk: bool,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
}

/// Text to id, each text once.
struct Ids(Vocab);

impl<'de> Deserialize<'de> for Ids {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Ids;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tokens and ids")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ids, A::Error> {
                let mut ids = Vocab::new();
                while let Some((text, id)) = map.next_entry::<String, u32>()? {
                    if let Some(other) = ids.get(&text) {
                        return Err(de::Error::custom(format!(
                            "the token {text:?} has the ids {other} and {id}"
                        )));
                    }
                    ids.insert(text, id);
                }
                Ok(Ids(ids))
            }
        }
        d.deserialize_map(V)
    }
}

/// `"a b"`, as old files have it, or `["a", "b"]`.
struct Merge(String, String);

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Merge;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("two tokens, as a list or with a space between")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Merge, E> {
                match text.split_once(' ') {
                    Some((a, b)) if !b.contains(' ') => Ok(Merge(a.to_owned(), b.to_owned())),
                    _ => Err(E::custom(format!("the merge {text:?} is not two tokens with a space between"))),
                }
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Merge, A::Error> {
                let merge = (seq.next_element()?, seq.next_element()?, seq.next_element::<de::IgnoredAny>()?);
                match merge {
                    (Some(a), Some(b), None) => Ok(Merge(a, b)),
                    _ => Err(de::Error::custom("a merge is not of two tokens")),
                }
            }
        }
        d.deserialize_any(V)
    }
}

/// Reads the section from its text. `byte_level`: words come to the model spelt as bytes and nothing else. `special`: what special tokens are
/// spelt like.
pub(super) fn read(text: &str, byte_level: bool, special: &AHashSet<&str>) -> Result<Read> {
    let json = |e| TokenizerError::json("the model of tokenizer.json", e);
    let peek: Peek = serde_json::from_str(text).map_err(json)?;
    match peek.r#type.as_deref() {
        Some("BPE") => bpe(serde_json::from_str(text).map_err(json)?, byte_level),
        None if peek.merges.is_some() => bpe(serde_json::from_str(text).map_err(json)?, byte_level),
        Some("Unigram") => unigram(serde_json::from_str(text).map_err(json)?, special),
        Some("WordPiece" | "WordLevel") | None => {
            let model: ModelWrapper = serde_json::from_str(text).map_err(json)?;
            let vocab: HashMap<String, u32> = model.get_vocab();
            let tokens = vocab.into_iter().collect();
            Ok(Read {
                model: Model::Wrapped(Box::new(model)),
                tokens,
                unknown: peek.unk_token,
                byte_fallback: peek.byte_fallback,
            })
        }
        Some(other) => Err(TokenizerError::unsupported("model", other, "BPE, Unigram, WordPiece, WordLevel")),
    }
}

#[derive(Deserialize)]
struct UnigramJson {
    vocab: Vec<(String, f64)>,
    unk_id: Option<usize>,
    #[serde(default)]
    byte_fallback: bool,
}

fn unigram(json: UnigramJson, special: &AHashSet<&str>) -> Result<Read> {
    let UnigramJson { vocab, unk_id, byte_fallback } = json;
    let unknown = match unk_id {
        None => None,
        Some(id) => match vocab.get(id) {
            Some((text, _)) => Some(text.clone()),
            None => {
                let why = format!("the model's unknown token is {id}, of {} tokens", vocab.len());
                return Err(damaged(why));
            }
        },
    };
    // Of tokens with the same text the last counts.
    let ids: Vocab = (0..).zip(&vocab).map(|(id, (text, _))| (text.clone(), id)).collect();
    let mut bytes = [None; 256];
    let pieces = vocab.iter().filter_map(|(text, score)| {
        let id = *ids.get(text)?;
        let byte = byte_token(text.as_bytes()).filter(|_| byte_fallback);
        if let Some(byte) = byte {
            bytes[usize::from(byte)] = Some(id);
        }
        let of_text = byte.is_none() && Some(text) != unknown.as_ref() && !special.contains(text.as_str());
        Some(Piece { text, id, score: *score, of_text })
    });
    let pieces: Vec<_> = pieces.collect();
    let unknown_id = unknown.as_ref().and_then(|text| ids.get(text).copied());
    let model = Model::Unigram(Box::new(Unigram::new(pieces.into_iter(), bytes, unknown_id)?));
    Ok(Read { model, tokens: ids.into_iter().collect(), unknown, byte_fallback })
}

fn bpe(json: BpeJson, byte_level: bool) -> Result<Read> {
    let BpeJson { vocab: Ids(vocab), merges, byte_fallback, .. } = json;
    if json.dropout.is_some_and(|p| p != 0.0) {
        tracing::warn!("the tokenizer drops merges at random (dropout), which is for training; ignored");
    }
    if let Some(prefix) = json.continuing_subword_prefix.as_deref() {
        // The builder cuts the prefix off without looking.
        if let Some(Merge(a, b)) = merges.iter().find(|m| !m.1.starts_with(prefix)) {
            return Err(damaged(format!("the merge of {a:?} and {b:?} lacks the subword prefix {prefix:?}")));
        }
    }
    let tokens: Vec<(String, u32)> = vocab.iter().map(|(text, id)| (text.clone(), *id)).collect();
    // With a token for every byte nothing is unknown.
    let spelt = |b| vocab.contains_key(byte_level::to_char(b).encode_utf8(&mut [0; 4]) as &str);
    let plain = !byte_fallback
        && (0..=255).all(spelt)
        && json.continuing_subword_prefix.as_deref().unwrap_or_default().is_empty()
        && json.end_of_word_suffix.as_deref().unwrap_or_default().is_empty();
    if plain && byte_level {
        let spellings = vocab.iter().map(|(text, id)| (text.as_str(), *id));
        let pairs = merges.iter().map(|Merge(a, b)| Ok((a.as_str(), b.as_str())));
        if let Some(model) = Bpe::new(spellings, pairs, json.ignore_merges)? {
            return Ok(Read {
                model: Model::Bpe(Box::new(model)),
                tokens,
                unknown: json.unk_token,
                byte_fallback,
            });
        }
    }
    let mut builder = BPE::builder()
        .vocab_and_merges(vocab, merges.into_iter().map(|Merge(a, b)| (a, b)).collect())
        .fuse_unk(json.fuse_unk)
        .byte_fallback(byte_fallback)
        .ignore_merges(json.ignore_merges);
    if let Some(text) = json.unk_token.clone() {
        builder = builder.unk_token(text);
    }
    if let Some(text) = json.continuing_subword_prefix {
        builder = builder.continuing_subword_prefix(text);
    }
    if let Some(text) = json.end_of_word_suffix {
        builder = builder.end_of_word_suffix(text);
    }
    let model = builder.build().map_err(|e| damaged(format!("its merges do not fit its tokens: {e}")))?;
    let model = Model::Wrapped(Box::new(model.into()));
    Ok(Read { model, tokens, unknown: json.unk_token, byte_fallback })
}
