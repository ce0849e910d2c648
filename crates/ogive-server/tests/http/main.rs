//! The server through its routes, as a client's bytes meet it. One program, for each that is linked takes longer than all that it tests.
#![allow(clippy::unwrap_used)]

#[path = "../../../ogive/tests/common/calls.rs"]
#[allow(dead_code)]
mod calls;
mod chat;
mod client;
mod completions;
#[cfg(feature = "grammar")]
mod held;
mod many;
#[cfg(feature = "vision")]
mod seeing;
mod talker;
mod tools;
mod vectors;
#[path = "../../../ogive/tests/common/words.rs"]
#[allow(dead_code)]
mod words;
mod wrong;
