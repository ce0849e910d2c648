//! Which tokens of a vocabulary are allowed: a bit for each.
//!
//! Words of 32 bits, as grammar engines make them and devices would take them.

/// A set of tokens: bit `i % 32` of word `i / 32` for token `i`. What is beyond the words is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask<'w>(&'w [u32]);

impl<'w> Mask<'w> {
    /// From its words.
    pub fn new(words: &'w [u32]) -> Self {
        Self(words)
    }

    /// The bits of the 32 tokens from `32 * at` on.
    pub fn word(self, at: usize) -> u32 {
        self.0.get(at).copied().unwrap_or(0)
    }

    /// Whether this token is in it.
    pub fn allows(self, token: u32) -> bool {
        self.word((token / 32) as usize) >> (token % 32) & 1 == 1
    }

    /// How many tokens are in it.
    pub fn count(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }
}
