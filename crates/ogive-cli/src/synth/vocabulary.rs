//! A working vocabulary of any size: byte-level BPE with the 256 bytes, a few hundred real merges and made-up words.
//!
//! Real vocabularies belong to their makers and would have to be shipped. Measuring needs only that text becomes ids and
//! back without loss, that English costs about as much memory and time per token, and that the head has its real size. So
//! merges are learned here, each time, from a page of text (some milliseconds), and what is left is filled with words of
//! three syllables, each a token that no merge makes: a random model answers with them, and it can be read aloud.

use super::text::TEXT;
use ogive::weights::gguf_file::StringArray;
use std::collections::{BTreeMap, HashSet};

/// Begins a text.
pub(crate) const BOS: &str = "<|begin|>";
/// Ends a text.
pub(crate) const EOS: &str = "<|endoftext|>";
/// Ends a turn; llama.cpp and we know the name.
pub(crate) const EOT: &str = "<|end|>";
/// Begins a turn; the name of who speaks follows.
const ROLE: &str = "<|role|>";
/// The special tokens, which come last as in Llama's and Qwen's vocabularies.
const SPECIAL: [&str; 4] = [BOS, EOS, ROLE, EOT];

/// Our own, and short: BOS, then for each message its role, a line end, its text and the end of the turn.
pub(crate) const TEMPLATE: &str = "{{ bos_token }}{% for message in messages %}{{ '<|role|>' + message['role'] + '\\n' + \
    message['content'] + '<|end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|role|>assistant\\n' }}{% endif %}";

/// Merges to learn at most. The page has no more that occur twice.
const MERGES: usize = 600;

/// GGUF's kinds of tokens.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;

/// The tokens in the order of their ids, their kinds, and the merges from the most important down.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    pub(crate) tokens: StringArray,
    pub(crate) kinds: Vec<i32>,
    pub(crate) merges: StringArray,
    /// Ids of [`BOS`], [`EOS`] and [`EOT`].
    pub(crate) bos: u32,
    pub(crate) eos: u32,
    pub(crate) eot: u32,
}

impl Vocabulary {
    /// A vocabulary of `size` tokens: at least the 256 bytes and four special ones.
    pub(crate) fn new(size: usize) -> Self {
        let room = size.saturating_sub(256 + SPECIAL.len());
        let merges = learn(TEXT, room.min(MERGES));
        let mut tokens: Vec<String> = (0..=255).map(|b| spell(b).to_string()).collect();
        tokens.extend(merges.iter().map(|(a, b)| format!("{a}{b}")));
        let known: HashSet<String> = tokens.iter().cloned().collect();
        tokens.extend(
            (0..).map(word).filter(|w| !known.contains(w)).take((256 + room).saturating_sub(known.len())),
        );
        let first = tokens.len();
        tokens.extend(SPECIAL.map(str::to_owned));
        let mut kinds = vec![NORMAL; first];
        kinds.resize(tokens.len(), CONTROL);
        let id = |i: usize| (first + i) as u32;
        Self {
            tokens: tokens.iter().collect(),
            kinds,
            merges: merges.iter().map(|(a, b)| format!("{a} {b}")).collect(),
            bos: id(0),
            eos: id(1),
            eot: id(3),
        }
    }
}

/// How byte-level vocabularies spell a byte: printable Latin-1 as it is, the others from U+0100 on, in order (OpenAI's
/// `bytes_to_unicode`).
fn spell(byte: u8) -> char {
    let direct = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if direct(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|b| !direct(*b)).count() as u32;
    char::from_u32(0x100 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The `i`-th made-up word, a space before it.
fn word(i: u64) -> String {
    const CONSONANTS: &[u8] = b"bdfghjklmnprstvwz";
    const VOWELS: &[u8] = b"aeiou";
    const SYLLABLES: u64 = (CONSONANTS.len() * VOWELS.len()) as u64;
    let mut word = String::from(spell(b' '));
    // Three syllables make 614,125 words, more than any vocabulary has; spread, so that neighbours do not sound alike.
    let mut rest = i * 368_471 % SYLLABLES.pow(3);
    for _ in 0..3 {
        let s = (rest % SYLLABLES) as usize;
        word.push(char::from(CONSONANTS[s / VOWELS.len()]));
        word.push(char::from(VOWELS[s % VOWELS.len()]));
        rest /= SYLLABLES;
    }
    word
}

/// Learns up to `most` merges: the pair that occurs most often becomes a token, of equals the one that sorts first, until
/// none occurs twice (Sennrich et al. 2016, <https://arxiv.org/abs/1508.07909>).
fn learn(text: &str, most: usize) -> Vec<(String, String)> {
    let mut words: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    for word in text.split(|c: char| !c.is_alphabetic()).filter(|w| !w.is_empty()) {
        // With a space before it, as the splitters cut nearly all words.
        let spelling = [b' '].into_iter().chain(word.bytes()).map(|b| spell(b).to_string());
        *words.entry(spelling.collect()).or_default() += 1;
    }
    let mut words: Vec<(Vec<String>, usize)> = words.into_iter().collect();
    let mut merges = Vec::new();
    while merges.len() < most {
        let mut pairs: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for (word, n) in &words {
            for w in word.windows(2) {
                *pairs.entry((&w[0], &w[1])).or_default() += n;
            }
        }
        // The last maximum of the reversed order is the first pair.
        let Some((&(a, b), _)) = pairs.iter().rev().filter(|(_, n)| **n > 1).max_by_key(|(_, n)| **n) else {
            break;
        };
        let (a, b) = (a.to_owned(), b.to_owned());
        for (word, _) in &mut words {
            join(word, &a, &b);
        }
        merges.push((a, b));
    }
    merges
}

/// Makes one piece of each `a` followed by `b`.
fn join(word: &mut Vec<String>, a: &str, b: &str) {
    let mut i = 0;
    while i + 1 < word.len() {
        if word[i] == a && word[i + 1] == b {
            word[i].push_str(b);
            word.remove(i + 1);
        }
        i += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_merges_are_the_most_frequent_pairs() {
        // " aab" twice: the pairs are (Ġ a), (a a), (a b) twice each; the first in order is joined.
        let merges = learn("aab aab", 10);
        let text: Vec<String> = merges.iter().map(|(a, b)| format!("{a} {b}")).collect();
        assert_eq!(text, ["a a", "aa b", "Ġ aab"]);
        assert!(learn("abc", 10).is_empty(), "nothing occurs twice");
    }

    #[test]
    fn has_its_size_and_no_token_twice() {
        for size in [512, 32_768, 256_000] {
            let v = Vocabulary::new(size);
            assert_eq!((v.tokens.len(), v.kinds.len()), (size, size));
            assert_eq!(v.tokens.iter().collect::<HashSet<_>>().len(), size);
            let at = |id: u32| v.tokens.get_str(id as usize).unwrap();
            assert_eq!((at(v.bos), at(v.eos), at(v.eot)), (BOS, EOS, EOT));
            // Every half of a merge and what it makes are tokens.
            let tokens: HashSet<&str> = v.tokens.iter_str().map(Result::unwrap).collect();
            for merge in v.merges.iter_str() {
                let (a, b) = merge.unwrap().split_once(' ').unwrap();
                assert!([a, b, &format!("{a}{b}")].iter().all(|t| tokens.contains(t)), "{a} {b}");
            }
        }
    }
}
