//! Calls told as they come are those that the whole text has, wherever it is cut.

// Skips are said aloud.
#![allow(clippy::print_stdout, clippy::print_stderr)]

#[path = "common/calls.rs"]
mod calls;
mod common;

use calls::{CODER, FAMILIES, QWEN, dice, object, slipped, template, tools};
use common::shared;
use ogive_tokenizer::template::{ChatOptions, ChatTemplate, Message};
use ogive_tokenizer::tools::{CallEvent, CallStream, CallSyntax, Spoken, ToolCall};
use serde_json::{Map, Value, json};

/// What pieces come to; panics if events contradict each other.
#[derive(Default)]
struct Told {
    text: String,
    calls: Vec<ToolCall>,
    open: Option<(String, String)>,
    taken_back: bool,
}

impl Told {
    fn hear(&mut self, events: Vec<CallEvent>) {
        for event in events {
            match event {
                CallEvent::Text(text) => {
                    assert!(self.open.is_none() && !text.is_empty());
                    self.text += &text;
                }
                CallEvent::Begins { index, name } => {
                    assert_eq!((index, &self.open), (self.calls.len(), &None));
                    self.open = Some((name, String::new()));
                }
                CallEvent::Arguments { index, json } => {
                    assert!(index == self.calls.len() && !json.is_empty());
                    self.open.as_mut().unwrap().1 += &json;
                }
                CallEvent::Ends { index, call } => {
                    let (name, arguments) = self.open.take().unwrap();
                    let arguments: Value = serde_json::from_str(&arguments).unwrap();
                    assert_eq!(
                        (index, name, arguments),
                        (self.calls.len(), call.name.clone(), Value::from(call.arguments.clone()))
                    );
                    self.calls.push(call);
                }
                CallEvent::TakenBack { index } => {
                    assert!(self.open.is_some() || index < self.calls.len());
                    (self.open, self.taken_back) = (None, true);
                    self.calls.truncate(index);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

fn told<'t>(mut stream: CallStream, pieces: impl IntoIterator<Item = &'t str>) -> Told {
    let mut told = Told::default();
    pieces.into_iter().for_each(|piece| told.hear(stream.push(piece)));
    told.hear(stream.finish());
    assert_eq!((stream.calls(), &told.open), (&*told.calls, &None));
    told
}

fn letters(text: &str) -> impl Iterator<Item = &str> {
    text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()])
}

#[track_caller]
fn same(syntax: &CallSyntax, whole: &Spoken, told: &Told, at: &str) {
    assert_eq!((&told.text, &told.calls), (&whole.text, &whole.calls), "{at}: {syntax:?}");
}

/// Cut at every place, letter by letter, and into random pieces.
fn cut(syntax: &CallSyntax, text: &str, random: &mut impl FnMut(usize) -> usize) -> Spoken {
    let tools = tools();
    let whole = syntax.read(text, &tools, 3);
    let stream = syntax.stream(&tools, 3);
    for at in (0..=text.len()).filter(|at| text.is_char_boundary(*at)) {
        let (a, b) = text.split_at(at);
        same(syntax, &whole, &told(stream.clone(), [a, b]), &format!("{a}|{b}"));
    }
    let by_letters = told(stream.clone(), letters(text));
    same(syntax, &whole, &by_letters, text);
    for _ in 0..8 {
        let mut pieces = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let mut at = (1 + random(12)).min(rest.len());
            while !rest.is_char_boundary(at) {
                at += 1;
            }
            let (piece, behind) = rest.split_at(at);
            pieces.push(piece);
            rest = behind;
        }
        same(syntax, &whole, &told(stream.clone(), pieces.iter().copied()), &pieces.join("|"));
    }
    whole
}

#[test]
fn families_calls_come_as_they_are_read() {
    let mut random = dice(11);
    for (family, calls, said) in FAMILIES {
        let template = template(calls);
        let syntax = template.call_syntax().unwrap();
        for text in [
            said.to_owned(),
            format!("Let me see: é\n\n{said}\n\nand so on "),
            format!("{said}{said}"),
            format!("{said} <tool_call> {said}"),
        ] {
            cut(syntax, &text, &mut random);
        }
        // Nothing of what was told of whole calls was wrong.
        assert!(!told(syntax.stream(&tools(), 0), letters(said)).taken_back, "{family}");
    }
}

/// Whatever a model says, and wherever it is cut, no more and no less is told.
#[test]
fn slips_come_as_they_are_read() {
    let mut random = dice(11);
    let (mut called, mut taken_back) = (0, 0);
    for (_, calls, said) in FAMILIES {
        let template = template(calls);
        let syntax = template.call_syntax().unwrap();
        let chars: Vec<char> = format!("a {said}\nb").chars().collect();
        for _ in 0..600 {
            let text = slipped(chars[2 * random(2)..].to_vec(), &chars, &mut random);
            let whole = syntax.read(&text, &tools(), 0);
            let told = told(syntax.stream(&tools(), 0), letters(&text));
            same(syntax, &whole, &told, &text);
            called += told.calls.len();
            taken_back += usize::from(told.taken_back);
        }
    }
    assert!(called > 2000 && taken_back > 500, "{called} {taken_back}");
}

#[test]
fn real_templates_calls_come_as_they_are_read() {
    let Some(shared) = shared() else { return };
    let mut random = dice(11);
    let text = "two\nlines: \"quoted\", {braced}, 'x' \\ <b>é</b>";
    let hard =
        json!({ "city": text, "days": 3, "exact": true, "also": ["a", "b, c"], "near": { "lat": -1.5 } });
    let hard = ToolCall::new("call00001", "get_weather", object(hard));
    let now = ToolCall::new("call00002", "now", Map::new());
    let mut called = 0;
    for path in std::fs::read_dir(shared.join("templates")).unwrap().map(|e| e.unwrap().path()) {
        if path.extension().is_none_or(|e| e != "jinja") {
            continue;
        }
        let template = ChatTemplate::new(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let Ok(syntax) = template.call_syntax() else { continue };
        if path.ends_with("meetkai-functionary-medium-v3.2.jinja") {
            let said = "all\nSee:\n>>>get_weather\n{\"city\": \"Bern\"}>>>now\n{}>>>all\nSo >>all";
            for text in [said, &said[9..], "all", "now\n{", ">>", ">>>all\n"] {
                cut(syntax, text, &mut random);
            }
        }
        let mut options = ChatOptions::default();
        options.add_generation_prompt = false;
        options.tools = tools();
        for calls in [vec![hard.clone(), now.clone()], vec![hard.clone()]] {
            let said = [Message::new("user", "And?"), Message::new("assistant", "").calls(calls)];
            let Ok(whole) = template.render_chat(&said, &options) else { continue };
            let turn = &whole[whole.rfind("And?").unwrap() + 4..];
            let turn = if syntax.marks().is_empty() { &turn[turn.find("{\"").unwrap()..] } else { turn };
            let spoken = syntax.read(turn, &tools(), 0);
            let told = told(syntax.stream(&tools(), 0), letters(turn));
            same(syntax, &spoken, &told, turn);
            let from = turn.find("get_weather").unwrap();
            let from = (0..=from).rev().find(|at| *at + 60 < from || *at == 0).unwrap();
            let from = (from..).find(|at| turn.is_char_boundary(*at)).unwrap();
            cut(syntax, &turn[from..], &mut random);
            called += told.calls.len();
        }
    }
    assert!(called > 60);
}

#[test]
fn what_leaves_arguments_out_is_known_before() {
    let template = template(QWEN);
    let syntax = template.call_syntax().unwrap();
    let now = |name: &str| name == "now";
    for (before, more, out) in [
        ("{\"name\": \"now\"", "}", true),
        ("{\"name\": \"now", "\"}\n", true),
        ("[{\"function\": {\"name\": \"now\", \"id\": \"}", "\"}}]", true),
        ("{\"name\": \"now\", \"arguments\"", ": {}}", true),
        ("{\"name\": \"now\", \"arguments\"", ": {\"a\": 1}}", false),
        ("{\"name\": \"now\", \"id\": \"}", "}", false),
        ("{\"name\": \"now\"", ", \"x\": 1}", false),
        ("{\"name\": \"get_weather\"", "}", false),
    ] {
        let mut stream = syntax.stream(&tools(), 0);
        stream.push(&format!("<tool_call>{before}"));
        assert!(stream.may_leave_out(), "{before}");
        assert_eq!(stream.leaves_out(more, now), out, "{before} {more}");
    }
    let mut stream = syntax.stream(&tools(), 0);
    stream.push("<tool_call>{\"name\": \"now\", \"arguments\": {");
    assert!(!stream.may_leave_out());
}

#[test]
fn nothing_waits_for_longer_than_it_has_to() {
    let pieces = |calls: &str, pieces: &[&str]| {
        let template = template(calls);
        let mut stream = template.call_syntax().unwrap().stream(&tools(), 0);
        let mut all: Vec<Vec<CallEvent>> = pieces.iter().map(|piece| stream.push(piece)).collect();
        all.push(stream.finish());
        all
    };
    let text = |text: &str| CallEvent::Text(text.into());
    let begins = |index, name: &str| CallEvent::Begins { index, name: name.into() };
    let json = |index, json: &str| CallEvent::Arguments { index, json: json.into() };
    let ends = |index: usize, name: &str, arguments: Value| {
        let call = ToolCall::new(format!("call{:05}", index + 1), name, object(arguments));
        CallEvent::Ends { index, call }
    };
    let bern = json!({ "city": "Bern" });
    // Spaces wait for what follows them; arguments for the name alone.
    assert_eq!(
        pieces(
            QWEN,
            &[
                "So",
                ": ",
                "\n<tool",
                "_call>{\"arguments\": {\"city\": ",
                "\"Be",
                "rn\"}, \"name\": \"get_weather",
                "\"}",
                "</tool_call>"
            ]
        ),
        [
            vec![text("So")],
            vec![text(":")],
            vec![],
            vec![],
            vec![],
            vec![],
            vec![
                begins(0, "get_weather"),
                json(0, "{\"city\": \"Bern\"}"),
                ends(0, "get_weather", bern.clone())
            ],
            vec![],
            vec![],
        ]
    );
    // A text's letters, but for those that may be the end of it.
    assert_eq!(
        pieces(
            CODER,
            &[
                "<tool_call>\n<function=get_weather>",
                "\n<parameter=city>\nB",
                "e",
                "rn\n</par",
                "ameter>\n<parameter=days>\n1",
                "2\n</parameter>",
                "</function>",
                "x"
            ]
        ),
        [
            vec![begins(0, "get_weather")],
            vec![json(0, "{\"city\":\"B")],
            vec![json(0, "e")],
            vec![json(0, "rn")],
            vec![json(0, "\",\"days\":")],
            vec![json(0, "12")],
            vec![json(0, "}"), ends(0, "get_weather", json!({ "city": "Bern", "days": 12 }))],
            vec![text("x")],
            vec![],
        ]
    );
    // Python that is none.
    assert_eq!(
        pieces(QWEN, &["<tool_call>[now(", "a long list of them", " and more"]),
        [
            vec![begins(0, "now")],
            vec![CallEvent::TakenBack { index: 0 }, text("<tool_call>[now(a long list of them")],
            vec![text(" and more")],
            vec![],
        ]
    );
    // A mark that was spoken of, and what was cut short.
    assert_eq!(
        pieces(
            QWEN,
            &["I use <tool_call>", " a lot", "<tool_call>{\"name\": \"now\", \"arguments\": {\"a", "\": 1"]
        ),
        [
            vec![text("I use")],
            vec![text(" <tool_call> a lot")],
            vec![begins(0, "now"), json(0, "{\"a")],
            vec![json(0, "\": 1")],
            vec![
                CallEvent::TakenBack { index: 0 },
                text("<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1")
            ],
        ]
    );
}

#[test]
fn special_tokens_are_marks_and_no_text() {
    let template = template(QWEN);
    let syntax = template.call_syntax().unwrap();
    let said = |pieces: &[(&str, bool)]| {
        let mut stream = syntax.stream(&tools(), 0);
        let mut told = Told::default();
        for (piece, special) in pieces {
            told.hear(if *special { stream.push_special(piece) } else { stream.push(piece) });
        }
        told.hear(stream.finish());
        (told.text, told.calls.len())
    };
    let now = ("{\"name\": \"now\"}", false);
    let call = ("<tool_call>", true);
    assert_eq!(said(&[("<other>", true), ("a", false), call, now]), ("a".into(), 1));
    assert_eq!(said(&[("a", false), call, ("b", false)]), ("ab".into(), 0));
    assert_eq!(
        said(&[("a", false), call, now, ("</tool_call>", true), ("<other>", true), (" b", false)]),
        ("a\n\nb".into(), 1)
    );
    // One within another, one that is not ended, and one before a call without a mark.
    assert_eq!(
        said(&[("a", false), ("|<tool_call>|", true), now, ("b", false)]),
        ("a{\"name\": \"now\"}b".into(), 0)
    );
    assert_eq!(said(&[("|<tool", true), ("d", false)]), ("d".into(), 0));
    assert_eq!(said(&[("|<tool", true), ("_call>", false), now]), (String::new(), 1));
    assert_eq!(said(&[("<other>", true), now]), (String::new(), 1));
}

/// What a service streams may be long: time grows with it, not with its square.
#[test]
fn long_arguments_are_looked_at_once() {
    for (calls, before, behind) in [
        (QWEN, "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"", "\"}}</tool_call>"),
        (
            CODER,
            "<tool_call>\n<function=get_weather>\n<parameter=city>\n",
            "\n</parameter>\n</function>\n</tool_call>",
        ),
    ] {
        let template = template(calls);
        let mut stream = template.call_syntax().unwrap().stream(&tools(), 0);
        let mut told = Told::default();
        told.hear(stream.push(before));
        (0..100_000).for_each(|_| told.hear(stream.push("some </ more ")));
        told.hear(stream.push(behind));
        told.hear(stream.finish());
        assert_eq!(told.calls[0].arguments["city"].as_str().map(str::len), Some(1_300_000));
    }
}
