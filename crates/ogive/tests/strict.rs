//! Calls that a model begins by itself have arguments by their tools' schemas.
#![cfg(feature = "grammar")]
#![allow(clippy::unwrap_used)]

#[path = "common/calls.rs"]
mod calls;
#[path = "common/words.rs"]
mod words;

use calls::{BARE, CHANNELS, MARKS, TAGS};
use ogive::tokenizer::template::{ChatOptions, ChatTemplate, Message};
use ogive::{CallEvent, Chat, Generate, Model, Tool, ToolCall};
use serde_json::{Value, json};

#[test]
fn a_call_that_the_model_begins_is_held_to_the_schema() {
    let folder = tempfile::tempdir().unwrap();
    let zones = ["est", "utc"];
    // That arguments are an object goes without saying.
    let schema = json!({ "properties": { "zone": { "$ref": "#/$defs/zone" } }, "required": ["zone"],
        "additionalProperties": false, "$defs": { "zone": { "enum": zones } } });
    let zone = Tool::new("now", "", schema);
    let whole = r#"{"name": "now", "arguments": {"zone": "utc"}}"#;
    let object = r#"{"name": "now", "arguments":"#;
    let cases: [(&str, &[&str], usize); 9] = [
        (TAGS, &["<tool_call>", "\n", object], 0),
        (TAGS, &["See.", "<tool_call>", object, " "], 0),
        // The first token of the arguments begins before them, and has more of them than a bracket.
        (TAGS, &["<tool_call>", "{\"name\": \"now\", \"arguments", "\":{\""], 0),
        (TAGS, &["<tool_call>", "{\"type\": \"function\", \"function\": ", object], 0),
        // One that is whole, and another.
        (TAGS, &["<tool_call>", whole, "</tool_call>", "<tool_call>", object], 1),
        (TAGS, &["<tool_call>", "[", whole, ",", object], 1),
        (MARKS, &["[TOOL_CALLS]", "now", "[ARGS]"], 0),
        (BARE, &[object], 0),
        (CHANNELS, &[" to=functions.now", "<|channel|>", "commentary", "<|message|>"], 0),
    ];
    for (n, (template, words, before)) in (1..).zip(cases) {
        let special =
            ["<|im_end|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|call|>", "[TOOL_CALLS]", "[ARGS]"];
        let channels = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>"];
        let channels = if template == CHANNELS { &channels[..] } else { &[] };
        let plain =
            ["<tool_call>", "</tool_call>", "See.", "commentary", " to=functions.now", "\":{\"", whole];
        let model = words::model(folder.path(), &[&special, channels].concat(), &plain);
        let says = |how: &Generate| {
            let chat = Chat::new(model.session().unwrap(), ChatTemplate::new(template).unwrap()).unwrap();
            let mut chat = chat.tools([zone.clone()]).unwrap();
            let mut options = ChatOptions::default();
            options.tools = vec![zone.clone()];
            let prompt = ChatTemplate::new(template).unwrap();
            let prompt = prompt.render_chat(&[Message::new("user", "q")], &options).unwrap();
            let chain = words::begun(&model, &prompt, words, n);
            let mut reply = chat.send_with("q", how, chain).unwrap();
            let mut ended = Vec::new();
            while let Some(parts) = reply.step_parts().unwrap() {
                for event in parts.calling {
                    match event {
                        CallEvent::Ends { call, .. } => ended.push(call),
                        CallEvent::TakenBack { index } if words.get(1) != Some(&"[") => ended.truncate(index),
                        _ => {}
                    }
                }
            }
            ended
        };
        let how = Generate::new().max_tokens(140);
        let is_held = |call: &ToolCall| {
            let zone = call.arguments.get("zone").and_then(Value::as_str);
            call.arguments.len() == 1 && zone.is_some_and(|zone| zones.contains(&zone))
        };
        for how in
            [how.clone().strict(), how.clone().strict().ignore_end()].iter().take(if n == 1 { 2 } else { 1 })
        {
            let ended = says(how);
            assert!(ended.len() > before && ended.iter().all(is_held), "{words:?}: {ended:?}");
        }
        // By itself the model does not write so.
        assert!(!says(&how)[before..].iter().any(is_held), "{words:?}");
    }
}

/// functionary's, where `>` may begin what says that text follows, and waits.
const LEAD: &str = "{{ tools|tojson if tools }}{% for m in messages %}<|{{ m.role }}|>\n{% if m.role != 'assistant' %}{{ m.content }}{% else %}\
    {% if m.content %}{{ '>>>all\n' ~ m.content }}{% endif %}\
    {% for c in m.tool_calls or [] %}{{ '>>>' ~ c.function.name ~ '\n' + c.function.arguments }}{% endfor %}{% endif %}<|im_end|>{% endfor %}\
    {% if add_generation_prompt %}{{ '<|assistant|>\n>>>' }}{% endif %}";

