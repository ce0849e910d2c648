//! A tokenizer from a GGUF file's metadata (`tokenizer.ggml.*`), by llama.cpp's rules.
//!
//! llama.cpp's, because the file was made for it: no Unicode normalisation (a tokenizer.json of the same model may ask for NFC),
//! BOS by the pre-tokenizer's name where the file is silent, user-defined tokens found even where special ones are not parsed.
//! Three deviations, on purpose: SentencePiece merges never make a control token; an ordinary token spelt like an end marker
//! without bars (Qwen's `</s>`) does not end generation; and a damaged vocabulary is an error.

mod bert;
mod gemma4;
mod unigram;

use crate::added::{Added, AddedTokens};
use crate::bpe::Bpe;
use crate::model::Model;
use crate::normalize::{Normalizer, SPACE_MARK};
use crate::pair::Pair;
use crate::pretokenize::Step;
use crate::special::{SpecialTokens, WellKnown, forced_kind, well_known};
use crate::split::names;
use crate::spm::Spm;
use crate::tokenizer::{Parts, Strip};
use crate::vocab::{TokenKind, Vocab, byte_token};
use crate::{Result, Tokenizer, TokenizerError, byte_level};
use ahash::AHashMap;
use gguf_file::{Metadata, StringArray};

fn bad(e: gguf_file::Error) -> TokenizerError {
    TokenizerError::Gguf(e.to_string())
}

fn damaged(what: impl Into<String>) -> TokenizerError {
    TokenizerError::Vocabulary(what.into())
}

impl Tokenizer {
    /// Opens the tokenizer of a GGUF file, also of one without weights.
    ///
    /// # Errors
    /// If keys are missing or of a wrong type, if the model (`tokenizer.ggml.model`) or the pre-tokenizer
    /// (`tokenizer.ggml.pre`) is not known, if the vocabulary contradicts itself.
    pub fn from_gguf(metadata: &Metadata) -> Result<Self> {
        let kind = metadata.opt_str("tokenizer.ggml.model").map_err(bad)?;
        match kind {
            Some("llama") => spm(metadata),
            Some("gpt2") => bpe(metadata),
            Some("bert") => bert::bert(metadata),
            Some("gemma4") => gemma4::gemma4(metadata),
            Some("t5") => unigram::unigram(metadata),
            Some(other) => Err(TokenizerError::unsupported(
                "tokenizer.ggml.model",
                other,
                "llama (SentencePiece BPE), gpt2 (byte-level BPE), bert (WordPiece), t5 (Unigram), gemma4 (BPE of characters)",
            )),
            None => Err(TokenizerError::Gguf(
                "the key tokenizer.ggml.model is missing; the file has no vocabulary".into(),
            )),
        }
    }
}

/// What both kinds of vocabulary have.
struct Table<'m> {
    texts: &'m StringArray,
    kinds: Vec<TokenKind>,
    known: WellKnown,
    /// Stands before user-defined tokens that are found in text without it.
    mark: &'static str,
}

fn table(metadata: &Metadata) -> Result<Table<'_>> {
    let texts = metadata.array_of_str("tokenizer.ggml.tokens").map_err(bad)?;
    let count = texts.len();
    if count == 0 || u32::try_from(count).is_err() {
        return Err(damaged(format!("it has {count} tokens")));
    }
    let types = metadata.opt_array_of_i32("tokenizer.ggml.token_type").map_err(bad)?;
    if let Some(types) = types.as_ref().filter(|t| t.len() != count) {
        return Err(damaged(format!("{count} tokens have {} token types", types.len())));
    }
    let mut kinds: Vec<TokenKind> = match &types {
        None => vec![TokenKind::Normal; count],
        Some(types) => types
            .iter()
            .map(|t| match t {
                2 => TokenKind::Unknown,
                3 => TokenKind::Control,
                4 => TokenKind::UserDefined,
                5 => TokenKind::Unused,
                6 => TokenKind::Byte,
                _ => TokenKind::Normal,
            })
            .collect(),
    };
    let mut known = WellKnown::default();
    for (id, text) in (0u32..).zip(texts.iter_str()) {
        let kind = &mut kinds[id as usize];
        if text.is_ok_and(|text| known.note(text, id, *kind)) {
            *kind = forced_kind(*kind);
        }
    }
    Ok(Table { texts, kinds, known, mark: "" })
}

