//! Text in, text out, through the front door.

mod common;

use common::*;
use ogive::engine::Finish;
use ogive::{Chat, Error, Generate, Model, Options, Prompt};
use std::path::Path;

fn stories(file: &str) -> Option<Model> {
    let path = shared()?.join("models/stories260K").join(file);
    Some(Options::new().exact(true).open(path).unwrap())
}

fn published() -> String {
    let golden = std::fs::read_to_string(shared().unwrap().join("models/stories260K/golden.json")).unwrap();
    let golden: serde_json::Value = serde_json::from_str(&golden).unwrap();
    golden["published"]["text"].as_str().unwrap().to_owned()
}

#[test]
fn an_answer_that_ignores_its_end_draws_none() {
    let Some(model) = stories("stories260K-f32.gguf") else { return };
    let eog = model.tokenizer().unwrap().eog().to_vec();
    let mut session = model.session().unwrap();
    // Nearly any token is as likely as any other.
    let flat = |seed| Generate::new().samplers("temp:100".parse().unwrap()).seed(seed).max_tokens(150);
    let ended = (0..8).filter(|&seed| {
        let mut answer = session.generate("Once", &flat(seed)).unwrap();
        answer.text().unwrap();
        answer.ids().iter().any(|id| eog.contains(id))
    });
    assert!(ended.count() > 0);
    let mut chain = model.chain(&flat(0).sampler).unwrap();
    for seed in 0..8 {
        let mut answer = session.generate("Once", &flat(seed).ignore_end()).unwrap();
        answer.text().unwrap();
        assert!(answer.ids().len() == 150 && answer.ids().iter().all(|id| !eog.contains(id)));
        drop(answer);
        // By a chain of one's own too, which gets no longer where it goes on.
        let mut answer = session.generate_with("Once", &flat(0).ignore_end(), chain).unwrap();
        answer.text().unwrap();
        assert!(answer.ids().len() == 150 && answer.ids().iter().all(|id| !eog.contains(id)));
        drop(answer);
        chain = session.chain().unwrap().clone();
        assert_eq!(chain.to_string(), "endless,temperature:100");
    }
}

#[test]
fn an_empty_prompt_tells_the_published_story() {
    for file in ["stories260K-f32.gguf", "stories260K-f16.gguf", "hf"] {
        let Some(model) = stories(file) else { return };
        let mut session = model.session().unwrap();
        let mut story = session.generate("", &Generate::greedy().max_tokens(200)).unwrap();
        assert_eq!(story.text().unwrap(), published(), "{file}");
        assert_eq!((story.ids().len(), story.finish()), (200, Some(&Finish::Length)));
    }
}

#[test]
fn pieces_stop_strings_and_sessions() {
    let Some(model) = stories("stories260K-f32.gguf") else { return };
    let mut session = model.session().unwrap();
    let how = Generate::greedy().max_tokens(60).stop("She wanted");
    let mut story = session.generate("Once upon a time", &how).unwrap();
    let pieces: Vec<String> = story.by_ref().map(Result::unwrap).collect();
    let text = pieces.concat();
    assert!(pieces.len() > 10 && text.ends_with("big, red ball. "), "{pieces:?}");
    assert_eq!(story.finish(), Some(&Finish::Stop));
    assert_eq!(story.prompt_ids().len(), 5);
    drop(story);
    // The same prompt again: all but its last token is in the cache.
    let mut again = session.generate("Once upon a time", &how).unwrap();
    assert_eq!((again.text().unwrap(), again.times().prompt_tokens), (text, 1));
    drop(again);
    // A prompt that is refused leaves what the session holds.
    let held = session.tokens().to_vec();
    assert!(session.generate("Once upon a time, ".repeat(200), &how).is_err());
    assert_eq!(session.tokens(), held);
    // Another prompt in the same session is as if it were alone.
    let how = Generate::greedy().max_tokens(20);
    let other = session.generate("Lily and Tom", &how).unwrap().text().unwrap();
    assert_eq!(other, model.session().unwrap().generate("Lily and Tom", &how).unwrap().text().unwrap());
}

#[test]
fn the_same_seed_gives_the_same_story_on_any_number_of_threads() {
    let Some(shared) = shared() else { return };
    let tell = |threads: usize, seed: u64| {
        let path = shared.join("models/stories260K/stories260K-q8_0.gguf");
        let model = Options::new().threads(threads).open(path).unwrap();
        let how = Generate::new().seed(seed).max_tokens(100);
        model.session().unwrap().generate("One day", &how).unwrap().text().unwrap()
    };
    assert_eq!(tell(1, 7), tell(2, 7));
    assert_eq!(tell(1, 7), tell(5, 7));
    assert_ne!(tell(1, 7), tell(1, 8));
}

#[test]
fn a_model_is_shared_between_threads() {
    let Some(model) = stories("stories260K-f32.gguf") else { return };
    let how = Generate::greedy().max_tokens(30);
    let tell = |prompt: &str| model.session().unwrap().generate(prompt, &how).unwrap().text().unwrap();
    let alone = ["One day", "Lily", "The dog"].map(tell);
    let together = std::thread::scope(|s| {
        ["One day", "Lily", "The dog"].map(|p| s.spawn(move || tell(p))).map(|t| t.join().unwrap())
    });
    assert_eq!(alone, together);
}

