//! Texts in the order in which they answer a question, through the front door.
#![allow(clippy::unwrap_used)]

use ogive::{Embed, Model, Options, Pooling, Rerank};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A model of the repository, of another crate's tests.
fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden").join(name)
}

fn open(path: &Path) -> Model {
    Options::new().exact(true).open(path).unwrap()
}

/// The reranker once more, with a change to its settings or its tokenizer.
fn changed(file: &str, change: impl FnOnce(&mut Value)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(golden("bert-reranker").join(name), folder.path().join(name)).unwrap();
    }
    let path = folder.path().join(file);
    let mut json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut json);
    std::fs::write(path, json.to_string()).unwrap();
    folder
}

#[test]
fn scores_are_those_of_transformers() {
    for name in ["bert-reranker", "roberta-reranker", "modern-bert-reranker"] {
        let pairs = std::fs::read(golden(name).join("golden.json")).unwrap();
        let pairs: Value = serde_json::from_slice::<Value>(&pairs).unwrap()["pairs"].take();
        let texts: Vec<String> = serde_json::from_value(pairs["documents"].clone()).unwrap();
        let (query, model) = (pairs["query"].as_str().unwrap(), open(&golden(name)));
        assert!(model.judges());
        let scores = model.rerank(query, &texts, &Rerank::new()).unwrap();
        for (got, want) in scores.iter().zip(pairs["scores"].as_array().unwrap()) {
            assert!((f64::from(*got) - want.as_f64().unwrap()).abs() < 2e-6, "{name}: {got} for {want}");
        }
        // Alone it is the same to the bit, and between 0 and 1 the order is.
        let alone = model.rerank(query, [&texts[2]], &Rerank::new()).unwrap();
        assert_eq!(alone[0], scores[2], "{name}");
        let between = model.rerank(query, &texts, &Rerank::new().sigmoid(true)).unwrap();
        let squashed = |score: &f32| 1.0 / (1.0 + (-score).exp());
        assert_eq!(between, scores.iter().map(squashed).collect::<Vec<_>>());
        assert!(model.rerank::<&str>(query, [], &Rerank::new()).unwrap().is_empty());
    }
}

#[test]
fn what_is_too_long_is_told_or_cut() {
    let (model, long) = (open(&golden("bert-reranker")), "cat ".repeat(60));
    let e = model.rerank("dog", ["cat", &long], &Rerank::new()).unwrap_err().to_string();
    assert!(e.contains("text 2 have 64 tokens, and 52 are allowed") && e.contains("--truncate"), "{e}");
    let cut = Rerank::new().truncate(true);
    // `[CLS] dog [SEP] 48 cats [SEP]`
    let fits = "cat ".repeat(48);
    assert_eq!(
        model.rerank("dog", [&long], &cut).unwrap(),
        model.rerank("dog", [&fits], &Rerank::new()).unwrap()
    );
    let short = cut.clone().max_tokens(7);
    let both = model.rerank("dog dog dog", ["cat cat cat"], &short).unwrap();
    assert_eq!(both, model.rerank("dog dog", ["cat cat"], &Rerank::new()).unwrap());
    let e = model.rerank("dog", ["cat"], &cut.max_tokens(2)).unwrap_err().to_string();
    assert!(e.contains("2 are allowed"), "{e}");
    // What the checkpoint takes of a text.
    let folder = changed("tokenizer_config.json", |c| c["model_max_length"] = 8.into());
    let e =
        open(folder.path()).rerank("dog", ["cat cat cat cat cat"], &Rerank::new()).unwrap_err().to_string();
    assert!(e.contains("9 tokens, and 8 are allowed"), "{e}");
}

