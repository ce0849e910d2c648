//! What callers rely on: special tokens, odd input, streams, roles and templates from a folder's files.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "skips and figures are to be seen")]

mod common;

use common::{samples, shared, vocabularies};
use ogive_tokenizer::{EncodeOptions, TextStream, Tokenizer, TokenizerError};
use serde_json::{Value, json};
use std::path::Path;

const TEXT: EncodeOptions = EncodeOptions::TEXT;
const PARSED: EncodeOptions = EncodeOptions { add_special: false, parse_special: true };

fn open(json: &Value) -> Tokenizer {
    Tokenizer::from_json(&serde_json::to_vec(json).unwrap()).unwrap()
}

#[test]
fn is_shared_between_threads() {
    fn all<T: Send + Sync + Clone + 'static>() {}
    all::<Tokenizer>();
    all::<TextStream>();
}

#[test]
fn special_tokens_are_parsed_only_when_asked() {
    let t = open(&samples::byte_level());
    assert_eq!(t.encode("a</s>b", PARSED).unwrap(), [97, 262, 98]);
    assert!(!t.encode("a</s>b", TEXT).unwrap().contains(&262));
    assert_eq!(t.decode(&t.encode("a</s>b", TEXT).unwrap()).unwrap(), "a</s>b");
    assert_eq!(t.decode(&[97, 262, 98]).unwrap(), "ab");
    assert_eq!(t.decode_with_special(&[97, 262, 98]).unwrap(), "a</s>b");
}

#[test]
fn added_tokens_strip_and_normalise() {
    let t = open(&samples::llama());
    // `</s>` takes the space before it; text after a special token gets SentencePiece's space, and decoding takes it off.
    let ids = t.encode("a  </s>a", PARSED).unwrap();
    assert_eq!(ids, [262, 2, 262]);
    assert_eq!(t.decode(&ids).unwrap(), "aa");
    let mut json = samples::llama();
    let token = json!({"id": 264, "content": "b b", "single_word": false, "lstrip": false, "rstrip": false, "special": false, "normalized": true});
    json["added_tokens"].as_array_mut().unwrap().push(token);
    let t = open(&json);
    // The normaliser puts its mark before the token's content, too: as in the `tokenizers` crate, it is found at a text's start.
    let theirs = tokenizers::Tokenizer::from_bytes(serde_json::to_vec(&json).unwrap()).unwrap();
    for text in ["b b", "ab b", "a b b a"] {
        assert_eq!(
            t.encode(text, TEXT).unwrap(),
            theirs.encode_fast(text, false).unwrap().get_ids(),
            "{text:?}"
        );
    }
    assert_eq!(t.token_id("b b"), Some(264));
}

#[test]
fn a_stream_after_a_prompt_says_what_decoding_both_does() {
    let mut json = samples::llama();
    let token = json!({"id": 264, "content": "<u>", "single_word": false, "lstrip": false, "rstrip": false, "special": false, "normalized": false});
    json["added_tokens"].as_array_mut().unwrap().push(token);
    let t = open(&json);
    // Encoding puts a space after either token, so neither shows it.
    for (prompt, text) in [("b", " a"), ("b<u>", "a"), ("b</s>", "a")] {
        let (prompt, rest) = (t.encode(prompt, PARSED).unwrap(), [262]);
        let both = t.decode(&[&*prompt, &rest].concat()).unwrap();
        assert_eq!(both, t.decode(&prompt).unwrap() + text);
        assert_eq!(t.stream_after(&prompt).push(262).unwrap(), text, "{prompt:?}");
    }
}

/// `json` with tokens added from id `first` on, neither special nor normalised.
fn adding(mut json: Value, first: u32, contents: &[&str]) -> Value {
    for (id, content) in (first..).zip(contents) {
        let token = json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "special": false, "normalized": false});
        json["added_tokens"].as_array_mut().unwrap().push(token);
    }
    json
}

