//! `ogive run` on a real model, against the text that its author published and ids that another program drew.

mod common;

use common::{ogive, ogive_reads, shared, shared_json};
use serde_json::Value;

const FORMS: [(&str, &str); 3] =
    [("stories260K-f32.gguf", "f32"), ("stories260K-f16.gguf", "f16"), ("hf", "f32")];

#[test]
fn the_published_story_to_the_letter() {
    let Some(golden) = shared_json("models/stories260K/golden.json") else { return };
    let ids = golden["published"]["ids"].as_array().unwrap();
    // The first id is BOS, from which an empty prompt starts.
    let n = (ids.len() - 1).to_string();
    for (form, _) in FORMS {
        let model = shared("models/stories260K").unwrap().join(form);
        let run = ogive(args!["run", "--model", model, "--raw", "--temperature", "0", "--max-tokens", n, ""]);
        assert_eq!(run.text(), golden["published"]["text"].as_str().unwrap(), "{form}");
        assert!(run.stderr.contains("using the CPU") && run.stderr.contains("tokens/s"), "{}", run.stderr);
    }
}

#[test]
fn greedy_ids_of_every_prompt() {
    let Some(golden) = shared_json("models/stories260K/golden.json") else { return };
    for (form, precision) in FORMS {
        let model = shared("models/stories260K").unwrap().join(form);
        for case in golden["files"][precision]["cases"].as_array().unwrap() {
            let prompt = case["prompt"].as_str().unwrap();
            let run = ogive(args![
                "run", "--model", model, "--raw", "--temp", "0", "-n", "64", "--json", "-q", prompt
            ]);
            assert_eq!(run.stderr, "");
            let got = run.json();
            assert_eq!(got["prompt_ids"], case["prompt_ids"], "{form}: {prompt}");
            assert_eq!(got["ids"], case["greedy_ids"], "{form}: {prompt}");
            let whole = format!("{prompt}{}", got["text"].as_str().unwrap());
            assert_eq!(whole, case["greedy_text"].as_str().unwrap(), "{form}: {prompt}");
            assert_eq!(got["finish"], "length");
            for rate in ["prefill_tokens_per_second", "decode_tokens_per_second"] {
                assert!(got[rate].as_f64().unwrap() > 0.0, "{rate}");
            }
        }
    }
}

#[test]
fn the_same_seed_tells_the_same_story() {
    let Some(model) = shared("models/stories260K/stories260K-q8_0.gguf") else { return };
    let tell = |more: &[&str]| {
        let fixed = args!["run", "--model", model, "-n", "40", "--json", "Once"];
        ogive(fixed.into_iter().chain(more.iter().map(Into::into)))
    };
    let first = tell(&[]);
    let seed = first.json()["seed"].as_u64().unwrap().to_string();
    assert!(first.stderr.lines().any(|l| l == format!("seed {seed}")), "{}", first.stderr);
    // Of the best tokens alone it says nothing, unless a coin is tossed for them.
    let says = |more: &[&str]| tell(more).stderr.lines().any(|l| l.starts_with("seed "));
    assert!(!says(&["--temp", "0"]) && says(&["--temp", "0", "--xtc-probability", "0.5"]));
    let again = tell(&["--seed", &seed]).json();
    assert_eq!(again["ids"], first.json()["ids"]);
    let threads = tell(&["--seed", &seed, "--threads", "3"]).json();
    assert_eq!(threads["ids"], again["ids"]);
    let others: Vec<Value> =
        ["1", "2", "3"].iter().map(|s| tell(&["--seed", s]).json()["ids"].clone()).collect();
    assert!(others.iter().any(|ids| *ids != others[0]), "a seed makes a difference");
}

