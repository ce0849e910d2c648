//! Constrained output: a sampler stage that allows only tokens that lead to a sentence of a grammar.
mod automaton;
mod constraint;
mod error;
mod expr;
mod gbnf;
mod grammar;
mod lark;
mod lexemes;
mod regex;
mod rules;
mod schema;
mod vocabulary;
mod walker;

pub use constraint::Constraint;
pub use error::GrammarError;
pub use grammar::Grammar;
pub use vocabulary::{Token, Vocabulary};
