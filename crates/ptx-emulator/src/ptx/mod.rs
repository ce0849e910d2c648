//! PTX text read into a tree: [`parse`].
//!
//! A hand-written parser and no generator: the grammar is small and regular, the files are megabytes long when a compiler emits
//! them, and an error must name a line and its text.

pub mod ast;
