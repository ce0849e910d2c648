//! Unigram (Kudo 2018, <https://arxiv.org/abs/1804.10959>): of all ways to cut a word into pieces, the one whose scores sum up highest.
//!
//! Our own and not the `tokenizers` crate's: that one cuts text into special tokens where their names are pieces (`</s>` of XLM-R), so that
//! a user's words could end a text, and makes a string of every piece that might fit. Sums and ties are that crate's: in double
//! precision, and the first of equals, seen from the beginning.

use crate::{Result, TokenizerError};
use ahash::AHashMap;

/// What a character without a piece scores below the worst piece. Source: sentencepiece's `unigram_model.cc`.
const PENALTY: f64 = 10.0;
/// Bytes of a piece: a word of `n` bytes is cut in that many steps times `n` at most. Published pieces have some 50.
const LONGEST: usize = 1 << 10;

/// A piece of a vocabulary: what it is spelt like, its score, and whether text is cut into it.
pub(crate) struct Piece<'v> {
    pub(crate) text: &'v str,
    pub(crate) id: u32,
    pub(crate) score: f64,
    pub(crate) of_text: bool,
}

pub(crate) struct Unigram {
    /// All, also those that text is not cut into.
    ids: AHashMap<Box<str>, u32>,
    /// A tree of bytes: from a node by a byte to the next. The root is 0.
    edges: AHashMap<(u32, u8), u32>,
    /// The piece that ends at a node.
    ends: Vec<Option<(u32, f64)>>,
    /// Tokens of single bytes, for what has no piece.
    bytes: [Option<u32>; 256],
    unknown: Option<u32>,
    unknown_score: f64,
}

impl std::fmt::Debug for Unigram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unigram").field("tokens", &self.ids.len()).finish_non_exhaustive()
    }
}

/// The best way to a place in a word: its last piece (`None` for a character without one), where that begins, and the sum.
#[derive(Clone, Copy)]
struct Best {
    from: usize,
    id: Option<u32>,
    score: f64,
}

