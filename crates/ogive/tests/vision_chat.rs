//! Conversations with images: what transformers makes of them, what is read again in the next turn, and what of them is in files.
#![cfg(all(feature = "cpu", feature = "vision"))]
#![allow(clippy::unwrap_used)]

#[path = "common/script.rs"]
mod script;
#[path = "common/vision.rs"]
mod vision;

use ogive::tokenizer::template::Message;
use ogive::{Chat, Generate, Image, Model, Prompt};
use script::script_after;
use std::sync::atomic::Ordering;
use vision::*;

/// The largest difference from transformers' logarithms of probabilities.
const EXACT: f64 = 4e-5;

/// Draws "Ok." and the end.
fn ok(model: &Model, prompt: usize) -> ogive::sampler::Chain {
    let tokenizer = model.tokenizer().unwrap();
    let mut ids = model.encode(&Prompt::Rendered("Ok.".into())).unwrap();
    ids.push(tokenizer.eos().unwrap());
    script_after(prompt, ids)
}

#[test]
fn a_conversation_is_what_it_is_to_transformers_and_its_image_is_read_once() {
    let mut failed = Vec::new();
    for name in names() {
        let (model, seen) = open_counted(&name);
        let (asked, on) = (case(&name, "asked"), case(&name, "asked_on"));
        let mut chat = model.chat().unwrap();
        chat.show(asked.images[0].clone());
        let mut how = Generate::greedy();
        how.logprobs = Some(5);
        let (mut held, mut times) = (Vec::new(), None);
        for (turn, said, case) in [(0, "What is this?", &asked), (1, "the end", &on)] {
            let mut reply = chat.send_with(said, &how, ok(&model, case.ids.len())).unwrap();
            assert_eq!(reply.text().unwrap(), "Ok.", "{name}, turn {turn}");
            let generation = reply.generation();
            assert_eq!(generation.prompt_ids(), case.ids, "{name}, turn {turn}");
            // What it held already is not read again, but for the last token: what follows that is to be drawn anew.
            let common = held.iter().zip(&case.ids).take_while(|(a, b)| a == b).count();
            let read = common.saturating_sub(1);
            assert_eq!(generation.times().prompt_tokens, case.ids.len() - read, "{name}, turn {turn}");
            // What the model held of its first token, as transformers has it.
            let first = &generation.logprobs()[0];
            let last = case.logits.row(case.logits.nrows() - 1);
            let most = last.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = last.iter().map(|x| f64::from(x - most).exp()).sum();
            for found in first.best.iter().chain([&first.token]) {
                let want = f64::from(last[found.id as usize] - most) - sum.ln();
                let error = (found.logprob - want).abs();
                if error.is_nan() || error > EXACT {
                    failed.push(format!("{name}, turn {turn}, token {}: off by {error:.1e}", found.id));
                }
            }
            assert_eq!(first.best.len(), 5);
            drop(reply);
            let saw = seen.load(Ordering::Relaxed);
            assert_eq!(saw, *times.get_or_insert(saw), "{name}: its image is seen in the first turn alone");
            held = chat.session().tokens().to_vec();
        }
        assert!(
            on.ids.starts_with(&asked.ids),
            "{name}: the second turn goes on from the first, whose image is in it"
        );
        assert_eq!(chat.messages().len(), 4);
        assert!(chat.shown().is_empty());
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// A conversation that was shown something and has answered by what it drew.
fn begun(model: &Model, how: &Generate) -> Chat {
    let mut chat = model.chat().unwrap();
    chat.show(image("smooth.png"));
    chat.send("What is this?", how).unwrap().text().unwrap();
    chat
}

/// The next answer, its prompt, and how many tokens of that were read.
fn next(chat: &mut Chat, how: &Generate) -> (String, Vec<u32>, Vec<u32>, usize) {
    let mut reply = chat.send("the end", how).unwrap();
    let text = reply.text().unwrap();
    let generation = reply.generation();
    let (prompt, ids) = (generation.prompt_ids().to_vec(), generation.ids().to_vec());
    (text, prompt, ids, generation.times().prompt_tokens)
}

#[test]
fn a_saved_conversation_goes_on_with_what_it_was_shown() {
    let files = tempfile::tempdir().unwrap();
    let (path, again) = (files.path().join("a.session"), files.path().join("b.session"));
    for name in names() {
        let folder = folder(&name);
        let open = || options().vision().open(folder.path()).unwrap();
        let model = open();
        let how = Generate::new().seed(5).max_tokens(7).ignore_end();
        let mut chat = begun(&model, &how);
        chat.save(&path).unwrap();
        let want = next(&mut chat, &how);

        // In the same process, and as in another.
        for model in [&model, &open()] {
            let mut loaded = model.load_chat(&path).unwrap();
            assert_eq!(loaded.messages().len(), 2);
            assert_eq!(loaded.messages()[0].attached.len(), 1);
            assert!(loaded.messages()[0].attached[0].get::<Image>().unwrap().pixels().is_none());
            assert_eq!(next(&mut loaded, &how), want, "{name}");
            // Saved anew it is the same.
            loaded.save(&again).unwrap();
            assert_eq!(model.load_chat(&again).unwrap().messages().len(), 4);
        }

        // Without eyes it is read and kept, and not gone on with.
        let blind = options().open(folder.path()).unwrap();
        assert!(!blind.sees() && blind.image_marker().is_none());
        let mut loaded = blind.load_chat(&path).unwrap();
        let error = loaded.send("the end", &how).unwrap_err().to_string();
        assert!(error.contains("not opened to see") && error.contains("Options::vision"), "{error}");
        assert_eq!(loaded.messages().len(), 2, "as if nothing was said");
        loaded.save(&again).unwrap();
        assert_eq!(next(&mut model.load_chat(&again).unwrap(), &how), want, "{name}");
        // As a session, which has no messages, it goes on where it stopped.
        let mut ids = Vec::new();
        for model in [&model, &blind] {
            let mut session = model.load_session(&path).unwrap();
            let mut more = session.resume(&how).unwrap();
            more.text().unwrap();
            ids.push(more.ids().to_vec());
        }
        assert_eq!((ids[0].len(), &ids[0]), (7, &ids[1]));
    }
}

#[test]
fn a_conversation_is_saved_with_the_images_that_its_messages_show_or_not_at_all() {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("a.session");
    let how = Generate::new().seed(5).max_tokens(3).ignore_end();
    for name in ["gemma3", "mistral3", "qwen3-vl"] {
        let model = open(name);
        // Not one token was read.
        let mut unread = model.chat().unwrap();
        unread.messages().push(Message::new("user", "Hi").attach(image("grey.png")));
        unread.save(&path).unwrap();
        let loaded = &mut model.load_chat(&path).unwrap();
        assert_eq!(next(loaded, &how), next(&mut unread, &how), "{name}");

        let mut chat = begun(&model, &how);
        chat.show(image("noise.png"));
        chat.send("And this?", &how).unwrap().text().unwrap();
        chat.messages().drain(..2);
        // The sequence begins with an image that no message shows any more.
        let error = chat.save(&path).unwrap_err().to_string();
        assert!(error.contains("has not read last") && error.contains("save then"), "{name}: {error}");
        next(&mut chat, &how);
        chat.save(&path).unwrap();
        let mut loaded = model.load_chat(&path).unwrap();
        assert_eq!(next(&mut loaded, &how), next(&mut chat, &how), "{name}");

        // A question that was not answered showed something too, which waits for the next.
        chat.show(image("wide.png"));
        drop(chat.send("And this?", &how).unwrap());
        assert_eq!((chat.messages().len(), &*chat.shown()), (6, &vec![image("wide.png")]));
        chat.shown().clear();
        chat.save(&path).unwrap();
        let mut loaded = model.load_chat(&path).unwrap();
        assert_eq!(next(&mut loaded, &how), next(&mut chat, &how), "{name}");
    }
}
