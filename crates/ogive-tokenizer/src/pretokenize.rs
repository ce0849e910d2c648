//! Cutting normalised text into the words that the model then works on one by one, as `pre_tokenizer` of a tokenizer.json says.
//!
//! The steps pass on a text and the ranges of its words. Known cutters are our own linear ones (see [`crate::split`]); the rare
//! ones run in the `tokenizers` crate, word by word.

use crate::split::runs::{Kind, Run};
use crate::split::{Stage, names, pattern::Pattern, with_gaps};
use crate::{Result, TokenizerError, byte_level};
use serde_json::Value;
use std::borrow::Cow;
use std::ops::Range;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _};

/// What becomes of a cutter's matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behavior {
    Removed,
    Isolated,
    MergedWithPrevious,
    MergedWithNext,
    Contiguous,
}

/// Where SentencePiece's mark goes before a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prepend {
    Always,
    First,
    Never,
}

/// One step.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Cut {
        stage: Stage,
        behavior: Behavior,
        invert: bool,
    },
    /// A space before each word that has none.
    PrefixSpace,
    /// Bytes written as GPT-2's characters.
    ByteLevel,
    Metaspace {
        mark: char,
        prepend: Prepend,
        split: bool,
    },
    /// A step of the `tokenizers` crate.
    Wrapped(Box<PreTokenizerWrapper>),
}

/// A text and the ranges of its words, in order.
#[derive(Debug)]
pub(crate) struct Words<'t> {
    pub(crate) text: Cow<'t, str>,
    pub(crate) ranges: Vec<Range<usize>>,
}

impl Words<'_> {
    /// Rewrites every word; one may become several.
    fn rewrite(
        &mut self,
        mut f: impl FnMut(&str, &mut String, &mut Vec<Range<usize>>) -> Result<()>,
    ) -> Result<()> {
        let mut text = String::with_capacity(self.text.len() + self.text.len() / 4);
        let mut ranges = Vec::with_capacity(self.ranges.len());
        for range in &self.ranges {
            f(&self.text[range.clone()], &mut text, &mut ranges)?;
        }
        (self.text, self.ranges) = (Cow::Owned(text), ranges);
        Ok(())
    }
}

const KNOWN: &str = "Sequence, ByteLevel, Metaspace, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer, \
                     CharDelimiterSplit, UnicodeScripts";

impl Step {
    pub(crate) const fn isolate(stage: Stage) -> Self {
        Self::Cut { stage, behavior: Behavior::Isolated, invert: false }
    }

    /// Reads the `pre_tokenizer` of a tokenizer.json; `Sequence` becomes a flat list.
    pub(crate) fn parse(json: &Value, steps: &mut Vec<Self>) -> Result<()> {
        let flag = |name: &str, default: bool| json[name].as_bool().unwrap_or(default);
        match json["type"].as_str().unwrap_or_default() {
            "Sequence" => {
                for step in json["pretokenizers"].as_array().into_iter().flatten() {
                    Self::parse(step, steps)?;
                }
            }
            "ByteLevel" => {
                if flag("add_prefix_space", true) {
                    steps.push(Self::PrefixSpace);
                }
                if flag("use_regex", true) {
                    steps.push(Self::isolate(Stage::Gpt2));
                }
                steps.push(Self::ByteLevel);
            }
            "Metaspace" => {
                let prepend = match (json["prepend_scheme"].as_str(), json["add_prefix_space"].as_bool()) {
                    (Some("never"), _) | (None, Some(false)) => Prepend::Never,
                    (Some("first"), _) => Prepend::First,
                    _ => Prepend::Always,
                };
                let mark = json["replacement"].as_str().and_then(|s| s.chars().next()).unwrap_or('\u{2581}');
                steps.push(Self::Metaspace { mark, prepend, split: flag("split", true) });
            }
            "Split" => {
                let pattern = &json["pattern"];
                let stage = match (pattern["Regex"].as_str(), pattern["String"].as_str()) {
                    (Some(regex), _) => names::for_pattern(regex)?,
                    (None, Some(text)) if !text.is_empty() => Stage::Pattern(Pattern::literal(text)?),
                    _ => {
                        return Err(TokenizerError::Vocabulary(
                            "the pre_tokenizer Split has no pattern".into(),
                        ));
                    }
                };
                let behavior = match json["behavior"].as_str().unwrap_or_default() {
                    "Removed" => Behavior::Removed,
                    "Isolated" => Behavior::Isolated,
                    "MergedWithPrevious" => Behavior::MergedWithPrevious,
                    "MergedWithNext" => Behavior::MergedWithNext,
                    "Contiguous" => Behavior::Contiguous,
                    other => {
                        let known = "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous";
                        return Err(TokenizerError::unsupported("behavior of Split", other, known));
                    }
                };
                steps.push(Self::Cut { stage, behavior, invert: flag("invert", false) });
            }
            "Digits" => {
                let max = if flag("individual_digits", false) { 1 } else { usize::MAX };
                steps.push(Self::isolate(Stage::Run(Run { kind: Kind::Number, min: 1, max })));
            }
            "Punctuation" | "Whitespace" | "WhitespaceSplit" | "BertPreTokenizer" | "CharDelimiterSplit"
            | "UnicodeScripts" => {
                let wrapped = serde_json::from_value(json.clone());
                steps.push(Self::Wrapped(wrapped.map_err(|e| TokenizerError::json("the pre_tokenizer", e))?));
            }
            other => return Err(TokenizerError::unsupported("pre_tokenizer", other, KNOWN)),
        }
        Ok(())
    }

