//! A grammar by itself, before there is a vocabulary: read, checked, and ready to be compiled for any.
//!
//! Reading and compiling are two steps so that a program can refuse a user's grammar before it loads a model.

use crate::constraint::Constraint;
use crate::error::{GrammarError, at_most};
use crate::rules::Rules;
use crate::vocabulary::Vocabulary;
use crate::{gbnf, lark, lexemes, regex, schema, walker};
use llguidance::Matcher;
use llguidance::api::TopLevelGrammar;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// What a text must be: a sentence of a GBNF grammar, JSON by a schema, or a match of a regular expression.
///
/// Cheap to clone. Equal if they were made from the same text in the same language.
///
/// ```
/// use ogive_grammar::Grammar;
///
/// Grammar::gbnf("root ::= \"yes\" | \"no\"")?;
/// Grammar::json_schema(r#"{"type": "object", "properties": {"age": {"type": "integer"}}}"#)?;
/// Grammar::regex("[0-9]{4}-[0-9]{2}-[0-9]{2}")?;
///
/// let e = Grammar::gbnf("root ::= \"yes\" | maybe").unwrap_err();
/// assert_eq!(
///     e.to_string(),
///     "reading a grammar: line 1, column 18: no rule is called \"maybe\"; define it with `maybe ::= ...`"
/// );
/// # Ok::<(), ogive_grammar::GrammarError>(())
/// ```
#[derive(Clone)]
pub struct Grammar(Arc<Source>);

#[derive(Debug)]
struct Source {
    kind: Kind,
    text: String,
    form: Form,
    /// What stands before a schema's JSON and, by a regular expression between slashes, behind it.
    around: Option<[String; 2]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Gbnf,
    JsonSchema,
    Regex,
}

#[derive(Debug)]
enum Form {
    Rules(Rules),
    Schema(Value),
}

impl PartialEq for Grammar {
    fn eq(&self, other: &Self) -> bool {
        (self.0.kind, &self.0.text, &self.0.around) == (other.0.kind, &other.0.text, &other.0.around)
    }
}

impl Eq for Grammar {}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({:?})", self.0.kind, self.0.text)?;
        self.0.around.as_ref().map_or(Ok(()), |around| write!(f, " between {around:?}"))
    }
}

/// Stack for llguidance, which goes down schemas and grammars by recursion: some kilobytes for each of at most
/// [`schema::MAX_DEPTH`] levels. Only what is used of it takes memory.
const STACK: usize = 256 << 20;

/// The longest tokens there are, and some more.
const MAX_AROUND: usize = 2048;

/// A schema's JSON between other text, in llguidance's language.
fn between(before: &str, schema: &Value, behind: &str) -> String {
    let before = if before.is_empty() { String::new() } else { Value::from(before).to_string() };
    let (end, behind) = match behind {
        "" => ("", String::new()),
        _ => ("BEHIND", format!("BEHIND: /{behind}/\n")),
    };
    format!(
        "start: {before} json {end} | {before} SPACE json {end}\nSPACE: /[ \\n]{{1,4}}/\n{behind}json: %json {schema}\n"
    )
}

impl Grammar {
    /// A grammar in GBNF, llama.cpp's language, that begins with the rule `root`.
    ///
    /// # Errors
    /// With line and column, if it does not parse, names rules that there are not, or can never end.
    pub fn gbnf(text: &str) -> Result<Self, GrammarError> {
        Ok(Self::new(Kind::Gbnf, text, Form::Rules(gbnf::parse(text)?)))
    }

    /// JSON by a [JSON Schema](https://json-schema.org), what OpenAI's structured outputs take.
    ///
    /// Properties come in the schema's order; between the parts of the text there may be a little white space. What is
    /// enforced is in the [crate's documentation](crate#json-schema); a keyword that is not is an error.
    ///
    /// # Errors
    /// If it is not JSON or not a schema, has an unknown keyword, or can be seen to contradict itself. What only compiling
    /// shows comes from [`compile`](Self::compile), and from [`check`](Self::check).
    pub fn json_schema(text: &str) -> Result<Self, GrammarError> {
        Ok(Self::new(Kind::JsonSchema, text, Form::Schema(schema::parse(text)?)))
    }

