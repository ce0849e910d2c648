//! An answer on its way to its client, and the place that it has until the client has taken it.
//!
//! A piece is asked for when there is room for it on the connection, and nothing tells how long there has been none. So a task looks now and then
//! whether the piece before was followed by a question for the next: who leaves it for minutes loses the rest, or answers that nobody reads would fill
//! the memory. While it is the client that waits, no time counts.

use crate::error;
use crate::server::Place;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use futures_core::Stream;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// How long a client may leave what is there for it.
const PATIENCE: Duration = Duration::from_secs(180);
/// Bytes that are given at once: some of these are in the connection's own memory, the rest of an answer is not.
const PIECE: usize = 64 << 10;

/// A body of what comes from `source`.
pub(crate) fn body(source: impl Stream<Item = Bytes> + Send + Unpin + 'static, place: Place) -> Body {
    Body::from_stream(Delivery::new(source, place, PATIENCE))
}

/// A response of JSON that is there as a whole.
pub(crate) fn whole(json: String, place: Place) -> Response {
    if json.len() <= PIECE {
        return error::text(json);
    }
    let (mut response, length) = (error::text(String::new()), HeaderValue::from(json.len()));
    *response.body_mut() = body(Once(Some(json.into())), place);
    response.headers_mut().insert(header::CONTENT_LENGTH, length);
    response
}

struct Once(Option<Bytes>);

impl Stream for Once {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Bytes>> {
        Poll::Ready(self.0.take())
    }
}

struct Open<S> {
    source: S,
    /// What came of it and was not given yet.
    rest: Bytes,
    _place: Place,
}

struct State<S> {
    /// None at the end, and where the client is too slow.
    open: Option<Open<S>>,
    /// When the last piece was given; None while the client waits for the next.
    given: Option<Instant>,
    late: bool,
}

struct Delivery<S>(Arc<Mutex<State<S>>>);

fn lock<S>(state: &Mutex<State<S>>) -> MutexGuard<'_, State<S>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Send + 'static> Delivery<S> {
    fn new(source: S, place: Place, patience: Duration) -> Self {
        let open = Some(Open { source, rest: Bytes::new(), _place: place });
        // Who has the response and does not begin is slow, too.
        let state = Arc::new(Mutex::new(State { open, given: Some(Instant::now()), late: false }));
        tokio::spawn(watch(Arc::downgrade(&state), patience));
        Self(state)
    }
}

async fn watch<S>(state: Weak<Mutex<State<S>>>, patience: Duration) {
    loop {
        tokio::time::sleep(patience / 4).await;
        let Some(state) = state.upgrade() else { return };
        let mut state = lock(&state);
        if state.open.is_none() {
            return;
        }
        if state.given.is_some_and(|given| given.elapsed() > patience) {
            (state.open, state.late) = (None, true);
        }
    }
}

impl<S: Stream<Item = Bytes> + Unpin> Stream for Delivery<S> {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let mut state = lock(&self.0);
        let State { open, given, late } = &mut *state;
        let Some(from) = open else {
            let error = || Err(io::Error::new(io::ErrorKind::TimedOut, "the client did not take its answer"));
            return Poll::Ready(std::mem::take(late).then(error));
        };
        if from.rest.is_empty() {
            match Pin::new(&mut from.source).poll_next(context) {
                Poll::Pending => {
                    *given = None;
                    return Poll::Pending;
                }
                Poll::Ready(None) => {
                    *open = None;
                    return Poll::Ready(None);
                }
                Poll::Ready(Some(bytes)) => from.rest = bytes,
            }
        }
        *given = Some(Instant::now());
        Poll::Ready(Some(Ok(from.rest.split_to(from.rest.len().min(PIECE)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;
    use std::future::poll_fn;
    use tokio::sync::Semaphore;

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test);
    }

    fn place(places: &Arc<Semaphore>) -> Place {
        Arc::new(Arc::clone(places).try_acquire_owned().unwrap())
    }

    #[test]
    fn a_large_answer_has_its_place_until_it_is_taken() {
        run(async {
            let places = Arc::new(Semaphore::new(1));
            let text = "abc".repeat(PIECE);
            let response = whole(text.clone(), place(&places));
            assert_eq!(response.headers()[header::CONTENT_LENGTH], text.len().to_string());
            assert_eq!(places.available_permits(), 0);
            let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            assert!(body == text.as_bytes() && places.available_permits() == 1);
        });
    }

    #[test]
    fn who_does_not_take_an_answer_loses_it() {
        run(async {
            let places = Arc::new(Semaphore::new(1));
            let text = Bytes::from(vec![b'a'; 2 * PIECE]);
            let mut slow = Delivery::new(Once(Some(text)), place(&places), Duration::from_millis(4));
            let first = poll_fn(|context| Pin::new(&mut slow).poll_next(context)).await;
            assert!(first.is_some_and(|piece| piece.is_ok_and(|piece| piece.len() == PIECE)));
            while places.available_permits() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let rest = poll_fn(|context| Pin::new(&mut slow).poll_next(context)).await;
            assert!(rest.is_some_and(|rest| rest.is_err()));
        });
    }

    #[test]
    fn who_waits_for_an_answer_is_not_slow() {
        struct Never;
        impl Stream for Never {
            type Item = Bytes;
            fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Bytes>> {
                Poll::Pending
            }
        }
        run(async {
            let places = Arc::new(Semaphore::new(1));
            let mut waits = Delivery::new(Never, place(&places), Duration::from_millis(4));
            let mut none = Context::from_waker(std::task::Waker::noop());
            assert!(Pin::new(&mut waits).poll_next(&mut none).is_pending());
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_eq!(places.available_permits(), 0);
            drop(waits);
            assert_eq!(places.available_permits(), 1);
        });
    }
}
