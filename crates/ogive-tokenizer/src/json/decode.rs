//! The `decoder` section: how tokens are spelt, so that each can be turned into bytes by itself.
//!
//! The `tokenizers` crate decodes whole sequences; a stream needs one token at a time. The known decoders are all, but for a
//! space at the beginning or at the end, the same function of each token, and are read as such; what depends on neighbours
//! is refused.

use super::damaged;
use crate::pretokenize::Step;
use crate::{Result, TokenizerError, byte_level};
use serde_json::Value;

/// How a token's text gives its bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Spelling {
    pub(super) byte_level: bool,
    /// Replaced in every token, in order.
    replace: Vec<(String, String)>,
    /// WordPiece: what marks a token that continues a word; others get a space before them.
    continues: Option<String>,
    /// A space stands before every token.
    pub(super) words: bool,
    /// A space at the beginning goes.
    pub(super) strip: bool,
    /// BPEDecoder: the space that ends a word goes where no token follows.
    pub(super) ends_words: bool,
}

const KNOWN: &str =
    "Sequence, ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, WordPiece, BPEDecoder";

impl Spelling {
    /// Reads the section; without one, the pre-tokenizer tells whether bytes are spelt, and tokens that spell text are put in
    /// a row with spaces between them, as the `tokenizers` crate does.
    pub(super) fn parse(json: &Value, steps: &[Step]) -> Result<Self> {
        let mut spelling = Self::default();
        if json.is_null() {
            spelling.byte_level = steps.iter().any(|s| matches!(s, Step::ByteLevel));
            spelling.words = !spelling.byte_level;
            spelling.strip = spelling.words;
        } else {
            spelling.add(json)?;
        }
        Ok(spelling)
    }

    fn add(&mut self, json: &Value) -> Result<()> {
        let text = |name: &str| json[name].as_str();
        let lacks = |what: &str| damaged(format!("the decoder {} has no {what}", json["type"]));
        match text("type").unwrap_or_default() {
            "Sequence" => json["decoders"].as_array().into_iter().flatten().try_for_each(|d| self.add(d))?,
            "ByteLevel" => self.byte_level = true,
            // Byte tokens are told by the model's byte_fallback; fusing is what putting tokens in a row does.
            "ByteFallback" | "Fuse" => {}
            "Metaspace" => {
                let mark = text("replacement").filter(|m| !m.is_empty()).unwrap_or("\u{2581}");
                self.replace.push((mark.to_owned(), " ".to_owned()));
                self.strip |= text("prepend_scheme").is_none_or(|s| s != "never")
                    && json["add_prefix_space"].as_bool().unwrap_or(true);
            }
            "Replace" => {
                let from = json["pattern"]["String"].as_str().filter(|s| !s.is_empty());
                let from = from.ok_or_else(|| lacks("pattern of type String"))?;
                self.replace
                    .push((from.to_owned(), text("content").ok_or_else(|| lacks("content"))?.to_owned()));
            }
            "Strip" => match (text("content"), json["start"].as_u64(), json["stop"].as_u64()) {
                (Some(" "), Some(start @ (0 | 1)), Some(0)) => self.strip |= start == 1,
                other => {
                    return Err(TokenizerError::unsupported(
                        "decoder Strip",
                        format!("{other:?}"),
                        "one space at the start",
                    ));
                }
            },
            "WordPiece" => {
                self.continues = Some(text("prefix").unwrap_or("##").to_owned());
                self.strip = true;
            }
            "BPEDecoder" => {
                let suffix = text("suffix").filter(|s| !s.is_empty()).unwrap_or("</w>");
                self.replace.push((suffix.to_owned(), " ".to_owned()));
                self.ends_words = true;
            }
            other => return Err(TokenizerError::unsupported("decoder", other, KNOWN)),
        }
        Ok(())
    }

    /// The bytes of a token's text.
    pub(super) fn bytes(&self, text: &str) -> Vec<u8> {
        if self.byte_level {
            return byte_level::decode(text).unwrap_or_else(|| text.as_bytes().to_vec());
        }
        let mut text = match &self.continues {
            None => text.to_owned(),
            Some(prefix) => {
                text.strip_prefix(prefix.as_str()).map_or_else(|| format!(" {text}"), str::to_owned)
            }
        };
        if self.words {
            text.insert(0, ' ');
        }
        for (from, to) in &self.replace {
            text = text.replace(from.as_str(), to);
        }
        text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_the_common_ones() {
        let spelling = |json| Spelling::parse(&json, &[]).unwrap();
        let llama = spelling(json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}));
        assert!(llama.strip && llama.bytes("▁a▁") == b" a ");
        assert!(spelling(json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"})).strip);
        assert!(!spelling(json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"})).strip);
        assert_eq!(spelling(json!({"type": "ByteLevel"})).bytes("Ġé"), b" \xe9");
        let pieces = spelling(json!({"type": "WordPiece", "prefix": "##", "cleanup": true}));
        assert_eq!([pieces.bytes("ab"), pieces.bytes("##cd")].concat(), b" abcd");
        assert!(Spelling::parse(&Value::Null, &[Step::ByteLevel]).unwrap().byte_level);
        let words = Spelling::parse(&Value::Null, &[]).unwrap();
        assert!(words.strip && [words.bytes("ab"), words.bytes("##cd")].concat() == b" ab ##cd");
        for (json, word) in [
            (json!({"type": "CTC"}), "CTC"),
            (json!({"type": "Strip", "content": "x", "start": 1, "stop": 0}), "Strip"),
            (json!({"type": "Replace", "pattern": {"Regex": "x"}, "content": ""}), "pattern"),
            (json!(3), "decoder"),
        ] {
            let e = Spelling::parse(&json, &[]).unwrap_err().to_string();
            assert!(e.contains(word), "{e}");
        }
    }
}
