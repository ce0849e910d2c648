//! A Hugging Face folder: `config.json` beside safetensors files.
//!
//! Settings are given as the file has them, but for some renamings in the format itself, done here so that no model has
//! to know of both: `rope_scaling.type` became `rope_type`, newer files keep `rope_theta` and `rope_scaling` together as
//! `rope_parameters`, and GPT-2 and its kin (Nomic's BERT) say `n_embd` where all others say `hidden_size`. The same is done to
//! `text_config`, the nested settings of models that also see. How weights were packed was `compression_config` once, or stood in a file
//! of its own. And what some classes take for granted is written down; see [`classes`].

use crate::classes;
use crate::dense::{self, Dense};
use crate::formats::Formats;
use crate::json;
use crate::packed::{self, QUANTIZATION};
use crate::safetensors::{Load, Safetensors};
use crate::sentence::SentenceSettings;
use ogive_tensor::{Config, Error, Result, Source};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

const CONFIG: &str = "config.json";
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Where AutoGPTQ kept what is now `quantization_config`.
const GPTQ_CONFIG: &str = "quantize_config.json";
/// Where ModelOpt says how it packed the weights, in versions that say nothing in `config.json`.
const MODELOPT_CONFIG: &str = "hf_quant_config.json";

/// Names of a folder that are looked at for advice.
const MOST_NAMES: usize = 10_000;

/// Settings of the first models, and what transformers' own classes (`attribute_map`) take them for.
const FIRST_NAMES: &[(&str, &str)] = &[
    ("n_embd", "hidden_size"),
    ("n_head", "num_attention_heads"),
    ("n_inner", "intermediate_size"),
    ("n_layer", "num_hidden_layers"),
    // Nomic's: beyond it, positions are stretched. Their `n_positions` is what that reaches to.
    ("max_trained_positions", "max_position_embeddings"),
    ("n_positions", "max_position_embeddings"),
    ("rotary_emb_base", "rope_theta"),
    ("rotary_emb_fraction", "partial_rotary_factor"),
];

/// Opens a folder, or a file in one: its config, its index, or one of its safetensors files.
pub(crate) fn open(path: &Path, load: Load, formats: Formats) -> Result<(Config, Box<dyn Source>, PathBuf)> {
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
    if !folder.join(CONFIG).exists() {
        return Err(Error::invalid(&folder.display().to_string(), no_config(folder)));
    }
    let mut config = read_config(&folder.join(CONFIG))?;
    let source = match weights(path, folder)? {
        Weights::File(file) => Safetensors::open_file(&file, load, formats.clone())?,
        Weights::Index(index) => Safetensors::open_index(&index, load, formats.clone())?,
    };
    if !config.has(QUANTIZATION) && packed::unsettled(&source).is_some() {
        add_packing(&mut config, &folder.join(GPTQ_CONFIG), "gptq")?;
        add_packing(&mut config, &folder.join(MODELOPT_CONFIG), "modelopt")?;
    }
    let source = source.with_config(&config).map_err(|e| e.within(&folder.display().to_string()))?;
    // What cannot be read of these settings is told to whoever asks for vectors.
    let layers = SentenceSettings::read(folder).map(|s| s.dense).unwrap_or_default();
    let source = dense::with(source, folder, &layers, load, &formats)?;
    if let Value::Object(settings) = &mut config.0
        && !layers.is_empty()
    {
        settings.insert(dense::SETTING.into(), layers.iter().map(Dense::setting).collect());
    }
    Ok((config, source, folder.to_path_buf()))
}

/// Where a model's weights are.
enum Weights {
    File(PathBuf),
    Index(PathBuf),
}

