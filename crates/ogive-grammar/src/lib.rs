//! Constrained output: a sampler stage that allows only tokens that lead to a sentence of a grammar.
//!
//! A [`Grammar`] is read from GBNF (llama.cpp's grammar language), a JSON Schema or a regular expression. Compiled for a
//! [`Vocabulary`] it is a [`Constraint`], which stands first in a chain. The text that comes out is a sentence of the grammar
//! whatever the model says, unless it was cut off: [`Constraint::is_complete`] tells.
//!
//! ```
//! use ogive_grammar::{Grammar, Token, Vocabulary};
//! use ogive_sampler::Chain;
//!
//! let tokens = ["y", "es", "no", "perhaps", "</s>"];
//! let vocabulary = Vocabulary::new(tokens.map(|t| Token::Text(t.as_bytes())), &[4])?;
//! let constraint = Grammar::gbnf("root ::= \"yes\" | \"no\"")?.compile(&vocabulary)?;
//! let mut chain = Chain::greedy().first(constraint);
//!
//! // The model would say "perhaps"; of what is allowed it likes "y" best.
//! let logits = [1.0, 0.0, 0.5, 9.0, 2.0];
//! let mut history = Vec::new(); // a prompt would stand here
//! for _ in 0..3 {
//!     history.push(chain.sample(&logits, &history)?);
//! }
//! assert_eq!(history, [0, 1, 4]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # GBNF
//!
//! All of it as of llama.cpp's July 2026: literals and classes with their escapes, groups, `* + ? {m,n}`, `.`, comments, and tokens
//! (`<[10]>`, `<think>`, `!<[10]>`). Left recursion is accepted. Where the same token could be read as a token that the grammar
//! names and as text, it is the named one. Special tokens are allowed by name alone, never by characters that spell the same.
//!
//! # JSON Schema
//!
//! Enforced are `type`, `enum`, `const`, `properties`, `required`, `additionalProperties`, `patternProperties`, `minProperties`,
//! `maxProperties`, `items`, `prefixItems`, `additionalItems`, `minItems`, `maxItems`, `minLength`, `maxLength`, `pattern`, `format`
//! (those that can be matched), `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum`, `multipleOf`, `anyOf`, `allOf`, `oneOf`
//! where the alternatives exclude each other (by their types, values or ranges, or those of a property that is required), and
//! `$ref` within the schema, recursion included. Any other keyword is an error, but for annotations such as `title`. Properties come in
//! the schema's order. As JSON Schema has it, an object may have properties that are not listed unless `additionalProperties` is
//! false: say so, for few models know when to stop. More than one of those cannot be counted, so a `minProperties` that needs more is
//! an error. Patterns are ECMA-262's, without what looks around or back.
//!
//! Characters stand for themselves in texts and names, but for quotes, backslashes and control characters (`\"`, `\\`, `\n`, `\t` and
//! their like): with `\u` an object could have the same name twice. Only a schema that asks for a control character without a letter
//! has it, and none of its objects may have names beside those that are listed.
//!
//! # What it stands on
//!
//! [llguidance](https://docs.rs/llguidance), without its default features: an Earley parser over lexemes that are matched by
//! automata, and masks by walking a tree of the vocabulary. Its lexer is greedy and GBNF has no lexemes, so a grammar is cut into
//! lexemes such that greed loses nothing. It installs, once, a panic hook that hands all panics but its own on to the one before.

mod automaton;
mod constraint;
mod error;
mod expr;
mod flow;
mod gbnf;
mod grammar;
mod lark;
mod lexemes;
mod regex;
mod rules;
mod schema;
mod vocabulary;
mod walker;
mod weigh;
mod words;
mod work;

pub use constraint::Constraint;
pub use error::GrammarError;
pub use grammar::Grammar;
pub use vocabulary::{Token, Vocabulary};
