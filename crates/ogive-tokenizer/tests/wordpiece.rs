//! BERT's word pieces: ids of the `tokenizers` package, from a tokenizer.json and from what llama.cpp's converter makes of it.

use gguf_file::{Metadata, StringArray};
use ogive_tokenizer::{EncodeOptions, TokenKind, Tokenizer};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A tiny encoder of the repository, of another crate's tests.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden/bert")
}

fn read(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(folder().join(name)).unwrap()).unwrap()
}

/// The vocabulary's tokens in order.
fn tokens() -> Vec<String> {
    let json = read("tokenizer.json");
    let vocab = json["model"]["vocab"].as_object().unwrap();
    let mut tokens: Vec<(u64, String)> =
        vocab.iter().map(|(text, id)| (id.as_u64().unwrap(), text.clone())).collect();
    tokens.sort_unstable();
    tokens.into_iter().map(|(_, text)| text).collect()
}

/// What llama.cpp's converter writes of a vocabulary: special tokens as they are, words with a mark, pieces bare.
fn gguf(tokens: &[String]) -> Metadata {
    let special = |t: &str| ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].contains(&t);
    let spelt = |t: &String| match t.strip_prefix("##") {
        _ if special(t) => t.clone(),
        Some(piece) => piece.to_owned(),
        None => format!("\u{2581}{t}"),
    };
    let kinds: Vec<i32> = tokens.iter().map(|t| if special(t) { 3 } else { 1 }).collect();
    let mut m = Metadata::new();
    m.set("tokenizer.ggml.model", "bert").set("tokenizer.ggml.token_type", kinds);
    m.set("tokenizer.ggml.tokens", tokens.iter().map(spelt).collect::<StringArray>());
    for (key, id) in [("padding", 0u32), ("unknown", 1), ("cls", 2), ("seperator", 3), ("mask", 4)] {
        m.set(&format!("tokenizer.ggml.{key}_token_id"), id);
    }
    m
}

/// Texts and their ids by the `tokenizers` package.
fn cases() -> Vec<(String, Vec<u32>)> {
    let golden = read("golden.json");
    let texts = golden["texts"]["of"].as_array().unwrap().iter();
    let ids = golden["texts"]["ids"].as_array().unwrap().iter();
    let id = |v: &Value| v.as_u64().unwrap() as u32;
    let case = |(t, i): (&Value, &Value)| {
        (t.as_str().unwrap().to_owned(), i.as_array().unwrap().iter().map(id).collect())
    };
    texts.zip(ids).map(case).collect()
}

#[test]
fn ids_are_those_of_the_tokenizers_package_from_either_file() {
    let made = Tokenizer::from_gguf(&gguf(&tokens())).unwrap();
    for t in [Tokenizer::from_folder(folder()).unwrap(), made] {
        for (text, ids) in cases() {
            assert_eq!(t.encode(&text, EncodeOptions::PROMPT).unwrap(), ids, "{text:?}");
        }
        assert_eq!((t.bos(), t.eos(), t.special().separator), (Some(2), Some(3), Some(3)));
        assert_eq!((t.special().unknown, t.special().padding, t.special().mask), (Some(1), Some(0), Some(4)));
        assert!(t.add_bos() && t.add_eos());
        assert_eq!((t.model_name(), t.vocab_size()), ("WordPiece", 131));
        assert_eq!(
            (t.token_id("the"), t.token_id("##ing"), t.token_id("[CLS]")),
            (Some(23), Some(34), Some(2))
        );
    }
}

