//! Small tokenizer.json files, whole and damaged: the seeds of the fuzz target, with what each must say.

use serde_json::{Value, json};

/// GPT-2's characters for the 256 bytes.
fn alphabet() -> Vec<String> {
    let direct = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut next = 0x100;
    let spelt = (0..=255u8).map(|b| {
        let c = if direct(b) { u32::from(b) } else { next };
        next += u32::from(!direct(b));
        char::from_u32(c).unwrap().to_string()
    });
    spelt.collect()
}

/// A byte-level BPE with Llama 3's pattern, a template and two special tokens.
pub(crate) fn byte_level() -> Value {
    let mut tokens = alphabet();
    tokens.extend(["ab", "Ġa", "aa", "aab", "Ġab"].map(String::from));
    let vocab: serde_json::Map<String, Value> =
        tokens.iter().cloned().zip((0u32..).map(Value::from)).collect();
    let special = |id: u32, text: &str| json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true});
    json!({
        "version": "1.0",
        "added_tokens": [special(261, "<s>"), special(262, "</s>")],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [261], "tokens": ["<s>"]}}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "unk_token": null, "vocab": vocab, "merges": ["a b", "Ġ a", "a a", "aa b", "Ġa b"]},
    })
}

/// A SentencePiece-like BPE with byte fallback.
pub(crate) fn llama() -> Value {
    let mut tokens: Vec<String> = vec!["<unk>".into(), "<s>".into(), "</s>".into()];
    tokens.extend((0..256).map(|b| format!("<0x{b:02X}>")));
    tokens.extend(["▁", "a", "b", "▁a", "ab"].map(String::from));
    let vocab: serde_json::Map<String, Value> =
        tokens.iter().cloned().zip((0u32..).map(Value::from)).collect();
    json!({
        "added_tokens": [
            {"id": 1, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
            {"id": 2, "content": "</s>", "single_word": false, "lstrip": true, "rstrip": false, "normalized": false, "special": true}],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, "vocab": vocab, "merges": [["▁", "a"], ["a", "b"]]},
    })
}

/// Some compiled rules of SentencePiece's, by `charsmap` of `xtask/golden/pieces.py`.
const RULES: &str = include_str!("../data/charsmap.b64");

