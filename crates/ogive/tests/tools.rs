//! Calls of tools are no part of an answer, and the template writes them as the model did.
#![allow(clippy::unwrap_used)]

#[path = "common/calls.rs"]
mod calls;
#[path = "common/words.rs"]
mod words;

use calls::{BARE, CHANNELS, MARKS, TAGS};
use ogive::tokenizer::template::{ChatOptions, ChatTemplate, Message};
use ogive::{CallEvent, Chat, Generate, Model, Tool, ToolCall};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

const NOW: &str = r#"{"name": "now", "arguments": {"zone": "cet"}}"#;
const ZONE: &str = r#"{"zone": "cet"}"#;

/// A template, what is said, and what that is: thoughts, answer, and whether `now` is called.
const SAID: [(&str, &[&str], [&str; 2], bool); 22] = [
    (TAGS, &["<tool_call>", "\n", NOW, "\n", "</tool_call>", "<|im_end|>"], ["", ""], true),
    (TAGS, &["See.", "\n", "<tool_call>", NOW, "</tool_call>", "\n", "<|im_end|>"], ["", "See."], true),
    (
        TAGS,
        &["<think>", "Hm.", "</think>", "\n", "<tool_call>", NOW, "</tool_call>", "<|im_end|>"],
        ["Hm.", ""],
        true,
    ),
    (TAGS, &["<think>", "<tool_call>", "</think>", "See.", "<|im_end|>"], ["<tool_call>", "See."], false),
    // No call, half of one, and none of a call.
    (TAGS, &["See.", "<|im_end|>"], ["", "See."], false),
    (TAGS, &["See.", "\n", "<tool_call>", "\n", "{"], ["", "See.\n<tool_call>\n{"], false),
    (
        TAGS,
        &["<tool_call>", ZONE, "</tool_call>", "<|im_end|>"],
        ["", "<tool_call>{\"zone\": \"cet\"}</tool_call>"],
        false,
    ),
    (MARKS, &["[TOOL_CALLS]", "now", "[ARGS]", ZONE, "<|im_end|>"], ["", ""], true),
    (MARKS, &["See.", "[TOOL_CALLS]", "now", "[ARGS]", ZONE, "<|im_end|>"], ["", "See."], true),
    (MARKS, &["See.", "[ARGS]", "now", "[TOOL_CALLS]", "<|im_end|>"], ["", "See.now"], false),
    (BARE, &[NOW, "<|im_end|>"], ["", ""], true),
    (BARE, &["\n", "{", "See.", "<|im_end|>"], ["", "\n{See."], false),
    (
        BARE,
        &["See.", NOW, "<|im_end|>"],
        ["", "See.{\"name\": \"now\", \"arguments\": {\"zone\": \"cet\"}}"],
        false,
    ),
    (
        CHANNELS,
        &[
            "<|channel|>",
            "analysis",
            "<|message|>",
            "Hm.",
            "<|end|>",
            "<|start|>",
            "assistant",
            "<|channel|>",
            "commentary",
            "<|message|>",
            "See.",
            "<|end|>",
            "<|start|>",
            "assistant",
            "<|channel|>",
            "commentary",
            " to=functions.now",
            " ",
            "<|constrain|>",
            "json",
            "<|message|>",
            ZONE,
            "<|call|>",
        ],
        ["Hm.", "See."],
        true,
    ),
    (
        CHANNELS,
        &[" to=functions.now", "<|channel|>", "commentary", "<|message|>", "{", "<|call|>"],
        ["", "to=now {"],
        false,
    ),
    (
        CHANNELS,
        &[
            "<|channel|>",
            "commentary",
            " to=functions.now",
            "<|constrain|>",
            "json",
            "<|message|>",
            ZONE,
            "<|call|>",
        ],
        ["", ""],
        true,
    ),
    (
        CHANNELS,
        &[
            " to=functions.now",
            "<|end|>",
            "<|start|>",
            "assistant",
            "<|channel|>",
            "final",
            "<|message|>",
            "See.",
        ],
        ["", "See."],
        false,
    ),
    // Special tokens end a thought, marks of letters do not; a mark that is spoken of hides no call.
    (MARKS, &["<think>", "Hm.", "[TOOL_CALLS]", "now", "[ARGS]", ZONE, "<|im_end|>"], ["Hm.", ""], true),
    (
        TAGS,
        &["See.", "<tool_call>", "Hm.", "<tool_call>", NOW, "</tool_call>", "<|im_end|>"],
        ["", "See.<tool_call>Hm."],
        true,
    ),
    // Of a second call that is cut short no special token shows.
    (
        MARKS,
        &["[TOOL_CALLS]", "now", "[ARGS]", ZONE, "[TOOL_CALLS]", "now", "[ARGS]", "{"],
        ["", "now{"],
        true,
    ),
    // An object by itself is a call if there is such a tool.
    (TAGS, &[NOW, "<|im_end|>"], ["", ""], true),
    (
        BARE,
        &["{", "\"", "name", "\"", ":", "\"", "See.", "\"", "}", "<|im_end|>"],
        ["", "{\"name\":\"See.\"}"],
        false,
    ),
];

