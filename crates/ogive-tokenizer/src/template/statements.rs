//! Rewrites a whole template: tags pass through [`super::lower`], `generation` blocks become scopes, text is metered.
//!
//! Text costs minijinja one unit of fuel however long it is, so a loop over a long text would write gigabytes on a
//! small budget. Text longer than a few bytes is therefore announced to the meter, in a tag put directly behind the
//! tag that precedes it: between two tags there is no text, so no whitespace rule can see the addition.

use super::lex::{Fault, Segment, Tag, TagKind, Token, segments};
use super::lower::{Parser, join};
use super::scopes::{LoopScopes, loop_scopes};

/// Text up to this many bytes is paid for by its instruction's fuel.
const FREE_TEXT: usize = 32;
/// Open blocks. minijinja's parser stops at 150 levels of everything together.
const MAX_BLOCKS: usize = 80;
/// `elif` branches of all open `if` blocks together: minijinja nests one in the other.
const MAX_BRANCHES: usize = 500;

/// Rewrites Jinja 2 source, as Hugging Face's templates use it, to the subset minijinja is left with.
pub(super) fn rewrite(source: &str) -> Result<String, Fault> {
    // As Jinja does: all line ends become one character before anything is read.
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let segments = segments(&source)?;
    let mut out = String::with_capacity(source.len() * 2);
    let mut blocks = Blocks { loops: loop_scopes(&segments).into_iter(), ..Blocks::default() };
    for (i, segment) in segments.iter().enumerate() {
        match segment {
            Segment::Text(text) | Segment::Comment(text) => out.push_str(text),
            Segment::Raw(text) => write_raw(&mut out, text),
            Segment::Tag(tag) => {
                let text = text_after(&segments[i + 1..]);
                write_tag(&mut out, tag, text, &mut blocks)?;
            }
        }
    }
    blocks.finish()?;
    Ok(out)
}

/// A line feed behind `{% raw %}` belongs to the text, unlike those behind other tags.
fn write_raw(out: &mut String, text: &str) {
    let (open, rest) = text.split_at(text.find("%}").unwrap_or(0));
    out.push_str(open);
    out.push_str(if open.ends_with('-') { "" } else { "+" });
    out.push_str(rest);
}

