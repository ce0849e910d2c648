//! Conversations: what they say, how much that was, and the bytes of a stream.

use crate::calls::TAGS;
use crate::client::{Client, demo};
use crate::talker;
use axum::http::header;
use ogive::{Generate, Model};
use ogive_server::{Options, axum};
use serde_json::{Value, json};

const PATH: &str = "/v1/chat/completions";
const ASKED: &str = "What is the capital of France?";

fn asked(more: Value) -> Value {
    let mut json =
        json!({ "model": "any", "messages": [{ "role": "user", "content": ASKED }], "temperature": 0 });
    json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json
}

/// What the library says, and how many tokens it read and drew.
fn told(model: &Model, how: &Generate) -> (String, usize, usize) {
    let mut chat = model.chat().unwrap();
    let mut reply = chat.send(ASKED, how).unwrap();
    let text = reply.text().unwrap();
    (text, reply.generation().prompt_ids().len(), reply.generation().ids().len())
}

fn joined(events: &[Value], pointer: &str) -> String {
    events.iter().filter_map(|event| event.pointer(pointer)?.as_str()).collect()
}

#[test]
fn an_answer_is_the_librarys_whole_and_in_a_stream() {
    let model = demo(256);
    let (text, read, drawn) = told(&model, &Generate::greedy());
    let usage = json!({ "prompt_tokens": read, "completion_tokens": drawn, "total_tokens": read + drawn });
    let client = Client::new(model, Options::new().name("tales"));
    let answer =
        client.ask(PATH, &asked(json!({ "user": "somebody", "store": false, "n": null, "unheard_of": 1 })));
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-") && answer["created"].is_u64());
    assert_eq!((&answer["object"], &answer["model"]), (&json!("chat.completion"), &json!("tales")));
    let message = json!({ "role": "assistant", "content": text, "refusal": null });
    assert_eq!(
        answer["choices"],
        json!([{ "index": 0, "message": message, "logprobs": null, "finish_reason": "stop" }])
    );
    assert_eq!(answer["usage"], usage);

    let stream =
        client.post(PATH, &asked(json!({ "stream": true, "stream_options": { "include_usage": true } })));
    let events = stream.events();
    let choice = |delta: Value, finish: Value| json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }]);
    assert_eq!(events[0]["choices"], choice(json!({ "role": "assistant", "content": "" }), Value::Null));
    assert_eq!(joined(&events, "/choices/0/delta/content"), text);
    let [.., last, count] = &*events else { panic!("{events:?}") };
    assert_eq!(last["choices"], choice(json!({}), json!("stop")));
    assert_eq!((&count["choices"], &count["usage"]), (&json!([]), &usage));
    for event in &events {
        assert_eq!((&event["object"], &event["id"]), (&json!("chat.completion.chunk"), &events[0]["id"]));
        assert!(event["usage"].is_null() || event == count);
    }
    assert_eq!(stream.headers[header::CACHE_CONTROL], "no-cache");
    let silent = client.post(PATH, &asked(json!({ "stream": true }))).events();
    assert!(
        silent.iter().all(|event| event.get("usage").is_none())
            && !silent.last().unwrap()["choices"][0]["finish_reason"].is_null()
    );
}

#[test]
fn an_answer_ends_where_it_is_told_to() {
    let model = demo(128);
    let (text, ..) = told(&model, &Generate::greedy());
    let client = Client::new(model, Options::new().defaults(Generate::new().stop("Rome")));
    let ended = |more: Value| {
        let answer = client.ask(PATH, &asked(more));
        let choice = &answer["choices"][0];
        let text = choice["message"]["content"].as_str().unwrap().to_owned();
        (
            text,
            choice["finish_reason"].as_str().unwrap().to_owned(),
            answer["usage"]["completion_tokens"].as_u64().unwrap(),
        )
    };
    for name in ["max_tokens", "max_completion_tokens"] {
        let (cut, finish, tokens) = ended(json!({ name: 3 }));
        assert!(text.starts_with(&cut) && cut.len() < text.len(), "{cut}");
        assert_eq!((&*finish, tokens), ("length", 3));
    }
    let (before, finish, _) = ended(json!({ "stop": "Paris" }));
    assert_eq!((before + "Paris", &*finish), (text[..text.find("Paris").unwrap() + 5].to_owned(), "stop"));
    assert_eq!(ended(json!({ "stop": ["never", "Paris"] })), ended(json!({ "stop": "Paris" })));
    let (_, finish, tokens) = ended(json!({ "ignore_eos": true, "max_tokens": 40 }));
    assert_eq!((&*finish, tokens), ("length", 40));
    // As many as there is room for.
    let (_, finish, tokens) = ended(json!({ "ignore_eos": true, "max_tokens": -1 }));
    assert!(finish == "length" && tokens > 40);
}

