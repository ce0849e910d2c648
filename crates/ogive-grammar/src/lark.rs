//! A cut grammar as llguidance reads it: text in its dialect of Lark.
//!
//! Text and not llguidance's own structures, because those cannot be handed over from outside the crate. Every character is
//! written as a number, so nothing needs quoting.

use crate::error::GrammarError;
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

/// The grammar as text; rule 0 is what it begins with.
pub(crate) fn write(arena: &Arena, cut: &Cut, tokens: &dyn Tokens) -> Result<String, GrammarError> {
    let mut named = BTreeSet::new();
    for sym in cut.rules.iter().flatten().flatten() {
        collect(sym, tokens, &mut named)?;
    }
    let mut writer = Writer { out: String::from("start: r0\n"), named, rest: String::new(), tokens };
    writer.rest = writer.rest();
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
        }
        writer.out.push('\n');
    }
    for (l, &id) in cut.lexemes.iter().enumerate() {
        let _ = write!(writer.out, "T{l}: /");
        regex(arena, id, &mut writer.out);
        // A lexeme has at least one character; that there may be none is the rules' business.
        writer.out.push_str(if arena.facts(id).nullable { "/ & /(?s:.)+/\n" } else { "/\n" });
    }
    Ok(writer.out)
}

fn collect(sym: &Sym, tokens: &dyn Tokens, named: &mut BTreeSet<u32>) -> Result<(), GrammarError> {
    match sym {
        Sym::Token(token) => drop(named.insert(tokens.resolve(token)?)),
        Sym::Repeat(sym, ..) => collect(sym, tokens, named)?,
        Sym::Lexeme(_) | Sym::Rule(_) => {}
    }
    Ok(())
}

struct Writer<'t> {
    out: String,
    /// The tokens that the grammar names.
    named: BTreeSet<u32>,
    /// All others, as llguidance has it; empty if there are none.
    rest: String,
    tokens: &'t dyn Tokens,
}

impl Writer<'_> {
    fn rest(&self) -> String {
        let ranges = self.tokens.all_but(&self.named);
        let ranges: Vec<_> = ranges.iter().map(|(low, high)| format!("{low}-{high}")).collect();
        if ranges.is_empty() { String::new() } else { format!("<[{}]>", ranges.join(",")) }
    }

    fn sym(&mut self, sym: &Sym) -> Result<(), GrammarError> {
        match sym {
            Sym::Lexeme(l) => drop(write!(self.out, "T{l}")),
            Sym::Rule(r) => drop(write!(self.out, "r{r}")),
            Sym::Token(token) => {
                let id = self.tokens.resolve(token)?;
                // What is not one token is each of the others: llguidance takes the first set of tokens that one is in, so
                // no token may be in two.
                let one = |id: &u32| format!("<[{id}]>");
                let mut choice: Vec<String> = if token.negated {
                    self.named.iter().filter(|other| **other != id).map(one).collect()
                } else {
                    vec![one(&id)]
                };
                if token.negated && !self.rest.is_empty() {
                    choice.push(self.rest.clone());
                }
                let _ = write!(self.out, "({})", choice.join(" | "));
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
