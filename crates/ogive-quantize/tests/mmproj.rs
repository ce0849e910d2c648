//! What a model sees with as a file of its own: what is in it, against llama.cpp's converter (its `conversion/` of autumn 2025 on), and what is refused.

mod common;

use common::{Tensor, format, rewritten_own, values};
use ogive_quantize::gguf_file::{Gguf, Value as Stored};
use ogive_quantize::{GgmlType, Input, Packed};
use serde_json::{Value, json};
use std::path::Path;

type Settings = fn(&mut Value);
type Tensors = fn(&mut Vec<Tensor>);

/// A copy of one of the repository's models that see.
fn copy(model: &str, settings: Settings, tensors: Tensors) -> tempfile::TempDir {
    // Beside those that do not.
    rewritten_own(&format!("../vision/{model}"), settings, tensors)
}

fn input(folder: &Path) -> Input {
    Input::open_mmproj(folder).unwrap_or_else(|e| panic!("{e}"))
}

fn file(format_name: &str, folder: &Path) -> Gguf {
    let mut bytes = Vec::new();
    format(format_name).write_to(&input(folder), &mut bytes, |_| true).unwrap();
    Gguf::from_bytes(bytes).unwrap()
}

fn text(value: &Stored) -> String {
    value.to_string()
}

#[test]
fn keys_are_those_that_readers_look_for() {
    let folder = copy("gemma3", |_| (), |_| ());
    let gguf = file("f16", folder.path());
    let keys = [
        ("general.architecture", "clip"),
        ("general.type", "mmproj"),
        ("general.file_type", "1"),
        ("clip.has_vision_encoder", "true"),
        ("clip.projector_type", "gemma3"),
        ("clip.use_gelu", "true"),
        ("clip.vision.projection_dim", "48"),
        ("clip.vision.image_size", "24"),
        ("clip.vision.patch_size", "4"),
        ("clip.vision.embedding_length", "36"),
        ("clip.vision.feed_forward_length", "40"),
        ("clip.vision.block_count", "2"),
        ("clip.vision.attention.head_count", "3"),
        ("clip.vision.projector.scale_factor", "2"),
    ];
    for (key, want) in keys {
        let found = gguf.metadata().get(key).map(text).unwrap_or_default();
        assert_eq!(found.trim_matches('"'), want, "{key}");
    }
    assert_eq!(gguf.metadata().f32("clip.vision.attention.layer_norm_epsilon").unwrap(), 1e-4);
    assert!(gguf.metadata().get("tokenizer.ggml.tokens").is_none());
    let mean = gguf.metadata().get("clip.vision.image_mean").unwrap().as_array().unwrap();
    assert_eq!(mean.to_f32().unwrap().to_vec(), [0.5; 3]);
}

#[test]
fn tensors_have_the_shapes_and_types_that_readers_want() {
    let folder = copy("gemma3", |_| (), |_| ());
    let gguf = file("q8_0", folder.path());
    let shape = |name: &str| {
        let t = gguf.tensor(name).unwrap_or_else(|| panic!("no {name}"));
        (t.dims().to_vec(), t.ggml_type().unwrap())
    };
    assert_eq!(shape("v.patch_embd.weight"), (vec![4, 4, 3, 36], GgmlType::F32));
    assert_eq!(shape("v.position_embd.weight"), (vec![36, 36], GgmlType::F32));
    // Turned by readers, which take it in halves or singles only.
    assert_eq!(shape("mm.input_projection.weight"), (vec![48, 36], GgmlType::F16));
    assert_eq!(shape("mm.soft_emb_norm.weight"), (vec![36], GgmlType::F32));
    assert_eq!(shape("v.blk.1.attn_q.weight"), (vec![36, 36], GgmlType::F16));
    assert_eq!(shape("v.blk.1.ln1.bias"), (vec![36], GgmlType::F32));

    let folder = copy("qwen2.5-vl", |c| c["vision_config"]["window_size"] = json!(112), |_| ());
    let gguf = file("q8_0", folder.path());
    let shape = |name: &str| {
        let t = gguf.tensor(name).unwrap_or_else(|| panic!("no {name}"));
        (t.dims().to_vec(), t.ggml_type().unwrap())
    };
    assert_eq!(shape("v.patch_embd.weight"), (vec![2, 2, 3, 32], GgmlType::F32));
    assert_eq!(shape("v.patch_embd.weight.1"), (vec![2, 2, 3, 32], GgmlType::F32));
    assert_eq!(shape("v.blk.0.attn_k.weight"), (vec![32, 32], GgmlType::Q8_0));
    assert_eq!(shape("v.blk.0.attn_k.bias"), (vec![32], GgmlType::F32));
    assert_eq!(gguf.metadata().u32("clip.vision.n_wa_pattern").unwrap(), 2);
    assert!(gguf.metadata().bool("clip.use_silu").unwrap());

    let folder = copy("qwen3-vl", |_| (), |_| ());
    let gguf = file("f32", folder.path());
    assert_eq!(gguf.metadata().u32("clip.vision.image_size").unwrap(), 10);
    assert!(
        gguf.tensor("v.blk.0.attn_qkv.weight").is_some() && gguf.tensor("v.deepstack.1.fc2.bias").is_some()
    );
    let deep = gguf.metadata().get("clip.vision.is_deepstack_layers").unwrap().as_array().unwrap();
    assert_eq!(deep.as_bool().unwrap(), [true, true, false]);
}

