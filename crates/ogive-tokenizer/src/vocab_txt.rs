//! BERT's first kind of vocabulary: `vocab.txt`, a token a line.
//!
//! It becomes the tokenizer.json that transformers makes of it and is then opened as one, so that its rules stand in one
//! place. What the lines do not say, case and accents, stands in tokenizer_config.json, with transformers' defaults.

use crate::{Result, TokenizerError};
use serde_json::{Map, Value, json};

/// Roles, their keys in tokenizer_config.json, and BERT's names for them.
const ROLES: [(&str, &str); 5] = [
    ("pad_token", "[PAD]"),
    ("unk_token", "[UNK]"),
    ("cls_token", "[CLS]"),
    ("sep_token", "[SEP]"),
    ("mask_token", "[MASK]"),
];

/// Whether a folder's vocab.txt is of this kind: other models have files of that name with other rules.
pub(crate) fn is_bert(tokenizer_config: &Value, config: &Value) -> bool {
    match tokenizer_config["tokenizer_class"].as_str() {
        Some(class) => ["BertTokenizer", "BertTokenizerFast"].contains(&class),
        None => config["model_type"] == "bert",
    }
}

/// The tokenizer.json that means the same.
pub(crate) fn to_json(lines: &str, config: &Value) -> Result<Vec<u8>> {
    let mut vocab = Map::new();
    for (id, token) in lines.lines().enumerate() {
        if let Some(other) = vocab.insert(token.to_owned(), id.into()) {
            let why = format!("vocab.txt has {token:?} for the ids {other} and {id}");
            return Err(TokenizerError::Vocabulary(why));
        }
    }
    let name = |(key, usual): (&str, &str)| {
        let own = &config[key];
        own.as_str().or(own["content"].as_str()).unwrap_or(usual).to_owned()
    };
    let [_, unk, cls, sep, _] = ROLES.map(name);
    let id = |token: &str| {
        let missing = || TokenizerError::Vocabulary(format!("vocab.txt has no {token}"));
        vocab.get(token).cloned().ok_or_else(missing)
    };
    let (cls, sep) = (json!([cls, id(&cls)?]), json!([sep, id(&sep)?]));
    let added: Vec<Value> = ROLES
        .map(name)
        .iter()
        .filter_map(|token| {
            Some(json!({"id": vocab.get(token)?, "content": token, "special": true, "normalized": false}))
        })
        .collect();
    let flag = |key: &str| config[key].as_bool().unwrap_or(true);
    let file = json!({
        "added_tokens": added,
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": flag("tokenize_chinese_chars"),
            "strip_accents": config["strip_accents"], "lowercase": flag("do_lower_case"),
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "cls": cls, "sep": sep},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {
            "type": "WordPiece", "unk_token": unk, "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocab,
        },
    });
    serde_json::to_vec(&file).map_err(|e| TokenizerError::json("vocab.txt", e))
}
