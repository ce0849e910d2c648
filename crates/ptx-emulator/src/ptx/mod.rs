//! PTX text read into a tree ([`parse`]) and checked ([`verify`]).
//!
//! A hand-written parser and no generator: the grammar is small and regular, the files are megabytes long when a compiler emits
//! them, and an error must name a line and its text.

pub mod ast;
mod cursor;
mod error;
mod expression;
mod function;
mod lexer;
mod module;
mod operand;
mod print;
mod statement;
mod variable;
mod verify;

pub use error::Error;
pub use module::parse;
pub use verify::verify;