#[test]
fn added_tokens_are_decoded_as_in_the_tokenizers_crate() {
    // As in Gemma's folders: runs of spaces are added tokens, spelt with marks.
    let mut gemma = adding(samples::llama(), 264, &["▁▁", "▁▁▁", "<u>", "a▁b"]);
    gemma["normalizer"] = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    gemma["decoder"]["decoders"].as_array_mut().unwrap().pop();
    let mut pieces = adding(samples::llama(), 264, &["<u>", "##x"]);
    pieces["normalizer"] = Value::Null;
    pieces["decoder"] = json!({"type": "WordPiece", "prefix": "##", "cleanup": false});
    for json in [&gemma, &pieces] {
        let t = open(json);
        let theirs = tokenizers::Tokenizer::from_bytes(serde_json::to_vec(json).unwrap()).unwrap();
        let tokens = [260, 261, 264, 265].into_iter().chain((t.vocab_size() > 266).then_some(267));
        let tokens: Vec<u32> = tokens.collect();
        // There a piece that a text begins with shows its `##`.
        for a in tokens.iter().filter(|id| theirs.id_to_token(**id).is_some_and(|t| !t.starts_with("##"))) {
            for b in &tokens {
                let ids = [*a, *b, 264];
                let (want, mut stream) = (theirs.decode(&ids, true).unwrap(), t.stream());
                assert_eq!(t.decode(&ids).unwrap(), want, "{ids:?}");
                assert_eq!(ids.map(|id| stream.push(id).unwrap()).concat(), want, "{ids:?}");
            }
        }
    }
    let t = open(&gemma);
    assert_eq!(t.decode(&[260, 264, 265]).unwrap(), "a     ");
    // In text they are what the file calls them, and so are their names.
    assert_eq!(t.encode("a▁▁b▁▁▁", TEXT).unwrap(), [260, 264, 261, 265]);
    assert_eq!((t.token_id("▁▁"), t.token_id("  ")), (Some(264), None));
    let names: Vec<_> = t.added_tokens().filter(|(_, id)| *id >= 264).map(|(text, _)| text).collect();
    assert!(names.len() == 4 && names.contains(&"▁▁▁"), "{names:?}");
}

/// The `tokenizers` crate reads `é` as the byte E9 there, so that what was put in does not come out.
#[test]
fn added_tokens_beside_an_alphabet_of_bytes_are_their_own_text() {
    let t = open(&adding(samples::byte_level(), 263, &["naïve", "日本", "Ġa"]));
    let ids = t.encode("a naïve日本", TEXT).unwrap();
    assert_eq!((&ids[ids.len() - 2..], t.decode(&ids).unwrap()), (&[263, 264][..], "a naïve日本".into()));
    // This one the model has: it is spelt in the alphabet, and keeps its id.
    assert_eq!((t.token_id("Ġa"), t.decode(&[257]).unwrap()), (Some(257), " a".into()));
}

