//! Answers that are held to a form: by a schema, and as calls that a client asks for.

use crate::calls::{MARKS, TAGS};
use crate::client::{Client, demo};
use crate::words;
use ogive_server::Options;
use serde_json::{Value, json};

const PATH: &str = "/v1/chat/completions";

fn asked(more: Value) -> Value {
    let mut json = json!({ "messages": [{ "role": "user", "content": "t?" }], "seed": 1, "max_tokens": 90 });
    json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json
}

fn zone() -> Value {
    json!({ "type": "object", "properties": { "zone": { "enum": ["cet", "utc"] } }, "required": ["zone"], "additionalProperties": false })
}

fn client(template: &str) -> Client {
    let folder = tempfile::tempdir().unwrap();
    let special = ["<|im_end|>", "<|assistant|>", "[TOOL_CALLS]", "[ARGS]"];
    let model = words::model(folder.path(), &special, &["<tool_call>", "</tool_call>"]);
    Client::new(model, Options::new().template(template))
}

#[test]
fn an_answer_is_json_by_its_schema() {
    let client = Client::new(demo(256), Options::new());
    let format =
        json!({ "type": "json_schema", "json_schema": { "name": "z", "strict": true, "schema": zone() } });
    for stream in [false, true] {
        let answer = client.post(PATH, &asked(json!({ "response_format": format, "stream": stream })));
        let events = if stream { answer.events() } else { vec![answer.json()] };
        let part = |event: &Value| {
            let choice = &event["choices"][0];
            choice["message"]["content"]
                .as_str()
                .or(choice["delta"]["content"].as_str())
                .unwrap_or_default()
                .to_owned()
        };
        let text: String = events.iter().map(part).collect();
        let json: Value = serde_json::from_str(&text).unwrap();
        assert!(json == json!({ "zone": "cet" }) || json == json!({ "zone": "utc" }), "{json}");
    }
    let yes = client.ask(PATH, &asked(json!({ "grammar": "root ::= \"yes\"" })));
    assert_eq!(yes["choices"][0]["message"]["content"], "yes");
    let text = client.ask(PATH, &asked(json!({ "response_format": { "type": "text" }, "max_tokens": 3 })));
    assert_eq!(text["choices"][0]["finish_reason"], "length");
    for (format, why) in [
        (json!({ "type": "xml" }), "json_schema"),
        (json!({ "type": "json_schema", "json_schema": { "name": "x" } }), "it is missing"),
        (
            json!({ "type": "json_schema", "json_schema": { "schema": { "type": "nothing" } } }),
            "response_format: ",
        ),
        (json!("json"), "an object"),
    ] {
        let message = client.error(PATH, &asked(json!({ "response_format": format })), 400);
        assert!(message.contains(why), "{message}");
    }
}

#[test]
fn a_call_that_is_asked_for_comes_by_its_schema() {
    let tool = |name: &str| json!({ "type": "function", "function": { "name": name, "description": null, "parameters": zone() } });
    for template in [TAGS, MARKS] {
        let client = client(template);
        let named = json!({ "type": "function", "function": { "name": "then" } });
        for (tools, choice, finish) in [
            (json!([tool("then")]), json!("required"), "tool_calls"),
            (json!([tool("now"), tool("then")]), named, "stop"),
            (json!([tool("now"), tool("then")]), json!("required"), "tool_calls"),
        ] {
            // A stop string within a call would leave half of it.
            let json = asked(json!({ "tools": tools, "tool_choice": choice, "n": 2, "stop": ["\"", "n"] }));
            let answer = client.ask(PATH, &json);
            for of in answer["choices"].as_array().unwrap() {
                let call = &of["message"]["tool_calls"][0];
                let arguments: Value =
                    serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
                assert!(["cet", "utc"].contains(&arguments["zone"].as_str().unwrap()), "{of}");
                let name = call["function"]["name"].as_str().unwrap();
                assert!(tools.to_string().contains(name) && (choice == "required" || name == "then"), "{of}");
                assert_eq!(
                    (&of["finish_reason"], &of["message"]["content"], &call["id"]),
                    (&json!(finish), &Value::Null, &json!("call00001"))
                );
            }
            let mut stream = json;
            stream["stream"] = true.into();
            let events = client.post(PATH, &stream).events();
            for of in answer["choices"].as_array().unwrap() {
                let own = events.iter().filter(|event| event["choices"][0]["index"] == of["index"]);
                let part = |event: &Value| {
                    event
                        .pointer("/choices/0/delta/tool_calls/0/function/arguments")
                        .and_then(Value::as_str)
                        .map(str::to_owned)
                };
                let arguments: String = own.filter_map(part).collect();
                assert_eq!(
                    arguments,
                    of["message"]["tool_calls"][0]["function"]["arguments"].as_str().unwrap()
                );
            }
        }
        let message = client.error(
            PATH,
            &asked(
                json!({ "tools": [tool("now"), tool("then")], "tool_choice": "required", "max_tokens": 1 }),
            ),
            400,
        );
        assert!(message.contains("no room for a call"), "{message}");
    }
}

#[test]
fn what_the_model_calls_by_itself_is_held_where_that_is_asked_for() {
    let client = client(MARKS);
    let mut tool =
        json!({ "type": "function", "function": { "name": "now", "parameters": zone(), "strict": true } });
    let answer = client.ask(PATH, &asked(json!({ "tools": [tool], "max_tokens": 8 })));
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    // That it is held, `ogive` tests; here, that it is asked to.
    tool["function"]["parameters"]["properties"]["zone"] =
        json!({ "type": "string", "contentMediaType": "x/y", "not": {} });
    let message = client.error(PATH, &asked(json!({ "tools": [tool], "max_tokens": 8 })), 400);
    assert!(message.contains("now") && message.contains("schema"), "{message}");
    tool["function"]["strict"] = false.into();
    client.ask(PATH, &asked(json!({ "tools": [tool], "max_tokens": 8 })));
    let both = asked(json!({ "tools": [tool], "response_format": { "type": "json_object" } }));
    assert!(client.error(PATH, &both, 400).contains("calls no tools"));
}
