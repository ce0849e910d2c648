//! Byte-level BPE: the lowest-ranked pair of neighbours merges first, the leftmost of equals, until none is left.
//!
//! The `tokenizers` crate has the same model, and it is this one's definition in the tests. Ours works on bytes instead of
//! their spelling as characters, and on numbers instead of strings: no word is respelt, no token's text is copied, no cache
//! with a lock is needed. Words of a few bytes, nearly all there are, merge in an array; longer ones with a heap, in
//! O(n log n).

use crate::{Result, TokenizerError, byte_level};
use ahash::AHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const NONE: u32 = u32::MAX;

/// Words up to this many bytes merge by looking at all pairs each time.
const SHORT: usize = 32;

/// The model.
pub(crate) struct Bpe {
    /// The token of each byte, [`NONE`] where there is none.
    bytes: [u32; 256],
    /// Every byte has a token.
    whole: bool,
    /// Left and right token: rank and result.
    merges: AHashMap<(u32, u32), (u32, u32)>,
    /// Tokens by their bytes.
    ids: AHashMap<Box<[u8]>, u32>,
    /// A word that is a token is that token, whatever the merges say.
    ignore_merges: bool,
}

impl std::fmt::Debug for Bpe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bpe")
            .field("tokens", &self.ids.len())
            .field("merges", &self.merges.len())
            .finish_non_exhaustive()
    }
}

impl Bpe {
    /// From tokens and merges in their spelling as characters; `None` if a merge names what the spelling cannot express, which
    /// is a matter for a more general model.
    ///
    /// # Errors
    /// If a merge names a token that is not there.
    pub(crate) fn new<'t>(
        spellings: impl Iterator<Item = (&'t str, u32)>,
        merges: impl Iterator<Item = Result<(&'t str, &'t str)>>,
        ignore_merges: bool,
    ) -> Result<Option<Self>> {
        let mut ids = AHashMap::with_capacity(spellings.size_hint().0);
        for (spelling, id) in spellings {
            if let Some(bytes) = byte_level::decode(spelling).filter(|b| !b.is_empty()) {
                ids.insert(bytes.into_boxed_slice(), id);
            }
        }
        let mut bytes = [NONE; 256];
        for b in 0..=255u8 {
            bytes[usize::from(b)] = ids.get(&[b][..]).copied().unwrap_or(NONE);
        }
        let mut ranks = AHashMap::with_capacity(merges.size_hint().0);
        let mut text = Vec::new();
        for (rank, merge) in merges.enumerate() {
            let (left, right) = merge?;
            text.clear();
            let mut part = |spelling: &str| {
                let start = text.len();
                for c in spelling.chars() {
                    text.push(byte_level::to_byte(c)?);
                }
                Some(ids.get(&text[start..]).copied())
            };
            let (Some(l), Some(r)) = (part(left), part(right)) else { return Ok(None) };
            let merged = ids.get(&text[..]).copied();
            let missing = |spelling: &str| {
                TokenizerError::Vocabulary(format!(
                    "merge {rank} ({left:?} {right:?}) needs {spelling:?}, which is no token"
                ))
            };
            let l = l.ok_or_else(|| missing(left))?;
            let r = r.ok_or_else(|| missing(right))?;
            let merged = merged.ok_or_else(|| missing(&format!("{left}{right}")))?;
            let rank =
                u32::try_from(rank).map_err(|_| TokenizerError::Vocabulary("it has 2^32 merges".into()))?;
            ranks.entry((l, r)).or_insert((rank, merged));
        }
        let whole = !bytes.contains(&NONE);
        Ok(Some(Self { bytes, whole, merges: ranks, ids, ignore_merges }))
    }

    /// The token, if there is one, for bytes that have none of their own. Vocabularies lack those that UTF-8 never has, and some
    /// lack control characters.
    pub(crate) fn with_unknown(mut self, unknown: Option<u32>) -> Self {
        if let Some(unknown) = unknown {
            self.bytes.iter_mut().filter(|id| **id == NONE).for_each(|id| *id = unknown);
            self.whole = true;
        }
        self
    }

