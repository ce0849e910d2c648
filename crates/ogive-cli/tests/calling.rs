//! What a model calls is a line of JSON, and the next message is what came of it.
#![allow(clippy::unwrap_used)]

#[path = "common/chain.rs"]
mod chain;
mod common;

use common::{Ran, ogive, ogive_reads};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// Calls twice what it is asked, and answers what came of it.
const TOKENS: [(&str, bool); 11] = [
    ("<s>", true),
    ("<|user|>", true),
    ("<|im_end|>", true),
    ("<|asked|>", true),
    ("<|told|>", true),
    ("<call>", true),
    (r#"{"name": "now", "arguments": {"zone": "cet"}}"#, false),
    (r#", {"name": "day", "arguments": {}}]"#, false),
    ("See.", false),
    ("Noon.", false),
    ("[", false),
];
const FOLLOWS: [&[usize]; 2] = [&[3, 8, 5, 10, 6, 7, 2], &[4, 9, 2]];
const TEMPLATE: &str = "{% for m in messages %}{{ '<|user|>' ~ m.content }}{% if m.tool_calls %}{{ '<call>[' }}\
    {% for c in m.tool_calls %}{{ ', ' if not loop.first }}{{ {'name': c.function.name, 'arguments': c.function.arguments}|tojson }}{% endfor %}]\
    {% endif %}{{ '<|im_end|>' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|told|>' if messages[-1].role == 'tool' else '<|asked|>' }}{% endif %}";
const TOOLS: &str = r#"[{"name": "now", "description": "o", "parameters": {"type": "object", "properties": {}}}, {"type": "function", "function": {"name": "day"}}]"#;
const CALLS: &str = "{\"id\":\"call00001\",\"name\":\"now\",\"arguments\":{\"zone\":\"cet\"}}\n{\"id\":\"call00002\",\"name\":\"day\",\"arguments\":{}}";

fn run(folder: &Path, command: &str, more: &[&str], stdin: &str) -> Ran {
    let fixed = args![command, "--model", folder, "--temp", "0", "-n", "20"];
    let args: Vec<OsString> = fixed.into_iter().chain(more.iter().map(Into::into)).collect();
    if stdin.is_empty() { ogive(args) } else { ogive_reads(args, stdin.as_bytes()) }
}

#[test]
fn calls_are_lines_and_the_next_messages_their_results() {
    let folder = tempfile::tempdir().unwrap();
    chain::write_model(folder.path(), &TOKENS, &FOLLOWS, TEMPLATE);
    let beside = tempfile::tempdir().unwrap();
    let [tools, saved, again, session] =
        ["tools", "a.json", "b.json", "talk"].map(|name| beside.path().join(name).display().to_string());
    fs::write(&tools, TOOLS).unwrap();
    let with = ["--tools", tools.as_str()];
    assert_eq!(run(folder.path(), "run", &[&with[..], &["o"]].concat(), "").text(), format!("See.\n{CALLS}"));
    let object = run(folder.path(), "run", &[&with[..], &["--json", "o"]].concat(), "").json();
    let calls: Vec<Value> = CALLS.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&object["text"], &object["tool_calls"]), (&json!("See."), &json!(calls)));
    // Without tools it is text, of which the mark does not show.
    let plain = run(folder.path(), "run", &["--json", "o"], "").json();
    assert_eq!(
        (&plain["text"], plain.get("tool_calls")),
        (&json!(["See.", TOKENS[10].0, TOKENS[6].0, TOKENS[7].0].concat()), None)
    );

    let script = format!("o\nu\np\n/save {saved}\n/load {saved}\n/save {again}\n");
    let said = run(folder.path(), "chat", &[&with[..], &["--session", &session]].concat(), &script);
    assert_eq!(said.text(), format!("See.\n{CALLS}\nNoon.\n"));
    let [now, day] = ["now", "day"].map(|name| format!("what comes of {name}? The next message is that\n"));
    assert!(said.stderr.find(&now).unwrap() < said.stderr.find(&day).unwrap(), "{}", said.stderr);
    let read = |path: &str| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap();
    let messages = read(&saved);
    assert_eq!(
        messages[1]["tool_calls"][0]["function"],
        json!({ "name": "now", "arguments": { "zone": "cet" } })
    );
    assert_eq!(
        messages[3],
        json!({ "role": "tool", "content": "p", "tool_call_id": "call00002", "name": "day" })
    );
    assert_eq!((messages.as_array().unwrap().len(), &read(&again)), (5, &messages));

    // A call that waits in a session.
    fs::remove_file(&session).unwrap();
    run(folder.path(), "run", &[&with[..], &["--save", &session, "o"]].concat(), "").text();
    let one = run(folder.path(), "run", &[&with[..], &["--load", &session, "u"]].concat(), "");
    assert!(one.stderr.contains("the last answer has several calls"), "{}", one.stderr);
    let both = run(folder.path(), "chat", &[&with[..], &["--session", &session]].concat(), "u\np\n");
    assert_eq!(both.text(), "Noon.\n");
}