/// Bytes of text up to the next tag.
fn text_after(segments: &[Segment<'_>]) -> usize {
    let texts = segments.iter().map_while(|segment| match segment {
        Segment::Text(text) | Segment::Raw(text) => Some(text.len()),
        Segment::Comment(_) => Some(0),
        Segment::Tag(_) => None,
    });
    texts.sum()
}

fn write_tag(out: &mut String, tag: &Tag<'_>, text: usize, blocks: &mut Blocks) -> Result<(), Fault> {
    let mut parser = Parser::new(tag);
    let body = match tag.kind {
        TagKind::Print => parser.tuple(true)?.text,
        TagKind::Block => statement(&mut parser, blocks)?,
    };
    parser.expect_end()?;
    // Lines keep their numbers: errors name them.
    let lines = "\n".repeat(tag.newlines);
    let (open, close) = (tag.open, tag.close);
    match (tag.kind, text > FREE_TEXT) {
        (TagKind::Print, false) => out.push_str(&format!("{{{{{open} {body}{lines} {close}}}}}")),
        (TagKind::Print, true) => {
            out.push_str(&format!("{{{{{open} {body}|__text({text}){lines} {close}}}}}"))
        }
        (TagKind::Block, false) => out.push_str(&format!("{{%{open} {body}{lines} {close}%}}")),
        (TagKind::Block, true) => {
            out.push_str(&format!("{{%{open} {body}{lines} %}}{{% set __text = 0|__text({text}) {close}%}}"));
        }
    }
    Ok(())
}

/// The blocks that are open, to tell a `generation` block's end from a `with` block's and to bound nesting.
#[derive(Debug, Default)]
struct Blocks {
    open: Vec<Open>,
    branches: usize,
    /// The scopes of the loops to come.
    loops: std::vec::IntoIter<LoopScopes>,
}

#[derive(Debug)]
struct Open {
    word: &'static str,
    line: usize,
    branches: usize,
    recursive: bool,
    /// The `else` part has begun.
    in_else: bool,
    /// What is inside stands in a `with` of ours.
    scoped: bool,
    /// The `else` part will.
    else_scoped: bool,
}

/// Behind a tag: what follows has a scope of its own, as in Jinja, where minijinja has none.
const SCOPE: &str = " %}{% with";
/// Before the tag that ends it.
const SCOPE_END: &str = "endwith %}{% ";

/// Block words that need an end.
pub(super) const PAIRED: [&str; 9] =
    ["if", "for", "macro", "call", "filter", "set", "with", "generation", "block"];

impl Blocks {
    fn open(&mut self, parser: &Parser<'_, '_>, word: &str, line: usize) -> Result<(), Fault> {
        if self.open.len() >= MAX_BLOCKS {
            return parser.fault(format!("blocks are nested more than {MAX_BLOCKS} levels deep"));
        }
        match PAIRED.iter().find(|p| **p == word) {
            Some(word) => self.open.push(Open {
                word,
                line,
                branches: 0,
                recursive: false,
                in_else: false,
                scoped: matches!(*word, "set" | "filter"),
                else_scoped: false,
            }),
            None => return parser.fault(format!("unknown tag {word:?}")),
        }
        Ok(())
    }

    /// What stands around the word `else`.
    fn otherwise(&mut self) -> (&'static str, &'static str) {
        let Some(open) = self.open.last_mut() else { return ("", "") };
        open.in_else = true;
        let before = std::mem::replace(&mut open.scoped, open.else_scoped);
        (if before { SCOPE_END } else { "" }, if open.scoped { SCOPE } else { "" })
    }

    fn branch(&mut self, parser: &Parser<'_, '_>) -> Result<(), Fault> {
        self.branches += 1;
        if self.branches > MAX_BRANCHES {
            return parser.fault(format!("more than {MAX_BRANCHES} elif branches"));
        }
        match self.open.last_mut() {
            Some(open) if open.word == "if" => open.branches += 1,
            _ => return parser.fault("elif without an if"),
        }
        Ok(())
    }

    /// Checks that `break` or `continue` has a loop, and that nothing lies between them which minijinja would leave open:
    /// it jumps only. The `else` part of a loop belongs to the loop around it.
    fn leave(&self, parser: &Parser<'_, '_>, word: &str) -> Result<(), Fault> {
        for open in self.open.iter().rev() {
            match open.word {
                "for" if !open.in_else => return Ok(()),
                "for" | "if" => {}
                other => {
                    let line = open.line;
                    return parser.fault(format!(
                        "{word} out of the block {other:?} of line {line} is not supported: put {word} behind that block"
                    ));
                }
            }
        }
        parser.fault(format!("{word} outside of a loop"))
    }

    /// Returns what stands before the tag.
    fn close(&mut self, parser: &Parser<'_, '_>, word: &str) -> Result<&'static str, Fault> {
        match self.open.pop() {
            Some(open) if open.word == word => {
                self.branches -= open.branches;
                Ok(if open.scoped { SCOPE_END } else { "" })
            }
            Some(open) => {
                parser.fault(format!("unexpected end{word}: the innermost open block is {:?}", open.word))
            }
            None => parser.fault(format!("unexpected end{word}: no block is open")),
        }
    }

    fn finish(&self) -> Result<(), Fault> {
        match self.open.last() {
            Some(open) => Err(Fault::new(open.line, format!("block {:?} is not closed", open.word))),
            None => Ok(()),
        }
    }
}

fn statement(parser: &mut Parser<'_, '_>, blocks: &mut Blocks) -> Result<String, Fault> {
    let line = parser.line();
    let word = parser.name()?;
    if let Some(block) = word.strip_prefix("end") {
        let before = blocks.close(parser, block)?;
        if block == "block" && matches!(parser.peek(), Some(Token::Name(_))) {
            parser.name()?;
        }
        return Ok(if block == "generation" { "endwith".into() } else { format!("{before}{word}") });
    }
    if PAIRED.contains(&word) && word != "set" {
        blocks.open(parser, word, line)?;
    }
    match word {
        "if" => Ok(format!("if {}", parser.tuple(false)?.text)),
        "elif" => {
            blocks.branch(parser)?;
            Ok(format!("elif {}", parser.tuple(false)?.text))
        }
        // minijinja skips it where the loop is called with nothing: wrong text would be worse than an error.
        "else" if blocks.open.last().is_some_and(|open| open.recursive) => {
            parser.fault("else is not supported in a recursive loop")
        }
        "else" => {
            let (before, behind) = blocks.otherwise();
            Ok(format!("{before}else{behind}"))
        }
        "break" | "continue" => {
            blocks.leave(parser, word)?;
            Ok(word.to_string())
        }
        "for" => {
            let (text, recursive) = for_loop(parser)?;
            let scopes = blocks.loops.next().unwrap_or_default();
            if let Some(open) = blocks.open.last_mut() {
                open.recursive = recursive;
                open.scoped = scopes.turn;
                open.else_scoped = scopes.otherwise;
            }
            Ok(format!("{text}{}", if scopes.turn { SCOPE } else { "" }))
        }
        "set" => set(parser, blocks, line),
        "with" => with(parser),
        "generation" => Ok("with".into()),
        "macro" => {
            let name = parser.name()?;
            let (parameters, defaults) = parameters(parser)?;
            Ok(format!("macro {name}{parameters}{defaults}"))
        }
        "call" => {
            let (parameters, defaults) =
                if parser.is_op("(") { parameters(parser)? } else { Default::default() };
            Ok(format!("call{parameters} {}{defaults}", parser.expression()?.text))
        }
        "filter" => Ok(format!("filter {}{SCOPE}", filter_chain(parser)?)),
        "block" => {
            let mut out = format!("block {}", parser.name()?);
            for word in ["scoped", "required"] {
                if parser.skip_name(word) {
                    out = format!("{out} {word}");
                }
            }
            Ok(out)
        }
        "include" | "import" | "from" | "extends" => {
            parser.fault(format!("{word:?} is not possible: a chat template stands alone"))
        }
        _ => parser.fault(format!("unknown tag {word:?}")),
    }
}