#[test]
fn logits_and_hidden_states_are_arrays() {
    let Some(model) = stories("stories260K-f32.gguf") else { return };
    let ids = model.encode(&"Once upon a time".into()).unwrap();
    assert_eq!(model.logits(&ids).unwrap().dim(), (5, 512));
    assert_eq!(model.hidden(&ids).unwrap().dim(), (5, 64));
    assert!(model.logits(&[]).is_err());
    let e = model.logits(&[1, 9999]).unwrap_err().to_string();
    assert!(e.contains("9999"), "{e}");
}

#[test]
fn estimates_are_near_what_loading_takes() {
    let Some(shared) = shared() else { return };
    for file in ["golden/llama/llama-Q8_0.gguf", "golden/quant/k256-Q4_K_M-mix.gguf", "golden/mixtral"] {
        let path = shared.join(file);
        let memory = Options::new().context(256).estimate_memory(&path).unwrap();
        let on_disk =
            if path.is_dir() { path.join("model.safetensors") } else { path }.metadata().unwrap().len();
        assert!(memory.weights <= on_disk && memory.weights * 10 > on_disk * 7, "{memory} of {on_disk}");
        assert!(memory.cache > 0 && memory.context == 256 && memory.to_string().contains("MiB"));
    }
}

#[test]
fn a_chat_remembers_and_pays_for_what_is_new() {
    let Some(model) = stories("stories260K-f32.gguf") else { return };
    let template = "{{ bos_token }}{% for m in messages %}{{ m.content }} {% endfor %}";
    let template = ogive::tokenizer::template::ChatTemplate::new(template).unwrap();
    let mut chat = Chat::new(model.session().unwrap(), template).unwrap();
    let how = Generate::greedy().max_tokens(12);
    let first = chat.send("Once upon a time", &how).unwrap().text().unwrap();
    let mut reply = chat.send("Then", &how).unwrap();
    reply.by_ref().for_each(|p| drop(p.unwrap()));
    let (new, all) = (reply.generation().times().prompt_tokens, reply.generation().prompt_ids().len());
    assert!(new < all, "{new} of {all}");
    drop(reply);
    let said: Vec<_> = chat.messages().iter().map(|m| (m.role.clone(), m.content.clone())).collect();
    assert_eq!(said.len(), 4);
    assert_eq!(said[1], ("assistant".into(), first));
    assert!(matches!(model.chat(), Err(Error::NoTemplate)));
}

#[test]
fn what_cannot_be_is_said_clearly() {
    let Some(model) = stories("stories260K-f32.gguf") else { return };
    let mut session = model.session().unwrap();
    let mut fails = |prompt: Prompt, how: Generate| session.generate(prompt, &how).unwrap_err().to_string();
    let long = fails("word ".repeat(250_000).into(), Generate::greedy());
    assert!(long.contains("context of 512"), "{long}");
    assert!(fails(Prompt::Ids(vec![]), Generate::greedy()).contains("prompt is empty"));
    let mut hot = Generate::new();
    hot.sampler.temperature = f32::NAN;
    assert!(fails("a".into(), hot).contains("temperature"));
    assert!(fails("a".into(), Generate::greedy().max_tokens(0)).contains("one to draw"));
    let path = shared().unwrap().join("golden/llama");
    for huge in [1 << 40, usize::MAX] {
        let e = Options::new().context(huge).open(&path).and_then(|m| m.session()).unwrap_err().to_string();
        assert!(e.len() > 20, "{e}");
    }
    assert!(fails(vec![5000].into(), Generate::greedy()).contains("5000"));
    for (path, word) in [("no/such/file.gguf", "no/such/file.gguf"), (".", "config.json")] {
        let e = ogive::open(Path::new(path)).unwrap_err().to_string();
        assert!(e.contains(word), "{e}");
    }
    let e = Options::new()
        .device(ogive::Device::Cuda(77))
        .open(shared().unwrap().join("golden/llama"))
        .unwrap_err();
    assert!(e.to_string().contains("cuda:77 was asked for, but"), "{e}");
    assert!("tpu".parse::<ogive::Device>().unwrap_err().to_string().contains("known are auto, cpu"));
}

/// Heads of models are often padded: they have more rows than there are tokens.
#[test]
fn a_token_beyond_the_vocabulary_has_no_text() {
    let golden = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/llama"));
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(golden.join(file), folder.path().join(file)).unwrap();
    }
    let vocab: Vec<String> = ('a'..='j').enumerate().map(|(id, c)| format!("\"{c}\": {id}")).collect();
    let model = format!(r#"{{"type": "BPE", "vocab": {{{}}}, "merges": []}}"#, vocab.join(", "));
    let tokenizer = format!(r#"{{"version": "1.0", "added_tokens": [], "model": {model}}}"#);
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer).unwrap();
    let model = Options::new().open(folder.path()).unwrap();
    let mut how = Generate::greedy().ignore_end().max_tokens(4);
    how.sampler.logit_bias = vec![(30, f32::INFINITY)];
    let mut session = model.session().unwrap();
    let mut answer = session.generate([3, 4, 5].as_slice(), &how).unwrap();
    assert_eq!(answer.text().unwrap(), "");
    assert_eq!(answer.ids(), [30; 4]);
    drop(answer);
    how.sampler.logit_bias = vec![(2, f32::INFINITY)];
    // The file names no decoder, so tokens have spaces between them.
    assert_eq!(session.resume_anew(&how).unwrap().text().unwrap(), " c c c c");
}
