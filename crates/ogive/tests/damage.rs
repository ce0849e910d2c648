//! Damaged files end in an error or in a model that runs, never in a panic, a hang or a huge allocation.
#![allow(clippy::print_stdout)]

mod common;

use common::*;
use ogive::{Generate, Options};
use std::path::Path;

/// Opens what is at `path` and, where that works, goes as far as a user would.
fn use_it(path: &Path) -> bool {
    let Ok(model) = Options::new().threads(1).context(32).open(path) else { return false };
    let ids = model.encode(&"Once upon".into()).unwrap_or_else(|_| vec![1, 2]);
    if let Ok(mut session) = model.session()
        && let Ok(generation) = session.generate(ids, &Generate::greedy().max_tokens(2))
    {
        generation.take(4).for_each(drop);
    }
    true
}

#[test]
fn flipped_and_cut_files() {
    let Some(shared) = shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random(3);
    for name in [
        "llama/llama-Q4_0.gguf",
        "gemma2/gemma2-Q4_0.gguf",
        "mixtral/mixtral-Q4_0.gguf",
        "deepseek-v2/deepseek-v2-Q4_0.gguf",
    ] {
        let good = std::fs::read(shared.join("golden").join(name)).unwrap();
        // The header and the vocabulary are where damage can do anything but change a weight.
        let header = (good.len() / 3).min(40_000);
        let mut opened = 0;
        for _ in 0..150 {
            let mut bad = good.clone();
            for _ in 0..=random.below(3) {
                bad[random.below(header)] ^= 1 << random.below(8);
            }
            let path = folder.path().join("bad.gguf");
            std::fs::write(&path, &bad).unwrap();
            opened += usize::from(use_it(&path));
        }
        println!("{name}: {opened} of 150 with flipped bits still open");
        for _ in 0..40 {
            let path = folder.path().join("cut.gguf");
            std::fs::write(&path, &good[..random.below(good.len())]).unwrap();
            assert!(!use_it(&path));
        }
    }
}

#[test]
fn settings_that_do_not_fit_the_weights() {
    let Some(shared) = shared() else { return };
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden");
    let numbers =
        ["hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "num_hidden_layers"];
    let others = [
        "rope_theta",
        "rope_scaling",
        "vocab_size",
        "intermediate_size",
        "max_position_embeddings",
        "architectures",
    ];
    let lfm2 = [
        "norm_eps",
        "conv_L_cache",
        "conv_bias",
        "layer_types",
        "full_attn_idxs",
        "block_multiple_of",
        "block_ffn_dim_multiplier",
        "block_auto_adjust_ff_dim",
    ];
    let experts = ["num_dense_layers", "num_experts", "num_experts_per_tok", "routed_scaling_factor"];
    let models: [(_, &[&str]); 3] = [
        (shared.join("golden/llama"), &["rms_norm_eps"]),
        (own.join("lfm2"), &lfm2),
        (own.join("lfm2-moe"), &experts),
    ];
    for (good, more) in models {
        any_setting(&good, numbers.iter().chain(&others).chain(more));
    }
}

/// Tries odd values of these settings, one by one.
fn any_setting<'a>(good: &Path, keys: impl Iterator<Item = &'a &'a str>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(good.join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
    let config: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(good.join("config.json")).unwrap()).unwrap();
    let odd = [0u64, 1, 3, 7, 1 << 20, 1 << 40, u64::MAX].map(serde_json::Value::from);
    let odd: Vec<_> = odd.into_iter().chain(["x".into(), (-1).into(), 0.5.into(), vec![1].into()]).collect();
    for key in keys {
        for value in &odd {
            let mut config = config.clone();
            config[*key] = value.clone();
            std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
            // Either way there is an answer: some of these numbers are only the file's word.
            drop(Options::new().context(32).estimate_memory(folder.path()));
            if let Err(e) = Options::new().context(32).open(folder.path()) {
                assert!(e.to_string().len() > 20, "{key} = {value}: {e}");
            } else {
                use_it(folder.path());
            }
        }
    }
}
