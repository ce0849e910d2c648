//! SentencePiece's compiled rules of normalisation (`precompiled_charsmap`): which characters become which text.
//!
//! The table is a double array (Darts-clone), then texts with a NUL behind each. All of it is checked when it is opened, so that a damaged
//! one is refused and not half obeyed. A text is looked up as the `tokenizers` crate does it and not as SentencePiece does, which takes the longest
//! match anywhere: a grapheme of up to five bytes becomes what its *shortest* beginning with an entry becomes (so an accent behind a
//! wide letter is lost), others go character by character. Folders were always cut by that crate, and a file is cut as its folder is.

use crate::{Result, TokenizerError};
use std::borrow::Cow;
use unicode_segmentation::UnicodeSegmentation;

/// Longer graphemes are looked up by their characters.
const SHORT: usize = 5;
/// The bit of a unit that is a value, the place of a text, and no transition.
const VALUE: u32 = 1 << 31;

/// The rules.
#[derive(Clone)]
pub(crate) struct Precompiled {
    units: Box<[u32]>,
    texts: Box<str>,
}

impl std::fmt::Debug for Precompiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Precompiled").field("units", &self.units.len()).finish_non_exhaustive()
    }
}

/// What a unit's transitions are exclusive-ored with.
fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize
}

impl Precompiled {
    /// Reads a table: the bytes of its units, units, texts. Numbers are little-endian.
    pub(crate) fn new(bytes: &[u8]) -> Result<Self> {
        let damaged = |what: String| TokenizerError::Vocabulary(format!("its precompiled_charsmap {what}"));
        let cut = || damaged(format!("ends early, after {} bytes; is the file complete?", bytes.len()));
        let (len, rest) = bytes.split_first_chunk().ok_or_else(cut)?;
        let len = usize::try_from(u32::from_le_bytes(*len)).map_err(|_| cut())?;
        let (units, texts) = rest.split_at_checked(len).ok_or_else(cut)?;
        let (units, []) = units.as_chunks() else {
            return Err(damaged(format!("has units of {len} bytes, which is no multiple of four")));
        };
        let texts = std::str::from_utf8(texts).map_err(|e| damaged(format!("has texts in no UTF-8: {e}")))?;
        let units: Box<[u32]> = units.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
        // Whatever byte comes next, a transition stays within a block of 256 units.
        let inside = |(at, unit): (usize, u32)| match unit & VALUE {
            0 => (at ^ offset(unit)) | 0xff < units.len(),
            _ => texts.is_char_boundary((unit & !VALUE) as usize),
        };
        match units.iter().copied().enumerate().position(|unit| !inside(unit)) {
            Some(at) => Err(damaged(format!("leads out of itself at unit {at} of {}", units.len()))),
            None => Ok(Self { units, texts: texts.into() }),
        }
    }

    /// Reads a table as tokenizer.json has it, in Base64.
    pub(crate) fn from_base64(text: &str) -> Result<Self> {
        let bytes = base64(text.as_bytes());
        Self::new(&bytes.ok_or_else(|| {
            TokenizerError::Vocabulary("its precompiled_charsmap is no Base64; is the file complete?".into())
        })?)
    }

    /// The table as [`new`](Self::new) reads it.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let len = u32::try_from(self.units.len() * 4).unwrap_or(u32::MAX);
        let units = self.units.iter().flat_map(|unit| unit.to_le_bytes());
        len.to_le_bytes().into_iter().chain(units).chain(self.texts.bytes()).collect()
    }

    /// What the shortest beginning of `part` that has an entry becomes.
    fn entry(&self, part: &str) -> Option<&str> {
        let mut at = offset(*self.units.first()?);
        for byte in part.bytes().take_while(|byte| *byte != 0) {
            at ^= usize::from(byte);
            let unit = *self.units.get(at)?;
            if unit & (VALUE | 0xff) != u32::from(byte) {
                return None;
            }
            at ^= offset(unit);
            if unit & (1 << 8) != 0 {
                let from = (self.units.get(at)? & !VALUE) as usize;
                return self.texts.get(from..)?.split('\0').next();
            }
        }
        None
    }

    pub(crate) fn apply<'t>(&self, text: Cow<'t, str>) -> Cow<'t, str> {
        let (mut out, mut kept) = (String::new(), 0);
        let mut put = |at: usize, part: &str| {
            let Some(entry) = self.entry(part) else { return false };
            out.push_str(&text[kept..at]);
            out.push_str(entry);
            kept = at + part.len();
            true
        };
        for (at, grapheme) in text.grapheme_indices(true) {
            if grapheme.len() > SHORT || !put(at, grapheme) {
                for (i, c) in grapheme.char_indices() {
                    put(at + i, &grapheme[i..i + c.len_utf8()]);
                }
            }
        }
        if kept == 0 && out.is_empty() {
            return text;
        }
        out.push_str(&text[kept..]);
        Cow::Owned(out)
    }
}

