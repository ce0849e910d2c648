//! A tokenizer from Hugging Face's `tokenizer.json`, part by part.
//!
//! Not by the `tokenizers` crate's own reader of the whole file: it panics on some damaged files (a merge shorter than the subword
//! prefix, ids at the end of the range), silently renumbers added tokens, and its pipeline would keep regular expressions where
//! we have linear splitters. So the file is read here, checked, and its model and rarer parts are handed to that crate.

mod decode;
mod model;
mod post;

use crate::added::{Added, AddedTokens};
use crate::model::Model;
use crate::normalize::{Normalizer, normalize};
use crate::pair::Pair;
use crate::pretokenize::{Prepend, Step};
use crate::special::{SpecialTokens, WellKnown, forced_kind};
use crate::tokenizer::{Parts, Strip};
use crate::vocab::{TokenKind, Vocab, byte_token};
use crate::{Result, Tokenizer, TokenizerError, byte_level};
use ahash::AHashSet;
use decode::Spelling;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// The file. Truncation and padding are not read: they serve training.
#[derive(Deserialize)]
struct File<'f> {
    #[serde(default)]
    added_tokens: Vec<AddedJson>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    #[serde(borrow)]
    model: &'f RawValue,
}

/// An added token, as in tokenizer.json and in `added_tokens_decoder` of tokenizer_config.json.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct AddedJson {
    #[serde(default)]
    pub(crate) id: u32,
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    normalized: Option<bool>,
    #[serde(default)]
    special: bool,
}

impl AddedJson {
    fn normalized(&self) -> bool {
        self.normalized.unwrap_or(!self.special)
    }

    fn found(&self, id: u32, content: String) -> Added {
        let Self { single_word, lstrip, rstrip, special, .. } = *self;
        Added { id, content, special, lstrip, rstrip, single_word }
    }
}

fn damaged(what: impl Into<String>) -> TokenizerError {
    TokenizerError::Vocabulary(what.into())
}

impl Tokenizer {
    /// Opens a `tokenizer.json` from its bytes. BOS and EOS are what its post-processor adds; the other files of a model's folder say
    /// more, and [`from_folder`](Self::from_folder) reads them.
    ///
    /// # Errors
    /// If it is no JSON of this shape, if it names a part that is not known, if its vocabulary contradicts itself.
    pub fn from_json(bytes: &[u8]) -> Result<Self> {
        let (mut parts, known) = parts(bytes, &[])?;
        parts.special.bos = parts.prefix.first().copied();
        parts.special.eos = parts.suffix.last().copied();
        parts.eog = known.complete(&mut parts.special, &[]);
        Ok(Self::from_parts(parts))
    }
}

/// A null or absent section is an empty one.
fn section<T>(json: &Value, parse: impl Fn(&Value, &mut Vec<T>) -> Result<()>) -> Result<Vec<T>> {
    let mut steps = Vec::new();
    if !json.is_null() {
        parse(json, &mut steps)?;
    }
    Ok(steps)
}