impl Table<'_> {
    fn iter(&self) -> impl Iterator<Item = (u32, &[u8], TokenKind)> {
        (0u32..).zip(self.texts.iter()).zip(&self.kinds).map(|((id, text), kind)| (id, text, *kind))
    }

    /// What tokens stand for where a mark stands for a space, as in SentencePiece's vocabularies, and which of them are single bytes.
    fn spelt_with_marks(&self) -> Result<(Vocab, Box<[Option<u32>; 256]>)> {
        let mut vocab = Vocab::with_capacity(self.texts.len());
        let mut bytes = Box::new([None; 256]);
        for (id, text, kind) in self.iter() {
            match kind {
                TokenKind::Byte => {
                    let damage =
                        || damaged(format!("token {id} is a byte, but {:?} names none", self.text(id)));
                    let byte = byte_token(text).ok_or_else(damage)?;
                    bytes[usize::from(byte)] = Some(id);
                    vocab.push(&[byte], kind);
                }
                TokenKind::Control | TokenKind::Unknown => vocab.push(text, kind),
                _ => vocab.push(&replace(text, SPACE_MARK.as_bytes(), b' '), kind),
            }
        }
        Ok((vocab, bytes))
    }

    fn text(&self, id: u32) -> String {
        String::from_utf8_lossy(self.texts.get(id as usize).unwrap_or_default()).into_owned()
    }

    fn duplicate(&self, one: u32, other: u32) -> TokenizerError {
        damaged(format!("the tokens {one} and {other} are both {:?}", self.text(one)))
    }

    /// The tokens that are found in text as they stand.
    fn added(&self, metadata: &Metadata) -> Result<AddedTokens> {
        let name = metadata.opt_str("general.name").map_err(bad)?.unwrap_or_default().to_lowercase();
        // As in llama.cpp: Phi-3's special tokens take the white space after them, but its converter cannot say so.
        let phi3 = name.contains("phi-3") || name.contains("phi3");
        AddedTokens::new(self.iter().filter_map(|(id, text, kind)| {
            let mut content = std::str::from_utf8(text).ok()?.to_owned();
            // llama.cpp takes all tokens that are spelt like end markers for special ones.
            let special = kind.is_special() || well_known(&content).is_some();
            if !special && kind != TokenKind::UserDefined {
                return None;
            }
            if !special && let Some(bare) = content.strip_prefix(self.mark) {
                content = bare.to_owned();
            }
            let rstrip = phi3 && (special && !["<unk>", "<s>", "<|endoftext|>"].contains(&content.as_str()));
            Some(Added { id, content, special, rstrip, ..Added::default() })
        }))
    }

    /// A token with a role; `strict` ones must exist.
    fn role(
        &self,
        metadata: &Metadata,
        key: &str,
        default: Option<u32>,
        strict: bool,
    ) -> Result<Option<u32>> {
        let key = format!("tokenizer.ggml.{key}_token_id");
        let size = self.texts.len();
        // -1 and its unsigned twin mean "none".
        let id = metadata.opt_i64(&key).map_err(bad)?.filter(|id| *id != -1 && *id != i64::from(u32::MAX));
        let id = id.map(|id| u32::try_from(id).ok().filter(|id| (*id as usize) < size).ok_or(id));
        match id {
            None => Ok(default.filter(|id| (*id as usize) < size)),
            Some(Ok(id)) => Ok(Some(id)),
            Some(Err(id)) if strict => Err(damaged(format!("{key} is {id}, of {size} tokens"))),
            Some(Err(id)) => {
                tracing::warn!("{key} is {id}, but there are {size} tokens; ignored");
                Ok(None)
            }
        }
    }

    fn special(&self, metadata: &Metadata, defaults: [Option<u32>; 3]) -> Result<SpecialTokens> {
        let [bos, eos, unknown] = defaults;
        Ok(SpecialTokens {
            bos: self.role(metadata, "bos", bos, true)?,
            eos: self.role(metadata, "eos", eos, true)?,
            eot: self.role(metadata, "eot", None, false)?,
            eom: self.role(metadata, "eom", None, false)?,
            unknown: self.role(metadata, "unknown", unknown, false)?,
            // The key is misspelt in the format.
            separator: self.role(metadata, "seperator", None, false)?,
            padding: self.role(metadata, "padding", None, false)?,
            mask: self.role(metadata, "mask", None, false)?,
        })
    }
}

