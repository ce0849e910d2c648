//! Images and texts that do not fit together, and files that do not: each is told, and nothing else comes of it.
#![cfg(all(feature = "cpu", feature = "vision"))]
#![allow(clippy::unwrap_used)]

#[path = "common/vision.rs"]
mod vision;

use ogive::backend::{Backend, Vectors};
use ogive::nn::Tower;
use ogive::{Generate, Image, models};
use ogive_quantize::{FileFormat, Input, Quantize};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use vision::*;

/// A tower of another model.
#[derive(Debug)]
struct Seven;

impl Tower for Seven {
    fn dim(&self) -> usize {
        7
    }

    fn see(&self, _: &dyn Backend, _: &[f32], _: [usize; 2]) -> ogive::tensor::Result<Vectors> {
        Vectors::new(vec![0.0; 7], 7)
    }
}

#[test]
fn what_does_not_fit_is_told() {
    let how = Generate::greedy().max_tokens(1);
    let row_tokens = [
        ("gemma3", "<image_soft_token>"),
        ("qwen2-vl", "<|image_pad|>"),
        ("mistral3", "[IMG]"),
        ("smolvlm", "<image>"),
        ("internvl", "<IMG_CONTEXT>"),
        ("llava", "<image>"),
    ];
    for (name, row) in row_tokens {
        let model = open(name);
        let marker = model.image_marker().unwrap().to_owned();
        let error = |text: &str, images: &[Image]| model.read(&shown(text, images)).unwrap_err().to_string();
        let one = image("grey.png");
        let more = error(&format!("{marker} and {marker}"), std::slice::from_ref(&one));
        assert!(
            more.contains(&format!("`{marker}` 2 times, for 1 images; write it once for each")),
            "{more}"
        );
        let fewer = error("None.", std::slice::from_ref(&one));
        assert!(fewer.contains("0 times, for 1 images"), "{fewer}");
        assert!(error(&format!("{marker}."), &[]).contains("1 times, for 0 images"));

        // Words that spell what a row stands as, in a prompt and in what a user says.
        let spelled = error(&format!("{marker} {row}"), std::slice::from_ref(&one));
        let wanted = if row == marker { "2 times, for 1 images" } else { "does its text spell it?" };
        assert!(spelled.contains(wanted), "{spelled}");
        let mut chat = model.chat().unwrap();
        chat.show(one.clone());
        let spelled = chat.send(format!("What is {row}?"), &how).unwrap_err().to_string();
        assert!(spelled.contains(wanted), "{spelled}");
        assert!(chat.messages().is_empty() && chat.shown().len() == 1, "as if nothing was said");
        chat.send("What is this?", &how).unwrap().text().unwrap();
        assert!(chat.shown().is_empty());

        let blind = options().open(folder(name).path()).unwrap();
        let why = blind.read(&shown(&marker, std::slice::from_ref(&one))).unwrap_err().to_string();
        assert!(why.contains("not opened to see") && why.contains("Options::vision"), "{why}");
        let mut chat = blind.chat().unwrap();
        chat.show(one);
        let why = chat.send("What is this?", &how).unwrap_err().to_string();
        assert!(why.contains("not opened to see"), "{why}");
        chat.shown().clear();
        chat.send("Who are you?", &how).unwrap().text().unwrap();
    }
    assert!(matches!(open("qwen2-vl").read(&shown("", &[])), Err(ogive::Error::EmptyPrompt)));
}

