//! `tokenizer.ggml.model` = `bert`: BERT's word pieces.
//!
//! llama.cpp's converter writes what begins a word with SentencePiece's mark and what goes on with nothing, where BERT's own
//! files have nothing and `##`. That is turned back here, so that the model and the steps before it are those of a
//! tokenizer.json, and a text is cut alike from either file. llama.cpp cuts some texts otherwise (words of more than 100
//! characters, accents that stand alone); the models learned with BERT's rules, so these hold.

use super::{Rest, Table, bad, damaged, finish, table};
use crate::model::Model;
use crate::normalize::{Normalizer, SPACE_MARK};
use crate::pair::Pair;
use crate::pretokenize::Step;
use crate::tokenizer::Strip;
use crate::vocab::Vocab;
use crate::{Result, Tokenizer};
use ahash::AHashMap;
use gguf_file::Metadata;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;

/// What marks a piece that goes on with a word.
const CONTINUES: &str = "##";

pub(super) fn bert(metadata: &Metadata) -> Result<Tokenizer> {
    let table = Table { mark: SPACE_MARK, ..table(metadata)? };
    let mut vocab = Vocab::with_capacity(table.texts.len());
    let mut words: AHashMap<String, u32> = AHashMap::with_capacity(table.texts.len());
    let mut named = Named::default();
    for (id, text, kind) in table.iter() {
        let text = std::str::from_utf8(text)
            .map_err(|_| damaged(format!("token {id} ({:?}) is not UTF-8", table.text(id))))?;
        named.note(text, id);
        // What is special stands for itself and is never a part of a word.
        if kind.is_special() {
            vocab.push(text.as_bytes(), kind);
            continue;
        }
        // The mark alone goes on with a word: none is empty.
        let (spelling, shown) = match text.strip_prefix(SPACE_MARK).filter(|word| !word.is_empty()) {
            Some(word) => (word.to_owned(), format!(" {word}")),
            None => (format!("{CONTINUES}{text}"), text.to_owned()),
        };
        vocab.push(shown.as_bytes(), kind);
        if let Some(other) = words.insert(spelling, id) {
            return Err(table.duplicate(other, id));
        }
    }
    // The older key for the first token.
    let cls = table.role(metadata, "cls", named.cls, false)?;
    let mut special = table.special(metadata, [cls, None, named.unknown])?;
    special.separator = special.separator.or(named.separator);
    special.padding = special.padding.or(named.padding);
    special.mask = special.mask.or(named.mask);
    special.eos = special.eos.or(special.separator);
    let unknown = special.unknown.ok_or_else(|| {
        damaged("it has no unknown token ([UNK], tokenizer.ggml.unknown_token_id), which word pieces need")
    })?;
    let flag = |key: &str| metadata.opt_bool(&format!("tokenizer.ggml.normalizer.{key}")).map_err(bad);
    let lowercase = flag("lowercase")?.unwrap_or(!has_capitals(&words));
    let normalizer = BertNormalizer::new(true, true, flag("strip_accents")?, lowercase);
    let spelling = table.text(unknown);
    if let Some(other) = words.insert(spelling.clone(), unknown).filter(|other| *other != unknown) {
        return Err(table.duplicate(other, unknown));
    }
    let model = WordPiece::builder()
        .vocab(words)
        .unk_token(spelling)
        .continuing_subword_prefix(CONTINUES.to_owned())
        .max_input_chars_per_word(100)
        .build()
        .map_err(|e| damaged(e.to_string()))?;
    let (cls, separator) = (special.bos, special.separator);
    let rest = Rest {
        vocab,
        normalizers: vec![Normalizer::Wrapped(Box::new(normalizer.into()))],
        steps: vec![Step::Wrapped(Box::new(BertPreTokenizer.into()))],
        model: Model::Wrapped(Box::new(model.into())),
        bytes: Box::new([None; 256]),
        special,
        add_bos: true,
        add_eos: true,
        strip: Strip::Start,
    };
    let mut parts = finish(metadata, &table, rest)?;
    // Both always, whatever the flags say, as in llama.cpp.
    parts.prefix = cls.into_iter().collect();
    parts.suffix = separator.into_iter().collect();
    parts.pair = Some(Pair::new(&parts.prefix, &parts.suffix, &parts.suffix, [0, 1]));
    Ok(Tokenizer::from_parts(parts))
}

/// Tokens that files leave to their names.
#[derive(Default)]
struct Named {
    cls: Option<u32>,
    separator: Option<u32>,
    unknown: Option<u32>,
    padding: Option<u32>,
    mask: Option<u32>,
}

impl Named {
    fn note(&mut self, text: &str, id: u32) {
        let role = match text {
            "[CLS]" => &mut self.cls,
            "[SEP]" => &mut self.separator,
            "[UNK]" => &mut self.unknown,
            "[PAD]" => &mut self.padding,
            "[MASK]" => &mut self.mask,
            _ => return,
        };
        role.get_or_insert(id);
    }
}

/// Whether the vocabulary has all capital letters as words: one that was made of lower-cased text has none. Older files do
/// not say, and llama.cpp then takes every vocabulary for such a one.
fn has_capitals(words: &AHashMap<String, u32>) -> bool {
    ('A'..='Z').all(|c| words.contains_key(c.encode_utf8(&mut [0; 4]) as &str))
}
