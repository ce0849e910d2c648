//! Answers held to a grammar: real vocabularies, a real model, and sessions that stop and go on.
#![cfg(feature = "grammar")]
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use ogive::engine::Finish;
use ogive::grammar::{Constraint, Grammar, Token, Vocabulary};
use ogive::sampler::Stage;
use ogive::tokenizer::{TokenKind, Tokenizer};
use ogive::{Generate, Model};
use serde_json::Value;
use std::collections::HashMap;

fn stories() -> Option<Model> {
    Some(ogive::open(shared()?.join("models/stories260K/stories260K-f32.gguf")).unwrap())
}

/// The tokens of the cases are numbers below 30; here the same much higher, where they are words.
const SHIFT: u32 = 20_000;

struct Words {
    vocabulary: Vocabulary,
    by_bytes: HashMap<Vec<u8>, u32>,
    longest: usize,
    end: u32,
}

impl Words {
    fn new(tokenizer: &Tokenizer) -> Self {
        let mut by_bytes = HashMap::new();
        let mut tokens = Vec::new();
        for id in 0..tokenizer.vocab_size() as u32 {
            let bytes = tokenizer.token_bytes(id).unwrap();
            tokens.push(match tokenizer.token_kind(id).unwrap() {
                TokenKind::Normal | TokenKind::UserDefined | TokenKind::Byte => {
                    if !(SHIFT..SHIFT + 30).contains(&id) {
                        by_bytes.insert(bytes.to_vec(), id);
                    }
                    Token::Text(bytes)
                }
                _ => Token::Special(bytes),
            });
        }
        let longest = by_bytes.keys().map(Vec::len).max().unwrap();
        let vocabulary = Vocabulary::new(tokens, tokenizer.eog()).unwrap();
        Self { vocabulary, by_bytes, longest, end: tokenizer.eog()[0] }
    }

    /// In the longest tokens there are.
    fn cut(&self, mut bytes: &[u8]) -> Vec<u32> {
        let mut ids = Vec::new();
        while !bytes.is_empty() {
            let most = self.longest.min(bytes.len());
            let (n, id) = (1..=most).rev().find_map(|n| Some((n, *self.by_bytes.get(&bytes[..n])?))).unwrap();
            ids.push(id);
            bytes = &bytes[n..];
        }
        ids
    }

