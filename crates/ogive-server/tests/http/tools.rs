//! Calls of tools that the model begins by itself.

use crate::calls::TAGS;
use crate::client::Client;
use crate::talker;
use ogive_server::Options;
use serde_json::{Value, json};

const PATH: &str = "/v1/chat/completions";
/// A call in two tokens, and one that is spoilt.
const PARTS: [&str; 2] = ["{\"name\": \"now\", \"arguments\": {\"zo", "ne\": \"cet\"}}"];
const SPOILT: &str = "ne\": ?}}";

fn asked(more: Value) -> Value {
    let zone = json!({ "type": "object", "properties": { "zone": { "type": "string" } } });
    let function = json!({ "name": "now", "description": "The time", "parameters": zone });
    let mut json = json!({ "messages": [{ "role": "user", "content": "t?" }], "temperature": 0,
        "tools": [{ "type": "function", "function": function }] });
    json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json
}

/// A model that says these tokens.
fn client(said: &[&str]) -> Client {
    let folder = tempfile::tempdir().unwrap();
    // One that comes back to what it said has no end.
    let ends = said.iter().filter(|word| Some(*word) == said.last()).count() == 1;
    let end: &[&str] = if ends { &["<|im_end|>"] } else { &[] };
    let chain = [&["<|assistant|>"], said, end].concat();
    let words = ["See.", "<tool_call>", "</tool_call>", PARTS[0], PARTS[1], SPOILT];
    // What is mapped stays there.
    Client::new(talker::model(folder.path(), &words, &chain), Options::new().template(TAGS))
}

fn call(id: &str) -> Value {
    let function = json!({ "name": "now", "arguments": "{\"zone\":\"cet\"}" });
    json!([{ "id": id, "type": "function", "function": function }])
}

/// The calls of an answer; how their JSON is spaced is the model's.
fn calls(message: &Value) -> Value {
    let mut calls = message["tool_calls"].clone();
    for call in calls.as_array_mut().into_iter().flatten() {
        let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        call["function"]["arguments"] = arguments.to_string().into();
        call.as_object_mut().unwrap().remove("index");
    }
    calls
}

/// What a client makes of chunks, as OpenAI's does.
fn put_together(events: &[Value]) -> (Value, String) {
    let (mut message, mut finish) = (json!({ "content": "", "tool_calls": [] }), String::new());
    for event in events {
        let choice = &event["choices"][0];
        finish += choice["finish_reason"].as_str().unwrap_or_default();
        let more = choice["delta"]["content"].as_str().unwrap_or_default();
        message["content"] = (message["content"].as_str().unwrap().to_owned() + more).into();
        for part in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let all = message["tool_calls"].as_array_mut().unwrap();
            match all.iter_mut().find(|call| call["index"] == part["index"]) {
                Some(call) => {
                    let more = part["function"]["arguments"].as_str().unwrap();
                    let before = call["function"]["arguments"].as_str().unwrap().to_owned();
                    call["function"]["arguments"] = (before + more).into();
                    assert!(part.get("id").is_none() && part["function"].get("name").is_none());
                }
                None => all.push(part.clone()),
            }
        }
    }
    (message, finish)
}

#[test]
fn a_call_is_told_whole_and_in_a_stream() {
    let client = client(&["See.", "<tool_call>", PARTS[0], PARTS[1], "</tool_call>"]);
    let answer = client.ask(PATH, &asked(json!({})));
    let choice = &answer["choices"][0];
    assert_eq!(
        (&choice["message"]["content"], &choice["finish_reason"]),
        (&json!("See."), &json!("tool_calls"))
    );
    assert_eq!(calls(&choice["message"]), call("call00001"));
    let (message, finish) = put_together(&client.post(PATH, &asked(json!({ "stream": true }))).events());
    assert_eq!((&message["content"], &*finish), (&json!("See."), "tool_calls"));
    assert_eq!(calls(&message), call("call00001"));
    // A later turn counts on.
    let before = json!([{ "id": "x", "type": "function", "function": { "name": "now", "arguments": {} } }]);
    let later = json!({ "messages": [{ "role": "assistant", "tool_calls": before }, { "role": "tool", "tool_call_id": "x", "content": "7" }] });
    assert_eq!(calls(&client.ask(PATH, &asked(later))["choices"][0]["message"]), call("call00002"));
    // Who does not want a call has a model that knows of none: it says what it says.
    let none = client.ask(PATH, &asked(json!({ "tool_choice": "none" })));
    let said = none["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(said.starts_with("See.<tool_call>{") && none["choices"][0]["finish_reason"] == "stop", "{said}");
}

#[test]
fn one_call_is_enough_where_that_is_said() {
    // The model would go on for ever.
    let client = client(&["<tool_call>", PARTS[0], PARTS[1], "</tool_call>", "<tool_call>"]);
    let one = asked(json!({ "parallel_tool_calls": false }));
    let choice = client.ask(PATH, &one)["choices"][0].clone();
    assert_eq!(
        (calls(&choice["message"]), &choice["finish_reason"]),
        (call("call00001"), &json!("tool_calls"))
    );
    let many = client.ask(PATH, &asked(json!({ "max_tokens": 11 })));
    assert!(many["choices"][0]["message"]["tool_calls"].as_array().unwrap().len() > 1, "{many}");
}

#[test]
fn what_begins_as_a_call_and_is_none_is_text_or_an_error() {
    let client = client(&["<tool_call>", PARTS[0], SPOILT, "</tool_call>"]);
    let answer = client.ask(PATH, &asked(json!({})));
    let message = &answer["choices"][0]["message"];
    assert!(
        message["content"].as_str().unwrap().contains("<tool_call>{\"name\"")
            && message.get("tool_calls").is_none(),
        "{message}"
    );
    let stream = client.post(PATH, &asked(json!({ "stream": true })));
    // Whether the call was sent before it was known to be none, the threads decide.
    if stream.text.contains("tool_calls") {
        assert!(
            stream.text.contains("\"error\":{\"message\":\"the model began a call")
                && !stream.text.contains("[DONE]"),
            "{stream:?}"
        );
    } else {
        assert_eq!(put_together(&stream.events()).0["content"], message["content"]);
    }
    // One that is cut is a call that is cut, as far as it was told.
    let cut = client.post(PATH, &asked(json!({ "stream": true, "max_tokens": 2 }))).events();
    let (message, finish) = put_together(&cut);
    let half = message["tool_calls"][0]["function"]["arguments"].as_str();
    assert!(half.map_or(message["content"] != "", |half| half.starts_with("{\"zo")), "{message}");
    assert_eq!(finish, "length");
}
