//! What a model thinks is no part of its answer: as it comes, in the next turn, and in files.
#![allow(clippy::unwrap_used)]

#[path = "common/words.rs"]
mod words;

use ogive::sampler::Chain;
use ogive::tokenizer::template::{ChatOptions, ChatTemplate, Message};
use ogive::{Chat, Generate, Model, Prompt};
use std::path::Path;

/// Reads `reasoning_content`, as Qwen3's does.
const TAGS: &str = "{% for m in messages %}{{ '<|' ~ m.role ~ '|>' }}\
    {% if m.reasoning_content is string %}{{ '<think>\n' ~ m.reasoning_content ~ '\n</think>\n\n' }}{% endif %}\
    {{ m.content ~ '<|im_end|>' }}{% endfor %}<|assistant|>";
const THOUGHT: [&str; 9] = ["<think>", "\n", "Hm.", "\n", "</think>", "\n", "\n", "Four.", "<|im_end|>"];

/// Reads `thinking`, as gpt-oss's does.
const CHANNELS: &str = "{% for m in messages %}{% if m.thinking is defined %}\
    {{ '<|start|>assistant<|channel|>analysis<|message|>' ~ m.thinking ~ '<|end|>' }}{% endif %}\
    {{ '<|start|>' ~ m.role ~ ('<|channel|>final' if m.role == 'assistant' else '') }}\
    {{ '<|message|>' ~ m.content ~ '<|end|>' }}{% endfor %}<|start|>assistant";
const ANALYSIS: [&str; 11] = [
    "<|channel|>",
    "analysis",
    "<|message|>",
    "Hm.",
    "<|end|>",
    "<|start|>",
    "assistant",
    "<|channel|>",
    "final",
    "<|message|>",
    "Four.",
];

/// With the marks of `template`, and what is said here.
fn model(folder: &Path, template: &str) -> Model {
    let special = ["<|im_end|>", "<|user|>", "<|assistant|>", "<|return|>", "<|call|>"];
    let channels = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>"];
    let channels = if template == CHANNELS { &channels[..] } else { &[] };
    let plain = ["<think>", "</think>", "Hm.", "Four.", "user", "assistant", "analysis", "final"];
    words::model(folder, &[&special, channels].concat(), &plain)
}

/// Draws these words after what `template` makes of the messages.
fn script(model: &Model, template: &str, messages: &[Message], words: &[&str]) -> Chain {
    let prompt = ChatTemplate::new(template).unwrap().render_chat(messages, &ChatOptions::default()).unwrap();
    words::script(model, &prompt, words)
}

fn chat(model: &Model, template: &str) -> Chat {
    Chat::new(model.session().unwrap(), ChatTemplate::new(template).unwrap()).unwrap()
}

fn questions(n: usize) -> Vec<Message> {
    let answer = Message::new("assistant", "Four.").thinking("Hm.");
    let turn = |_| [Message::new("user", "q"), answer.clone()];
    let mut all: Vec<Message> = (0..n).flat_map(turn).collect();
    all.pop();
    all
}

#[test]
fn the_next_turn_has_thoughts_apart() {
    let folder = tempfile::tempdir().unwrap();
    for (template, words) in [(TAGS, &THOUGHT[..]), (CHANNELS, &ANALYSIS)] {
        let model = model(folder.path(), template);
        let mut chat = chat(&model, template);
        let how = Generate::greedy().max_tokens(words.len());
        let mut reply = chat.send_with("q", &how, script(&model, template, &questions(1), words)).unwrap();
        let (mut thinking, mut answer) = (String::new(), String::new());
        while let Some(parts) = reply.step_parts().unwrap() {
            thinking += &parts.thinking;
            answer += &parts.answer;
        }
        assert_eq!((&*thinking, &*answer, reply.thinking()), ("Hm.", "Four.", "Hm."));
        assert_eq!(reply.text().unwrap(), "Four.");
        drop(reply);
        let mut reply = chat.send_with("q", &how, script(&model, template, &questions(2), words)).unwrap();
        assert_eq!(reply.by_ref().map(Result::unwrap).collect::<Vec<_>>(), ["Four."]);
        let prompt = reply.generation().prompt_ids();
        let prompt = model.tokenizer().unwrap().decode_with_special(prompt).unwrap();
        let rendered = ChatTemplate::new(template).unwrap();
        assert_eq!(prompt, rendered.render_chat(&questions(2), &ChatOptions::default()).unwrap());
        assert!(prompt.contains("Hm.") && prompt.matches("Four.").count() == 1, "{prompt}");
        // The template writes what the model did.
        assert!(reply.generation().times().prompt_tokens < 10, "{:?}", reply.generation().times());
        drop(reply);
        assert_eq!(chat.messages()[..3], questions(2));
        assert_eq!(chat.messages()[3], questions(2)[1]);
    }
}