#[test]
fn files_that_do_not_see_or_contradict_each_other_are_refused() {
    let refused = |folder: &Path| options().vision().open(folder).unwrap_err().to_string();
    // A model of texts.
    let plain = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden/nomic-bert");
    assert!(refused(&plain).contains("vision_config"), "{}", refused(&plain));

    // Weights of the text alone: names of the tower are others.
    let without = folder("qwen2-vl");
    let path = without.path().join("model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let head = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    for at in 8..8 + head - 6 {
        if &bytes[at..at + 6] == b"visual" {
            bytes[at..at + 6].copy_from_slice(b"absent");
        }
    }
    fs::write(&path, bytes).unwrap();
    let why = refused(without.path());
    assert!(why.contains("visual.patch_embed"), "{why}");
    assert!(options().open(without.path()).is_ok(), "it reads and writes all the same");
    // What it lacks may be elsewhere.
    let whole = folder("qwen2-vl");
    let borrowed = options().vision_from(whole.path()).open(without.path()).unwrap();
    let prompt = shown("<|image_pad|> is the", &[image("smooth.png")]);
    assert!(borrowed.read(&prompt).unwrap() == open("qwen2-vl").read(&prompt).unwrap());

    for (name, file, key, value, wanted) in [
        ("qwen2-vl", "preprocessor_config.json", "patch_size", json!(4), "patch_size"),
        ("qwen2-vl", "preprocessor_config.json", "do_resize", json!(false), "do_resize"),
        ("gemma3", "preprocessor_config.json", "image_mean", json!([0.5]), "image_mean"),
        ("gemma3", "processor_config.json", "image_seq_length", json!(16), "mm_tokens_per_image"),
        ("mistral3", "processor_config.json", "spatial_merge_size", json!(1), "spatial_merge_size"),
        ("idefics3", "processor_config.json", "image_seq_len", json!("nine"), "image_seq_len"),
        ("llava", "preprocessor_config.json", "size", json!({ "shortest_edge": 0 }), "shortest_edge"),
        ("internvl", "preprocessor_config.json", "max_patches", json!(100_000), "max_patches"),
        ("pixtral", "processor_config.json", "image_token", json!("Look"), "is 4 tokens"),
    ] {
        let folder = folder(name);
        let path = folder.path().join(file);
        let mut settings: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        settings[key] = value;
        fs::write(&path, settings.to_string()).unwrap();
        let why = refused(folder.path());
        assert!(why.contains(wanted), "{name}, {key}: {why}");
        fs::write(&path, "{").unwrap();
        let why = refused(folder.path());
        assert!(why.contains(file), "{name}: {why}");
    }

    // A tower that is not for this text: told at once.
    let other = folder("gemma3");
    let registry =
        models::registry().with_tower("Gemma3ForConditionalGeneration", |_, _| Ok(Box::new(Seven)));
    let why = options().registry(registry).vision().open(other.path()).unwrap_err().to_string();
    assert!(
        why.contains("rows of 7 elements are made of images") && why.contains("takes rows of 48"),
        "{why}"
    );

    // A tower that makes other rows than the settings say: told when it is first asked.
    let wide = folder("gemma3");
    let path = wide.path().join("preprocessor_config.json");
    let mut settings: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    settings["size"] = json!({ "height": 36, "width": 36 });
    fs::write(&path, settings.to_string()).unwrap();
    let model = options().vision().open(wide.path()).unwrap();
    let why = model.read(&shown("<start_of_image>", &[image("grey.png")])).unwrap_err().to_string();
    assert!(why.contains("9 rows of 9; the tower was made for 6 rows of 6"), "{why}");
}

#[test]
fn a_file_of_what_a_model_sees_by_is_told_from_a_model_and_goes_beside_one() {
    // Those whose images are cut as GGUF files of theirs say.
    for name in ["gemma3", "mistral3", "idefics3", "internvl", "llava"] {
        let folder = folder(name);
        let mmproj = folder.path().join("mmproj.gguf");
        let quantize = Quantize::new(FileFormat::find("f32").unwrap());
        let mut file = fs::File::create(&mmproj).unwrap();
        quantize.write_to(&Input::open_mmproj(folder.path()).unwrap(), &mut file, |_| true).unwrap();
        let alone = options().open(&mmproj).unwrap_err().to_string();
        assert!(alone.contains("mmproj.gguf") && alone.contains("no model"), "{alone}");
        // Beside a model of whose own nothing is left.
        let own = open(name);
        for file in ["preprocessor_config.json", "processor_config.json"] {
            let _ = fs::remove_file(folder.path().join(file));
        }
        let beside = options().vision_from(&mmproj).open(folder.path()).unwrap();
        let prompt = shown(own.image_marker().unwrap(), &[image("noise.png")]);
        let ((ids, inputs), (other_ids, others)) =
            (own.read(&prompt).unwrap(), beside.read(&prompt).unwrap());
        assert_eq!(ids, other_ids, "{name}");
        assert!(inputs == others, "{name}");
    }
}

#[test]
fn nothing_is_computed_of_images_that_have_no_room() {
    let folder = folder("qwen3-vl");
    let wide = options().vision().open(folder.path()).unwrap();
    let marker = wide.image_marker().unwrap();
    let prompt = shown(marker, &[image("noise.png")]);
    let n = wide.encode(&prompt).unwrap().len();
    let (narrow, seen) = counted(options().context(n), folder.path());
    let error =
        narrow.session().unwrap().generate(prompt, &Generate::greedy()).map(drop).unwrap_err().to_string();
    assert!(error.contains(&format!("{n} tokens")) && error.contains(&format!("context of {n}")), "{error}");
    assert_eq!(seen.load(std::sync::atomic::Ordering::Relaxed), 0);
}
