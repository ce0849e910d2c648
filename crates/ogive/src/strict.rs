//! Calls that a model begins by itself, with arguments held to their tools' schemas.
//!
//! Nothing is held before a call's name is out: whether a model calls, and what, is its own decision. From there to the call's end only
//! tokens may come that lead to arguments by the schema. llama.cpp holds a call from its first mark on, by a grammar of the whole syntax, and
//! needs one for each; here the syntax is read anyhow, and what is held is the same for all of them.

use crate::calls::Listener;
use crate::constrained::held_name;
use crate::engine::Digest;
use crate::forced::arguments;
use crate::sampler::{Candidates, Mask, Needs, SampleError, Stage};
use crate::thinking::{Cut, Parts};
use crate::tokenizer::tools::Tool;
use crate::{Generate, Model, Result, tensor};
use ogive_grammar::{Constraint, Grammar};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

impl Generate {
    /// Holds the arguments of calls that a model makes to the schemas of their [tools](crate::Chat::tools), as OpenAI's `strict` does: they are
    /// JSON that the schema allows, unless the answer ends within them. Whether it calls, and what, the model decides. It is for answers of a
    /// [`Chat`](crate::Chat) whose template writes arguments as JSON, in one piece; with another template, or a schema that cannot be
    /// [enforced](Self::json_schema), it is an error, and so it is with a grammar, where special tokens [show](Self::show_special), and in
    /// [`Session::generate`](crate::Session::generate). A conversation without tools has nothing to hold.
    ///
    /// A call that leaves its arguments out has `{}`, and does not end so if the schema wants more.
    /// Not held is a call of what is no tool, one whose arguments come before its name, one in Python, which is read beside the template's JSON,
    /// and one of which the token that begins the arguments has more of them already than the schema allows.
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
    /// All tokens but those that would end a call without arguments, of a tool that needs some: a bit each.
    but: Option<Vec<u32>>,
    failure: Option<String>,
}

/// What stays the same.
#[derive(Debug)]
struct Fixed {
    model: Model,
    tools: Vec<Tool>,
    cut: Cut,
    on_and_on: bool,
    text: String,
    /// By the tool, what stands before its arguments in their first token, and how many brackets close behind them.
    compiled: Mutex<HashMap<(usize, String, usize), Constraint>>,
    /// Texts that have a bracket which may end a call.
    closing: OnceLock<Vec<(u32, String)>>,
    /// Whether each tool needs arguments.
    needs: Vec<OnceLock<bool>>,
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
    /// For an answer that `cut` tells apart, by a syntax with so many brackets behind arguments. `on_and_on`: it does not end where it could
    /// go on.
    pub(crate) fn new(
        model: &Model,
        tools: &[Tool],
        cut: &Cut,
        closes: usize,
        on_and_on: bool,
    ) -> Result<Self> {
        let which: Vec<String> = tools.iter().map(|tool| tool.to_json().to_string()).collect();
        let text = held_name("strict", Digest::of(format!("{on_and_on} {}", which.concat()).as_bytes()));
        let (model, tools, compiled) = (model.clone(), tools.to_vec(), Mutex::default());
        let needs = tools.iter().map(|_| OnceLock::new()).collect();
        let closing = OnceLock::new();
        let fixed = Fixed { model, tools, cut: cut.clone(), on_and_on, text, compiled, closing, needs };
        for tool in 0..fixed.tools.len() {
            // What cannot be held is told before anything is drawn; the first call most likely needs no other.
            fixed.constraint(tool, "", closes).map_err(|e| tensor_error(&fixed.tools[tool].name, &e))?;
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
            but: None,
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
            self.but = self.fixed.but(&self.cut).filter(|_| self.constraint().is_none());
        }
    }

    fn forget(&mut self) {
        self.cut = self.fixed.cut.clone();
        (self.tokens, self.text, self.ends, self.rest) = Default::default();
        (self.held, self.but, self.failure) = (None, None, None);
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
            Some((self.fixed.tools.iter().position(|tool| tool.name == name)?, back, closes))
        });
        let Some((tool, back, closes)) = tool else {
            self.held = None;
            return;
        };
        let at = self.text.len().saturating_sub(back);
        let start = self.ends.partition_point(|end| *end <= at);
        if self.held.as_ref().is_some_and(|held| held.start == start) {
            return;
        }
        self.held = None;
        let first = start.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |end| *end);
        let before = self.text.get(first.min(at)..at).filter(|_| back <= self.text.len());
        let held = match before {
            Some(before) => self.fixed.held(tool, before, closes, history, begins + start),
            None => Err(wrong("its arguments begin where there is no text; this is a mistake in Ogive")),
        };
        match held {
            Ok(constraint) => self.held = Some(Held { start, constraint }),
            Err(e) => self.failure = Some(format!("holding a call to its schema: {e}")),
        }
    }

    fn constraint(&mut self) -> Option<&mut Constraint> {
        self.held.as_mut()?.constraint.as_mut()
    }
}

