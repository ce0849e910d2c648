//! Thoughts go to stderr and answers to stdout, with a model of which every token has one that follows it.
#![allow(clippy::unwrap_used)]

#[path = "common/chain.rs"]
mod chain;
mod common;

use common::{ogive, ogive_reads};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const TOKENS: [&str; 10] =
    ["<s>", "<|user|>", "<|im_end|>", "<|assistant|>", "<think>", "\nHm.", "\n", "</think>", "\n\n", "Four."];
/// After `<|assistant|>`.
const FOLLOWS: [usize; 8] = [3, 4, 5, 6, 7, 8, 9, 2];
const TEMPLATE: &str = "{% for m in messages %}{{ '<|' ~ m.role ~ '|>' }}\
    {% if m.reasoning_content is string %}{{ '<think>\\n' ~ m.reasoning_content ~ '\\n</think>\\n\\n' }}{% endif %}\
    {{ m.content ~ '<|im_end|>' }}{% endfor %}<|assistant|>";

fn write_model(folder: &Path) {
    let tokens: Vec<(&str, bool)> = (0..).zip(TOKENS).map(|(id, name)| (name, id < 4)).collect();
    chain::write_model(folder, &tokens, &[&FOLLOWS], TEMPLATE);
}

#[test]
fn thoughts_go_to_stderr() {
    let folder = tempfile::tempdir().unwrap();
    write_model(folder.path());
    let told = |more: &[&str]| {
        let fixed = args!["run", "--model", folder.path(), "--temp", "0", "-n", "20", "o"];
        ogive(fixed.into_iter().chain(more.iter().map(Into::into)).collect::<Vec<std::ffi::OsString>>())
    };
    let ran = told(&[]);
    assert_eq!(ran.text(), "Four.");
    assert!(ran.stderr.contains("\nHm.\nprompt: 4"), "{}", ran.stderr);
    let quiet = told(&["--quiet"]);
    assert_eq!((&*quiet.text(), &*quiet.stderr), ("Four.", ""));
    let object = told(&["--json"]);
    assert!(!object.stderr.contains("Hm."), "{}", object.stderr);
    let object = object.json();
    assert_eq!((&object["text"], &object["thinking"]), (&json!("Four."), &json!("Hm.")));
    let object = told(&["--raw", "--json"]).json();
    assert!(object.get("thinking").is_none(), "{object}");
    // All that was thought is told, also where it is all that came.
    let cut = told(&["-n", "2"]);
    assert_eq!(cut.text(), "");
    assert!(cut.stderr.contains("\nHm.\nprompt: 4"), "{}", cut.stderr);
}

#[test]
fn a_conversation_in_json_has_its_thoughts() {
    let folder = tempfile::tempdir().unwrap();
    write_model(folder.path());
    let beside = tempfile::tempdir().unwrap();
    let [saved, again, session] = ["a.json", "b.json", "talk"].map(|name| beside.path().join(name));
    let talk = |script: String| {
        let args = args!["chat", "--model", folder.path(), "--temp", "0", "-n", "20"];
        let ran = ogive_reads(args, script.as_bytes());
        (ran.text(), ran.stderr)
    };
    let (text, stderr) = talk(format!("o\no\n/save {}\n/save {}\n", saved.display(), session.display()));
    assert_eq!(text, "Four.\nFour.\n");
    assert_eq!(stderr.matches("Hm.\n").count(), 2, "{stderr}");
    let read = |path| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap();
    let turn = [
        json!({ "role": "user", "content": "o" }),
        json!({ "role": "assistant", "content": "Four.", "reasoning_content": "Hm." }),
    ];
    assert_eq!(read(&saved), json!([&turn[..], &turn].concat()));
    for from in [&saved, &session] {
        talk(format!("/load {}\n/save {}\n", from.display(), again.display()));
        assert_eq!(read(&again), read(&saved), "{}", from.display());
    }
    // As others write it.
    let other = json!([turn[0], { "role": "assistant", "content": "b", "thinking": "a" },
        { "role": "user", "content": "c", "reasoning_content": null }]);
    fs::write(&saved, other.to_string()).unwrap();
    talk(format!("/load {}\n/save {}\n", saved.display(), again.display()));
    let want = json!([turn[0], { "role": "assistant", "content": "b", "reasoning_content": "a" },
        { "role": "user", "content": "c" }]);
    assert_eq!(read(&again), want);
}

/// On a terminal that `script` of util-linux makes.
#[test]
#[cfg(target_os = "linux")]
#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
fn on_a_terminal_thoughts_are_dim() {
    let folder = tempfile::tempdir().unwrap();
    write_model(folder.path());
    let program = env!("CARGO_BIN_EXE_ogive");
    let line = format!("{program} run --model {} --temp 0 -n 20 o", folder.path().display());
    let mut terminal = std::process::Command::new("script");
    let Ok(ran) = terminal.args(["-qefc", &line, "/dev/null"]).stdin(std::process::Stdio::null()).output()
    else {
        eprintln!("skipped: there is no `script`");
        return;
    };
    let shown = String::from_utf8(ran.stdout).unwrap();
    assert!(shown.contains("\x1b[2mHm.\x1b[0m\r\nFour.\r\n"), "{shown:?}");
}
