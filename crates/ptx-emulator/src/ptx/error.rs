//! What is wrong with a PTX text, and where.
//!
//! One struct and no enum of cases: nobody branches on the kind of mistake in a text, people read it. So it carries a place, the
//! text of that place and a sentence.

/// A mistake in a PTX text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("PTX line {line}: {message}: `{text}`")]
#[non_exhaustive]
pub struct Error {
    /// Line in the PTX text, from 1.
    pub line: u32,
    /// What stands there, shortened if it is long.
    pub text: String,
    /// What is wrong and what was expected.
    pub message: String,
}

/// Characters of a line that an error repeats.
const SHOWN: usize = 200;

impl Error {
    /// An error whose `text` is known already.
    pub(crate) fn new(line: u32, text: &str, message: impl Into<String>) -> Self {
        let text = text.trim();
        let mut shown: String = text.chars().take(SHOWN).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        Self { line, text: shown, message: message.into() }
    }

    /// An error in line `line` of `source`.
    pub(crate) fn at(source: &str, line: u32, message: impl Into<String>) -> Self {
        let index = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
        Self::new(line, source.lines().nth(index).unwrap_or(""), message)
    }
}
