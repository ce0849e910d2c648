//! `ogive bench` and `ogive devices`: what they print. The figures are the machine's.

mod common;

use common::{command, ogive, reads, shared};

#[test]
fn figures_for_scripts_and_for_people() {
    let Some(model) = shared("models/stories260K/stories260K-q8_0.gguf") else { return };
    for (more, depth, together) in [(&["-d", "0"][..], 0, 1), (&["-d", "33", "-b", "3"], 33, 3)] {
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
        // Sequences share the weights of a step, and each has a cache of its own.
        let of_token = weights / together + json["cache_bytes_per_token"].as_u64().unwrap();
        assert_eq!(json["bytes_per_token"], of_token);
        let rates = ["decode_gigabytes_per_second", "decode_tokens_per_second"].map(|key| &json[key]);
        let reads = rates[1]["median"].as_f64().unwrap() * of_token as f64 / 1e9;
        assert!((rates[0].as_f64().unwrap() / reads - 1.0).abs() < 1e-4, "{json}");
        let text = ogive(args).text();
        assert!(text.contains("prefill") && text.contains("decode") && text.contains("GB/s"), "{text}");
        let line = text.lines().find(|l| l.starts_with("decode reads ")).unwrap();
        assert_eq!(line.contains(" for 3 tokens, cache "), together == 3, "{line}");
    }
    let json = ogive(args!["bench", "--model", model, "-p", "0", "-n", "4", "-r", "1", "--json"]).json();
    assert!(json["prefill_tokens_per_second"].is_null());
}

#[test]
fn guesses_are_measured_right_and_wrong() {
    let fixed = args![
        "bench",
        "-m",
        "ogive:demo",
        "--device",
        "cpu",
        "--threads",
        "2",
        "-p",
        "0",
        "-n",
        "12",
        "-r",
        "1"
    ];
    let run = |more: &[&str]| ogive(fixed.iter().cloned().chain(more.iter().map(Into::into)));
    let json = run(&["--guesses", "3", "--json"]).json();
    assert_eq!(json["guesses"], 3);
    for kind in ["right", "wrong"] {
        let rate = &json[format!("decode_guessed_{kind}_tokens_per_second")]["median"];
        assert!(rate.as_f64().unwrap() > 0.0, "{json}");
    }
    let [right, wrong] = ["right", "wrong"].map(|kind| &json[format!("guessed_{kind}")]);
    // Twelve tokens: four steps with three guesses each, of which the last has but two.
    assert!(right["drafted"] == 9 && right["accepted"] == 9, "{json}");
    assert!(wrong["drafted"].as_u64().unwrap() > 2 && wrong["accepted"] == 0, "{json}");
    let few = run(&["--guesses", "3", "-b", "4"]);
    assert!(few.error(2).contains("less than one for each of 4 sequences"), "{}", few.stderr);
    let text = run(&["--guesses", "3"]).text();
    assert!(text.contains("\n..right ") && text.contains("\n..wrong "), "{text}");
    assert!(run(&["--json"]).json().get("guesses").is_none());
}

#[test]
fn devices_say_why_not() {
    let text = ogive(args!["devices"]).text();
    assert!(text.contains("cpu") && text.contains("threads") || text.contains("thread,"), "{text}");
    assert!(text.lines().any(|l| l.starts_with("cuda:0") && l.contains("not available")), "{text}");
    let json = ogive(args!["devices", "--json"]).json();
    assert_eq!(json[0]["device"], "cpu");
}

