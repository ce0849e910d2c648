//! Models that see from GGUF: their text's positions, and what they see with in a file of its own.

mod common;

use common::gguf;
use gguf_file::{Gguf, Value};
use ogive_tensor::Result;
use ogive_weights::{Change, Checkpoint, OpenOptions, Rule, Translation};
use serde_json::json;
use std::sync::Arc;

fn open(meta: &[(&str, Value)], tensors: &[(&str, &[u64])]) -> Result<Checkpoint> {
    OpenOptions::new().of_gguf(Arc::new(Gguf::from_bytes(gguf(meta, tensors)).unwrap()))
}

fn text(arch: &str, sections: impl Into<Value>) -> Result<Checkpoint> {
    let key = format!("{arch}.rope.dimension_sections");
    open(&[("general.architecture", arch.into()), (&key, sections.into())], &[])
}

#[test]
fn texts_turn_by_places() {
    for (arch, class) in [
        ("qwen2vl", "Qwen2VLForConditionalGeneration"),
        ("qwen3vl", "Qwen3VLForConditionalGeneration"),
        ("qwen3vlmoe", "Qwen3VLMoeForConditionalGeneration"),
    ] {
        let model = text(arch, vec![16, 24, 24, 0]).unwrap();
        assert_eq!(model.architecture, class);
        assert_eq!(model.config.0["rope_scaling"]["mrope_section"], json!([16, 24, 24]));
        // All the same is still a list.
        assert_eq!(
            text(arch, vec![8, 8, 8]).unwrap().config.0["rope_scaling"]["mrope_section"],
            json!([8, 8, 8])
        );
        assert!(!model.config.has("vision_config"));
        for wrong in [vec![16, 24], vec![16, 24, 24, 1], vec![0; 0]] {
            let e = text(arch, wrong).unwrap_err().to_string();
            assert!(e.contains("rope.dimension_sections"), "{e}");
        }
        assert!(text(arch, 3_u32).unwrap_err().to_string().contains("should be a list"));
        let e = open(&[("general.architecture", arch.into())], &[]).unwrap_err().to_string();
        assert!(e.contains("rope.dimension_sections"), "{e}");
    }
}

/// Where files may be of a text alone, sections count if they are of all pairs that turn.
#[test]
fn qwen3_5_turns_by_places_where_sections_fit() {
    let scaling = |sections: Vec<i32>, turned: u32| {
        let meta = [
            ("general.architecture", Value::from("qwen35")),
            ("qwen35.rope.dimension_sections", sections.into()),
            ("qwen35.rope.dimension_count", turned.into()),
        ];
        open(&meta, &[]).unwrap().config.at("rope_scaling").0
    };
    let found = scaling(vec![11, 11, 10, 0], 64);
    assert_eq!((&found["mrope_section"], &found["mrope_interleaved"]), (&json!([11, 11, 10]), &json!(true)));
    for (sections, turned) in [(vec![11, 11, 10, 0], 48), (vec![-1, 2, 3, 0], 8), (vec![i32::MIN; 4], 8)] {
        assert_eq!(scaling(sections.clone(), turned).get("mrope_section"), None, "{sections:?}");
    }
}

/// The keys that all files have.
fn keys(projector: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("general.architecture", "clip".into()),
        ("clip.projector_type", projector.into()),
        ("clip.vision.embedding_length", 8_u32.into()),
        ("clip.vision.block_count", 2_u32.into()),
        ("clip.vision.attention.head_count", 2_u32.into()),
        ("clip.vision.image_size", 32_u32.into()),
        ("clip.vision.patch_size", 4_u32.into()),
        ("clip.vision.projection_dim", 16_u32.into()),
        ("clip.vision.image_mean", vec![0.25_f32, 0.5, 0.75, 1.0].into()),
        ("clip.vision.image_std", vec![0.5_f32; 3].into()),
    ]
}

