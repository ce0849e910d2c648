//! What one text may use up, and that no other has to do without it.
#![allow(clippy::unwrap_used)]

mod common;

use common::bytes;
use ogive_grammar::{Constraint, Grammar, Token, Vocabulary};
use ogive_sampler::{Rng, Stage};
use std::collections::BTreeSet;

const X: u32 = 0;
const Y: u32 = 1;

/// `x`, `y`, the end, and `count` words of 24 letters a and b, no two alike.
fn words(count: u32) -> Vocabulary {
    let spelled = |i: u32| -> Vec<u8> {
        let bits = i.wrapping_mul(2_654_435_769) >> 8;
        (0..24).map(|bit| b"ab"[(bits >> bit) as usize & 1]).collect()
    };
    let words: Vec<Vec<u8>> = (0..count).map(spelled).collect();
    let words = words.iter().map(|word| Token::Text(word));
    let first = [Token::Text(b"x"), Token::Text(b"y"), Token::Special(b"</s>")];
    Vocabulary::new(first.into_iter().chain(words), &[2]).unwrap()
}

/// Its automaton has a state for each text of so many letters.
fn remembers(letters: u32) -> Grammar {
    Grammar::regex(&format!("x+|y+([ab]*a[ab]{{{letters}}})?")).unwrap()
}

fn at(constraint: &mut Constraint, text: &[u32]) -> Result<(), String> {
    constraint.reset();
    constraint.mask(&[]);
    constraint.mask(text);
    constraint.failure().map_or(Ok(()), Err)
}

/// After `y` the words need more states than there may be.
#[test]
fn a_text_that_goes_too_far_fails_alone() {
    let compiled = remembers(60).compile(&words(8192)).unwrap();
    let (mut one, mut other) = (compiled.clone(), compiled.clone());
    at(&mut other, &[X]).unwrap();
    let e = at(&mut one, &[Y]).unwrap_err();
    assert!(e.contains("too many"), "{e}");
    assert!(at(&mut one, &[Y]).is_err(), "it stays too much");
    at(&mut other, &[X, X]).unwrap();
    at(&mut one, &[X]).unwrap();
    at(&mut compiled.clone(), &[X]).unwrap();
    assert!(compiled.is_complete(&[X]) && one.is_complete(&[X]));
}

/// Each text needs states of its own; together they need more than there may be.
#[test]
fn texts_do_not_add_up() {
    let compiled = remembers(60).compile(&words(1024)).unwrap();
    let mut again = compiled.clone();
    for word in 3..13 {
        let text = [Y, word, word];
        at(&mut compiled.clone(), &text).unwrap_or_else(|e| panic!("a copy at {word}: {e}"));
        at(&mut again, &text).unwrap_or_else(|e| panic!("the same one at {word}: {e}"));
        assert!(!compiled.is_complete(&text) && compiled.is_complete(&[X]));
    }
}

/// Copies that share a parser, on threads, some of which have it fail.
#[test]
fn copies_on_threads_do_not_fail_each_other() {
    let compiled = remembers(60).compile(&words(8192)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let mut copy = compiled.clone();
            scope.spawn(move || {
                for _ in 0..3 {
                    if thread == 0 {
                        assert!(at(&mut copy, &[Y]).is_err());
                    } else {
                        at(&mut copy, &[X]).unwrap();
                    }
                }
            });
        }
    });
}

fn check(schema: &str) -> Result<(), String> {
    Grammar::json_schema(schema).and_then(|grammar| grammar.check()).map_err(|e| e.to_string())
}

