//! Vectors of texts, through the front door.
#![allow(clippy::unwrap_used)]

mod common;

use common::shared;
use ndarray::{Array2, Axis};
use ogive::{Embed, Model, Options, Pooling, Prompt};
use serde_json::{Value, json};
use std::path::Path;

/// A model of the repository, of another crate's tests.
fn golden(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden").join(name)
}

fn open(path: &Path) -> Model {
    Options::new().exact(true).open(path).unwrap()
}

/// A decoder with `files` beside it, as sentence-transformers leaves them.
fn folder(files: &[(&str, serde_json::Value)]) -> tempfile::TempDir {
    copied("qwen3", &["config.json", "model.safetensors"], files)
}

/// An encoder, which has a tokenizer and modules, with `files` beside it.
fn encoder(files: &[(&str, serde_json::Value)]) -> tempfile::TempDir {
    copied("bert", &["config.json", "model.safetensors", "tokenizer.json", "modules.json"], files)
}

/// These of a model's files, and others.
fn copied(model: &str, own: &[&str], files: &[(&str, serde_json::Value)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in own {
        std::fs::copy(golden(model).join(name), folder.path().join(name)).unwrap();
    }
    std::fs::create_dir(folder.path().join("1_Pooling")).unwrap();
    for (name, value) in files {
        std::fs::write(folder.path().join(name), value.to_string()).unwrap();
    }
    folder
}

#[test]
fn the_checkpoint_says_how_it_is_pooled_and_the_caller_may_say_otherwise() {
    let ids = vec![5u32, 17, 42];
    let by = |pooling| Embed::new().pooling(pooling);
    let plain = open(&golden("qwen3"));
    let vector = |how: &Embed| plain.embed_all([ids.clone()], how).unwrap().into_raw_vec_and_offset().0;
    assert_eq!(plain.embed(ids.clone()).unwrap(), vector(&by(Pooling::Mean)));
    assert_ne!(vector(&by(Pooling::Cls)), vector(&by(Pooling::Last)));
    for (mode, pooling) in
        [("cls_token", Pooling::Cls), ("lasttoken", Pooling::Last), ("mean_tokens", Pooling::Mean)]
    {
        let says = json!({"word_embedding_dimension": 48, (format!("pooling_mode_{mode}")): true});
        let folder = folder(&[("1_Pooling/config.json", says)]);
        assert_eq!(open(folder.path()).embed(ids.clone()).unwrap(), vector(&by(pooling)), "{mode}");
    }
    let long: f32 = vector(&by(Pooling::Last).normalize(false)).iter().map(|v| v * v).sum();
    assert!(long > 2.0, "{long}");
}

#[test]
fn layers_after_the_model_are_refused_unless_a_pooling_is_chosen() {
    let kind = |name: &str| json!({"type": format!("sentence_transformers.models.{name}"), "path": ""});
    let known = [kind("Transformer"), kind("Pooling"), kind("Normalize")];
    assert!(open(folder(&[("modules.json", json!(known))]).path()).embed(vec![1u32]).is_ok());
    let model = open(folder(&[("modules.json", json!([known[0], known[1], kind("Dense")]))]).path());
    let e = model.embed(vec![1u32]).unwrap_err().to_string();
    assert!(e.contains("a layer `Dense` has no folder of its own"), "{e}");
    assert!(model.embed_all([vec![1u32]], &Embed::new().pooling(Pooling::Mean)).is_ok());
}

#[test]
fn a_chosen_pooling_keeps_the_rest_of_what_the_checkpoint_says() {
    let prompts =
        json!({"prompts": {"query": "cat: ", "document": "dog: "}, "default_prompt_name": "document"});
    let folder = encoder(&[
        ("1_Pooling/config.json", json!({"pooling_mode": "max"})),
        ("sentence_bert_config.json", json!({"max_seq_length": 6})),
        ("config_sentence_transformers.json", prompts),
    ]);
    let (model, plain, how) =
        (open(folder.path()), open(&golden("bert")), Embed::new().pooling(Pooling::Mean));
    let vector = |model: &Model, text: &str, how: &Embed| model.embed_all([text], how);
    let e = model.embed("tax").unwrap_err().to_string();
    assert!(
        e.contains("the pooling max is not known") && e.contains("choose a pooling to do without"),
        "{e}"
    );
    assert_eq!(vector(&model, "tax", &how).unwrap(), vector(&plain, "dog: tax", &how).unwrap());
    let query = how.clone().prompt("query");
    assert_eq!(vector(&model, "tax", &query).unwrap(), vector(&plain, "cat: tax", &how).unwrap());
    let e = vector(&model, "the cat sat on the mat", &how).unwrap_err().to_string();
    assert!(e.contains("the checkpoint takes 6 of a text"), "{e}");
    // What cannot be read is not done without.
    std::fs::write(folder.path().join("config_sentence_transformers.json"), "{").unwrap();
    let model = open(folder.path());
    let e = vector(&model, "tax", &how).unwrap_err().to_string();
    assert!(e.contains("config_sentence_transformers.json") && e.contains("reading JSON failed"), "{e}");
    assert!(model.prompts().is_empty());
}

/// Texts, their ids, and the vectors that sentence-transformers' formulas make of transformers' states.
fn texts(name: &str) -> (Vec<String>, Vec<Vec<u32>>, Array2<f32>) {
    let golden = std::fs::read(golden(name).join("golden.json")).unwrap();
    let golden: serde_json::Value = serde_json::from_slice(&golden).unwrap();
    let of = serde_json::from_value(golden["texts"]["of"].clone()).unwrap();
    let ids = serde_json::from_value(golden["texts"]["ids"].clone()).unwrap();
    (of, ids, ndarray_npy::read_npy(self::golden(name).join("vectors.npy")).unwrap())
}

const ENCODERS: [&str; 5] = ["bert", "nomic-bert", "xlm-roberta", "modern-bert", "embedding-gemma"];

#[test]
fn encoders_give_the_vectors_of_sentence_transformers() {
    for name in ENCODERS {
        let (texts, ids, want) = texts(name);
        // Special tokens that stand in a user's text are text here, so that text is given as ids.
        let prompt = |(text, ids): (&String, &Vec<u32>)| match text.contains("[CLS]") || text.contains("</s>")
        {
            true => Prompt::Ids(ids.clone()),
            false => Prompt::Text(text.clone()),
        };
        let prompts: Vec<Prompt> = texts.iter().zip(&ids).map(prompt).collect();
        let model = open(&golden(name));
        assert!(model.is_encoder());
        let got = model.embed_all(prompts.clone(), &Embed::new().truncate(true)).unwrap();
        let error = (&got - &want).iter().fold(0.0_f32, |most, d| most.max(d.abs()));
        assert!(error < 2e-6, "{name}: {error:.1e}");
        // The same bits alone, on any number of threads, in either order, without `exact` too.
        for threads in [1, 3] {
            for exact in [true, false] {
                let model = Options::new().exact(exact).threads(threads).open(golden(name)).unwrap();
                let how = Embed::new().truncate(true);
                let all = model.embed_all(prompts.clone(), &how).unwrap();
                let back = model.embed_all(prompts.iter().rev().cloned(), &how).unwrap();
                for (i, prompt) in prompts.iter().enumerate() {
                    let alone = model.embed_all([prompt.clone()], &how).unwrap();
                    assert_eq!(alone.row(0), all.row(i), "{name}, {threads} threads");
                    assert_eq!(alone.row(0), back.row(prompts.len() - 1 - i), "{name}, {threads} threads");
                }
                let far = (&all - &want).iter().fold(0.0_f32, |most, d| most.max(d.abs()));
                assert!(far < 5e-3, "{name}: {far:.1e}");
            }
        }
    }
}

#[test]
fn what_a_file_says_of_its_pooling_is_heeded_or_told() {
    let says = |number: serde_json::Value| {
        let folder = tempfile::tempdir().unwrap();
        for file in ["config.json", "model.safetensors"] {
            std::fs::copy(golden("bert").join(file), folder.path().join(file)).unwrap();
        }
        let path = folder.path().join("config.json");
        let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        config["pooling_type"] = number;
        std::fs::write(path, config.to_string()).unwrap();
        open(folder.path()).embed(vec![2u32, 30, 3])
    };
    let model = open(&golden("bert"));
    for (number, pooling) in [(1, Pooling::Mean), (2, Pooling::Cls), (3, Pooling::Last)] {
        let want = model.embed_all([vec![2u32, 30, 3]], &Embed::new().pooling(pooling)).unwrap();
        assert_eq!(says(json!(number)).unwrap(), want.row(0).to_vec());
    }
    for (number, word) in [
        (json!(0), "are not pooled"),
        (json!(4), "ranks"),
        (json!(9), "pooling 9"),
        (json!("x"), "pooling_type"),
    ] {
        let e = says(number).unwrap_err().to_string();
        assert!(e.contains(word) && e.contains("choose"), "{e}");
    }
}

#[test]
fn a_text_that_is_too_long_is_an_error_or_cut_before_its_last_token() {
    let (texts, ids, want) = texts("bert");
    let (at, long) = ids.iter().enumerate().max_by_key(|(_, ids)| ids.len()).unwrap();
    let model = open(&golden("bert"));
    assert_eq!((model.context(), long.len()), (43, 109));
    let e = model.embed(texts[at].as_str()).unwrap_err().to_string();
    assert!(e.contains("text 1 has 109 tokens, and the context is 43") && e.contains("--truncate"), "{e}");
    let cut = model.embed_all([texts[at].as_str()], &Embed::new().truncate(true)).unwrap();
    assert!((&cut.row(0) - &want.row(at)).iter().all(|d| d.abs() < 2e-6));
    let by_hand: Vec<u32> = long[..42].iter().chain(&long[108..]).copied().collect();
    assert_eq!(model.embed(by_hand).unwrap(), cut.row(0).to_vec());
    // A folder may say that its texts end sooner.
    let folder = encoder(&[("sentence_bert_config.json", json!({"max_seq_length": 9}))]);
    let model = open(folder.path());
    let cut =
        model.embed_all([texts[at].as_str()], &Embed::new().pooling(Pooling::Cls).truncate(true)).unwrap();
    let by_hand: Vec<u32> = long[..8].iter().chain(&long[108..]).copied().collect();
    let own = model.embed_all([by_hand.clone()], &Embed::new().pooling(Pooling::Cls)).unwrap();
    assert_eq!(own, cut);
    // So does a tokenizer, beside which sentence-transformers 6.2 saves no length. What is longer than that is not the context's.
    std::fs::write(
        folder.path().join("sentence_bert_config.json"),
        r#"{"transformer_task": "feature-extraction"}"#,
    )
    .unwrap();
    std::fs::write(folder.path().join("tokenizer_config.json"), r#"{"model_max_length": 9}"#).unwrap();
    let model = open(folder.path());
    let how = Embed::new().pooling(Pooling::Cls);
    assert_eq!(model.embed_all([texts[at].as_str()], &how.clone().truncate(true)).unwrap(), own);
    assert_eq!(model.embed_all([by_hand], &how).unwrap(), own);
    for e in [
        model.embed_all([texts[at].as_str()], &how).unwrap_err(),
        model.embed_tokens([long[..10].to_vec()], &how).unwrap_err(),
    ] {
        let e = e.to_string();
        assert!(
            e.contains("tokens, and the checkpoint takes 9 of a text") && e.contains("--truncate"),
            "{e}"
        );
    }
    // Whoever asks for more than the folder says has them, or fewer.
    let more = model.embed_all([long[..10].to_vec()], &how.clone().max_tokens(10)).unwrap();
    assert_eq!(more, open(&golden("bert")).embed_all([long[..10].to_vec()], &how).unwrap());
    let e = model.embed_all([long[..10].to_vec()], &how.clone().max_tokens(5)).unwrap_err().to_string();
    assert!(e.contains("10 tokens, and 5 are asked for"), "{e}");
    let e = Options::new().context(44).open(golden("bert")).unwrap_err().to_string();
    assert!(e.contains("has learned 43 positions, and a context of 44"), "{e}");
}

#[test]
fn an_estimate_is_of_the_longest_text() {
    let working = |context: usize, step: usize| {
        let options = Options::new().context(context).step_tokens(step);
        options.estimate_memory(golden("nomic-bert")).unwrap().working
    };
    assert!(working(2048, 512) > working(512, 512) && working(513, 512) > working(512, 512));
    assert_eq!(working(512, 8), working(512, 512));
}

#[test]
fn vectors_may_be_cut_and_tokens_keep_theirs() {
    for name in ENCODERS {
        let model = open(&golden(name));
        let text = "The cats sat on the mat.";
        let whole = model.embed_all([text], &Embed::new().normalize(false)).unwrap();
        let cut = model.embed_all([text], &Embed::new().dimensions(5)).unwrap();
        let length = whole.row(0).iter().take(5).map(|v| v * v).sum::<f32>().sqrt();
        assert_eq!(cut.dim(), (1, 5));
        assert!(cut.row(0).iter().zip(whole.row(0)).all(|(cut, v)| (cut - v / length).abs() < 1e-6));
        let e = model.embed_all([text], &Embed::new().dimensions(49)).unwrap_err().to_string();
        assert!(e.contains("vectors of 49 numbers were asked for, and the model's have 48"), "{e}");
        let tokens = model.embed_tokens([text, "the"], &Embed::new().normalize(false)).unwrap();
        let ids = model.encode(&text.into()).unwrap();
        assert_eq!(tokens.iter().map(Array2::dim).collect::<Vec<_>>(), [(ids.len(), 48), (3, 48)]);
        assert_eq!(tokens[0], model.hidden(&ids).unwrap());
        let mean = model.embed_all([text], &Embed::new().normalize(false).pooling(Pooling::Mean)).unwrap();
        let by_hand = tokens[0].mean_axis(Axis(0)).unwrap();
        let is_mean = mean.row(0).iter().zip(&by_hand).all(|(a, b)| (a - b).abs() < 1e-6);
        // Tokens go through no layer that is behind the pooling.
        assert_ne!(is_mean, model.layers().projects(), "{name}");
        let scaled = model.embed_tokens([text], &Embed::new()).unwrap();
        assert!(scaled[0].rows().into_iter().all(|row| (row.dot(&row) - 1.0).abs() < 1e-5));
    }
}

#[test]
fn a_prompt_stands_before_each_text() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        std::fs::copy(golden("bert").join(file), folder.path().join(file)).unwrap();
    }
    let say = |default: serde_json::Value| {
        let prompts =
            json!({"prompts": {"query": "cat: ", "document": "dog: "}, "default_prompt_name": default});
        std::fs::write(folder.path().join("config_sentence_transformers.json"), prompts.to_string()).unwrap();
        open(folder.path())
    };
    let (model, how) = (say(json!(null)), Embed::new());
    assert_eq!(model.prompts().keys().collect::<Vec<_>>(), ["document", "query"]);
    let by_hand = |text: &str| model.embed(text).unwrap();
    let query = model.embed_all(["the mat", "tax"], &how.clone().prompt("query")).unwrap();
    assert_eq!(query.row(0).to_vec(), by_hand("cat: the mat"));
    assert_eq!(query.row(1).to_vec(), by_hand("cat: tax"));
    let e = model.embed_all(["x"], &how.clone().prompt("no")).unwrap_err().to_string();
    assert!(e.contains("prompt `no`") && e.contains("known are document, query"), "{e}");
    let e = open(&golden("bert")).embed_all(["x"], &how.prompt("query")).unwrap_err().to_string();
    assert!(e.contains("has no prompts"), "{e}");
    assert_eq!(say(json!("document")).embed("the mat").unwrap(), by_hand("dog: the mat"));
    // Ids stand as they are.
    assert_eq!(
        say(json!("document")).embed(vec![2u32, 23, 3]).unwrap(),
        model.embed(vec![2u32, 23, 3]).unwrap()
    );
}

