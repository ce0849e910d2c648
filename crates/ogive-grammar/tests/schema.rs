//! Schemas, and which texts they let through: what llguidance would do otherwise than JSON Schema has it.
#![allow(clippy::unwrap_used)]

mod common;

use common::{bytes, takes};
use ogive_grammar::{Grammar, Vocabulary};

/// Whether a schema takes just the first of these texts.
#[track_caller]
fn holds<S: AsRef<str>>(vocabulary: &Vocabulary, schema: &str, yes: &[S], no: &[S]) {
    let constraint = Grammar::json_schema(schema).and_then(|grammar| grammar.compile(vocabulary));
    let constraint = constraint.unwrap_or_else(|e| panic!("{schema}: {e}"));
    for (texts, expected) in [(yes, true), (no, false)] {
        for text in texts.iter().map(AsRef::as_ref) {
            let ids: Vec<u32> = text.bytes().map(u32::from).collect();
            assert_eq!(takes(&constraint, &ids), expected, "{schema}: {text}");
        }
    }
}

#[track_caller]
fn refused(schema: &str, said: &str) {
    let e = Grammar::json_schema(schema).and_then(|grammar| grammar.check()).unwrap_err().to_string();
    assert!(e.contains(said) && !e.contains('\n'), "{schema}: {e}");
}

/// Texts as JSON has them.
fn quoted(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| serde_json::json!(text).to_string()).collect()
}

