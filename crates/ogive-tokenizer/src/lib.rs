//! Text to tokens and back, and chat templates.

mod added;
mod bpe;
mod byte_level;
mod error;
mod folder;
mod gguf;
mod json;
mod model;
mod normalize;
mod pretokenize;
mod special;
mod split;
mod spm;
mod stream;
pub mod template;
mod tokenizer;
mod unicode;
mod vocab;

pub use error::{Result, TokenizerError};
pub use special::SpecialTokens;
pub use stream::TextStream;
pub use tokenizer::{EncodeOptions, Tokenizer};
pub use vocab::TokenKind;
