//! What the engine's thread has drawn and a client has not yet taken.
//!
//! Neither waits for the other. What comes while a client is slow is added to the piece that waits for it, so there is never more than the one answer it
//! asked for, which the context bounds; a channel of pieces would have to be bounded, and then somebody must wait or something be lost.

use crate::error::Refusal;
use ogive::{Parts, TokenLogprobs};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Why an answer ended, and how long it is.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    /// Whether it was cut, by the number of tokens asked for or by the context.
    pub(crate) cut: bool,
    /// Tokens that were drawn.
    pub(crate) tokens: usize,
}

/// What has come of one answer.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    pub(crate) parts: Parts,
    pub(crate) logprobs: Vec<TokenLogprobs>,
    /// Set in the last piece.
    pub(crate) end: Option<Result<Ended, Refusal>>,
}

#[derive(Debug)]
struct State {
    /// For each answer, what waits.
    waiting: VecDeque<(usize, Piece)>,
    /// Answers that go on.
    open: usize,
    waker: Option<Waker>,
    /// Whether nobody waits any more.
    gone: bool,
}

#[derive(Debug)]
struct Mailbox(Mutex<State>);

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A mailbox for so many answers: who puts into it, one for each, and who takes out.
pub(crate) fn mailbox(answers: usize) -> (Vec<Post>, Letters) {
    let state = State { waiting: VecDeque::new(), open: answers, waker: None, gone: false };
    let mailbox = Arc::new(Mailbox(Mutex::new(state)));
    let post = |index| Post { mailbox: Arc::clone(&mailbox), index, ended: false };
    ((0..answers).map(post).collect(), Letters { mailbox })
}

/// Puts what comes of an answer into a mailbox. Dropped before the end, it says so.
#[derive(Debug)]
pub(crate) struct Post {
    mailbox: Arc<Mailbox>,
    index: usize,
    ended: bool,
}

impl Post {
    /// Whether somebody still waits.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.mailbox.lock().gone
    }

    /// Adds to what waits. Behind the end nothing counts.
    pub(crate) fn put(&mut self, piece: Piece) {
        if self.ended {
            return;
        }
        self.ended = piece.end.is_some();
        let waker = {
            let mut state = self.mailbox.lock();
            state.open -= usize::from(self.ended);
            match state.waiting.iter_mut().find(|(of, _)| *of == self.index) {
                Some((_, before)) => {
                    before.parts.push(&piece.parts);
                    before.logprobs.extend(piece.logprobs);
                    before.end = piece.end;
                }
                None => state.waiting.push_back((self.index, piece)),
            }
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends the answer without one.
    pub(crate) fn refuse(&mut self, why: Refusal) {
        self.put(Piece { end: Some(Err(why)), ..Piece::default() });
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        self.refuse(Refusal::over("the server ended before the answer did"));
    }
}

/// Takes what has come. Dropped, it says that nobody waits.
#[derive(Debug)]
pub(crate) struct Letters {
    mailbox: Arc<Mailbox>,
}

impl Letters {
    /// The next piece, and of which answer; `None` when all have ended.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Option<(usize, Piece)>> {
        let mut state = self.mailbox.lock();
        match state.waiting.pop_front() {
            Some(piece) => Poll::Ready(Some(piece)),
            None if state.open == 0 => Poll::Ready(None),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The same, to be awaited.
    pub(crate) async fn next(&self) -> Option<(usize, Piece)> {
        poll_fn(|context| self.poll(context)).await
    }
}

impl Drop for Letters {
    fn drop(&mut self) {
        let mut state = self.mailbox.lock();
        state.gone = true;
        state.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(letters: &Letters) -> Poll<Option<(usize, Piece)>> {
        letters.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn said(text: &str) -> Piece {
        Piece { parts: text.to_owned().into(), ..Piece::default() }
    }

    #[test]
    fn what_a_slow_client_has_not_taken_is_one_piece() {
        let (mut posts, letters) = mailbox(2);
        posts[0].put(said("a"));
        posts[1].put(said("x"));
        posts[0].put(said("b"));
        let end = Some(Ok(Ended { cut: false, tokens: 3 }));
        posts[0].put(Piece { end, ..said("c") });
        posts[0].put(said("none"));
        let Poll::Ready(Some((0, piece))) = take(&letters) else { panic!("nothing came") };
        assert_eq!(piece.parts.answer, "abc");
        assert!(piece.end.is_some_and(|end| end.is_ok_and(|end| end.tokens == 3)));
        assert!(matches!(take(&letters), Poll::Ready(Some((1, _)))));
        assert!(take(&letters).is_pending());
        // Who is gone without an end leaves an error.
        posts.clear();
        assert!(matches!(take(&letters), Poll::Ready(Some((1, Piece { end: Some(Err(_)), .. })))));
        assert!(matches!(take(&letters), Poll::Ready(None)));
    }

    #[test]
    fn who_goes_away_is_known_to_be_gone() {
        let (posts, letters) = mailbox(1);
        assert!(posts[0].is_awaited());
        drop(letters);
        assert!(!posts[0].is_awaited());
    }
}