fn model(folder: &Path, template: &str) -> Model {
    let special = [
        "<|im_end|>",
        "<|user|>",
        "<|assistant|>",
        "<|tool|>",
        "<|return|>",
        "<|call|>",
        "[TOOL_CALLS]",
        "[ARGS]",
    ];
    let channels = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>"];
    let channels = if template == CHANNELS { &channels[..] } else { &[] };
    let plain = [
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        NOW,
        ZONE,
        "{",
        "Hm.",
        "See.",
        "now",
        "name",
        "final",
        "assistant",
        "analysis",
        "commentary",
        "json",
        " to=functions.now",
    ];
    words::model(folder, &[&special, channels].concat(), &plain)
}

fn tool() -> Tool {
    let zone = json!({ "type": "object", "properties": { "zone": { "type": "string" } } });
    Tool::new("now", "What time it is", zone)
}

fn chat(model: &Model, template: &str) -> Chat {
    let chat = Chat::new(model.session().unwrap(), ChatTemplate::new(template).unwrap()).unwrap();
    chat.tools([tool()]).unwrap()
}

fn rendered(template: &str, messages: &[Message]) -> String {
    let mut options = ChatOptions::default();
    options.tools = vec![tool()];
    ChatTemplate::new(template).unwrap().render_chat(messages, &options).unwrap()
}

fn call(n: usize) -> ToolCall {
    let arguments: Map<String, Value> = serde_json::from_str(ZONE).unwrap();
    ToolCall::new(format!("call{n:05}"), "now", arguments)
}

