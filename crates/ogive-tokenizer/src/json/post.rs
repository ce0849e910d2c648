//! The `post_processor` section: what is put before and after a text, and how two texts are one.
//!
//! A template for two that is not understood is an error only of whoever asks for pairs: most vocabularies have one, and few models take any.

use super::damaged;
use crate::pair::{Pair, Part};
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

/// How two texts are one, as far as it is known.
pub(super) fn pair(json: &Value) -> Option<Pair> {
    let kind = |json: &Value| match &json["type_id"] {
        Value::Null => Some(0),
        kind => u32::try_from(kind.as_u64()?).ok(),
    };
    // It adds nothing, and by itself leaves two texts one after the other.
    let adds = |json: &&Value| json["type"] != "ByteLevel";
    match json["type"].as_str()? {
        "ByteLevel" => Some(Pair::new(&[], &[], &[], [0, 1])),
        "Sequence" => {
            let all = json["processors"].as_array()?;
            match all.iter().any(|json| adds(&json)) {
                true => all.iter().filter(adds).find_map(pair),
                false => all.first().and_then(pair),
            }
        }
        "TemplateProcessing" => {
            let part = |piece: &Value| {
                let text = &piece["Sequence"];
                match text["id"].as_str() {
                    Some("A") => return Some((Part::First, kind(text)?)),
                    Some("B") => return Some((Part::Second, kind(text)?)),
                    Some(_) => return None,
                    None => {}
                }
                let token = &piece["SpecialToken"];
                let ids = json["special_tokens"][token["id"].as_str()?]["ids"].as_array()?;
                Some((Part::Tokens(ids.iter().map(|v| id(v).ok()).collect::<Option<_>>()?), kind(token)?))
            };
            let parts: Vec<_> = json["pair"].as_array()?.iter().map(part).collect::<Option<_>>()?;
            let times = |text: Part| parts.iter().filter(|(part, _)| *part == text).count();
            (times(Part::First) == 1 && times(Part::Second) == 1).then_some(Pair(parts))
        }
        known @ ("BertProcessing" | "RobertaProcessing") => {
            let (before, after) = (id(&json["cls"][1]).ok()?, id(&json["sep"][1]).ok()?);
            Some(match known {
                "BertProcessing" => Pair::new(&[before], &[after], &[after], [0, 1]),
                _ => Pair::new(&[before], &[after; 2], &[after], [0, 0]),
            })
        }
        _ => None,
    }
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
        let of = |json: &Value| pair(json).map(|pair| pair.of(&[7, 8], &[9]));
        for (kind, ids, types) in [
            ("BertProcessing", vec![1, 7, 8, 2, 9, 2], [0, 0, 0, 0, 1, 1].to_vec()),
            ("RobertaProcessing", vec![1, 7, 8, 2, 2, 9, 2], vec![0; 7]),
        ] {
            let json = json!({"type": kind, "sep": ["</s>", 2], "cls": ["<s>", 1]});
            assert_eq!(of(&json), Some((ids, types)));
            assert_eq!(of(&json!({"type": kind, "sep": ["</s>", "2"], "cls": ["<s>", 1]})), None);
        }
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": false});
        let alone = json!({"type": "Sequence", "processors": [bytes]});
        assert_eq!([of(&bytes), of(&alone)], [(); 2].map(|()| Some((vec![7, 8, 9], vec![0, 0, 1]))));
        let text = |name: &str, kind| json!({"Sequence": {"id": name, "type_id": kind}});
        let mut two = template.clone();
        two["pair"] = json!([text("B", 3), {"SpecialToken": {"id": "</s>", "type_id": 1}}, text("A", 0)]);
        let sequence = json!({"type": "Sequence", "processors": [{"type": "ByteLevel"}, two]});
        assert_eq!(of(&sequence), Some((vec![9, 2, 3, 7, 8], vec![3, 1, 1, 0, 0])));
        for parts in
            [json!([text("A", 0)]), json!([text("A", 0), text("C", 0)]), json!(3), json!([text("A", -1)])]
        {
            two["pair"] = parts;
            assert_eq!(of(&two), None, "{two}");
            assert_eq!(of(&json!({"type": "Sequence", "processors": [bytes, two]})), None);
        }
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
