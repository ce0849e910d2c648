//! Sessions in files and log probabilities, as the program offers them.

mod common;

use common::{Ran, command, ogive, ogive_reads, shared};
#[cfg(unix)]
use common::{limited, reads};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;

/// A run of so many tokens by a sampler that keeps a state.
fn run(model: &Path, more: &[&std::ffi::OsStr]) -> Ran {
    let fixed = args!["run", "--model", model, "--raw", "--json", "--mirostat", "2", "--ignore-eos"];
    ogive(fixed.iter().map(AsRef::as_ref).chain(more.iter().copied()))
}

macro_rules! run {
    ($model:expr, $($arg:expr),*) => { run($model, &[$(std::ffi::OsStr::new(&$arg)),*]) };
}

#[test]
fn a_story_goes_on_as_if_it_had_not_been_saved() {
    let Some(model) = shared("models/stories260K/stories260K-q8_0.gguf") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    let whole = run!(&model, "-n", "40", "--seed", "7", "Once upon a time").json();
    let first = run!(&model, "-n", "15", "--seed", "7", "--save", a, "Once upon a time").json();
    let second = run!(&model, "-n", "15", "--load", a, "--save", b).json();
    let third = run!(&model, "-n", "10", "--load", b).json();
    let text = |part: &serde_json::Value| part["text"].as_str().unwrap().to_owned();
    assert_eq!([text(&first), text(&second), text(&third)].concat(), text(&whole));
    assert_eq!((&second["seed"], &third["seed"]), (&whole["seed"], &whole["seed"]));
    // Another seed draws otherwise, and other samplers are told of.
    let other = run!(&model, "-n", "15", "--load", a, "--seed", "8");
    assert_ne!(other.json()["ids"], second["ids"]);
    assert!(other.stderr.contains("goes on with this seed") && !other.stderr.contains("other samplers"));
    let ran = ogive(args!["run", "--model", model, "--raw", "--temp", "0", "-n", "4", "--load", a]);
    assert!(!ran.text().is_empty() && ran.stderr.contains("other samplers"), "{}", ran.stderr);
    // What else is wrong is told as it is.
    let full = folder.path().join("full");
    run!(&model, "-c", "12", "--save", full, "Once upon a time").json();
    let ran = run!(&model, "-c", "12", "--load", full);
    assert!(ran.error(1).contains("no room") && !ran.stderr.contains("other samplers"), "{}", ran.stderr);
    // A prompt that the session has a part of is not read again.
    let ran = ogive(args!["run", "--model", model, "--raw", "-n", "4", "--load", a, "Once upon a time"]);
    assert!(ran.text().len() > 2 && ran.stderr.contains("more kept)"), "{}", ran.stderr);
}

#[test]
fn what_cannot_be_loaded_or_saved_is_one_clear_line() {
    let Some(model) = shared("models/stories260K/stories260K-q8_0.gguf") else { return };
    let folder = tempfile::tempdir().unwrap();
    let a = folder.path().join("a");
    run!(&model, "-n", "5", "--save", a, "Once").json();
    let other = shared("models/stories260K/stories260K-f16.gguf").unwrap();
    assert!(run!(&other, "--load", a).error(1).contains("saved with another model"));
    assert!(run!(&model, "--cache-type", "f32", "--load", a).error(1).contains("\"f32\""));
    assert!(run!(&model, "--load", model).error(1).contains("not a saved session"));
    assert!(run!(&model, "--load", folder.path().join("none")).error(1).contains("No such file"));
    assert!(run!(&model,).stderr.contains("there is no prompt"));
    let mut bytes = fs::read(&a).unwrap();
    bytes.truncate(bytes.len() - 1);
    fs::write(&a, bytes).unwrap();
    assert!(run!(&model, "--load", a).error(1).contains("damaged"));
}

