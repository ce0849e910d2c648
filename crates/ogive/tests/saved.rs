//! Sessions in files: what comes after loading is what would have come, and what cannot be loaded is refused.

mod common;

use common::*;
use ogive::engine::Finish;
use ogive::sampler::{Candidates, Chain, Stage, stages::MinP};
use ogive::tensor::{BF16, F16, F32, Format, Q8_0};
use ogive::tokenizer::template::ChatTemplate;
use ogive::{Chat, Generate, Generation, Model, Options, Prompt};
use std::fs;
use std::path::Path;

fn open(path: &Path, element: &'static Format) -> Model {
    Options::new().threads(2).cache_element(element).open(path).unwrap()
}

fn stories() -> Option<Model> {
    Some(open(&shared()?.join("models/stories260K/stories260K-q8_0.gguf"), &F16))
}

fn template() -> ChatTemplate {
    ChatTemplate::new("{{ bos_token }}{% for m in messages %}{{ m.content }} {% endfor %}").unwrap()
}

/// Draws by what keeps a state.
fn how(i: usize) -> Generate {
    let mut how = Generate::new().seed(3).max_tokens(90).ignore_end();
    match i % 4 {
        0 => how.sampler.mirostat = 2,
        1 => how.sampler.adaptive_target = 0.4,
        2 => how.sampler.xtc_probability = 0.5,
        _ => (how.sampler.dry_multiplier, how.sampler.mirostat) = (0.8, 1),
    }
    how
}

#[test]
fn the_text_goes_on_to_the_letter_with_every_cache_and_after_windows() {
    let Some(shared) = shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    let models = [
        "models/stories260K/stories260K-q8_0.gguf",
        "golden/gemma2/gemma2-Q4_0.gguf",
        "golden/mistral",
        "golden/mixtral",
        "golden/deepseek-v2",
        // Their states do not grow with the text. The paths are absolute.
        concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/qwen3-5"),
        concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/lfm2"),
        concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/granite-hybrid"),
        concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/jamba"),
        concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/nemotron-h"),
        concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/falcon-h1"),
        concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/nemotron-h-moe"),
        concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/glm4-moe"),
        concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/minimax-m2"),
        concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/exaone4-window"),
        concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/starcoder2-window"),
        concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/hunyuan-dense"),
        // What a chunk has left behind is gone.
        concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/llama4-chunks"),
        // Layers attend to what others store, behind windows too.
        concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/gemma4-shared"),
        concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/gemma3n"),
        // There are no keys and values at all.
        concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/mamba2"),
        concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/mamba"),
    ];
    for (i, name) in models.into_iter().enumerate() {
        for (j, element) in [&F32, &F16, &BF16, &Q8_0].into_iter().enumerate() {
            // Longer than the tiny models were made for.
            let open = || {
                Options::new().threads(2).cache_element(element).context(160).open(shared.join(name)).unwrap()
            };
            let model = open();
            let Ok(mut session) = model.session() else {
                assert_eq!(element.name, "q8_0", "{name}: only heads of odd sizes cannot be kept so");
                continue;
            };
            let prompt: Vec<u32> = (1..40).collect();
            let how = how(i + j);
            let mut whole = session.generate(&*prompt, &how).unwrap();
            let (text, ids) = (whole.text().unwrap(), whole.ids().to_vec());
            drop(whole);
            for cut in [1, 30, 60] {
                let mut first = model.session().unwrap();
                let begun = first.generate(&*prompt, &how.clone().max_tokens(cut)).unwrap().text().unwrap();
                first.save(&path).unwrap();
                // Another process would open the model again.
                let again = if cut == 30 { open() } else { model.clone() };
                let mut second = again.load_session(&path).unwrap();
                assert_eq!(second.tokens(), [&*prompt, &ids[..cut]].concat());
                let mut rest = second.resume(&how.clone().max_tokens(90 - cut).seed(99)).unwrap();
                let more = rest.text().unwrap();
                assert_eq!(
                    (rest.ids(), rest.times().prompt_tokens),
                    (&ids[cut..], 1),
                    "{name} {} {cut}",
                    element.name
                );
                assert_eq!(begun + &more, text, "{name} {} {cut}", element.name);
            }
        }
    }
}

