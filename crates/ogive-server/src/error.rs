//! What a client is told that something is wrong: a status, and a body as OpenAI's clients read it.
//!
//! Who is to blame decides the status. What the library says of a prompt, a schema or a setting came of what the client sent (400); what it says of memory
//! and devices did not (500), and is told all the same, for whoever runs the server is often who asks.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ogive::tensor::ErrorKind;
use serde_json::{Value, json};

/// Seconds after which somebody who found no place may ask again.
const RETRY_AFTER: &str = "1";

/// Why a request has no answer.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    message: String,
    /// The field that is wrong.
    param: Option<String>,
    code: Option<&'static str>,
}

impl Refusal {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: None }
    }

    /// The request is wrong.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Of it, this field is.
    pub(crate) fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        let param = param.into();
        Self { param: Some(param.clone()), ..Self::bad(format!("{param}: {}", message.into())) }
    }

    /// The request asks for what there is not here.
    pub(crate) fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: Some("unsupported_parameter"), ..Self::field(param, message) }
    }

    /// There is nothing there.
    pub(crate) fn missing(message: impl Into<String>, code: Option<&'static str>) -> Self {
        Self { code, ..Self::new(StatusCode::NOT_FOUND, message) }
    }

    /// As the status says.
    pub(crate) fn status(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, message)
    }

    /// No key, or a wrong one.
    pub(crate) fn key() -> Self {
        let message = "no API key, or a wrong one: send `Authorization: Bearer KEY`";
        Self { code: Some("invalid_api_key"), ..Self::new(StatusCode::UNAUTHORIZED, message) }
    }

    /// All places are taken.
    pub(crate) fn full() -> Self {
        let message = "as many requests as may wait are waiting: ask again in a moment";
        Self { code: Some("server_busy"), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message) }
    }

    /// Nobody is answered any more.
    pub(crate) fn over(why: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, why)
    }

    /// It is our own fault.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// What the library says.
    pub(crate) fn of(e: &ogive::Error) -> Self {
        let ours = match e {
            ogive::Error::Model(e) => !matches!(
                e.kind(),
                ErrorKind::Invalid(_)
                    | ErrorKind::Unsupported(_)
                    | ErrorKind::CacheFull(_)
                    | ErrorKind::Missing(_)
            ),
            ogive::Error::Device(_) => true,
            _ => false,
        };
        let message = ogive::with_causes(e);
        if ours { Self::failed(message) } else { Self::bad(message) }
    }

    /// The body.
    pub(crate) fn json(&self) -> Value {
        let kind = match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        json!({ "error": { "message": self.message, "type": kind, "param": self.param, "code": self.code } })
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = answer(&self.json());
        *response.status_mut() = self.status;
        let mut say =
            |name: HeaderName, value| response.headers_mut().insert(name, HeaderValue::from_static(value));
        match self.status {
            StatusCode::UNAUTHORIZED => _ = say(header::WWW_AUTHENTICATE, "Bearer"),
            StatusCode::SERVICE_UNAVAILABLE if self.code.is_some() => {
                _ = say(header::RETRY_AFTER, RETRY_AFTER)
            }
            _ => {}
        }
        response
    }
}

/// A body of JSON.
pub(crate) fn answer(json: &Value) -> Response {
    text(json.to_string())
}

/// The same, written already.
pub(crate) fn text(json: String) -> Response {
    let mut response = Response::new(Body::from(json));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
