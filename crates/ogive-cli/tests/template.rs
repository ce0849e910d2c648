//! `ogive template`, against what transformers renders.

mod common;

use common::{ogive, shared, shared_json};
use serde_json::{Value, json};
use std::fs;

#[test]
fn every_conversation_through_every_template() {
    let Some(golden) = shared_json("templates/rendered.json") else { return };
    let folder = tempfile::tempdir().unwrap();
    let messages = folder.path().join("messages.json");
    let mut rendered = 0;
    for case in golden["cases"].as_array().unwrap() {
        let mut variables = golden["conversations"][case["conversation"].as_str().unwrap()].clone();
        for token in ["bos_token", "eos_token"] {
            variables[token] = case[token].clone();
        }
        fs::write(&messages, variables.to_string()).unwrap();
        let template = shared("templates").unwrap().join(case["template"].as_str().unwrap());
        let now = "2025-01-15T12:34:56";
        let run = ogive(args!["template", "--model", template, "--messages", messages, "--now", now]);
        let what = format!("{} {}", case["template"], case["conversation"]);
        match case["expected"].as_str() {
            Some(expected) => {
                assert_eq!(run.text(), expected, "{what}");
                rendered += 1;
            }
            None => assert!(run.error(1).contains("chat template"), "{what}"),
        }
    }
    assert!(rendered > 200, "{rendered}");
}

#[test]
fn a_list_is_messages_and_a_model_brings_its_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let source = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}\
        {% if add_generation_prompt %}<assistant>{% endif %}";
    let template = path("t.jinja", source);
    let list = path("list.json", &json!([{"role": "user", "content": "Hi"}]).to_string());
    let render = |more: &[&str]| {
        let fixed = args!["template", "--model", template, "--messages", list];
        ogive(fixed.into_iter().chain(more.iter().map(Into::into))).text()
    };
    assert_eq!(render(&[]), "<user>Hi");
    assert_eq!(render(&["--add-generation-prompt"]), "<user>Hi<assistant>");

    let Some(hf) = shared("models/stories260K/hf") else { return };
    let copy = folder.path().join("model");
    fs::create_dir(&copy).unwrap();
    for file in fs::read_dir(hf).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    let config = copy.join("tokenizer_config.json");
    let mut json: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    json["chat_template"] = source.into();
    fs::remove_file(&config).unwrap();
    fs::write(&config, json.to_string()).unwrap();
    assert_eq!(ogive(args!["template", "--model", copy, "--messages", list]).text(), "<s><user>Hi");
    let own = path(
        "own.json",
        &json!({"messages": [], "bos_token": "B", "add_generation_prompt": true}).to_string(),
    );
    assert_eq!(ogive(args!["template", "--model", copy, "--messages", own]).text(), "B<assistant>");

    // With a template, a prompt is a user's message; raw, it is text.
    let run = |more: &[&str]| {
        let fixed = args!["run", "--model", copy, "--temp", "0", "-n", "4", "--json"];
        ogive(fixed.into_iter().chain(more.iter().map(Into::into))).json()["prompt_ids"]
            .as_array()
            .unwrap()
            .len()
    };
    assert!(run(&["Hi"]) > run(&["--raw", "Hi"]) + 5);
    assert_eq!(run(&[""]), 1, "an empty prompt is BOS alone");
}
