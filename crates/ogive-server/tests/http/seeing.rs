//! Images in messages.

use crate::client::Client;
use ogive::{Device, Generate, Image, Model, Options};
use ogive_server::Options as Serving;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

const PATH: &str = "/v1/chat/completions";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A tiny model that sees, put together of what other crates' tests have of it.
fn model(name: &str) -> Model {
    let folder = tempfile::tempdir().unwrap();
    for from in ["ogive-models/tests/vision", "ogive/tests/vision"] {
        for entry in fs::read_dir(root().join(from).join(name)).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
    }
    Options::new()
        .exact(true)
        .device(Device::Cpu)
        .threads(2)
        .context(256)
        .vision()
        .open(folder.path())
        .unwrap()
}

fn base64(bytes: &[u8]) -> String {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |i| byte >> i & 1)).collect();
    let digit = |six: &[u8]| (0..6).fold(0, |all, i| all << 1 | six.get(i).copied().unwrap_or(0));
    bits.chunks(6).map(|six| char::from(letters[usize::from(digit(six))])).collect()
}

#[test]
fn an_image_in_a_message_is_what_it_is_to_the_library() {
    let model = model("qwen3-vl");
    let file = root().join("ogive-vision/tests/data").read_dir().unwrap().map(|entry| entry.unwrap().path());
    let file = file.filter(|path| path.extension().is_some_and(|e| e == "png")).min().unwrap();
    let mut chat = model.chat().unwrap();
    chat.show(Image::open(&file).unwrap());
    let mut reply = chat.send("What is this?", &Generate::greedy().max_tokens(8)).unwrap();
    let text = reply.text().unwrap();
    let read = reply.generation().prompt_ids().len();
    drop(reply);
    let client = Client::new(model, Serving::new());
    let asked = |url: &str, more: Value| {
        let image = json!({ "type": "image_url", "image_url": { "url": url, "detail": more } });
        let parts = json!([{ "type": "text", "text": "What is this?" }, image]);
        json!({ "messages": [{ "role": "user", "content": parts }], "temperature": 0, "max_tokens": 8 })
    };
    let url = format!("data:image/png;base64,{}", base64(&fs::read(&file).unwrap()));
    let answer = client.ask(PATH, &asked(&url, json!("auto")));
    assert_eq!(
        (&answer["choices"][0]["message"]["content"], &answer["usage"]["prompt_tokens"]),
        (&json!(text), &json!(read))
    );
    for (url, detail, why) in [
        ("https://example.org/cat.png", "auto", "nothing is fetched"),
        ("data:image/png,abc", "auto", "data URL"),
        ("data:image/png;base64,A", "auto", "no Base64"),
        ("data:image/png;base64,AAAA", "auto", "image_url"),
        (&url, "low", "detail"),
    ] {
        let message = client.error(PATH, &asked(url, json!(detail)), 400);
        assert!(message.contains(why), "{message}");
    }
}
