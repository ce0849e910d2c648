//! Calls that a model begins by itself, with arguments held to their tools' schemas.
//!
//! Nothing is held before a call's name is out: whether a model calls, and what, is its own decision. From there to the call's end only
//! tokens may come that lead to arguments by the schema. llama.cpp holds a call from its first mark on, by a grammar of the whole syntax, and
//! needs one for each; here the syntax is read anyhow, and what is held is the same for all of them.

use crate::calls::Listener;
use crate::constrained::held_name;
use crate::engine::Digest;
use crate::sampler::{Candidates, Mask, Needs, SampleError, Stage};
use crate::thinking::{Cut, Parts};
use crate::tokenizer::tools::Tool;
use crate::{Generate, Model, Result, tensor};
use ogive_grammar::{Constraint, Grammar};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

impl Generate {
    /// Holds the arguments of calls that a model makes to the schemas of their [tools](crate::Chat::tools), as OpenAI's `strict` does: they are
    /// JSON that the schema allows, unless the answer ends within them. Whether it calls, and what, the model decides. It is for answers of a
    /// [`Chat`](crate::Chat) whose template writes arguments as JSON, in one piece; with another template, or a schema that cannot be
    /// [enforced](Self::json_schema), it is an error. Not held is a call of what is no tool, one whose arguments
    /// come before its name, and one of which the token that begins the arguments has more of them already than the schema allows.
    ///
    /// Where a session [goes on](crate::Session::resume) within such an answer it is not held, and draws [anew](crate::Session::resume_anew) alone.
    ///
    /// On a GPU whole rows of logits come to the processor then, in place of the best of them.
    #[must_use]
    pub fn strict(self) -> Self {
        Self { strict: true, ..self }
    }
}

/// The stage that holds calls. It hears the answer as the conversation does.
#[derive(Clone, Debug)]
pub(crate) struct Strict {
    fixed: Arc<Fixed>,
    /// Where the answer begins in the history.
    begins: Option<usize>,
    /// Its tokens, its text, where in that each token ends, and what is no whole character yet.
    tokens: Vec<u32>,
    text: String,
    ends: Vec<usize>,
    rest: Vec<u8>,
    cut: Cut,
    held: Option<Held>,
    failure: Option<String>,
}

/// What stays the same.
#[derive(Debug)]
struct Fixed {
    model: Model,
    tools: Vec<Tool>,
    cut: Cut,
    text: String,
    /// By the tool, what stands before its arguments in their first token, and how many brackets close behind them.
    compiled: Mutex<HashMap<(usize, String, usize), Constraint>>,
}

/// Arguments that are held.
#[derive(Clone, Debug)]
struct Held {
    /// Where in the answer their first token is.
    start: usize,
    /// None if that was no beginning of what the schema allows: the model has drawn it before it could be held.
    constraint: Option<Constraint>,
}

impl Strict {
    /// For an answer that `cut` tells apart.
    pub(crate) fn new(model: &Model, tools: &[Tool], cut: &Cut) -> Result<Self> {
        let which: Vec<String> = tools.iter().map(|tool| tool.to_json().to_string()).collect();
        let text = held_name("strict", Digest::of(which.concat().as_bytes()));
        let (model, tools, compiled) = (model.clone(), tools.to_vec(), Mutex::default());
        let fixed = Fixed { model, tools, cut: cut.clone(), text, compiled };
        for tool in 0..fixed.tools.len() {
            // What cannot be held is told before anything is drawn.
            fixed.constraint(tool, "", 0).map_err(|e| tensor_error(&fixed.tools[tool].name, &e))?;
        }
        let cut = cut.clone();
        let (tokens, text, ends, rest) = Default::default();
        Ok(Self {
            fixed: Arc::new(fixed),
            begins: None,
            tokens,
            text,
            ends,
            rest,
            cut,
            held: None,
            failure: None,
        })
    }

    /// Hears what has come, and goes back where the history has.
    fn follow(&mut self, history: &[u32]) {
        let begins = (*self.begins.get_or_insert(history.len())).min(history.len());
        self.begins = Some(begins);
        let tokens = &history[begins..];
        if !tokens.starts_with(&self.tokens) {
            self.forget();
        }
        let new = &tokens[self.tokens.len()..];
        for id in new {
            self.hear(*id);
        }
        if !new.is_empty() {
            self.hold(history, begins);
        }
    }

    fn forget(&mut self) {
        self.cut = self.fixed.cut.clone();
        (self.tokens, self.text, self.ends, self.rest) = Default::default();
        (self.held, self.failure) = (None, None);
    }

