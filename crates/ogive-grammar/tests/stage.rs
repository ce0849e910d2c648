//! The stage in a chain: ends, copies, histories that go back, and what can go wrong.
#![allow(clippy::unwrap_used)]

mod common;

use common::{END, bytes};
use ogive_grammar::{Grammar, GrammarError, Token, Vocabulary};
use ogive_sampler::{Chain, SampleError, Stage};

const LOGITS: [f32; 273] = [0.0; 273];

fn ids(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

/// The texts of single bytes that may come after `text`, and `$` for the end.
fn next(grammar: &str, text: &str) -> String {
    let mut constraint = Grammar::gbnf(grammar).unwrap().compile(&bytes()).unwrap();
    constraint.mask(&[]);
    let mask = constraint.mask(&ids(text)).unwrap();
    (0..128)
        .filter(|&b| mask.allows(b))
        .map(|b| char::from(b as u8))
        .chain(mask.allows(END).then_some('$'))
        .collect()
}

#[test]
fn the_end_comes_where_a_sentence_is_complete() {
    assert_eq!(next("root ::= \"ab\"?", ""), "a$");
    assert_eq!(next("root ::= \"ab\"?", "a"), "b");
    assert_eq!(next("root ::= \"ab\"?", "ab"), "$", "where nothing else is possible, the end is forced");
    assert_eq!(next("root ::= (\"a\" | \"ab\" | \"abc\") [cd]", "ab"), "cd");
    assert_eq!(next("root ::= (\"a\" | \"ab\" | \"abc\") [cd]", "abc"), "cd$");
    assert_eq!(next("root ::= \"(\" root \")\" | \"x\"", "((x"), ")");
    assert_eq!(next("root ::= root \"+\" root | \"x\"", "x+x"), "+$", "left recursion");
    assert_eq!(next("root ::= \"\"", ""), "$");
}

/// What comes after a token is cut as what comes at the beginning.
#[test]
fn lexemes_after_a_token_are_not_greedy() {
    let text = "root ::= <[260]> x \"b\"\nx ::= [a-z]+ | \"(\" x \")\"";
    let constraint = Grammar::gbnf(text).unwrap().compile(&bytes()).unwrap();
    assert!(common::takes(&constraint, &[260, 97, 98]));
    assert!(common::takes(&constraint, &[260, 98, 98, 98]));
    assert!(!common::takes(&constraint, &[260, 97]));
}

#[test]
fn the_history_says_where_it_is() {
    let constraint = Grammar::gbnf("root ::= [a-z] [0-9] \"!\"").unwrap().compile(&bytes()).unwrap();
    let mut chain = Chain::greedy().first(constraint);
    let prompt = ids("prompt: ");
    let draw = |chain: &mut Chain, text: &str| {
        let history = [prompt.clone(), ids(text)].concat();
        char::from(u8::try_from(chain.sample(&LOGITS, &history).unwrap()).unwrap_or(b'$'))
    };
    assert_eq!(draw(&mut chain, ""), 'a');
    assert_eq!(draw(&mut chain, "a"), '0');
    let fork = chain.clone();
    assert_eq!(draw(&mut chain, "a0"), '!');
    // Back two tokens, and on another way.
    assert_eq!(draw(&mut chain, "z"), '0');
    assert_eq!(draw(&mut chain, "z7"), '!');
    assert_eq!(draw(&mut chain, "z7!"), '$');
    // The copy is where it was.
    let mut fork = fork;
    assert_eq!(draw(&mut fork, "a0"), '!');
    // Saved and made again.
    let state = fork.state();
    let constraint = Grammar::gbnf("root ::= [a-z] [0-9] \"!\"").unwrap().compile(&bytes()).unwrap();
    let mut later = Chain::greedy().first(constraint);
    later.restore(&state).unwrap();
    assert_eq!(draw(&mut later, "a0!"), '$');
    chain.reset();
    assert_eq!(draw(&mut chain, ""), 'a');
    // What is only asked about moves nothing.
    let constraint = Grammar::gbnf("root ::= [a-z] [0-9] \"!\"").unwrap().compile(&bytes()).unwrap();
    let mut chain = Chain::new(0).first(constraint);
    assert_eq!(chain.distribution(&LOGITS, &prompt).unwrap().len(), 26);
    chain.sample(&LOGITS, &prompt).unwrap();
    let history = [prompt, ids("b")].concat();
    assert_eq!(chain.distribution(&LOGITS, &history).unwrap().len(), 10);
    assert_eq!(chain.distribution(&LOGITS, &history).unwrap().len(), 10);
}

#[test]
fn what_the_grammar_does_not_allow_is_told() {
    let constraint = Grammar::gbnf("root ::= \"ab\"").unwrap().compile(&bytes()).unwrap();
    let mut chain = Chain::greedy().first(constraint);
    chain.sample(&LOGITS, &[]).unwrap();
    let e = chain.sample(&LOGITS, &ids("x")).unwrap_err();
    assert!(matches!(&e, SampleError::Stuck { stage, .. } if stage == "grammar"), "{e}");
    assert!(
        e.to_string().contains("doesn't satisfy the grammar") && !e.to_string().contains("backtrace"),
        "{e}"
    );
    // It recovers as soon as the history does.
    assert_eq!(chain.sample(&LOGITS, &ids("a")).unwrap(), u32::from(b'b'));
    let e = chain.sample(&LOGITS, &[END, 97]).unwrap_err().to_string();
    assert!(e.contains("after the end of the text"), "{e}");
    // All that may come is forbidden by the model: not the grammar's doing.
    let mut logits = LOGITS;
    logits[97] = f32::NEG_INFINITY;
    assert!(matches!(chain.sample(&logits, &[]), Err(SampleError::AllBanned { .. })));
}

#[test]
fn it_goes_on_where_it_may_only_if_asked_to() {
    let grammar = Grammar::regex("a{1,2}").unwrap().compile(&bytes()).unwrap().on_and_on();
    let mut chain = Chain::greedy().first(grammar);
    assert_eq!(chain.sample(&LOGITS, &[]).unwrap(), 97);
    assert_eq!(chain.sample(&LOGITS, &[97]).unwrap(), 97);
    assert_eq!(chain.sample(&LOGITS, &[97, 97]).unwrap(), END);
    assert_eq!(chain.sample(&LOGITS, &[97, 97, END]).unwrap(), END);
}

#[test]
fn vocabularies_and_grammars_that_do_not_fit_each_other() {
    let say = |r: Result<ogive_grammar::Constraint, GrammarError>| r.unwrap_err().to_string();
    let few = Vocabulary::new([Token::Text(b"x"), Token::Special(b"<s>"), Token::Unused], &[1]).unwrap();
    let compile = |text: &str| Grammar::gbnf(text).unwrap().compile(&few);
    assert!(
        say(compile("root ::= \"yes\""))
            .contains("no token of the vocabulary fits the grammar at the beginning")
    );
    assert!(say(compile("root ::= <think>")).contains("<think>, which the vocabulary does not have"));
    assert!(say(compile("root ::= <[7]>")).contains("<[7]>, which is beyond"));
    assert!(say(compile("root ::= <s>")).contains("which ends the text"));
    assert!(say(compile("root ::= <[2]>")).contains("which is not in use"));
    assert!(
        Vocabulary::new([Token::Text(b"x")], &[]).unwrap_err().to_string().contains("no token ends a text")
    );
    assert!(
        Vocabulary::new([Token::Text(b"x")], &[4]).unwrap_err().to_string().contains("there are 1 tokens")
    );
    // Text that looks like a special token is none, and 0xff is in no text.
    let odd = [
        Token::Text(b"\xff[1]"),
        Token::Text(b"\xff"),
        Token::Text(&[b'a'; 5000]),
        Token::Text(b""),
        Token::Text(b"a"),
        Token::Text(b"a"),
    ];
    let odd = Vocabulary::new(odd.into_iter().chain([Token::Special(b"</s>")]), &[6]).unwrap();
    let mut any = Grammar::gbnf("root ::= .*").unwrap().compile(&odd).unwrap();
    let allowed: Vec<bool> = (0..8).map(|t| any.allowed().allows(t)).collect();
    assert_eq!(allowed, [false, false, false, false, true, true, true, false]);
    assert!(
        say(Grammar::json_schema(r#"{"type": "string", "minLength": 3, "maxLength": 2}"#)
            .unwrap()
            .compile(&odd))
        .contains("nothing can satisfy it")
    );
}

#[test]
fn schemas_that_only_compiling_shows_to_be_wrong() {
    for (schema, said) in [
        (r#"{"type": "integer", "minimum": 5, "maximum": 3}"#, "nothing can satisfy it"),
        (r#"{"allOf": [{"type": "string"}, {"type": "integer"}]}"#, "nothing can satisfy it"),
        (
            r#"{"type": "string", "format": "no-such"}"#,
            "the format \"no-such\" is not supported; use a pattern",
        ),
        (r#"{"type": "string", "pattern": "(a"}"#, "a pattern is no regular expression: unclosed group"),
        (r#"{"oneOf": [{"type": "integer"}, {"type": "number"}]}"#, "use anyOf"),
        (
            r#"{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["b"], "additionalProperties": false}"#,
            "nothing can satisfy it",
        ),
        (r#"{"enum": []}"#, "nothing can satisfy it: an enum or an anyOf is empty"),
        (r#"{"const": 1, "enum": [2]}"#, "maximum (1); a number in a const or an enum counts as both"),
        (r#"{"const": "a", "enum": ["b"]}"#, "no string is all that its const, enum,"),
        (r#"{"type": "array", "minItems": 3, "maxItems": 2}"#, "nothing can satisfy it"),
    ] {
        let e = Grammar::json_schema(schema).unwrap().check().unwrap_err().to_string();
        assert!(e.contains(said) && !e.contains('\n') && !e.contains("backtrace"), "{schema}: {e}");
    }
    Grammar::json_schema("true").unwrap().check().unwrap();
}

/// Told by its own keyword, whatever llguidance makes of a value; through the whole way that a user's schema goes.
#[test]
fn what_asks_for_nothing_compiles_and_what_is_no_count_is_told() {
    for schema in [
        r#"{"type": "array", "items": {"type": "integer"}, "uniqueItems": false}"#,
        r#"{"properties": {"a": {"anyOf": [{"uniqueItems": false, "type": "array"}]}}, "type": "object"}"#,
        r##"{"$ref": "#/$defs/x", "$defs": {"x": {"prefixItems": [{"uniqueItems": false}], "type": "array"}}}"##,
        r##"{"$ref": "#/x-mine/x", "x-mine": {"x": {"type": "array", "uniqueItems": false}}}"##,
        r#"{"type": "array", "minItems": 2.0, "maxItems": 3.0, "items": {"type": "string", "maxLength": 1e1}}"#,
        r#"{"type": "number", "minimum": 1, "exclusiveMinimum": true}"#,
        // All else that is let be.
        r#"{"$anchor": "a", "$comment": "c", "$id": "i", "$schema": "https://json-schema.org/draft/2019-09/schema",
            "contentEncoding": "e", "contentMediaType": "m", "default": 1, "deprecated": false, "description": "d",
            "examples": [], "id": "i", "readOnly": false, "title": "t", "writeOnly": false, "x-mine": 0, "type": "null"}"#,
    ] {
        Grammar::json_schema(schema).and_then(|g| g.check()).unwrap_or_else(|e| panic!("{schema}: {e}"));
    }
    let takes = |schema: &str, text: &str| {
        let constraint = Grammar::json_schema(schema).unwrap().compile(&bytes()).unwrap();
        common::takes(&constraint, &ids(text))
    };
    // No keyword is what only is called so.
    let named = r#"{"type": "object", "properties": {"uniqueItems": false, "a": true}}"#;
    assert!(takes(named, r#"{"a": 1}"#) && !takes(named, r#"{"uniqueItems": 1}"#));
    for data in [r#"{"const": {"uniqueItems": false}}"#, r#"{"enum": [{"uniqueItems": false}]}"#] {
        assert!(takes(data, r#"{"uniqueItems": false}"#) && !takes(data, "{}"), "{data}");
    }
    let two = r#"{"type": "array", "minItems": 2.0, "items": {"type": "null"}}"#;
    assert!(takes(two, "[null, null]") && !takes(two, "[null]"));
    for keyword in ["minLength", "maxItems", "minimum", "multipleOf", "required"] {
        let schema = format!(r#"{{"properties": {{"a": {{"{keyword}": "{}"}}}}}}"#, "é".repeat(60));
        let e = Grammar::json_schema(&schema).unwrap_err().to_string();
        assert!(
            e.contains(&format!("{keyword} must be ")) && e.contains("not a string, at #/properties/a"),
            "{e}"
        );
    }
}

/// As deep as the limit allows: llguidance goes down all of it by recursion.
#[test]
fn long_chains_of_references_do_not_overflow() {
    let n = 3800;
    let chain: Vec<String> =
        (0..n).map(|i| format!(r##""d{i}": {{"$ref": "#/$defs/d{}"}}"##, i + 1)).collect();
    let schema = format!(
        r##"{{"$ref": "#/$defs/d0", "$defs": {{{}, "d{n}": {{"type": "null"}}}}}}"##,
        chain.join(",")
    );
    let e = Grammar::json_schema(&schema);
    match e {
        Ok(grammar) => drop(grammar.check()),
        Err(e) => assert!(e.to_string().contains("its depth"), "{e}"),
    }
    let n = 1900;
    let chain: Vec<String> =
        (0..n).map(|i| format!(r##""d{i}": {{"items": {{"$ref": "#/$defs/d{}"}}}}"##, i + 1)).collect();
    let schema = format!(
        r##"{{"$ref": "#/$defs/d0", "$defs": {{{}, "d{n}": {{"type": "null"}}}}}}"##,
        chain.join(",")
    );
    if let Ok(grammar) = Grammar::json_schema(&schema) {
        drop(grammar.check());
    }
}

#[test]
fn large_grammars_are_slow_or_refused_and_never_wrong() {
    // Alternatives by the thousand, most with the same beginning.
    let words: Vec<String> = (0..3000).map(|i| format!("\"word{i}\"")).collect();
    let grammar = format!("root ::= \"<\" ({}) root? \">\"", words.join(" | "));
    assert_eq!(next(&grammar, "<word299"), "0123456789<>");
    // A repetition of a repetition, of what is not regular.
    assert_eq!(next("root ::= (\"(\" root \")\"){0,1000} \"x\"{1000}", "(x"), "x");
    let mut doubling = String::from("root ::= r40\nr0 ::= \"a\"\n");
    (1..=40).for_each(|i| doubling += &format!("r{i} ::= r{j} r{j}\n", j = i - 1));
    assert_eq!(next(&doubling, "aaa"), "a");
}
