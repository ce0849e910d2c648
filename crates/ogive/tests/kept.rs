//! What is kept in files and of files: conversations that no model has read yet, others in their place, and who may read them.

mod common;

use common::*;
use ogive::backend::Backend;
use ogive::tokenizer::template::{ChatTemplate, Message};
use ogive::{Chat, Generate, Model, Options};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The CPU, and how many caches it was asked for.
#[derive(Debug)]
struct Counting {
    inner: ogive::cpu::CpuBackend,
    caches: AtomicUsize,
}

impl Counting {
    fn around<T>(
        &self,
        name: &'static str,
        f: impl FnOnce(&dyn Backend) -> ogive::tensor::Result<T>,
    ) -> ogive::tensor::Result<T> {
        self.caches.fetch_add(usize::from(name == "new_cache"), Relaxed);
        f(&self.inner)
    }
}

impl Backend for Counting {
    ogive::backend::forward_required!();
}

fn file() -> Option<PathBuf> {
    Some(shared()?.join("models/stories260K/stories260K-q8_0.gguf"))
}

fn template() -> ChatTemplate {
    ChatTemplate::new("{{ bos_token }}{% for m in messages %}{{ m.content }} {% endfor %}").unwrap()
}

fn chat(model: &Model) -> Chat {
    Chat::new(model.session().unwrap(), template()).unwrap()
}

#[test]
fn a_conversation_takes_the_place_of_another_in_the_cache() {
    let Some(file) = file() else { return };
    let inner = ogive::cpu::CpuBackend::builder().threads(1).build().unwrap();
    let counting = Arc::new(Counting { inner, caches: AtomicUsize::new(0) });
    let model = Options::new().backend(Arc::clone(&counting) as Arc<dyn Backend>).open(file).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (path, bad) = (folder.path().join("talk"), folder.path().join("bad"));
    let how = Generate::greedy().max_tokens(12);
    let mut first = chat(&model);
    first.send("Once upon a time", &how).unwrap().text().unwrap();
    first.save(&path).unwrap();
    let want = first.send("Lily", &how).unwrap().text().unwrap();
    let mut second = chat(&model);
    second.send("One day, a big dog went to the park with Tom and his mom.", &how).unwrap().text().unwrap();
    let (said, held) = (second.messages().clone(), second.session().tokens().to_vec());
    assert_eq!(counting.caches.load(Relaxed), 2);
    // What is not good in its last byte replaces nothing.
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&bad, bytes).unwrap();
    for wrong in [&bad, &folder.path().join("none")] {
        assert!(second.load(wrong).unwrap_err().to_string().contains(wrong.to_str().unwrap()));
        assert_eq!(*second.messages(), said);
        assert_eq!(second.session().tokens(), held);
    }
    let mut twin = chat(&model);
    twin.send(said[0].content.clone(), &how).unwrap().text().unwrap();
    let next = twin.send("Then", &how).unwrap().text().unwrap();
    let mut reply = second.send("Then", &how).unwrap();
    assert_eq!(reply.text().unwrap(), next);
    assert!(reply.generation().times().prompt_tokens < 6, "it was still in the cache");
    drop(reply);
    second.load(&path).unwrap();
    assert_eq!(second.messages().len(), 2);
    let mut reply = second.send("Lily", &how).unwrap();
    assert_eq!(reply.text().unwrap(), want);
    assert!(reply.generation().times().prompt_tokens < 6, "and so is the other");
    drop(reply);
    assert_eq!(counting.caches.load(Relaxed), 3, "one for each conversation that was begun");
    // A session that has held nothing yet takes one too.
    let mut session = model.session().unwrap();
    session.load(&path).unwrap();
    assert!(!session.resume(&how).unwrap().text().unwrap().is_empty());
}

#[test]
fn a_conversation_that_nothing_was_read_of_is_saved() {
    let Some(file) = file() else { return };
    let model = ogive::open(file).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk");
    let how = Generate::greedy().max_tokens(12);
    assert!(chat(&model).save(&path).unwrap_err().to_string().contains("holds no tokens yet"));
    let said = |texts: &[(&str, &str)]| -> Vec<Message> {
        texts.iter().map(|(role, text)| Message::new(*role, *text)).collect()
    };
    let long = "word ".repeat(2000);
    for messages in [
        said(&[("system", "A story.")]),
        said(&[("user", "Once upon"), ("assistant", "a time")]),
        // More than the model could go on with.
        said(&[("user", &long)]),
    ] {
        let mut written = chat(&model);
        written.messages().clone_from(&messages);
        written.save(&path).unwrap();
        let mut read = Chat::new(model.load_session(&path).unwrap(), template()).unwrap();
        assert_eq!(*read.messages(), messages);
        if messages[0].content == long {
            continue;
        }
        // It goes on as one that was never saved, and so does the one that was.
        let mut twin = chat(&model);
        twin.messages().clone_from(&messages);
        let want = twin.send("Then", &how).unwrap().text().unwrap();
        for chat in [&mut written, &mut read] {
            assert_eq!(chat.send("Then", &how).unwrap().text().unwrap(), want);
        }
        // What comes without a question is nobody's message.
        let mut session = model.load_session(&path).unwrap();
        session.resume_anew(&how).unwrap().text().unwrap();
        session.save(&path).unwrap();
        let mut read = Chat::new(model.load_session(&path).unwrap(), template()).unwrap();
        assert_eq!(*read.messages(), messages);
    }
}

#[test]
#[cfg(unix)]
fn who_may_read_a_session_does_not_change() {
    use std::os::unix::fs::PermissionsExt;
    let Some(file) = file() else { return };
    let model = ogive::open(file).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    let mut session = model.session().unwrap();
    session.generate("One day", &Generate::greedy().max_tokens(3)).unwrap().text().unwrap();
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    session.save(&path).unwrap();
    assert_eq!(mode(), 0o600, "a new one is its owner's");
    for kept in [0o600, 0o644, 0o660] {
        fs::set_permissions(&path, fs::Permissions::from_mode(kept)).unwrap();
        session.save(&path).unwrap();
        assert_eq!(mode(), kept);
    }
}