    fn tokens(&self, string: &Value) -> Vec<u32> {
        if let Some(text) = string.as_str() {
            return self.cut(text.as_bytes());
        }
        let hex = string["hex"].as_str().unwrap();
        let data: Vec<u8> =
            (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
        let (mut ids, mut rest) = (Vec::new(), &data[..]);
        while !rest.is_empty() {
            if rest[0] == 0xff {
                ids.push(u32::from_be_bytes(rest[1..5].try_into().unwrap()) + SHIFT);
                rest = &rest[5..];
            }
            let text = rest.iter().position(|&b| b == 0xff).unwrap_or(rest.len());
            ids.extend(self.cut(&rest[..text]));
            rest = &rest[text..];
        }
        ids
    }

    fn takes(&self, constraint: &Constraint, ids: &[u32]) -> bool {
        let mut constraint = constraint.clone();
        constraint.mask(&[]);
        for &id in ids {
            if !constraint.allowed().allows(id) {
                return false;
            }
            constraint.accept(id);
        }
        constraint.allowed().allows(self.end)
    }
}

#[test]
fn all_387_strings_in_the_tokens_of_real_vocabularies() {
    let Some(shared) = shared() else { return };
    let cases: Value =
        serde_json::from_slice(&std::fs::read(shared.join("misc/grammar_cases.json")).unwrap()).unwrap();
    for name in ["qwen2", "llama-spm"] {
        let tokenizer = ogive::open_tokenizer(shared.join(format!("vocab/ggml-vocab-{name}.gguf"))).unwrap();
        let words = Words::new(&tokenizer);
        let (mut strings, mut wrong) = (0, Vec::new());
        for case in cases["cases"].as_array().unwrap() {
            let mut text = case["grammar"].as_str().unwrap().to_owned();
            for id in (10..30).rev() {
                text = text.replace(&format!("<[{id}]>"), &format!("<[{}]>", id + SHIFT));
            }
            let constraint = Grammar::gbnf(&text).unwrap().compile(&words.vocabulary).unwrap();
            for (list, expected) in [("pass", true), ("fail", false)] {
                for string in case[list].as_array().unwrap() {
                    strings += 1;
                    if words.takes(&constraint, &words.tokens(string)) != expected {
                        wrong.push(format!("{name}, {}: should {list}: {string}\n{text}", case["desc"]));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
        assert_eq!(strings, 387);
    }
}

const HERO: &str = r#"{"type": "object", "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 12},
    "age": {"type": "integer", "minimum": 1, "maximum": 99}, "likes": {"type": "array", "items": {"enum": ["cake", "the sun", "dogs"]},
    "minItems": 1, "maxItems": 2}}, "required": ["name", "age", "likes"], "additionalProperties": false}"#;

#[test]
fn a_model_that_knows_no_json_gives_json() {
    let Some(model) = stories() else { return };
    let mut session = model.session().unwrap();
    for seed in 0..12 {
        let how = Generate::new().seed(seed).max_tokens(120).json_schema(HERO).unwrap();
        let mut answer = session.generate("Once upon a time there was", &how).unwrap();
        // Who has read a part of it gets the whole.
        for _ in 0..seed % 3 {
            answer.next().unwrap().unwrap();
        }
        let hero: Value = answer.json().unwrap();
        assert_eq!(answer.finish(), Some(&Finish::Stop));
        assert_eq!(answer.is_complete(), Some(true));
        let age = hero["age"].as_u64().unwrap();
        assert!((1..=99).contains(&age) && !hero["name"].as_str().unwrap().is_empty(), "{hero}");
        assert_eq!(hero.as_object().unwrap().len(), 3);
    }
    // Without one the session goes on as ever.
    let story =
        session.generate("Once upon a time", &Generate::greedy().max_tokens(20)).unwrap().text().unwrap();
    assert!(story.contains("there was"), "{story}");
}

#[test]
fn a_schema_that_contradicts_itself_is_told_before_there_is_a_model() {
    for (schema, said) in [
        (r#"{"type": "integer", "minimum": 3, "maximum": 1}"#, "nothing can satisfy it"),
        (r##"{"properties": {"a": {"$ref": "#"}}, "required": ["a"], "type": "object"}"##, "without an end"),
        (r#"{"properties": {"a": {"type": "text"}}}"#, "\"text\" is no type"),
        ("", "EOF"),
    ] {
        let e = Generate::new().json_schema(schema).unwrap_err().to_string();
        assert!(e.contains(said), "{schema}: {e}");
    }
}

#[test]
fn what_is_cut_short_says_so_and_can_go_on() {
    let Some(model) = stories() else { return };
    let how = |n| Generate::new().seed(5).max_tokens(n).json_schema(HERO).unwrap();
    let mut session = model.session().unwrap();
    let whole = session.generate("Once", &how(120)).unwrap().text().unwrap();

    let mut answer = session.generate("Once", &how(6)).unwrap();
    let first = answer.text().unwrap();
    assert_eq!(answer.is_complete(), Some(false));
    drop(answer);
    let mut answer = session.resume(&how(120)).unwrap();
    let rest = answer.text().unwrap();
    assert_eq!(answer.is_complete(), Some(true), "{first}{rest}");
    drop(answer);
    assert_eq!(first + &rest, whole);

    let e = session.generate("Once", &how(6)).unwrap().json::<Value>().unwrap_err();
    assert!(e.to_string().contains("cut short after 6 tokens"), "{e}");
    let plain = session.generate("Once", &Generate::greedy().max_tokens(3)).unwrap().is_complete();
    assert_eq!(plain, None);
}

#[test]
fn regular_expressions_and_grammars_hold() {
    let Some(model) = stories() else { return };
    let mut session = model.session().unwrap();
    let how = Generate::new().regex("(Lily|Tom) (likes|has) [a-z]{3,6}\\.").unwrap();
    let text = session.generate("One day, ", &how).unwrap().text().unwrap();
    assert!(text.ends_with('.') && (text.starts_with("Lily ") || text.starts_with("Tom ")), "{text}");
    let how = Generate::greedy().grammar("root ::= \"(\" root \")\" | \"x\"").unwrap().max_tokens(40);
    let text = session.generate("One day", &how).unwrap().text().unwrap();
    assert!(text.trim_matches(['(', ')', 'x']).is_empty(), "{text}");
    // Where the text could end it goes on if asked to, and ends where nothing can come.
    let how = Generate::greedy().regex("a{1,9}").unwrap().ignore_end();
    assert_eq!(session.generate("One day", &how).unwrap().text().unwrap(), "aaaaaaaaa");
    // A grammar that does not fit the vocabulary leaves the session as it was.
    let before = session.tokens().to_vec();
    let how = Generate::new().grammar("root ::= <|no_such|>").unwrap();
    let e = session.generate("One day", &how).unwrap_err().to_string();
    assert!(e.contains("<|no_such|>, which the vocabulary does not have"), "{e}");
    assert_eq!(session.tokens(), before);
}

#[test]
fn by_other_samplers_an_answer_is_still_one_sentence() {
    let Some(model) = stories() else { return };
    let how = Generate::new().seed(4).regex("[a-z]{3} [a-z]{3} [a-z]{3}").unwrap();
    for cut in 1..6 {
        let mut session = model.session().unwrap();
        let begun =
            session.generate("Once upon a time", &how.clone().max_tokens(cut)).unwrap().text().unwrap();
        let other = how.clone().samplers("temp:2".parse().unwrap());
        let mut rest = session.resume_anew(&other).unwrap();
        let text = begun + &rest.text().unwrap();
        assert_eq!(rest.is_complete(), Some(true), "{text:?}");
        assert!(text.len() == 11 && text.split(' ').all(|word| word.len() == 3), "{text:?}");
    }
}

#[test]
fn a_chain_that_goes_on_leaves_the_grammar_to_its_answer() {
    let Some(model) = stories() else { return };
    let mut session = model.session().unwrap();
    let mut first = Generate::new().seed(4).regex("yes|no").unwrap();
    first.sampler.mirostat = 2;
    let answer = session.generate("One day", &first).unwrap().text().unwrap();
    assert!(answer == "yes" || answer == "no", "{answer}");
    let clone = |session: &ogive::Session| session.chain().unwrap().clone();
    let chain = clone(&session);
    assert!(chain.to_string().starts_with("grammar:"), "{chain}");
    let second = Generate::new().regex("[0-9]{4}").unwrap();
    let answer = session.generate_with("One day, they", &second, chain).unwrap().text().unwrap();
    assert!(answer.len() == 4 && answer.bytes().all(|b| b.is_ascii_digit()), "{answer}");
    let chain = clone(&session);
    assert_eq!(chain.to_string().matches("grammar").count(), 1, "{chain}");
    let free = Generate::new().max_tokens(30).ignore_end();
    let mut answer = session.generate_with("One day, they", &free, chain).unwrap();
    answer.text().unwrap();
    assert!(answer.ids().len() == 30 && answer.is_complete().is_none());
    drop(answer);
    let chain = clone(&session);
    assert!(chain.to_string().starts_with("endless"), "{chain}");
    session.generate_with("One day, they", &Generate::new().max_tokens(2), chain).unwrap().text().unwrap();
    let chain = clone(&session).to_string();
    assert!(!chain.contains("endless") && !chain.contains("grammar"), "{chain}");
}

#[test]
fn another_grammar_is_told_or_begins_anew() {
    let Some(model) = stories() else { return };
    let mut session = model.session().unwrap();
    let how = Generate::new().seed(4).regex("[a-z]{3} [a-z]{3}").unwrap();
    session.generate("One day", &how.clone().max_tokens(2)).unwrap().text().unwrap();
    let other = Generate::new().seed(4).regex("[0-9]{4}").unwrap();
    let error = session.resume(&other).unwrap_err().to_string();
    assert!(error.contains("give the same samplers, or draw anew"), "{error}");
    // Of the same grammar, to go on beyond its end is another thing too.
    assert!(session.resume(&how.clone().ignore_end()).is_err());
    let text = session.resume_anew(&other).unwrap().text().unwrap();
    assert!(text.len() == 4 && text.bytes().all(|b| b.is_ascii_digit()), "{text}");
}

#[test]
fn a_draw_without_a_token_is_the_sampler_s_error() {
    let Some(model) = stories() else { return };
    let mut how = Generate::greedy().grammar("root ::= \"x\"").unwrap();
    // All but the letter is forbidden by the grammar, and the letter by a bias.
    how.sampler.logit_bias = (0..512).map(|id| (id, f32::NEG_INFINITY)).collect();
    let mut session = model.session().unwrap();
    let error = session.generate("One day", &how).unwrap().text().unwrap_err();
    assert!(matches!(error, ogive::Error::Sampler(_)), "{error:?}");
}

#[test]
fn a_space_that_the_grammar_asks_for_is_in_the_text() {
    let Some(model) = stories() else { return };
    let mut session = model.session().unwrap();
    for text in [" yes", "yes", "  yes"] {
        let how = Generate::greedy().grammar(&format!("root ::= \"{text}\"")).unwrap();
        assert_eq!(session.generate("", &how).unwrap().text().unwrap(), text);
    }
}
