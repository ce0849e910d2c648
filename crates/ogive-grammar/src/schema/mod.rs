//! JSON Schema: read and checked here, compiled by llguidance.
//!
//! llguidance passes over keywords that its draft does not know, since JSON Schema says so. Here a keyword that is not enforced is
//! an error: whoever wrote `requierd` or `uniqueItems` wants to hear of it, and not of the output that breaks it. Annotations,
//! and keywords that begin with `x-`, enforce nothing and are let be.

mod ends;
mod exclusive;
mod factor;
mod format;
mod keywords;
mod pattern;
mod references;
mod rewrite;
mod spelling;
mod together;
mod values;

use crate::error::{GrammarError, at_most};
use keywords::Checker;
use serde_json::{Map, Value, json};
pub(crate) use together::check;

/// Bytes of a schema.
const MAX_BYTES: usize = 4 << 20;
/// Schemas in schemas, for all that references lead to added up, by each of its names: how far down llguidance's recursion can come.
pub(crate) const MAX_DEPTH: usize = 4_000;
/// White space between the parts of a text, as llama.cpp has it: one space, or up to two line ends and an indent. Without a
/// bound, a model that is at a loss writes spaces for ever.
const SPACE: &str = " |\\n{1,2}[ \\t]{0,20}";

/// Reads a schema, checks what can be checked without compiling it, and writes it as llguidance is to have it.
pub(crate) fn parse(text: &str) -> Result<Value, GrammarError> {
    at_most("its length in bytes", text.len(), MAX_BYTES)?;
    // As editors on Windows begin a file.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let schema: Value = serde_json::from_str(text).map_err(|e| GrammarError::Json { why: e.to_string() })?;
    if schema == Value::Bool(false) {
        return Err(GrammarError::Unsatisfiable { why: "the schema is false".into() });
    }
    let mut checker = Checker::new(&schema);
    checker.run()?;
    let escapes = checker.escapes()?;
    let (targets, schemas) = checker.found();
    if !ends::can_end(&schema, &targets) {
        let why = "it needs itself inside itself without an end; make what refers back optional";
        return Err(GrammarError::Unsatisfiable { why: why.into() });
    }
    let mut new = match rewrite::rewritten(&schema, &targets, &schemas) {
        Value::Object(new) => new,
        _ => Map::new(),
    };
    let options = json!({ "whitespace_pattern": SPACE, "json_allowed_escapes": escapes });
    new.insert("x-guidance".into(), options);
    Ok(new.into())
}

/// llguidance's refusal in our words. It does not tell where in the schema.
pub(crate) fn refused(text: &str) -> GrammarError {
    if let Some(why) = text.strip_prefix("Unsatisfiable schema: ") {
        // llguidance compiles definitions after what refers to them, and does not ask whether that can do without.
        if let Some((why, at)) = why.rsplit_once("\n  while processing ") {
            let why = format!(
                "the definition at {at} can never hold ({}); leave out what refers to it",
                contradiction(why)
            );
            return GrammarError::Refused { why };
        }
        return GrammarError::Unsatisfiable { why: contradiction(why) };
    }
    let why = if text.starts_with("oneOf constraints are not supported") {
        "the alternatives of a oneOf can hold at once, or cannot be shown not to; use anyOf".into()
    } else if let Some(name) = text.strip_prefix("Unknown format: ") {
        format!("the format {name:?} is not supported; use a pattern, or leave it out")
    } else if let Some(why) = text.strip_prefix("regex parse error:") {
        // The expression with a mark below it, then what is wrong.
        let why = why.rsplit_once("error: ").map_or(why, |(_, why)| why);
        format!("a pattern is no regular expression: {why}")
    } else {
        text.replace('\n', ";")
    };
    GrammarError::Refused { why }
}