#[test]
fn what_the_files_beside_it_say_counts() {
    let of = |folder: &Path, how: &Rerank| {
        let scores = open(folder).rerank("dog", ["cat cat cat cat cat"], how);
        scores.map(|scores| scores[0]).map_err(|e| e.to_string())
    };
    let plain = of(&golden("bert-reranker"), &Rerank::new()).unwrap();
    // Types that the model is not given, or has one of.
    let names = json!(["input_ids", "attention_mask"]);
    let unnamed = changed("tokenizer_config.json", |c| c["model_input_names"] = names);
    let one = changed("config.json", |c| c["type_vocab_size"] = 1.into());
    let untyped = of(unnamed.path(), &Rerank::new()).unwrap();
    assert_ne!(untyped, plain);
    assert_eq!(of(one.path(), &Rerank::new()).unwrap(), untyped);
    let named = json!(["input_ids", "token_type_ids"]);
    let named = changed("tokenizer_config.json", |c| c["model_input_names"] = named);
    assert_eq!(of(named.path(), &Rerank::new()).unwrap(), plain);
    // More than the context is the context, not what the checkpoint says.
    let short = changed("tokenizer_config.json", |c| c["model_max_length"] = 8.into());
    assert_eq!(of(short.path(), &Rerank::new().max_tokens(1000)).unwrap(), plain);
    assert!(of(short.path(), &Rerank::new()).unwrap_err().contains("8 are allowed"));
    std::fs::write(short.path().join("modules.json"), "[").unwrap();
    let e = of(short.path(), &Rerank::new()).unwrap_err();
    assert!(e.contains("rerank") && e.contains("modules.json"), "{e}");
    // Without what ends a text nobody says what ends two.
    let open_ended = changed("tokenizer_config.json", |c| c["add_eos_token"] = false.into());
    assert!(of(open_ended.path(), &Rerank::new()).unwrap_err().contains("how two texts become one"));
}

#[test]
fn who_is_no_reranker_says_so() {
    let model = open(&golden("bert"));
    assert!(!model.judges());
    let e = model.rerank("a", ["b"], &Rerank::new()).unwrap_err().to_string();
    assert!(e.contains("is no reranker") && e.contains("`embed`"), "{e}");
    let model = open(&golden("bert-reranker"));
    let e = model.embed("cat").unwrap_err().to_string();
    assert!(e.contains("ranks texts") && e.contains("choose a pooling"), "{e}");
    model.embed_all(["cat"], &Embed::new().pooling(Pooling::Cls)).unwrap();
    let folder = changed("tokenizer.json", |t| t["post_processor"]["pair"] = json!([]));
    let e = open(folder.path()).rerank("a", ["b"], &Rerank::new()).unwrap_err().to_string();
    assert!(e.contains("does not say how two texts become one"), "{e}");
}

/// A Qwen3 that is asked, and what transformers scores for two instructions.
fn asked() -> (PathBuf, Value) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rerankers/qwen3");
    let golden = std::fs::read(folder.join("golden.json")).unwrap();
    (folder, serde_json::from_slice::<Value>(&golden).unwrap()["pairs"].take())
}

/// The same with a README, under another class, and with a tensor more.
fn made(readme: &str, class: &str, score: Option<(&[usize], Vec<f32>)>) -> tempfile::TempDir {
    let (from, folder) = (asked().0, tempfile::tempdir().unwrap());
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(from.join(file), folder.path().join(file)).unwrap();
    }
    let mut config: Value =
        serde_json::from_slice(&std::fs::read(from.join("config.json")).unwrap()).unwrap();
    config["architectures"] = json!([class]);
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    std::fs::write(folder.path().join("README.md"), readme).unwrap();
    let file = std::fs::read(from.join("model.safetensors")).unwrap();
    let len = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&file[8..8 + len]).unwrap();
    let mut data = file[8 + len..].to_vec();
    if let Some((shape, values)) = score {
        let begin = data.len();
        data.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        let place = json!({"dtype": "F32", "shape": shape, "data_offsets": [begin, data.len()]});
        header["score.weight"] = place;
    }
    let header = header.to_string();
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    folder
}

fn near(got: &[f32], want: &Value, what: &str) {
    let want: Vec<f64> = serde_json::from_value(want.clone()).unwrap();
    assert_eq!(got.len(), want.len());
    let far = got.iter().zip(&want).fold(0.0, |most, (a, b)| f64::max(most, (f64::from(*a) - b).abs()));
    assert!(far < 2e-6, "{what}: {far:.1e}");
}

