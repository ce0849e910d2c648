//! Random logits under a schema: whatever comes must be JSON that the schema holds for. The model is as bad as can be.
#![allow(clippy::unwrap_used)]

use ogive_grammar::{Grammar, Token, Vocabulary};
use ogive_sampler::{Chain, Rng, SamplerParams};
use serde_json::Value;

/// Bits of JSON and of what is in it, so that an answer ends by chance.
const TOKENS: [&str; 51] = [
    "{", "}", "[", "]", "\"", ":", ",", "\":", "\",", "\"}", "{\"", "\": \"", "\"]", "},", " ", "\n", "\n\n",
    "\t", "  ", "a", "b", "name", "age", "tags", "x", "next", "kind", "é", "日", "\\", "\\n", "\\u00", "0",
    "1", "2", "17", "-", ".", "e", "E+", "true", "false", "null", "tr", "circle", "square", "T", "://",
    "2026", "-01", "Z",
];
const END: u32 = TOKENS.len() as u32;
/// After the end come all bytes, as real vocabularies have them, so unlikely that they come where nothing else can.
const SIZE: usize = TOKENS.len() + 1 + 256;

const SCHEMAS: [&str; 9] = [
    r#"{"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "é"]}, "minItems": 1, "maxItems": 3}}, "required": ["name", "age"], "additionalProperties": false}"#,
    r#"{"anyOf": [{"type": "object", "properties": {"kind": {"const": "circle"}, "x": {"type": "number"}}, "required": ["kind", "x"], "additionalProperties": false},
        {"type": "object", "properties": {"kind": {"const": "square"}, "a": {"type": "boolean"}}, "required": ["kind", "a"], "additionalProperties": false}]}"#,
    r##"{"$defs": {"node": {"type": "object", "properties": {"x": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
        "required": ["x", "next"], "additionalProperties": false}}, "$ref": "#/$defs/node"}"##,
    r#"{"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string", "minLength": 2, "maxLength": 4}], "items": {"type": "null"}, "minItems": 2, "maxItems": 4}"#,
    r#"{"enum": ["a", 17, null, {"x": [1, 2]}, true]}"#,
    r#"{"type": ["integer", "null"], "exclusiveMinimum": -3, "maximum": 12}"#,
    r#"{"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 3}"#,
    r#"{"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "string", "maxLength": 3}, "a": {"maximum": 2}}, "required": ["b"]}]}"#,
    r#"{"type": "object", "properties": {"x": {"type": "number", "minimum": 0.5, "maximum": 2}}, "required": ["x"]}"#,
];

/// What JSON Schema says of a value, for the keywords above.
fn holds(schema: &Value, value: &Value, root: &Value) -> bool {
    let Value::Object(schema) = schema else { return schema == &Value::Bool(true) };
    let each = |key: &str| schema.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is = |kind: &Value| match kind.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        _ => value.as_f64().is_some_and(|n| n.fract() == 0.0),
    };
    let within = |low: &str, high: &str, n: f64| {
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
        bound(low).is_none_or(|b| n >= b) && bound(high).is_none_or(|b| n <= b)
    };
    let kinds = schema.get("type").map(|kind| kind.as_array().cloned().unwrap_or(vec![kind.clone()]));
    kinds.is_none_or(|kinds| kinds.iter().any(is))
        && schema.get("const").is_none_or(|c| c == value)
        && schema.get("enum").is_none_or(|all| all.as_array().unwrap().contains(value))
        && schema
            .get("$ref")
            .is_none_or(|to| holds(root.pointer(&to.as_str().unwrap()[1..]).unwrap(), value, root))
        && each("allOf").iter().all(|s| holds(s, value, root))
        && (!schema.contains_key("anyOf") || each("anyOf").iter().any(|s| holds(s, value, root)))
        && value.as_f64().is_none_or(|n| {
            within("minimum", "maximum", n)
                && schema.get("exclusiveMinimum").and_then(Value::as_f64).is_none_or(|b| n > b)
        })
        && value.as_str().is_none_or(|s| within("minLength", "maxLength", s.chars().count() as f64))
        && value.as_array().is_none_or(|list| {
            let first = each("prefixItems");
            within("minItems", "maxItems", list.len() as f64)
                && first.iter().zip(list).all(|(s, v)| holds(s, v, root))
                && schema
                    .get("items")
                    .is_none_or(|s| list.iter().skip(first.len()).all(|v| holds(s, v, root)))
        })
        && value.as_object().is_none_or(|map| {
            let named = schema.get("properties").and_then(Value::as_object);
            within("minProperties", "maxProperties", map.len() as f64)
                && each("required").iter().all(|name| map.contains_key(name.as_str().unwrap()))
                && map.iter().all(|(name, value)| match named.and_then(|n| n.get(name)) {
                    Some(schema) => holds(schema, value, root),
                    None => schema.get("additionalProperties").is_none_or(|s| holds(s, value, root)),
                })
        })
}