/// Those that `path` means: the weights it names, or else those of the folder. A file of a sharded checkpoint stands for the whole; any
/// other is meant alone.
fn weights(path: &Path, folder: &Path) -> Result<Weights> {
    let (single, index) = (folder.join(SINGLE), folder.join(INDEX));
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !path.is_dir() && name.ends_with(".safetensors") {
        let listed = index.is_file() && Safetensors::index_names(&index, name)?;
        return Ok(if listed { Weights::Index(index) } else { Weights::File(path.to_path_buf()) });
    }
    // Of a variant, `model.safetensors.index.fp16.json`.
    if !path.is_dir() && name.contains(".safetensors.index.") && name.ends_with(".json") {
        return Ok(Weights::Index(path.to_path_buf()));
    }
    if single.is_file() {
        Ok(Weights::File(single))
    } else if index.is_file() {
        Ok(Weights::Index(index))
    } else {
        let why = format!(
            "there is neither {SINGLE} nor {INDEX} in this folder; name its safetensors file, if that is called otherwise (other \
             kinds are not read)"
        );
        Err(Error::invalid(&folder.display().to_string(), why))
    }
}

/// Fills in how AutoGPTQ or ModelOpt packed the weights, if it says so in its file, at its top or under `quantization`.
fn add_packing(config: &mut Config, path: &Path, method: &str) -> Result<()> {
    if !path.is_file() {
        return Ok(());
    }
    let Value::Object(mut packing) = json::read(path)? else {
        return Err(Error::invalid(&path.display().to_string(), "the settings are no JSON object"));
    };
    if let Some(Value::Object(inner)) = packing.remove("quantization") {
        packing = inner;
    }
    fill(&mut packing, "quant_method", &Value::from(method));
    if let Value::Object(settings) = &mut config.0 {
        fill(settings, QUANTIZATION, &Value::Object(packing));
    }
    Ok(())
}

/// What to do about a folder without settings; many have a GGUF file in a folder of its own.
fn no_config(folder: &Path) -> String {
    let names = std::fs::read_dir(folder).into_iter().flatten().take(MOST_NAMES).flatten();
    let gguf = names.map(|entry| entry.path()).filter(|p| p.extension().is_some_and(|e| e == "gguf")).min();
    match gguf.as_deref().and_then(Path::file_name) {
        Some(name) => format!(
            "there is no {CONFIG} in this folder, but a GGUF file: name {}",
            Path::new(name).display()
        ),
        None => format!(
            "there is no {CONFIG} in this folder, which that of a Hugging Face model has beside its safetensors"
        ),
    }
}

/// Reads `config.json`.
fn read_config(path: &Path) -> Result<Config> {
    let Value::Object(mut settings) = json::read_settings(path)? else {
        return Err(Error::invalid(&path.display().to_string(), "the settings are no JSON object"));
    };
    rename(&mut settings);
    if let Some(Value::Object(mut packing)) = settings.get("compression_config").cloned() {
        fill(&mut packing, "quant_method", &Value::from("compressed-tensors"));
        fill(&mut settings, QUANTIZATION, &Value::Object(packing));
    }
    if let Some(Value::Object(text)) = settings.get_mut("text_config") {
        rename(text);
    }
    classes::fill(&mut settings);
    Ok(Config(Value::Object(settings)))
}

/// Brings settings of any age to the names that models read.
fn rename(settings: &mut Map<String, Value>) {
    join_rope_parameters(settings);
    join_layer_config(settings);
    add_later_names(settings);
    if let Some(Value::Object(scaling)) = settings.get_mut("rope_scaling")
        && let Some(kind) = scaling.get("type").cloned()
    {
        fill(scaling, "rope_type", &kind);
    }
}

/// Sets what is not there, or is `null`, which means the same.
fn fill(settings: &mut Map<String, Value>, key: &str, value: &Value) {
    let place = settings.entry(key).or_insert(Value::Null);
    if place.is_null() {
        *place = value.clone();
    }
}

/// Gives what has one of the [`FIRST_NAMES`] its later name too.
fn add_later_names(settings: &mut Map<String, Value>) {
    for (first, later) in FIRST_NAMES {
        if let Some(value) = settings.get(*first).filter(|v| !v.is_null()).cloned() {
            fill(settings, later, &value);
        }
    }
}