/// What both kinds have in common, once the model is there.
struct Rest {
    vocab: Vocab,
    normalizers: Vec<Normalizer>,
    steps: Vec<Step>,
    model: Model,
    bytes: Box<[Option<u32>; 256]>,
    special: SpecialTokens,
    add_bos: bool,
    add_eos: bool,
    strip: Strip,
}

fn finish(metadata: &Metadata, table: &Table<'_>, rest: Rest) -> Result<Parts> {
    let Rest { vocab, normalizers, steps, model, bytes, mut special, add_bos, add_eos, strip } = rest;
    let flag = |key: &str, default| metadata.opt_bool(key).map_err(bad).map(|v| v.unwrap_or(default));
    let add = |id: Option<u32>, wanted: bool| id.filter(|_| wanted).into_iter().collect::<Vec<u32>>();
    let prefix = add(special.bos, flag("tokenizer.ggml.add_bos_token", add_bos)?);
    let suffix = add(special.eos, flag("tokenizer.ggml.add_eos_token", add_eos)?);
    // Files of the first rerankers have no such flag, and llama.cpp put it there always then.
    let separator = add(special.separator, flag("tokenizer.ggml.add_sep_token", true)?);
    let between = [&suffix[..], &separator].concat();
    let pair = (!between.is_empty()).then(|| Pair::new(&prefix, &between, &suffix, [0, 0]));
    let eog = table.known.complete(&mut special, &[]);
    let added = table.added(metadata)?;
    let templates = templates(metadata)?;
    Ok(Parts {
        vocab,
        names: added.names().collect(),
        added,
        added_normalized: AddedTokens::default(),
        normalizers,
        steps,
        model,
        bytes,
        special,
        eog,
        prefix,
        pair,
        suffix,
        strip,
        holds_space: false,
        templates,
    })
}

fn templates(metadata: &Metadata) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    let main = metadata.opt_str("tokenizer.chat_template").map_err(bad)?;
    found.extend(main.map(|t| ("default".to_owned(), t.to_owned())));
    for (key, value) in metadata.iter() {
        if let (Some(name), Some(text)) = (key.strip_prefix("tokenizer.chat_template."), value.as_string()) {
            let text = text.to_str().map_err(|_| TokenizerError::Gguf(format!("{key} is not UTF-8")))?;
            found.push((name.to_owned(), text.to_owned()));
        }
    }
    Ok(found)
}

/// The score of each token, which is a number.
fn scores(metadata: &Metadata, count: usize) -> Result<Vec<f32>> {
    let scores = metadata.opt_array_of_f32("tokenizer.ggml.scores").map_err(bad)?;
    let scores = scores.ok_or_else(|| {
        damaged("tokenizer.ggml.scores is missing; a SentencePiece vocabulary merges by scores")
    })?;
    if scores.len() != count {
        return Err(damaged(format!("{count} tokens have {} scores", scores.len())));
    }
    match scores.iter().position(|s| s.is_nan()) {
        Some(id) => Err(damaged(format!("the score of token {id} is not a number"))),
        None => Ok(scores.to_vec()),
    }
}