    /// The id of a token by its spelling.
    pub(crate) fn id(&self, spelling: &str) -> Option<u32> {
        self.ids.get(&byte_level::decode(spelling)?[..]).copied()
    }

    /// Appends the tokens of one word.
    ///
    /// # Errors
    /// If a byte of it has no token and there is none for unknown ones, if it is too long.
    pub(crate) fn encode(&self, word: &[u8], out: &mut Vec<u32>) -> Result<()> {
        if self.ignore_merges
            && let Some(id) = self.ids.get(word)
        {
            out.push(*id);
            return Ok(());
        }
        if !self.whole
            && let Some(at) = word.iter().position(|b| self.bytes[usize::from(*b)] == NONE)
        {
            return Err(TokenizerError::NoToken { what: format!("the byte 0x{:02X}", word[at]), at });
        }
        match word {
            [] => {}
            [b] => out.push(self.bytes[usize::from(*b)]),
            _ if word.len() <= SHORT => self.short(word, out),
            _ if word.len() < NONE as usize => self.long(word, out),
            _ => return Err(TokenizerError::TooLong { len: word.len(), limit: NONE as usize }),
        }
        Ok(())
    }

    fn rank(&self, left: u32, right: u32) -> (u32, u32) {
        self.merges.get(&(left, right)).copied().unwrap_or((NONE, NONE))
    }

    /// `word` has 2 to [`SHORT`] bytes.
    fn short(&self, word: &[u8], out: &mut Vec<u32>) {
        let mut ids = [NONE; SHORT];
        // Of each piece with the next: rank and result.
        let mut pairs = [(NONE, NONE); SHORT];
        let mut len = word.len();
        for (id, b) in ids.iter_mut().zip(word) {
            *id = self.bytes[usize::from(*b)];
        }
        for i in 1..len {
            pairs[i - 1] = self.rank(ids[i - 1], ids[i]);
        }
        while len > 1 {
            let mut best = 0;
            for i in 1..len - 1 {
                if pairs[i].0 < pairs[best].0 {
                    best = i;
                }
            }
            let (rank, merged) = pairs[best];
            if rank == NONE {
                break;
            }
            ids[best] = merged;
            ids.copy_within(best + 2..len, best + 1);
            pairs.copy_within(best + 1..len, best);
            len -= 1;
            if best > 0 {
                pairs[best - 1] = self.rank(ids[best - 1], merged);
            }
            pairs[best] = if best + 1 < len { self.rank(merged, ids[best + 1]) } else { (NONE, NONE) };
        }
        out.extend(&ids[..len]);
    }

