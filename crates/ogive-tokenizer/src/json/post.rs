//! The `post_processor` section: what is put before and after a text.
//!
//! Only single texts are read; templates for pairs serve models that compare two, which none here does.

use super::damaged;
use crate::{Result, TokenizerError};
use serde_json::Value;

fn id(json: &Value) -> Result<u32> {
    let id = json.as_u64().and_then(|id| u32::try_from(id).ok());
    id.ok_or_else(|| damaged(format!("the post_processor has {json} where an id belongs")))
}

/// The ids before and after a text.
pub(super) fn parse(json: &Value) -> Result<(Vec<u32>, Vec<u32>)> {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    match json["type"].as_str() {
        None if json.is_null() => {}
        Some("ByteLevel") => {}
        Some("Sequence") => {
            for step in json["processors"].as_array().into_iter().flatten() {
                let (outer, end) = parse(step)?;
                before.splice(0..0, outer);
                after.extend(end);
            }
        }
        Some("TemplateProcessing") => {
            let mut at_text = false;
            for piece in json["single"].as_array().into_iter().flatten() {
                if !piece["Sequence"].is_null() {
                    at_text = true;
                    continue;
                }
                let name = piece["SpecialToken"]["id"].as_str().unwrap_or_default();
                let ids = json["special_tokens"][name]["ids"].as_array();
                let ids = ids.ok_or_else(|| {
                    damaged(format!("the post_processor adds {name:?} and does not say what that is"))
                })?;
                let side = if at_text { &mut after } else { &mut before };
                for value in ids {
                    side.push(id(value)?);
                }
            }
        }
        Some("BertProcessing" | "RobertaProcessing") => {
            before.push(id(&json["cls"][1])?);
            after.push(id(&json["sep"][1])?);
        }
        other => {
            let known = "Sequence, ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing";
            return Err(TokenizerError::unsupported("post_processor", other.unwrap_or_default(), known));
        }
    }
    Ok((before, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_what_goes_around_a_text() {
        let template = json!({"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [2, 3], "tokens": ["a", "b"]}}});
        assert_eq!(parse(&template).unwrap(), (vec![1], vec![2, 3]));
        let sequence = json!({"type": "Sequence", "processors": [{"type": "ByteLevel"}, template]});
        assert_eq!(parse(&sequence).unwrap(), (vec![1], vec![2, 3]));
        assert_eq!(
            parse(&json!({"type": "BertProcessing", "sep": ["[SEP]", 102], "cls": ["[CLS]", 101]})).unwrap(),
            (vec![101], vec![102])
        );
        assert_eq!(parse(&Value::Null).unwrap(), (vec![], vec![]));
        for bad in [
            json!({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<x>"}}], "special_tokens": {}}),
            json!({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}], "special_tokens": {"x": {"ids": [-1]}}}),
            json!({"type": "Magic"}),
            json!([]),
        ] {
            assert!(parse(&bad).unwrap_err().to_string().contains("post_processor"), "{bad}");
        }
    }
}