#[test]
fn calls_are_told_from_answers() {
    let folder = tempfile::tempdir().unwrap();
    for (template, words, [thinking, answer], called) in SAID {
        let model = model(folder.path(), template);
        let mut chat = chat(&model, template);
        let question = Message::new("user", "q");
        let chain = words::script(&model, &rendered(template, std::slice::from_ref(&question)), words);
        let mut reply = chat.send_with("q", &Generate::greedy().max_tokens(words.len()), chain).unwrap();
        let (mut text, mut thought, mut calls) = (String::new(), String::new(), Vec::new());
        let (mut arguments, mut ended) = (Vec::new(), Vec::new());
        while let Some(parts) = reply.step_parts().unwrap() {
            text += &parts.answer;
            thought += &parts.thinking;
            calls.extend(parts.calls);
            for event in parts.calling {
                match event {
                    CallEvent::Begins { index, name } => {
                        assert_eq!((index, &*name), (arguments.len(), "now"), "{words:?}");
                        arguments.push(String::new());
                    }
                    CallEvent::Arguments { index, json } => arguments[index] += &json,
                    CallEvent::Ends { index, call } => {
                        assert_eq!(index, ended.len(), "{words:?}");
                        ended.push(call);
                    }
                    CallEvent::TakenBack { index } => {
                        arguments.truncate(index);
                        ended.truncate(index);
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!((ended.len(), &ended), (arguments.len(), &calls), "{words:?}");
        for (call, json) in ended.iter().zip(&arguments) {
            assert_eq!(serde_json::from_str::<Map<_, _>>(json).unwrap(), call.arguments, "{words:?}");
        }
        let want = if called { vec![call(1)] } else { Vec::new() };
        assert_eq!((&*thought, &*text, &calls), (thinking, answer, &want), "{words:?}");
        assert_eq!((reply.thinking(), reply.calls()), (thinking, &*want), "{words:?}");
        drop(reply);
        let content = if called { answer.trim_end() } else { answer };
        let message = Message::new("assistant", content).thinking(thinking).calls(want);
        assert_eq!(chat.messages()[..], [question, message], "{words:?}");
    }
}

#[test]
fn the_model_goes_on_with_what_came_of_a_call() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk.session");
    for (template, words, ..) in SAID.into_iter().filter(|said| said.3) {
        let model = model(folder.path(), template);
        let mut first = chat(&model, template);
        let mut said = vec![Message::new("user", "q")];
        let chain = words::script(&model, &rendered(template, &said), words);
        let how = Generate::greedy().max_tokens(words.len());
        first.send_with("q", &how, chain).unwrap().text().unwrap();
        let result = call(1).result("noon");
        first.messages().push(result.clone());
        first.save(&path).unwrap();
        said = first.messages().clone();
        let later = Chat::new(model.load_session(&path).unwrap(), ChatTemplate::new(template).unwrap());
        for mut chat in [first, later.unwrap().tools([tool()]).unwrap()] {
            assert_eq!(*chat.messages(), said);
            let prompt = rendered(template, &said);
            assert!(prompt.contains("cet") && prompt.contains("noon"), "{prompt}");
            let mut reply = chat.reply_with(&how, words::script(&model, &prompt, words)).unwrap();
            reply.text().unwrap();
            assert_eq!(reply.calls(), [call(2)], "ids are counted on");
            drop(reply);
            assert_eq!(chat.messages().len(), 4);
            // Without a token the result stays, where a question would go.
            let none =
                chat.reply_with(&Generate::greedy().max_tokens(1), ogive::sampler::Chain::greedy()).unwrap();
            drop(none);
            assert_eq!((chat.messages().len(), &chat.messages()[2]), (4, &result));
        }
    }
}

#[test]
fn an_answer_that_is_dropped_keeps_what_was_held_back() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path(), TAGS);
    let words = ["See.", "<tool_call>", NOW, "</tool_call>", "<|im_end|>"];
    for (drawn, content, calls) in [(2, "See.<tool_call>", vec![]), (3, "See.", vec![call(1)])] {
        let mut chat = chat(&model, TAGS);
        let chain = words::script(&model, &rendered(TAGS, &[Message::new("user", "q")]), &words);
        let mut reply = chat.send_with("q", &Generate::greedy(), chain).unwrap();
        while reply.generation().ids().len() < drawn {
            reply.step().unwrap();
        }
        drop(reply);
        assert_eq!(chat.messages()[1], Message::new("assistant", content).calls(calls));
    }
}

#[test]
fn a_template_for_tools_is_taken_where_the_main_one_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let plain = "{% for m in messages %}{{ m.content }}{% endfor %}";
    model(folder.path(), TAGS);
    let mut config = json!({ "eos_token": "<|im_end|>", "chat_template": plain });
    for there in [false, true] {
        if there {
            config["chat_template"] =
                json!([{ "name": "default", "template": plain }, { "name": "tool_use", "template": TAGS }]);
        }
        fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).unwrap();
        let chat = ogive::open(folder.path()).unwrap().chat().unwrap();
        let had = chat.tools([tool()]);
        assert_eq!(had.is_ok(), there);
        if let Err(e) = had {
            assert!(
                e.to_string().starts_with("chat template does not show how its model calls tools"),
                "{e}"
            );
        }
    }
}