#[test]
fn a_prompt_may_be_left_out_of_the_pooling_and_texts_lower_cased() {
    let folder = encoder(&[]);
    let write = |name: &str, value: serde_json::Value| {
        std::fs::write(folder.path().join(name), value.to_string()).unwrap();
    };
    write("config_sentence_transformers.json", json!({"prompts": {"query": "The cat: "}}));
    let pooling = |mode: &str| write("1_Pooling/config.json", json!({(mode): true, "include_prompt": false}));
    pooling("pooling_mode_mean_tokens");
    let model = open(folder.path());
    let how = Embed::new().prompt("query").normalize(false);
    let vector = |model: &Model, text: &str| model.embed_all([text], &how).unwrap().row(0).to_vec();
    // The tokens of the prompt are seen and not counted, `[CLS]` among them; `[SEP]` counts.
    let tokens = model.embed_tokens(["the mat"], &how).unwrap().remove(0);
    let before = model.encode(&"The cat:".into()).unwrap().len() - 1;
    assert_eq!(
        model.encode(&"The cat: the mat".into()).unwrap()[..before],
        model.encode(&"The cat:".into()).unwrap()[..before]
    );
    let by_hand = tokens.slice_axis(Axis(0), (before..).into()).mean_axis(Axis(0)).unwrap();
    let mean = vector(&model, "the mat");
    assert!(mean.iter().zip(&by_hand).all(|(a, b)| (a - b).abs() < 1e-6));
    // Ids have no prompt, and stand beside texts that have.
    let both = [Prompt::from("the mat"), Prompt::from(vec![2u32, 23, 3])];
    let both = model.embed_all(both, &how).unwrap();
    assert_eq!(both.row(0).to_vec(), mean);
    assert_eq!(
        both.row(1),
        open(&golden("bert"))
            .embed_all([vec![2u32, 23, 3]], &Embed::new().pooling(Pooling::Mean).normalize(false))
            .unwrap()
            .row(0)
    );
    pooling("pooling_mode_cls_token");
    // The first token is the first after the prompt.
    let first = tokens.row(before).to_vec();
    assert_eq!(vector(&open(folder.path()), "the mat"), first);
    // A tokenizer that does not lower-case has other ids for capitals.
    let mut tokenizer: serde_json::Value =
        serde_json::from_slice(&std::fs::read(golden("bert").join("tokenizer.json")).unwrap()).unwrap();
    tokenizer["normalizer"]["lowercase"] = json!(false);
    write("tokenizer.json", tokenizer);
    let cased = open(folder.path());
    assert_ne!(vector(&cased, "THE MAT"), first);
    write("sentence_bert_config.json", json!({"do_lower_case": true}));
    assert_eq!(vector(&open(folder.path()), "THE MAT"), first);
}

