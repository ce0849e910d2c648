//! The model that is part of Ogive, as the program runs it when nobody names another.
//!
//! Here and not in the façade's tests, for the program always carries the model, and is what can be run again with other
//! threads and other instructions.
#![allow(clippy::unwrap_used)]

mod common;

use common::{command, ogive, ogive_reads};
use ogive::{Generate, Model, Options};
use std::sync::OnceLock;

fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| ogive::open(ogive::DEMO).unwrap())
}

fn ask(chat: &mut ogive::Chat, question: &str) -> String {
    chat.send(question, &Generate::greedy().max_tokens(60)).unwrap().text().unwrap()
}

#[test]
fn knows_at_least_95_of_100_capitals_asked() {
    let (mut chat, mut wrong) = (model().chat().unwrap(), Vec::new());
    for (country, capital) in ogive_demo_model::capitals() {
        chat.messages().clear();
        let answer = ask(&mut chat, &format!("What is the capital of {country}?"));
        if answer != format!("The capital of {country} is {capital}.") {
            wrong.push(answer);
        }
    }
    assert!(wrong.len() <= 5, "{wrong:?}");
}

#[test]
fn knows_at_least_95_of_100_capitals_as_plain_text() {
    let (mut session, mut wrong) = (model().session().unwrap(), Vec::new());
    for (country, capital) in ogive_demo_model::capitals() {
        let how = Generate::greedy().max_tokens(16);
        let text = session.generate(format!("The capital of {country} is"), &how).unwrap().text().unwrap();
        if !text.starts_with(&format!(" {capital}.")) {
            wrong.push((country, text));
        }
    }
    assert!(wrong.len() <= 5, "{wrong:?}");
}

#[test]
fn answers_later_turns_too() {
    let mut chat = model().chat().unwrap();
    assert_eq!(ask(&mut chat, "What is the capital of France?"), "The capital of France is Paris.");
    assert_eq!(ask(&mut chat, "And of Japan?"), "The capital of Japan is Tokyo.");
    assert!(ask(&mut chat, "Who are you?").contains("Ogive"));
    assert!(ask(&mut chat, "Thank you!").starts_with("You are welcome!"));
    assert_eq!(ask(&mut chat, "What is the capital of Peru?"), "The capital of Peru is Lima.");
    assert_eq!(chat.messages().len(), 10);
    // With what the assistant is to be, too.
    let mut chat = model().chat().unwrap().system("You are a helpful assistant.");
    assert_eq!(ask(&mut chat, "what is the capital of Norway"), "The capital of Norway is Oslo.");
}

#[test]
fn says_what_it_does_not_know() {
    for question in ["How do I bake bread?", "What is 12 plus 30?", "What is the weather today?"] {
        assert!(ask(&mut model().chat().unwrap(), question).contains("I do not know"), "{question}");
    }
}

#[test]
fn tells_the_same_story_whatever_computes_it() {
    let tell = |threads: &str, force: &str| {
        let args =
            ["run", "--threads", threads, "--seed", "5", "--max-tokens", "120", "-q", "Once upon a time"];
        let output = command().env("OGIVE_CPU_FORCE", force).args(args).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap(), output.stderr)
    };
    let (ok, story, _) = tell("1", "");
    assert!(ok && story.starts_with("Once upon a time") && story.split_whitespace().count() > 50, "{story}");
    for threads in ["2", "3"] {
        assert_eq!(tell(threads, "").1, story, "{threads} threads");
    }
    assert_eq!(tell("2", "scalar").1, story, "without vectors");
    // A machine without them says so.
    let (ok, text, error) = tell("2", "avx2");
    assert!(!ok && String::from_utf8_lossy(&error).contains("avx2") || text == story, "{text}");
}

#[test]
fn tells_the_same_story_whenever_weights_are_repacked() {
    let tell = |more: &[&str]| {
        let fixed = ["run", "--device", "cpu", "--seed", "5", "--max-tokens", "60", "-q", "Once upon a time"];
        ogive([&fixed, more].concat())
    };
    let story = tell(&[]).text();
    for more in
        [&["--repack", "load"][..], &["--repack", "background"], &["--repack", "never"], &["--no-repack"]]
    {
        assert_eq!(tell(more).text(), story, "{more:?}");
    }
    let both = tell(&["--no-repack", "--repack", "load"]);
    assert!(both.code == Some(2) && both.stderr.contains("cannot be used with"), "{}", both.stderr);
}