const HOLDING: &str = "holding calls to their schemas";

/// What cannot be asked for with it.
pub(crate) fn wrong(why: &str) -> crate::Error {
    tensor::Error::invalid(HOLDING, why).into()
}

fn tensor_error(tool: &str, e: &crate::Error) -> crate::Error {
    tensor::Error::invalid(HOLDING, e.to_string()).within(tool).into()
}

/// What models write behind arguments: an id, which they have made, or what kind of thing it is.
const BESIDE: &str = r#"(\s{0,4},\s{0,4}"(id|tool_call_id|type|index)"\s{0,4}:\s{0,4}("[A-Za-z0-9_.:-]{0,64}"|0|[1-9][0-9]{0,3})){0,2}"#;

impl Fixed {
    /// What holds arguments from their first token on, which is there in the history; `None` if that was none of the schema's.
    fn held(
        &self,
        tool: usize,
        before: &str,
        closes: usize,
        history: &[u32],
        from: usize,
    ) -> Result<Option<Constraint>> {
        let mut constraint = self.constraint(tool, before, closes)?;
        constraint.restore(&(from as u64).to_le_bytes())?;
        constraint.mask(history);
        // Of what fails otherwise, as by a parser's limits, it tells itself.
        let drawn = history.get(from..).unwrap_or_default();
        let holds = constraint.failure().is_none() || constraint.may_begin(drawn)?;
        Ok(holds.then_some(constraint))
    }

    /// What may come where a call could end without arguments that it needs.
    fn but(&self, cut: &Cut) -> Option<Vec<u32>> {
        let listener = cut.listener().filter(|listener| listener.may_leave_out())?;
        let needs = |name: &str| {
            let tool = self.tools.iter().position(|tool| tool.name == name);
            tool.is_some_and(|tool| self.needs(tool))
        };
        let mut but = Vec::new();
        for (id, text) in self.closing() {
            if listener.leaves_out(text, needs) {
                but.resize(self.model.tokenizer().map_or(0, |t| t.vocab_size()).div_ceil(32), u32::MAX);
                if let Some(word) = but.get_mut(*id as usize / 32) {
                    *word &= !(1 << (id % 32));
                }
            }
        }
        (!but.is_empty()).then_some(but)
    }

    fn closing(&self) -> &[(u32, String)] {
        self.closing.get_or_init(|| {
            let Ok(tokenizer) = self.model.tokenizer() else { return Vec::new() };
            let ids = 0..u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
            let plain = ids.filter(|id| tokenizer.token_kind(*id).is_some_and(|kind| !kind.is_special()));
            let closing = plain.filter_map(|id| {
                let bytes = tokenizer.token_bytes(id).ok().filter(|bytes| bytes.contains(&b'}'))?;
                Some((id, String::from_utf8_lossy(bytes).into_owned()))
            });
            closing.collect()
        })
    }

    /// Whether a call of this tool has to have arguments.
    fn needs(&self, tool: usize) -> bool {
        let needs = || -> Result<bool> {
            let schema = arguments(&self.tools[tool])?;
            Ok(!Grammar::json_schema(&schema)?.takes("{}")?)
        };
        // One that cannot be held was refused before.
        *self.needs[tool].get_or_init(|| needs().unwrap_or(false))
    }

    fn constraint(&self, tool: usize, before: &str, closes: usize) -> Result<Constraint> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (tool, before.to_owned(), closes);
        if let Some(known) = compiled.get(&key) {
            return Ok(known.clone());
        }
        let schema = arguments(&self.tools[tool])?;
        let behind = if closes > 0 { format!("{BESIDE}(\\s{{0,4}}\\}}){{{closes}}}") } else { String::new() };
        let mut new = self.model.constraint(&Grammar::json_schema_between(before, &schema, &behind)?)?;
        if self.on_and_on {
            new = new.on_and_on();
        }
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
        } else if let Some(but) = &self.but {
            let but = Mask::new(but);
            candidates.map(|c| if but.allows(c.id) { c.logit } else { f32::NEG_INFINITY });
        }
    }
    fn mask(&mut self, history: &[u32]) -> Option<Mask<'_>> {
        self.follow(history);
        match self.held.as_mut().and_then(|held| held.constraint.as_mut()) {
            Some(constraint) => constraint.mask(history),
            None => self.but.as_deref().map(Mask::new),
        }
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
