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

/// What a variable holds is what the caller's JSON said, to the last bit.
#[test]
fn numbers_pass_through_as_they_are() {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut bits = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let random = std::iter::repeat_with(|| f64::from_bits(bits())).filter(|f| f.is_finite());
    let mut numbers: Vec<f64> = random.take(5000).collect();
    // And such as arguments of tools have: 53.630839129292724.
    numbers.extend(std::iter::repeat_with(|| bits() as f64 / 2f64.powi(57)).take(5000));
    let texts: Vec<String> = numbers.iter().map(|f| format!("{f:?}")).collect();
    let variables: Value = serde_json::from_str(&format!("{{\"x\": [{}]}}", texts.join(","))).unwrap();
    for source in ["{{ x|tojson }}", "{{ x }}", "{% for n in x %}, {{ n }}{% endfor %}"] {
        let found = ChatTemplate::new(source).unwrap().render(&variables, None).unwrap();
        let found = found.trim_start_matches([',', ' ', '[']).trim_end_matches(']').split(", ");
        let found: Vec<String> = found.map(|n| format!("{:?}", n.parse::<f64>().unwrap())).collect();
        assert_eq!(found, texts, "{source}");
    }
}
