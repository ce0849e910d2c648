//! What Python's `str` methods say of single characters, where Rust's `char` says something else.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, ClassUnicode, HirKind};

use crate::unicode::{LETTER, class};

/// Digits that are no decimal ones: Unicode's Numeric_Type=Digit, superscripts and numbers in circles.
const DIGITS: [(char, char); 20] = [
    ('\u{b2}', '\u{b3}'),
    ('\u{b9}', '\u{b9}'),
    ('\u{1369}', '\u{1371}'),
    ('\u{19da}', '\u{19da}'),
    ('\u{2070}', '\u{2070}'),
    ('\u{2074}', '\u{2079}'),
    ('\u{2080}', '\u{2089}'),
    ('\u{2460}', '\u{2468}'),
    ('\u{2474}', '\u{247c}'),
    ('\u{2488}', '\u{2490}'),
    ('\u{24ea}', '\u{24ea}'),
    ('\u{24f5}', '\u{24fd}'),
    ('\u{24ff}', '\u{24ff}'),
    ('\u{2776}', '\u{277e}'),
    ('\u{2780}', '\u{2788}'),
    ('\u{278a}', '\u{2792}'),
    ('\u{10a40}', '\u{10a43}'),
    ('\u{10e60}', '\u{10e68}'),
    ('\u{11052}', '\u{1105a}'),
    ('\u{1f100}', '\u{1f10a}'),
];

/// `\p{Nd}`.
static DECIMALS: LazyLock<Option<ClassUnicode>> = LazyLock::new(|| {
    let hir = regex_syntax::Parser::new().parse(r"\p{Nd}").ok()?;
    match hir.into_kind() {
        HirKind::Class(Class::Unicode(class)) => Some(class),
        _ => None,
    }
});

/// `str.isalpha`: letters only, no marks and no letter-like numbers.
pub(super) fn is_letter(c: char) -> bool {
    class(c) & LETTER != 0
}

/// `str.isdecimal`: digits that numbers are written with.
pub(super) fn is_decimal(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_digit();
    }
    let Some(decimals) = &*DECIMALS else { return false };
    let ranges = decimals.ranges();
    let at = ranges.partition_point(|range| range.end() < c);
    ranges.get(at).is_some_and(|range| range.start() <= c)
}

/// `str.isdigit`: the decimal ones, and others that stand for 0 to 9.
pub(super) fn is_digit(c: char) -> bool {
    is_decimal(c) || DIGITS.iter().any(|(first, last)| (*first..=*last).contains(&c))
}

/// `str.casefold`, Unicode's full case folding: nearly always what lower, upper and again lower case give.
pub(super) fn folded(c: char) -> String {
    match c {
        // Folds to itself: Turkish has it beside i.
        '\u{131}' => c.to_string(),
        // Cherokee folds to its capitals, which are older.
        '\u{13a0}'..='\u{13fd}' | '\u{ab70}'..='\u{abbf}' => c.to_uppercase().collect(),
        _ => c.to_lowercase().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_what_python_says() {
        let all = |test: fn(char) -> bool| ('\0'..=char::MAX).filter(|c| test(*c)).count();
        assert!(all(is_decimal) >= 680 && all(is_digit) == all(is_decimal) + 128);
        assert!(is_decimal('٣') && !is_decimal('²') && is_digit('²') && !is_digit('½'));
        assert!(is_letter('一') && !is_letter('Ⅷ') && !is_letter('\u{301}'));
        let text = |text: &str| text.chars().map(folded).collect::<String>();
        assert_eq!(text("Straße ẞΣς ﬁ ı İ Ꭰꭰ ᾈ µ"), "strasse ssσσ fi ı i̇ ᎠᎠ ἀι μ");
    }
}
