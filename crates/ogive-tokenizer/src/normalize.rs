//! What is done to text before it is cut: Unicode normal forms, and SentencePiece's marks for spaces.
//!
//! The common steps are our own. The `tokenizers` crate keeps, for every byte, where in the original it came from; nothing
//! here asks for that, and without it a megabyte of text is a copy. The normal forms use that crate's tables, old as they are
//! (Unicode 9): models saw text normalised by them. Its rarer steps are run by the crate itself, but for `Precompiled`
//! (the tables of T5 and XLM-R): the crate indexes those tables unchecked, so a damaged file would panic.

use crate::precompiled::Precompiled;
use crate::split::pattern::Pattern;
use crate::{Result, TokenizerError};
use serde_json::Value;
use std::borrow::Cow;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::{NormalizedString, Normalizer as _};
use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// SentencePiece's visible space, U+2581.
pub(crate) const SPACE_MARK: &str = "\u{2581}";

/// One step.
#[derive(Debug, Clone)]
pub(crate) enum Normalizer {
    /// Put before the text, unless it continues another.
    Prepend(String),
    Replace {
        from: String,
        to: String,
    },
    ReplacePattern {
        from: Pattern,
        to: String,
    },
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    /// SentencePiece's rules.
    Precompiled(Precompiled),
    /// SentencePiece's marks for spaces. Merged: one before each word and none elsewhere. Not merged: one for each space, and one more before
    /// the first word if `prefix` says so, unless the text continues another.
    Spaces {
        merged: bool,
        prefix: bool,
    },
    /// A step of the `tokenizers` crate.
    Wrapped(Box<NormalizerWrapper>),
}

const KNOWN: &str = "Sequence, Prepend, Replace, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, BertNormalizer, Nmt, \
                     Precompiled";

impl Normalizer {
    /// Reads the `normalizer` of a tokenizer.json; `Sequence` becomes a flat list.
    pub(crate) fn parse(json: &Value, steps: &mut Vec<Self>) -> Result<()> {
        let field = |name: &str| {
            json[name].as_str().map(str::to_owned).ok_or_else(|| {
                TokenizerError::Vocabulary(format!("the normalizer {} has no text {name:?}", json["type"]))
            })
        };
        match json["type"].as_str().unwrap_or_default() {
            "Sequence" => {
                for step in json["normalizers"].as_array().into_iter().flatten() {
                    Self::parse(step, steps)?;
                }
            }
            "Prepend" => steps.push(Self::Prepend(field("prepend")?)),
            "Replace" => {
                let to = field("content")?;
                let pattern = &json["pattern"];
                steps.push(match (pattern["String"].as_str(), pattern["Regex"].as_str()) {
                    (Some(from), _) if !from.is_empty() => Self::Replace { from: from.to_owned(), to },
                    (None, Some(from)) => Self::ReplacePattern { from: Pattern::new(from)?, to },
                    _ => {
                        return Err(TokenizerError::Vocabulary(
                            "the normalizer Replace has no pattern".into(),
                        ));
                    }
                });
            }
            "NFC" => steps.push(Self::Nfc),
            "NFD" => steps.push(Self::Nfd),
            "NFKC" => steps.push(Self::Nfkc),
            "NFKD" => steps.push(Self::Nfkd),
            "Precompiled" => {
                steps.push(Self::Precompiled(Precompiled::from_base64(&field("precompiled_charsmap")?)?));
            }
            "Lowercase" | "Strip" | "StripAccents" | "BertNormalizer" | "Nmt" => {
                let wrapped = serde_json::from_value(json.clone());
                steps.push(Self::Wrapped(wrapped.map_err(|e| TokenizerError::json("the normalizer", e))?));
            }
            other => return Err(TokenizerError::unsupported("normalizer", other, KNOWN)),
        }
        Ok(())
    }