#[test]
fn a_model_that_is_asked_scores_as_its_card_has_it() {
    let (folder, pairs) = asked();
    let texts: Vec<String> = serde_json::from_value(pairs["documents"].clone()).unwrap();
    let query = pairs["query"].as_str().unwrap();
    let (plain, known) = (open(&folder), made("a\n# Qwen3-Reranker-0.6B\n", "Qwen3ForCausalLM", None));
    let e = plain.rerank(query, &texts, &Rerank::new()).unwrap_err().to_string();
    assert!(e.contains("is no reranker") && e.contains("--asked"), "{e}");
    let scores = plain.rerank(query, &texts, &Rerank::new().asked(true)).unwrap();
    near(&scores, &pairs["scores"], "asked");
    let known = open(known.path());
    assert_eq!(known.rerank(query, &texts, &Rerank::new()).unwrap(), scores);
    let instruction = pairs["instruction"].as_str().unwrap();
    let how = Rerank::new().instruction(instruction);
    near(&known.rerank(query, &texts, &how).unwrap(), &pairs["instructed"], "instructed");
    // Alone it is the same to the bit, whatever fits a step; its sigmoid is how likely yes is.
    let alone = known.rerank(query, [&texts[1]], &Rerank::new().sigmoid(true)).unwrap();
    assert_eq!(alone, [1.0 / (1.0 + (-scores[1]).exp())]);
    let long = "cat ".repeat(300);
    let e = known.rerank(query, ["a", &long], &Rerank::new()).unwrap_err().to_string();
    assert!(e.contains("text 2 have ") && e.contains("512 are allowed") && e.contains("--truncate"), "{e}");
    let cut = known.rerank(query, [&long], &Rerank::new().truncate(true)).unwrap();
    assert_eq!(cut, known.rerank(query, [&"cat ".repeat(400)], &Rerank::new().truncate(true)).unwrap());
    let e = known.rerank(query, ["a"], &Rerank::new().truncate(true).max_tokens(20)).unwrap_err().to_string();
    assert!(e.contains("20 are allowed"), "{e}");
    // No cut makes two texts the same.
    let asks = "cat ".repeat(300);
    let e = known.rerank(&asks, ["a", "dog"], &Rerank::new().truncate(true)).unwrap_err().to_string();
    assert!(e.contains("nothing would be left of the text") && e.contains("512 are allowed"), "{e}");
    let e = known.rerank(query, &texts, &Rerank::new().asked(false)).unwrap_err().to_string();
    assert!(e.contains("is no reranker"), "{e}");
}