fn properties(count: usize, more: &str) -> String {
    let all: Vec<String> = (0..count).map(|i| format!(r#""p{i}": {{"type": "null"}}"#)).collect();
    format!(
        r#"{{"type": "object", "properties": {{{}}}, "additionalProperties": false{more}}}"#,
        all.join(",")
    )
}

/// llguidance writes them all out once for each.
#[test]
fn one_property_of_many_is_bounded() {
    let e = check(&properties(200, r#", "minProperties": 1"#)).unwrap_err();
    assert!(
        e.contains("minProperties of the object with \"p0\": with 200 properties") && e.contains("leave"),
        "{e}"
    );
    let ten = vec![properties(60, r#", "minProperties": 1"#); 10].join(",");
    assert!(
        check(&format!(r#"{{"type": "array", "prefixItems": [{ten}]}}"#))
            .unwrap_err()
            .contains("written out")
    );
    let divided = format!(r#"{{"allOf": [{}, {{"minProperties": 1}}]}}"#, properties(200, ""));
    assert!(check(&divided).unwrap_err().contains("written out"));
    for fine in [
        properties(50, r#", "minProperties": 1"#),
        properties(300, r#", "maxProperties": 1"#),
        properties(200, ""),
    ] {
        check(&fine).unwrap();
    }
}

/// Words of random letters, none twice.
fn random_words(count: usize) -> Vec<String> {
    let mut rng = Rng::new(5);
    let mut words = BTreeSet::new();
    while words.len() < count {
        let length = 3 + rng.below(8);
        words.insert((0..length).map(|_| char::from(b'a' + rng.below(26) as u8)).collect::<String>());
    }
    words.into_iter().collect()
}

fn takes(grammar: &Grammar, texts: &[&str]) -> Vec<bool> {
    let constraint = grammar.compile(&bytes()).unwrap();
    let ids = |text: &&str| text.bytes().map(u32::from).collect::<Vec<_>>();
    texts.iter().map(|text| common::takes(&constraint, &ids(text))).collect()
}

/// As one rule for each word they were more than llguidance has numbers for.
#[test]
fn lists_of_words_compile() {
    let words = random_words(10_000);
    let (word, other) = (&words[4_321], format!("{}x", words[77]));
    let regex = Grammar::regex(&words.join("|")).unwrap();
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    let gbnf = Grammar::gbnf(&format!("root ::= {}", quoted.join(" | "))).unwrap();
    for grammar in [regex, gbnf] {
        grammar.check().unwrap();
        assert_eq!(takes(&grammar, &[word, &other, &words[9_999], "0"]), [true, false, true, false]);
    }
    // Where one word ends and the next begins is for the parser to find.
    let run = Grammar::regex(&format!("({})+", words.join("|"))).unwrap();
    assert_eq!(takes(&run, &[word, &format!("{word}{}{}", words[5], words[6]), "0"]), [true, true, false]);
    let list = format!("root ::= word (\", \" word)* \".\"\nword ::= {}", quoted.join(" | "));
    let text = format!("{word}, {}.", words[5]);
    assert_eq!(takes(&Grammar::gbnf(&list).unwrap(), &[&text, word]), [true, false]);
}

/// Told before a model is loaded.
#[test]
fn what_does_not_compile_is_told_by_a_check() {
    let ways: Vec<String> =
        random_words(40_000).iter().map(|word| format!("\"{word}\" root \"x\"")).collect();
    let e = Grammar::gbnf(&format!("root ::= \"y\" | {}", ways.join(" | "))).unwrap().check().unwrap_err();
    assert!(e.to_string().contains("its number of symbols, once it is cut into parts, is"), "{e}");
    Grammar::gbnf("root ::= <think>").unwrap().check().unwrap();
}

/// Each name is looked for among all.
#[test]
fn names_of_an_object_are_bounded() {
    let names = |from: usize, to: usize| {
        let all: Vec<String> = (from..to).map(|i| format!("\"p{i}\"")).collect();
        format!(r#"{{"type": "object", "required": [{}]}}"#, all.join(","))
    };
    let of_data: Vec<String> = (0..4_000).map(|i| format!("\"p{i}\": 0")).collect();
    for large in [
        names(0, 4_000),
        properties(4_000, ""),
        format!(r#"{{"allOf": [{}, {}]}}"#, names(0, 2_000), names(2_000, 4_000)),
        format!(r#"{{"enum": [1, {{{}}}]}}"#, of_data.join(",")),
    ] {
        let e = check(&large).unwrap_err();
        assert!(e.contains("names 4000 properties, but at most 3000") && e.contains("divide it"), "{e}");
    }
    let many = vec![names(0, 2_000); 4].join(",");
    let e = check(&format!(r#"{{"type": "array", "prefixItems": [{many}]}}"#)).unwrap_err();
    assert!(e.contains("each squared"), "{e}");
    check(&format!(r#"{{"allOf": [{}, {}]}}"#, names(0, 500), names(0, 500))).unwrap();
}

/// llguidance reckons in 32 bits, which wrap.
#[test]
fn factors_that_hold_at_once_are_right_or_refused() {
    let (a, b) = (r#"{"multipleOf": 100003}"#, r#"{"multipleOf": 100019}"#);
    for wrong in [
        format!(r#"{{"type": "integer", "allOf": [{a}, {b}]}}"#),
        format!(r#"{{"type": "integer", "allOf": [{a}, {a}]}}"#),
        format!(r#"{{"multipleOf": 100003, "anyOf": [{{"type": "null"}}, {b}]}}"#),
        format!(r##"{{"$ref": "#/$defs/b", "multipleOf": 100003, "$defs": {{"b": {b}}}}}"##),
        format!(r#"{{"properties": {{"x": {a}}}, "allOf": [{{"additionalProperties": {b}}}]}}"#),
        format!(r#"{{"items": [{a}], "allOf": [{{"items": {b}}}]}}"#),
    ] {
        let e = check(&wrong).unwrap_err();
        assert!(e.contains("hold at once, which is more than can be reckoned with"), "{wrong}: {e}");
    }
    let e = check(r#"{"type": "integer", "multipleOf": 1000000000}"#).unwrap_err();
    assert!(e.contains("multipleOf 1000000000 has more digits"), "{e}");
    let e = check(r#"{"type": "integer", "multipleOf": 9999991}"#).unwrap_err();
    assert!(e.contains("take smaller ones"), "{e}");
    for fine in [
        r#"{"type": "integer", "allOf": [{"multipleOf": 50000}, {"multipleOf": 60000}]}"#,
        r#"{"type": "number", "allOf": [{"multipleOf": 0.01}, {"multipleOf": 0.25}, {"multipleOf": 5}]}"#,
        r#"{"properties": {"x": {"multipleOf": 10007}}, "allOf": [{"properties": {"y": {"multipleOf": 500009}}}], "type": "null"}"#,
        r##"{"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"multipleOf": 7}}}"##,
    ] {
        check(fine).unwrap_or_else(|e| panic!("{fine}: {e}"));
    }
    let six = Grammar::json_schema(r#"{"type": "integer", "allOf": [{"multipleOf": 2}, {"multipleOf": 3}]}"#)
        .unwrap();
    let digits = (0..10u8).map(|d| [b'0' + d]).collect::<Vec<_>>();
    let tokens = digits.iter().map(|d| Token::Text(d)).chain([Token::Special(b"</s>")]);
    let six = six.compile(&Vocabulary::new(tokens, &[10]).unwrap()).unwrap();
    assert!(six.is_complete(&[1, 2]) && !six.is_complete(&[1, 4]) && !six.is_complete(&[1, 5]));
}
