//! Real chat templates against the reference: what transformers and jinja2 rendered, or the error they gave.
//!
//! The exceptions are named in [`EXCEPTIONS`] with their reasons, and a case that is named there and passes fails the
//! test: the list cannot outlive its reasons.

// Skips and counts are said aloud.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod common;

use common::{json as read_json, shared};
use ogive_tokenizer::template::{Attached, ChatOptions, ChatTemplate, DateTime, Message, TemplateError};
use serde_json::{Map, Value, json};
use std::fs;

/// Template, conversation, reason.
const EXCEPTIONS: [(&str, &str, &str); 0] = [];

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} is no string in {value}"))
}

/// Compares one outcome with the reference; returns what is wrong.
fn difference(outcome: &Result<String, TemplateError>, expected: Option<&str>) -> Option<String> {
    match (outcome, expected) {
        (Ok(text), Some(expected)) if text == expected => None,
        (Ok(text), Some(expected)) => Some(format!("--- expected\n{expected}\n--- found\n{text}")),
        (Ok(text), None) => Some(format!("the reference fails, this rendered {text:?}")),
        (Err(_), None) => None,
        (Err(error), Some(_)) => Some(format!("the reference renders, this fails: {error}")),
    }
}

#[test]
fn real_templates_render_as_in_transformers() {
    let Some(shared) = shared() else { return };
    let folder = shared.join("templates");
    let data = read_json(&folder.join("rendered.json"));
    let now = DateTime::new(2025, 1, 15, 12, 34, 56);
    let (mut rendered, mut refused, mut wrong) = (0, 0, Vec::new());
    for case in data["cases"].as_array().unwrap() {
        let (file, conversation) = (text(case, "template"), text(case, "conversation"));
        let source = fs::read_to_string(folder.join(file)).unwrap();
        let mut variables: Map<String, Value> =
            data["conversations"][conversation].as_object().unwrap().clone();
        for token in ["bos_token", "eos_token"] {
            variables.insert(token.into(), case[token].clone());
        }
        let outcome = ChatTemplate::new(&source).and_then(|t| t.render(&Value::Object(variables), now));
        let expected = case.get("expected").and_then(Value::as_str);
        match (difference(&outcome, expected), expected) {
            (Some(difference), _) => wrong.push((file.to_string(), conversation.to_string(), difference)),
            (None, Some(_)) => rendered += 1,
            (None, None) => refused += 1,
        }
        if let (Err(TemplateError::Raised { message }), Some(error)) = (&outcome, case.get("error")) {
            let error = error.as_str().unwrap();
            assert_eq!(error, format!("TemplateError: {message}"), "{file}, {conversation}");
        }
    }
    println!("{rendered} cases render the same, {refused} are refused by both, {} differ", wrong.len());
    let unnamed: Vec<_> = wrong
        .iter()
        .filter(|(file, conversation, _)| !EXCEPTIONS.iter().any(|e| e.0 == file && e.1 == conversation))
        .map(|(file, conversation, difference)| format!("{file}, {conversation}:\n{difference}"))
        .collect();
    assert!(unnamed.is_empty(), "{}", unnamed.join("\n\n"));
    assert_eq!(wrong.len(), EXCEPTIONS.len(), "an exception is named that does not occur");
    assert_eq!(rendered + refused + wrong.len(), 288);
}

#[test]
fn published_cases_render_as_in_jinja2() {
    let Some(shared) = shared() else { return };
    let data = read_json(&shared.join("templates").join("inline_cases.json"));
    let (mut same, mut wrong) = (0, Vec::new());
    for case in data["cases"].as_array().unwrap() {
        let mut variables = Map::new();
        for key in ["messages", "add_generation_prompt", "bos_token", "eos_token"] {
            variables.insert(key.into(), case[key].clone());
        }
        let outcome =
            ChatTemplate::new(text(case, "template")).and_then(|t| t.render(&Value::Object(variables), None));
        match difference(&outcome, case["python_jinja2"].as_str()) {
            None => same += 1,
            Some(difference) => wrong.push(format!("{}:\n{difference}", text(case, "name"))),
        }
    }
    println!("{same} cases are the same, {} differ", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert_eq!(same, 36);
}

#[test]
fn variables_must_be_an_object() {
    let template = ChatTemplate::new("x").unwrap();
    let error = template.render(&json!([1]), None).unwrap_err();
    assert!(matches!(error, TemplateError::Variables { .. }), "{error}");
}

#[test]
fn thoughts_are_there_where_there_are_any() {
    let all = "{% for m in messages %}{{ m.content }}|{{ m.reasoning_content }}|{{ m.thinking }}|{{ m|length }}\n{% endfor %}";
    let said = [
        Message::new("user", "2+2?"),
        Message::new("assistant", "4").thinking("2 and 2"),
        Message::new("user", "+1?"),
    ];
    let rendered = ChatTemplate::new(all).unwrap().render_chat(&said, &ChatOptions::default()).unwrap();
    assert_eq!(rendered, "2+2?|||2\n4|2 and 2|2 and 2|4\n+1?|||2\n");
    // No published template minds, and those that show the thoughts of the last answer do.
    let Some(shared) = shared() else { return };
    let (mut seen, mut last) = (0, ChatOptions::default());
    last.add_generation_prompt = false;
    for entry in std::fs::read_dir(shared.join("templates")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "jinja") {
            continue;
        }
        let template = ChatTemplate::new(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for (messages, options) in [(&said[..], &ChatOptions::default()), (&said[..2], &last)] {
            let mut plain = messages.to_vec();
            plain[1].thinking.clear();
            let with = template.render_chat(messages, options).map_err(|e| e.to_string());
            let without = template.render_chat(&plain, options).map_err(|e| e.to_string());
            assert_eq!(with.as_ref().err(), without.as_ref().err(), "{}", path.display());
            seen += usize::from(with.is_ok_and(|text| text.contains("2 and 2")));
        }
    }
    assert!(seen >= 10, "{seen}");
}

#[test]
fn what_is_attached_stands_before_what_is_said() {
    // As Qwen2-VL's does it: texts as they are, and parts by their kind.
    let both = "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}\
        {% if part.type == 'image' %}[IMG]{% elif 'text' in part %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}";
    // As SmolVLM's: parts alone.
    let parts = "{% for m in messages %}<{{ m.role }}>{% for part in m['content'] %}\
        {% if part['type'] == 'text' %}{{ part['text'] }}{% elif part['type'] == 'image' %}{{ '[IMG]' }}{% endif %}{% endfor %}{% endfor %}";
    let image = Attached::new("image", 7u8);
    assert_eq!((image.kind(), image.get::<u8>(), image.get::<u16>()), ("image", Some(&7), None));
    assert!(image == image.clone() && image != Attached::new("image", 7u8));
    let seen = [
        Message::new("user", "What is it?").attach(image.clone()).attach(image),
        Message::new("assistant", "A cat, twice."),
    ];
    for source in [both, parts] {
        let template = ChatTemplate::new(source).unwrap();
        let rendered =
            |messages: &[Message]| template.render_chat(messages, &ChatOptions::default()).unwrap();
        assert_eq!(rendered(&seen), "<user>[IMG][IMG]What is it?<assistant>A cat, twice.");
        assert_eq!(rendered(&seen[1..]), "<assistant>A cat, twice.");
        assert_eq!(rendered(&[Message::new("user", "")]), "<user>");
    }
}
