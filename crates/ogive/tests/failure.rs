//! A machine that fails in the middle: errors end an iterator, and session and chat are left so that they can go on.

mod common;

use common::*;
use ogive::backend::Backend;
use ogive::tokenizer::template::ChatTemplate;
use ogive::{Chat, Generate, Model, Options};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The CPU, until it is told to fail.
#[derive(Debug)]
struct Faulty {
    inner: ogive::cpu::CpuBackend,
    broken: AtomicBool,
}

impl Faulty {
    fn around<T>(
        &self,
        name: &'static str,
        f: impl FnOnce(&dyn Backend) -> ogive::tensor::Result<T>,
    ) -> ogive::tensor::Result<T> {
        if name == "linear" && self.broken.load(Relaxed) {
            return Err(ogive::tensor::Error::unsupported(name, "told to fail"));
        }
        f(&self.inner)
    }
}

impl Backend for Faulty {
    ogive::backend::forward_required!();
}

fn stories() -> Option<(Arc<Faulty>, Model)> {
    let path = shared()?.join("models/stories260K/stories260K-f32.gguf");
    let inner = ogive::cpu::CpuBackend::builder().threads(1).build().unwrap();
    let faulty = Arc::new(Faulty { inner, broken: AtomicBool::new(false) });
    let model = Options::new().backend(Arc::clone(&faulty) as Arc<dyn Backend>).open(path).unwrap();
    Some((faulty, model))
}

#[test]
fn an_error_ends_the_iterator_and_not_the_session() {
    let Some((machine, model)) = stories() else { return };
    let how = Generate::greedy().max_tokens(20);
    let mut session = model.session().unwrap();
    let want = session.generate("One day", &how).unwrap().text().unwrap();
    let mut story = session.generate("One day", &how).unwrap();
    let begun = story.next().unwrap().unwrap();
    machine.broken.store(true, Relaxed);
    let rest: Vec<_> = story.by_ref().collect();
    assert_eq!(rest.len(), 1, "an error that stays comes once");
    assert!(rest[0].as_ref().unwrap_err().to_string().contains("told to fail"));
    assert!(story.step().is_err(), "who wants to can try again");
    machine.broken.store(false, Relaxed);
    let mut text = begun;
    while let Some(piece) = story.step().unwrap() {
        text += &piece;
    }
    assert_eq!(text, want);
    drop(story);
    assert_eq!(session.generate("One day", &how).unwrap().text().unwrap(), want);
}

#[test]
fn an_answer_that_never_began_leaves_the_conversation_as_it_was() {
    let Some((machine, model)) = stories() else { return };
    let template = "{{ bos_token }}{% for m in messages %}{{ m.content }} {% endfor %}";
    let mut chat = Chat::new(model.session().unwrap(), ChatTemplate::new(template).unwrap()).unwrap();
    let how = Generate::greedy().max_tokens(8);
    machine.broken.store(true, Relaxed);
    assert!(chat.send("One day", &how).unwrap().text().is_err());
    assert_eq!(chat.messages().len(), 0);
    machine.broken.store(false, Relaxed);
    assert!(chat.send("x ".repeat(600), &how).is_err(), "longer than the context");
    let mut reply = chat.send("One day", &how).unwrap();
    let first = reply.next().unwrap().unwrap();
    machine.broken.store(true, Relaxed);
    assert!(reply.next().unwrap().is_err());
    drop(reply);
    let said: Vec<_> = chat.messages().iter().map(|m| m.content.clone()).collect();
    assert_eq!(said, ["One day".to_owned(), first], "what has come is kept");
}
