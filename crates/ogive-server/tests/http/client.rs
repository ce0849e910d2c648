//! A client in the same process: what it sends is a request, and what comes back is read to the byte.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, Response, StatusCode, header};
use ogive::{Device, Model};
use ogive_server::{Options, Server, axum};
use serde_json::Value;
use std::path::Path;
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

/// Ogive's own model, for so many tokens.
pub(crate) fn demo(context: usize) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-demo-model/model.gguf");
    ogive::Options::new().device(Device::Cpu).threads(2).context(context).open(path).unwrap()
}

pub(crate) struct Client {
    pub(crate) router: Router,
    pub(crate) runtime: Runtime,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The events of a stream, which are to be nothing else.
    pub(crate) fn events(&self) -> Vec<Value> {
        assert_eq!(
            (self.status, &self.headers[header::CONTENT_TYPE]),
            (StatusCode::OK, &"text/event-stream".parse().unwrap())
        );
        let body = self.text.strip_suffix("data: [DONE]\n\n").unwrap_or_else(|| panic!("{self:?}"));
        let event = |event: &str| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
        body.split_terminator("\n\n").map(event).collect()
    }
}

pub(crate) fn request(path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(path).header(header::CONTENT_TYPE, "application/json").body(body.into()).unwrap()
}

pub(crate) async fn read(response: Response<Body>) -> Answer {
    let (head, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    Answer { status: head.status, headers: head.headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
}

impl Client {
    pub(crate) fn new(model: Model, options: Options) -> Self {
        Self::of(&Server::new(model, options).unwrap())
    }

    pub(crate) fn of(server: &Server) -> Self {
        Self { router: server.router(), runtime: Builder::new_current_thread().enable_all().build().unwrap() }
    }

    /// The response, whose body is not read yet.
    pub(crate) fn begin(
        &self,
        request: Request<Body>,
    ) -> impl Future<Output = Response<Body>> + Send + 'static {
        let answer = self.router.clone().oneshot(request);
        async { answer.await.unwrap() }
    }

    pub(crate) fn send(&self, request: Request<Body>) -> Answer {
        let answer = self.begin(request);
        self.runtime.block_on(async { read(answer.await).await })
    }

    pub(crate) fn post(&self, path: &str, json: &Value) -> Answer {
        self.send(request(path, json.to_string()))
    }

    /// What is answered where all is well.
    pub(crate) fn ask(&self, path: &str, json: &Value) -> Value {
        let answer = self.post(path, json);
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        answer.json()
    }

    /// The message of an error, which must be of OpenAI's form.
    pub(crate) fn error(&self, path: &str, json: &Value, status: u16) -> String {
        let answer = self.post(path, json);
        assert_eq!(answer.status, status, "{answer:?}");
        let error = &answer.json()["error"];
        assert!(
            error["type"].is_string() && error.get("param").is_some() && error.get("code").is_some(),
            "{error}"
        );
        error["message"].as_str().unwrap().to_owned()
    }
}
