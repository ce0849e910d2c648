//! Answers that are cut, within a character above all, and texts of which a part was read before.

mod common;
#[path = "common/script.rs"]
mod script;

use common::*;
use ogive::engine::Finish;
use ogive::sampler::Chain;
use ogive::tokenizer::{TokenKind, template::ChatTemplate};
use ogive::{Chat, Generate, Generation, Model};
use script::script_after;

/// Every byte is a token of its own there.
fn stories() -> Option<Model> {
    Some(ogive::open(shared()?.join("models/stories260K/stories260K-q8_0.gguf")).unwrap())
}

fn byte(model: &Model, byte: u8) -> u32 {
    let tokenizer = model.tokenizer().unwrap();
    let is_it = |id: &u32| {
        let is_byte = tokenizer.token_kind(*id) == Some(TokenKind::Byte);
        is_byte && tokenizer.token_bytes(*id).is_ok_and(|bytes| *bytes == [byte])
    };
    (0..tokenizer.vocab_size() as u32).find(is_it).unwrap()
}

/// Draws `ids` after the prompt.
fn after(model: &Model, prompt: &str, ids: &[u32]) -> Chain {
    script_after(model.encode(&prompt.into()).unwrap().len(), ids.to_vec())
}

fn text(generation: ogive::Result<Generation<'_>>) -> String {
    generation.unwrap().text().unwrap()
}

#[test]
fn an_answer_that_is_cut_within_a_character_goes_on_with_all_of_it() {
    let Some(model) = stories() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    let whole = "aé😀, €b";
    let ids: Vec<u32> = whole.bytes().map(|b| byte(&model, b)).collect();
    let chain = || after(&model, "One day", &ids);
    let how = |n| Generate::greedy().max_tokens(n);
    let mut session = model.session().unwrap();
    assert_eq!(text(session.generate_with("One day", &how(ids.len()), chain())), whole);
    for cut in 1..ids.len() {
        let begun = text(session.generate_with("One day", &how(cut), chain()));
        assert!(whole.starts_with(&begun) && begun.len() + 4 > cut, "{cut}: {begun}");
        session.save(&path).unwrap();
        let mut later = model.load_session(&path).unwrap();
        for session in [&mut session, &mut later] {
            let rest = text(session.resume_with(&how(ids.len() - cut), chain()));
            assert_eq!(format!("{begun}{rest}"), whole, "{cut}");
        }
        // Token by token.
        let mut parts = text(session.generate_with("One day", &how(1), chain()));
        for _ in 1..ids.len() {
            parts += &text(session.resume_with(&how(1), chain()));
        }
        assert_eq!(parts, whole);
    }
    // The context cuts as `max_tokens` does.
    let path = shared().unwrap().join("models/stories260K/stories260K-q8_0.gguf");
    let prompt = model.encode(&"One day".into()).unwrap().len();
    let short = ogive::Options::new().context(prompt + 2).open(path).unwrap();
    let mut session = short.session().unwrap();
    let mut answer = session.generate_with("One day", &how(9), chain()).unwrap();
    assert_eq!((answer.text().unwrap().as_str(), answer.finish()), ("a", Some(&Finish::Context)));
}

#[test]
fn what_the_model_leaves_of_a_character_is_told_once() {
    let Some(model) = stories() else { return };
    let eos = model.tokenizer().unwrap().eos().unwrap();
    let ids = [byte(&model, 0xf0), byte(&model, 0x9f), eos, byte(&model, b'x')];
    let chain = || after(&model, "One day", &ids);
    let mut session = model.session().unwrap();
    let mut answer = session.generate_with("One day", &Generate::greedy(), chain()).unwrap();
    assert_eq!((answer.text().unwrap().as_str(), answer.finish()), ("\u{fffd}", Some(&Finish::Stop)));
    drop(answer);
    assert_eq!(text(session.resume_with(&Generate::greedy().max_tokens(1), chain())), "x");
}

#[test]
fn a_message_has_no_part_of_a_character() {
    let Some(model) = stories() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk.session");
    let template = || ChatTemplate::new("{% for m in messages %}{{ m.content }}{% endfor %}").unwrap();
    let mut chat = Chat::new(model.session().unwrap(), template()).unwrap();
    let says = |b: u8| {
        let mut how = Generate::greedy().max_tokens(1);
        how.sampler.logit_bias = vec![(byte(&model, b), f32::INFINITY)];
        how
    };
    assert_eq!(chat.send("One day", &says(0xc3)).unwrap().text().unwrap(), "");
    assert_eq!(chat.messages()[1].content, "");
    chat.save(&path).unwrap();
    let mut session = model.load_session(&path).unwrap();
    assert_eq!(text(session.resume_anew(&says(0xa9))), "é");
    session.save(&path).unwrap();
    let mut later = Chat::new(model.load_session(&path).unwrap(), template()).unwrap();
    assert_eq!(later.messages()[1].content, "é");
}

#[test]
fn the_whole_text_has_what_was_read_before() {
    let Some(model) = stories() else { return };
    let how = Generate::greedy().max_tokens(20);
    let mut session = model.session().unwrap();
    let want = text(session.generate("One day", &how));
    let mut answer = session.generate("One day", &how).unwrap();
    let first = answer.next().unwrap().unwrap();
    assert!(!first.is_empty());
    answer.step().unwrap();
    assert_eq!((answer.text().unwrap(), answer.text().unwrap()), (want.clone(), want.clone()));
    assert!(answer.next().is_none());
    drop(answer);
    // Of what goes on, its own.
    assert!(!text(session.resume(&how)).starts_with(&first));
    let template = ChatTemplate::new("{{ bos_token }}{{ messages[0].content }}").unwrap();
    let mut chat = Chat::new(model.session().unwrap(), template).unwrap();
    let mut reply = chat.send("One day", &how).unwrap();
    reply.next().unwrap().unwrap();
    assert_eq!(reply.text().unwrap(), want);
    drop(reply);
    assert_eq!(chat.messages()[1].content, want);
}

#[test]
fn a_text_that_cannot_go_on_is_an_error_each_time() {
    let Some(model) = stories() else { return };
    let mut session = model.session().unwrap();
    let chain = after(&model, "One day", &[byte(&model, b'a')]);
    let mut answer = session.generate_with("One day", &Generate::greedy(), chain).unwrap();
    assert_eq!(answer.next().unwrap().unwrap(), "a");
    for _ in 0..2 {
        assert!(answer.text().unwrap_err().to_string().contains("script"));
    }
}