/// `a`, `a, b` or `a, (b, c)`, as `for` and `set` assign to.
fn targets(parser: &mut Parser<'_, '_>, depth: usize) -> Result<String, Fault> {
    if depth > 8 {
        return parser.fault("assignment targets are nested too deeply");
    }
    let mut out = String::new();
    loop {
        if parser.skip_op("(") {
            out.push('(');
            out.push_str(&targets(parser, depth + 1)?);
            parser.expect_op(")")?;
            out.push(')');
        } else {
            out.push_str(parser.name()?);
        }
        if !parser.skip_op(",") {
            return Ok(out);
        }
        out.push(',');
        if parser.is_name("in") || parser.is_op("=") || parser.is_op(")") {
            return Ok(out);
        }
    }
}

fn for_loop(parser: &mut Parser<'_, '_>) -> Result<(String, bool), Fault> {
    let targets = targets(parser, 0)?;
    if !parser.skip_name("in") {
        return parser.unexpected("\"in\"");
    }
    let mut out = format!("for {targets} in {}|__iter", parser.tuple(false)?.text);
    if parser.skip_name("if") {
        out = format!("{out} if {}", parser.expression()?.text);
    }
    let recursive = parser.skip_name("recursive");
    if recursive {
        out.push_str(" recursive");
    }
    Ok((out, recursive))
}

fn set(parser: &mut Parser<'_, '_>, blocks: &mut Blocks, line: usize) -> Result<String, Fault> {
    let mut target = targets(parser, 0)?;
    // A namespace outlives scopes and could hold itself: what goes in is checked. Macros capture what their expressions
    // name, and not what they assign to: so one names the namespace.
    let (mut store, mut mention) = (String::new(), String::new());
    if parser.skip_op(".") {
        store = format!("|__store({target})");
        mention = format!(" %}}{{% set __namespace = {target}");
        target = format!("{target}.{}", parser.name()?);
    }
    if parser.skip_op("=") {
        return Ok(format!("set {target} = {}{store}", parser.tuple(true)?.text));
    }
    blocks.open(parser, "set", line)?;
    if parser.skip_op("|") {
        return Ok(format!("set {target} | {}{SCOPE}{mention}", filter_chain(parser)?));
    }
    Ok(format!("set {target}{SCOPE}{mention}"))
}

/// `with a = 1, b = 2`: one assignment, because no value sees the names before it.
fn with(parser: &mut Parser<'_, '_>) -> Result<String, Fault> {
    let (mut names, mut values) = (Vec::new(), Vec::new());
    while !parser.at_end() {
        if !names.is_empty() {
            parser.expect_op(",")?;
        }
        names.push(parser.name()?);
        parser.expect_op("=")?;
        values.push(parser.expression()?.text);
    }
    Ok(match (&names[..], &values[..]) {
        ([], _) => "with".into(),
        ([name], [value]) => format!("with {name} = {value}"),
        _ => format!("with ({}) = ({})", names.join(", "), values.join(", ")),
    })
}

/// `(a, b=1)` of a macro or of a call block, and the statements that set what is missing. Those are tags of their own
/// behind this one, because a default may name an earlier parameter, which minijinja's defaults cannot see.
fn parameters(parser: &mut Parser<'_, '_>) -> Result<(String, String), Fault> {
    parser.expect_op("(")?;
    let (mut names, mut defaults) = (String::from("("), String::new());
    while !parser.skip_op(")") {
        if names.len() > 1 {
            parser.expect_op(",")?;
            if parser.skip_op(")") {
                break;
            }
            names.push_str(", ");
        }
        let name = parser.name()?;
        names.push_str(name);
        if parser.skip_op("=") {
            let value = parser.expression()?.text;
            defaults.push_str(&format!(
                " %}}{{% set {name} = ({value} if {name}|__is(\"undefined\") else {name})"
            ));
        }
    }
    names.push(')');
    Ok((names, defaults))
}

fn filter_chain(parser: &mut Parser<'_, '_>) -> Result<String, Fault> {
    let mut out = String::new();
    loop {
        out.push_str(&parser.filter_name()?);
        if parser.is_op("(") {
            let arguments = parser.arguments()?;
            out.push('(');
            join(&mut out, &arguments);
            out.push(')');
        }
        if !parser.skip_op("|") {
            return Ok(out);
        }
        out.push('|');
    }
}
