//! Unicode general categories as one byte of flags per character, for the splitters.
//!
//! The tables are taken from `regex-syntax` at first use instead of being generated into the source: the same tables drive
//! the regular expressions that define the splitters, so the two cannot disagree about a character when either is updated.
//! Pages of 256 characters are shared where equal (about 200 distinct ones), which keeps the table in the second-level cache.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Flags of a character's general category.
pub(crate) type Class = u8;

/// `\p{L}`.
pub(crate) const LETTER: Class = 1;
/// `\p{N}`.
pub(crate) const NUMBER: Class = 2;
/// `\p{P}`.
pub(crate) const PUNCT: Class = 4;
/// `\p{S}`.
pub(crate) const SYMBOL: Class = 8;
/// `\p{M}`.
pub(crate) const MARK: Class = 16;
/// `\s`: the property White_Space.
pub(crate) const SPACE: Class = 32;
/// `\p{Lu}` or `\p{Lt}`.
pub(crate) const UPPER: Class = 64;
/// `\p{Ll}`.
pub(crate) const LOWER: Class = 128;

struct Table {
    ascii: [Class; 128],
    pages: Vec<u16>,
    flags: Vec<Class>,
}

static TABLE: LazyLock<Table> = LazyLock::new(build);

fn build() -> Table {
    let mut all = vec![0u8; 0x11_0000];
    for (pattern, flag) in [
        (r"\p{L}", LETTER),
        (r"\p{N}", NUMBER),
        (r"\p{P}", PUNCT),
        (r"\p{S}", SYMBOL),
        (r"\p{M}", MARK),
        (r"\s", SPACE),
        (r"[\p{Lu}\p{Lt}]", UPPER),
        (r"\p{Ll}", LOWER),
    ] {
        // The patterns are constants; `every_class_is_filled` shows that each one parses to a class.
        let Ok(hir) = regex_syntax::Parser::new().parse(pattern) else { continue };
        let regex_syntax::hir::HirKind::Class(regex_syntax::hir::Class::Unicode(class)) = hir.kind() else {
            continue;
        };
        for range in class.iter() {
            for slot in &mut all[range.start() as usize..=range.end() as usize] {
                *slot |= flag;
            }
        }
    }
    let mut ascii = [0; 128];
    ascii.copy_from_slice(&all[..128]);
    let mut seen: HashMap<&[u8], u16> = HashMap::new();
    let (mut pages, mut flags) = (Vec::with_capacity(all.len() / 256), Vec::new());
    for page in all.chunks_exact(256) {
        // At most 4352 pages, so their number fits.
        let next = seen.len() as u16;
        pages.push(*seen.entry(page).or_insert_with(|| {
            flags.extend_from_slice(page);
            next
        }));
    }
    Table { ascii, pages, flags }
}

/// The flags of `c`.
pub(crate) fn class(c: char) -> Class {
    let table = &*TABLE;
    let c = c as usize;
    if c < 128 { table.ascii[c] } else { table.flags[usize::from(table.pages[c >> 8]) << 8 | c & 255] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_is_filled() {
        for (c, want) in [
            ('a', LETTER | LOWER),
            ('A', LETTER | UPPER),
            ('ǅ', LETTER | UPPER),
            ('中', LETTER),
            ('ʰ', LETTER),
            ('7', NUMBER),
            ('½', NUMBER),
            ('Ⅷ', NUMBER),
            ('!', PUNCT),
            ('+', SYMBOL),
            ('\u{301}', MARK),
            (' ', SPACE),
            ('\u{3000}', SPACE),
            ('\u{a0}', SPACE),
            ('\u{200b}', 0),
            ('\0', 0),
            ('😀', SYMBOL),
        ] {
            assert_eq!(class(c), want, "{c:?}");
        }
        for c in '\0'..=char::MAX {
            assert_eq!(class(c) & SPACE != 0, c.is_whitespace(), "{c:?}");
            assert!(class(c) & (UPPER | LOWER) == 0 || class(c) & LETTER != 0, "{c:?}");
        }
    }
}
