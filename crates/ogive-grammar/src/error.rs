//! What can be wrong with a grammar. One type for reading, compiling and the vocabulary: whoever takes a grammar from a user
//! tells him what is wrong with it, whenever that is found out.

use thiserror::Error;

/// Why a grammar cannot constrain anything.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GrammarError {
    /// GBNF that does not parse.
    #[error("reading a grammar: line {line}, column {column}: {what}")]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// In characters, counted from 1.
        column: usize,
        /// What was found and what was expected.
        what: String,
    },
    /// A rule that is used and not defined.
    #[error(
        "reading a grammar: line {line}, column {column}: no rule is called {name:?}; define it with `{name} ::= ...`"
    )]
    UndefinedRule {
        /// The rule's name.
        name: String,
        /// Where it is used; counted from 1.
        line: usize,
        /// In characters, counted from 1.
        column: usize,
    },
    /// A grammar without its first rule.
    #[error(
        "reading a grammar: there is no rule {name:?}, with which every grammar begins; add `{name} ::= ...`"
    )]
    NoRoot {
        /// The rule's name, always `root`.
        name: &'static str,
    },
    /// A grammar whose sentences have no end.
    #[error(
        "reading a grammar: {name:?} can never end, for every way through it leads back into it; give it a way out"
    )]
    Endless {
        /// A rule.
        name: String,
    },
    /// More than is sensible to work through.
    #[error("reading a grammar: {what} is {size}, but at most {limit} is taken; make it simpler")]
    TooLarge {
        /// What is counted.
        what: &'static str,
        /// How much of it there is.
        size: usize,
        /// How much is taken.
        limit: usize,
    },
    /// A regular expression that does not parse, or needs what cannot be constrained.
    #[error("reading a regular expression: column {column}: {what}")]
    Regex {
        /// In characters, counted from 1.
        column: usize,
        /// What is wrong.
        what: String,
    },
    /// A schema that is no JSON.
    #[error("reading a JSON schema: {why}")]
    Json {
        /// What the JSON parser said.
        why: String,
    },
    /// A schema with a keyword that is not enforced.
    #[error("reading a JSON schema: {keyword:?} at {at} is not supported{hint}; leave it out")]
    Keyword {
        /// The keyword.
        keyword: String,
        /// Where, as a JSON pointer: `#/properties/name`.
        at: String,
        /// The nearest keyword that is, as a part of the sentence; empty where none is near.
        hint: String,
    },
    /// A schema that is not well formed.
    #[error("reading a JSON schema: {what}, at {at}")]
    Schema {
        /// What is wrong.
        what: String,
        /// Where, as a JSON pointer: `#/properties/name`.
        at: String,
    },
    /// A schema that does not compile.
    #[error("reading a JSON schema: {why}")]
    Refused {
        /// What the compiler said.
        why: String,
    },
    /// A schema that nothing satisfies.
    #[error("reading a JSON schema: nothing can satisfy it: {why}")]
    Unsatisfiable {
        /// The contradiction.
        why: String,
    },
    /// A token that the vocabulary does not have, or that cannot be part of a text.
    #[error("the grammar names the token {token}, {why}")]
    Token {
        /// As it was written.
        token: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A vocabulary that cannot be constrained.
    #[error("preparing a vocabulary for grammars: {0}")]
    Vocabulary(String),
    /// The parser behind refused.
    #[error("compiling a grammar: {0}")]
    Compile(String),
}

/// Passes on what is not too large.
pub(crate) fn at_most(what: &'static str, size: usize, limit: usize) -> Result<(), GrammarError> {
    if size <= limit { Ok(()) } else { Err(GrammarError::TooLarge { what, size, limit }) }
}
