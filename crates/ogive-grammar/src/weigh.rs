//! What a regular expression becomes before it is one: `\pL` is three bytes of text and 5 KB of ranges, and that, in large and
//! small letters, takes as long to make as ten pages of text to read.
//!
//! Weighed before regex-syntax makes it, by what is written: afterwards it is too late to refuse.

use regex_syntax::ast::{self, Ast, ClassSetItem, Flag, FlagsItemKind, GroupKind, Visitor};
use std::convert::Infallible;

/// A class by name has up to 800 ranges of characters.
const NAMED: usize = 1_000;
/// Characters that have a case: so many may come in for a range if case is of no account.
const CASED: usize = 3_000;

/// Of the expressions of a grammar or a schema together: a second and 100 MB.
pub(crate) const MAX_WEIGHT: usize = 8_000_000;

/// About how many ranges of characters it becomes, and how many more are looked at on the way.
pub(crate) fn weight(expression: &Ast) -> usize {
    let cases = ast::visit(expression, Cases(false)).unwrap_or(true);
    ast::visit(expression, Weight { cases, sum: 0, items: Vec::new() }).unwrap_or(usize::MAX)
}

/// Whether case is of no account anywhere.
struct Cases(bool);

impl Visitor for Cases {
    type Output = bool;
    type Err = Infallible;

    fn finish(self) -> Result<bool, Infallible> {
        Ok(self.0)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Infallible> {
        let flags = match ast {
            Ast::Flags(set) => Some(&set.flags),
            Ast::Group(group) => match &group.kind {
                GroupKind::NonCapturing(flags) => Some(flags),
                _ => None,
            },
            _ => None,
        };
        let all = flags.into_iter().flat_map(|flags| &flags.items);
        self.0 |= all.into_iter().any(|item| item.kind == FlagsItemKind::Flag(Flag::CaseInsensitive));
        Ok(())
    }
}

struct Weight {
    cases: bool,
    sum: usize,
    /// Of each set that is open: what is in it so far, which is put in order again for each that comes.
    items: Vec<usize>,
}

impl Weight {
    fn add(&mut self, ranges: usize) {
        let ranges = if self.cases && ranges > 1 { ranges.max(CASED) } else { ranges };
        let before = self.items.last_mut().map_or(0, |items| {
            *items += ranges;
            *items / 16
        });
        self.sum = self.sum.saturating_add(ranges).saturating_add(before);
    }
}

impl Visitor for Weight {
    type Output = usize;
    type Err = Infallible;

    fn finish(self) -> Result<usize, Infallible> {
        Ok(self.sum)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Infallible> {
        match ast {
            Ast::ClassUnicode(_) | Ast::ClassPerl(_) => self.add(NAMED),
            Ast::ClassBracketed(_) => self.items.push(0),
            _ => self.sum = self.sum.saturating_add(1),
        }
        Ok(())
    }

    fn visit_post(&mut self, ast: &Ast) -> Result<(), Infallible> {
        if let Ast::ClassBracketed(_) = ast {
            self.items.pop();
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Infallible> {
        match item {
            ClassSetItem::Unicode(_) | ClassSetItem::Perl(_) => self.add(NAMED),
            ClassSetItem::Range(_) | ClassSetItem::Ascii(_) => self.add(2),
            ClassSetItem::Empty(_) | ClassSetItem::Literal(_) => self.add(1),
            // What is in them is visited by itself.
            ClassSetItem::Bracketed(_) | ClassSetItem::Union(_) => {}
        }
        Ok(())
    }
}