#[test]
fn a_name_is_spelled_in_one_way() {
    let all = bytes();
    let a = r#"{"type": "object", "properties": {"a": {"type": "integer"}}}"#;
    holds(&all, a, &[r#"{"a":1}"#, r#"{"b":"x","\"":1}"#], &[r#"{"\u0061":"x"}"#, r#"{"a":1,"\u0061":"x"}"#]);
    let required =
        r#"{"type": "object", "properties": {"größe": {"type": "integer"}}, "required": ["größe"]}"#;
    holds(&all, required, &[r#"{"größe":1}"#], &[r#"{"größe":1,"gr\u00f6\u00dfe":"x"}"#]);
    let never = r#"{"type": "object", "properties": {"a": false}}"#;
    holds(&all, never, &["{}"], &[r#"{"\u0061":1}"#]);
    let pattern = r#"{"type": "object", "patternProperties": {"^x": {"type": "integer"}}}"#;
    holds(&all, pattern, &[r#"{"x":1,"y":"s"}"#], &[r#"{"x":"s"}"#, r#"{"\u0078":"s"}"#]);
    let rest = r#"{"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}}"#;
    holds(&all, rest, &[r#"{"a":1,"b":"x"}"#], &[r#"{"\u0061":"x"}"#]);
    let line = r#"{"type": "object", "properties": {"a\nb": {"type": "integer"}}}"#;
    holds(&all, line, &[r#"{"a\nb":1}"#], &[r#"{"a\u000ab":"x"}"#, r#"{"a\u000Ab":"x"}"#]);
}

#[test]
fn control_characters_have_a_spelling_where_names_cannot_be_doubled() {
    let all = bytes();
    holds(&all, r#"{"const": "a\u0001"}"#, &[r#""a\u0001""#], &[r#""a""#]);
    holds(&all, r#"{"type": "string", "pattern": "^a\\x01b$"}"#, &[r#""a\u0001b""#], &[r#""ab""#]);
    let closed =
        r#"{"type": "object", "properties": {"a": {"enum": ["\u007f"]}}, "additionalProperties": false}"#;
    holds(&all, closed, &[r#"{"a":"\u007f"}"#], &[r#"{"\u0061":"\u007f"}"#, r#"{"a":""}"#]);
    holds(&all, r#"{"type": "string", "pattern": "^[^a]$"}"#, &[r#""b""#, r#""\n""#], &[r#""a""#]);
    for asks in [
        r#""const": "a\u0001""#,
        r#""enum": [{"x": ["\u001f"]}]"#,
        r#""pattern": "^a\\x01b$""#,
        r#""pattern": "^([\\x00-\\x07]|a)$""#,
    ] {
        for open in [
            r#""properties": {"a": {}}"#,
            r#""required": ["a"], "additionalProperties": {"type": "null"}"#,
            r#""patternProperties": {"^x": {}}, "additionalProperties": false"#,
        ] {
            let schema = format!(r#"{{"items": {{{asks}}}, "anyOf": [{{{open}}}]}}"#);
            refused(&schema, "leave the character out, or give every object with properties");
        }
    }
    holds(
        &all,
        r#"{"type": "object", "required": ["a"], "properties": {"a": {"const": "\t\n"}}}"#,
        &[r#"{"a":"\t\n"}"#],
        &[r#"{"a":"\u0009\n"}"#],
    );
}

/// A name that is not listed may come twice, and is one property then.
#[test]
fn properties_that_are_not_listed_are_not_counted() {
    for schema in [
        r#"{"type": "object", "minProperties": 2}"#,
        r#"{"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}}"#,
        r#"{"type": "object", "minProperties": 3, "properties": {"a": {}}, "required": ["a"]}"#,
        r#"{"type": "object", "minProperties": 2, "patternProperties": {"^x": {}}, "additionalProperties": false}"#,
        r#"{"allOf": [{"type": "object", "additionalProperties": {"type": "null"}}, {"minProperties": 2}]}"#,
    ] {
        refused(schema, "require all but one, or leave minProperties out");
    }
    let all = bytes();
    holds(&all, r#"{"type": "object", "minProperties": 1}"#, &[r#"{"a":1}"#], &["{}"]);
    let two = r#"{"type": "object", "minProperties": 2, "required": ["a"]}"#;
    holds(&all, two, &[r#"{"a":1,"b":1}"#], &[r#"{"a":1}"#, r#"{"a":1,"a":1}"#, r#"{"a":1,"\u0061":1}"#]);
    holds(&all, r#"{"const": {"a": 1, "b": 2}, "minProperties": 2}"#, &[r#"{"a":1,"b":2}"#], &[]);
    let closed = r#"{"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"], "minProperties": 2,
        "additionalProperties": false}"#;
    holds(&all, closed, &[r#"{"a":1,"b":1}"#], &[r#"{"a":1}"#]);
}

/// All orders of some keywords.
fn orders(keywords: &[&str]) -> Vec<String> {
    let mut all = Vec::new();
    for (i, first) in keywords.iter().enumerate() {
        let rest: Vec<&str> = keywords.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, k)| *k).collect();
        match orders(&rest)[..] {
            [] => all.push((*first).to_owned()),
            ref rests => all.extend(rests.iter().map(|rest| format!("{first}, {rest}"))),
        }
    }
    all
}

#[test]
fn keywords_mean_the_same_in_every_order() {
    let all = bytes();
    for (keywords, yes, no) in [
        (
            &[
                r#""type": "array""#,
                r#""items": [{"type": "integer"}]"#,
                r#""additionalItems": false"#,
                r#""anyOf": [{"minItems": 1}]"#,
            ][..],
            &["[1]"][..],
            &["[1,2]", "[]"][..],
        ),
        (
            &[
                r#""type": "array""#,
                r#""prefixItems": [{"type": "integer"}]"#,
                r#""items": false"#,
                r#""allOf": [{"minItems": 1}]"#,
            ],
            &["[1]"],
            &["[1,2]", "[]"],
        ),
        (
            &[
                r#""type": "integer""#,
                r#""minimum": 3"#,
                r#""exclusiveMinimum": true"#,
                r#""anyOf": [{"maximum": 9}]"#,
            ],
            &["4", "9"],
            &["3", "10"],
        ),
        (
            &[
                r#""type": "integer""#,
                r#""maximum": 3"#,
                r#""exclusiveMaximum": true"#,
                r##""$ref": "#/$defs/a""##,
            ],
            &["2"],
            &["3", "0"],
        ),
        (
            &[
                r#""type": "object""#,
                r#""patternProperties": {"^x": {"type": "integer"}}"#,
                r#""additionalProperties": false"#,
                r#""anyOf": [{"required": ["x1"]}, {"required": ["y"]}]"#,
                r#""properties": {"y": {"type": "null"}}"#,
            ],
            &[r#"{"x1":1}"#, r#"{"y":null,"x":1}"#],
            &["{}", r#"{"x":1}"#, r#"{"x1":null}"#, r#"{"y":null,"z":1}"#],
        ),
    ] {
        for ordered in orders(keywords) {
            holds(&all, &format!(r#"{{{ordered}, "$defs": {{"a": {{"minimum": 1}}}}}}"#), yes, no);
        }
    }
}

#[test]
fn alternatives_that_exclude_each_other_are_any_of_them() {
    let all = bytes();
    let cat = r#""c": {"type": "object", "properties": {"kind": {"const": "cat"}, "n": {"type": "integer"}}, "required": ["kind"]}"#;
    let dog = r##""d": {"type": "object", "properties": {"kind": {"$ref": "#/$defs/k"}}, "required": ["kind"]}, "k": {"enum": ["dog", "wolf"]}"##;
    let refs = format!(
        r##"{{"oneOf": [{{"$ref": "#/$defs/c"}}, {{"$ref": "#/$defs/d"}}, {{"type": "null"}}], "$defs": {{{cat}, {dog}}}}}"##
    );
    holds(
        &all,
        &refs,
        &[r#"{"kind":"cat","n":1}"#, r#"{"kind":"wolf"}"#, "null"],
        &[r#"{"kind":"cow"}"#, "{}"],
    );
    holds(&all, r#"{"oneOf": [{"const": 1}, {"const": 2}]}"#, &["1", "2"], &["3"]);
    let ranges = r#"{"oneOf": [{"type": "integer", "maximum": 2}, {"type": "integer", "minimum": 5}]}"#;
    holds(&all, ranges, &["2", "5"], &["3"]);
    let numbered = r#"{"type": "object", "required": ["v"], "oneOf": [{"properties": {"v": {"const": 1}}, "additionalProperties": false},
        {"properties": {"v": {"const": 2}, "w": {}}, "additionalProperties": false}]}"#;
    holds(&all, numbered, &[r#"{"v":1}"#, r#"{"v":2,"w":1}"#], &[r#"{"v":1,"w":1}"#, "{}"]);
    let both = r#"{"anyOf": [{"minimum": 3}], "oneOf": [{"maximum": 4, "exclusiveMaximum": true, "type": "integer"}, {"type": "integer", "minimum": 4}]}"#;
    holds(&all, both, &["3", "4"], &["2"]);
    for apart in [
        r#"[{"required": ["a"], "type": "object"}, {"properties": {"a": false}, "type": "object"}]"#,
        r#"[{"required": ["a"], "type": "object"}, {"properties": {"b": {}}, "type": "object", "additionalProperties": false}]"#,
        r#"[{"type": "string", "maxLength": 2}, {"type": "string", "minLength": 3}]"#,
        r#"[{"type": "array", "maxItems": 0}, {"type": "array", "minItems": 1}]"#,
        r#"[{"enum": [1, 2.5, "x"]}, {"type": "integer", "minimum": 2}, {"const": {"a": 1}}, {"const": {"a": 2}}]"#,
        r#"[{"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": ["object", "array"]}]"#,
        r#"[{"exclusiveMinimum": 1, "type": "number"}, {"maximum": 1, "type": "number"}]"#,
        r##"[{"type": "null"}, {"type": "array", "items": {"$ref": "#"}}]"##,
    ] {
        let schema = format!(r#"{{"oneOf": {apart}}}"#);
        Grammar::json_schema(&schema)
            .and_then(|grammar| grammar.check())
            .unwrap_or_else(|e| panic!("{schema}: {e}"));
    }
    for overlap in [
        r#"[{"type": "integer"}, {"type": "number"}]"#,
        r#"[{"const": 1}, {"const": 1.0}]"#,
        r#"[{"type": "integer", "maximum": 2}, {"type": "integer", "minimum": 2}]"#,
        r#"[{"properties": {"k": {"const": "a"}}, "required": ["k"]}, {"properties": {"k": {"const": "b"}}, "required": ["k"]}]"#,
        r#"[{"type": "object", "properties": {"k": {"const": "a"}}}, {"type": "object", "properties": {"k": {"const": "b"}}}]"#,
        r##"[{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/x"}]"##,
        r##"[{"$ref": "#/$defs/y"}, {"$ref": "#/$defs/z"}]"##,
        r#"[{"type": "object", "required": ["x"], "patternProperties": {"x": {}}, "additionalProperties": false}, {"type": "object", "required": ["x"]}]"#,
    ] {
        let defs = r##""x": {"type": "null"}, "y": {"type": "object", "properties": {"a": {"$ref": "#/$defs/y"}}, "required": ["b"]},
            "z": {"type": "object", "properties": {"a": {"$ref": "#/$defs/z"}}}"##;
        refused(&format!(r#"{{"oneOf": {overlap}, "$defs": {{{defs}}}}}"#), "use anyOf");
    }
}

#[test]
fn references_are_read_as_pointers() {
    let all = bytes();
    let schema = r##"{"type": "array", "prefixItems": [{"$ref": "#/$defs/a~1b"}, {"$ref": "#/$defs/c%20d"}, {"$ref": "#/$defs/m~0n/items"}],
        "minItems": 3, "items": false, "$defs": {"a/b": {"const": 1}, "c d": {"type": ["array"], "items": {"$ref": "#/$defs/c%20d"}},
        "m~n": {"items": {"type": "null"}}, "a_b_0": false}}"##;
    holds(&all, schema, &["[1,[[],[[]]],null]"], &["[2,[],null]", "[1,[1],null]"]);
    refused(r##"{"items": {"$ref": "#/"}}"##, "the reference \"#/\" leads nowhere");
    refused(r##"{"$ref": "#/$defs/a~1c", "$defs": {"a/b": {}}}"##, "leads nowhere");
    refused(
        r##"{"properties": {"a": {"$id": "https://x.y/z", "$defs": {"t": {}}, "items": {"$ref": "#/$defs/t"}}}, "$defs": {"t": {}}}"##,
        "gives references another base, which is not followed; leave that out, and let references lead from the whole schema, at #/properties/a/items",
    );
    refused(r##"{"properties": {"a": {"id": "other.json", "$ref": "#"}}}"##, "another base");
    for fine in [
        r##"{"$id": "https://x.y/z", "properties": {"a": {"$ref": "#/$defs/t"}}, "$defs": {"t": {"$id": "t.json", "type": "null"}}}"##,
        r##"{"properties": {"a": {"$id": "#a", "items": {"$ref": "#/$defs/t"}}, "id": {"$ref": "#/$defs/t"}}, "$defs": {"t": {}}}"##,
    ] {
        Grammar::json_schema(fine)
            .and_then(|grammar| grammar.check())
            .unwrap_or_else(|e| panic!("{fine}: {e}"));
    }
}

#[test]
fn definitions_that_cannot_hold_are_told() {
    let all = bytes();
    let never =
        r##"{"$defs": {"never": false}, "type": "object", "properties": {"a": {"$ref": "#/$defs/never"}}}"##;
    holds(&all, never, &["{}", r#"{"b":1}"#], &[r#"{"a":1}"#]);
    let never = never.replace("false", r#"{"type": "integer", "minimum": 2, "maximum": 1}"#);
    refused(&never, "the definition at #/$defs/never can never hold");
}

#[test]
fn patterns_are_ecma_262() {
    let all = bytes();
    let matches = |pattern: &str, yes: &[&str], no: &[&str]| {
        let schema = serde_json::json!({"type": "string", "pattern": pattern}).to_string();
        holds(&all, &schema, &quoted(yes), &quoted(no));
    };
    matches("^[^a&&b]$", &["c"], &["a", "b", "&"]);
    matches("^[a-z&&b]$", &["q", "&"], &["A"]);
    matches("^[a-z--b]$", &["q", "-", "0"], &["~"]);
    matches("^[!#$%&&'*+]$", &["&", "+"], &["a"]);
    matches("^.$", &["a", "\u{85}"], &["\r", "\n", "\u{2028}"]);
    matches(r"^\s$", &[" ", "\u{feff}", "\n"], &["\u{85}", "a"]);
    matches(r"^[\S]\S$", &["aa"], &["\u{feff}a", "a "]);
    let names = r#"{"type": "object", "patternProperties": {"^[a&&b]$": {"type": "null"}}, "additionalProperties": false}"#;
    holds(&all, names, &[r#"{"&":null}"#, r#"{"a":null}"#], &[r#"{"c":null}"#]);
    refused(
        r#"{"items": {"pattern": "a\\"}}"#,
        "ends in a backslash with nothing after it; write two for one, at #/items",
    );
    refused(r#"{"patternProperties": {"a\\": {}}}"#, "ends in a backslash");
    refused(r#"{"patternProperties": {"[&]": {}, "[\\&]": {}}}"#, "are the same pattern; make them one");
}

#[test]
fn dates_are_of_the_calendar() {
    let all = bytes();
    let date = r#"{"type": "string", "format": "date"}"#;
    let of_dates =
        |dates: &[&str], more: &str| dates.iter().map(|d| format!("\"{d}{more}\"")).collect::<Vec<_>>();
    let yes = ["2024-02-29", "2000-02-29", "0400-02-29", "2023-02-28", "1999-12-31", "2023-04-30"];
    let no =
        ["2023-02-29", "1900-02-29", "2100-02-29", "2024-02-30", "2023-04-31", "2023-13-01", "2023-1-01"];
    for (schema, more) in [(date, ""), (r#"{"type": "string", "format": "date-time"}"#, "T23:59:60.5+01:00")]
    {
        holds(&all, schema, &of_dates(&yes, more), &of_dates(&no, more));
    }
    let both = r#"{"type": "string", "pattern": "-29$", "format": "date"}"#;
    holds(&all, both, &["\"2024-02-29\""], &["\"2023-02-29\"", "\"2024-02-28\""]);
    refused(r#"{"items": {"format": "unknown"}}"#, "the format \"unknown\" enforces nothing; use a pattern");
}

/// llguidance asks of each two whether they have a name in common.
#[test]
fn patterns_of_names_are_bounded() {
    let patterns = |from: usize, to: usize| {
        let all: Vec<String> = (from..to).map(|i| format!(r#""^p{i}_[a-z]*$": {{}}"#)).collect();
        format!(r#"{{"type": "object", "patternProperties": {{{}}}}}"#, all.join(","))
    };
    refused(&patterns(0, 200), "the number of patternProperties of an object is 200");
    refused(
        &format!(r#"{{"allOf": [{}, {}]}}"#, patterns(0, 100), patterns(100, 200)),
        "patternProperties of an object",
    );
    let many: Vec<String> = (0..20).map(|i| patterns(100 * i, 100 * (i + 1))).collect();
    refused(&format!(r#"{{"prefixItems": [{}]}}"#, many.join(",")), "patternProperties, each squared,");
    Grammar::json_schema(&patterns(0, 60)).unwrap().check().unwrap();
}

#[test]
fn drafts_of_single_schemas_change_nothing() {
    let schema = r#"{"items": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array",
        "prefixItems": [{"const": 1}], "items": false}, "type": "array"}"#;
    holds(&bytes(), schema, &["[[1]]", "[[]]"], &["[[2]]", "[[1,1]]"]);
}

#[test]
fn json_may_stand_between_texts() {
    let all = bytes();
    let schema = r##"{"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"], "$defs": {"a": {"enum": ["x", 1]}}}"##;
    let takes = |before: &str, behind: &str, text: &str| {
        let constraint = Grammar::json_schema_between(before, schema, behind).unwrap().compile(&all).unwrap();
        let ids: Vec<u32> = text.bytes().map(u32::from).collect();
        takes(&constraint, &ids)
    };
    for before in ["", "\":", "/*\n", "{\"é\\", "%json {}"] {
        for (json, taken) in [
            ("{\"a\": \"x\"}", true),
            (" {\"a\":1}", true),
            ("\n{\"a\":1}", true),
            ("{\"a\":2}", false),
            ("{}", false),
        ] {
            assert_eq!(takes(before, "", &format!("{before}{json}")), taken, "{before}{json}");
            assert_eq!(takes(before, "/?}+", &format!("{before}{json}/}}")), taken, "{before}{json}");
            assert!(
                !takes(before, "/?}+", &format!("{before}{json}"))
                    && !takes(before, "", &format!("{before}{json}}}"))
            );
        }
        assert!(before.is_empty() || !takes(before, "", "{\"a\":1}"));
    }
    for behind in ["^/?}+$", r"\/?\}+", r"(?:^[/]?[\x7d]+)$", "(?x) /? }+ # /"] {
        for (text, taken) in
            [("}}", true), ("/}", true), ("", false), ("\\/}", false), ("^}", false), ("}/", false)]
        {
            assert_eq!(takes("", behind, &format!("{{\"a\":1}}{text}")), taken, "{behind} {text}");
        }
    }
    assert!(takes("", "\n|[\\n/]a|\\s", "{\"a\":1}\n") && takes("", "^$", "{\"a\":1}"));
    let takes = |text: &str| Grammar::json_schema(schema).unwrap().takes(text).unwrap();
    assert!(takes("{\"a\":1}") && !takes("{}") && !takes("{\"a\":") && !takes(""));
    let constraint = Grammar::json_schema_between("", schema, "").unwrap().compile(&all).unwrap();
    let begins = |text: &str| constraint.may_begin(&text.bytes().map(u32::from).collect::<Vec<_>>()).unwrap();
    assert!(
        begins("") && begins("{\"a") && begins("{\"a\": 1}") && !begins("{\"b") && !begins("{\"a\": 1}}")
    );
    let between = |before: &str, behind: &str| Grammar::json_schema_between(before, schema, behind);
    let [a, b, c] = [("", ""), ("a", ""), ("", "a")].map(|(before, behind)| between(before, behind).unwrap());
    assert!(a != b && a != c && a != Grammar::json_schema(schema).unwrap() && a == a.clone());
    assert!(between(&" ".repeat(10_000), "").is_err() && between("", "(").is_err());
    assert!(Grammar::json_schema_between("", "{\"a\": 1}", "").is_err());
}
