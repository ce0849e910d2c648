//! Texts that go on.

use crate::client::{Client, demo};
use ogive::Generate;
use ogive_server::Options;
use serde_json::{Value, json};

const PATH: &str = "/v1/completions";

#[test]
fn texts_go_on_as_the_librarys_do() {
    let model = demo(128);
    let told = |prompt: &str, seed| {
        let how = Generate::new().max_tokens(12).seed(seed);
        model.session().unwrap().generate(prompt, &how).unwrap().text().unwrap()
    };
    let want =
        [told("Once upon a time", 3), told("Once upon a time", 4), told("The dog", 3), told("The dog", 4)];
    let ids = model.encode(&"The dog".into()).unwrap();
    let client = Client::new(model, Options::new());
    let mut json = json!({ "prompt": ["Once upon a time", "The dog"], "max_tokens": 12, "n": 2, "seed": 3 });
    let answer = client.ask(PATH, &json);
    let texts = |answer: &Value| -> Vec<String> {
        let choices = answer["choices"].as_array().unwrap();
        choices.iter().map(|choice| choice["text"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(texts(&answer), want);
    assert_eq!(
        (&answer["object"], &answer["usage"]["completion_tokens"]),
        (&json!("text_completion"), &json!(48))
    );
    json["stream"] = true.into();
    json["stream_options"] = json!({ "include_usage": true });
    let events = client.post(PATH, &json).events();
    for (i, want) in want.iter().enumerate() {
        let mut own = events.iter().filter(|event| event["choices"][0]["index"] == i);
        assert_eq!(
            own.clone().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect::<String>(),
            *want
        );
        assert_eq!(own.next_back().unwrap()["choices"][0]["finish_reason"], "length");
    }
    assert_eq!(events.last().unwrap()["usage"], answer["usage"]);
    let by_ids = client.ask(PATH, &json!({ "prompt": ids, "max_tokens": 12, "seed": 3 }));
    assert_eq!(texts(&by_ids), want[2..3]);
    assert_eq!(
        client.ask(PATH, &json!({ "prompt": [ids], "max_tokens": 12, "seed": 3 }))["choices"],
        by_ids["choices"]
    );
}

#[test]
fn tokens_say_where_they_stand() {
    let client = Client::new(demo(64), Options::new());
    let answer =
        client.ask(PATH, &json!({ "prompt": "Once upon", "max_tokens": 5, "logprobs": 2, "temperature": 0 }));
    let (choice, text) = (&answer["choices"][0], answer["choices"][0]["text"].as_str().unwrap());
    let list = |name: &str| choice["logprobs"][name].as_array().unwrap().clone();
    let (tokens, offsets) = (list("tokens"), list("text_offset"));
    for (token, offset) in tokens.iter().zip(&offsets) {
        let at = offset.as_u64().unwrap() as usize;
        assert!(text[at..].starts_with(token.as_str().unwrap()), "{token} at {at} in {text:?}");
    }
    for (i, best) in list("top_logprobs").iter().enumerate() {
        let own = &best[tokens[i].as_str().unwrap()];
        assert_eq!((own, best.as_object().unwrap().len()), (&list("token_logprobs")[i], 2));
    }
}