#[test]
#[cfg(feature = "grammar")]
fn a_model_that_has_to_calls_by_the_schema() {
    let folder = tempfile::tempdir().unwrap();
    let zone = json!({ "enum": ["est", "utc"] });
    let tool = |name: &str| {
        let schema = json!({ "type": "object", "properties": { "zone": zone }, "required": ["zone"], "additionalProperties": false });
        Tool::new(name, "", schema)
    };
    for template in [TAGS, MARKS, BARE, CHANNELS] {
        let model = model(folder.path(), template);
        let chat = || {
            let chat = Chat::new(model.session().unwrap(), ChatTemplate::new(template).unwrap()).unwrap();
            let mut chat = chat.tools([tool("now"), tool("day.of")]).unwrap();
            chat.messages().push(Message::new("user", "q"));
            chat
        };
        let how = |seed| Generate::new().seed(seed).max_tokens(40);
        for (seed, name) in (1..).zip([None, None, Some("now"), Some("day.of")]) {
            let mut chat = chat();
            let call = chat.call(name, &how(seed)).unwrap();
            assert!(
                ["now", "day.of"].contains(&&*call.name) && name.is_none_or(|name| name == call.name),
                "{call:?}"
            );
            assert!(
                call.arguments.len() == 1
                    && zone["enum"].as_array().unwrap().contains(&call.arguments["zone"]),
                "{call:?}"
            );
            assert_eq!(chat.waits_for(), Some(&call));
            assert_eq!(chat.messages()[1..], [Message::new("assistant", "").calls(vec![call])]);
            // The template writes what the model has filled in.
            let reply = chat.tell("noon", &how(seed)).unwrap().unwrap();
            let text =
                model.tokenizer().unwrap().decode_with_special(reply.generation().prompt_ids()).unwrap();
            assert!(reply.generation().times().prompt_tokens < text.len() / 2, "{text}");
        }
        for (tool, how, why) in [
            (Some("then"), how(1), "there is no such tool"),
            (None, how(1).max_tokens(2), "cut short"),
            (None, how(1).regex("a").unwrap(), "held to another grammar"),
        ] {
            let mut chat = chat();
            let e = chat.call(tool, &how).unwrap_err();
            assert!(e.to_string().contains(why), "{e}");
            assert_eq!(chat.messages().len(), 1);
        }
    }
    let tags = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}<f={{ c.function.name }}>\
        {% for k, v in c.function.arguments.items() %}<k={{ k }}>{{ v }}</k>{% endfor %}</f>{% endfor %}{% endfor %}{{ tools|length }}";
    let model = model(folder.path(), TAGS);
    let chat = Chat::new(model.session().unwrap(), ChatTemplate::new(tags).unwrap()).unwrap();
    let e = chat.tools([tool("now")]).unwrap().call(None, &Generate::new()).unwrap_err();
    assert!(e.to_string().contains("not written as JSON"), "{e}");
}

#[test]
fn calls_come_piece_by_piece() {
    let folder = tempfile::tempdir().unwrap();
    for (template, words, from) in [
        (
            TAGS,
            &[
                "See.",
                "<tool_call>",
                "{\"name\": \"now\", \"arguments\": {\"zone\": \"c",
                "et\"}}",
                "<|im_end|>",
            ][..],
            2,
        ),
        (
            CHANNELS,
            &[
                " to=functions.now",
                "<|channel|>",
                "commentary",
                "<|message|>",
                "{\"zone\": \"c",
                "et\"}",
                "<|call|>",
            ],
            4,
        ),
    ] {
        let model = model(folder.path(), template);
        let mut chat = chat(&model, template);
        let chain = words::script(&model, &rendered(template, &[Message::new("user", "q")]), words);
        let mut reply = chat.send_with("q", &Generate::greedy().max_tokens(100), chain).unwrap();
        let mut before = Vec::new();
        while let Some(parts) = reply.step_parts().unwrap() {
            if reply.calls().is_empty() {
                before.extend(parts.calling);
            }
        }
        // A letter a step.
        assert_eq!(before[0], CallEvent::Begins { index: 0, name: "now".into() });
        assert!(before.len() > words[from].len() / 3, "{before:?}");
        assert_eq!(reply.calls(), [call(1)]);
    }
}
