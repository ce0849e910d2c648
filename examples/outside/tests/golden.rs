//! GPT-NeoX against transformers' logits, by the façade alone.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use ogive::cpu::{CpuBackend, Precision};
use ogive::nn::Loader;
use ogive::tensor::serde_json::{Value, from_str, json};
use ogive::{Model, Options, ndarray::Array2};
use ogive_example_outside::{load, registry};
use std::path::{Path, PathBuf};

/// The model that `cargo xtask golden gpt-neox` made.
fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

fn open(options: Options) -> Model {
    options.registry(registry()).exact(true).open(golden()).unwrap()
}

/// Input ids and a result, of each case in `golden.json`.
fn cases(what: &str) -> Vec<(Vec<u32>, Array2<f32>)> {
    let json: Value = from_str(&std::fs::read_to_string(golden().join("golden.json")).unwrap()).unwrap();
    let ids = |v: &Value| v.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect();
    let npy = |v: &Value| ndarray_npy::read_npy(golden().join(v.as_str().unwrap())).unwrap();
    json["cases"].as_array().unwrap().iter().map(|c| (ids(&c["ids"]), npy(&c[what]))).collect()
}

fn worst(a: &Array2<f32>, b: &Array2<f32>) -> f32 {
    assert_eq!(a.dim(), b.dim());
    assert!(a.iter().all(|v| v.is_finite()));
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn logits_and_hidden_states_are_those_of_transformers() {
    // In one step and in steps of three rows.
    for rows in [512, 3] {
        let model = open(Options::new().step_tokens(rows));
        for (ids, want) in cases("logits") {
            let error = worst(&model.logits(&ids).unwrap(), &want);
            println!("{} tokens, {rows} rows a step: {error:.1e}", ids.len());
            assert!(error <= 2e-5, "{error:.1e}");
        }
        for (ids, want) in cases("hidden") {
            assert!(worst(&model.hidden(&ids).unwrap(), &want) <= 2e-5);
        }
    }
}

#[test]
fn greedy_ids_are_those_of_the_best_logits() {
    let (model, (ids, logits)) = (open(Options::new()), cases("logits").remove(0));
    let row = logits.row(logits.nrows() - 1);
    let best = (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
    let mut session = model.session().unwrap();
    let mut answer = session.generate(ids, &ogive::Generate::greedy().max_tokens(1)).unwrap();
    answer.by_ref().for_each(|piece| _ = piece.unwrap());
    assert_eq!(answer.ids(), [best as u32]);
}

#[test]
fn settings_are_checked() {
    let checkpoint = ogive::weights::open(golden()).unwrap();
    let cpu = CpuBackend::builder().precision(Precision::Exact).build().unwrap();
    for (key, value, why) in [
        ("num_attention_heads", json!(0), "config: `hidden_size` 48 cannot be cut into 0 heads"),
        ("num_attention_heads", json!(5), "config: `hidden_size` 48 cannot be cut into 5 heads"),
        ("rotary_pct", json!(1.5), "config: `rotary_pct` should be 0 to 1"),
        ("rope_scaling", json!({"type": "linear"}), "`rope_scaling`"),
        ("hidden_act", json!("relu6"), "`hidden_act` is `relu6`"),
    ] {
        let mut config = checkpoint.config.clone();
        config.0[key] = value;
        let e = load(&config, &Loader::new(&*checkpoint.source, &cpu)).unwrap_err().to_string();
        assert!(e.contains(why), "{e}");
    }
}
