//! Constrained output: answers that are sentences of a grammar, JSON by a schema, or matches of a regular expression.
//!
//! A grammar is part of [`Generate`], and not of the model or the session: it holds for one answer. The vocabulary is prepared for
//! grammars once for each model, when the first one is used.

use crate::engine::Digest;
use crate::sampler::{Candidates, Chain, Mask, Needs, SampleError, Stage};
use crate::tokenizer::{TokenKind, Tokenizer};
use crate::{Error, Generate, Generation, Model, Reply, Result};
use ogive_grammar::{Constraint, Grammar, GrammarError, Token, Vocabulary};
use serde::de::DeserializeOwned;

/// A constraint that one answer is held to. Its text names the grammar, so that a chain of another is another chain.
#[derive(Clone, Debug)]
struct Held {
    constraint: Constraint,
    text: String,
}

/// How the text of a stage that holds one answer begins.
const HELD: [&str; 2] = ["grammar:", "strict:"];

/// Whether it is a stage that an answer was held to.
pub(crate) fn is_held(stage: &dyn Stage) -> bool {
    HELD.iter().any(|held| stage.text().starts_with(held))
}

/// The text of such a stage.
pub(crate) fn held_name(kind: &str, which: u64) -> String {
    format!("{kind}:{which:016x}")
}

impl Held {
    fn new(constraint: Constraint, grammar: &Grammar, on_and_on: bool) -> Self {
        let which = format!("{grammar:?} {on_and_on}");
        Self { constraint, text: held_name("grammar", Digest::of(which.as_bytes())) }
    }
}

impl Stage for Held {
    fn name(&self) -> &str {
        self.constraint.name()
    }
    fn text(&self) -> String {
        self.text.clone()
    }
    fn apply(&mut self, candidates: &mut Candidates, history: &[u32]) {
        self.constraint.apply(candidates, history);
    }
    fn mask(&mut self, history: &[u32]) -> Option<Mask<'_>> {
        self.constraint.mask(history)
    }
    fn failure(&self) -> Option<String> {
        self.constraint.failure()
    }
    fn accept(&mut self, token: u32) {
        self.constraint.accept(token);
    }
    fn reset(&mut self) {
        self.constraint.reset();
    }
    fn state(&self) -> Vec<u8> {
        self.constraint.state()
    }
    fn restore(&mut self, state: &[u8]) -> Result<(), SampleError> {
        self.constraint.restore(state)
    }
    fn needs(&self) -> Needs {
        self.constraint.needs()
    }
    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(self.clone())
    }
}

/// A vocabulary as grammars see it.
pub(crate) fn vocabulary(tokenizer: &Tokenizer) -> Result<Vocabulary, GrammarError> {
    let tokens = (0..u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX)).map(|id| {
        let bytes = tokenizer.token_bytes(id).unwrap_or_default();
        match tokenizer.token_kind(id) {
            Some(TokenKind::Normal | TokenKind::UserDefined | TokenKind::Byte) => Token::Text(bytes),
            Some(TokenKind::Control) => Token::Special(bytes),
            _ => Token::Unused,
        }
    });
    Vocabulary::new(tokens, tokenizer.eog())
}

impl Generate {
    /// Only answers that `grammar` allows, from their first character to their last.
    #[must_use]
    pub fn constrain(self, grammar: Grammar) -> Self {
        Self { grammar: Some(grammar), ..self }
    }

    /// Only sentences of a grammar in GBNF, llama.cpp's language.
    ///
    /// ```
    /// # fn main() -> ogive::Result<()> {
    /// let how = ogive::Generate::new().grammar("root ::= \"yes\" | \"no\"")?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// With line and column, if it does not parse.
    pub fn grammar(self, gbnf: &str) -> Result<Self> {
        Ok(self.constrain(Grammar::gbnf(gbnf)?))
    }