    fn hear(&mut self, id: u32) {
        let Ok(tokenizer) = self.fixed.model.tokenizer() else { return };
        let bytes = tokenizer.token_bytes(id).unwrap_or_default();
        let special = tokenizer.token_kind(id).is_some_and(|kind| kind.is_special());
        let from = self.text.len();
        if !special {
            self.rest.extend_from_slice(bytes);
            let whole = match std::str::from_utf8(&self.rest) {
                Ok(all) => all.len(),
                Err(e) if e.error_len().is_none() => e.valid_up_to(),
                Err(_) => self.rest.len(),
            };
            let rest = self.rest.split_off(whole);
            self.text.push_str(&String::from_utf8_lossy(&std::mem::replace(&mut self.rest, rest)));
        }
        let said = &self.text[from..];
        self.cut.hear(id, said, || special.then(|| String::from_utf8_lossy(bytes).into_owned()));
        self.cut.give(said, false);
        // Nobody asks here what was said.
        self.cut.said = Parts::default();
        self.tokens.push(id);
        self.ends.push(self.text.len());
    }

    /// Holds arguments that have begun, or have to.
    fn hold(&mut self, history: &[u32], begins: usize) {
        let open = self.cut.open();
        let tool = open.and_then(|(name, back, closes)| {
            let tool = self.fixed.tools.iter().position(|tool| tool.name == name)?;
            Some((tool, self.text.len().checked_sub(back)?, closes))
        });
        let Some((tool, at, closes)) = tool else {
            self.held = None;
            return;
        };
        let start = self.ends.partition_point(|end| *end <= at);
        if self.held.as_ref().is_some_and(|held| held.start == start) {
            return;
        }
        let first = start.checked_sub(1).map_or(0, |before| self.ends[before]);
        let constraint = self.fixed.constraint(tool, &self.text[first.min(at)..at], closes);
        let constraint = constraint.and_then(|mut constraint| {
            constraint.restore(&((begins + start) as u64).to_le_bytes())?;
            constraint.mask(history);
            Ok(constraint.failure().is_none().then_some(constraint))
        });
        match constraint {
            Ok(constraint) => self.held = Some(Held { start, constraint }),
            Err(e) => self.failure = Some(format!("holding a call to its schema: {e}")),
        }
    }

    fn constraint(&mut self) -> Option<&mut Constraint> {
        self.held.as_mut()?.constraint.as_mut()
    }
}

fn tensor_error(tool: &str, e: &crate::Error) -> crate::Error {
    tensor::Error::invalid("holding calls to their schemas", e.to_string()).within(tool).into()
}

/// What models write behind arguments: an id, which they have made, or what kind of thing it is.
const BESIDE: &str = r#"(\s{0,4},\s{0,4}"(id|tool_call_id|type|index)"\s{0,4}:\s{0,4}("[A-Za-z0-9_.:-]{0,64}"|0|[1-9][0-9]{0,3})){0,2}"#;

impl Fixed {
    fn constraint(&self, tool: usize, before: &str, closes: usize) -> Result<Constraint> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (tool, before.to_owned(), closes);
        if let Some(known) = compiled.get(&key) {
            return Ok(known.clone());
        }
        let schema = self.tools[tool].parameters.to_string();
        let behind = if closes > 0 { format!("{BESIDE}(\\s{{0,4}}\\}}){{{closes}}}") } else { String::new() };
        let new = self.model.constraint(&Grammar::json_schema_between(before, &schema, &behind)?)?;
        compiled.insert(key, new.clone());
        Ok(new)
    }
}

impl Cut {
    /// As [`Listener::open`].
    fn open(&self) -> Option<(&str, usize, usize)> {
        self.listener().and_then(Listener::open)
    }
}

impl Stage for Strict {
    fn name(&self) -> &str {
        "strict"
    }
    fn text(&self) -> String {
        self.fixed.text.clone()
    }
    fn apply(&mut self, candidates: &mut Candidates, history: &[u32]) {
        self.follow(history);
        if self.failure.is_some() {
            candidates.map(|_| f32::NEG_INFINITY);
        } else if let Some(constraint) = self.constraint() {
            constraint.apply(candidates, history);
        }
    }
    fn mask(&mut self, history: &[u32]) -> Option<Mask<'_>> {
        self.follow(history);
        self.constraint()?.mask(history)
    }
    fn failure(&self) -> Option<String> {
        let constraint = self.held.as_ref().and_then(|held| held.constraint.as_ref());
        self.failure.clone().or_else(|| constraint?.failure())
    }
    fn reset(&mut self) {
        self.begins = None;
        self.forget();
    }
    /// Where the answer begins; the rest is in the history.
    fn state(&self) -> Vec<u8> {
        self.begins.map(|at| (at as u64).to_le_bytes().to_vec()).unwrap_or_default()
    }
    fn restore(&mut self, state: &[u8]) -> Result<(), SampleError> {
        let begins = match state.first_chunk::<8>().filter(|_| state.len() == 8) {
            None if state.is_empty() => None,
            None => return Err(SampleError::bad_state(self.name())),
            Some(at) => usize::try_from(u64::from_le_bytes(*at)).ok(),
        };
        self.reset();
        self.begins = begins;
        Ok(())
    }
    fn needs(&self) -> Needs {
        Needs::All
    }
    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(self.clone())
    }
}
