//! [`Tokenizer`]: text to ids and back.
//!
//! One pipeline for every origin: find added tokens, normalise, cut into words, run the model. A GGUF file and a tokenizer.json
//! only fill in its parts, so whatever is shown for one holds for the other. A tokenizer never changes after opening and is
//! shared by reference count: a clone costs nothing, and a text stream can own one.

use crate::added::{AddedTokens, Fragment};
use crate::model::Model;
use crate::normalize::{Normalizer, normalize};
use crate::pair::Pair;
use crate::pretokenize::{Step, words};
use crate::special::SpecialTokens;
use crate::stream::TextStream;
use crate::vocab::{TokenKind, Vocab};
use crate::{Result, TokenizerError};
use ahash::AHashMap;
use std::borrow::Cow;
use std::sync::Arc;

/// What encoding does besides cutting text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Adds what the model expects around a text: BOS, for some EOS.
    pub add_special: bool,
    /// Reads special tokens written in the text (`<|im_end|>`) as those tokens. Off, they are plain text, so that a user's
    /// words cannot end a turn; tokens that are merely user-defined are found either way. A chat template's output needs it on,
    /// and a user's words are part of that: there they can, as in llama.cpp.
    pub parse_special: bool,
}

impl EncodeOptions {
    /// Text and nothing but text.
    pub const TEXT: Self = Self { add_special: false, parse_special: false };
    /// A finished prompt, such as a chat template's output without BOS.
    pub const PROMPT: Self = Self { add_special: true, parse_special: true };
}

impl Default for EncodeOptions {
    /// A user's text, from the beginning: BOS is added, special tokens are not parsed.
    fn default() -> Self {
        Self { add_special: true, parse_special: false }
    }
}

/// What decoding takes off where encoding put a space before the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strip {
    /// Encoding adds none.
    Never,
    /// It adds one at the beginning.
    Start,
    /// It adds one at the beginning and after each added token.
    AfterAdded,
}

/// Where decoding stands in a text.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    /// A text begins here: the space that encoding put before it goes.
    pub(crate) start: bool,
    /// A space that waits for the next token.
    pub(crate) held: bool,
}

#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) vocab: Vocab,
    /// Found in the text as given, and found after normalising.
    pub(crate) added: AddedTokens,
    pub(crate) added_normalized: AddedTokens,
    /// Added tokens by their content.
    pub(crate) names: AHashMap<String, u32>,
    pub(crate) normalizers: Vec<Normalizer>,
    pub(crate) steps: Vec<Step>,
    pub(crate) model: Model,
    /// The token of each single byte, where there is one.
    pub(crate) bytes: Box<[Option<u32>; 256]>,
    pub(crate) special: SpecialTokens,
    pub(crate) eog: Vec<u32>,
    /// Added before and after a text.
    pub(crate) prefix: Vec<u32>,
    pub(crate) suffix: Vec<u32>,
    /// How two texts are one.
    pub(crate) pair: Option<Pair>,
    pub(crate) strip: Strip,
    /// A space that ends a token is shown only where another follows.
    pub(crate) holds_space: bool,
    pub(crate) templates: Vec<(String, String)>,
}

impl Parts {
    pub(crate) fn token_id(&self, spelling: &str) -> Option<u32> {
        self.names.get(spelling).copied().or_else(|| self.model.id(spelling))
    }
}

/// A vocabulary and the rules of cutting text into it. Immutable, `Send + Sync`, cheap to clone.
#[derive(Debug, Clone)]
pub struct Tokenizer(Arc<Parts>);

impl Tokenizer {
    pub(crate) fn from_parts(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// The ids of a text.
    ///
    /// # Errors
    /// If a character has no token and the vocabulary no unknown token; if a pattern that this crate does not know gives up.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>> {
        self.encode_bytes(text.as_bytes(), options)
    }

    /// The ids of bytes that should be UTF-8. Bytes that are not stand for themselves, one token each, by the byte-level alphabet
    /// or by byte tokens: nothing is lost, and [`decode_bytes`](Self::decode_bytes) gives them back.
    ///
    /// # Errors
    /// As [`encode`](Self::encode); and if a byte that is no UTF-8 has no token and there is no unknown token.
    pub fn encode_bytes(&self, bytes: &[u8], options: EncodeOptions) -> Result<Vec<u32>> {
        let mut out = Vec::with_capacity(bytes.len() / 3 + 4);
        if options.add_special {
            out.extend(&self.0.prefix);
        }
        let mut at = 0;
        for chunk in bytes.utf8_chunks() {
            self.encode_text(chunk.valid(), at, options.parse_special, &mut out)?;
            at += chunk.valid().len();
            for &b in chunk.invalid() {
                let id = self.0.bytes[usize::from(b)].or(self.0.special.unknown);
                out.push(
                    id.ok_or_else(|| TokenizerError::NoToken { what: format!("the byte 0x{b:02X}"), at })?,
                );
                at += 1;
            }
        }
        if options.add_special {
            out.extend(&self.0.suffix);
        }
        Ok(out)
    }

