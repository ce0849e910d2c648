//! GBNF, the language of llama.cpp's grammars, read into expressions.
//!
//! What llama.cpp reads (July 2026) is read to the same meaning, and its errors are errors. Beyond it: left recursion, since the
//! parser behind is Earley's; repetitions of more than 2000, which are a number here and no copies; `|` at the beginning of a
//! line. Stricter in three things that are mistakes: a rule defined twice (there the last one holds), a range that runs
//! backwards and an empty class, which match nothing there.

mod cursor;

use crate::error::{GrammarError, at_most};
use crate::expr::{Class, Id, TokenRef};
use crate::rules::{Rules, fits};
use cursor::{Cursor, Place, wrong_at};
use std::collections::HashMap;

/// Groups in groups: each takes stack.
const MAX_NESTING: usize = 64;
/// A bound of a repetition: more is a mistyped number.
const MAX_REPEAT: u32 = 100_000;
/// Bytes of a grammar: the largest seen, made from schemas of whole interfaces, have some hundred kilobytes.
pub(crate) const MAX_BYTES: usize = 4 << 20;

/// Reads a grammar; its sentences are those of `root`.
pub(crate) fn parse(text: &str) -> Result<Rules, GrammarError> {
    at_most("its length in bytes", text.len(), MAX_BYTES)?;
    let mut parser =
        Parser { at: Cursor::new(text), rules: Rules::default(), names: HashMap::new(), nesting: 0 };
    parser.at.space(true);
    while parser.at.peek().is_some() {
        parser.definition()?;
    }
    parser.finish()
}

/// What is known of a rule's name.
#[derive(Debug)]
struct Name {
    rule: u32,
    used: Place,
    defined: Option<Place>,
}

#[derive(Debug)]
struct Parser<'t> {
    at: Cursor<'t>,
    rules: Rules,
    names: HashMap<&'t str, Name>,
    nesting: usize,
}

impl<'t> Parser<'t> {
    fn finish(mut self) -> Result<Rules, GrammarError> {
        // The first in the text, so that the message does not depend on a hash.
        let undefined = self.names.iter().filter(|(_, n)| n.defined.is_none()).min_by_key(|(_, n)| n.used);
        if let Some((name, Name { used: (line, column), .. })) = undefined {
            return Err(GrammarError::UndefinedRule { name: (*name).into(), line: *line, column: *column });
        }
        self.rules.root = self.names.get("root").ok_or(GrammarError::NoRoot { name: "root" })?.rule;
        self.rules.prune()
    }

    /// `name ::= alternatives`, to the end of its line.
    fn definition(&mut self) -> Result<(), GrammarError> {
        let place = self.at.place();
        let name = self.name("a rule's name")?;
        self.at.space(false);
        if !self.at.eat("::=") {
            return Err(self.at.expected("`::=`"));
        }
        self.at.space(true);
        let rule = self.rule(name, place);
        if let Some(known) = self.names.get_mut(name)
            && let Some((line, column)) = known.defined.replace(place)
        {
            return Err(wrong_at(
                place,
                format!("{name:?} is defined already, at line {line}, column {column}"),
            ));
        }
        let body = self.alternatives(false)?;
        self.rules.define(rule, body);
        if !matches!(self.at.peek(), None | Some('\n' | '\r')) {
            return Err(self.at.expected("a symbol, `|` or the end of the line"));
        }
        self.at.space(true);
        fits(&self.rules.arena)
    }

