//! SentencePiece's BPE as GGUF stores it: tokens with scores, and a byte for what no token covers.
//!
//! Not one of the `tokenizers` crate's models. Its BPE wants ranked pairs of tokens, and GGUF keeps only scores: two adjacent
//! pieces merge whenever their text together is a token, the highest score first, the leftmost of equals. A list of pairs can
//! be derived, but ties between scores then fall by the derivation's order and not by position; and its Unigram maximises a sum
//! over the whole text, which is another segmentation. So this is the rule itself, with a heap: O(n log n) in the text. Where
//! no token spans the start of a word, words are merged one by one, which gives the same and stays within the cache.

use crate::normalize::SPACE_MARK;
use crate::{Result, TokenizerError};
use ahash::{AHashMap, AHashSet};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;

/// The model. Texts are keyed by their bytes, because vocabularies hold pieces that are no UTF-8.
pub(crate) struct Spm {
    /// Token text to id, for the tokens that text may become.
    ids: AHashMap<Box<[u8]>, u32>,
    /// By id.
    scores: Vec<f32>,
    /// The token for each byte, where the vocabulary has one.
    bytes: [Option<u32>; 256],
    unknown: Option<u32>,
    /// Bytes of the longest token: longer pairs need no look-up.
    longest: usize,
    /// Bytes before a space mark inside some token. After any other byte nothing merges with a mark.
    before_mark: AHashSet<u8>,
}

/// Buffers that one text's words share.
#[derive(Default)]
struct Work {
    symbols: Vec<Symbol>,
    heap: BinaryHeap<Pair>,
}

impl std::fmt::Debug for Spm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spm")
            .field("tokens", &self.ids.len())
            .field("longest", &self.longest)
            .finish_non_exhaustive()
    }
}

const NONE: u32 = u32::MAX;

/// A piece of the text: `len` bytes from `start`, and its neighbours. `len` 0 means merged into the one before.
#[derive(Clone, Copy)]
struct Symbol {
    start: u32,
    len: u32,
    prev: u32,
    next: u32,
}

/// Two neighbours that make a token.
struct Pair {
    score: f32,
    left: u32,
    right: u32,
    /// Bytes of both, to see later whether either has changed.
    len: u32,
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}
impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Pair {}

impl Spm {
    /// `ids` must point into `scores`.
    pub(crate) fn new(
        ids: AHashMap<Box<[u8]>, u32>,
        scores: Vec<f32>,
        bytes: [Option<u32>; 256],
        unknown: Option<u32>,
    ) -> Self {
        let longest = ids.keys().map(|k| k.len()).max().unwrap_or(0);
        let mark = SPACE_MARK.as_bytes();
        let windows = ids.keys().flat_map(|k| k.windows(mark.len() + 1));
        let before_mark = windows.filter(|w| w.ends_with(mark)).map(|w| w[0]).collect();
        Self { ids, scores, bytes, unknown, longest, before_mark }
    }

    pub(crate) fn id(&self, text: &[u8]) -> Option<u32> {
        self.ids.get(text).copied()
    }

    fn pair(&self, text: &[u8], symbols: &[Symbol], left: u32, right: u32) -> Option<Pair> {
        let (l, r) = (symbols.get(left as usize)?, symbols.get(right as usize)?);
        let len = l.len + r.len;
        if len as usize > self.longest {
            return None;
        }
        let id = self.id(text.get(l.start as usize..(l.start + len) as usize)?)?;
        Some(Pair { score: *self.scores.get(id as usize)?, left, right, len })
    }

    /// The tokens of a text in which spaces are already written as U+2581.
    pub(crate) fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<()> {
        let limit = NONE as usize;
        if text.len() >= limit {
            return Err(TokenizerError::TooLong { len: text.len(), limit });
        }
        let mut work = Work::default();
        let mut start = 0;
        for (at, _) in text.match_indices(SPACE_MARK) {
            let before = at.checked_sub(1).and_then(|i| text.as_bytes().get(i));
            if before.is_some_and(|b| !self.before_mark.contains(b)) {
                self.merge(text, start..at, &mut work, out)?;
                start = at;
            }
        }
        self.merge(text, start..text.len(), &mut work, out)
    }