#[test]
fn the_first_token_after_a_prompt_may_lie_in_a_later_step() {
    let folder = folder(&[
        ("1_Pooling/config.json", json!({"pooling_mode": "cls", "include_prompt": false})),
        ("config_sentence_transformers.json", json!({"prompts": {"query": "the cat sat on the mat: "}})),
    ]);
    std::fs::copy(golden("bert").join("tokenizer.json"), folder.path().join("tokenizer.json")).unwrap();
    let model = Options::new().exact(true).step_tokens(4).open(folder.path()).unwrap();
    let (how, texts) = (Embed::new().prompt("query"), ["the dog", "tax"]);
    let before = model.encode(&"the cat sat on the mat:".into()).unwrap().len() - 1;
    assert!(before > 4);
    let (got, tokens) = (model.embed_all(texts, &how).unwrap(), model.embed_tokens(texts, &how).unwrap());
    for (got, tokens) in got.rows().into_iter().zip(tokens) {
        assert_eq!(got, tokens.row(before));
    }
    // Where the prompt is all that there is, the first token is the text's.
    let cut = model.embed_all([""], &Embed::new().prompt("query")).unwrap();
    let end = model.embed_tokens([""], &Embed::new().prompt("query")).unwrap().remove(0);
    assert_eq!(cut.row(0), end.row(before));
}

