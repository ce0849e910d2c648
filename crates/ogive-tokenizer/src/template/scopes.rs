//! Which loops need a scope that minijinja does not give them: told by a look ahead, before anything is written.
//!
//! A turn of a loop keeps what macros and call blocks in it have captured, so that the next turn's see the assignments of
//! this one; the `else` part of a loop has the scope around it. A `with` inside mends both. `break` and `continue` cannot
//! leave a `with`, so loops that hold them stay as they are.

use super::lex::{Segment, TagKind, Token};
use super::statements::PAIRED;

/// Parts of a loop that take a scope.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct LoopScopes {
    pub(super) turn: bool,
    pub(super) otherwise: bool,
}

#[derive(Debug, Default)]
struct Found {
    captures: bool,
    jumps: bool,
    else_jumps: bool,
}

/// An open block; loops have their place among the loops.
#[derive(Debug)]
struct Open {
    word: &'static str,
    place: usize,
    in_else: bool,
}

/// The scopes of all loops, in the order of their tags. Blocks that do not match are left to the writer.
pub(super) fn loop_scopes(segments: &[Segment<'_>]) -> Vec<LoopScopes> {
    let mut found: Vec<Found> = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    for segment in segments {
        let Segment::Tag(tag) = segment else { continue };
        let (TagKind::Block, Some((Token::Name(word), rest))) = (tag.kind, tag.tokens.split_first()) else {
            continue;
        };
        match *word {
            "else" => {
                if let Some(last) = open.last_mut() {
                    last.in_else = true;
                }
            }
            "break" | "continue" => jump(&open, &mut found),
            word if word.starts_with("end") => drop(open.pop()),
            "set" if assigns(rest) => {}
            word => {
                let Some(word) = PAIRED.iter().find(|paired| **paired == word) else { continue };
                if matches!(*word, "macro" | "call")
                    && let Some(around) = open.iter().rfind(|o| o.word != "if")
                    && around.word == "for"
                {
                    found[around.place].captures = true;
                }
                open.push(Open { word, place: found.len(), in_else: false });
                if *word == "for" {
                    found.push(Found::default());
                }
            }
        }
    }
    let scopes = |f: Found| LoopScopes { turn: f.captures && !f.jumps, otherwise: !f.else_jumps };
    found.into_iter().map(scopes).collect()
}

/// Whether `set` has a value, and no body.
fn assigns(rest: &[Token<'_>]) -> bool {
    let sign = rest.iter().find(|token| matches!(token, Token::Op("=" | "|")));
    matches!(sign, Some(Token::Op("=")))
}

/// A jump leaves the `else` parts that it stands in, and a turn of the loop around them.
fn jump(open: &[Open], found: &mut [Found]) {
    for around in open.iter().rev() {
        match around.word {
            "if" => {}
            "for" if around.in_else => found[around.place].else_jumps = true,
            "for" => {
                found[around.place].jumps = true;
                return;
            }
            _ => return,
        }
    }
}