    fn merge(&self, text: &str, range: Range<usize>, work: &mut Work, out: &mut Vec<u32>) -> Result<()> {
        let bytes = text.as_bytes();
        let Work { symbols, heap } = work;
        symbols.clear();
        // Offsets and counts fit u32: `encode` looked.
        for (i, (at, c)) in (0u32..).zip(text[range.clone()].char_indices()) {
            let start = (range.start + at) as u32;
            symbols.push(Symbol { start, len: c.len_utf8() as u32, prev: i.wrapping_sub(1), next: i + 1 });
        }
        if let Some(last) = symbols.last_mut() {
            last.next = NONE;
        }
        let count = symbols.len() as u32;
        // One heapify, not a push for each pair.
        let mut pairs = std::mem::take(heap).into_vec();
        pairs.clear();
        pairs.extend((1..count).filter_map(|r| self.pair(bytes, symbols, r - 1, r)));
        *heap = BinaryHeap::from(pairs);
        while let Some(Pair { left, right, len, .. }) = heap.pop() {
            let (l, r) = (symbols[left as usize], symbols[right as usize]);
            if l.len == 0 || r.len == 0 || l.len + r.len != len {
                continue;
            }
            symbols[left as usize].len = len;
            symbols[left as usize].next = r.next;
            symbols[right as usize].len = 0;
            if r.next != NONE {
                symbols[r.next as usize].prev = left;
            }
            heap.extend(self.pair(bytes, symbols, l.prev, left));
            heap.extend(self.pair(bytes, symbols, left, r.next));
        }
        for s in symbols.iter().filter(|s| s.len > 0) {
            let start = s.start as usize;
            let piece = &bytes[start..start + s.len as usize];
            match self.id(piece) {
                Some(id) => out.push(id),
                None => self.fall_back(piece, start, out)?,
            }
        }
        Ok(())
    }

    /// A character that is no token: its bytes, or one unknown token if a byte is missing.
    fn fall_back(&self, piece: &[u8], at: usize, out: &mut Vec<u32>) -> Result<()> {
        let known = |b: &u8| self.bytes[usize::from(*b)].or_else(|| self.id(std::slice::from_ref(b)));
        match (piece.iter().map(known).collect::<Option<Vec<u32>>>(), self.unknown) {
            (Some(ids), _) => out.extend(ids),
            (None, Some(unknown)) => out.push(unknown),
            (None, None) => {
                return Err(TokenizerError::NoToken {
                    what: format!("{:?}", String::from_utf8_lossy(piece)),
                    at,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::tests::Random;

    /// The definition: look at all neighbours, merge the best, start again.
    fn slow(spm: &Spm, text: &str) -> Vec<u32> {
        let mut pieces: Vec<String> = text.chars().map(String::from).collect();
        loop {
            let mut best: Option<(f32, usize)> = None;
            for i in 1..pieces.len() {
                if let Some(id) = spm.id((pieces[i - 1].clone() + &pieces[i]).as_bytes()) {
                    let score = spm.scores[id as usize];
                    if best.is_none_or(|(b, _)| score > b) {
                        best = Some((score, i));
                    }
                }
            }
            let Some((_, i)) = best else { break };
            let right = pieces.remove(i);
            pieces[i - 1] += &right;
        }
        let mut out = Vec::new();
        for p in pieces {
            match spm.id(p.as_bytes()) {
                Some(id) => out.push(id),
                None => out.extend(p.bytes().map(|b| spm.bytes[usize::from(b)].unwrap())),
            }
        }
        out
    }

    fn random_model(random: &mut Random) -> Spm {
        let mut ids: AHashMap<Box<[u8]>, u32> = AHashMap::new();
        let mut scores = vec![0.0; 257];
        for _ in 0..40 {
            let len = 1 + random.below(5);
            let text: String = (0..len).map(|_| ['a', 'b', '▁', 'é'][random.below(4)]).collect();
            if !ids.contains_key(text.as_bytes()) {
                ids.insert(text.into_bytes().into(), scores.len() as u32);
                // Few distinct scores: ties everywhere.
                scores.push(-(random.below(6) as f32));
            }
        }
        let mut bytes = [None; 256];
        (0..256).for_each(|b| bytes[b] = Some(b as u32 + 1));
        Spm::new(ids, scores, bytes, Some(0))
    }

    #[test]
    fn the_heap_does_what_the_definition_says() {
        let mut random = Random(5);
        for _ in 0..400 {
            let spm = random_model(&mut random);
            for _ in 0..10 {
                let len = random.below(30);
                let text: String = (0..len).map(|_| ['a', 'b', '▁', 'é', '😀'][random.below(5)]).collect();
                let mut got = Vec::new();
                spm.encode(&text, &mut got).unwrap();
                assert_eq!(got, slow(&spm, &text), "{text:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_spelt_is_unknown_or_an_error() {
        let ids: AHashMap<Box<[u8]>, u32> = [(Box::from(&b"a"[..]), 1)].into_iter().collect();
        let mut out = Vec::new();
        Spm::new(ids.clone(), vec![0.0; 2], [None; 256], Some(0)).encode("aé", &mut out).unwrap();
        assert_eq!(out, [1, 0]);
        let e =
            Spm::new(ids, vec![0.0; 2], [None; 256], None).encode("aé", &mut out).unwrap_err().to_string();
        assert!(e.contains("\"é\"") && e.contains("byte 1"), "{e}");
    }
}