    fn apply(&self, words: &mut Words<'_>, first: bool) -> Result<()> {
        match self {
            Self::Cut { stage, behavior, invert } => {
                let mut ranges = Vec::with_capacity(words.ranges.len());
                for range in &words.ranges {
                    let part = &words.text[range.clone()];
                    let cuts = cut(&stage.matches(part)?, part.len(), *behavior, *invert);
                    ranges.extend(cuts.into_iter().map(|r| r.start + range.start..r.end + range.start));
                }
                words.ranges = ranges;
                Ok(())
            }
            Self::PrefixSpace => words.rewrite(|word, text, ranges| {
                let start = text.len();
                if !word.starts_with(' ') {
                    text.push(' ');
                }
                text.push_str(word);
                ranges.push(start..text.len());
                Ok(())
            }),
            Self::ByteLevel => words.rewrite(|word, text, ranges| {
                let start = text.len();
                byte_level::encode(word.as_bytes(), text);
                ranges.push(start..text.len());
                Ok(())
            }),
            Self::Metaspace { mark, prepend, split } => {
                let mut at_start = first;
                words.rewrite(|word, text, ranges| {
                    let mut start = text.len();
                    let wanted = match prepend {
                        Prepend::Always => true,
                        Prepend::First => at_start,
                        Prepend::Never => false,
                    };
                    at_start = false;
                    if wanted && !word.starts_with([' ', *mark]) {
                        text.push(*mark);
                    }
                    for c in word.chars() {
                        let c = if c == ' ' { *mark } else { c };
                        if *split && c == *mark && text.len() > start {
                            ranges.push(start..text.len());
                            start = text.len();
                        }
                        text.push(c);
                    }
                    ranges.push(start..text.len());
                    Ok(())
                })
            }
            Self::Wrapped(step) => words.rewrite(|word, text, ranges| {
                let mut pieces = PreTokenizedString::from(word);
                step.pre_tokenize(&mut pieces).map_err(|e| TokenizerError::Model(e.to_string()))?;
                for (piece, _, _) in pieces.get_splits(OffsetReferential::Normalized, OffsetType::Byte) {
                    let start = text.len();
                    text.push_str(piece);
                    ranges.push(start..text.len());
                }
                Ok(())
            }),
        }
    }
}

