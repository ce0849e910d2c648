//! What is wrong is told, in OpenAI's form, and nothing falls over.

use crate::client::{Client, demo, request};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use ogive_server::{Options, Server, axum};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

fn client() -> Client {
    Client::new(demo(64), Options::new().body(1 << 20))
}

#[test]
fn bodies_that_are_none_are_refused() {
    let client = client();
    let deep = format!("{{\"messages\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let open = "{\"a\":".repeat(100_000);
    for path in [CHAT, "/v1/completions", "/v1/embeddings", "/v1/rerank"] {
        for body in [
            "",
            "{",
            "[]",
            "null",
            "{\"messages\": [\u{0}]}",
            "{\"prompt\": \"\\ud800\"}",
            "\u{feff}{}",
            &*deep,
            &*open,
        ] {
            let answer = client.send(request(path, body.to_owned()));
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path} {answer:?}");
            assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
        }
        assert_eq!(client.send(request(path, vec![0xff, 0xfe, 0x00])).status, StatusCode::BAD_REQUEST);
        let huge = client.send(request(path, format!("{{\"x\": \"{}\"}}", "a".repeat(2 << 20))));
        assert_eq!(
            (huge.status, huge.json()["error"]["code"].clone()),
            (StatusCode::PAYLOAD_TOO_LARGE, Value::Null)
        );
        assert_eq!(
            client.send(Request::get(path).body(Body::empty()).unwrap()).status,
            StatusCode::METHOD_NOT_ALLOWED
        );
        // It is there, and asks for nothing.
        assert_eq!(client.post(path, &json!({})).status, StatusCode::BAD_REQUEST);
    }
}

#[test]
fn fields_that_are_wrong_are_named() {
    let client = client();
    let user = |content: Value| json!([{ "role": "user", "content": content }]);
    let url = |url: &str| user(json!([{ "type": "image_url", "image_url": { "url": url } }]));
    let tool = json!({ "type": "function", "function": { "name": "f" } });
    for (name, value, param) in [
        ("messages", json!("hello"), "messages"),
        ("messages", json!([]), "messages"),
        ("messages", json!([1]), "messages[0].role"),
        ("messages", json!([{ "role": "user" }]), "messages[0].content"),
        ("messages", json!([{ "role": "king", "content": "a" }]), "messages[0].role"),
        ("messages", json!([{ "role": "tool", "content": "a" }]), "messages[0].tool_call_id"),
        ("messages", json!([{ "role": "assistant", "tool_calls": [{}] }]), "messages[0].tool_calls"),
        (
            "messages",
            json!([{ "role": "assistant", "content": "a", "function_call": { "name": "f" } }]),
            "messages[0].function_call",
        ),
        ("messages", user(json!([{ "type": "refusal" }])), "messages[0].content[0].refusal"),
        ("messages", user(json!(3)), "messages[0].content"),
        ("messages", user(json!([{ "type": "input_audio" }])), "messages[0].content[0].type"),
        ("messages", user(json!([{ "type": "text" }])), "messages[0].content[0].text"),
        ("messages", url("data:image/png;base64,AAAA"), "messages[0].content[0]"),
        ("temperature", json!("hot"), "temperature"),
        ("temperature", json!(1e300), "temperature"),
        ("top_p", json!([]), "top_p"),
        ("seed", json!(1.5), "seed"),
        ("n", json!(0), "n"),
        ("n", json!(1000), "n"),
        ("stop", json!([1]), "stop"),
        ("stop", json!(""), "stop"),
        ("stop", json!(vec!["a"; 17]), "stop"),
        ("max_tokens", json!(0), "max_tokens"),
        ("max_tokens", json!(-5), "max_tokens"),
        ("max_tokens", json!(7), "max_tokens"),
        ("stream", json!("yes"), "stream"),
        ("stream_options", json!({ "include_usage": 1 }), "stream_options.include_usage"),
        ("logit_bias", json!({ "a": 1 }), "logit_bias"),
        ("logit_bias", json!({ "4000000": 1 }), "logit_bias"),
        ("logit_bias", (0..1025).map(|i| (i.to_string(), json!(1))).collect(), "logit_bias"),
        ("dry_sequence_breakers", json!(vec!["e"; 10_000]), "dry_sequence_breakers"),
        ("dry_sequence_breakers", json!(["e".repeat(513)]), "dry_sequence_breakers"),
        ("documents", json!([{ "text": "a" }]), "documents"),
        ("reasoning", json!({ "effort": "low" }), "reasoning"),
        ("skip_special_tokens", json!(false), "skip_special_tokens"),
        ("logprobs", json!(3), "logprobs"),
        ("top_logprobs", json!(21), "top_logprobs"),
        ("top_logprobs", json!(2), "top_logprobs"),
        ("modalities", json!(["audio"]), "modalities"),
        ("reasoning_effort", json!("high"), "reasoning_effort"),
        ("functions", json!([{}]), "functions"),
        ("min_tokens", json!(5), "min_tokens"),
        ("tools", json!([1]), "tools[0]"),
        ("tools", json!([{ "type": "web_search" }]), "tools[0].type"),
        ("tools", json!([tool, tool]), "tools[1]"),
        ("tool_choice", json!("required"), "tool_choice"),
        ("tool_choice", json!({ "type": "function", "function": { "name": "g" } }), "tool_choice"),
    ] {
        let mut json = json!({ "messages": user(json!("hello")), "max_completion_tokens": 2 });
        json[name] = value;
        let answer = client.post(CHAT, &json);
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{json} {answer:?}");
        assert_eq!(answer.json()["error"]["param"], param, "{answer:?}");
    }
    // What other settings make wrong has no field of its own.
    let mut json = json!({ "messages": user(json!("hello")), "temperature": -1 });
    assert!(client.error(CHAT, &json, 400).contains("temperature"));
    // The demo model's template has no calls, and a prompt may be too long, also where a stream is asked for.
    json = json!({ "messages": user(json!("hello")), "tools": [tool] });
    client.error(CHAT, &json, 400);
    json = json!({ "messages": user(json!("hello ".repeat(100))), "stream": true });
    assert!(client.error(CHAT, &json, 400).contains("context of 64"));
    for prompt in
        [json!([]), json!([[]]), json!({}), json!([4_000_000_000_u32]), json!([-1]), json!(["a", 1])]
    {
        client.error("/v1/completions", &json!({ "prompt": prompt, "max_tokens": 1 }), 400);
    }
    client.error("/v1/completions", &json!({ "prompt": vec!["a"; 20], "n": 16 }), 400);
    client.error("/v1/completions", &json!({ "prompt": "a", "echo": true }), 400);
    client.ask(
        "/v1/completions",
        &json!({ "prompt": "a", "echo": false, "best_of": null, "suffix": "", "max_tokens": 1 }),
    );
}

#[test]
fn a_key_opens_the_door_and_health_needs_none() {
    let client = Client::new(demo(64), Options::new().key("first").key("second"));
    let get = |path: &str, key: Option<&str>| {
        let request = key.into_iter().fold(Request::get(path), |r, key| r.header("authorization", key));
        client.send(request.body(Body::empty()).unwrap())
    };
    for key in [Some("Bearer first"), Some("bearer second")] {
        assert_eq!(get("/v1/models", key).status, StatusCode::OK);
    }
    for key in [
        None,
        Some(""),
        Some("Bearer"),
        Some("Bearer "),
        Some("Bearer firs"),
        Some("Bearer first2"),
        Some("Basic first"),
        Some("é"),
    ] {
        let refused = get("/v1/models", key);
        assert_eq!(
            (refused.status, &refused.headers["www-authenticate"]),
            (StatusCode::UNAUTHORIZED, &"Bearer".parse().unwrap())
        );
        assert_eq!(refused.json()["error"]["code"], "invalid_api_key");
    }
    assert_eq!(client.post(CHAT, &json!({})).status, StatusCode::UNAUTHORIZED);
    assert_eq!(get("/health", None).json(), json!({ "status": "ok" }));
}

#[test]
fn routes_are_there_or_not() {
    let client = client();
    let get = |path: &str| client.send(Request::get(path).body(Body::empty()).unwrap());
    let model = get("/v1/models").json()["data"][0].clone();
    assert_eq!(
        (&model["id"], &model["object"], &model["context_length"]),
        (&json!("ogive"), &json!("model"), &json!(64))
    );
    assert_eq!(get("/v1/models/ogive").json(), model);
    assert_eq!(get("/v1/models/gpt/x").json()["error"]["code"], "model_not_found");
    let none = get("/v1/nothing");
    assert!(
        none.status == StatusCode::NOT_FOUND
            && none.json()["error"]["message"].as_str().unwrap().contains("/v1/nothing")
    );
    // A program's own routes beside it, and what it says where there is none.
    let own = axum::Router::new()
        .route("/", axum::routing::get(|| async { "home" }))
        .fallback(|| async { "nowhere" });
    let both = Client { router: own.merge(client.router.clone()), ..client };
    let get = |path: &str| both.send(Request::get(path).body(Body::empty()).unwrap());
    for (path, text) in [("/", "home"), ("/other", "nowhere"), ("/health", "{\"status\":\"ok\"}")] {
        assert_eq!(get(path).text, text);
    }
    assert_eq!(get("/v1/nothing").json()["error"]["type"], "invalid_request_error");
}

#[test]
fn pages_of_others_may_not_ask_unless_it_is_said() {
    let client = client();
    let asked = |origin: &str| {
        // What a browser sends without asking before.
        let request =
            Request::post("/v1/completions").header("host", "127.0.0.1:8080").header("origin", origin);
        let body = json!({ "prompt": "a", "max_tokens": 1 }).to_string();
        client.send(request.header("content-type", "text/plain").body(Body::from(body)).unwrap())
    };
    for foreign in ["https://example.org", "http://127.0.0.1:9090", "null", ""] {
        let refused = asked(foreign);
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{foreign}");
        assert!(refused.json()["error"]["message"].as_str().unwrap().contains("--cors"));
        assert!(refused.headers.get("access-control-allow-origin").is_none());
    }
    assert_eq!(asked("http://127.0.0.1:8080").status, StatusCode::OK);
}

#[test]
fn what_a_request_says_counts_more_than_the_servers_samplers() {
    let asked = |client: &Client, more: &Value| {
        let mut json = json!({ "prompt": "Once upon a time", "max_tokens": 12, "seed": 5 });
        json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        client.post("/v1/completions", &json)
    };
    let plain = client();
    let best = asked(&plain, &json!({ "temperature": 0 })).json()["choices"].clone();
    let defaults = |text: &str| {
        let mut defaults = ogive::Generate::new();
        defaults.sampler.samplers = text.parse().unwrap();
        Client::new(demo(64), Options::new().defaults(defaults))
    };
    let few = defaults("top_k:40,min_p:0.05,temp:0.8");
    assert_eq!(asked(&few, &json!({ "temperature": 0, "top_p": 1 })).json()["choices"], best);
    assert_ne!(asked(&few, &json!({})).json()["choices"], best);
    let twice = defaults("temp:0.5,top_k,temp:0.8");
    for (client, name) in [(&few, "top_p"), (&twice, "temperature")] {
        let refused = asked(client, &json!({ name: 0.5 }));
        assert_eq!(
            (refused.status, refused.json()["error"]["param"].as_str()),
            (StatusCode::BAD_REQUEST, Some(name))
        );
    }
    let mut mirostat = ogive::Generate::new();
    mirostat.sampler.mirostat = 2;
    let mirostat = Client::new(demo(64), Options::new().defaults(mirostat));
    assert_eq!(asked(&mirostat, &json!({ "temperature": 0 })).json()["choices"], best);
    assert_eq!(asked(&mirostat, &json!({ "min_p": 0.1 })).status, StatusCode::BAD_REQUEST);
    assert_eq!(asked(&mirostat, &json!({ "min_p": 0.1, "mirostat": 0 })).status, StatusCode::OK);
}

#[test]
fn pages_of_an_origin_may_ask_where_it_is_said() {
    let origin = "https://example.org";
    let client = Client::new(demo(64), Options::new().key("k").origin(origin));
    let before = Request::builder().method(Method::OPTIONS).uri(CHAT).header("origin", origin);
    let before = before
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization,x-more");
    let before = client.send(before.body(Body::empty()).unwrap());
    assert_eq!(before.status, StatusCode::NO_CONTENT);
    assert_eq!(before.headers["access-control-allow-headers"], "authorization,x-more");
    for headers in [before.headers, client.post(CHAT, &json!({})).headers] {
        assert_eq!(headers["access-control-allow-origin"], origin);
    }
    let other = request(CHAT, "{}");
    let (mut head, body) = other.into_parts();
    head.headers.insert("origin", "https://example.com".parse().unwrap());
    assert_eq!(client.send(Request::from_parts(head, body)).status, StatusCode::FORBIDDEN);
    for wrong in ["example.org", "https://example.org/", "https://a\nb", ""] {
        let e = Server::new(demo(64), Options::new().origin(wrong)).unwrap_err().to_string();
        assert!(e.contains("is no origin"), "{e}");
    }
}

#[test]
fn settings_that_cannot_be_are_told() {
    let e = |options: Options| Server::new(demo(64), options).unwrap_err().to_string();
    assert!(e(Options::new().sequences(0)).contains("sequences"));
    assert!(e(Options::new().key("")).contains("empty API key"));
    assert!(e(Options::new().template("{% if")).contains("template"));
    assert!(e(Options::new().cache_tokens(8)).contains("too small"));
}
