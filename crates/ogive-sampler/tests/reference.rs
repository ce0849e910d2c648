//! llama.cpp's published sampling cases, where the shared test data is present.
//!
//! All 65 run, and their number is asserted, so that a changed file shows.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ogive_sampler::stages::{
    Breakers, Dry, DynamicTemperature, MinP, Penalties, Temperature, TopK, TopNSigma, TopP, Typical, Xtc,
};
use ogive_sampler::{Candidates, Stage};
use serde_json::Value;

/// The folder of shared test data: `OGIVE_SHARED`, or `shared` beside the workspace.
fn shared() -> Option<PathBuf> {
    let found = match std::env::var_os("OGIVE_SHARED") {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    found.is_dir().then_some(found)
}

fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number") as f32).collect()
}

fn number(case: &Value, key: &str) -> f32 {
    case[key].as_f64().expect("a number") as f32
}

fn simple_stage(sampler: &str, case: &Value) -> Option<Box<dyn Stage>> {
    let param = |i: usize| case["params"][i].as_f64().expect("a parameter") as f32;
    Some(match sampler {
        "temp" => Box::new(Temperature::new(param(0)).expect("valid")),
        "temp_ext" => Box::new(DynamicTemperature::new(param(0), param(1), param(2)).expect("valid")),
        "top_k" => Box::new(TopK::new(param(0) as usize)),
        "top_p" => Box::new(TopP::new(param(0)).expect("valid")),
        "min_p" => Box::new(MinP::new(param(0)).expect("valid")),
        "penalties" => {
            let last_n = numbers(&case["last_tokens"]).len();
            let (frequency, presence) = (number(case, "alpha_frequency"), number(case, "alpha_presence"));
            let repeat = number(case, "repeat_penalty");
            Box::new(Penalties::new(last_n, repeat, frequency, presence).expect("valid"))
        }
        "typical" => Box::new(Typical::new(param(0)).expect("valid")),
        "top_n_sigma" => Box::new(TopNSigma::new(param(0)).expect("valid")),
        "xtc" => Box::new(Xtc::new(param(0), param(1), 0).expect("valid")),
        "dry" => {
            let count = |key: &str| number(case, key) as usize;
            let breakers = case["seq_breakers"].as_array().expect("a list").iter();
            let tokens = breakers.map(|b| numbers(b).into_iter().map(|t| t as u32).collect::<Vec<_>>());
            let (multiplier, base) = (number(case, "multiplier"), number(case, "base"));
            let (allowed, last_n) = (count("allowed_length"), count("penalty_last_n"));
            let breakers = Breakers::from_tokens(tokens);
            Box::new(Dry::new(multiplier, base, allowed, last_n, breakers).expect("valid"))
        }
        _ => return None,
    })
}

/// Applies the stage to `ln(probs)` and compares the probabilities that come out.
fn check_simple(sampler: &str, case: &Value, mut stage: Box<dyn Stage>) {
    let probs = numbers(&case["probs"]);
    let mut expected: Vec<f64> = numbers(&case["expected"]).into_iter().map(f64::from).collect();
    let history: Vec<u32> = match case.get("last_tokens") {
        Some(tokens) => numbers(tokens).into_iter().map(|t| t as u32).collect(),
        None => Vec::new(),
    };
    let logits: Vec<f32> = probs.iter().map(|p| p.ln()).collect();
    let mut candidates = Candidates::from_logits(&logits).expect("some logits");
    stage.apply(&mut candidates, &history);
    let mut got: Vec<f64> = if matches!(sampler, "xtc" | "typical") {
        // As they stood before: nothing is shared out again.
        candidates.as_slice().iter().map(|c| f64::from(probs[c.id as usize])).collect()
    } else if expected.len() == probs.len() && sampler != "top_k" {
        // By token; what a stage dropped has no probability.
        let by_token: BTreeMap<_, _> =
            candidates.as_slice().iter().map(|c| c.id).zip(candidates.probabilities()).collect();
        (0..probs.len() as u32).map(|id| by_token.get(&id).copied().unwrap_or(0.0)).collect()
    } else {
        candidates.probabilities()
    };
    if sampler == "top_p" {
        // There the result is sorted; here it stays in the order it came in.
        got.sort_by(|a, b| b.total_cmp(a));
        expected.sort_by(|a, b| b.total_cmp(a));
    }
    assert_eq!(got.len(), expected.len(), "{case}: {got:?}");
    for (g, e) in got.iter().zip(&expected) {
        assert!((g - e).abs() < 1e-5, "{case}: {got:?}");
    }
}

/// Logits ln(id) for 10,000 tokens, so that id is the weight: which ids are left after each stage is
/// arithmetic.
fn check_queue(case: &Value) {
    let n = case["n_vocab"].as_i64().expect("a number");
    let top_k = case["top_k"].as_i64().expect("a number");
    let (top_p, min_p) = (number(case, "top_p"), number(case, "min_p"));
    let logits: Vec<f32> = (0..n).map(|id| (id as f32).ln()).collect();
    let mut candidates = Candidates::from_logits(&logits).expect("some logits");
    let mut lowest = 0i64;
    for letter in case["sequence"].as_str().expect("a word").chars() {
        match letter {
            'k' => {
                TopK::new(top_k as usize).apply(&mut candidates, &[]);
                lowest = lowest.max(n - top_k);
                assert!(candidates.is_best_first());
                assert_eq!(i64::from(candidates.as_slice()[0].id), n - 1);
            }
            'p' => {
                TopP::new(top_p).expect("valid").apply(&mut candidates, &[]);
                let all = n * (n - 1) / 2 - lowest * (lowest - 1) / 2;
                let target = (top_p * all as f32).ceil() as i64;
                let mut sum = 0;
                lowest = n;
                while lowest == n || sum < target {
                    lowest -= 1;
                    sum += lowest;
                }
                // Token 0 has no weight; only "off" keeps it.
                if lowest == 1 {
                    lowest = 0;
                }
            }
            'm' => {
                MinP::new(min_p).expect("valid").apply(&mut candidates, &[]);
                let bar = (min_p * n as f32).floor() as i64;
                lowest = lowest.max(bar.clamp(1, n - 1));
            }
            other => panic!("an unknown letter {other}"),
        }
        let mut ids: Vec<i64> = candidates.as_slice().iter().map(|c| i64::from(c.id)).collect();
        ids.sort_unstable();
        assert_eq!(ids, (lowest..n).collect::<Vec<_>>(), "{case}, after {letter}");
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "a skip must be visible, and the log says what ran")]
fn published_cases() {
    let Some(shared) = shared() else {
        println!("skipped: shared test data not found");
        return;
    };
    let text = std::fs::read_to_string(shared.join("misc/sampling_cases.json")).expect("a readable file");
    let cases: Value = serde_json::from_str(&text).expect("JSON");
    let mut run = 0;
    for case in cases["cases"].as_array().expect("a list") {
        let sampler = case["sampler"].as_str().expect("a name");
        if sampler == "queue" {
            check_queue(case);
            run += 1;
        } else {
            let stage = simple_stage(sampler, case).unwrap_or_else(|| panic!("no stage for {case}"));
            check_simple(sampler, case, stage);
            run += 1;
        }
    }
    println!("{run} cases run");
    assert_eq!(run, 65);
}
