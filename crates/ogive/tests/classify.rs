//! Texts and the classes they belong to, through the front door.
#![allow(clippy::unwrap_used)]

use ogive::{Class, Classify, Options, Scores};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden").join(name)
}

/// The reranker with two classes more, whose scores are a number each whatever the text is, and these settings.
fn three(settings: &Value) -> tempfile::TempDir {
    let (from, folder) = (golden("bert-reranker"), tempfile::tempdir().unwrap());
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(from.join(file), folder.path().join(file)).unwrap();
    }
    let mut config: Value =
        serde_json::from_slice(&std::fs::read(from.join("config.json")).unwrap()).unwrap();
    config.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let own = ogive::weights::open(&from).unwrap().source;
    let (weight, bias) = (own.get("classifier.weight").unwrap(), own.get("classifier.bias").unwrap());
    let file = std::fs::read(from.join("model.safetensors")).unwrap();
    let len = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&file[8..8 + len]).unwrap();
    let mut data = file[8 + len..].to_vec();
    let mut put = |name: &str, shape: &[usize], values: Vec<f32>| {
        let begin = data.len();
        data.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        header[name] = json!({"dtype": "F32", "shape": shape, "data_offsets": [begin, data.len()]});
    };
    put("classifier.weight", &[3, 48], [weight.to_vec(), vec![0.0; 96]].concat());
    put("classifier.bias", &[3], [bias.to_vec(), vec![0.5, -2.0]].concat());
    // What nobody has any more must not lie there.
    let (mut kept, mut entries) = (Vec::new(), serde_json::Map::new());
    for (name, place) in header.as_object().unwrap() {
        if name == "__metadata__" {
            continue;
        }
        let at = |i: usize| place["data_offsets"][i].as_u64().unwrap() as usize;
        let begin = kept.len();
        kept.extend_from_slice(&data[at(0)..at(1)]);
        let place =
            json!({"dtype": place["dtype"], "shape": place["shape"], "data_offsets": [begin, kept.len()]});
        entries.insert(name.clone(), place);
    }
    let header = Value::Object(entries).to_string();
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &kept].concat();
    std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    folder
}

fn classes(folder: &Path, how: &Classify) -> Result<Vec<Vec<Class>>, String> {
    let model = Options::new().exact(true).open(folder).map_err(|e| e.to_string())?;
    model.classify_all(["the cats", "tax"], how).map_err(|e| e.to_string())
}

fn scores(classes: &[Class]) -> Vec<f32> {
    classes.iter().map(|class| class.score).collect()
}

#[test]
fn classes_have_names_and_what_the_checkpoint_makes_of_their_scores() {
    let raw = Classify::new().scores(Scores::Raw);
    let one = classes(&golden("bert-reranker"), &raw).unwrap();
    assert_eq!((one[0].len(), one[0][0].label.as_str()), (1, "LABEL_0"));
    let named = json!({"id2label": {"0": "cats", "1": "dogs", "2": "none"}});
    let folder = three(&named);
    let all = classes(folder.path(), &raw).unwrap();
    for (text, own) in all.iter().zip(&one) {
        let labels: Vec<&str> = text.iter().map(|class| class.label.as_str()).collect();
        assert_eq!(labels, ["cats", "dogs", "none"]);
        assert_eq!(scores(text), [own[0].score, 0.5, -2.0]);
    }
    let shares = classes(folder.path(), &Classify::new()).unwrap();
    for (text, own) in shares.iter().zip(&all) {
        let powers: Vec<f64> = own.iter().map(|class| f64::from(class.score).exp()).collect();
        let sum: f64 = powers.iter().sum();
        let far = text.iter().zip(&powers).map(|(class, p)| (f64::from(class.score) - p / sum).abs());
        assert!(far.fold(0.0, f64::max) < 1e-6, "{text:?}");
    }
    let squashed = |score: &f32| 1.0 / (1.0 + (-score).exp());
    let of = |kind: &str| classes(three(&json!({"problem_type": kind})).path(), &Classify::new());
    let several = of("multi_label_classification").unwrap();
    assert_eq!(scores(&several[1]), scores(&all[1]).iter().map(squashed).collect::<Vec<_>>());
    assert_eq!(of("regression").unwrap()[0][2].score, -2.0);
    assert!(of("another").unwrap_err().contains("`problem_type` is `another`"));
    // Of a single class the sigmoid.
    let single = classes(&golden("bert-reranker"), &Classify::new()).unwrap();
    assert_eq!(single[0][0].score, squashed(&one[0][0].score));
    // Alone it is the same to the bit; a class without a name is told by its number.
    let model = Options::new().exact(true).open(three(&json!({"id2label": {"0": "cats"}})).path()).unwrap();
    let alone = model.classify("tax").unwrap();
    assert_eq!(scores(&alone), scores(&shares[1]));
    assert_eq!((alone[0].label.as_str(), alone[2].label.as_str()), ("cats", "LABEL_2"));
}

#[test]
fn a_file_that_was_made_of_it_has_the_same_classes() {
    for kind in [json!(null), json!("multi_label_classification"), json!("regression")] {
        let names = json!({"0": "cats", "1": "dogs", "2": "none"});
        let folder = three(&json!({"id2label": names, "problem_type": kind}));
        let pack = ogive_quantize::Quantize::new(ogive_quantize::FileFormat::find("f32").unwrap());
        let input = ogive_quantize::Input::open(folder.path()).unwrap();
        let file = folder.path().join("m.gguf");
        pack.save(&input, &file, |_| true).unwrap();
        assert_eq!(classes(&file, &Classify::new()), classes(folder.path(), &Classify::new()), "{kind}");
    }
}

#[test]
fn what_cannot_be_classified_says_why() {
    let bare = classes(&golden("bert"), &Classify::new()).unwrap_err();
    assert!(bare.contains("no head for classes"), "{bare}");
    let model = Options::new().exact(true).open(golden("bert-reranker")).unwrap();
    let of = |text: &str, how: &Classify| model.classify_all(["cat", text], how).map_err(|e| e.to_string());
    let long = "cat ".repeat(60);
    let e = of(&long, &Classify::new()).unwrap_err();
    assert!(e.contains("text 2 has 62 tokens, and 52 are allowed") && e.contains("--truncate"), "{e}");
    let cut = of(&long, &Classify::new().truncate(true)).unwrap();
    assert_eq!(cut, of(&"cat ".repeat(50), &Classify::new()).unwrap());
    assert!(
        of("cat cat", &Classify::new().truncate(true).max_tokens(1)).unwrap_err().contains("1 are allowed")
    );
    assert!(model.classify_all::<&str>([], &Classify::new()).unwrap().is_empty());
}