#[test]
#[cfg(unix)]
fn a_full_disk_leaves_nothing_and_spares_what_was_there() {
    let Some(model) = shared("models/stories260K/stories260K-q8_0.gguf") else { return };
    let folder = tempfile::tempdir().unwrap();
    let a = folder.path().join("a");
    fs::write(&a, "as it was").unwrap();
    let mut run = limited(8);
    run.args(args!["run", "--model", model, "--raw", "-q", "-n", "40", "--save", a, "Once upon a time"]);
    let ran = reads(&mut run, b"");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    // In a line of its own: the text had ended none.
    assert!(ran.stderr.starts_with("\nerror: ") && ran.stderr.contains("saving a session"), "{}", ran.stderr);
    assert!(!ran.stdout.is_empty(), "the text had come");
    assert_eq!(fs::read_to_string(&a).unwrap(), "as it was");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
#[cfg(unix)]
fn what_a_reader_has_had_enough_of_is_saved() {
    let Some(model) = shared("models/stories260K/stories260K-q8_0.gguf") else { return };
    let folder = tempfile::tempdir().unwrap();
    let a = folder.path().join("a");
    let fixed =
        args!["run", "--model", model, "--raw", "-q", "--context", "100000", "--temp", "0", "--ignore-eos"];
    let mut run = command();
    run.env("OGIVE_LOG", "error")
        .args(&fixed)
        .args(args!["--save", a, "Once"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = run.spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 20]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
    let more = ogive(fixed.into_iter().chain(args!["-n", "3", "--load", a]));
    assert!(!more.text().is_empty());
}

#[test]
fn log_probabilities_as_json_and_as_a_table() {
    let Some(model) = shared("models/stories260K/stories260K-f32.gguf") else { return };
    let json = run!(&model, "-n", "6", "--seed", "1", "--logprobs", "3", "Once upon a time").json();
    let each = json["logprobs"].as_array().unwrap();
    assert_eq!(each.len(), 6);
    let ids: Vec<_> = each.iter().map(|t| t["id"].clone()).collect();
    assert_eq!(serde_json::Value::from(ids), json["ids"]);
    let mut sum = 0.0;
    for token in each {
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        assert!(top[0]["logprob"].as_f64() >= token["logprob"].as_f64(), "{token}");
        let bytes: Vec<u8> = serde_json::from_value(token["bytes"].clone()).unwrap();
        assert_eq!(String::from_utf8_lossy(&bytes), token["token"].as_str().unwrap());
        sum += token["logprob"].as_f64().unwrap();
    }
    assert!((json["cumulative_logprob"].as_f64().unwrap() - sum).abs() < 1e-12);
    assert!(run!(&model, "-n", "2", "Once").json().get("logprobs").is_none());

    let ran = ogive(args![
        "run",
        "--model",
        model,
        "--temp",
        "0",
        "-n",
        "3",
        "-q",
        "--logprobs",
        "2",
        "Once upon a time"
    ]);
    assert_eq!(ran.text(), ", there was");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(lines.len(), 5, "{}", ran.stderr);
    assert!(
        lines[0].starts_with("token") && lines[1].starts_with("\",\"") && lines[2].contains("\" there\"")
    );
    assert!(lines[4].starts_with("3 tokens: logprob -"), "{}", lines[4]);
}

#[test]
fn a_conversation_is_kept_between_runs() {
    let Some(model) = shared("models/stories260K/stories260K-f32.gguf") else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let (template, kept, other, json) = (file("t.jinja"), file("kept"), file("other"), file("said.JSON"));
    fs::write(&template, "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}").unwrap();
    let talk = |more: &[&std::ffi::OsStr], script: &str| {
        let fixed = args!["chat", "--model", model, "--chat-template", template, "--temp", "0", "-n", "9"];
        ogive_reads(fixed.iter().map(AsRef::as_ref).chain(more.iter().copied()), script.as_bytes())
    };
    let whole = talk(&[], "Once upon a time\nLily\nThe end\n").text();
    let session = args!["--session", kept];
    let session: Vec<_> = session.iter().map(AsRef::as_ref).collect();
    let first = talk(&session, "Once upon a time\n").text();
    let again = talk(&session, "Lily\n/stats\n");
    assert!(
        again.stderr.contains("2 messages, ") && again.stderr.contains("4 messages;"),
        "{}",
        again.stderr
    );
    assert!(again.stderr.contains("more kept)"), "only what is new was read: {}", again.stderr);
    let third = talk(&session, &format!("/save {}\n/save {}\nThe end\n", other.display(), json.display()));
    assert_eq!([first, again.text(), third.text()].concat(), whole);
    for saved in [&other, &json] {
        let ran = talk(&[], &format!("Something else\n/load {}\nThe end\n", saved.display()));
        assert!(ran.text().ends_with(&third.text()), "{}", ran.stderr);
        assert!(ran.stderr.contains("4 messages from"), "{}", ran.stderr);
    }
    let bad = talk(&[], &format!("/load {}\n/load {}\n", template.display(), file("none").display()));
    assert_eq!(bad.code, Some(1));
    assert!(
        bad.stderr.contains("not a saved session") && bad.stderr.contains("No such file"),
        "{}",
        bad.stderr
    );
    // An answer that goes on without a message is still the conversation's.
    let longer = file("longer");
    let fixed = args!["run", "--model", model, "--temp", "0", "-n", "5", "--load", other, "--save", longer];
    let more = ogive(fixed).text();
    let said = |from: &Path| {
        let ran = talk(&[], &format!("/load {}\n/save {}\n", from.display(), json.display()));
        assert!(ran.stderr.contains("4 messages from"), "{}", ran.stderr);
        let said: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        said[3]["content"].as_str().unwrap().to_owned()
    };
    assert_eq!(said(&longer), said(&other) + &more);
    // `ogive run` goes on with a conversation too.
    let fixed = args![
        "run",
        "--model",
        model,
        "--chat-template",
        template,
        "--temp",
        "0",
        "-n",
        "9",
        "--load",
        other
    ];
    let ran = ogive(fixed.iter().cloned().chain(["The end".into()]));
    assert_eq!(ran.text() + "\n", third.text());
    // So it does with a message that comes by stdin.
    assert_eq!(ogive_reads(&fixed, b"The end\n").text(), ran.text());
    let without = args!["run", "--model", model, "--temp", "0", "-n", "9", "--load", other];
    assert_eq!(ogive_reads(&without, b"\n").text(), ogive(&without).text(), "of which nothing came");
}

/// As a supervisor leaves it.
#[test]
fn a_pipe_without_an_end_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let fixed = args!["run", "--model", ogive::DEMO, "--raw", "--temp", "0", "-n", "5"];
    ogive(fixed.iter().cloned().chain(args!["--save", kept, "Once upon"])).text();
    let want = ogive(fixed.iter().cloned().chain(args!["--load", kept, "a time"])).text();
    let mut load = command();
    load.args(&fixed).args(args!["--load", kept]);
    let mut child = load.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.starts_with("waiting for the end of stdin") && line.contains("</dev/null"), "{line}");
    stdin.write_all(b"a time").unwrap();
    drop(stdin);
    let rest = std::thread::spawn(move || said.read_to_end(&mut Vec::new()));
    assert_eq!(String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap(), want);
    rest.join().unwrap().unwrap();
}

