//! Hugging Face folders and the GGUF files beside them: both against the ids of `golden.json`, and against each other.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "skips and figures are to be seen")]

mod common;

use common::{gguf, ids, json, shared};
use ogive_tokenizer::{EncodeOptions, Tokenizer};
use std::path::{Path, PathBuf};
use unicode_normalization_alignments::UnicodeNormalization;

/// Folder, and the GGUF file with the same vocabulary where there is one.
fn models(shared: &Path) -> Vec<(PathBuf, Option<PathBuf>)> {
    let mut found = vec![];
    for entry in std::fs::read_dir(shared.join("golden")).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.join("tokenizer.json").is_file() {
            continue;
        }
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let file = folder.join(format!("{name}-f32.gguf"));
        found.push((folder, file.is_file().then_some(file)));
    }
    found.sort();
    found
}

fn case(golden: &serde_json::Value, name: &str) -> Vec<u32> {
    let cases = golden["cases"].as_array().unwrap();
    let case = cases.iter().find(|c| c["name"] == name).unwrap();
    ids(&case["ids"])
}

#[test]
fn folders_and_files_give_the_recorded_ids() {
    let Some(shared) = shared() else { return };
    let models = models(&shared);
    let mut files = 0;
    for (folder, file) in &models {
        let golden = json(&folder.join("golden.json"));
        let text = golden["text"].as_str().unwrap();
        let want = case(&golden, "text48");
        let tokenizer = Tokenizer::from_folder(folder).unwrap_or_else(|e| panic!("{folder:?}: {e}"));
        let got = tokenizer.encode(text, EncodeOptions::default()).unwrap();
        assert_eq!(got[..want.len()], want, "{folder:?}");
        assert_eq!(tokenizer.decode(&got).unwrap(), text, "{folder:?}");
        let Some(file) = file else { continue };
        files += 1;
        let other = gguf(file);
        let theirs = other.encode(text, EncodeOptions::default()).unwrap();
        // Gemma's files say add_space_prefix=false, unlike their tokenizer.json.
        if !folder.to_string_lossy().contains("gemma") {
            assert_eq!(theirs, got, "{file:?}");
        }
        assert_eq!(other.decode(&theirs).unwrap(), text, "{file:?}");
        let roles =
            |t: &Tokenizer| (t.vocab_size(), t.bos(), t.eos(), t.eog().to_vec(), t.add_bos(), t.add_eos());
        if !folder.to_string_lossy().contains("qwen") {
            assert_eq!(roles(&tokenizer), roles(&other), "{file:?}");
        }
    }
    println!("{} folders and {files} files give the recorded ids", models.len());
    assert_eq!((models.len(), files), (13, 12));
}

/// Qwen's tokenizer.json asks for NFC and a GGUF file for nothing: 28 texts differ, and only as NFC makes them.
#[test]
fn folders_and_files_agree_on_more_texts() {
    let Some(shared) = shared() else { return };
    let texts = json(&shared.join("vocab/ext/texts.json"));
    let texts: Vec<&str> = texts.as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
    for (folder, file) in models(&shared) {
        let (Some(file), false) = (file, folder.to_string_lossy().contains("gemma")) else { continue };
        let (ours, theirs) = (Tokenizer::from_folder(&folder).unwrap(), gguf(&file));
        let mut same = 0;
        for text in &texts {
            let one = ours.encode(text, EncodeOptions::PROMPT).unwrap();
            if one == theirs.encode(text, EncodeOptions::PROMPT).unwrap() {
                same += 1;
                continue;
            }
            let composed = text.nfc().map(|(c, _)| c).collect::<String>();
            assert_ne!(composed, *text);
            assert_eq!(
                one,
                theirs.encode(&composed, EncodeOptions::PROMPT).unwrap(),
                "{folder:?} on {text:?}"
            );
        }
        let name = folder.file_name().unwrap().to_string_lossy();
        println!("{name}: {same} of {} texts", texts.len());
        assert_eq!(same, if name.contains("qwen") { 358 } else { 386 });
    }
}

/// Our pipeline against the `tokenizers` crate's own, which reads the same files with regular expressions.
#[test]
fn folders_do_what_the_tokenizers_crate_does() {
    let Some(shared) = shared() else { return };
    let texts = json(&shared.join("vocab/ext/texts.json"));
    for (folder, _) in models(&shared) {
        let ours = Tokenizer::from_folder(&folder).unwrap();
        let theirs = tokenizers::Tokenizer::from_file(folder.join("tokenizer.json")).unwrap();
        for text in texts.as_array().unwrap().iter().map(|t| t.as_str().unwrap()) {
            let want = theirs.encode_fast(text, true).unwrap();
            assert_eq!(
                ours.encode(text, EncodeOptions::PROMPT).unwrap(),
                want.get_ids(),
                "{folder:?} on {text:?}"
            );
        }
    }
}

#[test]
fn stories260k() {
    let Some(shared) = shared() else { return };
    let folder = shared.join("models/stories260K");
    let golden = json(&folder.join("golden.json"));
    for tokenizer in
        [Tokenizer::from_folder(folder.join("hf")).unwrap(), gguf(&folder.join("stories260K-f32.gguf"))]
    {
        let published = golden["published"]["text"].as_str().unwrap();
        let recorded = ids(&golden["published"]["ids"]);
        assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.add_bos()), (Some(1), Some(2), true));
        // The first token begins the text, so its space goes, as in llama2.c.
        let mut stream = tokenizer.stream_after(&recorded[..1]);
        let mut text: String = recorded[1..].iter().map(|id| stream.push(*id).unwrap()).collect();
        text += &stream.finish();
        assert_eq!(text.trim_end(), published.trim_end());
        assert_eq!(tokenizer.decode(&recorded).unwrap(), text);
        // In the middle of a text it stays.
        let mut stream = tokenizer.stream_after(&recorded[..2]);
        let rest: String = recorded[2..].iter().map(|id| stream.push(*id).unwrap()).collect();
        assert_eq!(tokenizer.decode(&recorded[..2]).unwrap() + &rest, text);
        for case in golden["files"]["f32"]["cases"].as_array().unwrap() {
            let prompt = case["prompt"].as_str().unwrap();
            let got = tokenizer.encode(prompt, EncodeOptions::default()).unwrap();
            assert_eq!(got, ids(&case["prompt_ids"]), "{prompt:?}");
        }
    }
}
