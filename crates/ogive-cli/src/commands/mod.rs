//! The commands, a file each: its arguments and what it does.

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod classify;
pub(crate) mod detokenize;
pub(crate) mod devices;
pub(crate) mod embed;
pub(crate) mod imatrix;
pub(crate) mod inspect;
pub(crate) mod logits;
pub(crate) mod perplexity;
pub(crate) mod quantize;
pub(crate) mod rerank;
pub(crate) mod run;
#[cfg(feature = "server")]
pub(crate) mod serve;
#[cfg(not(feature = "server"))]
#[path = "serve_not.rs"]
pub(crate) mod serve;
pub(crate) mod synth;
pub(crate) mod template;
pub(crate) mod tokenize;