/// Of Ogive's own model, whose file says what there is to read and to multiply.
#[test]
fn a_trace_counts_every_weight_and_every_row_of_the_cache() {
    let (prompt, drawn, runs) = (20, 4, 2);
    let fixed = args!["bench", "-m", "ogive:demo", "--device", "cpu", "--threads", "2", "--trace"];
    let sizes = args!["-p", prompt.to_string(), "-n", drawn.to_string(), "-r", runs.to_string()];
    let args: Vec<_> = fixed.into_iter().chain(sizes).collect();
    let json = ogive(args.iter().cloned().chain(args!["--json"])).json();
    let file = ogive(args!["inspect", "-m", "ogive:demo", "--json"]).json();
    let (mut bytes, mut body, mut head) = (0, 0, 0);
    let mut layers = 0;
    for t in file["tensors"].as_array().unwrap() {
        let name = t["name"].as_str().unwrap();
        let dims: Vec<u64> = t["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap()).collect();
        let elements: u64 = dims.iter().product();
        layers += u64::from(name.ends_with(".attn_q.weight"));
        let table = name == "token_embd.weight";
        assert!(name != "output.weight", "the table is the head, which the sums below lean on");
        if dims.iter().filter(|d| **d > 1).count() < 2 {
            continue;
        }
        bytes += t["bytes"].as_u64().unwrap();
        *(if table { &mut head } else { &mut body }) += elements;
    }
    let sum = |phase: &str, key: &str, of: &dyn Fn(&str) -> bool| -> u64 {
        let all = json["trace"][phase]["operators"].as_array().unwrap();
        all.iter().filter(|e| of(e["operator"].as_str().unwrap())).map(|e| e[key].as_u64().unwrap()).sum()
    };
    let linear = |name: &str| name.starts_with("linear");
    let is = |wanted: &'static str| move |name: &str| name == wanted;
    // A token drawn takes a step; a prompt is one, and only its last row meets the head.
    for (phase, steps, rows) in [("prefill", runs, prompt), ("decode", runs * drawn, 1)] {
        assert_eq!(json["trace"][phase]["steps"], steps);
        assert_eq!(sum(phase, "calls", &is("plan")), steps);
        assert_eq!(sum(phase, "calls", &is("rope_attend")), steps * layers);
        assert_eq!(sum(phase, "bytes", &linear), steps * bytes);
        assert_eq!(sum(phase, "operations", &linear), steps * 2 * (rows * body + head));
    }
    // Halfway through four tokens is two.
    let of_token = json["cache_bytes_per_token"].as_u64().unwrap() / 2;
    // Each token is stored, and read.
    assert_eq!(sum("prefill", "bytes", &is("rope_attend")), runs * (prompt + prompt) * of_token);
    // A token before, and those that were drawn.
    assert_eq!(sum("decode", "bytes", &is("rope_attend")), runs * (drawn + 2 + 3 + 4 + 5) * of_token);
    for phase in ["prefill", "decode"] {
        let (phase, seconds) =
            (&json["trace"][phase], |v: &serde_json::Value| v["seconds"].as_f64().unwrap());
        let parts: f64 = phase["operators"].as_array().unwrap().iter().map(seconds).sum();
        let (between, whole) = (seconds(&phase["between_operators"]), seconds(phase));
        assert!((parts + between - whole).abs() < 1e-6 * whole, "{phase}");
        assert!(parts > 0.0 && between > 0.0, "{phase}");
    }
    let ceilings = &json["trace"]["ceilings"];
    assert!(ceilings["threads"] == 2 && ceilings["read_bytes_per_second"].as_f64().unwrap() > 0.0);

    let text = ogive(args).text();
    for part in ["ceilings of 2 threads: reads", "prefill: 2 steps traced", "decode: 8 steps traced"] {
        assert!(text.contains(part), "{text}");
    }
    for operator in ["operator ", "linear_gated ", "linear_many ", "rope_attend ", "between operators "] {
        assert_eq!(text.lines().filter(|l| l.starts_with(operator)).count(), 2, "{operator}: {text}");
    }
}

#[test]
fn a_trace_holds_bf16_against_what_its_path_multiplies_it_with() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("tiny-bf16.gguf");
    ogive(args!["synth", "--shape", "tiny", "--format", "bf16", model]).text();
    let args =
        args!["bench", "-m", model, "--device", "cpu", "-p", "8", "-n", "2", "-r", "1", "--trace", "--json"];
    for path in ["scalar", "avx2", "neon"] {
        let ran = reads(command().env("OGIVE_CPU_FORCE", path).args(&args), b"");
        if ran.code != Some(0) {
            assert!(ran.stderr.contains("this machine lacks the instructions"), "{}", ran.stderr);
            continue;
        }
        let trace = &ran.json()["trace"];
        let has_peak = trace["ceilings"]["f32_operations_per_second"].is_f64();
        for phase in ["prefill", "decode"] {
            let all = trace[phase]["operators"].as_array().unwrap();
            let products = all.iter().filter(|e| e["operator"].as_str().unwrap().starts_with("linear"));
            let count = products
                .inspect(|e| {
                    assert_eq!((&e["arithmetic"], e["of_peak"].is_f64()), (&"f32".into(), has_peak), "{e}")
                })
                .count();
            assert!(count > 0, "{trace}");
        }
    }
}

/// A model may take fewer tokens than its table has, and its folder need not have a vocabulary.
#[test]
fn what_is_read_is_of_tokens_that_the_engine_takes() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/gemma3n");
    let fixed = args!["bench", "-m", golden, "--device", "cpu", "--threads", "1", "--json"];
    let json = ogive(fixed.into_iter().chain(args!["-p", "60", "-n", "2", "-r", "1"])).json();
    assert!(json["prefill_tokens_per_second"]["median"].as_f64().unwrap() > 0.0, "{json}");
}