fn vocabulary() -> Vocabulary {
    let bytes: Vec<[u8; 1]> = (0..=255).map(|b| [b]).collect();
    let tokens = TOKENS.iter().map(|t| Token::Text(t.as_bytes())).chain([Token::Special(b"</s>")]);
    Vocabulary::new(tokens.chain(bytes.iter().map(|b| Token::Text(b))), &[END]).unwrap()
}

fn logits(rng: &mut Rng) -> Vec<f32> {
    (0..SIZE).map(|id| rng.below(1000) as f32 / 100.0 - if id > TOKENS.len() { 40.0 } else { 0.0 }).collect()
}

/// An answer of random logits and whether it came to its end.
fn answer(chain: &mut Chain, rng: &mut Rng, most: usize) -> (Vec<u8>, bool) {
    let (mut history, mut text) = (vec![0, 1, 2], Vec::new());
    for _ in 0..most {
        let token = chain.sample(&logits(rng), &history).unwrap();
        history.push(token);
        match (TOKENS.get(token as usize), token) {
            (Some(token), _) => text.extend(token.bytes()),
            (None, END) => return (text, true),
            (None, token) => text.extend(u8::try_from(token - END - 1)),
        }
    }
    (text, false)
}

#[test]
fn whatever_comes_to_its_end_is_valid() {
    let vocabulary = vocabulary();
    let mut rng = Rng::new(7);
    for schema in SCHEMAS {
        let root: Value = serde_json::from_str(schema).unwrap();
        let constraint = Grammar::json_schema(schema).unwrap().compile(&vocabulary).unwrap();
        let mut whole = 0;
        for seed in 0..60 {
            let params = SamplerParams { seed, ..SamplerParams::default() };
            let mut chain = params.build().unwrap().first(constraint.clone());
            let (text, ended) = answer(&mut chain, &mut rng, 400);
            if ended {
                whole += 1;
                let value = serde_json::from_slice(&text);
                // JSON sets numbers no bound, and serde_json does.
                if value.as_ref().is_err_and(|e: &serde_json::Error| e.to_string().contains("out of range")) {
                    continue;
                }
                let value: Value =
                    value.unwrap_or_else(|e| panic!("{}: {e}", String::from_utf8_lossy(&text)));
                assert!(holds(&root, &value, &root), "{schema}: {value}");
            }
        }
        assert!(whole >= 20, "{schema}: only {whole} of 60 came to an end");
    }
}

/// The mask that the chain loads candidates by, against the stage that drops them from a list of all.
#[test]
fn masking_first_is_what_the_stage_says() {
    let vocabulary = vocabulary();
    let mut rng = Rng::new(11);
    let params =
        SamplerParams { top_k: 5, typical_p: 0.9, dynatemp_range: 0.4, seed: 3, ..SamplerParams::default() };
    for schema in SCHEMAS {
        let constraint = Grammar::json_schema(schema).unwrap().compile(&vocabulary).unwrap();
        let mut chain = params.build().unwrap().first(constraint);
        let mut slow = chain.clone();
        let mut history = Vec::new();
        for _ in 0..60 {
            let logits = logits(&mut rng);
            let list =
                (0..).zip(&logits).map(|(id, &logit)| ogive_sampler::Candidate { id, logit }).collect();
            let expected = slow.sample_candidates(list, &history).unwrap();
            assert_eq!(chain.sample(&logits, &history).unwrap(), expected, "{schema}: {history:?}");
            history.push(expected);
        }
    }
}
