//! Guesses: answers are the same with them, whoever makes them, and come in fewer steps.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use ogive::engine::{Limits, Request};
use ogive::tokenizer::template::{ChatTemplate, Message};
use ogive::{Chat, Draft, Generate, Model, Options};
use std::path::Path;
use std::sync::Arc;

const PROMPT: &str = "Once upon a time, there was a little girl named Lily. She loved to play";

fn options() -> Options {
    Options::new().device(ogive::Device::Cpu).threads(2)
}

/// A model in single precision, and the same in 8 bits on the same backend.
fn pair() -> Option<(Model, Model)> {
    let folder = shared()?.join("models/stories260K");
    let model = options().open(folder.join("stories260K-f32.gguf")).unwrap();
    let shared = options().backend(Arc::clone(model.backend()));
    let small = shared.open(folder.join("stories260K-q8_0.gguf")).unwrap();
    Some((model, small))
}

/// The model with each kind of guesses.
fn drafted(model: &Model, small: &Model) -> [Model; 5] {
    let drafts = [
        Draft::lookup(),
        Draft::lookup().max_tokens(9),
        Draft::model(small),
        Draft::model(small).max_tokens(7).min_probability(0.0),
        Draft::lookup().or_model(small),
    ];
    drafts.map(|draft| model.with_draft(draft).unwrap())
}

#[test]
fn a_text_is_the_same_and_comes_in_fewer_steps() {
    let Some((model, small)) = pair() else { return };
    assert!(model.draft().is_none());
    for how in [
        Generate::greedy(),
        Generate::new().seed(5),
        Generate::new().seed(6).samplers("penalties:1.2,min_p:0.1,temp:1.3".parse().unwrap()),
        Generate::new().seed(7).samplers("mirostat_v2:4:0.2".parse().unwrap()).logprobs(2),
        Generate::greedy().stop("park"),
    ] {
        let how = how.max_tokens(90);
        let mut plain = model.session().unwrap();
        let mut told = plain.generate(PROMPT, &how).unwrap();
        let text = told.text().unwrap();
        let want = (told.ids().to_vec(), told.logprobs().to_vec(), told.finish().cloned());
        assert_eq!((told.times().drafted, told.times().accepted), (0, 0));
        drop(told);
        for (i, drafted) in drafted(&model, &small).into_iter().enumerate() {
            let mut session = drafted.session().unwrap();
            let mut told = session.generate(PROMPT, &how).unwrap();
            assert_eq!(told.text().unwrap(), text, "{how:?}, draft {i}");
            assert_eq!((told.ids().to_vec(), told.logprobs().to_vec(), told.finish().cloned()), want);
            let times = told.times();
            assert!(times.accepted <= times.drafted && (i < 2 || times.accepted > 5), "{how:?}: {times:?}");
            drop(told);
            // What was drawn behind the end is no part of it.
            assert_eq!(session.tokens(), plain.tokens(), "{how:?}, draft {i}");
        }
    }
}

#[test]
fn a_text_that_is_dropped_goes_on_where_it_was() {
    let Some((model, small)) = pair() else { return };
    let how = Generate::new().seed(3).max_tokens(60);
    let want = model.session().unwrap().generate(PROMPT, &how).unwrap().text().unwrap();
    for drafted in drafted(&model, &small) {
        for pieces in [1, 2, 5, 11] {
            let mut session = drafted.session().unwrap();
            let mut begun = session.generate(PROMPT, &how).unwrap();
            let first: String = begun.by_ref().take(pieces).map(Result::unwrap).collect();
            let drawn = begun.ids().len();
            drop(begun);
            // Through a file, with the draw's state in it.
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("session");
            session.save(&file).unwrap();
            let mut session = drafted.load_session(&file).unwrap();
            let rest = session.resume(&how.clone().max_tokens(60 - drawn)).unwrap().text().unwrap();
            assert_eq!(first + &rest, want, "{pieces} pieces");
        }
    }
}