/// A Unigram as XLM-RoBERTa has it, for pairs of texts too.
fn unigram(rules: &str) -> Value {
    let mut json = small(
        json!({"type": "Unigram", "unk_id": 1, "vocab": [["<s>", 0.0], ["<unk>", 0.0], ["▁a", -1.5], ["fi", -2.0], ["▁", -3.0]], "byte_fallback": false}),
    );
    let text = |name: &str| json!({"Sequence": {"id": name, "type_id": 0}});
    let token = json!({"SpecialToken": {"id": "<s>", "type_id": 0}});
    json["added_tokens"] = json!([{"id": 0, "content": "<s>", "special": true, "normalized": false}]);
    json["normalizer"] = json!({"type": "Precompiled", "precompiled_charsmap": rules});
    json["post_processor"] = json!({"type": "TemplateProcessing", "single": [token, text("A")],
        "pair": [token, text("A"), token, text("B")], "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}});
    json
}

fn small(model: Value) -> Value {
    json!({"model": model, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}})
}

/// `value` with the member at a JSON pointer replaced.
fn with(mut value: Value, pointer: &str, new: Value) -> Value {
    *value.pointer_mut(pointer).unwrap() = new;
    value
}

/// Name, bytes, and a word of the error, or `None` where it opens.
pub(crate) fn seeds() -> Vec<(&'static str, Vec<u8>, Option<&'static str>)> {
    let nested =
        |depth: usize| format!("{{\"model\":{}{}}}", "[".repeat(depth), "]".repeat(depth)).into_bytes();
    let deep = "{\"type\":\"Sequence\",\"normalizers\":[".repeat(2000) + &"]}".repeat(2000);
    let deep = format!("{{\"normalizer\":{deep},\"model\":{{}}}}").into_bytes();
    let values = [
        ("byte-level.json", byte_level(), None),
        ("llama.json", llama(), None),
        (
            "unigram.json",
            small(
                json!({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["▁a", -1.5], ["b", -2.0], ["ab", -1.0]], "byte_fallback": false}),
            ),
            None,
        ),
        ("unigram-rules.json", unigram(RULES), None),
        ("unigram-rules-damaged.json", unigram(&RULES.replace('A', "B")), Some("precompiled_charsmap")),
        ("unigram-rules-cut.json", unigram(&RULES[..40]), Some("ends early")),
        (
            "wordpiece.json",
            small(
                json!({"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "▁a": 1, "##b": 2}}),
            ),
            None,
        ),
        (
            "wordlevel.json",
            small(json!({"type": "WordLevel", "unk_token": "x", "vocab": {"x": 0, "▁a": 1}})),
            None,
        ),
        ("gap.json", small(json!({"type": "BPE", "vocab": {"a": 0, "b": 7}, "merges": []})), None),
        ("merge-of-unknown.json", with(byte_level(), "/model/merges/0", json!("a zz")), Some("\"zz\"")),
        ("merge-to-unknown.json", with(byte_level(), "/model/merges/0", json!("b a")), Some("\"ba\"")),
        ("merge-of-three.json", with(byte_level(), "/model/merges/0", json!("a b a")), Some("two tokens")),
        ("merge-list-of-one.json", with(llama(), "/model/merges/0", json!(["a"])), Some("two tokens")),
        ("merge-llama-unknown.json", with(llama(), "/model/merges/0", json!(["a", "z"])), Some("z")),
        (
            "short-of-prefix.json",
            small(
                json!({"type": "BPE", "continuing_subword_prefix": "##", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}),
            ),
            Some("prefix"),
        ),
        (
            "same-id.json",
            small(json!({"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []})),
            Some("same id"),
        ),
        (
            "huge-id.json",
            small(json!({"type": "BPE", "vocab": {"a": 4294967295u32}, "merges": []})),
            Some("4294967295"),
        ),
        ("negative-id.json", small(json!({"type": "BPE", "vocab": {"a": -1}, "merges": []})), Some("model")),
        (
            "added-huge-id.json",
            with(byte_level(), "/added_tokens/0/id", json!(4000000000u32)),
            Some("4000000000"),
        ),
        ("added-same-id.json", with(byte_level(), "/added_tokens/0/id", json!(65)), Some("same id")),
        (
            "template-id.json",
            with(byte_level(), "/post_processor/special_tokens/<s>/ids", json!([9999])),
            Some("9999"),
        ),
        (
            "unigram-unknown.json",
            small(json!({"type": "Unigram", "unk_id": 9, "vocab": [["a", 0.0]]})),
            Some("model"),
        ),
        (
            "pattern.json",
            with(byte_level(), "/pre_tokenizer/pretokenizers/0/pattern/Regex", json!("(")),
            Some("pattern"),
        ),
        ("normalizer.json", with(byte_level(), "/normalizer", json!({"type": "Magic"})), Some("Magic")),
        ("model.json", small(json!({"type": "Magic"})), Some("Magic")),
        ("empty.json", json!({}), Some("model")),
    ];
    let mut seeds: Vec<_> =
        values.into_iter().map(|(n, v, e)| (n, serde_json::to_vec(&v).unwrap(), e)).collect();
    // A token twice cannot be said with a map.
    seeds.push((
        "token-twice.json",
        br#"{"model":{"type":"BPE","vocab":{"a":0,"a":1},"merges":[]}}"#.to_vec(),
        Some("\"a\""),
    ));
    seeds.push(("nested.json", nested(100_000), Some("invalid type")));
    seeds.push(("nested-steps.json", deep, Some("recursion")));
    seeds.push(("no-json", b"\xff\xfe not JSON".to_vec(), Some("tokenizer.json")));
    seeds
}
