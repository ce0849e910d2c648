//! Text from tokens as they come, in whole characters.
//!
//! A token may end inside a character, so bytes wait until the character is complete. What can no longer become one is
//! replaced by U+FFFD, by the same rule as `String::from_utf8_lossy`, so that the pieces together always equal the lossy text of
//! all bytes. At most three bytes ever wait: a stream never falls silent for long.

use crate::tokenizer::Place;
use crate::{Result, Tokenizer};

/// Turns tokens into text one by one. Made by [`Tokenizer::stream`] and [`Tokenizer::stream_after`].
#[derive(Debug, Clone)]
pub struct TextStream {
    tokenizer: Tokenizer,
    /// The beginning of a character.
    pending: Vec<u8>,
    place: Place,
    special: bool,
    verbatim: bool,
}

impl TextStream {
    pub(crate) fn new(tokenizer: Tokenizer, place: Place) -> Self {
        Self { tokenizer, pending: Vec::new(), place, special: false, verbatim: false }
    }

    /// Also shows special tokens, by their names.
    #[must_use]
    pub fn with_special(mut self) -> Self {
        self.special = true;
        self
    }

    /// Keeps the space that a text begins with: for text that no encoding put it before, as the answer to a grammar.
    #[must_use]
    pub fn verbatim(mut self) -> Self {
        (self.place.start, self.verbatim) = (false, true);
        self
    }

    /// The text that this token completes; empty where a character is still incomplete, and for special tokens.
    ///
    /// # Errors
    /// If the id is not in the vocabulary. The stream is then as before.
    pub fn push(&mut self, id: u32) -> Result<String> {
        self.tokenizer.append(id, self.special, &mut self.place, &mut self.pending)?;
        self.place.start &= !self.verbatim;
        Ok(complete(&mut self.pending))
    }

    /// Ends the stream: what remains of an incomplete character, as U+FFFD. A space that waited for another token goes.
    #[must_use]
    pub fn finish(&mut self) -> String {
        let rest = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        self.place.held = false;
        rest
    }
}

/// Takes whole characters off the front of `pending`.
fn complete(pending: &mut Vec<u8>) -> String {
    let mut text = String::with_capacity(pending.len());
    let mut used = 0;
    for chunk in pending.utf8_chunks() {
        text.push_str(chunk.valid());
        used += chunk.valid().len();
        let invalid = chunk.invalid();
        // The last bytes may be a beginning; then there is an error without a length.
        let may_grow = used + invalid.len() == pending.len()
            && std::str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none());
        if !invalid.is_empty() && !may_grow {
            text.push(char::REPLACEMENT_CHARACTER);
            used += invalid.len();
        }
    }
    pending.drain(..used);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::tests::Random;

    fn fed(chunks: &[&[u8]]) -> (Vec<String>, Vec<u8>) {
        let mut pending = Vec::new();
        let out = chunks
            .iter()
            .map(|c| {
                pending.extend_from_slice(c);
                complete(&mut pending)
            })
            .collect();
        (out, pending)
    }

    #[test]
    fn characters_come_whole() {
        assert_eq!(fed(&[b"a\xf0\x9f", b"\x98", b"\x80b"]).0, ["a", "", "😀b"]);
        assert_eq!(fed(&[b"\xf0\x9f", b"x"]).0, ["", "\u{fffd}x"]);
        assert_eq!(
            fed(&[b"\xff\xfe", b"\xe4\xb8"]),
            (vec!["\u{fffd}\u{fffd}".into(), String::new()], b"\xe4\xb8".to_vec())
        );
        // An encoded surrogate and an overlong form can never become characters.
        assert_eq!(fed(&[b"\xed\xa0", b"\xc0"]).0, ["\u{fffd}\u{fffd}", "\u{fffd}"]);
    }

    #[test]
    fn pieces_equal_the_lossy_whole() {
        let mut random = Random(2);
        let parts: [&[u8]; 12] = [
            b"a",
            b"\xc3",
            b"\xa9",
            b"\xf0",
            b"\x9f",
            b"\x98",
            b"\x80",
            b"\xe4\xb8",
            b"\xad",
            b"\xff",
            "é".as_bytes(),
            b"\xed\xa0",
        ];
        for _ in 0..5000 {
            let chunks: Vec<&[u8]> =
                (0..random.below(12)).map(|_| parts[random.below(parts.len())]).collect();
            let (mut out, pending) = fed(&chunks);
            assert!(pending.len() <= 3);
            out.push(String::from_utf8_lossy(&pending).into_owned());
            assert_eq!(out.concat(), String::from_utf8_lossy(&chunks.concat()));
        }
    }
}
