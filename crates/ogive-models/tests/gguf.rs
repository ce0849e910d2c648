//! The repository's models as GGUF files, made by `ogive-quantize` of their folders: names, settings and stacks of experts there and back
//! change no logit. What GGUF cannot say is refused, and by which word, so that no model is left out unseen.
#![allow(clippy::print_stdout)]

mod common;

use common::*;
use ogive_engine::{Evaluate, evaluate};
use ogive_nn::Loader;
use ogive_nn::tensor::serde_json::{self, Value, json};
use ogive_quantize::{FileFormat, Input, Quantize};
use ogive_weights::{Checkpoint, OpenOptions};
use std::path::{Path, PathBuf};

/// Models that no GGUF file can be, and what the refusal names.
const REFUSED: [(&str, &str); 10] = [
    ("gemma2", "query_pre_attn_scalar"),
    ("gemma3", "query_pre_attn_scalar"),
    ("gpt-oss", "not converted"),
    ("gpt2", "scale_attn_by_inverse_layer_idx"),
    ("llama-dynamic", "dynamic"),
    ("llama-yarn-mscale", "magnitude"),
    ("qwen2", "use_sliding_window"),
    ("qwen2-moe-normed", "some of its tensors are missing"),
    ("qwen3", "use_sliding_window"),
    ("qwen3-moe-window", "some of its tensors are missing"),
];

fn golden(name: &str) -> PathBuf {
    every().into_iter().find(|(own, _)| own == name).unwrap().1
}

/// The folder as a GGUF file, or the refusal. Decoders have no vocabulary, so they get that of an encoder, which has as many tokens.
fn packed(
    folder: &Path,
    format: &str,
    change: impl FnOnce(&mut Value),
) -> ogive_quantize::Result<Checkpoint> {
    let copy = tempfile::tempdir().unwrap();
    let to = |name: &str| copy.path().join(name);
    std::fs::copy(folder.join("model.safetensors"), to("model.safetensors")).unwrap();
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(golden("bert").join(name), to(name)).unwrap();
    }
    let mut config: Value =
        serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
    (config["bos_token_id"], config["eos_token_id"]) = (json!(2), json!(3));
    change(&mut config);
    std::fs::write(to("config.json"), config.to_string()).unwrap();
    let mut file = Vec::new();
    let quantize = Quantize::new(FileFormat::find(format)?);
    quantize.write_to(&Input::open(copy.path())?, &mut file, |_| true)?;
    let file = ogive_quantize::gguf_file::Gguf::from_bytes(file)?;
    Ok(OpenOptions::new().of_gguf(file.into())?)
}

#[test]
fn files_compute_what_their_folders_do() {
    let mut failed = Vec::new();
    for (name, folder) in own() {
        let refused = REFUSED.iter().find(|(refused, _)| *refused == name);
        let file = match (packed(&folder, "bf16", |_| {}), refused) {
            (Ok(file), None) => file,
            (Err(e), Some((_, why))) if e.to_string().contains(why) => continue,
            (Err(e), _) => {
                failed.push(format!("{name}: {e}"));
                continue;
            }
            (Ok(_), Some((_, why))) => {
                failed.push(format!("{name} was converted in spite of its {why}"));
                continue;
            }
        };
        for (backend, b) in exact_backends() {
            for (case, ids, want) in cases(&folder) {
                let loader = Loader::new(&*file.source, &*b).for_context(ids.len());
                let model =
                    ogive_models::registry().build(&file.architecture, &file.config, &loader).unwrap();
                let error = worst(&evaluate(&*b, &*model, &ids, &Evaluate::new()).unwrap(), &want);
                println!("{name:20} {backend:8} {case:8} {error:.1e}");
                if error.is_nan() || error > 2e-5 {
                    failed.push(format!("{name} on {backend}, {case}: {error:.1e}"));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Each class has the shares of chosen experts one way in GGUF, whatever the settings say, so the other way is refused; also where
/// silence means it.
#[test]
fn shares_that_a_file_cannot_say_are_refused() {
    for (name, said) in
        [("qwen2-moe", json!(true)), ("qwen3-moe", json!(false)), ("qwen3-moe", json!("silent"))]
    {
        let change = |c: &mut Value| {
            let settings = c.as_object_mut().unwrap();
            if said == "silent" {
                settings.remove("norm_topk_prob");
            } else {
                settings.insert("norm_topk_prob".into(), said.clone());
            }
        };
        let e = packed(&golden(name), "bf16", change).map(|_| ()).unwrap_err().to_string();
        assert!(e.contains("norm_topk_prob"), "{name}, {said}: {e}");
    }
}

/// The first Gemmas' settings have the error function's name for the approximation that they were trained with.
#[test]
fn the_first_gemmas_activation_is_the_approximation_whatever_it_is_called() {
    let old = |c: &mut Value| {
        (c["hidden_act"], c["hidden_activation"]) = (json!("gelu"), Value::Null);
    };
    let file = packed(&golden("gemma"), "bf16", old).unwrap();
    let b = exact();
    let (_, ids, want) = cases(&golden("gemma")).remove(0);
    let model =
        ogive_models::registry().build(&file.architecture, &file.config, &Loader::new(&*file.source, &b));
    assert!(worst(&evaluate(&b, &*model.unwrap(), &ids, &Evaluate::new()).unwrap(), &want) < 2e-5);
}