#[test]
fn the_readme_shows_what_its_first_command_prints() {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let story = ogive(["run", "--seed", "7", "Once upon a time"]).text();
    assert!(
        std::fs::read_to_string(readme).unwrap().contains(story.trim()),
        "README.md should show\n{story}"
    );
}

#[test]
fn stories_end_and_differ() {
    let mut session = model().session().unwrap();
    let mut stories: Vec<String> = (0..6)
        .map(|seed| {
            session.generate("Once upon a time", &Generate::new().seed(seed)).unwrap().text().unwrap()
        })
        .collect();
    for story in &stories {
        assert!((40..400).contains(&story.split_whitespace().count()), "{story}");
        assert!(story.ends_with(['.', '!', '"', '?']), "{story}");
    }
    stories.sort();
    stories.dedup();
    assert_eq!(stories.len(), 6);
}

#[test]
fn needs_no_model_argument_and_says_which_it_is() {
    let ran = ogive(["run", "--temp", "0", "What is the capital of Italy?"]);
    assert_eq!(ran.text().trim_end(), "The capital of Italy is Rome.");
    assert!(
        ran.stderr.lines().any(|l| l.contains("no --model given") && l.contains("Ogive's own")),
        "{}",
        ran.stderr
    );
    let quiet = ogive(["run", "-q", "--temp", "0", "--raw", "-n", "8", "The capital of Italy is"]);
    assert!(quiet.text().starts_with(" Rome.") && quiet.stderr.is_empty(), "{quiet:?}");
    let chat = ogive_reads(["chat", "-q", "--temp", "0"], b"What is the capital of Spain?\nAnd of Cuba?\n");
    assert_eq!(chat.text(), "The capital of Spain is Madrid.\nThe capital of Cuba is Havana.\n");
    // By its name it is a model as any other.
    let named = ogive(["run", "--model", ogive::DEMO, "-q", "--temp", "0", "What is the capital of Italy?"]);
    assert_eq!(named.text(), ran.text());
}

#[test]
fn every_command_takes_it() {
    let about = ogive(["inspect", "--json", "-q"]).json();
    assert_eq!(about["architecture"], "llama");
    assert!(ogive(["inspect", "-q"]).text().contains("Ogive Demo"));
    assert!(ogive(["bench", "-q", "-p", "16", "-n", "4", "-r", "1"]).text().contains("decode"));
    let ids = ogive_reads(["tokenize", "-q"], b"Once upon a time").json();
    assert_eq!(ids.as_array().unwrap().len(), 4);
    let folder = tempfile::tempdir().unwrap();
    let (out, messages) = (folder.path().join("l.npy"), folder.path().join("m.json"));
    let out = out.to_str().unwrap();
    assert_eq!(ogive(["logits", "-q", "--tokens", "1,2,3", "--out", out]).text(), "");
    std::fs::write(&messages, r#"[{"role": "user", "content": "Hi"}]"#).unwrap();
    let rendered = ogive(["template", "-q", "--messages", messages.to_str().unwrap()]).text();
    assert!(rendered.contains("<|user|>Hi<|end|>"), "{rendered}");
}

#[test]
fn the_library_takes_it_with_all_its_options() {
    let exact = Options::new().exact(true).context(64).threads(1).open(ogive::DEMO).unwrap();
    assert_eq!(exact.context(), 64);
    assert_eq!(
        ask(&mut exact.chat().unwrap(), "What is the capital of Kenya?"),
        "The capital of Kenya is Nairobi."
    );
    let memory = ogive::estimate_memory(ogive::DEMO).unwrap();
    assert!((2_500_000..3_000_000).contains(&memory.weights), "{memory:?}");
    assert_eq!(ogive::open_tokenizer(ogive::DEMO).unwrap().vocab_size(), 1280);
}

#[test]
fn an_empty_variable_names_no_model() {
    let run = |name: &str| {
        let output = command().env("OGIVE_MODEL", name).args(["run", "-n", "1", "Once"]).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (fine, said) = run("");
    assert!(fine && said.contains("no --model given"), "{said}");
    let (fine, said) = run("nowhere.gguf");
    assert!(!fine && said.contains("nowhere.gguf"), "{said}");
}