#[test]
fn wrong_tools_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let plain = "{% for m in messages %}{{ m.content }}{% endfor %}";
    for (template, tools, more, wrong) in [
        (TEMPLATE, "", &[][..], "reading tools from"),
        (TEMPLATE, "{}", &[], "it should be a list"),
        (TEMPLATE, r#"[{"name": "a"}, {"name": "b c"}]"#, &[], "number 2 of them needs a `name`"),
        (TEMPLATE, r#"[{"name": "a", "parameters": 1}]"#, &[], "number 1 of them needs a `name`"),
        (TEMPLATE, TOOLS, &["--regex", "a"], "an answer that a grammar holds calls nothing"),
        (TEMPLATE, TOOLS, &["--raw"], "cannot be used with"),
        (plain, TOOLS, &[], "chat template does not show how its model calls tools"),
        ("", TOOLS, &[], "this model has no chat template"),
    ] {
        chain::write_model(folder.path(), &TOKENS, &FOLLOWS, template);
        let file = folder.path().join("tools.list");
        fs::write(&file, tools).unwrap();
        let ran =
            run(folder.path(), "run", &[more, &["--tools", &file.display().to_string(), "o"]].concat(), "");
        assert!(ran.code != Some(0) && ran.stderr.contains(wrong), "{tools}: {}", ran.stderr);
    }
}

/// Would say something where the arguments of its call belong.
const LOOSE: [(&str, bool); 11] = [
    ("<s>", true),
    ("<|user|>", true),
    ("<|im_end|>", true),
    ("<|asked|>", true),
    ("<|told|>", true),
    ("<call>", true),
    ("day", false),
    ("<args>", true),
    ("{", false),
    ("}", false),
    ("Noon.", false),
];
const LOOSELY: [&[usize]; 3] = [&[3, 5, 6, 7, 10, 2], &[4, 10], &[9, 2]];
const NAMED: &str = "{% for m in messages %}{{ '<|user|>' ~ m.content }}\
    {% for c in m.tool_calls or [] %}{{ '<call>' ~ c.function.name ~ '<args>' ~ c.function.arguments|tojson }}{% endfor %}{{ '<|im_end|>' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|told|>' if messages[-1].role == 'tool' else '<|asked|>' }}{% endif %}";
const DAY: &str = "{\"id\":\"call00001\",\"name\":\"day\",\"arguments\":{}}";

#[test]
fn calls_are_held_and_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    chain::write_model(folder.path(), &LOOSE, &LOOSELY, NAMED);
    let beside = tempfile::tempdir().unwrap();
    let [tools, session] = ["tools", "talk"].map(|name| beside.path().join(name).display().to_string());
    fs::write(&tools, TOOLS).unwrap();
    let with = |more: &[&str], stdin: &str| {
        let command = if stdin.is_empty() { "run" } else { "chat" };
        run(folder.path(), command, &[&["--tools", tools.as_str()], more].concat(), stdin)
    };
    assert_eq!(with(&["o"], "").text(), "dayNoon.");
    assert_eq!(with(&["--strict", "o"], "").text(), DAY);
    assert_eq!(with(&["--call", "day", "--save", &session, "o"], "").text(), DAY);
    let object = with(&["--call", "day", "--json", "o"], "").json();
    assert_eq!(object["tool_calls"], json!([serde_json::from_str::<Value>(DAY).unwrap()]));
    // What came of it is answered freely.
    assert_eq!(with(&["--call", "day"], "o\nn\n").text(), format!("{DAY}\nNoon.\n"));
    assert_eq!(with(&["--load", &session, "n"], "").text(), "Noon.");
    for (more, wrong) in [
        (&["--call", "night", "o"][..], "has no such tool, but now, day"),
        (&["--call", "day", "-n", "1", "o"], "cut short"),
        (&["--call", "day", "--logprobs", "1", "o"], "leave out --logprobs"),
        (&["--call", "day", "--load", &session, "n"], "leave out --call"),
    ] {
        let ran = with(more, "");
        assert!(ran.code != Some(0) && ran.stderr.contains(wrong), "{more:?}: {}", ran.stderr);
    }
    for option in [&["--strict"][..], &["--call", "day"]] {
        let ran = run(folder.path(), "run", &[option, &["o"]].concat(), "");
        assert!(ran.code == Some(2) && ran.stderr.contains("--tools"), "{}", ran.stderr);
    }
}