impl Unigram {
    /// Of pieces with the same text the last counts.
    pub(crate) fn new<'v>(
        pieces: impl Iterator<Item = Piece<'v>>,
        bytes: [Option<u32>; 256],
        unknown: Option<u32>,
    ) -> Result<Self> {
        let mut this = Self {
            ids: AHashMap::new(),
            edges: AHashMap::new(),
            ends: vec![None],
            bytes,
            unknown,
            unknown_score: f64::INFINITY,
        };
        for Piece { text, id, score, of_text } in pieces {
            if !score.is_finite() {
                let why = format!("the score of the token {text:?} is {score}, which is no finite number");
                return Err(TokenizerError::Vocabulary(why));
            }
            if text.len() > LONGEST {
                let why = format!("the token {id} has {} bytes, of {LONGEST} at most", text.len());
                return Err(TokenizerError::Vocabulary(why));
            }
            this.ids.insert(text.into(), id);
            if of_text && !text.is_empty() {
                this.unknown_score = this.unknown_score.min(score);
                let node = this.grow(text.as_bytes());
                this.ends[node] = Some((id, score));
            }
        }
        // Without any piece all scores are alike.
        this.unknown_score = if this.unknown_score.is_finite() { this.unknown_score - PENALTY } else { 0.0 };
        Ok(this)
    }

    fn grow(&mut self, text: &[u8]) -> usize {
        let mut node = 0;
        for byte in text {
            let next = self.ends.len() as u32;
            node = *self.edges.entry((node, *byte)).or_insert(next);
            if node == next {
                self.ends.push(None);
            }
        }
        node as usize
    }

    pub(crate) fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// Appends the pieces of a word. What has none becomes bytes, or one unknown token for all that stands together.
    pub(crate) fn encode(&self, word: &str, out: &mut Vec<u32>) -> Result<()> {
        let start = out.len();
        let mut all: Vec<Option<Best>> = vec![None; word.len() + 1];
        let mut sum = 0.0;
        for (from, c) in word.char_indices() {
            if let Some(best) = all[from] {
                sum = best.score;
            }
            let mut offer = |to: usize, id, score: f64| {
                let score = score + sum;
                if all[to].is_none_or(|best| score > best.score) {
                    all[to] = Some(Best { from, id, score });
                }
            };
            let (mut node, mut whole) = (0, false);
            for (to, byte) in (from + 1..).zip(word.as_bytes()[from..].iter()) {
                let Some(next) = self.edges.get(&(node, *byte)) else { break };
                node = *next;
                if let Some((id, score)) = self.ends[node as usize] {
                    offer(to, Some(id), score);
                    whole |= to == from + c.len_utf8();
                }
            }
            if !whole {
                offer(from + c.len_utf8(), None, self.unknown_score);
            }
        }
        // Back from the end; every place is reached from an earlier one, a character at a time if need be.
        let (mut end, mut lost_to) = (word.len(), None);
        while let Some(Best { from, id, .. }) = all[end].filter(|_| end > 0) {
            match id {
                None => lost_to = lost_to.or(Some(end)),
                Some(id) => {
                    self.put_lost(word, end, lost_to.take(), out)?;
                    out.push(id);
                }
            }
            end = from;
        }
        self.put_lost(word, end, lost_to, out)?;
        out[start..].reverse();
        Ok(())
    }

    /// Appends what stands for `word[from..to]`, backwards.
    fn put_lost(&self, word: &str, from: usize, to: Option<usize>, out: &mut Vec<u32>) -> Result<()> {
        let Some(lost) = to.and_then(|to| word.get(from..to)) else { return Ok(()) };
        let bytes: Option<Vec<u32>> = lost.bytes().rev().map(|b| self.bytes[usize::from(b)]).collect();
        match (bytes, self.unknown) {
            (Some(bytes), _) => out.extend(bytes),
            (None, Some(unknown)) => out.push(unknown),
            (None, None) => return Err(TokenizerError::NoToken { what: format!("{lost:?}"), at: from }),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::tests::Random;
    use tokenizers::Model as _;
    use tokenizers::models::unigram::Unigram as Theirs;

    const CHARACTERS: [char; 6] = ['a', 'b', '▁', 'é', '😀', 'x'];

    fn word(random: &mut Random, most: usize) -> String {
        (0..random.below(most)).map(|_| CHARACTERS[random.below(6)]).collect()
    }

    fn bytes_from(first: u32) -> [Option<u32>; 256] {
        std::array::from_fn(|b| Some(first + b as u32))
    }

    #[test]
    fn words_are_cut_as_the_tokenizers_crate_cuts_them() {
        let mut random = Random(11);
        for round in 0..300 {
            // Few distinct scores: ties everywhere.
            let mut vocab = vec![("<unk>".to_owned(), 0.0)];
            for _ in 0..3 + random.below(30) {
                let text: String = (0..1 + random.below(4)).map(|_| CHARACTERS[random.below(5)]).collect();
                if vocab.iter().all(|(other, _)| *other != text) {
                    vocab.push((text, -(random.below(5) as f64) / 2.0 - 1.0));
                }
            }
            let (pieces, falls_back) = (vocab.len() as u32, round % 2 == 0);
            let bytes = if falls_back { bytes_from(pieces) } else { [None; 256] };
            if falls_back {
                vocab.extend((0..256).map(|b| (format!("<0x{b:02X}>"), -1.0)));
            }
            let theirs = Theirs::from(vocab.clone(), Some(0), falls_back).unwrap();
            let piece = |(id, (text, score)): (u32, &'_ (String, f64))| (id, text.clone(), *score);
            let all: Vec<_> = (0..).zip(&vocab).map(piece).collect();
            let of = |id: u32| (1..pieces).contains(&id);
            let pieces =
                all.iter().map(|(id, text, score)| Piece { text, id: *id, score: *score, of_text: of(*id) });
            let ours = Unigram::new(pieces, bytes, Some(0)).unwrap();
            for _ in 0..30 {
                let (word, mut got) = (word(&mut random, 20), Vec::new());
                let want: Vec<u32> = theirs.tokenize(&word).unwrap().iter().map(|t| t.id).collect();
                ours.encode(&word, &mut got).unwrap();
                assert_eq!(got, want, "{word:?} of {vocab:?}");
            }
        }
    }

    fn small(unknown: Option<u32>) -> Unigram {
        let piece = |text, id, of_text| Piece { text, id, score: -1.0, of_text };
        let pieces = [piece("</s>", 0, false), piece("a", 1, true), piece("s", 2, true)];
        Unigram::new(pieces.into_iter(), [None; 256], unknown).unwrap()
    }

    #[test]
    fn text_becomes_no_special_token() {
        let mut out = vec![7];
        small(Some(9)).encode("a</s>a", &mut out).unwrap();
        assert_eq!((out, small(None).id("</s>")), (vec![7, 1, 9, 2, 9, 1], Some(0)));
        let e = small(None).encode("aéa", &mut Vec::new()).unwrap_err().to_string();
        assert!(e.contains("\"é\"") && e.contains("byte 1"), "{e}");
        small(None).encode("", &mut Vec::new()).unwrap();
    }

    #[test]
    fn false_pieces_are_refused() {
        let of = |text: &str, score| {
            let piece = Piece { text, id: 3, score, of_text: true };
            Unigram::new([piece].into_iter(), [None; 256], None).unwrap_err().to_string()
        };
        assert!(of("x", f64::NAN).contains("no finite number"), "{}", of("x", f64::NAN));
        assert!(of(&"x".repeat(2000), 0.0).contains("2000 bytes, of 1024"));
    }
}
