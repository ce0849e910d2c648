//! Bodies of requests, as they come.
//!
//! A body is read before its request has a place: who sends headers and then nothing would hold that against all others. What is small is read beside any number
//! of others, and what is large with a few, for each may be as large as the server takes.

use crate::error::Refusal;
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use futures_core::Stream;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Large bodies that are read at a time.
pub(crate) const UPLOADS: usize = 16;
/// Bytes of a body that are read without being one of them.
const SMALL: usize = 64 << 10;

/// A body of up to `most` bytes, and its turn among large ones, which ends when it has a place.
pub(crate) async fn read(
    body: Body,
    most: usize,
    uploads: &Arc<Semaphore>,
) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Refusal> {
    let (mut pieces, mut whole, mut turn) = (body.into_data_stream(), Vec::new(), None);
    while let Some(piece) = poll_fn(|context| Pin::new(&mut pieces).poll_next(context)).await {
        let piece = piece.map_err(|e| Refusal::bad(format!("the request did not come whole: {e}")))?;
        if piece.len() > most - whole.len() {
            let why = format!("the request is larger than the {most} bytes that this server takes");
            return Err(Refusal::status(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        if turn.is_none() && whole.len() + piece.len() > SMALL {
            let next = Arc::clone(uploads).acquire_owned().await;
            turn = Some(next.map_err(|_| Refusal::over("the server has ended"))?);
        }
        whole.extend_from_slice(&piece);
    }
    Ok((whole.into(), turn))
}
