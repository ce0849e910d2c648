//! Regular expressions, in the syntax of the `regex` crate, read into expressions.
//!
//! The whole text must match, whether or not `^` and `$` say so: a match somewhere in an answer constrains nothing before it.

use crate::error::{GrammarError, at_most};
use crate::expr::{Arena, Class, Id};
use crate::rules::{Rules, fits};
use crate::weigh::{self, MAX_WEIGHT};
use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::hir::translate::Translator;
use regex_syntax::hir::{Class as HirClass, Hir, HirKind, Look};

/// Bytes of an expression: nobody writes longer ones.
pub(crate) const MAX_BYTES: usize = 1 << 20;
/// Groups in groups.
const MAX_NESTING: u32 = 64;

pub(crate) fn parse(text: &str) -> Result<Rules, GrammarError> {
    let hir = understood(text)?;
    let mut arena = Arena::default();
    let body = read(&mut arena, inner(&hir)?)?;
    fits(&arena)?;
    if arena.is_never(body) {
        return Err(GrammarError::Regex { column: 1, what: "nothing matches it".into() });
    }
    Ok(Rules::single(arena, body))
}

/// The same expression as llguidance takes it between slashes: without anchors, and nothing in it that ends it there. Empty if it is.
pub(crate) fn between_slashes(text: &str) -> Result<String, GrammarError> {
    parse(text)?;
    let hir = understood(text)?;
    let whole = Hir::concat(inner(&hir)?.into_iter().cloned().collect());
    if matches!(whole.kind(), HirKind::Empty) {
        return Ok(String::new());
    }
    // As it is printed neither is escaped.
    Ok(whole.to_string().replace('/', "\\/").replace('\n', "\\n"))
}

fn understood(text: &str) -> Result<Hir, GrammarError> {
    at_most("its length in bytes", text.len(), MAX_BYTES)?;
    let wrong = |start: usize, what: String| {
        let column = text.get(..start).unwrap_or_default().chars().count() + 1;
        GrammarError::Regex { column, what }
    };
    let mut parser = ParserBuilder::new().nest_limit(MAX_NESTING).build();
    let ast = parser.parse(text).map_err(|e| wrong(e.span().start.offset, e.kind().to_string()))?;
    at_most("the number of ranges of characters in its classes, about,", weigh::weight(&ast), MAX_WEIGHT)?;
    let hir = Translator::new().translate(text, &ast);
    hir.map_err(|e| wrong(e.span().start.offset, e.kind().to_string()))
}

/// The expression without its anchors, which the whole text has anyway.
fn inner(hir: &Hir) -> Result<Vec<&Hir>, GrammarError> {
    let mut parts = match hir.kind() {
        HirKind::Concat(parts) => parts.iter().collect(),
        _ => vec![hir],
    };
    if parts.first().is_some_and(|h| matches!(h.kind(), HirKind::Look(Look::Start))) {
        parts.remove(0);
    }
    if parts.last().is_some_and(|h| matches!(h.kind(), HirKind::Look(Look::End))) {
        parts.pop();
    }
    Ok(parts)
}

fn read(arena: &mut Arena, parts: Vec<&Hir>) -> Result<Id, GrammarError> {
    let ids = parts.into_iter().map(|hir| one(arena, hir)).collect::<Result<_, _>>()?;
    Ok(arena.seq(ids))
}

fn one(arena: &mut Arena, hir: &Hir) -> Result<Id, GrammarError> {
    fits(arena)?;
    let wrong = |what: &str| GrammarError::Regex { column: 1, what: what.into() };
    Ok(match hir.kind() {
        HirKind::Empty => arena.empty(),
        HirKind::Literal(literal) => {
            let text =
                std::str::from_utf8(&literal.0).map_err(|_| wrong("it asks for bytes that are no text"))?;
            arena.literal(text.chars().map(u32::from))
        }
        HirKind::Class(HirClass::Unicode(class)) => {
            let ranges = class.ranges().iter().map(|r| (r.start().into(), r.end().into())).collect();
            arena.class(Class::new(ranges))
        }
        HirKind::Class(HirClass::Bytes(class)) => {
            let ranges = class.ranges().iter().map(|r| (r.start().into(), r.end().into())).collect();
            arena.class(Class::new(ranges))
        }
        HirKind::Look(_) => {
            return Err(wrong(
                "anchors and word boundaries cannot be constrained, but for `^` at the beginning and `$` at the end",
            ));
        }
        HirKind::Repetition(r) => {
            let inner = one(arena, &r.sub)?;
            arena.repeat(inner, r.min, r.max)
        }
        HirKind::Capture(capture) => one(arena, &capture.sub)?,
        HirKind::Concat(parts) => read(arena, parts.iter().collect())?,
        HirKind::Alternation(parts) => {
            let ids = parts.iter().map(|hir| one(arena, hir)).collect::<Result<_, _>>()?;
            arena.alt(ids)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_where_and_what() {
        for (bad, said) in [
            ("ab(c", "column 3: unclosed group"),
            ("ä{2,1}", "column 2: invalid repetition count range"),
            (r"a\b", "word boundaries cannot"),
            ("a(?=b)", "column 2: look-around"),
            (r"(a)\1", "column 4: backreferences"),
            ("(a|^b)", "cannot be constrained"),
            ("[^\\s\\S]", "nothing matches"),
        ] {
            let e = parse(bad).unwrap_err().to_string();
            assert!(e.contains(said), "{bad}: {e}");
        }
        assert!(parse(&"(".repeat(100_000)).is_err());
    }

    /// Weighed as it is written, for what regex-syntax makes of it is gigabytes.
    #[test]
    fn classes_are_weighed_before_they_are_made() {
        let spread: String = (0..100_000).filter_map(|i| char::from_u32(0x1_0000 + 2 * i)).collect();
        for large in [r"\w".repeat(100_000), format!("(?i:{})", r"\pL".repeat(10_000)), format!("[{spread}]")]
        {
            let e = parse(&large).unwrap_err().to_string();
            assert!(e.contains("the number of ranges of characters in its classes, about, is"), "{e}");
        }
        for fine in
            [r"\w".repeat(4_000), format!("(?i){}", r"\pL".repeat(200)), r"[\w--\d][^\pL]".repeat(100)]
        {
            parse(&fine).unwrap();
        }
    }

    #[test]
    fn anchors_around_it_all_are_none() {
        for good in ["^a+$", "^(a|b)*$", "a", "", "^$", r"\d{4}-\d{2}-\d{2}", "(?i)yes|no"] {
            parse(good).unwrap();
        }
    }
}