#[test]
fn an_encoder_says_where_its_answers_are() {
    for name in ENCODERS {
        let model = open(&golden(name));
        for e in [model.session().unwrap_err(), model.logits(&[1, 2]).unwrap_err()] {
            assert!(e.to_string().contains("ask for its vectors (`ogive embed`, `Model::embed`)"), "{e}");
        }
        assert!(model.embed(vec![1000u32]).is_err());
    }
}

#[test]
fn texts_that_are_too_long_or_empty_are_named() {
    let model = Options::new().context(8).open(golden("llama")).unwrap();
    let e = model.embed_all([vec![1u32; 8], vec![1; 9]], &Embed::new()).unwrap_err().to_string();
    assert!(e.contains("text 2 has 9 tokens, and the context is 8"), "{e}");
    let e = model.embed_all([vec![1u32], vec![]], &Embed::new()).unwrap_err().to_string();
    assert!(e.contains("text 2 is empty"), "{e}");
    // These models have no vocabulary.
    assert!(model.embed("text").unwrap_err().to_string().contains("no tokenizer"));
    assert_eq!(model.embed_all(Vec::<Vec<u32>>::new(), &Embed::new()).unwrap().nrows(), 0);
}

#[test]
fn like_texts_are_nearer_than_unlike() {
    let Some(shared) = shared() else { return };
    let model = ogive::open(shared.join("models/stories260K/stories260K-q8_0.gguf")).unwrap();
    let texts = [
        "Lily played with her red ball in the park.",
        "Tim played with his blue ball in the garden.",
        "\"No!\" he said. \"You can not eat my cake!\"",
    ];
    let v = model.embed_all(texts, &Embed::new()).unwrap();
    let cosine = |a: usize, b: usize| v.row(a).dot(&v.row(b));
    assert!(cosine(0, 1) > cosine(0, 2) && cosine(0, 1) > cosine(1, 2));
    assert_eq!(model.embed(texts[2]).unwrap(), v.row(2).to_vec());
}

