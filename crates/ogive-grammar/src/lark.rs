//! A cut grammar as llguidance reads it: text in its dialect of Lark.
//!
//! Text and not llguidance's own structures, because those cannot be handed over from outside the crate. Every character is
//! written as a number, so nothing needs quoting.

use crate::error::{GrammarError, at_most};
use crate::expr::{Arena, Id, Node, TokenRef};
use crate::lexemes::{Cut, Sym};
use std::collections::BTreeSet;
use std::fmt::Write;

/// What tokens are called in a vocabulary.
pub(crate) trait Tokens {
    /// The number of a token that is named in a grammar.
    fn resolve(&self, token: &TokenRef) -> Result<u32, GrammarError>;
    /// All that may be part of a text, as ascending ranges, but for `except`, which ascends.
    fn all_but(&self, except: &BTreeSet<u32>) -> Vec<(u32, u32)>;
}

/// Bytes of that text: what llguidance makes of them is ten times as large.
const MAX_BYTES: usize = 16 << 20;

/// Symbols of a grammar, which llguidance has 16 bits for. It panics where they do not do.
const MAX_SYMBOLS: usize = 65_000;

/// The grammar as text; rule 0 is what it begins with.
pub(crate) fn write(arena: &Arena, cut: &Cut, tokens: &dyn Tokens) -> Result<String, GrammarError> {
    let mut named = BTreeSet::new();
    for sym in cut.rules.iter().flatten().flatten() {
        collect(sym, tokens, &mut named)?;
    }
    let symbols = symbols(cut).saturating_add(3 * named.len());
    at_most("its number of symbols, once it is cut into parts,", symbols, MAX_SYMBOLS)?;
    let mut writer =
        Writer { out: String::from("start: r0\n"), plain: BTreeSet::new(), negated: BTreeSet::new(), tokens };
    for (r, alternatives) in cut.rules.iter().enumerate() {
        let _ = write!(writer.out, "r{r}:");
        for (i, sequence) in alternatives.iter().enumerate() {
            writer.out.push_str(if i > 0 { " |" } else { "" });
            if sequence.is_empty() {
                writer.out.push_str(" \"\"");
            }
            for sym in sequence {
                writer.out.push(' ');
                writer.sym(sym)?;
            }
            writer.fits(0)?;
        }
        writer.out.push('\n');
    }
    writer.others(&named)?;
    for (l, &id) in cut.lexemes.iter().enumerate() {
        let _ = write!(writer.out, "l{l}: T{l}\nT{l}: /");
        let facts = arena.facts(id);
        writer.fits(facts.ranges.saturating_mul(RANGE).saturating_add(facts.size.saturating_mul(PART)))?;
        regex(arena, id, &mut writer.out);
        // A lexeme has at least one character; that there may be none is the rules' business.
        writer.out.push_str(if facts.nullable { "/ & /(?s:.)+/\n" } else { "/\n" });
    }
    Ok(writer.out)
}

/// Bytes of a range of characters, and of what else a part of an expression is written with, at the least.
const RANGE: u64 = 6;
const PART: u64 = 1;

/// About how many symbols llguidance makes of it, and seldom fewer.
fn symbols(cut: &Cut) -> usize {
    // What repeats is put together of repetitions a quarter as long.
    let levels = |n: u32| n.ilog2() as usize / 2 + 1;
    let exactly = |n: u32| match n {
        0 | 1 => 0,
        2..=8 => 1,
        _ => 3 * levels(n),
    };
    let at_most = |n: u32| match n {
        0..12 => n as usize,
        _ => 13 * levels(n),
    };
    let repeats = |sym: &Sym| {
        let (mut sum, mut sym) = (0, sym);
        while let Sym::Repeat(inner, min, max) = sym {
            sum += 1 + exactly(*min) + max.map_or(1, |max| at_most(max.saturating_sub(*min)));
            sym = inner;
        }
        sum
    };
    let sequence = |syms: &Vec<Sym>| usize::from(syms.len() > 1) + syms.iter().map(repeats).sum::<usize>();
    let rule = |ways: &Vec<Vec<Sym>>| usize::from(ways.len() != 1) + ways.iter().map(sequence).sum::<usize>();
    cut.lexemes.len() + cut.rules.iter().map(rule).sum::<usize>()
}

fn collect(sym: &Sym, tokens: &dyn Tokens, named: &mut BTreeSet<u32>) -> Result<(), GrammarError> {
    match sym {
        Sym::Token(token) => drop(named.insert(tokens.resolve(token)?)),
        Sym::Repeat(sym, ..) => collect(sym, tokens, named)?,
        Sym::Lexeme(_) | Sym::Rule(_) => {}
    }
    Ok(())
}

/// Lexemes and tokens are rules of their own: llguidance makes a symbol for each time that one stands in a rule.
struct Writer<'t> {
    out: String,
    /// The tokens that are named, each of which is a rule `k` and its number.
    plain: BTreeSet<u32>,
    /// The tokens in whose place any other may stand, each of which is a rule `n` and its number.
    negated: BTreeSet<u32>,
    tokens: &'t dyn Tokens,
}

