//! Text to tokens and back, and chat templates.
//!
//! A [`Tokenizer`] opens from the metadata of a GGUF file or from a Hugging Face folder and never changes afterwards.
//!
//! ```no_run
//! use ogive_tokenizer::{EncodeOptions, Tokenizer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = gguf_file::Gguf::open("model.gguf")?; // or Tokenizer::from_folder("model/")
//! let tokenizer = Tokenizer::from_gguf(file.metadata())?;
//! let prompt = tokenizer.encode("Once upon a time", EncodeOptions::default())?;
//! // Tokens as a model gives them become text in whole characters.
//! let mut stream = tokenizer.stream_after(&prompt);
//! for id in [29889, 13] {
//!     if tokenizer.is_eog(id) {
//!         break;
//!     }
//!     print!("{}", stream.push(id)?);
//! }
//! println!("{}", stream.finish());
//! # Ok(())
//! # }
//! ```
//!
//! # What is understood
//!
//! - **GGUF** (`tokenizer.ggml.model`): `llama`, SentencePiece's BPE by scores with byte fallback; `gpt2`, byte-level BPE with
//!   73 pre-tokenizers by name. An unknown name is an error that lists the known ones; a missing one is llama.cpp's `default`, with
//!   a warning. No normalisation, as in llama.cpp. `bert`, word pieces with BERT's own normaliser. `t5`, Unigram with SentencePiece's compiled
//!   rules. `gemma4`, BPE of characters by ranks with byte fallback.
//! - **tokenizer.json**: BPE, Unigram, WordPiece and WordLevel with the usual normalizers, pre-tokenizers, post-processors and
//!   decoders. What is not understood is an error that names it, never left out. Without it, BERT's `vocab.txt`.
//! - **Chat templates** ([`template`]), as transformers renders them, and the calls of [`tools`] that a model writes as its template
//!   does.
//!
//! # What can be relied on
//!
//! - **Time is nearly linear** in the text, also where a million characters of one kind make one word. A pattern of a
//!   tokenizer.json that no linear matcher runs may give up on such a run; that is an error, never a wrong id.
//! - **Nothing is lost**: bytes that are no UTF-8 become tokens of single bytes where the vocabulary has them.
//! - **Nothing in a file is believed**: vocabularies that contradict themselves are refused by name, without a panic.
//!
//! Detokenising does not clean up spaces before punctuation, which llama.cpp and transformers do for some models: text
//! comes back as it went in.

mod added;
mod bpe;
mod byte_level;
mod error;
mod folder;
mod gguf;
mod json;
mod model;
mod name;
mod normalize;
mod pair;
mod precompiled;
mod pretokenize;
mod special;
mod split;
mod spm;
mod stream;
pub mod template;
mod tokenizer;
pub mod tools;
mod unicode;
mod unigram;
mod vocab;
mod vocab_txt;

pub use error::{Result, TokenizerError};
pub use name::pre_tokenizer_name;
pub use special::SpecialTokens;
pub use stream::TextStream;
pub use tokenizer::{EncodeOptions, Tokenizer};
pub use vocab::TokenKind;