#[test]
fn an_answer_that_is_dropped_anywhere_is_gone_on_with_in_place_and_from_a_file() {
    let Some(model) = stories() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    let how = how(0).stop("a stop that nobody writes").stop("the ").max_tokens(120);
    let want = model.session().unwrap().generate("Once upon", &how).unwrap().text().unwrap();
    for pieces in [1, 5, 17] {
        let mut session = model.session().unwrap();
        let mut text: String =
            session.generate("Once upon", &how).unwrap().take(pieces).map(Result::unwrap).collect();
        session.save(&path).unwrap();
        let mut later = model.load_session(&path).unwrap();
        let rest = later.resume(&how).unwrap().text().unwrap();
        assert_eq!(rest, session.resume(&how).unwrap().text().unwrap(), "as if it had not been saved");
        text += &rest;
        assert_eq!(text, want, "after {pieces} pieces");
    }
    // A session that was only loaded can be saved as it is.
    let loaded = model.load_session(&path).unwrap();
    let (before, copy) = (fs::read(&path).unwrap(), folder.path().join("copy"));
    loaded.save(&copy).unwrap();
    assert!(fs::read(&copy).unwrap() == before);
}

/// Lets nothing through once a sequence is as long.
#[derive(Clone, Debug)]
struct Until(usize);

impl Stage for Until {
    fn name(&self) -> &str {
        "until"
    }

    fn apply(&mut self, candidates: &mut Candidates, history: &[u32]) {
        candidates.map(|c| if history.len() < self.0 { c.logit } else { f32::NEG_INFINITY });
    }

    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(self.clone())
    }
}

#[test]
fn what_was_held_back_when_nothing_could_be_drawn_comes_when_the_text_goes_on() {
    let Some(model) = stories() else { return };
    let plain = Generate::greedy().max_tokens(24);
    let mut session = model.session().unwrap();
    let want = session.generate("One day", &plain).unwrap().text().unwrap();
    let prompt = model.encode(&"One day".into()).unwrap().len();
    for tokens in [1, 7, 12] {
        let until = || Chain::greedy().first(Until(prompt + tokens));
        let (given, error) = some(session.generate_with("One day", &plain, until()).unwrap());
        assert!(error.is_some(), "{tokens}");
        // As if a stop string began with the last letter of it.
        let how = plain.clone().stop(format!("{}\u{1}", given.chars().last().unwrap()));
        let (begun, error) = some(session.generate_with("One day", &how, until()).unwrap());
        assert!(error.is_some() && begun.len() < given.len(), "{begun} {given}");
        let rest = session.resume_anew(&how).unwrap().text().unwrap();
        assert!(format!("{begun}{rest}").starts_with(&want), "{begun}|{rest}|{want}");
    }
}

/// The text up to an error, and that.
fn some(answer: Generation<'_>) -> (String, Option<ogive::Error>) {
    let (mut text, mut error) = (String::new(), None);
    for piece in answer {
        piece.map_or_else(|e| error = Some(e), |piece| text += &piece);
    }
    (text, error)
}

