//! `ogive bench` and `ogive devices`: what they print. The figures are the machine's.

mod common;

use common::{ogive, shared};

#[test]
fn figures_for_scripts_and_for_people() {
    let Some(model) = shared("models/stories260K/stories260K-q8_0.gguf") else { return };
    for (more, depth) in [(&["-d", "0"][..], 0), (&["-d", "33", "-b", "3"], 33)] {
        let fixed = args!["bench", "--model", model, "-p", "20", "-n", "8", "-r", "3", "--threads", "2"];
        let args: Vec<_> = fixed.into_iter().chain(more.iter().map(Into::into)).collect();
        let json = ogive(args.iter().cloned().chain(args!["--json"])).json();
        assert_eq!((&json["depth"], &json["repetitions"]), (&depth.into(), &3.into()));
        for kind in ["prefill_tokens_per_second", "decode_tokens_per_second"] {
            let rate = |key: &str| json[kind][key].as_f64().unwrap();
            assert!(
                0.0 < rate("min") && rate("min") <= rate("median") && rate("median") <= rate("max"),
                "{json}"
            );
        }
        // 5 layers, keys and values, 4 heads of 8, two bytes each.
        assert_eq!(json["cache_bytes_per_token"], 5 * 2 * 32 * 2 * (depth + 4));
        // The table is the head too: every byte of the file but its header.
        let (weights, file) =
            (json["weight_bytes_per_step"].as_u64().unwrap(), model.metadata().unwrap().len());
        assert!(weights < file && weights > file * 9 / 10, "{weights} of {file}");
        let text = ogive(args).text();
        assert!(text.contains("prefill") && text.contains("decode") && text.contains("GB/s"), "{text}");
    }
    let json = ogive(args!["bench", "--model", model, "-p", "0", "-n", "4", "-r", "1", "--json"]).json();
    assert!(json["prefill_tokens_per_second"].is_null());
}

#[test]
fn devices_say_why_not() {
    let text = ogive(args!["devices"]).text();
    assert!(text.contains("cpu") && text.contains("threads") || text.contains("thread,"), "{text}");
    assert!(text.lines().any(|l| l.starts_with("cuda:0") && l.contains("not available")), "{text}");
    let json = ogive(args!["devices", "--json"]).json();
    assert_eq!(json[0]["device"], "cpu");
}
