//! Many clients at once, such as go away, and such as find no place.

use crate::client::{Client, demo, read, request};
use axum::body::Body;
use axum::http::{Response, StatusCode};
use ogive_server::{Options, Server, axum};
use serde_json::{Value, json};
use std::future::Future;
use std::task::{Context, Waker};
use tokio::task::JoinSet;

const PATH: &str = "/v1/completions";

fn tale(seed: usize, tokens: usize) -> Value {
    json!({ "prompt": "Once upon a time", "seed": seed, "max_tokens": tokens, "stream": seed.is_multiple_of(2), "ignore_eos": true })
}

fn text(answer: &crate::client::Answer) -> String {
    let events = if answer.text.starts_with("data") { answer.events() } else { vec![answer.json()] };
    events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect()
}

#[test]
fn many_at_once_say_what_each_says_alone() {
    let client = Client::new(demo(64), Options::new().sequences(3));
    let alone: Vec<String> = (0..10).map(|seed| text(&client.post(PATH, &tale(seed, 24)))).collect();
    let mut all = JoinSet::new();
    let together = client.runtime.block_on(async {
        for seed in 0..10 {
            let answer = client.begin(request(PATH, tale(seed, 24).to_string()));
            all.spawn(async move { (seed, text(&read(answer.await).await)) });
        }
        all.join_all().await
    });
    assert_eq!(together.len(), 10);
    for (seed, text) in together {
        assert_eq!(text, alone[seed], "{seed}");
    }
    assert_ne!(alone[0], alone[1]);
}

/// A request that has a place and goes no further, as long as it is there.
fn waiting(client: &Client) -> std::pin::Pin<Box<dyn Future<Output = Response<Body>> + Send>> {
    let mut future: std::pin::Pin<Box<dyn Future<Output = _> + Send>> =
        Box::pin(client.begin(request(PATH, tale(0, 4).to_string())));
    let _runtime = client.runtime.enter();
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    future
}

/// Asks until there is one.
fn finds_a_place(client: &Client) {
    let answer = loop {
        let answer = client.post(PATH, &tale(1, 4));
        if answer.status != StatusCode::SERVICE_UNAVAILABLE {
            break answer;
        }
        std::thread::yield_now();
    };
    assert_eq!(answer.json()["usage"]["completion_tokens"], 4);
}

#[test]
fn who_finds_no_place_is_told_to_come_again() {
    let client = Client::new(demo(64), Options::new().sequences(1).queue(1));
    let held = [waiting(&client), waiting(&client)];
    let full = client.post(PATH, &tale(1, 4));
    assert_eq!(
        (full.status, &full.headers["retry-after"]),
        (StatusCode::SERVICE_UNAVAILABLE, &"1".parse().unwrap())
    );
    assert_eq!(full.json()["error"]["code"], "server_busy");
    // Nothing else waits for it.
    assert_eq!(
        client.send(axum::http::Request::get("/health").body(Body::empty()).unwrap()).status,
        StatusCode::OK
    );
    let [first, second] = held;
    drop(first);
    let answer = client.runtime.block_on(async { read(second.await).await });
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
}

#[test]
fn who_goes_away_leaves_the_place_to_others() {
    let client = Client::new(demo(4000), Options::new().sequences(1).queue(0));
    // Some three thousand tokens, of which one is waited for.
    let answer = client.begin(request(PATH, tale(0, 3000).to_string()));
    let begun = client.runtime.block_on(answer);
    assert_eq!(begun.status(), StatusCode::OK);
    let late = client.post(PATH, &tale(1, 4));
    assert_eq!(late.status, StatusCode::SERVICE_UNAVAILABLE, "the first is not drawn yet");
    drop(begun);
    // The place is given back at the next step.
    finds_a_place(&client);
}

#[test]
fn an_answer_that_nobody_has_taken_has_its_place() {
    let client = Client::new(demo(64), Options::new().sequences(1).queue(0));
    // Drawn as a whole with its first token.
    let begun = client.runtime.block_on(client.begin(request(PATH, tale(0, 1).to_string())));
    assert_eq!(client.post(PATH, &tale(1, 4)).status, StatusCode::SERVICE_UNAVAILABLE);
    let taken = client.runtime.block_on(read(begun));
    assert!(taken.text.ends_with("data: [DONE]\n\n"));
    finds_a_place(&client);
}

#[test]
fn a_body_that_does_not_come_is_in_nobodys_way() {
    struct Never;
    impl futures_core::Stream for Never {
        type Item = Result<axum::body::Bytes, std::io::Error>;
        fn poll_next(
            self: std::pin::Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> std::task::Poll<Option<Self::Item>> {
            std::task::Poll::Pending
        }
    }
    let client = Client::new(demo(64), Options::new().sequences(1).queue(0));
    let mut stalled: Vec<_> =
        (0..40).map(|_| Box::pin(client.begin(request(PATH, Body::from_stream(Never))))).collect();
    let runtime = client.runtime.enter();
    for one in &mut stalled {
        assert!(one.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    drop(runtime);
    assert_eq!(client.ask(PATH, &tale(1, 4))["usage"]["completion_tokens"], 4);
}

#[test]
fn an_end_is_told_to_who_waits_and_who_comes() {
    let server = Server::new(demo(4000), Options::new()).unwrap();
    let client = Client::of(&server);
    let answer = client.begin(request(PATH, tale(0, 3000).to_string()));
    let begun = client.runtime.block_on(answer);
    server.end();
    let rest = client.runtime.block_on(read(begun));
    assert!(
        rest.text.contains("\"error\":{\"message\":\"the server is ending\"")
            && !rest.text.contains("[DONE]"),
        "{rest:?}"
    );
    assert_eq!(client.error(PATH, &tale(1, 4), 503), "the server is ending");
    assert_eq!(client.error("/v1/embeddings", &json!({ "input": "a" }), 503), "the server is ending");
    assert_eq!(client.send(axum::http::Request::get("/health").body(Body::empty()).unwrap()).status, 503);
}

#[test]
fn a_socket_is_served_until_it_is_told_to_end() {
    use std::io::{Read, Write};
    use std::sync::atomic::{AtomicBool, Ordering};
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let (server, ended) = (Server::new(demo(64), Options::new()).unwrap(), AtomicBool::new(false));
    let said = std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(socket, || ended.load(Ordering::SeqCst)));
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let json = tale(2, 4).to_string();
        write!(
            stream,
            "POST {PATH} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{json}",
            json.len()
        )
        .unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        ended.store(true, Ordering::SeqCst);
        serving.join().unwrap().unwrap();
        said
    });
    assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.contains("data: [DONE]\n\n"), "{said}");
}