#[test]
fn stop_texts_and_stdin_and_the_environment() {
    let Some(model) = shared("models/stories260K/stories260K-f32.gguf") else { return };
    let greedy = ["run", "--temp", "0", "-n", "64"];
    let ask = |more: &[&str], input: &[u8]| {
        let model = args!["--model", model];
        ogive_reads(greedy.iter().chain(more).map(Into::into).chain(model), input)
    };
    let stopped = ask(&["--stop", "zzz", "--stop", "Lily", "Once upon a time"], b"").text();
    assert_eq!(stopped, ", there was a little girl named ");
    // Named or not, and with the line break that `echo` leaves.
    let given = ask(&["-n", "5", "Once upon a time"], b"").text();
    for (prompt, input) in
        [(&["-"][..], "Once upon a time"), (&[], "Once upon a time\n"), (&["-"], "Once upon a time\r\n")]
    {
        let more = [&["-n", "5"], prompt].concat();
        assert_eq!(ask(&more, input.as_bytes()).text(), given, "{prompt:?} {input:?}");
    }
    assert_ne!(ask(&["-n", "5"], b"Once upon a time\n\n").text(), given, "one line break, not all");

    let mut command = common::command();
    let output = command.args(greedy).arg("Once upon a time").env("OGIVE_MODEL", &model).output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().starts_with(", there was"));
}

/// Where there is nothing to divide, there is no number.
#[test]
fn what_was_not_measured_has_no_figure() {
    let one = |more: Vec<std::ffi::OsString>| {
        ogive(
            args!["run", "-m", "ogive:demo", "-n", "1", "--raw", "Once upon a time"].into_iter().chain(more),
        )
    };
    let ran = one(args![]);
    assert!(
        !ran.text().is_empty() && ran.stderr.contains(" tokens/s; answer: 1; as long as"),
        "{}",
        ran.stderr
    );
    let json = one(args!["--json"]).json();
    assert!(json["decode_tokens_per_second"].is_null(), "{json}");
    assert!(json["prefill_tokens_per_second"].as_f64().unwrap() > 0.0, "{json}");

    let score = |more: Vec<std::ffi::OsString>| {
        let fixed = args!["perplexity", "-m", "ogive:demo", "-c", "4", "-"];
        ogive_reads(fixed.into_iter().chain(more), "Once upon a time there was a cat. ".repeat(4).as_bytes())
    };
    let ran = score(args!["--chunks", "1"]);
    assert!(ran.text().starts_with("PPL = ") && !ran.text().contains("+/-"), "{}", ran.text());
    assert!(ran.stderr.contains("[1/1] PPL = ") && !ran.stderr.contains("NaN"), "{}", ran.stderr);
    assert!(score(args!["--chunks", "1", "--json"]).json()["error"].is_null());
    let two = score(args!["--chunks", "2"]);
    assert!(two.text().contains(" +/- ") && !two.stderr.contains("NaN"), "{}", two.stderr);
}

#[test]
#[cfg(unix)]
fn paths_need_not_be_utf_8() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let Some(model) = shared("models/stories260K/stories260K-f32.gguf") else { return };
    let folder = tempfile::tempdir().unwrap();
    let name = |n: &[u8]| folder.path().join(OsStr::from_bytes(n));
    let (copy, out) = (name(b"m\xff.gguf"), name(b"l\xfe.npy"));
    std::fs::copy(model, &copy).unwrap();
    assert!(!ogive(args!["run", "--model", copy, "-n", "4", "x"]).text().is_empty());
    assert_eq!(ogive(args!["logits", "--model", copy, "--tokens", "1", "--out", out]).text(), "");
    assert!(out.is_file());
    assert!(ogive(args!["inspect", copy]).text().contains("260,032"));
    assert!(ogive(args!["run", "--model", name(b"no\xff"), "x"]).error(1).contains("no such file"));
}

#[test]
fn special_tokens_count_only_where_asked_for() {
    let Some(model) = shared("models/stories260K/stories260K-f32.gguf") else { return };
    let ids = |more: &[&str], prompt: &str| {
        let fixed = args!["run", "--model", model, "--temp", "0", "-n", "1", "--json"];
        let more = more.iter().chain([&prompt]).map(Into::into);
        ogive(fixed.into_iter().chain(more)).json()["prompt_ids"].clone()
    };
    assert_eq!(ids(&["--special"], "</s>"), serde_json::json!([1, 2]));
    assert_eq!(ids(&["--special"], ""), serde_json::json!([1]));
    assert_eq!(ids(&["--special"], "Once"), ids(&["--raw"], "Once"));
    let plain = ids(&["--raw"], "</s>");
    assert!(plain.as_array().unwrap().len() > 3 && plain[0] == 1, "{plain}");
    assert!(
        ogive(args!["run", "--model", model, "--special", "--system", "x", "y"])
            .error(2)
            .contains("--system")
    );
}