    /// The same between other text: behind `before` and a little white space, and with a match of the regular expression `behind` after it. It is
    /// for who holds an answer from some place on: a token may begin before the JSON does, and what it is in has to end.
    ///
    /// # Errors
    /// As of [`json_schema`](Self::json_schema), and if `behind` is no regular expression.
    pub fn json_schema_between(before: &str, text: &str, behind: &str) -> Result<Self, GrammarError> {
        at_most("what is around a schema's JSON, in bytes", before.len().max(behind.len()), MAX_AROUND)?;
        let (kind, form) = (Kind::JsonSchema, Form::Schema(schema::parse(text)?));
        let around = Some([before.to_owned(), regex::between_slashes(behind)?]);
        Ok(Self(Arc::new(Source { kind, text: text.into(), form, around })))
    }

    /// A match of a regular expression, in the syntax of the [`regex`](https://docs.rs/regex/latest/regex/#syntax) crate: the
    /// whole text, as if it stood between `^` and `$`.
    ///
    /// # Errors
    /// If it does not parse, nothing matches it, or it has an anchor or a word boundary inside.
    pub fn regex(text: &str) -> Result<Self, GrammarError> {
        Ok(Self::new(Kind::Regex, text, Form::Rules(regex::parse(text)?)))
    }

    fn new(kind: Kind, text: &str, form: Form) -> Self {
        Self(Arc::new(Source { kind, text: text.into(), form, around: None }))
    }

    /// As it was given.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The stage that constrains texts of a vocabulary.
    ///
    /// # Errors
    /// If the grammar names tokens that there are not, is too complex, or no token can come first; if a schema contradicts
    /// itself or asks for what cannot be enforced.
    pub fn compile(&self, vocabulary: &Vocabulary) -> Result<Constraint, GrammarError> {
        let run = || {
            let grammar = self.lower(vocabulary)?;
            let parser =
                vocabulary.factory().create_parser(grammar).map_err(|e| self.refused(&e.to_string()))?;
            Constraint::new(vocabulary, Matcher::new(Ok(parser)))
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("grammar".into()).stack_size(STACK);
            let thread = thread.spawn_scoped(scope, run);
            let thread =
                thread.map_err(|e| GrammarError::Compile(format!("starting a thread for it: {e}")))?;
            thread
                .join()
                .map_err(|_| GrammarError::Compile("it failed; this is a mistake in Ogive".into()))?
        })
    }

    /// Whether it compiles, as far as that can be said with a vocabulary of single bytes. Of a grammar that names tokens it cannot: only
    /// the vocabulary that has them tells.
    ///
    /// # Errors
    /// As for [`compile`](Self::compile).
    pub fn check(&self) -> Result<(), GrammarError> {
        if let Form::Rules(rules) = &self.0.form
            && rules.arena.names_tokens()
        {
            return Ok(());
        }
        self.of_bytes().map(drop)
    }

    /// Whether a text is a sentence of it.
    ///
    /// # Errors
    /// As for [`compile`](Self::compile); a grammar that names tokens has none that are here.
    pub fn takes(&self, text: &str) -> Result<bool, GrammarError> {
        let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
        Ok(self.of_bytes()?.is_complete(&tokens))
    }

    /// For a vocabulary of single bytes.
    fn of_bytes(&self) -> Result<Constraint, GrammarError> {
        let bytes: Vec<[u8; 1]> = (0..=255).map(|b| [b]).collect();
        let tokens = bytes.iter().map(|b| crate::Token::Text(b)).chain([crate::Token::Special(b"</s>")]);
        self.compile(&Vocabulary::new(tokens, &[256])?)
    }

    /// The grammar as llguidance takes it.
    fn lower(&self, vocabulary: &Vocabulary) -> Result<TopLevelGrammar, GrammarError> {
        match &self.0.form {
            Form::Rules(rules) => {
                let mut rules = rules.clone();
                rules.inline()?;
                let cut = lexemes::cut(&mut rules);
                Ok(TopLevelGrammar::from_lark(lark::write(&rules.arena, &cut, vocabulary)?))
            }
            Form::Schema(schema) => {
                schema::check(schema)?;
                Ok(match &self.0.around {
                    None => TopLevelGrammar::from_json_schema(schema.clone()),
                    Some([before, behind]) => TopLevelGrammar::from_lark(between(before, schema, behind)),
                })
            }
        }
    }

    /// llguidance's words in ours.
    fn refused(&self, text: &str) -> GrammarError {
        let text = walker::message(text);
        match self.0.kind {
            Kind::JsonSchema => schema::refused(&text),
            Kind::Gbnf | Kind::Regex => GrammarError::Compile(text),
        }
    }
}