/// There is always room for what was said, whatever became of it.
#[test]
#[cfg(target_os = "linux")]
fn an_answer_that_fails_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let fixed = args!["run", "--model", ogive::DEMO, "--raw", "--temp", "0"];
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut run = command();
    run.args(&fixed).args(args!["-n", "5", "--save", kept, "Once upon a time"]).stdout(full);
    let output = run.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("writing to stdout: No space left"), "{said}");
    assert!(!ogive(fixed.iter().cloned().chain(args!["-n", "3", "--load", kept])).text().is_empty());
    // Both are told where that fails too.
    let mut run = limited(8);
    let story = "Once upon a time there was ".repeat(12);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = run.args(&fixed).args(args!["--save", folder.path().join("other"), story]).stdout(full);
    let output = output.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("saving a session") && said.contains("; and before that: writing to stdout"),
        "{said}"
    );
    // Before its first token there is nothing.
    let none = folder.path().join("none");
    let ran = ogive(fixed.iter().cloned().chain(args!["-c", "4", "--save", none, story]));
    assert!(ran.error(1).contains("no room") && !none.exists(), "{}", ran.stderr);
}

/// A vocabulary that has no `z` cannot go on to it.
#[test]
fn what_came_before_an_error_is_in_the_object() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden/llama");
    let folder = tempfile::tempdir().unwrap();
    let (model, kept) = (folder.path().join("model"), folder.path().join("kept"));
    fs::create_dir(&model).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(golden.join(file), model.join(file)).unwrap();
    }
    let vocab: Vec<String> = ('a'..='j').enumerate().map(|(id, c)| format!("\"{c}\": {id}")).collect();
    let bpe = format!(r#"{{"type": "BPE", "vocab": {{{}}}, "merges": []}}"#, vocab.join(", "));
    let decoder = r#"{"type": "Fuse"}"#;
    let tokenizer =
        format!(r#"{{"version": "1.0", "added_tokens": [], "decoder": {decoder}, "model": {bpe}}}"#);
    fs::write(model.join("tokenizer.json"), tokenizer).unwrap();
    let fixed = args!["run", "--model", model, "--raw", "--json", "--temp", "0", "--regex", "abz", "cde"];
    let ran = ogive(fixed.into_iter().chain(args!["--save", kept]));
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let object: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!([&object["text"], &object["finish"]], ["ab", "failed"]);
    assert_eq!(
        (&object["ids"], &object["complete"]),
        (&serde_json::json!([0, 1]), &serde_json::json!(false))
    );
    let why = object["error"].as_str().unwrap();
    assert!(ran.stderr.contains(&format!("error: {why}")), "{}", ran.stderr);
    assert!(kept.exists());
}

/// Of which the model has read nothing, or not what is said now.
#[test]
fn a_conversation_is_kept_that_was_only_loaded_or_begun() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let talk = |kept: &Path, script: &str| {
        let fixed = args!["chat", "--model", ogive::DEMO, "--temp", "0", "-n", "9", "--session", kept];
        let ran = ogive_reads(fixed, script.as_bytes());
        ran.text();
        ran.stderr
    };
    let (old, said) = (file("old.json"), file("said.json"));
    talk(&file("first"), &format!("What is the capital of France?\n/save {}\n", old.display()));
    let save = format!("/save {}\n", said.display());
    let messages = || serde_json::from_slice::<serde_json::Value>(&fs::read(&said).unwrap()).unwrap();
    talk(&file("loaded"), &format!("/load {}\n/exit\n", old.display()));
    let again = talk(&file("loaded"), &save);
    assert!(again.contains("2 messages, "), "{again}");
    assert_eq!(fs::read(&said).unwrap(), fs::read(&old).unwrap());
    talk(&file("begun"), "/system Be brief.\n/exit\n");
    talk(&file("begun"), &save);
    assert_eq!(messages(), serde_json::json!([{ "role": "system", "content": "Be brief." }]));
    // Where nothing was said there is nothing to keep.
    talk(&file("nothing"), "/exit\n");
    assert!(!file("nothing").exists());
}