/// `tokenizer.ggml.model` = `llama`.
fn spm(metadata: &Metadata) -> Result<Tokenizer> {
    let table = table(metadata)?;
    let count = table.texts.len();
    let scores = scores(metadata, count)?;
    let (vocab, bytes) = table.spelt_with_marks()?;
    let mut ids: AHashMap<Box<[u8]>, u32> = AHashMap::with_capacity(count);
    for (id, text, kind) in table.iter() {
        // Others are literal names or bytes; text never merges into them.
        let merges = !matches!(kind, TokenKind::Control | TokenKind::Unknown | TokenKind::Byte);
        if merges
            && !text.is_empty()
            && let Some(other) = ids.insert(text.into(), id)
        {
            return Err(table.duplicate(other, id));
        }
    }
    // Adding zero makes one zero of two, so that ties are ties.
    let scores = scores.iter().map(|s| s + 0.0).collect();
    let special = table.special(metadata, [Some(1), Some(2), Some(0)])?;
    let prefix = metadata.opt_bool("tokenizer.ggml.add_space_prefix").map_err(bad)?.unwrap_or(true);
    let mut normalizers = vec![Normalizer::Replace { from: " ".into(), to: SPACE_MARK.into() }];
    if prefix {
        normalizers.insert(0, Normalizer::Prepend(SPACE_MARK.into()));
    }
    let model = Model::Spm(Box::new(Spm::new(ids, scores, *bytes, special.unknown)));
    let strip = if prefix { Strip::AfterAdded } else { Strip::Never };
    let rest = Rest {
        vocab,
        normalizers,
        steps: Vec::new(),
        model,
        bytes,
        special,
        add_bos: true,
        add_eos: false,
        strip,
    };
    finish(metadata, &table, rest).map(Tokenizer::from_parts)
}

/// `text` with every `from` replaced by one byte.
fn replace(text: &[u8], from: &[u8], to: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        match rest.strip_prefix(from) {
            Some(after) => {
                out.push(to);
                rest = after;
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

/// `tokenizer.ggml.model` = `gpt2`.
fn bpe(metadata: &Metadata) -> Result<Tokenizer> {
    let table = table(metadata)?;
    let count = table.texts.len();
    let name = metadata.opt_str("tokenizer.ggml.pre").map_err(bad)?;
    let pre = names::pre(name.unwrap_or_else(|| {
        tracing::warn!("the file does not name its pre-tokenizer (tokenizer.ggml.pre); \"default\" may cut text in other places than the model learned");
        "default"
    }))?;
    let mut vocab = Vocab::with_capacity(count);
    let mut spellings: Vec<(&str, u32)> = Vec::with_capacity(count);
    for (id, text, kind) in table.iter() {
        let spelling = std::str::from_utf8(text);
        let spelling =
            spelling.map_err(|_| damaged(format!("token {id} ({:?}) is not UTF-8", table.text(id))))?;
        match byte_level::decode(spelling) {
            Some(bytes) if !kind.is_special() && kind != TokenKind::UserDefined => vocab.push(&bytes, kind),
            _ => vocab.push(text, kind),
        }
        spellings.push((spelling, id));
    }
    let mut seen: AHashMap<&str, u32> = AHashMap::with_capacity(count);
    for &(spelling, id) in spellings.iter().filter(|(spelling, _)| !spelling.is_empty()) {
        if let Some(other) = seen.insert(spelling, id) {
            return Err(table.duplicate(other, id));
        }
    }
    let mut bytes = Box::new([None; 256]);
    for b in 0..=255u8 {
        let spelling = byte_level::to_char(b);
        bytes[usize::from(b)] = seen.get(spelling.encode_utf8(&mut [0; 4]) as &str).copied();
    }
    let merges = metadata.array_of_str("tokenizer.ggml.merges").map_err(bad)?;
    let pairs = merges.iter_str().enumerate().map(|(i, merge)| {
        let merge = merge.map_err(|_| damaged(format!("merge {i} is not UTF-8")))?;
        let halves = merge.split_once(' ').filter(|(a, b)| !a.is_empty() && !b.is_empty());
        halves.ok_or_else(|| damaged(format!("merge {i} ({merge:?}) is not two tokens with a space between")))
    });
    let model = Bpe::new(spellings.iter().copied(), pairs, pre.ignore_merges)?;
    let model = model.ok_or_else(|| damaged("a merge is not spelt in GPT-2's alphabet of bytes"))?;
    let special = table.special(metadata, [None; 3])?;
    let rest = Rest {
        vocab,
        normalizers: Vec::new(),
        steps: pre.stages.into_iter().map(Step::isolate).collect(),
        model: Model::Bpe(Box::new(model.with_unknown(special.unknown))),
        bytes,
        special,
        add_bos: pre.add_bos,
        add_eos: false,
        strip: Strip::Never,
    };
    finish(metadata, &table, rest).map(Tokenizer::from_parts)
}