/// The words that matches make, by behavior. Source: `NormalizedString::split` of the `tokenizers` crate.
fn cut(matches: &[Range<usize>], len: usize, behavior: Behavior, invert: bool) -> Vec<Range<usize>> {
    if behavior == Behavior::Isolated {
        return with_gaps(matches, len);
    }
    let mut pieces: Vec<(Range<usize>, bool)> = Vec::with_capacity(matches.len() * 2 + 1);
    let mut at = 0;
    for m in matches {
        if m.start > at {
            pieces.push((at..m.start, invert));
        }
        pieces.push((m.clone(), !invert));
        at = m.end;
    }
    if at < len {
        pieces.push((at..len, invert));
    }
    let mut out: Vec<Range<usize>> = Vec::with_capacity(pieces.len());
    let mut before = false;
    match behavior {
        Behavior::Isolated | Behavior::Removed => {
            out.extend(pieces.into_iter().filter(|(_, matched)| !matched).map(|(r, _)| r))
        }
        Behavior::MergedWithPrevious => {
            for (r, matched) in pieces {
                match out.last_mut() {
                    Some(last) if matched && !before => last.end = r.end,
                    _ => out.push(r),
                }
                before = matched;
            }
        }
        Behavior::MergedWithNext => {
            for (r, matched) in pieces.into_iter().rev() {
                match out.last_mut() {
                    Some(last) if matched && !before => last.start = r.start,
                    _ => out.push(r),
                }
                before = matched;
            }
            out.reverse();
        }
        Behavior::Contiguous => {
            for (r, matched) in pieces {
                match out.last_mut() {
                    Some(last) if matched == before => last.end = r.end,
                    _ => out.push(r),
                }
                before = matched;
            }
        }
    }
    out
}

/// Runs all steps. `first`: the text stands at the very beginning.
pub(crate) fn words<'t>(steps: &[Step], text: Cow<'t, str>, first: bool) -> Result<Words<'t>> {
    let ranges = with_gaps(&[], text.len());
    let mut words = Words { text, ranges };
    for step in steps {
        step.apply(&mut words, first)?;
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::tests::{Random, text};
    use serde_json::json;

    fn ours(json: &Value, text: &str) -> Vec<String> {
        let mut steps = Vec::new();
        Step::parse(json, &mut steps).unwrap();
        let words = words(&steps, Cow::Borrowed(text), true).unwrap();
        words.ranges.iter().map(|r| words.text[r.clone()].to_owned()).collect()
    }

    fn theirs(json: &Value, text: &str) -> Vec<String> {
        let step: PreTokenizerWrapper = serde_json::from_value(json.clone()).unwrap();
        let mut pieces = PreTokenizedString::from(text);
        step.pre_tokenize(&mut pieces).unwrap();
        let splits = pieces.get_splits(OffsetReferential::Normalized, OffsetType::Byte);
        splits.into_iter().map(|(s, _, _)| s.to_owned()).collect()
    }

    #[test]
    fn does_what_the_tokenizers_crate_does() {
        let split = |behavior: &str, invert: bool| json!({"type": "Split", "pattern": {"Regex": "[a-z]+|\\s"}, "behavior": behavior, "invert": invert});
        let mut cases = vec![
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}),
            json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": false}),
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true}),
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": false}),
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": true}),
            json!({"type": "Digits", "individual_digits": true}),
            json!({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false}),
            json!({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Digits", "individual_digits": false}, {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true}]}),
        ];
        for behavior in ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"] {
            cases.extend([split(behavior, false), split(behavior, true)]);
        }
        let mut random = Random(9);
        for json in &cases {
            for _ in 0..500 {
                let text = text(&mut random);
                assert_eq!(ours(json, &text), theirs(json, &text), "{json} on {text:?}");
            }
        }
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (json, word) in [
            (json!({"type": "Magic"}), "Magic"),
            (json!({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"}), "pattern \"(\""),
            (json!({"type": "Split", "pattern": {}, "behavior": "Isolated"}), "no pattern"),
            (json!({"type": "Split", "pattern": {"String": "x"}, "behavior": "Sideways"}), "Sideways"),
            (json!({"type": "CharDelimiterSplit"}), "pre_tokenizer"),
        ] {
            let e = Step::parse(&json, &mut Vec::new()).unwrap_err().to_string();
            assert!(e.contains(word), "{e}");
        }
    }
}