fn with(projector: &str, more: &[(&'static str, Value)], tensors: &[(&str, &[u64])]) -> Checkpoint {
    let mut meta = keys(projector);
    meta.extend(more.iter().cloned());
    open(&meta, tensors).unwrap_or_else(|e| panic!("{projector}: {e}"))
}

#[test]
fn settings_are_those_that_processors_and_towers_read() {
    let gemma = with("gemma3", &[("clip.use_gelu", true.into())], &[]);
    assert_eq!(gemma.architecture, "Gemma3ForConditionalGeneration");
    let c = &gemma.config.0;
    // Squares of four patches a side.
    assert_eq!((&c["model_type"], &c["mm_tokens_per_image"]), (&json!("gemma3"), &json!(4)));
    assert_eq!(c["vision_config"]["hidden_act"], "gelu_pytorch_tanh");
    assert_eq!(c["image_processor"], json!({"image_mean": [0.25, 0.5, 0.75], "image_std": [0.5, 0.5, 0.5]}));
    // Nothing of a text.
    assert!(
        ["rope_theta", "num_hidden_layers", "tie_word_embeddings"].iter().all(|key| c.get(key).is_none())
    );

    let qwen = with("qwen2vl_merger", &[], &[]).config.at("vision_config").0;
    assert_eq!(
        (&qwen["embed_dim"], &qwen["hidden_size"], &qwen["depth"]),
        (&json!(8), &json!(16), &json!(2))
    );
    assert_eq!((&qwen["spatial_merge_size"], &qwen["hidden_act"]), (&json!(2), &json!("quick_gelu")));

    let blocks = ["v.blk.0.attn_out.weight", "v.blk.1.attn_out.weight"].map(|name| (name, &[8, 8][..]));
    let pattern = |every: u32| {
        let more = [("clip.vision.n_wa_pattern", every.into()), ("clip.use_silu", true.into())];
        with("qwen2.5vl_merger", &more, &blocks).config.at("vision_config").0
    };
    assert_eq!(pattern(2)["fullatt_block_indexes"], json!([1]));
    assert_eq!(
        (&pattern(0)["fullatt_block_indexes"], &pattern(3)["window_size"]),
        (&json!([0, 1]), &json!(112))
    );

    let deep: [(&str, &[u64]); 3] = [
        ("v.deepstack.11.norm.weight", &[32]),
        ("v.deepstack.5.norm.weight", &[32]),
        ("v.position_embd.weight", &[64, 8]),
    ];
    let qwen3 = with("qwen3vl_merger", &[("clip.use_gelu", true.into())], &deep);
    let tower = &qwen3.config.0["vision_config"];
    assert_eq!(
        (&tower["deepstack_visual_indexes"], &tower["num_position_embeddings"]),
        (&json!([5, 11]), &json!(64))
    );
    let names: Vec<String> = qwen3.source.tensors().into_iter().map(|t| t.name).collect();
    assert!(names.contains(&"model.visual.deepstack_merger_list.1.norm.weight".into()), "{names:?}");

    let scale = ("clip.vision.projector.scale_factor", Value::from(4_u32));
    let more = [scale.clone(), ("clip.vision.preproc_image_size", 2048_u32.into())];
    let idefics = with("idefics3", &more, &[]).config.0;
    assert_eq!(
        (&idefics["scale_factor"], &idefics["image_processor"]["size"]["longest_edge"]),
        (&json!(4), &json!(2048))
    );
    assert_eq!(idefics["image_processor"]["max_image_size"]["longest_edge"], 32);

    let intern = with("internvl", &[scale, ("clip.vision.preproc_max_tiles", 6_u32.into())], &[]).config.0;
    assert_eq!(
        (&intern["downsample_ratio"], &intern["image_processor"]["max_patches"]),
        (&json!(0.25), &json!(6))
    );
    assert_eq!(intern["vision_config"]["norm_type"], "rms_norm");

    let llava = |more: &[(&'static str, Value)]| with("mlp", more, &[("v.class_embd", &[8])]).config.0;
    assert_eq!(llava(&[])["vision_feature_layer"], -2);
    assert_eq!(llava(&[("clip.vision.feature_layer", vec![1].into())])["vision_feature_layer"], 1);
    assert_eq!(llava(&[])["vision_config"]["model_type"], "clip_vision_model");
}

/// One projector's name is two classes'.
#[test]
fn what_merges_patches_is_mistrals() {
    let eps = ("clip.vision.attention.layer_norm_epsilon", Value::from(1e-5_f32));
    let (alone, merges) = (
        with("pixtral", std::slice::from_ref(&eps), &[]),
        with(
            "pixtral",
            &[eps, ("clip.vision.spatial_merge_size", 2_u32.into())],
            &[("mm.patch_merger.weight", &[32, 8])],
        ),
    );
    assert_eq!(
        (&*alone.architecture, &alone.config.0["model_type"]),
        ("LlavaForConditionalGeneration", &json!("llava"))
    );
    assert_eq!(merges.architecture, "Mistral3ForConditionalGeneration");
    assert_eq!(
        (&merges.config.0["spatial_merge_size"], &merges.config.0["rms_norm_eps"]),
        (&json!(2), &json!(1e-5))
    );
}

/// As another crate has it: names that hang on the file, and a change of its own.
#[test]
fn a_tower_of_ones_own() {
    let own = Translation::mmproj("mlp", "OwnForConditionalGeneration")
        .rule(Rule::changed(["v.post_ln.weight"], "tower.last.weight", Change::less_one()))
        .for_file(|t, header| match header.has_tensor("v.post_ln.bias") {
            true => t.rename("v.pre_ln", "tower.first"),
            false => t,
        });
    let tensors: [(&str, &[u64]); 3] =
        [("v.post_ln.weight", &[8]), ("v.post_ln.bias", &[8]), ("v.pre_ln.weight", &[8])];
    let bytes = gguf(&keys("mlp"), &tensors);
    let file =
        OpenOptions::new().translation(own).of_gguf(Arc::new(Gguf::from_bytes(bytes).unwrap())).unwrap();
    assert_eq!(file.architecture, "OwnForConditionalGeneration");
    let mut names: Vec<String> = file.source.tensors().into_iter().map(|t| t.name).collect();
    names.sort();
    assert_eq!(names, ["tower.first.weight", "tower.last.weight", "v.post_ln.bias"]);
}
