//! `tokenizer.ggml.model` = `gemma4`: merges by their ranks over characters, with a mark in place of spaces and byte fallback.
//!
//! As Gemma's tokenizer.json has it, a text is one word. llama.cpp cuts it at line breaks, and makes a row of those one token if there is such;
//! no merge of Gemma's is across them, and its merges make that token too.

use super::{Rest, bad, damaged, finish, replace, table};
use crate::model::Model;
use crate::normalize::{Normalizer, SPACE_MARK};
use crate::tokenizer::Strip;
use crate::vocab::{TokenKind, Vocab, byte_token};
use crate::{Result, Tokenizer};
use gguf_file::Metadata;
use tokenizers::models::bpe::{BPE, Vocab as Ids};

pub(super) fn gemma4(metadata: &Metadata) -> Result<Tokenizer> {
    let table = table(metadata)?;
    let count = table.texts.len();
    let mut vocab = Vocab::with_capacity(count);
    let mut bytes = Box::new([None; 256]);
    let mut ids = Ids::with_capacity(count);
    for (id, text, kind) in table.iter() {
        let byte = if kind == TokenKind::Byte { byte_token(text) } else { None };
        match (byte, kind) {
            (Some(b), _) => {
                bytes[usize::from(b)] = Some(id);
                vocab.push(&[b], kind);
            }
            (None, TokenKind::Control | TokenKind::Unknown) => vocab.push(text, kind),
            (None, TokenKind::Byte) => {
                return Err(damaged(format!("token {id} is a byte, but {:?} names none", table.text(id))));
            }
            (None, _) => vocab.push(&replace(text, SPACE_MARK.as_bytes(), b' '), kind),
        }
        let spelling = std::str::from_utf8(text);
        let spelling =
            spelling.map_err(|_| damaged(format!("token {id} ({:?}) is not UTF-8", table.text(id))))?;
        if !spelling.is_empty()
            && let Some(other) = ids.insert(spelling.to_owned(), id)
        {
            return Err(table.duplicate(other, id));
        }
    }
    let merges = metadata.array_of_str("tokenizer.ggml.merges").map_err(bad)?;
    let pairs = merges.iter_str().enumerate().map(|(i, merge)| {
        let merge = merge.map_err(|_| damaged(format!("merge {i} is not UTF-8")))?;
        // The first token may begin with a space, as llama.cpp reads it.
        let at = merge.char_indices().skip(1).find(|(_, c)| *c == ' ').map(|(at, _)| at);
        let halves = at.map(|at| (&merge[..at], &merge[at + 1..])).filter(|(_, b)| !b.is_empty());
        let (a, b) = halves.ok_or_else(|| {
            damaged(format!("merge {i} ({merge:?}) is not two tokens with a space between"))
        })?;
        Ok((a.to_owned(), b.to_owned()))
    });
    let special = table.special(metadata, [None; 3])?;
    let mut builder =
        BPE::builder().vocab_and_merges(ids, pairs.collect::<Result<Vec<_>>>()?).byte_fallback(true);
    if let Some(unknown) = special.unknown {
        builder = builder.unk_token(table.text(unknown)).fuse_unk(true);
    }
    let model = builder.build().map_err(|e| damaged(format!("its merges do not fit its tokens: {e}")))?;
    let rest = Rest {
        vocab,
        normalizers: vec![Normalizer::Replace { from: " ".into(), to: SPACE_MARK.into() }],
        steps: Vec::new(),
        model: Model::Wrapped(Box::new(model.into())),
        bytes,
        special,
        add_bos: true,
        strip: Strip::Never,
    };
    finish(metadata, &table, rest).map(Tokenizer::from_parts)
}
