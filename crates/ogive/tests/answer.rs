//! Answers that an engine draws, many at a time, are those of sessions and chats.
#![allow(clippy::unwrap_used)]

#[path = "common/calls.rs"]
#[allow(dead_code)]
mod calls;
#[path = "common/words.rs"]
mod words;

use ogive::engine::{Finish, Request};
use ogive::tokenizer::template::{ChatTemplate, Message};
use ogive::{Answer, Chat, Conversation, Device, Generate, Model, Options, Parts, Tool};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

/// All that comes of them, in one engine of four at a time.
fn together(model: &Model, asked: Vec<(Request, Answer)>) -> Vec<(Parts, Answer)> {
    let mut engine = model.engine(model.limits().clone().sequences(4)).unwrap();
    let mut open: BTreeMap<_, _> = asked
        .into_iter()
        .map(|(request, answer)| (engine.add(request).unwrap(), (Parts::default(), answer)))
        .collect();
    while !engine.is_idle() {
        for event in engine.step().unwrap() {
            let (id, (parts, answer)) = (event.id, open.get_mut(&event.id).unwrap());
            parts.push(&answer.take(event).unwrap());
            if answer.finish().is_some() {
                engine.cancel(id);
            }
        }
    }
    open.into_values().collect()
}

#[test]
fn many_texts_at_once_are_those_of_sessions() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-demo-model/model.gguf");
    let model = Options::new().device(Device::Cpu).threads(2).context(128).open(path).unwrap();
    let how = |seed| Generate::new().max_tokens(30).seed(seed).stop("dog").stop(" the");
    let prompts = ["Once upon a time", "The dog", "Lily and Tom", "Lily and Tom", "In the garden"];
    let asked = (0..).zip(prompts).map(|(seed, prompt)| model.ask(prompt, &how(seed)).unwrap()).collect();
    let mut stopped = 0;
    for ((seed, prompt), (parts, answer)) in (0..).zip(prompts).zip(together(&model, asked)) {
        let mut session = model.session().unwrap();
        let mut alone = session.generate(prompt, &how(seed)).unwrap();
        assert_eq!(parts.answer, alone.text().unwrap(), "{prompt}");
        assert_eq!((answer.ids(), answer.finish()), (alone.ids(), alone.finish()), "{prompt}");
        stopped += usize::from(answer.finish() == Some(&Finish::Stop));
    }
    assert!(stopped > 0, "no stop string came");
}

const WORDS: [&str; 5] = ["<think>", "</think>", "<tool_call>", "</tool_call>", "See."];
const CALL: &str = r#"{"name": "now", "arguments": {"zone": "cet"}}"#;

#[test]
fn a_conversation_is_told_apart_as_a_chat() {
    let folder = tempfile::tempdir().unwrap();
    let model = words::model(folder.path(), &["<|im_end|>", "<|assistant|>"], &WORDS);
    let tool =
        Tool::new("now", "", json!({ "type": "object", "properties": { "zone": { "type": "string" } } }));
    let template = || ChatTemplate::new(calls::TAGS).unwrap();
    let says = ["<think>", "Hm.", "</think>", "See.", "<tool_call>", CALL, "</tool_call>", "<|im_end|>"];

    let mut chat = Chat::new(model.session().unwrap(), template()).unwrap().tools([tool.clone()]).unwrap();
    chat.messages().push(Message::new("user", "t?"));
    let prompt = "1<|user|>t?<|im_end|><|assistant|>";
    let how = Generate::greedy();
    let mut reply = chat.reply_with(&how, words::script(&model, prompt, &says)).unwrap();
    let mut want = Parts::default();
    while let Some(parts) = reply.step_parts().unwrap() {
        want.push(&parts);
    }
    drop(reply);

    let mut talk = Conversation::new(&model, template()).unwrap().tools([tool]).unwrap();
    talk.messages().push(Message::new("user", "t?"));
    let ask = |talk: &Conversation| {
        let (mut request, answer) = talk.ask(&how).unwrap();
        request.chain = words::script(&model, prompt, &says);
        (request, answer)
    };
    for (parts, answer) in together(&model, vec![ask(&talk), ask(&talk)]) {
        assert_eq!(parts, want);
        assert_eq!(answer.finish(), Some(&Finish::Stop));
    }
    assert_eq!((&*want.thinking, &*want.answer, want.calls.len()), ("Hm.", "See.", 1));
    assert!(model.ask("text", &Generate::new()).is_ok());
}

#[cfg(feature = "grammar")]
#[test]
fn a_call_that_is_asked_for_is_made_in_two_questions() {
    let folder = tempfile::tempdir().unwrap();
    let model = words::model(folder.path(), &["<|im_end|>", "<|assistant|>"], &WORDS);
    let zone = json!({ "type": "object", "properties": { "zone": { "enum": ["cet", "utc"] } }, "required": ["zone"],
        "additionalProperties": false });
    let tools = ["now", "then"].map(|name| Tool::new(name, "", zone.clone()));
    let mut talk =
        Conversation::new(&model, ChatTemplate::new(calls::TAGS).unwrap()).unwrap().tools(tools).unwrap();
    talk.messages().push(Message::new("user", "t?"));
    let how = Generate::new().max_tokens(80);
    let name = talk.ask_name(&how).unwrap();
    let name = together(&model, vec![name]).remove(0).0.answer;
    assert!(["now", "then"].contains(&&*name), "{name}");
    let arguments = talk.ask_arguments(&name, &how).unwrap();
    let arguments = together(&model, vec![arguments]).remove(0).0.answer;
    let arguments: serde_json::Value = serde_json::from_str(&arguments).unwrap();
    assert!(["cet", "utc"].contains(&arguments["zone"].as_str().unwrap()), "{arguments}");
    assert!(talk.ask_arguments("never", &how).is_err());
    assert_eq!(talk.messages().len(), 1, "what was put there to ask is gone");
}
