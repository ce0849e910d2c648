//! Perplexity against its definition, written out: logits of each window, log-softmax in double precision.

mod common;

use common::shared;
use ogive::weights::gguf_file::{Gguf, GgufWriter};
use ogive::{Device, Model, Options, Perplexity};
use std::path::Path;

const TEXT: &str = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she \
    saw a big, red ball. She wanted to play with it, but it was too high. Lily's mom said, \"Lily, let's go to the park.\" \
    Lily was sad and didn't know what to do. She said, \"I want to play with your ball, but I can't find it.\" Her mom said, \
    \"It's okay, we can find another one.\" So they went home, and the ball was there. They were very happy and played all day.";

fn open(path: &Path) -> Model {
    Options::new().device(Device::Cpu).step_tokens(7).open(path).unwrap()
}

/// The mean surprise of the second halves, its standard error's square, and how many tokens they have.
fn naive(model: &Model, window: usize) -> (f64, f64, u64) {
    let t = model.tokenizer().unwrap();
    let ids = t.encode(TEXT, ogive::tokenizer::EncodeOptions::default()).unwrap();
    let mut all = Vec::new();
    for chunk in ids.chunks_exact(window) {
        let mut begun = chunk.to_vec();
        begun[0] = t.bos().unwrap();
        let logits = model.logits(&begun).unwrap();
        for j in window / 2..window - 1 {
            let row: Vec<f64> = logits.row(j).iter().map(|v| f64::from(*v)).collect();
            let total: f64 = row.iter().map(|v| v.exp()).sum();
            all.push(-(row[chunk[j + 1] as usize].exp() / total).ln());
        }
    }
    let n = all.len() as f64;
    let mean = all.iter().sum::<f64>() / n;
    let variance = all.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n / (n - 1.0);
    (mean, variance, all.len() as u64)
}

#[test]
fn it_is_what_its_definition_says() {
    let Some(shared) = shared() else { return };
    let model = open(&shared.join("models/stories260K/stories260K-f32.gguf"));
    for window in [16, 33, 64] {
        let score = Perplexity::of_text(&model, TEXT, window).unwrap();
        let (mean, variance, tokens) = naive(&model, window);
        assert_eq!(score.tokens, tokens);
        assert!((score.perplexity / mean.exp() - 1.0).abs() < 1e-5, "{score} against {}", mean.exp());
        assert!((score.error / (variance.sqrt() * mean.exp()) - 1.0).abs() < 1e-3, "{score}");
        // A model of stories foretells a story.
        assert!(score.perplexity < 12.0, "{score}");
    }
}

/// With all logits alike every token is as likely as any other.
#[test]
fn of_a_model_that_knows_nothing_it_is_the_size_of_the_vocabulary() {
    let Some(shared) = shared() else { return };
    let file = Gguf::open(shared.join("models/stories260K/stories260K-f32.gguf")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blank.gguf");
    let mut writer = GgufWriter::with_metadata(file.metadata().clone());
    for t in file.tensors() {
        writer.tensor(t.name(), t.dims(), t.ggml_type().unwrap()).unwrap();
    }
    let mut data = writer.create(&path).unwrap();
    for t in file.tensors() {
        let bytes = file.data(t).unwrap().bytes().to_vec();
        // The last norm multiplies everything by 0.
        let bytes = if t.name() == "output_norm.weight" { vec![0; bytes.len()] } else { bytes };
        data.write_data(t.name(), &bytes).unwrap();
    }
    data.finish().unwrap();
    let score = Perplexity::of_text(&open(&path), TEXT, 32).unwrap();
    assert!((score.perplexity - 512.0).abs() < 1e-3 && score.error < 1e-3, "{score}");
}

#[test]
fn what_cannot_be_scored_is_told() {
    let Some(shared) = shared() else { return };
    let model = open(&shared.join("models/stories260K/stories260K-f32.gguf"));
    let why = |text: &str, window| Perplexity::of_text(&model, text, window).unwrap_err().to_string();
    for window in [0, 3, 513] {
        assert!(why(TEXT, window).contains("at least 4, and at most the 512"), "{window}");
    }
    assert!(why("Once upon a time", 128).contains("one window takes 128"));
    assert!(why("", 4).contains("shorter context"));
    let mut all = Perplexity::new(&model, 8).unwrap();
    assert!(all.add(&[1; 9]).is_err());
    assert!(all.add(&[9999; 8]).is_err());
    // What failed counts for nothing.
    assert_eq!(all.add(&[403; 8]).unwrap().tokens, 3);
}
