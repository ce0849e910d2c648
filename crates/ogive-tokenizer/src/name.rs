//! The name under which GGUF files know a `pre_tokenizer` of a `tokenizer.json`: the way back from `split::names`.
//!
//! By what the cutters do and not by a table of models: a new model with a known pattern needs no line here, and a pattern
//! that no name stands for is an error, because the nearest name would cut text in other places.

use crate::pretokenize::{Behavior, Step};
use crate::split::{Stage, names};
use crate::{Result, TokenizerError};
use serde_json::Value;

/// The value of `tokenizer.ggml.pre` for the `pre_tokenizer` section of a byte-level `tokenizer.json`. `ignore_merges` is
/// the model's flag of that name, which tells apart names that cut alike.
///
/// # Errors
/// If the section is not understood, or if no name stands for it.
pub fn pre_tokenizer_name(pre_tokenizer: &Value, ignore_merges: bool) -> Result<&'static str> {
    let mut steps = Vec::new();
    Step::parse(pre_tokenizer, &mut steps)?;
    let unknown = || {
        let known = "the splitters of Llama 3, Qwen, GPT-2, GPT-4o, Tekken, DeepSeek, StarCoder, Falcon and their kin";
        TokenizerError::unsupported(
            "pre_tokenizer, as a name in a GGUF file,",
            pre_tokenizer.to_string(),
            known,
        )
    };
    let mut stages = Vec::new();
    for step in steps {
        match step {
            // What matches all of a text is cut alike by taking the gaps out and by keeping what lies between them.
            Step::Cut { stage, behavior: Behavior::Isolated, invert: false }
            | Step::Cut { stage, behavior: Behavior::Removed, invert: true } => stages.push(plain(stage)),
            Step::ByteLevel => {}
            _ => return Err(unknown()),
        }
    }
    names::name_of(&stages, ignore_merges).ok_or_else(unknown)
}

/// GGUF's cutters never take the long s for an s; a `tokenizer.json` may.
fn plain(stage: Stage) -> Stage {
    match stage {
        Stage::Words(mut words) => {
            words.long_s = false;
            Stage::Words(words)
        }
        Stage::Cased(mut cased) => {
            cased.long_s = false;
            Stage::Cased(cased)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn split(pattern: &str) -> Value {
        json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})
    }

    #[test]
    fn known_splitters_have_their_names() {
        const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
        const QWEN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
        let name = |json: &Value, ignore| pre_tokenizer_name(json, ignore).unwrap();
        assert_eq!((name(&split(LLAMA3), true), name(&split(LLAMA3), false)), ("llama-bpe", "dbrx"));
        assert_eq!((name(&split(QWEN), false), name(&split(QWEN), true)), ("qwen2", "qwen2"));
        let gpt2 =
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
        assert_eq!(name(&gpt2, false), "gpt-2");
        let digits = json!({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, gpt2]});
        assert_eq!(name(&digits, false), "starcoder");
    }

    #[test]
    fn what_no_name_stands_for_is_an_error() {
        for json in [
            split(r"\p{L}+"),
            json!({"type": "ByteLevel", "add_prefix_space": true, "use_regex": true}),
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true}),
            json!({"type": "Magic"}),
        ] {
            assert!(
                pre_tokenizer_name(&json, false).unwrap_err().to_string().contains("pre_tokenizer"),
                "{json}"
            );
        }
    }
}