#[test]
fn several_answers_have_seeds_of_their_own() {
    let client = Client::new(demo(128), Options::new());
    let hot = |more: Value| {
        let mut json =
            asked(json!({ "temperature": 1.5, "max_tokens": 16, "top_k": 0, "min_p": 0, "top_p": 1 }));
        json["messages"][0]["content"] = "Tell me a story.".into();
        json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json
    };
    let texts = |json: &Value| -> Vec<String> {
        let answer = client.ask(PATH, json);
        let text = |choice: &Value| choice["message"]["content"].as_str().unwrap().to_owned();
        answer["choices"].as_array().unwrap().iter().map(text).collect()
    };
    let three = texts(&hot(json!({ "n": 3, "seed": 7 })));
    assert!(three[0] != three[1] && three[1] != three[2], "{three:?}");
    for (i, text) in three.iter().enumerate() {
        assert_eq!(texts(&hot(json!({ "seed": 7 + i }))), [text.as_str()]);
    }
    assert_ne!(texts(&hot(json!({}))), texts(&hot(json!({}))), "no seed is another one each time");
    let events = client.post(PATH, &hot(json!({ "n": 3, "seed": 7, "stream": true }))).events();
    for (i, text) in three.iter().enumerate() {
        let own: Vec<Value> = events.iter().filter(|e| e["choices"][0]["index"] == i).cloned().collect();
        assert_eq!(joined(&own, "/choices/0/delta/content"), *text);
    }
}

#[test]
fn tokens_say_how_likely_they_were() {
    let model = demo(128);
    let mut how = Generate::greedy().logprobs(2);
    how.max_tokens = Some(4);
    let mut chat = model.chat().unwrap();
    let mut reply = chat.send(ASKED, &how).unwrap();
    reply.text().unwrap();
    let want = reply.generation().logprobs().to_vec();
    drop(reply);
    let client = Client::new(model, Options::new());
    let json = asked(json!({ "logprobs": true, "top_logprobs": 2, "max_tokens": 4 }));
    let answer = client.ask(PATH, &json);
    let got = answer["choices"][0]["logprobs"]["content"].as_array().unwrap().clone();
    assert_eq!(got.len(), 4);
    for (got, want) in got.iter().zip(&want) {
        assert_eq!((&got["token"], &got["bytes"]), (&json!(want.token.text()), &json!(want.token.bytes)));
        assert_eq!(got["logprob"].as_f64().unwrap(), want.token.logprob);
        assert_eq!(got["top_logprobs"][1]["token"], want.best[1].text());
        assert_eq!(got["top_logprobs"].as_array().unwrap().len(), 2);
    }
    let mut stream = json;
    stream["stream"] = true.into();
    let events = client.post(PATH, &stream).events();
    let all = events.iter().filter_map(|e| e["choices"][0]["logprobs"]["content"].as_array()).flatten();
    assert_eq!(all.cloned().collect::<Vec<_>>(), got);
}

#[test]
fn thoughts_are_no_part_of_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["<think>", "Hm.", "</think>", "See."];
    let chain = ["<|assistant|>", "<think>", "Hm.", "</think>", "See.", "<|im_end|>"];
    let client = Client::new(talker::model(folder.path(), &words, &chain), Options::new().template(TAGS));
    let answer = client.ask(PATH, &asked(json!({})));
    let message = &answer["choices"][0]["message"];
    assert_eq!((&message["reasoning_content"], &message["content"]), (&json!("Hm."), &json!("See.")));
    let events = client.post(PATH, &asked(json!({ "stream": true }))).events();
    assert_eq!(joined(&events, "/choices/0/delta/reasoning_content"), "Hm.");
    assert_eq!(joined(&events, "/choices/0/delta/content"), "See.");
}

#[test]
fn messages_are_what_the_template_makes_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let model = talker::model(folder.path(), &["See."], &["<|assistant|>", "See.", "<|im_end|>"]);
    let tokens = |text: &str| model.encode(&ogive::Prompt::Rendered(text.into())).unwrap().len();
    let template = "{{ v }}{% for m in messages %}[{{ m.role }}:{{ m.content }}{{ m.name }}{{ m.tool_calls|length }}]{% endfor %}<|assistant|>";
    let read = tokens("x[system:a0][user:b\nc0][assistant:1][tool:dnow0]<|assistant|>");
    let client = Client::new(model, Options::new().template(template));
    let call = json!({ "id": "c1", "type": "function", "function": { "name": "now", "arguments": "{}" } });
    let text = |text: &str| json!({ "type": "text", "text": text });
    let json = json!({ "chat_template_kwargs": { "v": "x" }, "messages": [
        { "role": "developer", "content": "a", "name": "n" },
        { "role": "user", "content": [text("b"), text("c")] },
        { "role": "assistant", "content": null, "tool_calls": [call] },
        { "role": "tool", "tool_call_id": "c1", "content": "d" },
    ] });
    assert_eq!(client.ask(PATH, &json)["usage"]["prompt_tokens"], read);
}
