//! Something that one thread has at a time, and that may call back whoever has it.
//!
//! A lock does not say who holds it. Here a thread that has its turn already is told so and does not wait for itself, and another one may
//! wait, but not for ever: who has it may be waiting for that thread, as what is called back is anybody's.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is had in turns.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    holder: Mutex<Option<ThreadId>>,
    left: Condvar,
    /// Locked by the holder alone.
    what: Mutex<T>,
}

/// A turn, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a, T> {
    turns: &'a Turns<T>,
    what: MutexGuard<'a, T>,
}

impl<T> Turns<T> {
    pub(crate) fn new(what: T) -> Self {
        Self { holder: Mutex::new(None), left: Condvar::new(), what: Mutex::new(what) }
    }

    /// A turn, unless a thread has one, be it this one.
    pub(crate) fn now(&self) -> Option<Turn<'_, T>> {
        self.begin(lock(&self.holder))
    }

    /// The same; another thread is waited for, but no longer than `longest`.
    pub(crate) fn soon(&self, longest: Duration) -> Option<Turn<'_, T>> {
        let this = std::thread::current().id();
        let others = |holder: &mut Option<ThreadId>| holder.is_some_and(|thread| thread != this);
        let waited = self.left.wait_timeout_while(lock(&self.holder), longest, others);
        self.begin(waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    fn begin(&self, mut holder: MutexGuard<'_, Option<ThreadId>>) -> Option<Turn<'_, T>> {
        if holder.is_some() {
            return None;
        }
        *holder = Some(std::thread::current().id());
        drop(holder);
        Some(Turn { turns: self, what: lock(&self.what) })
    }
}

impl<T> Deref for Turn<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.what
    }
}

impl<T> DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.what
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        // Whoever comes next waits for the lock as long as it takes to leave here.
        *lock(&self.turns.holder) = None;
        self.turns.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_waits_for_others_and_not_for_itself() {
        let (turns, long) = (Turns::new(0), Duration::from_secs(60));
        let mut turn = turns.now().unwrap();
        assert!(turns.now().is_none() && turns.soon(long).is_none());
        std::thread::scope(|s| {
            let (go, ready) = channel();
            let turns = &turns;
            let other = s.spawn(move || {
                assert!(turns.now().is_none() && turns.soon(Duration::from_millis(1)).is_none());
                go.send(()).unwrap();
                *turns.soon(long).unwrap()
            });
            ready.recv().unwrap();
            *turn = 7;
            drop(turn);
            assert_eq!(other.join().unwrap(), 7);
        });
        // One that panics ends its turn.
        let panics = std::panic::AssertUnwindSafe(|| {
            let _turn = turns.now().unwrap();
            panic!("in a turn");
        });
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(*turns.soon(long).unwrap(), 7);
    }
}