    /// Only JSON by a JSON Schema, what OpenAI's structured outputs take.
    ///
    /// The model does not see the schema: say in the prompt what is asked for. An answer that
    /// [`max_tokens`](Self::max_tokens) cuts short is no JSON; [`Generation::is_complete`] tells.
    ///
    /// ```no_run
    /// # fn main() -> ogive::Result<()> {
    /// let schema = r#"{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}"#;
    /// let how = ogive::Generate::new().json_schema(schema)?;
    /// let mut session = ogive::open("model.gguf")?.session()?;
    /// let hero: serde_json::Value = session.generate("The hero of the story, as JSON: ", &how)?.json()?;
    /// println!("{}", hero["name"]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If it is no schema, contradicts itself, or has a keyword that is not enforced.
    pub fn json_schema(self, schema: &str) -> Result<Self> {
        let grammar = Grammar::json_schema(schema)?;
        // Half of what is wrong with schemas only compiling shows, which would otherwise come with the first answer.
        grammar.check()?;
        Ok(self.constrain(grammar))
    }

    /// Only matches of a regular expression, in the syntax of the `regex` crate: the whole answer must match.
    ///
    /// # Errors
    /// If it does not parse.
    pub fn regex(self, regex: &str) -> Result<Self> {
        Ok(self.constrain(Grammar::regex(regex)?))
    }
}

impl Model {
    /// The stage that holds answers to a grammar, for chains of one's own; it belongs [first](Chain::first).
    ///
    /// # Errors
    /// If the model has no vocabulary, or the grammar does not fit it.
    pub fn constraint(&self, grammar: &Grammar) -> Result<Constraint> {
        let tokenizer = self.tokenizer()?;
        let vocabulary = self.vocabulary_cell().get_or_init(|| vocabulary(tokenizer)).as_ref();
        Ok(grammar.compile(vocabulary.map_err(Clone::clone)?)?)
    }

    /// The chain with what `how` asks for before it.
    pub(crate) fn constrained(&self, how: &Generate, chain: Chain) -> Result<(Chain, Option<Constraint>)> {
        let Some(grammar) = &how.grammar else { return Ok((chain, None)) };
        let mut constraint = self.constraint(grammar)?;
        if how.ignore_end {
            constraint = constraint.on_and_on();
        }
        let held = Held::new(constraint.clone(), grammar, how.ignore_end);
        Ok((chain.first(held), Some(constraint)))
    }
}

impl Generation<'_> {
    /// Whether what has come is all that the grammar asks for: false where it was cut short, `None` without a grammar.
    pub fn is_complete(&self) -> Option<bool> {
        let constraint = self.constraint.as_ref()?;
        // The stage knows where its text began, which is before this answer if a session was resumed.
        let state = self.stage_state();
        let begins = state.first_chunk().map(|at| u64::from_le_bytes(*at));
        let begins = begins.and_then(|at| usize::try_from(at).ok()).unwrap_or(usize::MAX);
        let all = [self.prompt_ids(), self.ids()].concat();
        Some(constraint.is_complete(all.get(begins..).unwrap_or_default()))
    }

    fn stage_state(&self) -> Vec<u8> {
        self.chain().and_then(|chain| chain.stages().next().map(Stage::state)).unwrap_or_default()
    }

    /// Runs to the end and gives the answer as a value: for [`Generate::json_schema`].
    ///
    /// # Errors
    /// If the answer was cut short, or is not JSON of this type.
    pub fn json<T: DeserializeOwned>(&mut self) -> Result<T> {
        let text = self.text()?;
        value(&text, self)
    }
}

impl Reply<'_> {
    /// The same as [`Generation::json`].
    ///
    /// # Errors
    /// If the answer was cut short, or is not JSON of this type.
    pub fn json<T: DeserializeOwned>(&mut self) -> Result<T> {
        let text = self.text()?;
        value(&text, self.generation())
    }
}

fn value<T: DeserializeOwned>(text: &str, from: &Generation<'_>) -> Result<T> {
    if from.is_complete() == Some(false) {
        return Err(Error::CutShort { tokens: from.ids().len() });
    }
    serde_json::from_str(text).map_err(|e| Error::Json(e.to_string()))
}