/// A contradiction in the schema's own keywords: llguidance takes an enum for an anyOf, and a number for its own bounds.
fn contradiction(why: &str) -> String {
    if why == "anyOf is empty" {
        return "an enum or an anyOf is empty; list what it allows".into();
    }
    let why = why.replace('\n', ";");
    if why.starts_with("minimum (") && why.contains(" maximum (") {
        return format!("{why}; a number in a const or an enum counts as both");
    }
    if why.starts_with("Regex is empty") {
        return "no string is all that its const, enum, pattern, format and lengths ask for".into();
    }
    why
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(schema: &str) -> String {
        parse(schema).map(drop).unwrap_err().to_string()
    }

    #[test]
    fn what_is_not_enforced_is_named() {
        for (schema, said) in [
            (r#"{"requierd": []}"#, "\"requierd\" at # is not supported, but \"required\" is; leave it out"),
            (
                r#"{"properties": {"a/b": {"not": {}}}}"#,
                "\"not\" at #/properties/a~1b is not supported; leave it out",
            ),
            (r#"{"items": {"uniqueItems": true}}"#, "\"uniqueItems\" at #/items"),
            (r#"{"anyOf": [{}, {"if": {}}]}"#, "\"if\" at #/anyOf/1"),
            (r#"{"$defs": {"x": {"contains": {}}}}"#, "\"contains\" at #/$defs/x"),
            (r#"{"$ref": "https://example.com/x.json"}"#, "only references within the schema"),
            (r##"{"$ref": "#/$defs/nothing"}"##, "leads nowhere"),
            (r#"{"prefixItems": [], "additionalItems": {}}"#, "prefixItems and additionalItems"),
            (
                r#"{"items": {"minItems": -1}}"#,
                "minItems must be a whole number of 0 or more, not -1, at #/items",
            ),
            (r#"{"maxItems": 2.5}"#, "maxItems must be a whole number of 0 or more, not 2.5"),
            (r#"{"minLength": 1e300}"#, "minLength must be a whole number"),
            (r#"{"maxProperties": null}"#, "maxProperties must be a whole number, not null"),
            (r#"{"minItems": 9007199254740993}"#, "9007199254740993 is too large"),
            (r#"{"maxLength": 4294967296}"#, "maxLength must be at most 4294967295, not 4294967296"),
            (r#"{"minimum": "0"}"#, "minimum must be a number, not a string"),
            (r#"{"exclusiveMaximum": []}"#, "exclusiveMaximum must be a number, not an array"),
            (r#"{"multipleOf": 0}"#, "multipleOf must be a number above 0, not 0"),
            (r#"{"multipleOf": true}"#, "multipleOf must be a number, not true"),
            (r#"{"enum": {"a": 1}}"#, "enum must be an array, not an object"),
            (r#"{"required": true}"#, "required must be an array of strings, not true"),
            (r#"{"required": ["a", 1]}"#, "required must name properties, not 1"),
            (r#"{"pattern": ["a"]}"#, "pattern must be a string, not an array"),
            (r#"{"format": {}}"#, "format must be a string, not an object"),
            (r#"{"const": 9007199254740993}"#, "9007199254740993 is too large"),
            (
                r#"{"items": {"type": "strin"}}"#,
                "\"strin\" is no type; there are null, boolean, integer, number, string, array, object, at #/items",
            ),
            (r#"{"type": ["string", {}]}"#, "{} is no type"),
            (r#"{"properties": 3}"#, "properties must be an object"),
            (r#"{"type": "object", "#, "reading a JSON schema: EOF"),
            (r#""string""#, "a schema must be an object, true or false"),
            ("false", "the schema is false"),
        ] {
            let e = error(schema);
            assert!(e.contains(said), "{schema}: {e}");
        }
        for fine in [
            "true",
            "{}",
            r#"{"title": "T", "description": "D", "deprecated": true, "x-mine": 1, "uniqueItems": false, "default": {"not": 1}}"#,
            r#"{"properties": {"not": {"type": "string"}, "if": true}, "enum": [{"not": 1}]}"#,
            r#"{"minItems": 2.0, "maxLength": 4294967295, "exclusiveMinimum": true, "minimum": -1e3, "required": []}"#,
        ] {
            parse(fine).unwrap_or_else(|e| panic!("{fine}: {e}"));
        }
        parse("\u{feff}{}").expect("a byte order mark is no part of it");
        assert!(error("\u{feff}\u{feff}{}").contains("reading a JSON schema"));
    }

    #[test]
    fn endless_schemas_are_refused_and_others_recurse() {
        for endless in [
            r##"{"$ref": "#"}"##,
            r##"{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}"##,
            r##"{"type": ["object"], "properties": {"a": {"$ref": "#"}}, "required": ["a"], "additionalProperties": false}"##,
            r##"{"type": "object", "properties": {"a": {"$ref": "#"}}, "additionalProperties": false, "minProperties": 1}"##,
            r##"{"type": "object", "required": ["a"], "additionalProperties": {"$ref": "#"}}"##,
            r##"{"type": "object", "required": ["a"], "patternProperties": {"b": {"$ref": "#"}}, "additionalProperties": false}"##,
            r##"{"type": "object", "minProperties": 1, "additionalProperties": {"$ref": "#"}}"##,
            r##"{"$defs": {"x": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/y"}}, "y": {"allOf": [{"$ref": "#/$defs/x"}]}}, "$ref": "#/$defs/x"}"##,
        ] {
            assert!(error(endless).contains("without an end"), "{endless}");
        }
        for good in [
            r##"{"type": "object", "properties": {"a": {"$ref": "#"}}}"##,
            r##"{"properties": {"a": {"$ref": "#"}}, "required": ["a"]}"##,
            r##"{"type": "array", "items": {"$ref": "#"}}"##,
            r##"{"type": ["object", "null"], "properties": {"a": {"$ref": "#"}}, "required": ["a"]}"##,
            r##"{"type": "object", "properties": {"a": {"$ref": "#"}, "b": {}}, "additionalProperties": false, "minProperties": 1}"##,
            r##"{"type": "object", "required": ["a"], "patternProperties": {"b": {"$ref": "#"}, "a": {}}, "additionalProperties": false}"##,
            r##"{"type": "object", "required": ["a"], "properties": {"a": {}}, "additionalProperties": {"$ref": "#"}}"##,
            r##"{"type": "object", "minProperties": 1, "properties": {"a": {"$ref": "#"}}}"##,
            r##"{"anyOf": [{"type": "null"}, {"type": "array", "minItems": 2, "items": {"$ref": "#"}}]}"##,
        ] {
            parse(good).unwrap_or_else(|e| panic!("{good}: {e}"));
        }
    }

    #[test]
    fn depth_is_bounded() {
        let deep = format!("{}true{}", "{\"items\":".repeat(5000), "}".repeat(5000));
        assert!(error(&deep).contains("recursion limit"));
        let chain: Vec<String> =
            (0..5000).map(|i| format!(r##""d{i}": {{"$ref": "#/$defs/d{}"}}"##, i + 1)).collect();
        let chain = format!(r##"{{"$ref": "#/$defs/d0", "$defs": {{{}, "d5000": true}}}}"##, chain.join(","));
        assert!(error(&chain).contains("its depth"));
    }

    #[test]
    fn patterns_are_weighed() {
        let many = r"(?i)\\pL".repeat(4_000);
        for heavy in [
            format!(r#"{{"items": {{"pattern": "{many}"}}}}"#),
            format!(r#"{{"patternProperties": {{"{many}": true}}}}"#),
            format!(
                r#"{{"anyOf": [{}]}}"#,
                vec![format!(r#"{{"pattern": "{}"}}"#, &many[..900]); 100].join(",")
            ),
        ] {
            let e = error(&heavy);
            assert!(e.contains("its patterns come to about") && e.contains(", at #/"), "{e}");
        }
        // To llguidance these are letters and digits of ASCII.
        parse(&format!(r#"{{"pattern": "{}"}}"#, r"\\w\\d".repeat(10_000))).unwrap();
    }

    /// Each of its names is a name of the whole list, which is not walked and measured again for each.
    #[test]
    fn what_has_many_names_is_walked_once() {
        let names = |n: usize, more: &str| {
            let spelled =
                |i: usize| format!("{}{}", if i.is_multiple_of(2) { "" } else { "+" }, "0".repeat(i / 2 + 1));
            let refs: Vec<_> = (0..n).map(|i| format!(r##"{{"$ref": "#/anyOf/{}"}}"##, spelled(i))).collect();
            format!(
                r#"{{"anyOf": [{{"allOf": [{}]}}], "prefixItems": [{}]{more}}}"#,
                vec!["{}"; 200_000].join(","),
                refs.join(",")
            )
        };
        parse(&names(1_000, "")).unwrap();
        // Seen before all is walked: what is unknown stands last.
        assert!(error(&names(1_600, r#", "unknown": 1"#)).contains("its depth"));
    }

    /// Facts about what can end go to what waits for them, in whatever order the names are.
    #[test]
    fn long_lists_of_references_are_asked_once() {
        let n = 980;
        let defs: Vec<String> = (0..n)
            .map(|i| {
                format!(
                    r##""{i:04}": {{"allOf": [{}{{"$ref": "#/$defs/{:04}"}}]}}"##,
                    "{},".repeat(500),
                    i + 1
                )
            })
            .collect();
        let schema = |last: &str| {
            format!(r##"{{"$ref": "#/$defs/0000", "$defs": {{{}, "{n:04}": {last}}}}}"##, defs.join(","))
        };
        parse(&schema("{}")).unwrap();
        assert!(error(&schema(r##"{"$ref": "#/$defs/0600"}"##)).contains("without an end"));
    }
}
