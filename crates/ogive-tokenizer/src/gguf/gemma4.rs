//! `tokenizer.ggml.model` = `gemma4`: merges by their ranks over characters, with a mark in place of spaces and byte fallback.
//!
//! As Gemma's tokenizer.json has it, a text is one word. llama.cpp cuts it at line breaks, and makes a row of those one token if there is such;
//! no merge of Gemma's is across them, and its merges make that token too.

use super::{Rest, bad, damaged, finish, table};
use crate::model::Model;
use crate::normalize::{Normalizer, SPACE_MARK};
use crate::tokenizer::Strip;
use crate::{Result, Tokenizer};
use gguf_file::Metadata;
use tokenizers::models::bpe::{BPE, Vocab as Ids};

pub(super) fn gemma4(metadata: &Metadata) -> Result<Tokenizer> {
    let table = table(metadata)?;
    let (vocab, bytes) = table.spelt_with_marks()?;
    let mut ids = Ids::with_capacity(table.texts.len());
    for (id, text, _) in table.iter() {
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
        add_eos: false,
        strip: Strip::Never,
    };
    finish(metadata, &table, rest).map(Tokenizer::from_parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EncodeOptions;
    use gguf_file::StringArray;

    /// Bytes, then marks and letters, then what merges make.
    fn metadata(more: &[&str], merges: &[&str]) -> Metadata {
        let bytes = (0..=255u8).map(|b| format!("<0x{b:02X}>"));
        let names =
            ["<bos>", "<unk>", "▁", "a", "b", "c", "ab", "▁ab", "bc", "\n", "\n\n"].iter().chain(more);
        let tokens: Vec<String> = bytes.chain(names.map(|name| (*name).to_owned())).collect();
        let kinds: Vec<i32> = (0..tokens.len())
            .map(|id| match id {
                0..=255 => 6,
                256 => 3,
                257 => 2,
                _ => 1,
            })
            .collect();
        let mut m = Metadata::new();
        m.set("tokenizer.ggml.model", "gemma4")
            .set("tokenizer.ggml.tokens", tokens.iter().collect::<StringArray>())
            .set("tokenizer.ggml.token_type", kinds)
            .set("tokenizer.ggml.merges", merges.iter().collect::<StringArray>())
            .set("tokenizer.ggml.bos_token_id", 256_u32)
            .set("tokenizer.ggml.unknown_token_id", 257_u32);
        m
    }

    #[test]
    fn merges_go_by_rank_and_what_has_no_token_by_bytes() {
        // The first merge counts first, wherever it stands: a score of what it makes could say the same, the ranks of two for one token not.
        let t = Tokenizer::from_gguf(&metadata(&[], &["b c", "a b", "▁ ab", "\n \n"])).unwrap();
        let ids =
            |text: &str| t.encode(text, EncodeOptions { add_special: false, parse_special: false }).unwrap();
        let [mark, a, c, ab, mark_ab, bc, line, lines] = [258, 259, 261, 262, 263, 264, 265, 266];
        assert_eq!(ids("abc"), [a, bc]);
        assert_eq!(ids(" ab ab"), [mark_ab, mark_ab]);
        assert_eq!(ids("  ab"), [mark, mark_ab]);
        assert_eq!(ids("c\n\n\nab"), [c, lines, line, ab]);
        // Two bytes of a letter that is none of them.
        assert_eq!(ids("é"), [0xc3, 0xa9]);
        assert_eq!(t.decode(&[mark_ab, 0xc3, 0xa9]).unwrap(), " abé");
        let with = t.encode("c", EncodeOptions { add_special: true, parse_special: false }).unwrap();
        assert_eq!(with, [256, c]);
    }

    #[test]
    fn a_vocabulary_that_contradicts_itself_is_refused() {
        let refused = |m: Metadata, why: &str| {
            let e = Tokenizer::from_gguf(&m).map(|_| ()).unwrap_err().to_string();
            assert!(e.contains(why), "{e}");
        };
        refused(metadata(&["ab"], &[]), "are both \"ab\"");
        refused(metadata(&[], &["ab"]), "merge 0 (\"ab\") is not two tokens");
        refused(metadata(&[], &["a x"]), "its merges do not fit its tokens");
        let mut m = metadata(&[], &[]);
        m.remove("tokenizer.ggml.merges");
        refused(m, "tokenizer.ggml.merges");
    }
}
