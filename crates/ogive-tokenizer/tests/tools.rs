//! Calls of tools, as real templates write them, read back.

// Skips and counts are said aloud.
#![allow(clippy::print_stdout, clippy::print_stderr)]

#[path = "common/calls.rs"]
mod calls;
mod common;

use calls::{CODER, FAMILIES, QWEN, dice, object, slipped, template, tools};
use common::shared;
use ogive_tokenizer::template::{ChatOptions, ChatTemplate, Message};
use ogive_tokenizer::tools::{Tool, ToolCall};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// Templates whose calls are not read, and why.
const NONE: [(&str, &str); 5] = [
    ("Kimi-K2-Instruct.jinja", "it changes a list, which sandboxes forbid; Kimi's own writes ids"),
    ("google-gemma-2-2b-it.jinja", "shows no calls"),
    ("llama-cpp-rwkv-world.jinja", "shows no calls"),
    ("microsoft-Phi-3.5-mini-instruct.jinja", "shows no calls"),
    ("muse-glimmer.jinja", "the name of who is spoken to comes first, and is the call's"),
];

#[test]
fn real_templates_calls_are_read_as_they_were_made() {
    let Some(shared) = shared() else { return };
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(shared.join("templates")).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let tools = tools();
    let text = "two\nlines: \"quoted\", {braced}, 'x' \\ <b>é</b>";
    let hard = json!({ "city": text, "days": 3, "exact": true, "also": ["a", "12", "b, c"], "near": { "lat": -1.5, "of": null } });
    let cases = [
        vec![ToolCall::new("call00001", "get_weather", object(json!({ "city": "Zürich" })))],
        vec![ToolCall::new("call00001", "get_weather", object(hard))],
        vec![ToolCall::new("call00001", "now", object(json!({})))],
        vec![ToolCall::new("call00001", "get_weather", object(json!({ "city": "12", "days": 12 })))],
        vec![
            ToolCall::new("call00001", "now", object(json!({}))),
            ToolCall::new("call00002", "get_weather", object(json!({ "city": "Bern" }))),
        ],
    ];
    let mut wrong = Vec::new();
    let mut read = 0;
    for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "jinja")) {
        let file = path.file_name().unwrap().to_str().unwrap();
        let template = ChatTemplate::new(&std::fs::read_to_string(path).unwrap()).unwrap();
        let syntax = template.call_syntax();
        if NONE.iter().any(|(none, _)| *none == file) {
            assert!(syntax.is_err(), "{file} is read after all");
            continue;
        }
        let Ok(syntax) = syntax else {
            wrong.push(format!("{file}: none"));
            continue;
        };
        read += 1;
        for (n, calls) in cases.iter().enumerate() {
            let mut options = ChatOptions::default();
            options.add_generation_prompt = false;
            options.tools.clone_from(&tools);
            let question = Message::new("user", "And?");
            let answer = |calls: &[ToolCall]| {
                template.render_chat(
                    &[question.clone(), Message::new("assistant", "").calls(calls.to_vec())],
                    &options,
                )
            };
            let Ok(whole) = answer(calls) else {
                if calls.len() == 1 {
                    wrong.push(format!("{file} {n}: {:?}", answer(calls)));
                }
                continue;
            };
            let turn = &whole[whole.rfind("And?").unwrap() + 4..];
            let spoken = if syntax.marks().is_empty() {
                syntax.read(&turn[turn.find("{\"").unwrap()..], &tools, 0)
            } else {
                syntax.read(turn, &tools, 0)
            };
            // Those of one call a message have the second in another.
            let single =
                calls.len() > 1 && ["GigaChat", "meta-llama"].iter().any(|one| file.starts_with(one));
            assert!(!single || turn.contains("get_weather"), "{file}: {turn}");
            let want = if single { &calls[..1] } else { &calls[..] };
            // LFM2.5's writes a text's quotes as they are.
            if file.starts_with("LFM2.5") && turn.contains(" 'x' ") {
                continue;
            }
            if !spoken
                .calls
                .iter()
                .map(|c| (&c.name, &c.arguments))
                .eq(want.iter().map(|c| (&c.name, &c.arguments)))
            {
                wrong.push(format!("{file} {n}: {turn:?}\n   {:?}\n", spoken.calls));
                continue;
            }
            // Of the calls nothing is left but what ends any turn.
            let plain = [question.clone(), Message::new("assistant", "Hm.")];
            let (plain, left) =
                (template.render_chat(&plain, &options).unwrap(), spoken.text.rsplit("\n\n").next());
            assert!(single || plain.contains(left.unwrap().trim()), "{file} {n}: {:?}", spoken.text);
            // What was read, and what came of it, is the next turn's beginning.
            let results = spoken.calls.iter().map(|call| call.result("sunny"));
            let mut next = vec![question.clone(), Message::new("assistant", "").calls(spoken.calls.clone())];
            next.extend(results);
            options.add_generation_prompt = true;
            match template.render_chat(&next, &options) {
                Ok(text) if text.matches("sunny").count() == spoken.calls.len() => {}
                other => wrong.push(format!("{file} {n}: {other:?}")),
            }
        }
    }
    println!("{read} templates");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn families_calls_are_read() {
    for (family, calls, said) in FAMILIES {
        let template = template(calls);
        let syntax = template.call_syntax().unwrap_or_else(|e| panic!("{family}: {e}"));
        let spoken = syntax.read(said, &tools(), 4);
        let kimi = family.starts_with("Kimi");
        let id = |own: &str, n: usize| if kimi { own.to_owned() } else { format!("call{n:05}") };
        let mut want = vec![ToolCall::new(
            id("functions.get_weather:0", 5),
            "get_weather",
            object(json!({ "city": "Bern" })),
        )];
        if said.contains("now") {
            want.push(ToolCall::new(id("functions.now:1", 6), "now", Map::new()));
        }
        assert_eq!((&*spoken.text, &spoken.calls), ("", &want), "{family}: {syntax:?}");
        // The template writes them so that they are read again.
        let said = [Message::new("user", "?"), Message::new("assistant", "").calls(want.clone())];
        let written = template.render_chat(&said, &ChatOptions::default()).unwrap();
        let (_, written) = written.split_once("<|assistant|>").unwrap();
        assert_eq!(syntax.read(written, &tools(), 4).calls, want, "{family}: {written}");
    }
}