#[test]
fn conversations_and_grammars_are_held() {
    let Some((model, small)) = pair() else { return };
    let talk = |model: &Model| {
        let template = "{{ bos_token }}{% for m in messages %}{{ m.content }} {% endfor %}";
        let mut chat = Chat::new(model.session().unwrap(), ChatTemplate::new(template).unwrap()).unwrap();
        let how = Generate::new().seed(2).max_tokens(30);
        for said in ["Once upon a time", "Then Tim", "One day"] {
            chat.send(said, &how).unwrap().text().unwrap();
        }
        let said = |m: &Message| format!("{m:?}");
        chat.messages().iter().map(said).collect::<Vec<_>>()
    };
    let want = talk(&model);
    for drafted in drafted(&model, &small) {
        assert_eq!(talk(&drafted), want);
    }
    #[cfg(feature = "grammar")]
    {
        let grammar = r#"root ::= "They " ("ran" | "sat" | "were happy") (" and " [a-z]+){2} ".""#;
        let grammar = ogive::grammar::Grammar::gbnf(grammar).unwrap();
        let mut how = Generate::new().seed(4).max_tokens(60);
        how.grammar = Some(grammar);
        let answer = |model: &Model| model.session().unwrap().generate(PROMPT, &how).unwrap().text().unwrap();
        let want = answer(&model);
        assert!(want.starts_with("They "), "{want}");
        for drafted in drafted(&model, &small) {
            assert_eq!(answer(&drafted), want);
        }
    }
}

#[test]
fn an_engine_guesses_for_all_its_sequences() {
    let Some((model, small)) = pair() else { return };
    let limits = model.limits().clone().sequences(3);
    let prompts = [PROMPT, "Tom had a red ball.", "One day"].map(|text| model.encode(&text.into()).unwrap());
    let texts = |model: &Model, limits: Limits| {
        let mut engine = model.engine(limits).unwrap();
        let ids = prompts.clone().map(|prompt| engine.add(Request::new(prompt, 40).keep()).unwrap());
        while !engine.is_idle() {
            engine.step().unwrap();
        }
        (ids.map(|id| engine.tokens(id).unwrap().to_vec()), engine.stats())
    };
    let (want, plain) = texts(&model, limits.clone());
    let (got, stats) = texts(&model.with_draft(Draft::model(&small).max_tokens(12)).unwrap(), limits);
    assert_eq!(got, want);
    assert!(stats.accepted > 30 && stats.steps < plain.steps, "{stats:?} and {plain:?}");
}

#[test]
fn a_draft_of_a_shorter_context_ends_to_guess() {
    let Some((model, _)) = pair() else { return };
    let file = shared().unwrap().join("models/stories260K/stories260K-q8_0.gguf");
    let small = options().context(40).open(file).unwrap();
    let how = Generate::greedy().max_tokens(90);
    let want = model.session().unwrap().generate(PROMPT, &how).unwrap().text().unwrap();
    let mut session = model.with_draft(Draft::model(&small)).unwrap().session().unwrap();
    let mut told = session.generate(PROMPT, &how).unwrap();
    assert_eq!(told.text().unwrap(), want);
    assert!((1..40).contains(&told.times().drafted), "{:?}", told.times());
}

#[test]
fn who_cannot_draft_is_refused_by_name() {
    let Some((model, _)) = pair() else { return };
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden");
    let refused = |name: &str| {
        let other = options().open(golden.join(name)).unwrap();
        model.with_draft(Draft::model(&other)).unwrap_err().to_string()
    };
    assert!(refused("mamba2").contains("keeps states"), "{}", refused("mamba2"));
    assert!(refused("bert").contains("encoder"), "{}", refused("bert"));
    // Without a vocabulary nobody can say that it is another.
    let other = options().open(golden.join("llama")).unwrap();
    assert!(model.with_draft(Draft::model(&other)).is_ok());
    #[cfg(feature = "demo-model")]
    {
        let other = options().open(ogive::DEMO).unwrap();
        let why = model.with_draft(Draft::model(&other)).unwrap_err().to_string();
        assert!(why.contains("its vocabulary is another") && why.contains("the first is 0"), "{why}");
    }
}