/// Two frames, queries, keys and values, and Gemma's norm, number by number.
#[test]
fn what_is_cut_has_its_own_numbers() {
    let own = |folder: &Path, name: &str| -> Vec<f32> {
        let file = ogive_weights::open(folder).unwrap();
        file.source.get(name).unwrap().to_vec()
    };
    let folder = copy("qwen2-vl", |_| (), |_| ());
    let gguf = file("f32", folder.path());
    let both = own(folder.path(), "model.visual.patch_embed.proj.weight"); // [24, 3, 2, 2, 2]
    for (which, name) in ["v.patch_embd.weight", "v.patch_embd.weight.1"].into_iter().enumerate() {
        let want: Vec<f32> = both.chunks(4).skip(which).step_by(2).flatten().copied().collect();
        assert_eq!(values(&gguf, name), want, "{name}");
    }
    let all = own(folder.path(), "model.visual.blocks.2.attn.qkv.bias");
    for (which, name) in ["attn_q", "attn_k", "attn_v"].into_iter().enumerate() {
        assert_eq!(values(&gguf, &format!("v.blk.2.{name}.bias")), all[which * 24..][..24], "{name}");
    }
    let folder = copy("gemma3", |_| (), |_| ());
    let norm = own(folder.path(), "model.multi_modal_projector.mm_soft_emb_norm.weight");
    let want: Vec<f32> = norm.iter().map(|v| v + 1.0).collect();
    assert_eq!(values(&file("f32", folder.path()), "mm.soft_emb_norm.weight"), want);
}