#[test]
fn other_samplers_are_told_and_chains_of_ones_own_go_on() {
    let Some(model) = stories() else { return };
    let path = tempfile::tempdir().unwrap().keep().join("a.session");
    let mut session = model.session().unwrap();
    assert!(session.save(&path).unwrap_err().to_string().contains("holds no tokens yet"));
    assert!(session.resume(&how(0)).is_err());
    let chain = || Chain::new(8).then(MinP::new(0.02).unwrap());
    let plain = Generate::new().max_tokens(20);
    let whole = Generate::new().max_tokens(40);
    let want = session.generate_with("One day", &whole, chain()).unwrap().text().unwrap();
    let begun = session.generate_with("One day", &plain, chain()).unwrap().text().unwrap();
    session.save(&path).unwrap();
    let mut later = model.load_session(&path).unwrap();
    let error = later.resume(&plain).unwrap_err().to_string();
    assert!(error.contains("\"min_p:0.02\"") && error.contains("give the same samplers"), "{error}");
    let rest = later.resume_with(&plain, chain()).unwrap().text().unwrap();
    assert_eq!(begun + &rest, want);
    // A clone of the session's own brings what was asked for with it, once.
    let endless = plain.clone().ignore_end();
    let begun = session.generate_with("One day", &endless, chain()).unwrap().text().unwrap();
    let own = session.chain().unwrap().clone();
    let rest = session.resume_with(&endless, own).unwrap().text().unwrap();
    let whole = session.generate_with("One day", &whole.ignore_end(), chain()).unwrap().text().unwrap();
    assert_eq!(begun + &rest, whole);
    // What a chain's text leaves out counts too.
    let biased = |token| {
        let mut how = plain.clone();
        (how.sampler.logit_bias, how.sampler.dry_multiplier) = (vec![(token, -3.0)], 0.5);
        how
    };
    session.generate("One day", &biased(300)).unwrap().text().unwrap();
    let error = session.resume(&biased(301)).unwrap_err().to_string();
    assert!(error.contains("logit-bias had other settings; give the same, or draw anew"), "{error}");
    let mut other = biased(300);
    other.sampler.dry_sequence_breakers = vec!["day".to_owned()];
    assert!(session.resume(&other).unwrap_err().to_string().contains("dry had other settings"));
    session.resume(&biased(300)).unwrap().text().unwrap();
    // Or a prompt, of which the session has a part.
    let mut later = model.load_session(&path).unwrap();
    let mut longer = later.generate("One day, a girl", &plain).unwrap();
    longer.by_ref().for_each(|piece| drop(piece.unwrap()));
    assert!(longer.times().prompt_tokens < longer.prompt_ids().len());
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[test]
fn by_other_samplers_the_text_is_still_one() {
    let Some(model) = stories() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    // Held back is what begins the stop.
    let how = Generate::greedy().max_tokens(40);
    let want = model.session().unwrap().generate("Once upon", &how).unwrap().text().unwrap();
    let stop = format!("{}!!!", want.get(3..20).unwrap());
    let how = how.stop(stop);
    let mut session = model.session().unwrap();
    assert!(session.resume_anew(&how).is_err(), "there is nothing yet");
    let mut begun = session.generate("Once upon", &how).unwrap();
    let mut text = String::new();
    while begun.ids().len() < 5 {
        text += &begun.step().unwrap().unwrap();
    }
    let drawn = begun.ids().len();
    drop(begun);
    assert_eq!(text, want[..3], "the rest was held back");
    session.save(&path).unwrap();
    let mut other = how.clone().max_tokens(40 - drawn);
    other.sampler.samplers = "top_k:1,temp:0.5".parse().unwrap();
    for mut session in [session, model.load_session(&path).unwrap()] {
        assert!(session.resume(&other).is_err());
        let rest = session.resume_anew(&other).unwrap().text().unwrap();
        assert_eq!(text.clone() + &rest, want);
    }
}

#[test]
fn a_conversation_goes_on_with_its_messages() {
    let Some(model) = stories() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk.session");
    let mut chat = Chat::new(model.session().unwrap(), template()).unwrap();
    assert!(chat.save(&path).is_err(), "nothing was said");
    let mut chat = chat.system("A story.");
    let how = Generate::new().seed(1).max_tokens(20);
    chat.send("Once upon a time", &how).unwrap().text().unwrap();
    chat.send("Then", &how).unwrap().text().unwrap();
    chat.save(&path).unwrap();
    let mut later = Chat::new(model.load_session(&path).unwrap(), template()).unwrap();
    assert_eq!(later.messages(), chat.messages());
    assert_eq!(later.messages().len(), 5);
    let (mut a, mut b) = (chat.send("And so", &how).unwrap(), later.send("And so", &how).unwrap());
    assert_eq!(a.text().unwrap(), b.text().unwrap());
    assert_eq!(a.generation().times().prompt_tokens, b.generation().times().prompt_tokens, "read once");
    // As a session it has no messages to lose, and as a chat a plain session has none.
    drop((a, b));
    assert!(model.load_session(&path).unwrap().resume(&how).is_ok());
    assert!(model.load_chat(&path).is_err(), "this model has no template");
    model.load_session(&path).unwrap().save(&path).unwrap();
    let kept = Chat::new(model.load_session(&path).unwrap(), template()).unwrap().messages().len();
    assert_eq!(kept, 5, "saving what was loaded loses nothing");
}

#[test]
fn a_question_that_was_not_answered_gets_no_answer_into_another() {
    let Some(model) = stories() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk.session");
    let how = Generate::new().seed(1).max_tokens(20);
    let mut chat = Chat::new(model.session().unwrap(), template()).unwrap();
    chat.send("Once upon a time", &how).unwrap().text().unwrap();
    let said = chat.messages().clone();
    // Interrupted while it is read.
    drop(chat.send("Then", &how).unwrap());
    chat.save(&path).unwrap();
    let mut session = model.load_session(&path).unwrap();
    assert!(!session.resume(&how).unwrap().text().unwrap().is_empty());
    session.save(&path).unwrap();
    let mut later = Chat::new(model.load_session(&path).unwrap(), template()).unwrap();
    assert_eq!(*later.messages(), said);
    // What comes next goes on as ever.
    later.send("Then", &how.clone().max_tokens(2)).unwrap().text().unwrap();
    later.save(&path).unwrap();
    let more = model.load_session(&path).unwrap().resume(&how).map(|mut rest| rest.text().unwrap());
    assert!(!more.unwrap().is_empty());
    assert_eq!(later.messages().len(), 4);
}

#[test]
fn a_stop_string_is_seen_where_an_answer_was_cut() {
    let Some(model) = stories() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    let how = |n| Generate::greedy().ignore_end().max_tokens(n);
    let mut session = model.session().unwrap();
    let whole = session.generate("One day", &how(40)).unwrap().text().unwrap();
    let mut seen = 0;
    for cut in 5..30 {
        let begun = session.generate("One day", &how(cut)).unwrap().text().unwrap();
        // A stop string of what stands on both sides of the cut, if it is nowhere before.
        let (Some(from), to) = (begun.len().checked_sub(2), begun.len() + 3) else { continue };
        let Some(stop) = whole.get(from..to).filter(|stop| whole.find(*stop) == Some(from)) else { continue };
        seen += 1;
        let begun = session.generate("One day", &how(cut).stop(stop)).unwrap().text().unwrap();
        session.save(&path).unwrap();
        for mut session in
            [model.load_session(&path).unwrap(), std::mem::replace(&mut session, model.session().unwrap())]
        {
            let mut rest = session.resume(&how(40).stop(stop)).unwrap();
            let text = rest.text().unwrap();
            assert_eq!(rest.finish(), Some(&Finish::Stop), "{cut}: {begun:?} {text:?}");
            // What was given away cannot be taken back.
            assert_eq!((begun.len(), text.as_str()), (from + 2, ""), "{cut}: {stop:?}");
        }
    }
    assert!(seen > 3, "{seen} of {whole:?}");
}

#[test]
fn a_stop_string_is_seen_where_an_answer_was_cut_several_times() {
    let Some(model) = stories() else { return };
    let how = |n| Generate::greedy().ignore_end().max_tokens(n);
    let mut session = model.session().unwrap();
    let whole = session.generate("One day", &how(40)).unwrap().text().unwrap();
    // All that comes after the first tokens, but for its end, is the stop string.
    let first = session.generate("One day", &how(4)).unwrap().text().unwrap();
    let stop = &whole[first.len()..first.len() + 14];
    for dropped in [false, true] {
        let mut text = session.generate("One day", &how(5).stop(stop)).unwrap().text().unwrap();
        let mut finish = None;
        for _ in 0..20 {
            let mut rest = session.resume(&how(if dropped { 40 } else { 1 }).stop(stop)).unwrap();
            while rest.finish().is_none() && (!dropped || rest.ids().is_empty()) {
                text += &rest.step().unwrap().unwrap_or_default();
            }
            finish = rest.finish().cloned();
            if finish == Some(Finish::Stop) {
                break;
            }
        }
        assert_eq!(finish, Some(Finish::Stop), "{text:?} {stop:?}");
        assert!(text.starts_with(&first) && text.len() < first.len() + stop.len(), "{text:?} {stop:?}");
    }
}

#[test]
fn an_answer_that_goes_on_without_its_chat_is_whole_in_the_conversation() {
    let Some(model) = stories() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk.session");
    let how = how(0).stop("the ").max_tokens(120);
    let mut chat = Chat::new(model.session().unwrap(), template()).unwrap();
    let mut reply = chat.send("Once upon a time", &how).unwrap();
    let want = reply.text().unwrap();
    assert_eq!(reply.generation().finish(), Some(&Finish::Stop));
    let drawn = reply.generation().ids().len();
    drop(reply);
    for cut in 1..drawn - 3 {
        let mut chat = Chat::new(model.session().unwrap(), template()).unwrap();
        let mut reply = chat.send("Once upon a time", &how).unwrap();
        while reply.generation().ids().len() < cut {
            reply.step().unwrap();
        }
        drop(reply);
        chat.save(&path).unwrap();
        for more in [2, 120] {
            let mut session = model.load_session(&path).unwrap();
            let mut rest = session.resume(&how).unwrap();
            while rest.finish().is_none() && rest.ids().len() < more {
                rest.step().unwrap();
            }
            drop(rest);
            session.save(&path).unwrap();
        }
        let mut later = Chat::new(model.load_session(&path).unwrap(), template()).unwrap();
        assert_eq!(later.messages().len(), 2, "{cut}");
        assert_eq!(later.messages()[1].content, want, "{cut}");
        later.send("Then", &how.clone().max_tokens(2)).unwrap().text().unwrap();
        assert_eq!(later.messages().len(), 4);
    }
}

#[test]
fn other_models_and_settings_are_refused_with_a_reason() {
    let Some(shared) = shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("a.session"), folder.path().join("other.gguf"));
    let file = shared.join("models/stories260K/stories260K-q8_0.gguf");
    let model = stories().unwrap();
    let mut session = model.session().unwrap();
    session.generate("One day", &Generate::greedy().max_tokens(20)).unwrap().text().unwrap();
    session.save(&path).unwrap();
    let refused = |model: &Model, path: &Path| {
        let error = model.load_session(path).unwrap_err().to_string();
        assert!(error.starts_with(&path.display().to_string()), "{error}");
        error
    };
    for name in ["stories260K-f32.gguf", "stories260K-f16.gguf", "hf"] {
        let model = open(&shared.join("models/stories260K").join(name), &F16);
        assert!(refused(&model, &path).contains("another model"), "{name}");
    }
    // The same shapes with slightly other numbers, as a fine-tune has them.
    let mut bytes = fs::read(&file).unwrap();
    let half = bytes.len() / 2;
    bytes[half..].iter_mut().step_by(67).for_each(|byte| *byte ^= 1);
    fs::write(&other, &bytes).unwrap();
    assert!(refused(&open(&other, &F16), &path).contains("another model"));
    // The same file elsewhere is the same model.
    fs::copy(&file, &other).unwrap();
    open(&other, &F16).load_session(&path).unwrap();
    assert!(refused(&open(&file, &Q8_0), &path).contains("\"q8_0\""));
    let short = Options::new().context(16).open(&file).unwrap();
    assert!(refused(&short, &path).contains("longer context"));
    assert!(refused(&model, &file).contains("not a saved session"));
    assert!(refused(&model, Path::new("/no/such")).contains("No such file"));
    assert!(refused(&model, folder.path()).len() > 20);
    assert!(session.save(folder.path()).unwrap_err().to_string().contains("not the name of a file"));
    assert!(session.save(folder.path().join("no/such/folder")).is_err());
}

