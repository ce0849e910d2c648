//! The constraint against a matcher without lexemes, lexers or tables: random grammars, and every text they have.
//!
//! The matcher is the definition: for each rule and each place in a text, where can it end? It asks until no answer grows.
#![allow(clippy::unwrap_used)]

use ogive_grammar::{Constraint, Grammar, Token, Vocabulary};
use ogive_sampler::{Rng, Stage};
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
enum Expr {
    Text(&'static str),
    /// A class, and whether it is negated.
    Class(&'static str, bool),
    Any,
    Rule(usize),
    Seq(Vec<Self>),
    Alt(Vec<Self>),
    Repeat(Box<Self>, usize, Option<usize>),
}

use Expr::{Alt, Any, Class, Repeat, Rule, Seq, Text};

fn random(rng: &mut Rng, rules: usize, depth: usize) -> Expr {
    let mut below = |n: u64| rng.below(n);
    if depth == 0 {
        return match below(12) {
            0..=3 => Text(["a", "b", "c", "ab", "bc", "aa", ""][below(7) as usize]),
            4 | 5 => Class(["a", "ab", "bc", "abc"][below(4) as usize], false),
            6 => Class(["a", "c"][below(2) as usize], true),
            7 => Any,
            _ => Rule(below(rules as u64) as usize),
        };
    }
    let (kind, n) = (below(8), below(2) as usize + 1);
    match kind {
        0..=2 => Seq((0..=n).map(|_| random(rng, rules, depth - 1)).collect()),
        3 | 4 => Alt((0..=n).map(|_| random(rng, rules, depth - 1)).collect()),
        5 => {
            let bounds = [(0, None), (1, None), (0, Some(1)), (2, Some(2)), (1, Some(3)), (2, None)];
            let (min, max) = bounds[rng.below(6) as usize];
            Repeat(Box::new(random(rng, rules, depth - 1)), min, max)
        }
        _ => random(rng, rules, depth - 1),
    }
}

fn print(expr: &Expr) -> String {
    let all = |list: &[Expr], between: &str| list.iter().map(print).collect::<Vec<_>>().join(between);
    match expr {
        Text(t) => format!("{t:?}"),
        Class(c, negated) => format!("[{}{c}]", if *negated { "^" } else { "" }),
        Any => ".".into(),
        Rule(0) => "root".into(),
        Rule(r) => format!("r{r}"),
        Seq(list) => format!("({})", all(list, " ")),
        Alt(list) => format!("({})", all(list, " | ")),
        Repeat(inner, min, max) => {
            format!("({}){{{min},{}}}", print(inner), max.map_or(String::new(), |n| n.to_string()))
        }
    }
}

/// Ends by rule and place.
type Table = Vec<Vec<BTreeSet<usize>>>;

fn ends(expr: &Expr, text: &[u8], from: &BTreeSet<usize>, table: &Table) -> BTreeSet<usize> {
    let byte = |pass: &dyn Fn(u8) -> bool| {
        from.iter().filter(|&&i| text.get(i).is_some_and(|&b| pass(b))).map(|i| i + 1).collect()
    };
    match expr {
        Text(t) => {
            from.iter().filter(|&&i| text[i..].starts_with(t.as_bytes())).map(|i| i + t.len()).collect()
        }
        Class(c, negated) => byte(&|b| c.as_bytes().contains(&b) != *negated),
        Any => byte(&|_| true),
        Rule(r) => from.iter().flat_map(|&i| table[*r][i].iter().copied()).collect(),
        Seq(list) => list.iter().fold(from.clone(), |from, e| ends(e, text, &from, table)),
        Alt(list) => list.iter().flat_map(|e| ends(e, text, from, table)).collect(),
        Repeat(inner, min, max) => {
            let (mut all, mut at) = (BTreeSet::new(), from.clone());
            // More rounds than there are bytes reach nothing new.
            for round in 0..=max.unwrap_or(min + text.len() + 1) {
                if round >= *min {
                    all.extend(&at);
                }
                at = ends(inner, text, &at, table);
            }
            all
        }
    }
}

fn matches(rules: &[Expr], text: &[u8]) -> bool {
    let mut table: Table = vec![vec![BTreeSet::new(); text.len() + 1]; rules.len()];
    loop {
        let mut grown = false;
        for (r, rule) in rules.iter().enumerate() {
            for i in 0..=text.len() {
                let found = ends(rule, text, &BTreeSet::from([i]), &table);
                grown |= found.len() > table[r][i].len();
                table[r][i] = found;
            }
        }
        if !grown {
            return table[0][0].contains(&text.len());
        }
    }
}

const LONGEST: usize = 4;
const TOKENS: [&str; 8] = ["a", "b", "c", "ab", "bc", "ca", "abc", "aab"];
const END: u32 = TOKENS.len() as u32;

/// All texts up to a length that the constraint lets through, by every way through the vocabulary.
fn texts(constraint: &Constraint, tokens: &mut Vec<u32>, text: &str, found: &mut BTreeSet<String>) {
    let mut here = constraint.clone();
    here.mask(tokens);
    let may_end = here.allowed().allows(END);
    assert_eq!(may_end, here.is_complete(tokens), "{text}");
    if may_end {
        found.insert(text.into());
    }
    for (id, token) in (0..).zip(TOKENS) {
        if text.len() + token.len() <= LONGEST && here.allowed().allows(id) {
            tokens.push(id);
            // Now and then from the copy that was here before, which goes on from elsewhere by then.
            let from = if tokens.len().is_multiple_of(2) { constraint } else { &here };
            texts(from, tokens, &format!("{text}{token}"), found);
            tokens.pop();
        }
    }
}

#[test]
fn random_grammars_have_the_texts_that_they_have() {
    let tokens = TOKENS.iter().map(|t| Token::Text(t.as_bytes())).chain([Token::Special(b"</s>")]);
    let vocabulary = Vocabulary::new(tokens, &[END]).unwrap();
    let mut all = vec![String::new()];
    for i in 0.. {
        if all.get(i).is_none_or(|t| t.len() == LONGEST) {
            break;
        }
        for c in ["a", "b", "c"] {
            all.push(format!("{}{c}", all[i]));
        }
    }
    let mut rng = Rng::new(2026);
    let (mut tried, mut endless, mut sentences) = (0, 0, 0);
    while tried < 150 {
        let n = 1 + rng.below(4) as usize;
        let rules: Vec<Expr> = (0..n).map(|_| random(&mut rng, n, 3)).collect();
        let mut grammar = String::new();
        for (r, rule) in rules.iter().enumerate() {
            grammar += &format!("{} ::= {}\n", print(&Rule(r)), print(rule));
        }
        let read = match Grammar::gbnf(&grammar) {
            Ok(read) => read,
            Err(e) => {
                assert!(e.to_string().contains("never end"), "{grammar}{e}");
                assert!(all.iter().all(|text| !matches(&rules, text.as_bytes())), "{grammar}");
                endless += 1;
                continue;
            }
        };
        let expected: BTreeSet<String> =
            all.iter().filter(|t| matches(&rules, t.as_bytes())).cloned().collect();
        tried += 1;
        let constraint = match read.compile(&vocabulary) {
            Ok(constraint) => constraint,
            // Such as `[^abc]`: nothing of it is in the vocabulary.
            Err(e) => {
                assert!(expected.is_empty() && e.to_string().contains("no token"), "{grammar}{e}");
                continue;
            }
        };
        let mut constraint = constraint;
        constraint.mask(&[]);
        let mut found = BTreeSet::new();
        texts(&constraint, &mut Vec::new(), "", &mut found);
        assert_eq!(found, expected, "{grammar}");
        sentences += found.len();
    }
    assert!(sentences > 500, "{sentences} sentences, {endless} endless grammars");
}