    fn name(&mut self, what: &str) -> Result<&'t str, GrammarError> {
        let name = self.at.take_while(is_word);
        if name.is_empty() { Err(self.at.expected(what)) } else { Ok(name) }
    }

    /// The rule of this name, which may yet be defined.
    fn rule(&mut self, name: &'t str, used: Place) -> u32 {
        let rules = &mut self.rules;
        self.names.entry(name).or_insert_with(|| Name { rule: rules.declare(name), used, defined: None }).rule
    }

    fn alternatives(&mut self, nested: bool) -> Result<Id, GrammarError> {
        let mut all = vec![self.sequence(nested)?];
        loop {
            // A line that begins with `|` goes on with the one before.
            let mut ahead = self.at.clone();
            ahead.space(true);
            if !ahead.eat("|") {
                return Ok(self.rules.arena.alt(all));
            }
            ahead.space(true);
            self.at = ahead;
            all.push(self.sequence(nested)?);
        }
    }

    fn sequence(&mut self, nested: bool) -> Result<Id, GrammarError> {
        let mut items: Vec<Id> = Vec::new();
        loop {
            let place = self.at.place();
            if let Some((min, max)) = self.quantifier(nested)? {
                let Some(last) = items.pop() else {
                    return Err(wrong_at(place, "there is nothing before this to repeat"));
                };
                items.push(self.rules.arena.repeat(last, min, max));
            } else if let Some(item) = self.item()? {
                items.push(item);
            } else {
                return Ok(self.rules.arena.seq(items));
            }
            fits(&self.rules.arena)?;
            self.at.space(nested);
        }
    }

    /// A literal, a class, a token, a rule, a group or any character, if one comes next.
    fn item(&mut self) -> Result<Option<Id>, GrammarError> {
        let place = self.at.place();
        Ok(Some(match self.at.peek() {
            Some('"') => self.literal()?,
            Some('[') => self.class()?,
            Some('<' | '!') => self.token()?,
            Some('.') => {
                self.at.next();
                self.rules.arena.class(Class::any())
            }
            Some('(') => self.group()?,
            Some(c) if is_word(c) => {
                let name = self.name("a rule's name")?;
                let rule = self.rule(name, place);
                self.rules.arena.rule(rule)
            }
            _ => return Ok(None),
        }))
    }

    fn group(&mut self) -> Result<Id, GrammarError> {
        let place = self.at.place();
        self.at.next();
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return Err(wrong_at(
                place,
                format!("more than {MAX_NESTING} groups in each other; make rules of some"),
            ));
        }
        self.at.space(true);
        let group = self.alternatives(true)?;
        self.at.space(true);
        if !self.at.eat(")") {
            let (line, column) = place;
            return Err(self.at.expected(&format!("`)` for the group of line {line}, column {column}")));
        }
        self.nesting -= 1;
        Ok(group)
    }

    /// How often what comes before may come.
    fn quantifier(&mut self, nested: bool) -> Result<Option<(u32, Option<u32>)>, GrammarError> {
        let found = match self.at.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => {
                self.at.next();
                self.at.space(nested);
                let place = self.at.place();
                let min = self.number("a number")?;
                self.at.space(nested);
                let mut max = Some(min);
                if self.at.eat(",") {
                    self.at.space(nested);
                    let digit = self.at.peek().is_some_and(|c| c.is_ascii_digit());
                    max = if digit { Some(self.number("a number")?) } else { None };
                    self.at.space(nested);
                }
                if !self.at.eat("}") {
                    return Err(self.at.expected("`,` or `}`"));
                }
                if let Some(max) = max.filter(|max| *max < min) {
                    return Err(wrong_at(
                        place,
                        format!("at least {min} and at most {max} contradict each other"),
                    ));
                }
                return Ok(Some((min, max)));
            }
            _ => return Ok(None),
        };
        self.at.next();
        Ok(Some(found))
    }

    fn number(&mut self, what: &str) -> Result<u32, GrammarError> {
        let place = self.at.place();
        let digits = self.at.take_while(|c| c.is_ascii_digit());
        if digits.is_empty() {
            return Err(self.at.expected(what));
        }
        let number = digits.parse().ok().filter(|n| *n <= MAX_REPEAT);
        number.ok_or_else(|| {
            wrong_at(place, format!("{digits} times is too often; at most {MAX_REPEAT} is taken"))
        })
    }

    fn literal(&mut self) -> Result<Id, GrammarError> {
        let (line, column) = self.at.place();
        self.at.next();
        let mut chars = Vec::new();
        while self.at.peek() != Some('"') {
            let place = self.at.place();
            let end = format!("`\"` for the text of line {line}, column {column}");
            let c = self.character(&end)?;
            if char::from_u32(c).is_none() {
                return Err(wrong_at(
                    place,
                    format!("\\u{c:04x} is half of a character; write the whole one as \\U"),
                ));
            }
            chars.push(c);
        }
        self.at.next();
        Ok(self.rules.arena.literal(chars))
    }

    fn class(&mut self) -> Result<Id, GrammarError> {
        let place @ (line, column) = self.at.place();
        let end = format!("`]` for the class of line {line}, column {column}");
        self.at.next();
        let negated = self.at.eat("^");
        let mut ranges = Vec::new();
        while self.at.peek() != Some(']') {
            let here = self.at.place();
            let low = self.character(&end)?;
            let mut high = low;
            // A hyphen at the end is one.
            if self.at.peek() == Some('-') && !self.at.rest().starts_with("-]") {
                self.at.next();
                high = self.character(&end)?;
            }
            if high < low {
                return Err(wrong_at(here, "the range runs backwards; swap its ends"));
            }
            ranges.push((low, high));
        }
        self.at.next();
        if ranges.is_empty() && !negated {
            return Err(wrong_at(
                place,
                "the class is empty, so nothing would match it; `\"\"` is the empty text",
            ));
        }
        let class = Class::new(ranges);
        Ok(self.rules.arena.class(if negated { class.negated() } else { class }))
    }

    /// One character, written plainly or escaped.
    fn character(&mut self, end: &str) -> Result<u32, GrammarError> {
        let place = self.at.place();
        let c = self.at.next().ok_or_else(|| self.at.expected(end))?;
        if c != '\\' {
            return Ok(c.into());
        }
        let digits = match self.at.peek() {
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some(c) => {
                let c = match c {
                    't' => '\t',
                    'r' => '\r',
                    'n' => '\n',
                    '\\' | '"' | '[' | ']' | '-' => c,
                    _ => {
                        return Err(wrong_at(
                            place,
                            format!(
                                "there is no escape `\\{}`; known are \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\x \\u \\U",
                                c.escape_default()
                            ),
                        ));
                    }
                };
                self.at.next();
                return Ok(c.into());
            }
            None => return Err(self.at.expected("the rest of the escape")),
        };
        self.at.next();
        let hex = self.at.rest().get(..digits).filter(|h| h.bytes().all(|b| b.is_ascii_hexdigit()));
        let value = hex.and_then(|h| u32::from_str_radix(h, 16).ok());
        let Some(value) = value else {
            return Err(self.at.expected(&format!("{digits} hexadecimal digits")));
        };
        for _ in 0..digits {
            self.at.next();
        }
        if value > u32::from(char::MAX) {
            return Err(wrong_at(place, format!("there is no character {value:x}; the last one is 10ffff")));
        }
        Ok(value)
    }

    /// `<[10]>`, `<think>`, and what is not that with `!` before it.
    fn token(&mut self) -> Result<Id, GrammarError> {
        let negated = self.at.eat("!");
        let place = self.at.place();
        if self.at.peek() != Some('<') {
            return Err(self.at.expected("a token such as <[10]> or <think>"));
        }
        let inner = self.at.take_while(|c| c != '>' && c != '\n' && c != '\r');
        let text = format!("{inner}>");
        if !self.at.eat(">") {
            return Err(self.at.expected("`>` for the token"));
        }
        let id = match inner.strip_prefix("<[") {
            None => None,
            Some(number) => {
                let number = number.strip_suffix(']').and_then(|n| n.parse().ok());
                Some(number.ok_or_else(|| {
                    wrong_at(place, format!("{text} is no token's number, as <[10]> would be"))
                })?)
            }
        };
        if text == "<>" {
            return Err(wrong_at(place, "a token without a name"));
        }
        Ok(self.rules.arena.token(TokenRef { text, id, negated }))
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse(text).map(drop).unwrap_err().to_string()
    }

    #[test]
    fn what_llama_cpp_reads_is_read() {
        for good in [
            "root ::= \"a\"",
            "\u{feff}# a comment\r\nroot  ::= a-b | c_d # end\r\na-b ::= [a-z-]+\n\n\nc_d::=\"\\x41\\u00e4\\U0001f999\\n\\\"\"\n",
            "root ::=\n  \"a\" |\n\n  \"b\"",
            "root ::= \"a\"\n  | \"b\"\n  | \"c\"\nx ::= root",
            "root ::= ( # in a group\n \"a\"\n \"b\"\n)* [^\\]\\n] . {2} . { 2 , } .{2,3}",
            "root ::= <[10]> (!<[11]>)* !</think>* </think>",
            "root ::= \"\" | ",
            "root ::= root \"a\" | \"b\"",
        ] {
            parse(good).unwrap_or_else(|e| panic!("{good}: {e}"));
        }
    }

    #[test]
    fn errors_say_where_and_what() {
        for (bad, said) in [
            ("", "no rule \"root\""),
            ("a ::= \"x\"", "no rule \"root\""),
            (
                "root ::= \"a",
                "line 1, column 12: the grammar ends, but `\"` for the text of line 1, column 10 was",
            ),
            ("root ::= [a-", "`]` for the class of line 1, column 10"),
            ("root ::= [z-a]", "line 1, column 11: the range runs backwards"),
            ("root ::= []", "the class is empty"),
            (
                "root ::= \"a\"\nroot ::= \"b\"",
                "line 2, column 1: \"root\" is defined already, at line 1, column 1",
            ),
            ("root ::= foo\n\n", "line 1, column 10: no rule is called \"foo\""),
            ("root = \"a\"", "line 1, column 6: there is '=', but `::=` was expected"),
            ("root ::= *", "nothing before this to repeat"),
            ("root ::= \"a\" )", "line 1, column 14: there is ')', but a symbol, `|` or the end"),
            ("root ::= (\"a\"", "`)` for the group of line 1, column 10"),
            ("root ::= \"a\"{3,2}", "contradict each other"),
            ("root ::= \"a\"{999999999999}", "too often"),
            ("root ::= \"a\"{}", "a number was expected"),
            ("root ::= \"\\q\"", "there is no escape `\\q`"),
            ("root ::= \"\\xZZ\"", "2 hexadecimal digits"),
            ("root ::= \"\\U00110000\"", "there is no character 110000"),
            ("root ::= \"\\ud800\"", "half of a character"),
            ("root ::= !\"a\"", "a token such as"),
            ("root ::= <think", "`>` for the token"),
            ("root ::= <[x]>", "is no token's number"),
            ("root ::= \"a\" root", "can never end"),
            ("root ::= a\na ::= b\nb ::= \"x\" a", "can never end"),
        ] {
            let e = error(bad);
            assert!(e.contains(said), "{bad}: {e}");
        }
    }

    #[test]
    fn depth_and_length_are_bounded() {
        let deep = format!("root ::= {}\"a\"{}", "(".repeat(100_000), ")".repeat(100_000));
        assert!(error(&deep).contains("groups in each other"));
        let long = format!("root ::= \"{}\"", "a".repeat(MAX_BYTES));
        assert!(error(&long).contains("length in bytes"));
        // Seen within a rule: that it does not end is only found after it.
        let words: Vec<String> = (0..250_000).map(|i| format!("\"{i:x}\"")).collect();
        assert!(error(&format!("root ::= {} )", words.join("|"))).contains("its number of parts is 20000"));
        let sets: Vec<String> = (0..90_000).map(|i| format!("\"{:x}\"", i % 80_000)).collect();
        let rules = parse(&format!("root ::= {}", sets.join("|"))).unwrap();
        assert!(
            matches!(rules.arena.node(rules.body(rules.root)), crate::expr::Node::Alt(ids) if ids.len() == 79_985)
        );
    }
}