#[test]
fn damaged_files_are_refused_and_nothing_half_written_is_left() {
    let Some(model) = stories() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    let mut session = model.session().unwrap();
    session.generate("One day", &how(1).max_tokens(10)).unwrap().text().unwrap();
    session.save(&path).unwrap();
    session.save(&path).unwrap();
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["a.session"]);
    let good = fs::read(&path).unwrap();
    let mut random = Random(9);
    for i in 0..400 {
        let mut bad = good.clone();
        if i % 4 == 0 {
            bad.truncate(random.below(good.len()));
        } else {
            // The header is where most can go wrong.
            let within = if i % 2 == 0 { good.len() } else { 400 };
            bad[random.below(within)] ^= 1 << random.below(8);
        }
        fs::write(&path, &bad).unwrap();
        let error = model.load_session(&path).unwrap_err().to_string();
        assert!(error.len() > 20, "{error}");
    }
}

#[test]
fn log_probabilities_of_an_answer_are_those_of_its_text() {
    let Some(model) = stories() else { return };
    let mut session = model.session().unwrap();
    let how = Generate::new().seed(2).max_tokens(40);
    let plain = session.generate("Once upon a time", &how).unwrap().text().unwrap();
    let mut story = session.generate("Once upon a time", &how.clone().logprobs(3)).unwrap();
    assert_eq!(story.text().unwrap(), plain, "asking changes nothing");
    let (ids, told) = (story.ids().to_vec(), story.logprobs().to_vec());
    let prompt = story.prompt_ids().to_vec();
    assert_eq!(told.iter().map(|t| t.token.id).collect::<Vec<_>>(), ids);
    let bytes: Vec<u8> = told.iter().flat_map(|t| t.token.bytes.clone()).collect();
    assert_eq!(String::from_utf8_lossy(&bytes), plain);
    let sum: f64 = told.iter().map(|t| t.token.logprob).sum();
    assert_eq!(story.cumulative_logprob(), sum);
    drop(story);
    let scored = model.score(Prompt::Ids([&*prompt, &*ids].concat()), 3).unwrap();
    assert_eq!(scored[prompt.len() - 1..], told, "to the bit");
    // Greedy draws the first of the best, at any temperature of the model's own distribution.
    let mut best = session.generate("Once", &Generate::greedy().max_tokens(9).logprobs(1)).unwrap();
    best.text().unwrap();
    assert!(best.logprobs().iter().all(|t| t.best == [t.token.clone()]));
    // A text and its perplexity: sense is likelier than the same words in disorder.
    let mean = |text: &str| {
        let all = model.score(text, 0).unwrap();
        all.iter().map(|t| t.token.logprob).sum::<f64>() / all.len() as f64
    };
    assert!(
        mean("Once upon a time, there was a little girl.")
            > mean("girl a upon little Once was time, there a.") + 1.0
    );
}