#[test]
fn a_head_made_of_its_answers_scores_the_same() {
    let (folder, pairs) = asked();
    let texts: Vec<String> = serde_json::from_value(pairs["documents"].clone()).unwrap();
    let (query, plain) = (pairs["query"].as_str().unwrap(), open(&folder));
    let file = ogive::weights::open(&folder).unwrap();
    let table = file.source.get("model.embed_tokens.weight").unwrap().to_vec();
    let row = |word: &str| {
        let id = plain.tokenizer().unwrap().encode(word, ogive::tokenizer::EncodeOptions::TEXT).unwrap();
        table[id[0] as usize * 48..][..48].to_vec()
    };
    let (yes, no) = (row("yes"), row("no"));
    let class = "Qwen3ForSequenceClassification";
    // As it is converted to transformers' class.
    let apart: Vec<f32> = yes.iter().zip(&no).map(|(y, n)| y - n).collect();
    let one = made("", class, Some((&[1, 48], apart.clone())));
    let (model, asked) = (open(one.path()), Rerank::new().asked(true));
    near(&model.rerank(query, &texts, &asked).unwrap(), &pairs["scores"], "one row");
    let e = model.embed("cat").unwrap_err().to_string();
    assert!(e.contains("ranks texts"), "{e}");
    // It may as well be a classifier: nobody says.
    let e = model.rerank(query, &texts, &Rerank::new()).unwrap_err().to_string();
    assert!(e.contains("--asked or --asked=false"), "{e}");
    let known = made("# somebody/Qwen3-Reranker-0.6B-seq-cls\n", class, Some((&[1, 48], apart)));
    near(&open(known.path()).rerank(query, &texts, &Rerank::new()).unwrap(), &pairs["scores"], "named");
    // Two rows by name, in either order, as llama.cpp's files have them; and two that are something else.
    for (labels, rows) in [(["yes", "no"], [&yes, &no]), (["no", "yes"], [&no, &yes])] {
        let two = made("", class, Some((&[2, 48], rows.map(Clone::clone).concat())));
        let path = two.path().join("config.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        config["id2label"] = json!({"0": labels[0], "1": labels[1]});
        std::fs::write(&path, config.to_string()).unwrap();
        let model = open(two.path());
        assert_eq!(model.labels(), labels);
        near(&model.rerank(query, &texts, &Rerank::new()).unwrap(), &pairs["scores"], labels[0]);
        config["id2label"] = json!({"0": "good", "1": "bad"});
        std::fs::write(path, config.to_string()).unwrap();
        let e = open(two.path()).rerank(query, &texts, &asked).unwrap_err().to_string();
        assert!(e.contains("2 classes apart") && e.contains("`yes` and `no`"), "{e}");
    }
}

/// A Qwen3 with two classes, and these settings of its own and of its tokenizer.
fn of_two(padding: &Value, tokenizer: &Value) -> tempfile::TempDir {
    let rows = (0..96).map(|i| i as f32 / 48.0 - 1.0).collect();
    let folder = made("", "Qwen3ForSequenceClassification", Some((&[2, 48], rows)));
    for (file, key, value) in
        [("config.json", "pad_token_id", padding), ("tokenizer.json", "post_processor", tokenizer)]
    {
        let path = folder.path().join(file);
        let mut json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        json[key] = value.clone();
        std::fs::write(path, json.to_string()).unwrap();
    }
    folder
}

/// Scores by transformers 4.57.6, `Qwen3ForSequenceClassification` in single precision.
#[test]
fn padding_at_the_end_is_not_looked_at() {
    let of = |padding: &Value, ids: &[u32]| {
        let model = open(of_two(padding, &Value::Null).path());
        let how = ogive::engine::Embed::new(Pooling::Mean);
        let (b, layers) = (&**model.backend(), &**model.layers());
        let scores = ogive::engine::classify(b, layers, &[(ids, &[][..])], &how).unwrap();
        scores.into_raw_vec_and_offset().0
    };
    for (ids, want) in [
        (&[40, 41, 42][..], json!([0.5154047, 1.3606796])),
        (&[40, 41, 42, 0, 0], json!([0.5154066, 1.3606798])),
        (&[40, 0, 42, 0], json!([0.8630576, -3.9959302])),
        (&[40, 0, 42, 7], json!([-2.954062, -2.454112])),
        (&[0, 0], json!([-0.5200455, -3.572392])),
    ] {
        let want: Vec<f64> = serde_json::from_value(want).unwrap();
        for (got, want) in of(&json!(0), ids).iter().zip(want) {
            // A text filled up has scores by 2e-6 other there, too.
            assert!((f64::from(*got) - want).abs() < 1e-5, "{ids:?}: {got} for {want}");
        }
    }
    // Nothing is padding where nobody says so.
    let all = [&of(&Value::Null, &[40, 41, 42, 0])[..], &of(&json!(-1), &[40, 41, 42, 0])].concat();
    assert_eq!(all[..2], all[2..]);
    assert!((all[0] - 0.5154).abs() > 1e-2, "{all:?}");
    let e = Options::new().open(of_two(&json!("<pad>"), &Value::Null).path()).map(|_| ()).unwrap_err();
    assert!(e.to_string().contains("`pad_token_id` is \"<pad>\""), "{e}");
}

#[test]
fn a_classifier_of_that_class_reads_texts_as_they_are() {
    let end = json!({"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]});
    let text = |name: &str| json!({"Sequence": {"id": name, "type_id": 0}});
    let token = json!({"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}});
    let ends = json!({"type": "TemplateProcessing", "single": [text("A"), token],
        "pair": [text("A"), text("B"), token], "special_tokens": {"<|endoftext|>": end}});
    let plain = json!({"type": "ByteLevel"});
    // A tokenizer that ends texts with what they are filled up with has the same classes as one that does not.
    let classes = |tokenizer: &Value| {
        open(of_two(&json!(0), tokenizer).path()).classify("the cats").unwrap().into_iter().map(|c| c.score)
    };
    assert!(classes(&ends).eq(classes(&plain)));
    let e = open(of_two(&json!(0), &plain).path()).classify("").unwrap_err().to_string();
    assert!(e.contains("text 1 is empty"), "{e}");
    // And so it is with a question and a text.
    let how = Rerank::new().asked(false);
    let rows: Vec<f32> = (0..48).map(|i| i as f32 / 48.0 - 1.0).collect();
    let scores = |tokenizer: &Value| {
        let folder = made("", "Qwen3ForSequenceClassification", Some((&[1, 48], rows.clone())));
        let path = folder.path().join("tokenizer.json");
        let mut json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        json["post_processor"] = tokenizer.clone();
        std::fs::write(path, json.to_string()).unwrap();
        open(folder.path()).rerank("a cat", ["dog", "the cats"], &how)
    };
    let both = scores(&plain).unwrap();
    assert_eq!(scores(&ends).unwrap(), both);
    assert_ne!(both[0], both[1]);
    assert!(scores(&Value::Null).unwrap_err().to_string().contains("how two texts become one"));
}

#[test]
fn a_model_that_cannot_be_asked_says_why() {
    let how = Rerank::new().asked(true);
    let e = open(&golden("bert")).rerank("a", ["b"], &how).unwrap_err().to_string();
    assert!(e.contains("<|im_start|>"), "{e}");
    let e = open(&golden("bert-reranker")).rerank("a", ["b"], &Rerank::new().instruction("x")).unwrap_err();
    assert!(e.to_string().contains("takes no instruction"), "{e}");
}

/// As llama.cpp's converter makes it: rows of the answers as a head with names, and the template that it is asked with.
#[test]
fn a_file_of_llama_cpps_making_says_how_it_is_asked() {
    use ogive::weights::gguf_file::{GgmlType, Gguf, GgufWriter, StringArray};
    let (folder, pairs) = asked();
    let texts: Vec<String> = serde_json::from_value(pairs["documents"].clone()).unwrap();
    let (query, plain) = (pairs["query"].as_str().unwrap(), open(&folder));
    let pack = ogive_quantize::Quantize::new(ogive_quantize::FileFormat::find("f32").unwrap());
    let mut bytes = Vec::new();
    pack.write_to(&ogive_quantize::Input::open(&folder).unwrap(), &mut bytes, |_| true).unwrap();
    let file = Gguf::from_bytes(bytes).unwrap();
    let table = file.tensor("token_embd.weight").unwrap();
    let row = |word: &str| {
        let id = plain.tokenizer().unwrap().encode(word, ogive::tokenizer::EncodeOptions::TEXT).unwrap();
        file.data(table).unwrap().bytes()[id[0] as usize * 192..][..192].to_vec()
    };
    let head = [row("yes"), row("no")].concat();
    let work = tempfile::tempdir().unwrap();
    let made = |template: Option<&str>| {
        let mut metadata = file.metadata().clone();
        let labels: StringArray = ["yes", "no"].map(str::to_owned).into_iter().collect();
        metadata.set("qwen3.classifier.output_labels", labels).set("qwen3.pooling_type", 4_u32);
        if let Some(template) = template {
            metadata.set("tokenizer.chat_template.rerank", template);
        }
        let mut writer = GgufWriter::with_metadata(metadata);
        for t in file.tensors() {
            writer.tensor(t.name(), t.dims(), t.ggml_type().unwrap()).unwrap();
        }
        writer.tensor("cls.output.weight", &[48, 2], GgmlType::F32).unwrap();
        let mut out = Vec::new();
        let mut data = writer.write_to(&mut out).unwrap();
        for t in file.tensors() {
            data.write_data(t.name(), file.data(t).unwrap().bytes()).unwrap();
        }
        data.write_data("cls.output.weight", &head).unwrap();
        data.finish().unwrap();
        // A file that is open is mapped, so each has its own.
        let path = work.path().join(format!("{}.gguf", std::fs::read_dir(work.path()).unwrap().count()));
        std::fs::write(&path, out).unwrap();
        open(&path)
    };
    let model = made(None);
    assert!(model.judges() && model.labels() == ["yes", "no"]);
    assert_eq!(model.layers().padding(), Some(0));
    near(&model.rerank(query, &texts, &Rerank::new()).unwrap(), &pairs["scores"], "the card's");
    let told = |told: &str| {
        format!(
            "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. \
             Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: {told}\n<Query>: {{query}}\n\
             <Document>: {{document}}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
        )
    };
    // The file's own words count.
    let own = made(Some(&told("like cats")));
    near(&own.rerank(query, &texts, &Rerank::new()).unwrap(), &pairs["instructed"], "the file's");
    let e = own.rerank(query, &texts, &Rerank::new().instruction("x")).unwrap_err().to_string();
    assert!(e.contains("no instruction that could be another"), "{e}");
    let usual =
        made(Some(&told("Given a web search query, retrieve relevant passages that answer the query")));
    let how = Rerank::new().instruction("like cats");
    near(&usual.rerank(query, &texts, &how).unwrap(), &pairs["instructed"], "the caller's");
    for (template, word) in [
        ("{document}", "(`{query}`)"),
        ("<|im_start|>{document} {query}<|im_end|>", "(`{document}`) behind the question"),
        ("<|user|>{query}{document}<|im_end|>", "does not have `<|user|>`"),
    ] {
        let e = made(Some(template)).rerank(query, &texts, &Rerank::new()).unwrap_err().to_string();
        assert!(e.contains(word), "{e}");
    }
    // Without special tokens all is one text.
    assert_eq!(made(Some("{query}? {document}")).rerank("a", ["b", "c"], &Rerank::new()).unwrap().len(), 2);
}