    fn apply<'t>(&self, text: Cow<'t, str>, continuing: bool) -> Result<Cow<'t, str>> {
        Ok(match self {
            Self::Prepend(mark) => {
                if text.is_empty() || continuing {
                    text
                } else {
                    Cow::Owned(format!("{mark}{text}"))
                }
            }
            Self::Replace { from, to } => {
                if text.contains(from.as_str()) {
                    Cow::Owned(text.replace(from.as_str(), to))
                } else {
                    text
                }
            }
            Self::ReplacePattern { from, to } => {
                let matches = from.matches(&text)?;
                let (mut out, mut at) = (String::with_capacity(text.len()), 0);
                for m in matches {
                    out.push_str(&text[at..m.start]);
                    out.push_str(to);
                    at = m.end;
                }
                out.push_str(&text[at..]);
                Cow::Owned(out)
            }
            Self::Nfc if is_nfc_quick(text.chars()) == IsNormalized::Yes => text,
            Self::Nfc => Cow::Owned(text.nfc().map(|(c, _)| c).collect()),
            Self::Nfd => Cow::Owned(text.nfd().map(|(c, _)| c).collect()),
            Self::Nfkc => Cow::Owned(text.nfkc().map(|(c, _)| c).collect()),
            Self::Nfkd => Cow::Owned(text.nfkd().map(|(c, _)| c).collect()),
            Self::Precompiled(rules) => rules.apply(text),
            Self::Spaces { merged, prefix } => Cow::Owned(marked(&text, *merged, *prefix && !continuing)),
            Self::Wrapped(step) => {
                let mut s = NormalizedString::from(&*text);
                step.normalize(&mut s).map_err(|e| TokenizerError::Model(e.to_string()))?;
                Cow::Owned(s.get().to_owned())
            }
        })
    }
}

/// Marks in place of spaces. Source: llama.cpp's `llm_tokenizer_ugm_session::normalize`.
fn marked(text: &str, merged: bool, prefix: bool) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 4 + SPACE_MARK.len());
    for (i, word) in text.split(' ').enumerate() {
        let began = text.starts_with(' ') || i > 0;
        match merged {
            true if !word.is_empty() && (prefix || began) => out.push_str(SPACE_MARK),
            false if i > 0 => out.push_str(SPACE_MARK),
            _ => {}
        }
        out.push_str(word);
    }
    // The first word is that of the first letter, wherever that stands.
    if prefix && !merged && !text.trim_start_matches(' ').is_empty() {
        out.insert_str(0, SPACE_MARK);
    }
    out
}

/// Runs all steps. `continuing`: something that is no text precedes, and no prefix belongs here.
pub(crate) fn normalize<'t>(steps: &[Normalizer], text: &'t str, continuing: bool) -> Result<Cow<'t, str>> {
    steps.iter().try_fold(Cow::Borrowed(text), |text, step| step.apply(text, continuing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(json: Value, text: &str) -> String {
        let mut steps = Vec::new();
        Normalizer::parse(&json, &mut steps).unwrap();
        normalize(&steps, text, false).unwrap().into_owned()
    }

    #[test]
    fn runs_the_steps_in_order() {
        let llama = json!({"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]});
        assert_eq!(run(llama.clone(), "a b"), "▁a▁b");
        assert_eq!(run(llama, ""), "");
        assert_eq!(run(json!({"type": "NFC"}), "e\u{301}\u{fffd}"), "é\u{fffd}");
        assert_eq!(run(json!({"type": "NFKC"}), "ﬁ½"), "fi1⁄2");
        assert_eq!(
            run(json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "_"}), "a   b c  "),
            "a_b c_"
        );
        assert_eq!(run(json!({"type": "Lowercase"}), "ÄB"), "äb");
    }

    #[test]
    fn spaces_become_marks_as_a_file_says() {
        let run = |text, merged, prefix, continuing| {
            normalize(&[Normalizer::Spaces { merged, prefix }], text, continuing).unwrap().into_owned()
        };
        for (text, merged, kept, bare) in [
            ("", "", "", ""),
            ("  ", "", "▁▁", "▁▁"),
            ("a  b ", "▁a▁b", "▁a▁▁b▁", "a▁▁b▁"),
            (" a", "▁a", "▁▁a", "▁a"),
        ] {
            assert_eq!(
                [run(text, true, true, false), run(text, false, true, false)],
                [merged, kept],
                "{text:?}"
            );
            assert_eq!(
                [run(text, false, false, false), run(text, false, true, true)],
                [bare, bare],
                "{text:?}"
            );
        }
        assert_eq!([run("a b", true, true, true), run(" a", true, true, true)], ["a▁b", "▁a"]);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (json, word) in [
            (json!({"type": "Precompiled"}), "precompiled_charsmap"),
            (json!({"type": "Precompiled", "precompiled_charsmap": "AAA"}), "no Base64"),
            (json!({"type": "Precompiled", "precompiled_charsmap": ""}), "ends early, after 0 bytes"),
            (json!({"type": "Replace", "pattern": {"String": ""}, "content": ""}), "pattern"),
            (json!({"type": "Prepend"}), "prepend"),
            (json!({}), "normalizer"),
            (json!([1]), "normalizer"),
        ] {
            let e = Normalizer::parse(&json, &mut Vec::new()).unwrap_err().to_string();
            assert!(e.contains(word), "{e}");
        }
    }
}