/// Turns `rope_parameters` into the keys that were used before, where those are not there. What those cannot say stays as it
/// is, for `rope_of` to refuse.
fn join_rope_parameters(settings: &mut Map<String, Value>) {
    let Some(Value::Object(rope)) = settings.get("rope_parameters").cloned() else { return };
    // Models with windowed layers have one set for each kind of layer.
    let of = |kind: &str| rope.get(kind).and_then(Value::as_object);
    let kind = |r: &Map<String, Value>| {
        let kind = ["rope_type", "type"].iter().find_map(|key| r.get(*key)?.as_str());
        kind.unwrap_or("default").to_owned()
    };
    let (full, sliding) = (of("full_attention"), of("sliding_attention"));
    let known = match full {
        Some(_) => sliding.is_none_or(|r| kind(r) == "default"),
        None => !rope.values().any(Value::is_object),
    };
    if !known {
        return;
    }
    settings.remove("rope_parameters");
    if let Some(theta) = sliding.and_then(|r| r.get("rope_theta")) {
        fill(settings, "rope_local_base_freq", theta);
    }
    let rope = full.unwrap_or(&rope);
    for key in ["rope_theta", "partial_rotary_factor", "mrope_section"] {
        if let Some(value) = rope.get(key) {
            fill(settings, key, value);
        }
    }
    if kind(rope) != "default" {
        fill(settings, "rope_scaling", &Value::Object(rope.clone()));
    }
}