impl Writer<'_> {
    /// Whether there is room for so much more.
    fn fits(&self, more: u64) -> Result<(), GrammarError> {
        let length = self.out.len().saturating_add(usize::try_from(more).unwrap_or(usize::MAX));
        at_most("its length in bytes, written out for its tokens and sets of characters,", length, MAX_BYTES)
    }

    /// The rules for what is not one token: each of the others. llguidance takes the first set of tokens that one is in, so no
    /// token may be in two, and those that are named stand by themselves.
    fn others(&mut self, named: &BTreeSet<u32>) -> Result<(), GrammarError> {
        if self.negated.is_empty() {
            return self.plain();
        }
        let rest = self.tokens.all_but(named);
        if !rest.is_empty() {
            let rest: Vec<_> = rest.iter().map(|(low, high)| format!("{low}-{high}")).collect();
            let _ = writeln!(self.out, "rest: <[{}]>", rest.join(","));
        }
        for id in std::mem::take(&mut self.negated) {
            let others = named.iter().filter(|other| **other != id).map(|other| format!("k{other}"));
            let choice: Vec<_> = others.chain((!rest.is_empty()).then(|| "rest".into())).collect();
            if choice.is_empty() {
                let why = "beside which the vocabulary has no token to use; leave it out";
                return Err(GrammarError::Token { token: format!("!<[{id}]>"), why });
            }
            let _ = writeln!(self.out, "n{id}: {}", choice.join(" | "));
            self.fits(0)?;
        }
        self.plain.extend(named);
        self.plain()
    }

    /// The rules for tokens.
    fn plain(&mut self) -> Result<(), GrammarError> {
        for id in std::mem::take(&mut self.plain) {
            let _ = writeln!(self.out, "k{id}: <[{id}]>");
        }
        self.fits(0)
    }

    fn sym(&mut self, sym: &Sym) -> Result<(), GrammarError> {
        match sym {
            Sym::Lexeme(l) => drop(write!(self.out, "l{l}")),
            Sym::Rule(r) => drop(write!(self.out, "r{r}")),
            Sym::Token(token) => {
                let id = self.tokens.resolve(token)?;
                if token.negated {
                    self.negated.insert(id);
                    let _ = write!(self.out, "n{id}");
                } else {
                    self.plain.insert(id);
                    let _ = write!(self.out, "k{id}");
                }
            }
            Sym::Repeat(inner, min, max) => {
                self.out.push('(');
                self.sym(inner)?;
                self.out.push(')');
                let _ = match (min, max) {
                    (0, None) => write!(self.out, "*"),
                    (1, None) => write!(self.out, "+"),
                    (min, None) => write!(self.out, "{{{min},}}"),
                    (min, Some(max)) => write!(self.out, "{{{min},{max}}}"),
                };
            }
        }
        Ok(())
    }
}

/// A regular expression in the syntax of the `regex` crate.
fn regex(arena: &Arena, id: Id, out: &mut String) {
    match arena.node(id) {
        Node::Class(class) => match class.ranges() {
            [(low, high)] if low == high => drop(write!(out, "\\x{{{low:x}}}")),
            ranges => {
                out.push('[');
                for (low, high) in ranges {
                    let _ = write!(out, "\\x{{{low:x}}}-\\x{{{high:x}}}");
                }
                out.push(']');
            }
        },
        Node::Seq(ids) => {
            out.push_str("(?:");
            ids.iter().for_each(|&id| regex(arena, id, out));
            out.push(')');
        }
        Node::Alt(ids) => {
            out.push_str("(?:");
            for (i, &id) in ids.iter().enumerate() {
                out.push_str(if i > 0 { "|" } else { "" });
                regex(arena, id, out);
            }
            out.push(')');
        }
        Node::Repeat(inner, min, max) => {
            out.push_str("(?:");
            regex(arena, *inner, out);
            out.push(')');
            let _ = match (min, max) {
                (0, None) => write!(out, "*"),
                (1, None) => write!(out, "+"),
                (0, Some(1)) => write!(out, "?"),
                (min, None) => write!(out, "{{{min},}}"),
                (min, Some(max)) => write!(out, "{{{min},{max}}}"),
            };
        }
        // Not regular, so in no lexeme.
        Node::Token(_) | Node::Rule(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{gbnf, lexemes};

    /// So many tokens, all of them in use.
    struct Numbers(u32);

    impl Tokens for Numbers {
        fn resolve(&self, token: &TokenRef) -> Result<u32, GrammarError> {
            Ok(token.id.unwrap())
        }

        fn all_but(&self, except: &BTreeSet<u32>) -> Vec<(u32, u32)> {
            (0..self.0).filter(|id| !except.contains(id)).map(|id| (id, id)).collect()
        }
    }

    fn written(text: &str, tokens: u32) -> Result<String, GrammarError> {
        let mut rules = gbnf::parse(text).unwrap();
        rules.inline().unwrap();
        let cut = lexemes::cut(&mut rules);
        write(&rules.arena, &cut, &Numbers(tokens))
    }

    /// What other tokens there are is written once, and which they are once for each that is not to be.
    #[test]
    fn tokens_that_are_not_to_be_are_written_once() {
        let named: String = (0..100).map(|id| format!(" <[{}]>", 2 * id)).collect();
        let uses =
            |n: usize| written(&format!("root ::={named}{}", " !<[0]> !<[2]>".repeat(n)), 50_000).unwrap();
        let (few, many) = (uses(10), uses(1_000));
        assert_eq!(many.matches("k4").count(), few.matches("k4").count());
        assert!(many.len() - few.len() < 990 * 20, "{} and {}", few.len(), many.len());
    }

    #[test]
    fn its_length_is_bounded() {
        let others: String = (0..8_000).map(|id| format!(" !<[{id}]>")).collect();
        let e = written(&format!("root ::={others}"), 100_000).unwrap_err().to_string();
        assert!(e.contains("its length in bytes, written out"), "{e}");
        let sets = r"[\U00010000\U00010002\U00010004\U00010006]".repeat(2_000);
        written(&format!("root ::= ({sets} <[5]>){{3}}"), 10).unwrap();
        let e = written("root ::= !<[0]>", 1).unwrap_err().to_string();
        assert!(e.contains("!<[0]>, beside which"), "{e}");
    }
}
