//! Python's meaning, expression by expression: what jinja2 in its immutable sandbox, set up as transformers does, prints
//! for each line of `data/jinja.json`, or that it fails. `data/jinja.py` records the lines.

// Skips and counts are said aloud.
#![allow(clippy::print_stdout)]

use ogive_tokenizer::template::{ChatTemplate, DateTime};
use serde_json::Value;

#[test]
fn templates_mean_what_they_mean_in_jinja2() {
    let data: Value = serde_json::from_str(include_str!("data/jinja.json")).unwrap();
    let (mut same, mut wrong) = (0, Vec::new());
    for case in data["cases"].as_array().unwrap() {
        let (source, expected) = (case[0].as_str().unwrap(), case[1].as_str());
        let now = DateTime::new(2025, 1, 15, 12, 34, 56);
        let found = ChatTemplate::new(source).and_then(|t| t.render(&data["variables"], now));
        if found.as_deref().ok() == expected {
            same += 1;
        } else {
            wrong.push(format!("{source}\n  expected {expected:?}\n  found    {found:?}"));
        }
    }
    println!("{same} lines are the same, {} differ", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(same > 500, "only {same} lines");
}