/// Turns `per_layer_config` into the keys for all layers without a window that Gemma 4's checkpoints have. What those cannot say stays as it
/// is, for the model to refuse: layers of other kinds, of several sizes, and other settings.
fn join_layer_config(settings: &mut Map<String, Value>) {
    let by_layer = settings.get("per_layer_config").and_then(Value::as_object);
    let Some((own, by_layer)) = by_layer.and_then(|all| Some((all.values().next()?.as_object()?, all)))
    else {
        return;
    };
    let is_full = |kind: &Value| *kind == "full_attention";
    let layers = settings.get("layer_types").and_then(Value::as_array);
    let full = layers.map_or(0, |kinds| kinds.iter().filter(|kind| is_full(kind)).count());
    let names_full = |layer: &String| {
        let kind = layers.zip(layer.parse::<usize>().ok()).and_then(|(kinds, i)| kinds.get(i));
        kind.is_some_and(is_full)
    };
    let known = [("head_dim", "global_head_dim"), ("num_key_value_heads", "num_global_key_value_heads")];
    let are_sizes = own.keys().all(|key| known.iter().any(|(name, _)| name == key));
    // The other number of heads counts only where keys are values.
    let counts = !own.contains_key("num_key_value_heads")
        || settings.get("attention_k_eq_v").is_some_and(|one| *one == true);
    let alike = by_layer.len() == full
        && by_layer.iter().all(|(layer, sizes)| names_full(layer) && sizes.as_object() == Some(own));
    if !(are_sizes && counts && alike) {
        return;
    }
    let own = own.clone();
    for (name, global) in known {
        if let Some(value) = own.get(name) {
            fill(settings, global, value);
        }
    }
    settings.remove("per_layer_config");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn joined(v: Value) -> Value {
        let Value::Object(mut m) = v else { return Value::Null };
        join_rope_parameters(&mut m);
        Value::Object(m)
    }

    #[test]
    fn newer_rope_keys_become_the_older() {
        let c = joined(json!({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}));
        assert_eq!((&c["rope_theta"], c.get("rope_scaling")), (&json!(5e5), None));
        let c = joined(json!({"rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}));
        assert_eq!((&c["rope_local_base_freq"], &c["rope_theta"]), (&json!(1e4), &json!(1e6)));
        assert_eq!(c["rope_scaling"]["factor"], json!(8.0));
        let c = joined(json!({"rope_theta": 1.0, "rope_parameters": {"rope_theta": 2.0}}));
        assert_eq!(c["rope_theta"], json!(1.0));
        let c = joined(json!({"rope_theta": null, "rope_scaling": null,
            "rope_parameters": {"type": "linear", "factor": 2.0, "rope_theta": 2.0}}));
        assert_eq!((&c["rope_theta"], &c["rope_scaling"]["factor"]), (&json!(2.0), &json!(2.0)));
        assert_eq!(c.get("rope_parameters"), None);
        // Layers of a kind that the older keys do not know, or windowed ones that are stretched.
        for (full, sliding) in [("other", "default"), ("full_attention", "yarn")] {
            let sets = json!({(full): {"rope_theta": 1e6}, "sliding_attention": {"rope_type": sliding}});
            let c = joined(json!({"rope_parameters": sets}));
            assert_eq!((&c["rope_parameters"], c.get("rope_theta")), (&sets, None));
        }
    }

    #[test]
    fn settings_of_single_layers_are_those_of_a_kind_or_stay() {
        let joined = |layers: Value, one: bool| {
            let kinds = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"];
            let all = json!({"per_layer_config": layers, "layer_types": kinds, "attention_k_eq_v": one});
            let Value::Object(mut settings) = all else { return [Value::Null, Value::Null, Value::Null] };
            join_layer_config(&mut settings);
            ["per_layer_config", "global_head_dim", "num_global_key_value_heads"]
                .map(|key| settings.get(key).cloned().unwrap_or(Value::Null))
        };
        let sizes = json!({"head_dim": 24, "num_key_value_heads": 1});
        assert_eq!(joined(json!({"1": sizes, "3": sizes}), true), [Value::Null, json!(24), json!(1)]);
        let longer = json!({"head_dim": 24});
        assert_eq!(joined(json!({"1": longer, "3": longer}), false), [Value::Null, json!(24), Value::Null]);
        for (layers, one) in [
            (json!({"1": sizes, "3": sizes}), false),
            (json!({"1": sizes}), true),
            (json!({"0": sizes, "1": sizes}), true),
            (json!({"1": sizes, "3": longer}), true),
            (json!({"1": {"sliding_window": 3}, "3": {"sliding_window": 3}}), true),
            (json!({"1": 3, "3": 3}), true),
        ] {
            assert_eq!(joined(layers.clone(), one), [layers, Value::Null, Value::Null]);
        }
    }

    #[test]
    fn the_settings_of_a_text_model_are_renamed_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(CONFIG);
        let rope = json!({
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}});
        let config =
            json!({"text_config": {"n_layer": 4, "num_hidden_layers": null, "rope_parameters": rope}});
        std::fs::write(&path, config.to_string()).unwrap();
        let text = read_config(&path).unwrap().at("text_config");
        assert_eq!(text.at("rope_scaling").f32_or("factor", 0.0).unwrap(), 8.0);
        assert_eq!(
            (text.f32_or("rope_theta", 0.0).unwrap(), text.usize("num_hidden_layers").unwrap()),
            (1e6, 4)
        );
    }

    #[test]
    fn what_a_class_takes_for_granted_is_written_down() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(CONFIG);
        for (rope, theta) in [(json!(null), 1e6), (json!({"rope_theta": 5e5}), 5e5)] {
            let config = json!({"architectures": ["MixtralForCausalLM"], "rope_parameters": rope});
            std::fs::write(&path, config.to_string()).unwrap();
            assert_eq!(read_config(&path).unwrap().0["rope_theta"], theta);
        }
    }

    #[test]
    fn the_first_names_of_settings_count_as_the_later() {
        let Value::Object(mut m) =
            json!({"n_embd": 768, "n_inner": null, "n_layer": 12, "num_hidden_layers": 6})
        else {
            return;
        };
        add_later_names(&mut m);
        assert_eq!(
            (&m["hidden_size"], &m["n_embd"], &m["num_hidden_layers"]),
            (&json!(768), &json!(768), &json!(6))
        );
        assert_eq!(m.get("intermediate_size"), None);
    }
}
