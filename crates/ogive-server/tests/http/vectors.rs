//! Vectors and scores: the library's, in the forms that clients read.

use crate::client::{Client, demo};
use ogive::{Embed, Options, Prompt, Rerank};
use ogive_server::{Options as Serving, Server, axum};
use serde_json::{Value, json};
use std::path::Path;

fn golden(name: &str) -> ogive::Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden").join(name);
    Options::new().exact(true).open(path).unwrap()
}

/// Four letters for three bytes, by Python's rule and not by ours.
fn floats(base64: &str) -> Vec<f32> {
    let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits = base64.trim_end_matches('=').chars().map(|c| letters.find(c).unwrap());
    let bits: Vec<bool> = bits.flat_map(|digit| (0..6).rev().map(move |i| digit >> i & 1 == 1)).collect();
    let bytes: Vec<u8> =
        bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |all, bit| all << 1 | u8::from(*bit))).collect();
    bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
}

#[test]
fn vectors_are_the_librarys() {
    let model = demo(64);
    let texts = ["a cat", "a dog and a cat"];
    let want = model.embed_all(texts, &Embed::new()).unwrap();
    let ids = texts.map(|text| model.encode(&text.into()).unwrap());
    let short = model.embed_all([Prompt::Ids(ids[0].clone())], &Embed::new().dimensions(8)).unwrap();
    let client = Client::new(model, Serving::new());
    let path = "/v1/embeddings";
    let answer = client.ask(path, &json!({ "model": "x", "input": texts, "user": "me" }));
    let tokens = ids[0].len() + ids[1].len();
    assert_eq!(
        (&answer["object"], &answer["usage"]),
        (&json!("list"), &json!({ "prompt_tokens": tokens, "total_tokens": tokens }))
    );
    // Of single precision, in as many digits as that takes.
    let first = client.post(path, &json!({ "input": texts })).text;
    assert!(first.contains(&format!("\"embedding\":[{},", want[[0, 0]])), "{}", &first[..200]);
    let packed = client.ask(path, &json!({ "input": ids, "encoding_format": "base64" }));
    for (i, row) in want.rows().into_iter().enumerate() {
        let (row, of) = (row.to_vec(), &answer["data"][i]);
        assert_eq!((&of["object"], &of["index"]), (&json!("embedding"), &json!(i)));
        assert_eq!(
            of["embedding"]
                .as_array()
                .unwrap()
                .iter()
                .map(|x| x.as_f64().unwrap() as f32)
                .collect::<Vec<_>>(),
            row
        );
        assert_eq!(floats(packed["data"][i]["embedding"].as_str().unwrap()), row);
    }
    let answer = client.ask(path, &json!({ "input": "a cat", "dimensions": 8, "encoding_format": "base64" }));
    assert_eq!(floats(answer["data"][0]["embedding"].as_str().unwrap()), short.into_raw_vec_and_offset().0);
    for (input, why) in [
        (json!(""), "empty"),
        (json!([]), "it is to be"),
        (json!([[]]), "it is to be"),
        (json!([1, "a"]), "it is to be"),
        (json!([4_000_000_000_u32]), "none of the"),
        (json!(["a", 1]), "it is to be"),
        (json!("a cat ".repeat(100)), "the context is 64"),
    ] {
        let message = client.error(path, &json!({ "input": input }), 400);
        assert!(message.contains(why), "{message}");
    }
    for (name, value, why) in [
        ("input_type", json!("query"), "the checkpoint has no prompts"),
        ("prompt_name", json!("passage"), "the checkpoint has no prompts"),
        ("embd_normalize", json!(-1), "of length 1"),
        ("normalized", json!(false), "of length 1"),
        ("truncate", json!(true), "cut it yourself"),
        ("truncate_prompt_tokens", json!(5), "cut it yourself"),
        ("add_special_tokens", json!(false), "send ids"),
    ] {
        assert!(client.error(path, &json!({ "input": "a", name: value }), 400).contains(why), "{name}");
    }
    client.ask(path, &json!({ "input": "a", "embd_normalize": 2, "normalized": true, "truncate": false }));
    assert!(client.error(path, &json!({ "input": "a", "encoding_format": "int8" }), 400).contains("base64"));
    assert!(client.error(path, &json!({ "input": "a", "dimensions": 100_000 }), 400).contains("100000"));
    assert!(
        client.error("/v1/rerank", &json!({ "query": "q", "documents": ["a"] }), 400).contains("no reranker")
    );
}

#[test]
fn a_reranker_ranks_and_an_encoder_has_vectors() {
    let model = golden("bert-reranker");
    let texts = ["the cats", "", "dog"];
    let (scores, raw) =
        [true, false].map(|on| model.rerank("cats?", texts, &Rerank::new().sigmoid(on)).unwrap()).into();
    let mut order = [0, 1, 2];
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    let server = Server::new(model, Serving::new()).unwrap();
    let client = Client::of(&server);
    let path = "/v1/rerank";
    let asked = |more: Value| {
        let mut json = json!({ "query": "cats?", "documents": texts });
        json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json
    };
    let found = |answer: &Value, i: usize| {
        (
            answer["results"][i]["index"].as_u64().unwrap() as usize,
            answer["results"][i]["relevance_score"].as_f64().unwrap() as f32,
        )
    };
    let all = client.ask(path, &asked(json!({})));
    let best = client.ask(path, &asked(json!({ "top_n": 2, "return_documents": true, "raw_scores": true })));
    for (i, index) in order.into_iter().enumerate() {
        assert_eq!(found(&all, i), (index, scores[index]));
        assert!(all["results"][i].get("document").is_none());
        if i < 2 {
            assert_eq!(found(&best, i), (index, raw[index]));
            assert_eq!(best["results"][i]["document"]["text"], texts[index]);
        }
    }
    assert_eq!(
        (best["results"].as_array().unwrap().len(), all["usage"]["total_tokens"].as_u64().unwrap() > 6),
        (2, true)
    );
    let objects = json!({ "documents": [{ "text": texts[0] }, texts[1], { "text": texts[2] }] });
    assert_eq!(client.ask(path, &asked(objects))["results"], all["results"]);
    for wrong in [
        json!({ "documents": [] }),
        json!({ "documents": "a" }),
        json!({ "documents": [1] }),
        json!({ "query": 1 }),
        json!({ "top_n": 0 }),
        json!({ "max_tokens_per_doc": 5 }),
        // That it is told to a model that takes one, `ogive` tests.
        json!({ "instruction": "find cats" }),
    ] {
        client.error(path, &asked(wrong), 400);
    }
    for (path, json) in [
        ("/v1/completions", json!({ "prompt": "a" })),
        ("/v1/chat/completions", json!({ "messages": [{ "role": "user", "content": "a" }] })),
    ] {
        let message = client.error(path, &json, 400);
        assert!(message.contains("encoder") || message.contains("template"), "{message}");
    }
    server.end();
    client.error(path, &asked(json!({})), 503);
    let health = axum::http::Request::get("/health").body(axum::body::Body::empty()).unwrap();
    assert_eq!(client.send(health).status, 503);
}