/// The arguments of what is called after these words.
fn says(model: &Model, template: &str, schema: &Value, words: &[&str]) -> ogive::Result<Vec<Value>> {
    let tools = [Tool::new("now", "", schema.clone())];
    let template = || ChatTemplate::new(template).unwrap();
    let mut options = ChatOptions::default();
    options.tools = tools.to_vec();
    let prompt = template().render_chat(&[Message::new("user", "q")], &options).unwrap();
    let mut chat = Chat::new(model.session().unwrap(), template()).unwrap().tools(tools).unwrap();
    let chain = words::begun(model, &prompt, words, 7);
    let mut reply = chat.send_with("q", &Generate::new().max_tokens(80).strict(), chain)?;
    reply.text()?;
    Ok(reply.calls().iter().map(|call| call.arguments.clone().into()).collect())
}

#[test]
fn what_waits_and_what_is_left_out_counts() {
    let folder = tempfile::tempdir().unwrap();
    let special = ["<|im_end|>", "<|user|>", "<|assistant|>"];
    let model = words::model(folder.path(), &special, &["<tool_call>", "é", "\":{\"b", "\"}"]);
    let schema = |zone: &str| {
        json!({ "type": ["object", "null"], "properties": { "zone": { "const": zone } }, "required": ["zone"],
            "additionalProperties": false })
    };
    let zone = "é>>>é>";
    for said in ["{", "{\"zone\":\"é", "{\"zone\":\"é>", "{\"zone\":\"é>>>"] {
        let calls = says(&model, LEAD, &schema(zone), &["now", "\n", said]).unwrap();
        assert_eq!(calls.first(), Some(&json!({ "zone": zone })), "{said}");
    }
    // Drawn before it could be held: it goes on as it likes.
    let begun = ["<tool_call>", "{\"name\": \"now\", \"arguments", "\":{\"b"];
    assert_eq!(says(&model, TAGS, &schema(zone), &begun).unwrap(), Vec::<Value>::new());
    // A call does not end without arguments if it needs some.
    for end in [["{\"name\": \"now\"", "}"], ["{\"name\": \"now", "\"}"]] {
        let words = ["<tool_call>", end[0], end[1], "<|im_end|>"];
        let free = json!({ "properties": { "zone": { "type": "string" } } });
        assert_eq!(says(&model, TAGS, &free, &words).unwrap(), [json!({})]);
        assert!(says(&model, TAGS, &schema("x"), &words).is_err(), "{end:?}");
    }
}

#[test]
fn what_cannot_be_held_is_told_before() {
    let folder = tempfile::tempdir().unwrap();
    let tags = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}<f={{ c.function.name }}>\
        {% for k, v in c.function.arguments.items() %}<k={{ k }}>{{ v }}</k>{% endfor %}</f>{% endfor %}{% endfor %}{{ tools|length }}";
    let model = words::model(folder.path(), &["<|im_end|>", "<|user|>", "<|assistant|>"], &["<tool_call>"]);
    let odd = Tool::new("odd", "", json!({ "type": "object", "not": {} }));
    for (template, tool, why) in [
        (tags, Tool::new("now", "", json!({ "type": "object" })), "not written as JSON"),
        (TAGS, odd, "odd: holding calls to their schemas"),
        (TAGS, Tool::new("word", "", json!({ "type": "string" })), "its `type` should be \"object\""),
    ] {
        let chat = Chat::new(model.session().unwrap(), ChatTemplate::new(template).unwrap()).unwrap();
        let mut chat = chat.tools([tool]).unwrap();
        let e = chat.send("q", &Generate::new().strict()).unwrap_err().to_string();
        assert!(e.contains(why), "{e}");
        assert!(chat.messages().is_empty());
        assert!(chat.send("q", &Generate::new().max_tokens(3)).is_ok());
    }
    let strict = Generate::new().max_tokens(3).strict();
    let chat = || Chat::new(model.session().unwrap(), ChatTemplate::new(TAGS).unwrap()).unwrap();
    let mut with = chat().tools([Tool::new("now", "", json!({}))]).unwrap();
    for (how, why) in [
        (strict.clone().show_special(), "leave out `strict`, or `show_special`"),
        (strict.clone().regex("a").unwrap(), "leave out `strict`, or the grammar"),
    ] {
        let e = with.send("q", &how).unwrap_err().to_string();
        assert!(e.contains(why), "{e}");
    }
    assert!(with.send("q", &strict).is_ok() && chat().send("q", &strict).is_ok());
    let mut session = model.session().unwrap();
    let e = session.generate("q", &strict).unwrap_err().to_string();
    assert!(e.contains("have it in a `Chat` with tools"), "{e}");
}
