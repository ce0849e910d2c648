//! Who may ask: keys, and web pages of other origins.

use crate::Error;
use crate::error::Refusal;
use crate::server::Shared;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// Lets through who has a key.
pub(crate) async fn key(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let given = given(request.headers()).unwrap_or_default();
    // All of them are looked at, whichever it is.
    let known = shared.options.keys.iter().fold(false, |known, key| known | same(key.as_bytes(), given));
    if known { next.run(request).await } else { Refusal::key().into_response() }
}

fn given(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, key) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
}

/// Whether the two are the same, in a time that depends on the key's length alone.
fn same(key: &[u8], given: &[u8]) -> bool {
    let mut differ = key.len() ^ given.len();
    for (i, byte) in key.iter().enumerate() {
        let other = given.get(i).copied().unwrap_or(0);
        differ = std::hint::black_box(differ | usize::from(byte ^ other));
    }
    differ == 0
}

/// That it can stand in a header.
pub(crate) fn check_origin(origin: &str) -> Result<(), Error> {
    let is_origin = origin == "*" || origin.contains("://") && !origin.ends_with('/');
    match HeaderValue::from_str(origin) {
        Ok(_) if is_origin => Ok(()),
        _ => Err(Error::Setting(format!(
            "{origin:?} is no origin of web pages: it is to be like https://example.org, or *"
        ))),
    }
}

/// Tells browsers that pages of this origin may ask, and answers what they ask before.
pub(crate) async fn origin(origin: String, request: Request, next: Next) -> Response {
    let named = request.headers().get(header::ORIGIN).is_some_and(|from| origin == "*" || *from == *origin);
    if !named && is_foreign(&request) {
        return foreign();
    }
    let asks_before = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    // Whatever they are: none of them opens anything but the key's.
    let wanted = request.headers().get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let mut response =
        if asks_before { StatusCode::NO_CONTENT.into_response() } else { next.run(request).await };
    let headers = response.headers_mut();
    if let Ok(origin) = HeaderValue::from_str(&origin) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    if asks_before {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
        let usual = || HeaderValue::from_static("authorization, content-type");
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.unwrap_or_else(usual));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("3600"));
    }
    response
}

/// Refuses pages of other origins where none was named.
pub(crate) async fn no_origin(request: Request, next: Next) -> Response {
    if is_foreign(&request) { foreign() } else { next.run(request).await }
}

/// Whether a page asks that is not of the address that is asked. Browsers send what looks like a form without asking before, and say then whose page it is.
fn is_foreign(request: &Request) -> bool {
    let headers = request.headers();
    let own = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let own = own.or(request.uri().authority().map(|authority| authority.as_str().as_bytes()));
    headers.get(header::ORIGIN).is_some_and(|origin| {
        let host = origin.as_bytes().windows(3).position(|mark| mark == b"://");
        let host = host.and_then(|at| origin.as_bytes().get(at + 3..));
        host.zip(own).is_none_or(|(host, own)| !host.eq_ignore_ascii_case(own))
    })
}

fn foreign() -> Response {
    let why = "web pages of other origins may not ask here; the server can be told of one that may (`--cors`, `Options::origin`)";
    Refusal::status(StatusCode::FORBIDDEN, why).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_same_or_not() {
        assert!(same(b"secret", b"secret"));
        for other in [&b""[..], b"secre", b"secret2", b"Secret", b"secrex"] {
            assert!(!same(b"secret", other), "{other:?}");
        }
        // What is missing does not count as zeros.
        assert!(!same(b"a\0", b"a"));
    }
}
