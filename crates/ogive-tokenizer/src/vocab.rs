//! The table of tokens: what each id stands for in bytes, and what kind of token it is.
//!
//! Bytes, decoded once at opening and kept end to end in one buffer: decoding is then a slice, and a quarter of a million
//! tokens cost no quarter of a million allocations.

use crate::{Result, TokenizerError};
use std::ops::Range;

/// What a token is for. The names are GGUF's (`tokenizer.ggml.token_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TokenKind {
    /// A piece of text.
    Normal,
    /// Stands for what the vocabulary cannot spell.
    Unknown,
    /// Means something to the model and is no text, such as BOS. Text becomes one only if special tokens are parsed.
    Control,
    /// A piece of text that is always one token.
    UserDefined,
    /// In the table, but not in use; also an id that a file leaves out.
    Unused,
    /// One byte, for what no other token covers.
    Byte,
}

impl TokenKind {
    /// Whether decoding leaves the token out unless told otherwise.
    pub fn is_special(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }
}

/// Bytes and kinds by id.
#[derive(Debug, Default)]
pub(crate) struct Vocab {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    kinds: Vec<TokenKind>,
}

impl Vocab {
    pub(crate) fn with_capacity(tokens: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(tokens * 6),
            ends: Vec::with_capacity(tokens),
            kinds: Vec::with_capacity(tokens),
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8], kind: TokenKind) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
        self.kinds.push(kind);
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    fn range(&self, id: u32) -> Option<Range<usize>> {
        let id = usize::try_from(id).ok()?;
        let end = *self.ends.get(id)?;
        let start = if id == 0 { 0 } else { *self.ends.get(id - 1)? };
        Some(start..end)
    }

    pub(crate) fn bytes(&self, id: u32) -> Result<&[u8]> {
        let range = self.range(id).ok_or(TokenizerError::UnknownToken { id, size: self.len() })?;
        Ok(&self.bytes[range])
    }

    pub(crate) fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(usize::try_from(id).ok()?).copied()
    }
}

/// The byte that a token's text like `<0x0A>` names.
pub(crate) fn byte_token(text: &[u8]) -> Option<u8> {
    let hex = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    let digits =
        std::str::from_utf8(hex).ok().filter(|h| h.len() == 2 && h.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_tokens_are_two_digits_exactly() {
        assert_eq!(byte_token(b"<0x0A>"), Some(10));
        assert_eq!(byte_token(b"<0xfF>"), Some(255));
        for no in [&b"<0x0>"[..], b"<0x+1>", b"<0x123>", b"<0xG0>", b"0x0A", b"<0x0A", b""] {
            assert_eq!(byte_token(no), None);
        }
    }

    #[test]
    fn ids_past_the_end_are_errors() {
        let mut v = Vocab::default();
        v.push(b"ab", TokenKind::Normal);
        v.push(b"", TokenKind::Unused);
        v.push(b"c", TokenKind::Control);
        assert_eq!(
            (v.bytes(0).unwrap(), v.bytes(1).unwrap(), v.bytes(2).unwrap()),
            (&b"ab"[..], &b""[..], &b"c"[..])
        );
        assert_eq!(v.bytes(3).unwrap_err().to_string(), "token id 3 is not in the vocabulary of 3 tokens");
        assert!(v.bytes(u32::MAX).is_err());
        assert_eq!(v.kind(9), None);
    }
}
