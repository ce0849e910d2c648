//! Every hand-written matcher against the regular expression that defines it, run by `fancy-regex` on random text made of the
//! characters the patterns distinguish.

use super::names::{for_pattern, known, patterns, pre};
use super::{Stage, split};
use std::ops::Range;

/// A small generator, so that a failure repeats.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n
    }
}

/// Characters of every class that some pattern treats apart.
const ALPHABET: &[&str] = &[
    "a",
    "b",
    "s",
    "t",
    "S",
    "re",
    "LL",
    "'s",
    "'T",
    "'Re",
    "'ve",
    "'m",
    "'d",
    "'",
    "'ſ",
    "ſ",
    "A",
    "B",
    "Z",
    "é",
    "É",
    "ǅ",
    "ʰ",
    "中",
    "文",
    "の",
    "ア",
    "אב",
    "\u{301}",
    "\u{94d}",
    "1",
    "2",
    "½",
    "٣",
    "Ⅷ",
    " ",
    " ",
    "  ",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "\u{a0}",
    "\u{3000}",
    "\u{85}",
    "!",
    "?",
    ".",
    "/",
    "-",
    "…",
    "$",
    "+",
    "😀",
    "👩\u{200d}🚀",
    "\u{200b}",
    "\0",
    "\u{fffd}",
    "_",
    "(",
    "|",
    "。",
    "《",
    "\u{e000}",
    "\u{10ffff}",
];

pub(crate) fn text(random: &mut Random) -> String {
    let (len, narrow) = (random.below(24), random.below(3) == 0);
    // A narrow alphabet makes long runs.
    let few: Vec<usize> = (0..3).map(|_| random.below(ALPHABET.len())).collect();
    (0..len)
        .map(|_| ALPHABET[if narrow { few[random.below(3)] } else { random.below(ALPHABET.len()) }])
        .collect()
}

fn reference(pattern: &fancy_regex::Regex, text: &str) -> Vec<Range<usize>> {
    pattern.find_iter(text).map(|m| m.unwrap()).map(|m| m.start()..m.end()).collect()
}

fn show<'t>(text: &'t str, pieces: &[Range<usize>]) -> Vec<&'t str> {
    pieces.iter().map(|r| &text[r.clone()]).collect()
}

#[test]
fn every_known_pattern_agrees_with_its_definition() {
    let mut random = Random(7);
    for (pattern, stage) in patterns() {
        let regex = fancy_regex::Regex::new(pattern).unwrap();
        for _ in 0..4000 {
            let text = text(&mut random);
            let got = super::with_gaps(&stage.matches(&text).unwrap(), text.len());
            let want = super::with_gaps(&reference(&regex, &text), text.len());
            assert_eq!(show(&text, &got), show(&text, &want), "{pattern} on {text:?}");
        }
    }
}

#[test]
fn patterns_that_nobody_listed_run_the_same_in_a_linear_engine() {
    let mut random = Random(11);
    for pattern in [
        r"\p{Lu}?[\p{L}\p{M}]+| ?\p{N}{1,2}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
        r"\p{L}+|\s+(?!\S)|\s+",
    ] {
        let Stage::Pattern(ours) = for_pattern(pattern).unwrap() else { panic!("{pattern} is listed") };
        let regex = fancy_regex::Regex::new(pattern).unwrap();
        for _ in 0..4000 {
            let text = text(&mut random);
            let got = super::with_gaps(&ours.matches(&text).unwrap(), text.len());
            let want = super::with_gaps(&reference(&regex, &text), text.len());
            assert_eq!(show(&text, &got), show(&text, &want), "{pattern} on {text:?}");
        }
    }
}

#[test]
fn a_pattern_that_gives_up_says_so() {
    // Catastrophic by construction, and with look-ahead, so that no linear engine takes it.
    let Stage::Pattern(p) = for_pattern(r"(?=x)(x+x+)+y").unwrap() else { panic!("listed") };
    let e = p.matches(&"x".repeat(5000)).unwrap_err().to_string();
    assert!(e.contains("gave up") && e.contains("(x+x+)+y"), "{e}");
    assert!(for_pattern("(unclosed").unwrap_err().to_string().contains("(unclosed"));
}

#[test]
fn every_name_opens_and_covers_the_text() {
    let mut random = Random(3);
    for name in known().split(", ") {
        let pre = pre(name).unwrap();
        for _ in 0..200 {
            let text = text(&mut random);
            let pieces = split(&pre.stages, &text).unwrap();
            assert_eq!(show(&text, &pieces).concat(), text, "{name}");
            assert!(pieces.iter().all(|r| !r.is_empty()), "{name}");
        }
    }
    let e = pre("llama-9").unwrap_err().to_string();
    assert!(e.contains("\"llama-9\"") && e.contains("qwen2") && e.contains("llama-bpe"), "{e}");
}

/// As in llama.cpp: one cut, and for the newer name whole words before merges.
#[test]
fn glm_4_has_two_names() {
    let (new, old) = (pre("glm4").unwrap(), pre("chatglm-bpe").unwrap());
    assert_eq!(format!("{:?}", new.stages), format!("{:?}", old.stages));
    assert_eq!((new.ignore_merges, old.ignore_merges), (true, false));
    assert_eq!((new.add_bos, old.add_bos), (false, false));
    assert!(pre("glm5").unwrap().ignore_merges);
    let (alias, model) = (pre("hy_v4").unwrap(), pre("deepseek-v3").unwrap());
    assert_eq!(format!("{:?}", alias.stages), format!("{:?}", model.stages));
}

#[test]
fn words_of_an_ordinary_sentence() {
    let text = "It's  2024,\n\nI'LL pay $1234.50 – naïve café!! \n";
    let cut = |name| show(text, &split(&pre(name).unwrap().stages, text).unwrap());
    let gpt2 = [
        "It", "'s", " ", " 2024", ",", "\n", "\n", "I", "'", "LL", " pay", " $", "1234", ".", "50", " –",
        " naïve", " café", "!!", " \n",
    ];
    assert_eq!(cut("gpt-2"), gpt2);
    let llama = [
        "It", "'s", " ", " ", "202", "4", ",\n\n", "I", "'LL", " pay", " $", "123", "4", ".", "50", " –",
        " naïve", " café", "!!", " \n",
    ];
    assert_eq!(cut("llama-bpe"), llama);
    assert_eq!(cut("qwen2")[..9], ["It", "'s", " ", " ", "2", "0", "2", "4", ",\n\n"]);
}
