//! Answers held to a form, from the command line, and nonsense given as one.

mod common;

use common::{ogive, shared};
use std::ffi::OsString;
use std::fs;

const SCHEMA: &str = r#"{"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"], "additionalProperties": false}"#;

fn run(more: &[&str]) -> Option<Vec<OsString>> {
    let model = shared("models/stories260K/stories260K-q8_0.gguf")?;
    let mut args = args!["run", "--model", model, "--seed", "3", "-n", "60", "Once upon a time"];
    args.extend(more.iter().map(OsString::from));
    Some(args)
}

#[test]
fn each_form_holds() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let marked = file("marked.json", &format!("\u{feff}{SCHEMA}"));
    let (schema, grammar) = (file("n.json", SCHEMA), file("n.gbnf", "root ::= \"yes\" | \"no\"\n"));
    for form in [["--json-schema", SCHEMA], ["-j", &schema], ["-j", &marked]] {
        let Some(args) = run(&form) else { return };
        let value: serde_json::Value = serde_json::from_str(&ogive(args).text()).unwrap();
        assert!((1..=9).contains(&value["n"].as_u64().unwrap()), "{value}");
    }
    for form in [["--grammar", &grammar], ["--grammar", "root ::= \"yes\" | \"no\""], ["--regex", "yes|no"]] {
        let answer = ogive(run(&form).unwrap()).text();
        assert!(answer == "yes" || answer == "no", "{answer}");
    }
    let whole = ogive(run(&["--json", "--regex", "[a-c]{3}"]).unwrap()).json();
    assert_eq!(
        (whole["complete"].as_bool(), whole["finish"].as_str()),
        (Some(true), Some("stop")),
        "{whole}"
    );
    let cut = ogive(run(&["--json", "-n", "2", "--regex", "[0-9]{30}"]).unwrap()).json();
    assert_eq!((cut["complete"].as_bool(), cut["finish"].as_str()), (Some(false), Some("length")), "{cut}");
    let cut = ogive(run(&["-n", "2", "--regex", "[0-9]{30}"]).unwrap());
    assert!(cut.stderr.contains("cut off"), "{}", cut.stderr);
    assert!(ogive(run(&["--json"]).unwrap()).json()["complete"].is_null());
}

#[test]
fn nonsense_is_told_before_a_model_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("binary");
    fs::write(&binary, [0xff, 0xfe, 0, 1]).unwrap();
    let empty = folder.path().join("empty");
    fs::write(&empty, "").unwrap();
    let wrong = folder.path().join("wrong");
    fs::write(&wrong, "root ::= \"a").unwrap();
    let [binary, empty, wrong] = [&binary, &empty, &wrong].map(|path| path.to_str().unwrap());
    let deep = format!("root ::= {}", "(".repeat(100_000));
    let nested = format!("{{\"a\": {}", "[".repeat(100_000));
    for (option, value, said) in [
        ("--grammar", "no/such/file", "no/such/file: there is no such file; a grammar itself has"),
        ("--json-schema", "[]", "a schema itself begins with a brace"),
        ("--grammar", binary, "UTF-8"),
        ("--grammar", empty, "no rule \"root\""),
        ("--grammar", wrong, "wrong: reading a grammar: line 1, column 12"),
        ("--grammar", "root ::= \"a", "line 1, column 12"),
        ("--grammar", "root ::= \"a\" root", "never end"),
        ("--grammar", &deep, "groups in each other"),
        ("--json-schema", "{", "reading a JSON schema"),
        ("--json-schema", &nested, "reading a JSON schema"),
        ("--json-schema", empty, "EOF"),
        ("--json-schema", "{\"type\": \"objekt\"}", "objekt"),
        ("--json-schema", "{\"requierd\": []}", "\"required\" is"),
        (
            "--json-schema",
            "{\"type\": \"integer\", \"minimum\": 3, \"maximum\": 1}",
            "nothing can satisfy it",
        ),
        ("--json-schema", "{\"$ref\": \"#\"}", "without an end"),
        ("--regex", "(a", "unclosed group"),
        ("--regex", "a\\b", "word boundaries"),
    ] {
        // What is in a file is no mistake of the command line's.
        let of_a_file = value == "no/such/file" || value == "[]" || [binary, empty, wrong].contains(&value);
        let code = if of_a_file { 1 } else { 2 };
        let ran = ogive(args!["run", "--model", "no-such-model.gguf", option, value, "x"]);
        assert!(ran.error(code).contains(said), "{option} {:.60}: {}", value, ran.stderr);
        let ran = ogive(args!["chat", "--model", "no-such-model.gguf", option, value]);
        assert!(ran.error(code).contains(said), "{option} {:.60}: {}", value, ran.stderr);
    }
    let both = ogive(args!["run", "--model", "m", "--regex", "a", "--grammar", "root ::= \"a\"", "x"]);
    assert!(both.error(2).contains("cannot be used with"), "{}", both.stderr);
}