#[test]
fn a_list_of_tokens_is_enough() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let open = || Tokenizer::from_folder(folder.path());
    put("vocab.txt", &(tokens().join("\n") + "\n"));
    assert!(open().unwrap_err().to_string().contains("tokenizer.json"), "of another model, it may be");
    put("config.json", r#"{"model_type": "bert"}"#);
    let t = open().unwrap();
    for (text, ids) in cases() {
        assert_eq!(t.encode(&text, EncodeOptions::PROMPT).unwrap(), ids, "{text:?}");
    }
    assert_eq!((t.bos(), t.eos(), t.special().unknown), (Some(2), Some(3), Some(1)));
    put("tokenizer_config.json", r#"{"tokenizer_class": "BertTokenizer", "do_lower_case": false}"#);
    assert_eq!(open().unwrap().encode("the The", EncodeOptions::TEXT).unwrap(), [23, 1]);
    put("tokenizer_config.json", r#"{"tokenizer_class": "BertJapaneseTokenizer"}"#);
    assert!(open().is_err());
    put("tokenizer_config.json", r#"{"cls_token": "<s>"}"#);
    assert!(open().unwrap_err().to_string().contains("vocab.txt has no <s>"));
    put("tokenizer_config.json", "{}");
    put("vocab.txt", "[UNK]\n[CLS]\n[SEP]\na\na\n");
    assert!(open().unwrap_err().to_string().contains("\"a\" for the ids 3 and 4"));
}

#[test]
fn a_users_words_are_no_special_tokens() {
    let made = Tokenizer::from_gguf(&gguf(&tokens())).unwrap();
    for t in [Tokenizer::from_folder(folder()).unwrap(), made] {
        let ids = t.encode("[CLS] [MASK]", EncodeOptions::default()).unwrap();
        assert_eq!((ids.first(), ids.last()), (Some(&2), Some(&3)));
        assert!(
            ids[1..ids.len() - 1].iter().all(|id| t.token_kind(*id) == Some(TokenKind::Normal)),
            "{ids:?}"
        );
    }
}

#[test]
fn words_come_back_with_spaces_between() {
    let made = Tokenizer::from_gguf(&gguf(&tokens())).unwrap();
    for t in [Tokenizer::from_folder(folder()).unwrap(), made] {
        let ids = t.encode("The cats,unlike dogs", EncodeOptions::default()).unwrap();
        assert_eq!(t.decode(&ids).unwrap(), "the cats , unlike dogs");
    }
}

#[test]
fn case_and_accents_are_kept_where_the_file_says_so_or_has_capitals() {
    let pieces = |m: &Metadata, text: &str| {
        let t = Tokenizer::from_gguf(m).unwrap();
        t.encode(text, EncodeOptions::TEXT).unwrap()
    };
    let id = |text: &str| tokens().iter().position(|t| t == text).unwrap() as u32;
    let mut m = gguf(&tokens());
    assert_eq!(pieces(&m, "CAFÉ É"), [id("cafe"), id("e")]);
    m.set("tokenizer.ggml.normalizer.strip_accents", false);
    assert_eq!(pieces(&m, "CAFÉ É"), [id("c"), id("##a"), id("##f"), id("##é"), id("é")]);
    m.set("tokenizer.ggml.normalizer.lowercase", false);
    assert_eq!(pieces(&m, "CAFÉ é cat"), [1, id("é"), id("cat")]);
    // Without a word of it, 26 capitals tell.
    let mut cased = tokens();
    let first = cased.iter().position(|t| t.starts_with("[unused")).unwrap();
    cased.splice(first.., ('A'..='Z').map(String::from));
    let m = gguf(&cased);
    assert_eq!(pieces(&m, "C c é"), [first as u32 + 2, id("c"), id("é")]);
    cased.pop();
    assert_eq!(pieces(&gguf(&cased), "C c é"), [id("c"), id("c"), id("e")]);
}

#[test]
fn what_a_file_leaves_out_is_known_by_name() {
    let mut m = gguf(&tokens());
    for key in ["padding", "unknown", "cls", "seperator", "mask"] {
        m.remove(&format!("tokenizer.ggml.{key}_token_id"));
    }
    let t = Tokenizer::from_gguf(&m).unwrap();
    for (text, ids) in cases() {
        assert_eq!(t.encode(&text, EncodeOptions::PROMPT).unwrap(), ids, "{text:?}");
    }
    // Later files say it by the names of others, and that both are added.
    m.set("tokenizer.ggml.bos_token_id", 5u32).set("tokenizer.ggml.seperator_token_id", 6u32);
    m.set("tokenizer.ggml.add_bos_token", false).set("tokenizer.ggml.add_eos_token", true);
    let t = Tokenizer::from_gguf(&m).unwrap();
    assert_eq!(t.encode("the", EncodeOptions::default()).unwrap(), [5, 23, 6]);
}

#[test]
fn user_defined_words_are_found_without_their_mark() {
    let mut all = tokens();
    let at = all.len() - 1;
    all[at] = "C++".into();
    let mut m = gguf(&all);
    let mut kinds: Vec<i32> = m.opt_array_of_i32("tokenizer.ggml.token_type").unwrap().unwrap().to_vec();
    kinds[at] = 4;
    m.set("tokenizer.ggml.token_type", kinds);
    let t = Tokenizer::from_gguf(&m).unwrap();
    assert_eq!(t.encode("the C++ cat", EncodeOptions::TEXT).unwrap(), [23, at as u32, 24]);
}

#[test]
fn lies_are_refused_by_name_and_nothing_panics() {
    let with = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
        let mut m = gguf(&tokens());
        let mut texts: Vec<Vec<u8>> =
            m.array_of_str("tokenizer.ggml.tokens").unwrap().iter().map(<[u8]>::to_vec).collect();
        change(&mut texts);
        m.set("tokenizer.ggml.tokens", texts.iter().collect::<StringArray>());
        Tokenizer::from_gguf(&m)
    };
    let e = with(&|t| t[30] = b"\xff".to_vec()).unwrap_err().to_string();
    assert!(e.contains("token 30") && e.contains("not UTF-8"), "{e}");
    let e = with(&|t| t[30] = t[29].clone()).unwrap_err().to_string();
    assert!(e.contains("the tokens 29 and 30 are both"), "{e}");
    let e = with(&|t| t[30] = "\u{2581}[UNK]".into()).unwrap_err().to_string();
    assert!(e.contains("the tokens 30 and 1 are both"), "{e}");
    let e = with(&|t| t.truncate(7)).unwrap_err().to_string();
    assert!(e.contains("7 tokens have 131 token types"), "{e}");
    let mut m = gguf(&tokens());
    m.set("tokenizer.ggml.unknown_token_id", 999u32);
    let e = Tokenizer::from_gguf(&m).unwrap_err().to_string();
    assert!(e.contains("it has no unknown token"), "{e}");
}

/// Whatever a file says of its tokens, it opens or says why not, and what opens encodes.
#[test]
fn damaged_vocabularies_are_harmless() {
    let mut state = 7_u64;
    let mut below = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let (good, mut opened) = (gguf(&tokens()), 0);
    let texts: Vec<Vec<u8>> =
        good.array_of_str("tokenizer.ggml.tokens").unwrap().iter().map(<[u8]>::to_vec).collect();
    for _ in 0..400 {
        let (mut m, mut texts) = (good.clone(), texts.clone());
        let mut kinds = vec![1_i32; texts.len()];
        for _ in 0..=below(4) {
            let at = below(texts.len());
            match below(6) {
                0 => texts[at] = "\u{2581}\u{2581}".into(),
                1 => texts[at].clear(),
                2 => texts[at] = vec![below(256) as u8; below(300)],
                3 => kinds[at] = below(9) as i32 - 1,
                4 => _ = m.set("tokenizer.ggml.unknown_token_id", below(200) as u32),
                _ => _ = m.set("tokenizer.ggml.seperator_token_id", below(200) as i32 - 50),
            }
        }
        m.set("tokenizer.ggml.tokens", texts.iter().collect::<StringArray>());
        m.set("tokenizer.ggml.token_type", kinds);
        let Ok(t) = Tokenizer::from_gguf(&m) else { continue };
        opened += 1;
        for (text, _) in cases() {
            let ids = t.encode(&text, EncodeOptions::PROMPT).unwrap();
            assert!(ids.iter().all(|id| (*id as usize) < t.vocab_size()));
            t.decode_bytes(&ids).unwrap();
        }
    }
    assert!((50..400).contains(&opened), "{opened}");
}

#[test]
fn bytes_that_are_no_text_and_endless_words_are_unknown() {
    let t = Tokenizer::from_gguf(&gguf(&tokens())).unwrap();
    assert_eq!(t.encode_bytes(b"the\xffcat", EncodeOptions::TEXT).unwrap(), [23, 1, 24]);
    let long = "a".repeat(1 << 20);
    assert_eq!(t.encode(&long, EncodeOptions::TEXT).unwrap(), [1]);
    let many = t.encode(&"a ".repeat(1 << 16), EncodeOptions::TEXT).unwrap();
    assert_eq!(many.len(), 1 << 16);
    // Marks without end on one letter: BERT strips them.
    let marks = format!("e{}", "\u{301}".repeat(1 << 16));
    assert_eq!(t.encode(&marks, EncodeOptions::TEXT).unwrap(), t.encode("e", EncodeOptions::TEXT).unwrap());
}
