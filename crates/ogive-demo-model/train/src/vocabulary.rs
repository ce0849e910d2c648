//! The vocabulary: byte-level BPE, learned from the model's own texts.
//!
//! Its words are cut as GPT-2's pattern cuts this text, which has no more than letters, single spaces and a little punctuation;
//! so the file names `gpt-2` as its pre-tokenizer, and any program that reads GGUF cuts the same.

use crate::corpus::Corpus;
use crate::rng::Rng;
use ogive::weights::gguf_file::{Metadata, StringArray};
use std::collections::{BTreeMap, HashMap};

/// Texts it is learned from.
const TEXTS: u64 = 4000;

/// Tokens that no text spells. Their ids come first, so they do not depend on the vocabulary's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Begin,
    EndOfText,
    System,
    User,
    Assistant,
    End,
}

const SPECIAL: [&str; 6] =
    ["<|begin|>", "<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"];

/// Each message is its role's token, its text and the end of the turn; nothing between them.
const TEMPLATE: &str = "{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + \
    '<|end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}";

impl Special {
    pub(crate) fn id(self) -> u32 {
        self as u32
    }

    pub(crate) fn role(name: &str) -> Self {
        match name {
            "system" => Self::System,
            "user" => Self::User,
            _ => Self::Assistant,
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

/// Words with the space before them, other marks with the space before them.
fn words(text: &str) -> Vec<&str> {
    let kind = |c: char| {
        if c.is_alphabetic() {
            0
        } else if c.is_whitespace() {
            1
        } else {
            2
        }
    };
    let (mut out, mut start) = (Vec::new(), 0);
    let mut before: Option<char> = None;
    for (i, c) in text.char_indices() {
        if let Some(b) = before {
            // A space stays with what follows it, if it is the first of the word.
            let leads = b == ' ' && i == start + 1 && kind(c) != 1;
            if kind(b) != kind(c) && !leads {
                out.push(&text[start..i]);
                start = i;
            }
        }
        before = Some(c);
    }
    out.push(&text[start..]);
    out
}

/// Learns merges: the pair that occurs most often becomes a token, of equals the one that sorts first (Sennrich et al. 2016,
/// <https://arxiv.org/abs/1508.07909>).
fn learn(counts: &BTreeMap<String, usize>, most: usize) -> Vec<(String, String)> {
    let mut words: Vec<(Vec<String>, usize)> =
        counts.iter().map(|(w, n)| (w.bytes().map(|b| spell(b).to_string()).collect(), *n)).collect();
    let mut merges = Vec::new();
    while merges.len() < most {
        let mut pairs: HashMap<(&str, &str), usize> = HashMap::new();
        for (word, n) in &words {
            for w in word.windows(2) {
                *pairs.entry((&w[0], &w[1])).or_default() += n;
            }
        }
        let best = pairs.iter().max_by(|(p, n), (q, m)| n.cmp(m).then_with(|| q.cmp(p)));
        let Some((&(a, b), _)) = best else { break };
        let (a, b) = (a.to_owned(), b.to_owned());
        for (word, _) in &mut words {
            let mut i = 0;
            while i + 1 < word.len() {
                if word[i] == a && word[i + 1] == b {
                    word[i].push_str(&b);
                    word.remove(i + 1);
                }
                i += 1;
            }
        }
        merges.push((a, b));
    }
    merges
}

/// Learns a vocabulary of `size` tokens, as the metadata of a file.
pub(crate) fn metadata(corpus: &Corpus, seed: u64, size: usize) -> Metadata {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for i in 0..TEXTS {
        let text = corpus.plain(&mut Rng::of(seed, 0, i));
        for word in words(&text) {
            *counts.entry(word.to_owned()).or_default() += 1;
        }
    }
    // Capitals and countries are rarer than their weight in what the model is for.
    for (country, capital) in &corpus.countries {
        for word in words(&format!(" {country}")).into_iter().chain(words(&format!(" {capital}"))) {
            *counts.entry(word.to_owned()).or_default() += 40;
        }
    }
    let merges = learn(&counts, size - SPECIAL.len() - 256);
    let mut tokens: Vec<String> = SPECIAL.map(str::to_owned).to_vec();
    tokens.extend((0..=255).map(|b| spell(b).to_string()));
    tokens.extend(merges.iter().map(|(a, b)| format!("{a}{b}")));
    let (normal, control) = (1_i32, 3);
    let kinds: Vec<i32> =
        (0..tokens.len()).map(|i| if i < SPECIAL.len() { control } else { normal }).collect();
    let mut meta = Metadata::new();
    meta.set("tokenizer.ggml.model", "gpt2");
    meta.set("tokenizer.ggml.pre", "gpt-2");
    meta.set("tokenizer.ggml.tokens", tokens.iter().collect::<StringArray>());
    meta.set("tokenizer.ggml.token_type", kinds);
    meta.set(
        "tokenizer.ggml.merges",
        merges.iter().map(|(a, b)| format!("{a} {b}")).collect::<StringArray>(),
    );
    meta.set("tokenizer.ggml.bos_token_id", Special::Begin.id());
    meta.set("tokenizer.ggml.eos_token_id", Special::EndOfText.id());
    meta.set("tokenizer.ggml.eot_token_id", Special::End.id());
    meta.set("tokenizer.ggml.add_bos_token", true);
    meta.set("tokenizer.chat_template", TEMPLATE);
    meta
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive::tokenizer::{EncodeOptions, Tokenizer};

    #[test]
    fn words_are_cut_as_the_named_pattern_cuts_them() {
        assert_eq!(
            words("One day, \"No!\" he\nsaid."),
            ["One", " day", ",", " \"", "No", "!\"", " he", "\n", "said", "."]
        );
    }

    #[test]
    fn ogive_reads_it_and_gives_texts_back() {
        let corpus = Corpus::new();
        let meta = metadata(&corpus, 1, 700);
        let tokenizer = Tokenizer::from_gguf(&meta).unwrap();
        assert_eq!((tokenizer.vocab_size(), tokenizer.bos()), (700, Some(0)));
        assert!(tokenizer.is_eog(Special::End.id()) && tokenizer.is_eog(Special::EndOfText.id()));
        for i in 0..50 {
            let text = corpus.plain(&mut Rng::of(2, 0, i));
            let ids =
                tokenizer.encode(&text, EncodeOptions { add_special: false, parse_special: false }).unwrap();
            assert_eq!(tokenizer.decode(&ids).unwrap(), text);
            assert!(ids.len() * 2 < text.len(), "{} tokens for {} bytes", ids.len(), text.len());
        }
    }
}