/// Reads the file; `extra` are tokens that tokenizer_config.json adds.
pub(crate) fn parts(bytes: &[u8], extra: &[AddedJson]) -> Result<(Parts, WellKnown)> {
    let file: File<'_> =
        serde_json::from_slice(bytes).map_err(|e| TokenizerError::json("tokenizer.json", e))?;
    let normalizers = section(&file.normalizer, Normalizer::parse)?;
    let mut steps = section(&file.pre_tokenizer, Step::parse)?;
    let spelling = Spelling::parse(&file.decoder, &steps)?;
    let special: AHashSet<&str> =
        file.added_tokens.iter().filter(|t| t.special).map(|t| t.content.as_str()).collect();
    let model = model::read(file.model.get(), matches!(steps.last(), Some(Step::ByteLevel)), &special)?;
    if matches!(model.model, Model::Bpe(_)) {
        // Our own model takes bytes as they are.
        steps.pop();
    }

    let mut table = Table { slots: Vec::new() };
    for (text, id) in &model.tokens {
        table.put(*id, text, TokenKind::Normal, model.tokens.len())?;
    }
    let count = model.tokens.len() + file.added_tokens.len() + extra.len();
    let mut added = Vec::with_capacity(file.added_tokens.len());
    for token in &file.added_tokens {
        // A token that the model knows keeps the model's id, as in the `tokenizers` crate.
        let id = model.model.id(&token.content).unwrap_or(token.id);
        let kind = if token.special { TokenKind::Control } else { TokenKind::UserDefined };
        table.put(id, &token.content, kind, count)?;
        added.push((id, token.clone()));
    }
    for token in extra {
        let known = added.iter().any(|(_, a)| a.content == token.content) || table.has(token.id);
        if !known && model.model.id(&token.content).is_none() {
            let kind = if token.special { TokenKind::Control } else { TokenKind::UserDefined };
            table.put(token.id, &token.content, kind, count)?;
            added.push((token.id, token.clone()));
        }
    }

    let mut known = WellKnown::default();
    for (id, token) in &added {
        let kind = table.kind(*id);
        if known.note(&token.content, *id, kind) {
            table.set_kind(*id, forced_kind(kind));
        }
    }
    let unknown = model.unknown.as_deref().and_then(|text| model.model.id(text));
    unknown.into_iter().for_each(|id| table.set_kind(id, TokenKind::Unknown));

    let byte_level = spelling.byte_level;
    let mut bytes = Box::new([None; 256]);
    let mut vocab = Vocab::with_capacity(table.slots.len());
    for (id, slot) in (0u32..).zip(&table.slots) {
        let Some((text, kind)) = slot else {
            vocab.push(b"", TokenKind::Unused);
            continue;
        };
        let byte = byte_token(text.as_bytes()).filter(|_| model.byte_fallback && *kind == TokenKind::Normal);
        match (byte, kind) {
            (Some(b), _) => {
                bytes[usize::from(b)] = Some(id);
                vocab.push(&[b], TokenKind::Byte);
            }
            // Found in text as it stands and never in the model's alphabet of bytes, in which it may even look like others.
            (None, TokenKind::UserDefined) if byte_level && model.model.id(text).is_none() => {
                vocab.push(text.as_bytes(), *kind);
            }
            (None, TokenKind::Normal | TokenKind::UserDefined) => vocab.push(&spelling.bytes(text), *kind),
            (None, _) => vocab.push(text.as_bytes(), *kind),
        }
    }
    if byte_level {
        for b in 0..=255u8 {
            bytes[usize::from(b)] = model.model.id(byte_level::to_char(b).encode_utf8(&mut [0; 4]));
        }
    }

    let raw = added.iter().filter(|(_, t)| !t.normalized()).map(|(id, t)| t.found(*id, t.content.clone()));
    let found = AddedTokens::new(raw)?;
    let mut after = Vec::new();
    for (id, token) in added.iter().filter(|(_, t)| t.normalized()) {
        after.push(token.found(*id, normalize(&normalizers, &token.content, false)?.into_owned()));
    }
    let (prefix, suffix) = post::parse(&file.post_processor)?;
    let pair = post::pair(&file.post_processor);
    let between = pair.iter().flat_map(Pair::tokens);
    let adds = prefix.iter().chain(&suffix).copied().chain(between);
    if let Some(id) = adds.into_iter().find(|id| *id as usize >= vocab.len()) {
        return Err(damaged(format!("the post_processor adds token {id}, of {}", vocab.len())));
    }
    let parts = Parts {
        strip: strip(&spelling, &normalizers, &steps),
        holds_space: spelling.ends_words,
        vocab,
        names: added.into_iter().map(|(id, token)| (token.content, id)).collect(),
        added: found,
        added_normalized: AddedTokens::new(after)?,
        normalizers,
        steps,
        model: model.model,
        bytes,
        special: SpecialTokens { unknown, ..SpecialTokens::default() },
        eog: Vec::new(),
        prefix,
        suffix,
        pair,
        templates: Vec::new(),
    };
    Ok((parts, known))
}

/// Where decoding takes a space off: where the decoder says so, and there as often as encoding put one on.
fn strip(spelling: &Spelling, normalizers: &[Normalizer], steps: &[Step]) -> Strip {
    let always = normalizers.iter().any(|n| matches!(n, Normalizer::Prepend(_)))
        || steps.iter().any(|s| matches!(s, Step::Metaspace { prepend: Prepend::Always, .. }));
    match (spelling.strip, always) {
        (false, _) => Strip::Never,
        (true, true) if !spelling.words => Strip::AfterAdded,
        (true, _) => Strip::Start,
    }
}

/// Tokens by id while the file is read.
struct Table {
    slots: Vec<Option<(String, TokenKind)>>,
}

impl Table {
    /// Puts a token into its place; `count` tokens are known of, which bounds the table.
    fn put(&mut self, id: u32, text: &str, kind: TokenKind, count: usize) -> Result<()> {
        // Files have gaps, but not a thousandfold; a lying id must not decide how much is allocated.
        let limit = count.saturating_mul(2).saturating_add(1 << 16);
        let at = usize::try_from(id).ok().filter(|at| *at < limit);
        let at = at
            .ok_or_else(|| damaged(format!("the token {text:?} has the id {id}, of about {count} tokens")))?;
        if at >= self.slots.len() {
            self.slots.resize(at + 1, None);
        }
        match &mut self.slots[at] {
            Some((other, _)) if other != text => {
                Err(damaged(format!("the tokens {other:?} and {text:?} have the same id {id}")))
            }
            slot => {
                *slot = Some((text.to_owned(), kind));
                Ok(())
            }
        }
    }

    fn has(&self, id: u32) -> bool {
        self.slots.get(id as usize).is_some_and(Option::is_some)
    }

    fn kind(&self, id: u32) -> TokenKind {
        self.slots.get(id as usize).and_then(Option::as_ref).map_or(TokenKind::Unused, |(_, kind)| *kind)
    }

    fn set_kind(&mut self, id: u32, kind: TokenKind) {
        if let Some(Some((_, slot))) = self.slots.get_mut(id as usize) {
            *slot = kind;
        }
    }
}
