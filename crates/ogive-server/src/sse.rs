//! Answers as they come, as server-sent events.
//!
//! Nothing is sent before the first piece is there: what is wrong with a request the engine finds when its turn comes, and that is to be a status and
//! not an event. Behind that an error is an event, as OpenAI's clients know it, and no `[DONE]` follows.

use crate::delivery;
use crate::error::Refusal;
use crate::mailbox::{Letters, Piece};
use crate::server::{Place, Shared};
use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use futures_core::Stream;
use serde_json::Value;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Events as text.
#[derive(Debug, Default)]
pub(crate) struct Events(String);

impl Events {
    pub(crate) fn push(&mut self, json: &Value) {
        // JSON has no line breaks outside of texts, and those are written \n.
        self.0 += &format!("data: {json}\n\n");
    }
}

/// Makes events of pieces.
pub(crate) trait Writer: Send + Unpin {
    /// What came of one of the answers.
    fn piece(&mut self, index: usize, piece: Piece, out: &mut Events) -> Result<(), Refusal>;
    /// What follows the last.
    fn end(&mut self, out: &mut Events);
}

/// A response of events.
pub(crate) async fn respond<W: Writer + 'static>(
    letters: Letters,
    writer: W,
    shared: Arc<Shared>,
    place: Place,
) -> Result<Response, Refusal> {
    let first = letters.next().await;
    if let Some((_, Piece { end: Some(Err(why)), parts, .. })) = &first
        && parts.is_empty()
    {
        return Err(why.clone());
    }
    let answers = Answers { letters, first, writer, ended: false, _shared: shared };
    let mut response = Response::new(delivery::body(answers, place));
    let mut say = |name, value| response.headers_mut().insert(name, HeaderValue::from_static(value));
    say(header::CONTENT_TYPE, "text/event-stream");
    say(header::CACHE_CONTROL, "no-cache");
    Ok(response)
}

struct Answers<W> {
    letters: Letters,
    first: Option<(usize, Piece)>,
    writer: W,
    ended: bool,
    /// The server lives as long as somebody listens.
    _shared: Arc<Shared>,
}

impl<W: Writer> Stream for Answers<W> {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        while !this.ended {
            let next = match this.first.take() {
                Some(first) => Some(first),
                None => ready!(this.letters.poll(context)),
            };
            let mut events = Events::default();
            match next {
                Some((index, piece)) => {
                    if let Err(why) = this.writer.piece(index, piece, &mut events) {
                        events.push(&why.json());
                        this.ended = true;
                    }
                }
                None => {
                    this.writer.end(&mut events);
                    events.0 += "data: [DONE]\n\n";
                    this.ended = true;
                }
            }
            if !events.0.is_empty() {
                return Poll::Ready(Some(events.0.into()));
            }
        }
        Poll::Ready(None)
    }
}
