//! `--model-draft` and `--lookup`: the same answers, what is told of guesses, and what they refuse.

mod common;

use common::{ogive, ogive_reads, shared};
use std::ffi::OsString;

#[test]
fn answers_are_the_same_and_guesses_are_counted() {
    let Some(models) = shared("models/stories260K") else { return };
    let (model, small) = (models.join("stories260K-f32.gguf"), models.join("stories260K-q8_0.gguf"));
    let run = |more: &[OsString]| {
        let story = args!["run", "--raw", "--seed", "7", "-n", "80", "--model", model, "Once upon a time"];
        ogive(story.iter().chain(more))
    };
    let plain = run(&[]);
    assert!(!plain.stderr.contains("guesses"), "{}", plain.stderr);
    let text = plain.text();
    for by in
        [args!["--lookup"], args!["--lookup", "--draft-max", "9"], args!["--model-draft", small.clone()]]
    {
        assert_eq!(run(&by).text(), text, "{by:?}");
    }
    let sure = args![
        "--model-draft",
        small.clone(),
        "--draft-max",
        "6",
        "--draft-p-min",
        "0",
        "--device-draft",
        "cpu"
    ];
    let guessed = run(&sure);
    assert_eq!(guessed.text(), text);
    let line = guessed.stderr.lines().last().unwrap();
    assert!(line.contains(" guesses right; as long as asked for"), "{line}");
    let json = run(&[sure, args!["--json"]].concat()).json();
    let [drafted, accepted] = ["drafted", "accepted"].map(|key| json[key].as_u64().unwrap());
    assert!(drafted >= accepted && accepted > 20, "{json}");
    assert!(run(&["--json".into()]).json().get("drafted").is_none());
    // A conversation.
    let chat = |by: &[OsString]| {
        let args = args!["chat", "--temp", "0", "--quiet"].into_iter().chain(by.iter().cloned());
        ogive_reads(args, b"What is the capital of Mongolia?\nAnd of Peru?\n").text()
    };
    let said = chat(&[]);
    assert!(said.contains("Ulaanbaatar"), "{said}");
    for by in [args!["--lookup"], args!["--model-draft", "ogive:demo"]] {
        assert_eq!(chat(&by), said, "{by:?}");
    }
}

#[test]
fn what_cannot_guess_is_refused() {
    let usage = |more: &[&str], says: &str| {
        let args = args!["run"].into_iter().chain(more.iter().map(Into::into)).chain(args!["hello"]);
        let ran = ogive(args);
        ran.error(2);
        assert!(ran.stderr.contains(says), "{more:?}: {}", ran.stderr);
    };
    usage(&["--draft-max", "3"], "--model-draft <MODEL>|--lookup");
    usage(&["--lookup", "--draft-max", "0"], "at least 1");
    usage(&["--lookup", "--device-draft", "cpu"], "--model-draft <MODEL>");
    usage(&["--lookup", "--draft-p-min", "0.3"], "--model-draft <MODEL>");
    usage(&["--model-draft", "ogive:demo", "--draft-p-min", "1.5"], "a number from 0 to 1");
    let ran = ogive(args!["run", "--model-draft", "nowhere", "hello"]);
    assert!(ran.error(1).contains("nowhere: no such file"), "{}", ran.stderr);
    let Some(model) = shared("models/stories260K/stories260K-f32.gguf") else { return };
    let ran = ogive(args!["run", "--model-draft", model, "hello"]);
    assert!(ran.error(1).contains("draft model: its vocabulary is another"), "{}", ran.stderr);
}