#[test]
fn models_slips_are_read_or_stay_text() {
    let template = template(QWEN);
    let syntax = template.call_syntax().unwrap();
    let read = |text: &str| {
        let spoken = syntax.read(text, &tools(), 0);
        assert!(spoken.calls.len() < 2);
        spoken.calls.into_iter().next().map(|call| Value::from(call.arguments)).ok_or(spoken.text)
    };
    let bern = Ok(json!({ "city": "Bern" }));
    for arguments in ["arguments", "parameters", "args"] {
        let call = format!(r#"{{"name": "get_weather", "{arguments}": {{"city": "Bern"}}}}"#);
        assert_eq!(read(&format!("<tool_call>{call}</tool_call>")), bern);
        // Without a mark, of a tool that there is.
        assert_eq!(read(&call), bern);
        assert_eq!(read(&format!("```json\n{call}\n```")), Err(format!("```json\n{call}\n```")));
    }
    for nothing in ["null", "\"\"", "{}"] {
        assert_eq!(
            read(&format!("<tool_call>{{\"name\": \"now\", \"arguments\": {nothing}}}")),
            Ok(json!({}))
        );
    }
    for text in [
        r#"{"name": "Bob", "age": 42}"#,
        r#"{"name": "Bob"}"#,
        r#"[{"name": "Alice"}, {"name": "now"}]"#,
        r#"<tool_call>{"name": "now", "arguments": {}, "because": "I want"}</tool_call>"#,
        r#"<tool_call>{"name": "now", "city": "Bern"}</tool_call>"#,
        &format!(
            "<tool_call>{{\"name\": \"now\", \"arguments\": {{\"a\": {}1{}}}}}",
            "[".repeat(60),
            "]".repeat(60)
        ),
    ] {
        assert_eq!(read(text), Err(text.to_owned()));
    }
    assert_eq!(read("I use <tool_call> so: <tool_call>{\"name\": \"now\"}</tool_call>"), Ok(json!({})));
}

#[test]
fn a_schema_says_what_is_text() {
    let template = template(CODER);
    let syntax = template.call_syntax().unwrap();
    let value = |schema: Value, said: &str| {
        let parameters = json!({ "type": "object", "properties": { "a": schema } });
        let text = format!(
            "<tool_call>\n<function=f>\n<parameter=a>\n{said}\n</parameter>\n</function>\n</tool_call>"
        );
        let spoken = syntax.read(&text, &[Tool::new("f", "", parameters)], 0);
        spoken.calls[0].arguments["a"].clone()
    };
    let nothing = json!({ "type": "null" });
    for text in [
        json!({ "type": "string" }),
        json!({ "type": ["string", "null"] }),
        json!({ "anyOf": [{ "type": "string" }, nothing] }),
        json!({ "oneOf": [{ "enum": ["1", "2"] }, nothing] }),
        json!({ "const": "1" }),
    ] {
        for said in ["12", "{\"a\": 1}", "null", " two\nlines ", "True"] {
            assert_eq!(value(text.clone(), said), json!(said), "{text}");
        }
    }
    for other in [
        json!({ "type": "integer" }),
        json!({ "type": ["string", "integer"] }),
        json!({}),
        json!({ "anyOf": [nothing] }),
    ] {
        assert_eq!(value(other.clone(), "12"), json!(12), "{other}");
        assert_eq!(value(other.clone(), "['a', None]"), json!(["a", null]), "{other}");
        assert_eq!(value(other.clone(), "007 or so"), json!("007 or so"), "{other}");
    }
}

#[test]
fn what_is_no_call_stays_text() {
    let template = template(QWEN);
    let syntax = template.call_syntax().unwrap();
    let read = |text: &str| {
        let spoken = syntax.read(text, &[], 0);
        (spoken.text, spoken.calls.len())
    };
    let now = "<tool_call>{\"name\": \"now\"}</tool_call>";
    for text in [
        "",
        "Hi",
        "<tool_call>",
        "<tool_call>{",
        "<tool_call>{}</tool_call>",
        "<tool_call>[]</tool_call>x",
        "{\"name\": \"now\"}",
        "<tool_call>{\"name\": 1}",
        "<tool_call>{\"name\": \"now\", \"arguments\": [1]}",
        "<tool_call>now</tool_call>",
        "<tool_",
    ] {
        assert_eq!(read(text), (text.to_owned(), 0), "{text}");
    }
    assert_eq!(read(&format!("Let me see.\n{now}\n")), ("Let me see.".into(), 1));
    assert_eq!(read(&format!("{now}\nand so on")), ("and so on".into(), 1));
    assert_eq!(
        read(&format!("a {now} b {now}")),
        ("a\n\nb <tool_call>{\"name\": \"now\"}</tool_call>".into(), 1)
    );
    // A second one that was cut short is told, and the first is read.
    assert_eq!(read(&format!("{now}<tool_call>{{\"name\": \"n")), ("{\"name\": \"n".into(), 1));
    let refused = ChatTemplate::new("{{ messages[0].content }}").unwrap();
    assert!(refused.call_syntax().is_err());
}

/// Whatever a model says comes back or is read, without a panic.
#[test]
fn nothing_that_is_said_is_too_much() {
    let mut random = dice(7);
    for (family, calls, said) in FAMILIES {
        let template = template(calls);
        let syntax = template.call_syntax().unwrap_or_else(|e| panic!("{family}: {e}"));
        let chars: Vec<char> = said.chars().collect();
        for _ in 0..2000 {
            let text = slipped(chars.clone(), &chars, &mut random);
            let spoken = syntax.read(&text, &tools(), 0);
            assert!(!spoken.calls.is_empty() || spoken.text == text, "{family}: {text}");
        }
        let deep = format!("{said}{}", said.replace("Bern", &"[{\"".repeat(100_000)));
        assert!(syntax.read(&deep, &[], 0).text.len() <= deep.len());
    }
}

/// functionary 3.2, whose prompt ends with the mark that stands before text as well.
#[test]
fn who_an_answer_is_to_is_no_text() {
    let source = "{{ tools|tojson if tools }}{% for m in messages %}<|{{ m.role }}|>\n\n{% if m.role != 'assistant' %}{{ m.content }}{% else %}\
        {% if m.content %}{{ '>>>all\n' ~ m.content }}{% endif %}\
        {% for c in m.tool_calls or [] %}{{ '>>>' ~ c.function.name ~ '\n' + c.function.arguments }}{% endfor %}{% endif %}<|end|>{% endfor %}\
        {% if add_generation_prompt %}{{ '<|assistant|>\n\n>>>' }}{% endif %}";
    let template = ChatTemplate::new(source).unwrap();
    let syntax = template.call_syntax().unwrap();
    let read = |text: &str| {
        let spoken = syntax.read(text, &tools(), 0);
        (
            spoken.text,
            spoken.calls.into_iter().map(|call| (call.name, Value::from(call.arguments))).collect::<Vec<_>>(),
        )
    };
    let call = |name: &str, arguments| (name.to_owned(), arguments);
    assert_eq!(read("all\nHi {there}"), ("Hi {there}".into(), vec![]));
    assert_eq!(read("now\n{}"), (String::new(), vec![call("now", json!({}))]));
    assert_eq!(
        read("all\nSee:>>>get_weather\n{\"city\": \"Bern\"}>>>now\n{}"),
        ("See:".into(), vec![call("get_weather", json!({ "city": "Bern" })), call("now", json!({}))])
    );
    for text in ["", "all", "now\n{", "Hi", ">>>"] {
        assert_eq!(read(text), (text.to_owned(), vec![]));
    }
    // What waits, and what is taken out, was said; special tokens are told apart.
    let mut stream = syntax.stream(&tools(), 0);
    let mut pushed = String::new();
    for piece in ["n", "ow\n{\"", "é\": \">", ">>", "\u{e9}>>>all\n>", "\"<x>", ", \"a\": 1"] {
        match piece.strip_suffix("<x>") {
            Some(piece) => {
                stream.push_special("<x>");
                stream.push(piece);
                pushed += piece;
            }
            None => {
                stream.push(piece);
                pushed += piece;
            }
        }
        let begins = stream.open().map(|open| stream.pushed_since(open.at));
        assert_eq!(begins, pushed.find('{').map(|at| pushed.len() - at), "{pushed:?}");
    }
}
