//! llama.cpp's own cases: 47 grammars with 387 strings that must pass or fail.
#![allow(clippy::unwrap_used)]

mod common;

use common::{bytes, shared, takes};
use ogive_grammar::Grammar;
use serde_json::Value;
use std::fs;

/// The cases' token numbers are below 256; here special tokens come after the bytes.
const SHIFT: u32 = 250;

/// Strings of a case: plain, or with tokens in them as 0xff and four bytes.
fn tokens(string: &Value) -> Vec<u32> {
    if let Some(text) = string.as_str() {
        return text.bytes().map(u32::from).collect();
    }
    let hex = string["hex"].as_str().unwrap();
    let data: Vec<u8> =
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
    let (mut tokens, mut rest) = (Vec::new(), &data[..]);
    while let Some((&first, after)) = rest.split_first() {
        if first == 0xff {
            let (id, after) = after.split_at(4);
            tokens.push(u32::from_be_bytes(id.try_into().unwrap()) + SHIFT);
            rest = after;
        } else {
            tokens.push(first.into());
            rest = after;
        }
    }
    tokens
}

/// The grammar with its tokens' numbers where the vocabulary of bytes has special ones.
fn shifted(grammar: &str) -> String {
    let mut parts = grammar.split("<[");
    let mut out = parts.next().unwrap().to_owned();
    for part in parts {
        let (id, rest) = part.split_once(']').unwrap();
        out += &format!("<[{}]{rest}", id.parse::<u32>().unwrap() + SHIFT);
    }
    out
}

#[test]
fn all_387_strings_pass_and_fail_as_listed() {
    let Some(path) = shared("misc/grammar_cases.json") else { return };
    let cases: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let vocabulary = bytes();
    let (mut grammars, mut passed, mut failed, mut wrong) = (0, 0, 0, Vec::new());
    for case in cases["cases"].as_array().unwrap() {
        let text = case["grammar"].as_str().unwrap();
        let constraint = Grammar::gbnf(&shifted(text)).unwrap().compile(&vocabulary).unwrap();
        grammars += 1;
        for (list, expected, count) in [("pass", true, &mut passed), ("fail", false, &mut failed)] {
            for string in case[list].as_array().unwrap() {
                *count += 1;
                if takes(&constraint, &tokens(string)) != expected {
                    wrong.push(format!("{} should {list}: {string}\n{text}", case["desc"]));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!((grammars, passed, failed), (47, 196, 191), "387 strings");
}