#[test]
fn colours_are_the_folders_own() {
    for (name, within) in [("preprocessor_config.json", false), ("processor_config.json", true)] {
        let folder = copy("qwen2-vl", |_| (), |_| ());
        let own = json!({"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]});
        let own = if within { json!({"image_processor": own}) } else { own };
        std::fs::write(folder.path().join(name), own.to_string()).unwrap();
        let input = input(folder.path());
        let of =
            |key: &str| input.metadata().get(key).unwrap().as_array().unwrap().to_f32().unwrap().to_vec();
        assert_eq!(of("clip.vision.image_mean"), [0.1, 0.2, 0.3]);
        assert_eq!(of("clip.vision.image_std"), [0.4, 0.5, 0.6]);
    }
    for (wrong, why) in [(&b"{"[..], "no JSON"), (br#"{"image_mean": [0.5]}"#, "1 numbers in place of 3")] {
        let folder = copy("qwen2-vl", |_| (), |_| ());
        std::fs::write(folder.path().join("preprocessor_config.json"), wrong).unwrap();
        let e = Input::open_mmproj(folder.path()).unwrap_err().to_string();
        assert!(e.contains(why), "{why}: {e}");
    }
}

#[test]
fn what_has_no_place_is_refused() {
    let same: Tensors = |_| ();
    let cases: &[(&str, Settings, Tensors, &str)] = &[
        ("gemma3", |c| _ = c.as_object_mut().unwrap().remove("vision_config"), same, "does not see"),
        ("gemma3", |c| c["architectures"] = json!(["YodelForCausalLM"]), same, "known are Gemma3"),
        (
            "gemma3",
            |c| c["quantization_config"] = json!({"quant_method": "awq", "bits": 4, "group_size": 128}),
            same,
            "packed already",
        ),
        ("gemma3", |c| c["vision_config"]["hidden_act"] = json!("relu"), same, "vision_config.hidden_act"),
        ("gemma3", |c| c["vision_config"]["num_hidden_layers"] = json!(3), same, "block 2 of 3"),
        ("gemma3", |c| c["vision_config"]["num_hidden_layers"] = json!(1), same, "1 blocks"),
        ("gemma3", |c| c["vision_config"]["num_hidden_layers"] = json!(1_u64 << 60), same, "block 2"),
        ("gemma3", |c| c["vision_config"]["patch_size"] = json!(2), same, "patch_embedding"),
        ("gemma3", |c| c["vision_config"]["hidden_size"] = json!(48), same, "in place of"),
        ("gemma3", |c| c["vision_config"]["image_size"] = json!(48), same, "position_embd"),
        ("internvl", |c| c["vision_feature_layer"] = json!(1), same, "vision_feature_layer"),
        ("gemma3", |c| c["mm_tokens_per_image"] = json!(0), same, "mm_tokens_per_image"),
        ("gemma3", |c| c["mm_tokens_per_image"] = json!(8), same, "mm_tokens_per_image"),
        ("gemma3", |_| (), |t| t.retain(|t| !t.name.ends_with("fc1.weight")), "block 0 of 2"),
        ("gemma3", |_| (), |t| t.retain(|t| !t.name.contains("layers.1.mlp.fc2.bias")), "block 1 of 2"),
        ("gemma3", |_| (), |t| t.retain(|t| !t.name.contains("soft_emb")), "mm.soft_emb_norm.weight"),
        (
            "gemma3",
            |_| (),
            |t| t[0].name = "model.vision_tower.vision_model.encoder.yodel.weight".into(),
            "GGUF has no name for it",
        ),
        ("qwen2-vl", |c| c["vision_config"]["spatial_merge_size"] = json!(3), same, "spatial_merge_size"),
        ("qwen2-vl", |c| c["vision_config"]["temporal_patch_size"] = json!(1), same, "temporal_patch_size"),
        ("qwen2.5-vl", |_| (), same, "vision_config.window_size: it is 8"),
        ("qwen2.5-vl", |c| c["vision_config"]["fullatt_block_indexes"] = json!([]), same, "every so-many-th"),
        (
            "qwen2.5-vl",
            |c| c["vision_config"]["fullatt_block_indexes"] = json!([0, 2]),
            same,
            "fullatt_block",
        ),
        ("qwen3-vl", |c| c["vision_config"]["deepstack_visual_indexes"] = json!([0]), same, "deepstack"),
        (
            "qwen3-vl",
            |c| c["vision_config"]["deepstack_visual_indexes"] = json!([0, 1, 2]),
            same,
            "deepstack",
        ),
        ("qwen3-vl", |c| c["vision_config"]["num_position_embeddings"] = json!(26), same, "in place of 26"),
        ("mistral3", |_| (), same, "[IMG_BREAK]"),
        ("mistral3", |c| c["text_config"]["rms_norm_eps"] = json!(1e-6), same, "rms_norm_eps"),
        ("pixtral", |c| c["vision_config"]["model_type"] = json!("siglip_vision_model"), same, "siglip"),
        ("llava", |c| c["vision_feature_layer"] = json!([-2, -1]), same, "vision_feature_layer"),
        ("llava", |c| c["vision_feature_select_strategy"] = json!("full"), same, "select_strategy"),
        ("llava", |c| c["projector_hidden_act"] = json!("relu"), same, "projector_hidden_act"),
        ("internvl", |c| c["downsample_ratio"] = json!(0.3), same, "downsample_ratio"),
        ("internvl", |c| c["vision_config"]["use_qk_norm"] = json!(true), same, "use_qk_norm"),
    ];
    for (model, settings, tensors, why) in cases {
        let folder = copy(model, *settings, *tensors);
        let e = Input::open_mmproj(folder.path()).map(|_| ()).expect_err(why).to_string();
        assert!(e.contains(why) && !e.contains('\n'), "{model}, {why}: {e}");
    }
}

/// Of three blocks the last is not read, however that is said; of two, another is written down.
#[test]
fn the_layer_that_is_read_may_be_counted_from_behind() {
    let layer = |said: Value| {
        let folder = rewritten_own("../vision/llava", |c| c["vision_feature_layer"] = said, |_| ());
        input(folder.path()).metadata().get("clip.vision.feature_layer").map(text)
    };
    assert_eq!([json!(-2), json!(2), json!([-2]), Value::Null].map(layer), [const { None }; 4]);
    assert!(layer(json!(-3)).unwrap().contains('1') && layer(json!(3)).unwrap().contains('3'));
}

#[test]
fn a_text_is_left_alone_and_a_file_is_no_folder() {
    let folder = copy("llava", |_| (), |_| ());
    let names = |input: &Input| -> Vec<String> {
        format("f16").plan(input).unwrap().into_iter().map(|Packed { name, .. }| name).collect()
    };
    let (text, tower) = (names(&Input::open(folder.path()).unwrap()), names(&input(folder.path())));
    assert!(text.iter().all(|name| !name.starts_with("v.") && !name.starts_with("mm.")), "{text:?}");
    assert!(tower.iter().all(|name| name.starts_with("v.") || name.starts_with("mm.")), "{tower:?}");
    assert!(tower.iter().all(|name| !name.contains("post_ln")), "{tower:?}");
    let out = folder.path().join("tower.gguf");
    format("f16").save(&input(folder.path()), &out, |_| true).unwrap();
    let e = Input::open_mmproj(&out).unwrap_err().to_string();
    assert!(e.contains("the folder that both were made of"), "{e}");
    // A tower's file can be packed again as any other.
    assert_eq!(names(&Input::open(&out).unwrap()), tower);
}