#[test]
fn a_template_may_begin_the_thought() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path(), TAGS);
    for (end, words, thinking, answer) in [
        ("<think>\n", &["Hm.", "\n", "</think>", "\n", "Four.", "<|im_end|>"][..], "Hm.", "Four."),
        ("<think>\n\n</think>\n\n", &["Four.", "<|im_end|>"], "", "Four."),
        ("", &["Four.", "<think>", "<|im_end|>"], "", "Four.<think>"),
        ("", &["\n", "Four.", "<|im_end|>"], "", "\nFour."),
    ] {
        let template = format!("{TAGS}{{{{ '{}' }}}}", end.replace('\n', "\\n"));
        let mut chat = chat(&model, &template);
        let chain = script(&model, &template, &questions(1), words);
        let mut reply = chat.send_with("q", &Generate::greedy(), chain).unwrap();
        assert_eq!((&*reply.text().unwrap(), reply.thinking()), (answer, thinking), "{end:?}");
        drop(reply);
        let message = &chat.messages()[1];
        assert_eq!((&*message.content, &*message.thinking), (answer, thinking));
    }
}

#[test]
fn an_answer_that_is_cut_goes_on_in_its_part() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk.session");
    for (template, words) in [(TAGS, &THOUGHT[..]), (CHANNELS, &ANALYSIS)] {
        let model = model(folder.path(), template);
        let chain = || script(&model, template, &questions(1), words);
        let how = |n| Generate::greedy().max_tokens(n).stop("\n\n\n");
        for cut in 1..words.len() {
            for early in [false, true] {
                let mut begun = chat(&model, template);
                let mut reply = begun.send_with("q", &how(if early { 64 } else { cut }), chain()).unwrap();
                while reply.generation().ids().len() < cut {
                    reply.step_parts().unwrap();
                }
                if !early {
                    reply.text().unwrap();
                }
                drop(reply);
                assert!(begun.messages()[1].content.len() <= 5);
                begun.save(&path).unwrap();
                let mut session = model.load_session(&path).unwrap();
                session.resume_with(&how(words.len() - cut), chain()).unwrap().text().unwrap();
                session.save(&path).unwrap();
                let mut later =
                    Chat::new(model.load_session(&path).unwrap(), ChatTemplate::new(template).unwrap())
                        .unwrap();
                assert_eq!(*later.messages(), questions(2)[..2], "{cut} of {words:?}, {early}");
            }
        }
    }
}

#[test]
fn a_conversation_is_saved_with_its_thoughts() {
    let folder = tempfile::tempdir().unwrap();
    let (model, path) = (model(folder.path(), TAGS), folder.path().join("talk.session"));
    let mut said = chat(&model, TAGS);
    let how = Generate::greedy();
    said.send_with("q", &how, script(&model, TAGS, &questions(1), &THOUGHT)).unwrap().text().unwrap();
    said.save(&path).unwrap();
    let mut other = chat(&model, TAGS);
    other.load(&path).unwrap();
    let loaded = Chat::new(model.load_session(&path).unwrap(), ChatTemplate::new(TAGS).unwrap()).unwrap();
    for mut chat in [said, other, loaded] {
        assert_eq!(*chat.messages(), questions(2)[..2]);
        let chain = script(&model, TAGS, &questions(2), &THOUGHT);
        let mut reply = chat.send_with("q", &how, chain).unwrap();
        assert_eq!(reply.text().unwrap(), "Four.");
        assert!(reply.generation().times().prompt_tokens < 10, "{:?}", reply.generation().times());
    }
}

#[test]
fn who_wants_all_tokens_gets_one_text() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path(), TAGS);
    let raw = THOUGHT[..8].concat();
    let all = [
        Generate::greedy().show_special(),
        #[cfg(feature = "grammar")]
        Generate::greedy().regex("[^z]*").unwrap(),
    ];
    for how in all {
        let mut chat = chat(&model, TAGS);
        let mut reply = chat.send_with("q", &how, script(&model, TAGS, &questions(1), &THOUGHT)).unwrap();
        assert_eq!((reply.text().unwrap(), reply.thinking()), (raw.clone(), ""));
        drop(reply);
        assert_eq!(chat.messages()[1], Message::new("assistant", raw.clone()));
    }
    // As does a session.
    let mut session = model.session().unwrap();
    let chain = script(&model, TAGS, &questions(1), &THOUGHT);
    let prompt = ChatTemplate::new(TAGS).unwrap().render_chat(&questions(1), &ChatOptions::default());
    let mut answer =
        session.generate_with(Prompt::Rendered(prompt.unwrap()), &Generate::greedy(), chain).unwrap();
    assert_eq!(answer.text().unwrap(), raw);
}