#[test]
fn the_last_word_ends_without_a_space() {
    let json = json!({
        "model": {"type": "BPE", "unk_token": null, "end_of_word_suffix": "</w>", "vocab": {"a": 0, "a</w>": 1, "b</w>": 2, "</w>": 3}, "merges": []},
        "decoder": {"type": "BPEDecoder", "suffix": "</w>"},
        "added_tokens": [{"id": 4, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
    });
    let t = open(&json);
    let theirs = tokenizers::Tokenizer::from_bytes(serde_json::to_vec(&json).unwrap()).unwrap();
    let cases: [&[u32]; 7] = [&[0, 1], &[1, 0, 2], &[1, 4], &[4, 1, 2, 4, 4], &[1, 4, 2], &[3], &[1, 3]];
    for ids in cases {
        for special in [false, true] {
            let want = theirs.decode(ids, !special).unwrap();
            let ours = if special { t.decode_with_special(ids) } else { t.decode(ids) };
            assert_eq!(ours.unwrap(), want, "{ids:?}");
            let mut stream = if special { t.stream().with_special() } else { t.stream() };
            let text: String = ids.iter().map(|id| stream.push(*id).unwrap()).collect();
            assert_eq!(text + &stream.finish(), want, "{ids:?}");
        }
        // A stream goes on where the prompt stopped.
        let mut stream = t.stream_after(ids);
        let rest = stream.push(2).unwrap() + &stream.finish();
        assert_eq!(t.decode(ids).unwrap() + &rest, t.decode(&[ids, &[2]].concat()).unwrap(), "{ids:?}");
    }
}

#[test]
fn a_verbatim_stream_keeps_every_space() {
    let t = open(&samples::llama());
    let text = |mut stream: TextStream| [262, 2, 262].map(|id| stream.push(id).unwrap()).concat();
    assert_eq!((text(t.stream()), text(t.stream().verbatim())), ("aa".into(), " a a".into()));
}

#[test]
fn bytes_that_are_no_text_survive() {
    let inputs: [&[u8]; 6] =
        [b"", b"\0", b"a\xffb", b"\xe4\xb8", b"ok \xf0\x9f\xa6\x99 \xf0\x9f", b"\xc0\x80\xed\xa0\x80"];
    for t in [open(&samples::byte_level()), open(&samples::llama())] {
        for input in inputs {
            let ids = t.encode_bytes(input, TEXT).unwrap();
            assert_eq!(t.decode_bytes(&ids).unwrap(), input, "{}", t.model_name());
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(t.decode_bytes(&t.encode_bytes(&all, TEXT).unwrap()).unwrap(), all);
    }
}

#[test]
fn characters_without_a_token_are_errors_and_not_left_out() {
    let mut json = samples::llama();
    json["model"]["unk_token"] = Value::Null;
    json["model"]["byte_fallback"] = false.into();
    let t = open(&json);
    assert_eq!(t.encode("ab a", TEXT).unwrap(), [262, 261, 262]);
    for (text, at) in [("z", 3), ("azb", 4), ("abz", 5), ("a é", 7), ("日", 3)] {
        match t.encode(text, TEXT) {
            Err(TokenizerError::NoToken { what, at: found }) => {
                assert!("\"z\" \"é\" \"日\"".contains(&what), "{text}: {what}");
                assert_eq!(found, at, "{text}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    // With an unknown token they are that.
    json["model"]["unk_token"] = "<unk>".into();
    assert_eq!(open(&json).encode("azb", TEXT).unwrap(), [262, 0, 261]);
}

#[test]
fn unknown_ids_are_errors() {
    let t = open(&samples::byte_level());
    for id in [263, u32::MAX] {
        assert!(matches!(t.token_bytes(id), Err(TokenizerError::UnknownToken { size: 263, .. })));
        assert!(t.decode(&[97, id]).is_err());
        let mut stream = t.stream();
        assert!(stream.push(id).is_err());
        assert_eq!(stream.push(97).unwrap(), "a");
        assert_eq!((t.token_kind(id), t.is_eog(id)), (None, false));
    }
}

#[test]
fn streams_give_whole_characters_of_every_vocabulary() {
    let Some(shared) = shared() else { return };
    let text = " Zoë ate 世界 🦙👩‍🚀 123 naïve e\u{301}";
    for (name, t) in vocabularies(&shared) {
        let ids = t.encode(text, TEXT).unwrap();
        let mut stream = t.stream();
        let pieces: Vec<String> = ids.iter().map(|id| stream.push(*id).unwrap()).collect();
        assert!(pieces.iter().all(|p| !p.contains('\u{fffd}')), "{name}: {pieces:?}");
        assert!(pieces.iter().any(String::is_empty), "{name}: no character spans tokens");
        assert_eq!((pieces.concat(), stream.finish()), (text.to_owned(), String::new()), "{name}");
        // Cut inside a character, the rest is one replacement.
        let cut =
            (1..ids.len()).find(|n| String::from_utf8(t.decode_bytes(&ids[..*n]).unwrap()).is_err()).unwrap();
        let mut stream = t.stream();
        let got: String = ids[..cut].iter().map(|id| stream.push(*id).unwrap()).collect();
        assert_eq!(got + &stream.finish(), t.decode(&ids[..cut]).unwrap());
    }
}

#[test]
fn a_megabyte_of_text_and_an_empty_one() {
    let Some(shared) = shared() else { return };
    let text = "The quick brown fox — naïve, 世界! 42\n".repeat(27_000);
    for (name, t) in vocabularies(&shared) {
        let ids = t.encode(&text, TEXT).unwrap();
        assert_eq!(t.decode(&ids).unwrap(), text, "{name}");
        assert!(t.encode("", TEXT).unwrap().is_empty());
        let prefix = t.encode("", EncodeOptions::default()).unwrap();
        assert_eq!(prefix, if t.add_bos() { vec![t.bos().unwrap()] } else { vec![] });
    }
}

fn write(folder: &Path, name: &str, value: &Value) {
    std::fs::write(folder.join(name), serde_json::to_vec(value).unwrap()).unwrap();
}

#[test]
fn a_folder_adds_roles_ends_and_templates() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let e = Tokenizer::from_folder(path).unwrap_err().to_string();
    assert!(e.contains("tokenizer.json"), "{e}");
    let mut file = samples::byte_level();
    file["post_processor"] = Value::Null;
    write(path, "tokenizer.json", &file);
    let plain = Tokenizer::from_folder(path).unwrap();
    assert_eq!((plain.bos(), plain.add_bos(), plain.chat_template()), (None, false, None));
    write(path, "generation_config.json", &json!({"eos_token_id": [97, 9999], "bos_token_id": 261}));
    write(
        path,
        "tokenizer_config.json",
        &json!({
            "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": "<pad>", "unk_token": "nothing",
            "add_bos_token": true, "add_eos_token": true,
            "added_tokens_decoder": {"261": {"content": "<s>", "special": true}, "263": {"content": "<pad>", "special": true}},
            "chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}],
        }),
    );
    let t = Tokenizer::from_folder(path).unwrap();
    assert_eq!(
        (t.bos(), t.eos(), t.special().padding, t.special().unknown),
        (Some(261), Some(262), Some(263), None)
    );
    assert_eq!(t.eog(), [97, 262]);
    assert_eq!(t.encode("a", EncodeOptions::default()).unwrap(), [261, 97, 262]);
    assert_eq!((t.chat_template(), t.chat_template_named("tool_use")), (Some("D"), Some("T")));
    std::fs::write(path.join("chat_template.jinja"), "J").unwrap();
    assert_eq!(Tokenizer::from_folder(path).unwrap().chat_template(), Some("J"));
    std::fs::write(path.join("tokenizer_config.json"), "{").unwrap();
    let e = Tokenizer::from_folder(path).unwrap_err().to_string();
    assert!(e.contains("tokenizer_config.json"), "{e}");
}