#[test]
fn a_packed_encoder_has_its_folders_vectors() {
    let pack = ogive_quantize::Quantize::new(ogive_quantize::FileFormat::find("f32").unwrap());
    let silu: fn(&mut Value) = |c| c["hidden_activation"] = "silu".into();
    // multilingual-e5-small's shape: a BERT with XLM-RoBERTa's vocabulary.
    let ids: fn(&mut Value) =
        |c| (c["bos_token_id"], c["eos_token_id"], c["pad_token_id"]) = (0.into(), 2.into(), 1.into());
    for (name, vocabulary, change) in [("modern-bert", "modern-bert", silu), ("bert", "xlm-roberta", ids)] {
        let folder = tempfile::tempdir().unwrap();
        let place = |file: &str| folder.path().join(file);
        for (of, file) in [
            (name, "model.safetensors"),
            (vocabulary, "tokenizer.json"),
            (vocabulary, "tokenizer_config.json"),
        ] {
            std::fs::copy(golden(of).join(file), place(file)).unwrap();
        }
        let config = std::fs::read(golden(name).join("config.json")).unwrap();
        let mut config: Value = serde_json::from_slice(&config).unwrap();
        change(&mut config);
        std::fs::write(place("config.json"), config.to_string()).unwrap();
        let texts = ["Once upon a time, there was a girl", "a cat"];
        let vectors = |path: &Path| {
            let model = Options::new().exact(true).open(path).unwrap();
            model.embed_all(texts, &Embed::new().pooling(Pooling::Mean)).unwrap()
        };
        let own = vectors(folder.path());
        let input = ogive_quantize::Input::open(folder.path()).unwrap();
        pack.save(&input, place("model.gguf"), |_| true).unwrap();
        assert_eq!(vectors(&place("model.gguf")), own, "{name}");
        if name == vocabulary {
            assert_ne!(vectors(&golden(name)), own);
        }
    }
}