    fn long(&self, word: &[u8], out: &mut Vec<u32>) {
        // Positions fit u32: `encode` looked.
        let count = word.len() as u32;
        let mut ids: Vec<u32> = word.iter().map(|b| self.bytes[usize::from(*b)]).collect();
        let mut next: Vec<u32> = (1..=count).collect();
        let mut prev: Vec<u32> = (0..count).map(|i| i.wrapping_sub(1)).collect();
        // Rank, position, and the two tokens, to see later whether they still stand there.
        let pair = |ids: &[u32], at: u32, then: u32| {
            let (l, r) = (*ids.get(at as usize)?, *ids.get(then as usize)?);
            let (rank, merged) = *self.merges.get(&(l, r))?;
            Some(Reverse((rank, at, l, r, merged)))
        };
        let mut heap: BinaryHeap<_> = (1..count).filter_map(|i| pair(&ids, i - 1, i)).collect();
        while let Some(Reverse((_, at, l, r, merged))) = heap.pop() {
            let then = next[at as usize];
            if ids[at as usize] != l || ids.get(then as usize) != Some(&r) {
                continue;
            }
            ids[at as usize] = merged;
            ids[then as usize] = NONE;
            let after = next[then as usize];
            next[at as usize] = after;
            if let Some(p) = prev.get_mut(after as usize) {
                *p = at;
            }
            heap.extend(pair(&ids, prev[at as usize], at));
            heap.extend(pair(&ids, at, after));
        }
        out.extend(ids.iter().filter(|id| **id != NONE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::tests::Random;
    use tokenizers::Model as _;
    use tokenizers::models::bpe::{BPE, Vocab};

    /// Both models, of random merges over a few letters.
    fn random_models(random: &mut Random, ignore_merges: bool) -> (Bpe, BPE) {
        let mut spellings: Vec<String> = (0..=255).map(|b| byte_level::to_char(b).to_string()).collect();
        let mut pool: Vec<String> = ["a", "b", "Ġ", "Ã", "©"].map(String::from).into();
        let mut merges: Vec<(String, String)> = Vec::new();
        for _ in 0..30 {
            let pair = (pool[random.below(pool.len())].clone(), pool[random.below(pool.len())].clone());
            let joined = format!("{}{}", pair.0, pair.1);
            if !spellings.contains(&joined) {
                spellings.push(joined.clone());
                pool.push(joined);
                merges.push(pair);
            }
        }
        let tokens = || spellings.iter().map(String::as_str).zip(0u32..);
        let pairs = merges.iter().map(|(a, b)| Ok((a.as_str(), b.as_str())));
        let ours = Bpe::new(tokens(), pairs, ignore_merges).unwrap().unwrap();
        let vocab: Vocab = tokens().map(|(t, id)| (t.to_owned(), id)).collect();
        let theirs =
            BPE::builder().vocab_and_merges(vocab, merges).ignore_merges(ignore_merges).build().unwrap();
        (ours, theirs)
    }

    #[test]
    fn merges_as_the_tokenizers_crate_does() {
        let mut random = Random(21);
        for round in 0..300 {
            let (ours, theirs) = random_models(&mut random, round % 2 == 0);
            for _ in 0..20 {
                // Around the border between the two ways, and beyond.
                let len = random.below(2 * SHORT);
                let word: String = (0..len).map(|_| ["a", "b", " ", "é", "x"][random.below(5)]).collect();
                let mut spelt = String::new();
                byte_level::encode(word.as_bytes(), &mut spelt);
                let want: Vec<u32> = theirs.tokenize(&spelt).unwrap().iter().map(|t| t.id).collect();
                let mut got = Vec::new();
                ours.encode(word.as_bytes(), &mut got).unwrap();
                assert_eq!(got, want, "{word:?}");
                // Both ways, whatever the length.
                if (2..=SHORT).contains(&word.len()) && !ours.ignore_merges {
                    let mut long = Vec::new();
                    ours.long(word.as_bytes(), &mut long);
                    assert_eq!(long, want, "{word:?}");
                }
            }
        }
    }

    #[test]
    fn lies_are_named_and_other_alphabets_refused() {
        let bytes: Vec<String> = (0..=255).map(|b| byte_level::to_char(b).to_string()).collect();
        let tokens = || bytes.iter().map(String::as_str).zip(0u32..);
        let e = Bpe::new(tokens(), [Ok(("a", "b"))].into_iter(), false).unwrap_err().to_string();
        assert!(e.contains("merge 0") && e.contains("\"ab\""), "{e}");
        assert!(Bpe::new(tokens(), [Ok(("a", "中"))].into_iter(), false).unwrap().is_none());
    }

    #[test]
    fn bytes_without_a_token() {
        let bytes: Vec<String> = (0..=255).map(|b| byte_level::to_char(b).to_string()).collect();
        let tokens = bytes.iter().map(String::as_str).zip(0u32..).filter(|(_, id)| *id != 0xc0);
        let bpe = Bpe::new(tokens, std::iter::empty(), false).unwrap().unwrap();
        let mut out = Vec::new();
        bpe.encode(b"ab", &mut out).unwrap();
        assert_eq!(out, [97, 98]);
        for word in [&b"\xc0"[..], b"a\xc0", &[0xc0; 2 * SHORT]] {
            let e = bpe.encode(word, &mut out).unwrap_err();
            assert!(matches!(e, TokenizerError::NoToken { .. }) && e.to_string().contains("0xC0"), "{e}");
        }
        assert_eq!(out, [97, 98]);
        bpe.with_unknown(Some(7)).encode(b"a\xc0", &mut out).unwrap();
        assert_eq!(out, [97, 98, 97, 7]);
    }
}