/// The bytes of Base64 (RFC 4648) with padding.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => Some(c - b'A'),
        b'a'..=b'z' => Some(c - b'a' + 26),
        b'0'..=b'9' => Some(c - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for four in digits.chunks(4) {
        let bits = four.iter().try_fold(0, |bits, c| Some(bits << 6 | u32::from(digit(*c)?)))?;
        let [_, all @ ..] = (bits << (6 * (4 - four.len()))).to_be_bytes();
        bytes.extend(all.iter().take(four.len() * 6 / 8));
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::tests::Random;
    use tokenizers::normalizers::Precompiled as Theirs;
    use tokenizers::{NormalizedString, Normalizer};

    /// Of some rules of SentencePiece's nmt_nfkc (`xtask/golden/pieces.py`).
    fn table() -> Vec<u8> {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/xlm-roberta");
        let json = std::fs::read(format!("{golden}/tokenizer.json")).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let table = json.pointer("/normalizer/precompiled_charsmap").unwrap();
        base64(table.as_str().unwrap().as_bytes()).unwrap()
    }

    const CHARACTERS: &str = "ab é ｅ\u{301}\u{300} Ａ①½ﬁ\u{3000}\u{a0}\u{200b}\t\r\n\0\u{1}™가\u{1100}\u{1161}\u{11a8}か\u{3099}がｶ\u{ff9e}👩\u{200d}👩\u{fe0f}🇩🇪क्षि\u{85}";

    fn text(random: &mut Random) -> String {
        let all: Vec<char> = CHARACTERS.chars().collect();
        (0..random.below(12)).map(|_| all[random.below(all.len())]).collect()
    }

    #[test]
    fn texts_become_what_the_tokenizers_crate_makes_of_them() {
        let (ours, theirs) = (Precompiled::new(&table()).unwrap(), Theirs::from(&table()).unwrap());
        assert_eq!(ours.bytes(), table());
        let (mut random, mut changed) = (Random(7), 0);
        for _ in 0..20_000 {
            let text = text(&mut random);
            let mut want = NormalizedString::from(&*text);
            theirs.normalize(&mut want).unwrap();
            assert_eq!(ours.apply(Cow::Borrowed(&text)), want.get(), "{text:?}");
            changed += usize::from(want.get() != text);
        }
        assert!(changed > 10_000, "{changed}");
        // An accent goes with the wide letter that stands before it, and stays behind another.
        assert_eq!(ours.apply("Ａ\u{301}e\u{301}".into()), "Aé");
        assert!(matches!(ours.apply("ab c".into()), Cow::Borrowed(_)));
    }

    #[test]
    fn damaged_tables_are_refused_or_harmless() {
        let (table, mut random, mut refused) = (table(), Random(3), 0);
        for _ in 0..3000 {
            let mut bytes = table.clone();
            for _ in 0..1 + random.below(8) {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
            bytes.truncate(if random.below(4) == 0 { random.below(bytes.len()) } else { bytes.len() });
            match Precompiled::new(&bytes) {
                Ok(rules) => (0..20).for_each(|_| drop(rules.apply(text(&mut random).into()))),
                Err(e) => {
                    refused += 1;
                    assert!(e.to_string().contains("precompiled_charsmap"), "{e}");
                }
            }
        }
        assert!((500..2900).contains(&refused), "{refused}");
        let of = |len: u32, rest: &[u8]| {
            Precompiled::new(&[&len.to_le_bytes(), rest].concat()).unwrap_err().to_string()
        };
        assert!(of(8, &[0; 7]).contains("ends early") && of(6, &[0; 8]).contains("multiple of four"));
        assert!(
            of(0, &[0xff]).contains("no UTF-8") && of(4, &[0; 4]).contains("out of itself at unit 0 of 1")
        );
        assert_eq!(Precompiled::new(&[0; 4]).unwrap().apply("Ａ".into()), "Ａ");
        for no in ["AAA", "AA=A", "AA A", "=AAA"] {
            let e = Precompiled::from_base64(no).unwrap_err().to_string();
            assert!(e.contains("no Base64"), "{no}: {e}");
        }
        Precompiled::from_base64("AAAAAA==").unwrap();
    }
}