    /// `at`: bytes before `text`.
    fn encode_text(&self, text: &str, at: usize, parse_special: bool, out: &mut Vec<u32>) -> Result<()> {
        let parts = &*self.0;
        for fragment in parts.added.fragments(text, parse_special) {
            let range = match fragment {
                Fragment::Token(id) => {
                    out.push(id);
                    continue;
                }
                Fragment::Text(range) => range,
            };
            // After a byte that is no text, the text goes on: no space belongs there.
            let continuing = at > 0 && range.start == 0;
            let (first, text) = (at + range.start == 0, &text[range]);
            let text = normalize(&parts.normalizers, text, continuing)?;
            if parts.added_normalized.is_empty() {
                self.encode_words(text, first, out)?;
                continue;
            }
            for fragment in parts.added_normalized.fragments(&text, parse_special) {
                match fragment {
                    Fragment::Token(id) => out.push(id),
                    Fragment::Text(range) => {
                        let first = first && range.start == 0;
                        self.encode_words(Cow::Borrowed(&text[range]), first, out)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn encode_words(&self, text: Cow<'_, str>, first: bool, out: &mut Vec<u32>) -> Result<()> {
        let words = words(&self.0.steps, text, first)?;
        for range in words.ranges {
            self.0.model.encode(&words.text[range], out)?;
        }
        Ok(())
    }

    /// What a token stands for, in bytes; of a special token, its name. SentencePiece's mark is a space here.
    ///
    /// # Errors
    /// If the id is not in the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Result<&[u8]> {
        self.0.vocab.bytes(id)
    }

    /// What kind of token it is; `None` if the id is not in the vocabulary.
    pub fn token_kind(&self, id: u32) -> Option<TokenKind> {
        self.0.vocab.kind(id)
    }

    /// The id of a token by its spelling in the file, such as `<|im_end|>` or `Ġthe`. Word pieces are spelt as in a
    /// tokenizer.json (`the`, `##ing`), also those of a GGUF file.
    pub fn token_id(&self, spelling: &str) -> Option<u32> {
        self.0.token_id(spelling)
    }

    /// The tokens that were added to the model's own, special ones and others: as they are written in a text, with their ids,
    /// in no order.
    pub fn added_tokens(&self) -> impl Iterator<Item = (&str, u32)> {
        self.0.names.iter().map(|(text, id)| (text.as_str(), *id))
    }

    /// The bytes of a sequence without its special tokens. Inverse of [`encode_bytes`](Self::encode_bytes) as far as the
    /// vocabulary's normalisation allows: the space that encoding put before the text is taken off.
    ///
    /// # Errors
    /// If an id is not in the vocabulary.
    pub fn decode_bytes(&self, ids: &[u32]) -> Result<Vec<u8>> {
        self.decode_to(ids, false)
    }

    /// The bytes of a sequence, special tokens shown by their names.
    ///
    /// # Errors
    /// If an id is not in the vocabulary.
    pub fn decode_bytes_with_special(&self, ids: &[u32]) -> Result<Vec<u8>> {
        self.decode_to(ids, true)
    }

    /// The text of a sequence without its special tokens; bytes that are no UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// If an id is not in the vocabulary.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        Ok(lossy(self.decode_to(ids, false)?))
    }

    /// The text of a sequence, special tokens shown by their names; bytes that are no UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// If an id is not in the vocabulary.
    pub fn decode_with_special(&self, ids: &[u32]) -> Result<String> {
        Ok(lossy(self.decode_to(ids, true)?))
    }

    fn decode_to(&self, ids: &[u32], special: bool) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(ids.len() * 4);
        let mut place = Place { start: true, held: false };
        ids.iter().try_for_each(|&id| self.append(id, special, &mut place, &mut out))?;
        Ok(out)
    }

    /// Appends one token's bytes.
    pub(crate) fn append(&self, id: u32, special: bool, place: &mut Place, out: &mut Vec<u8>) -> Result<()> {
        let parts = &*self.0;
        let mut bytes = parts.vocab.bytes(id)?;
        let kind = parts.vocab.kind(id).unwrap_or(TokenKind::Normal);
        let strip = match parts.strip {
            Strip::Never => false,
            Strip::Start => place.start && !kind.is_special(),
            // Encoding puts its space before text only, and these are found before that.
            Strip::AfterAdded => place.start && !kind.is_special() && kind != TokenKind::UserDefined,
        };
        place.start = self.begins_after(kind, place.start);
        if kind.is_special() && !special {
            return Ok(());
        }
        if strip {
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        if parts.holds_space && !bytes.is_empty() {
            if place.held {
                out.push(b' ');
            }
            place.held = bytes.ends_with(b" ");
            bytes = bytes.strip_suffix(b" ").unwrap_or(bytes);
        }
        out.extend_from_slice(bytes);
        Ok(())
    }

    /// Whether a text begins after a token of this kind. `before`: one began before it.
    fn begins_after(&self, kind: TokenKind, before: bool) -> bool {
        let after_added = self.0.strip == Strip::AfterAdded;
        after_added && kind == TokenKind::UserDefined || (after_added || before) && kind.is_special()
    }

    /// Text from tokens as they come, from the beginning of a text.
    pub fn stream(&self) -> TextStream {
        TextStream::new(self.clone(), Place { start: true, held: false })
    }

    /// Text from tokens as they come, of a sequence that began with `prompt`: what follows text keeps its leading space, what
    /// follows nothing or a special token begins a text of its own, and so does what follows a user-defined one where encoding
    /// puts a space there.
    pub fn stream_after(&self, prompt: &[u32]) -> TextStream {
        let last = prompt.last().and_then(|id| self.token_kind(*id));
        let start = last.is_none_or(|kind| self.begins_after(kind, true));
        let shown = |id: &&u32| self.token_kind(**id).is_some_and(|kind| !kind.is_special());
        let before = prompt.iter().rfind(shown).and_then(|id| self.token_bytes(*id).ok());
        let held = self.0.holds_space && before.is_some_and(|bytes| bytes.ends_with(b" "));
        TextStream::new(self.clone(), Place { start, held })
    }

    /// Tokens with a role.
    pub fn special(&self) -> &SpecialTokens {
        &self.0.special
    }

    /// The token that begins a text, if the vocabulary has one. Whether it is added is [`add_bos`](Self::add_bos).
    pub fn bos(&self) -> Option<u32> {
        self.0.special.bos
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.0.special.eos
    }

    /// All tokens after which generation ends, sorted: EOS, end of turn, end of message, and well-known ones.
    pub fn eog(&self) -> &[u32] {
        &self.0.eog
    }

    /// Whether generation ends after this token.
    pub fn is_eog(&self, id: u32) -> bool {
        self.0.eog.binary_search(&id).is_ok()
    }

    /// What [`EncodeOptions::add_special`] puts before a text and after it: BOS, BERT's `[CLS]` and `[SEP]`.
    pub fn around(&self) -> [&[u32]; 2] {
        [&self.0.prefix, &self.0.suffix]
    }

    /// Two texts as one, for models that judge one by the other: their ids, without special tokens each, with what belongs around them, and
    /// the type of every token (BERT's segments). `None` if the vocabulary does not say how.
    pub fn pair(&self, first: &[u32], second: &[u32]) -> Option<(Vec<u32>, Vec<u32>)> {
        self.0.pair.as_ref().map(|pair| pair.of(first, second))
    }

    /// Whether [`EncodeOptions::add_special`] puts BOS before a text.
    pub fn add_bos(&self) -> bool {
        self.bos().is_some_and(|bos| self.0.prefix.contains(&bos))
    }

    /// Whether [`EncodeOptions::add_special`] puts EOS after a text.
    pub fn add_eos(&self) -> bool {
        self.eos().is_some_and(|eos| self.0.suffix.contains(&eos))
    }

    /// SentencePiece's compiled rules of normalisation, where texts go through such, as a file has them (`precompiled_charsmap`).
    pub fn compiled_rules(&self) -> Option<Vec<u8>> {
        self.0.normalizers.iter().find_map(|step| match step {
            Normalizer::Precompiled(rules) => Some(rules.bytes()),
            _ => None,
        })
    }

    /// Ids are below this.
    pub fn vocab_size(&self) -> usize {
        self.0.vocab.len()
    }

    /// What the model is called, for people: `BPE`, `SentencePiece BPE`, ...
    pub fn model_name(&self) -> &'static str {
        self.0.model.name()
    }

    /// The chat template that the file names as its main one.
    pub fn chat_template(&self) -> Option<&str> {
        self.chat_template_named("default")
    }

    /// A chat template by its name, such as `tool_use`; the main one is `default`.
    pub fn chat_template_named(&self, name: &str) -> Option<&str> {
        self.0.templates.iter().find(|(n, _)| n == name).map(|(_, t)| t.as_str())
    }

    /// All chat templates: names and sources.
    pub fn chat_templates(&self) -> &[(String, String)] {
        &self.0.templates
    }
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}
