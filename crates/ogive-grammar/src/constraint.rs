//! A grammar for a vocabulary, as a stage of a sampler's chain.
//!
//! It belongs first in the chain ([`Chain::first`](ogive_sampler::Chain::first)). llama.cpp draws without the grammar, looks
//! whether the token fits, and only if it does not masks all and draws again: its masks are slow. Masking first draws from what
//! the chain makes of the allowed tokens, with one random number, so that a seed means the same whether or not a draw would have
//! fitted, and top-k keeps k tokens that can be drawn.

use crate::error::GrammarError;
use crate::vocabulary::Vocabulary;
use crate::walker::Walker;
use llguidance::Matcher;
use ogive_sampler::{Candidates, Mask, Needs, SampleError, Stage};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What stays the same for all copies.
struct Compiled {
    vocabulary: Vocabulary,
    /// At the beginning; never moved nor asked, only copied, so that no text can use it up.
    start: Mutex<Walker>,
}

/// Allows only tokens that lead to a sentence of a grammar, and the end of the text only where there is one.
///
/// Made by [`Grammar::compile`](crate::Grammar::compile). The text it constrains begins where the stage is first applied: what
/// is in the history by then is the prompt. From there on it follows the history, also where that is cut short.
///
/// The tokens that end a text are allowed exactly where a sentence is complete; where nothing else is possible, they are all
/// that is allowed.
#[derive(Clone)]
pub struct Constraint {
    compiled: Arc<Compiled>,
    walker: Arc<Mutex<Walker>>,
    /// Where the text begins in the history.
    begins: Option<usize>,
    tokens: Vec<u32>,
    /// The mask for `tokens`, if it was made.
    mask: Option<Vec<u32>>,
    failure: Option<String>,
    on: bool,
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Constraint")
            .field("begins", &self.begins)
            .field("tokens", &self.tokens)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

fn lock(walker: &Mutex<Walker>) -> MutexGuard<'_, Walker> {
    // A walker that a panic left behind says so itself.
    walker.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Constraint {
    /// At the beginning of a text.
    ///
    /// # Errors
    /// If no token of the vocabulary can come first.
    pub(crate) fn new(vocabulary: &Vocabulary, matcher: Matcher) -> Result<Self, GrammarError> {
        let start = Walker::new(matcher);
        let walker = Arc::new(Mutex::new(start.copy()));
        let compiled = Arc::new(Compiled { vocabulary: vocabulary.clone(), start: Mutex::new(start) });
        let mut new =
            Self { compiled, walker, begins: None, tokens: Vec::new(), mask: None, failure: None, on: false };
        new.look();
        match new.failure.take() {
            None => Ok(new),
            Some(why) => Err(GrammarError::Compile(why)),
        }
    }

    /// The same, but where the text could end and could go on, it goes on.
    #[must_use]
    pub fn on_and_on(self) -> Self {
        Self { on: true, mask: None, ..self }
    }

    /// Whether the text after these tokens, those that end it aside, is a sentence of the grammar: false where it was cut off.
    ///
    /// Looks from the beginning of the text, whatever this stage has seen.
    pub fn is_complete(&self, tokens: &[u32]) -> bool {
        let end = tokens.iter().position(|&t| self.compiled.vocabulary.is_end(t)).unwrap_or(tokens.len());
        let text = tokens.get(..end).unwrap_or_default();
        let mut walker = lock(&self.compiled.start).copy();
        walker.go_to(text).is_ok() && walker.may_end().unwrap_or(false)
    }

    /// Whether a sentence of the grammar may begin with these tokens, whatever this stage has seen.
    ///
    /// # Errors
    /// If that takes more than a parser may.
    pub fn may_begin(&self, tokens: &[u32]) -> Result<bool, GrammarError> {
        let mut walker = lock(&self.compiled.start).copy();
        walker.takes(tokens).map_err(GrammarError::Compile)
    }

    /// The tokens that may come after those that it has accepted: bit `i % 32` of word `i / 32` for token `i`.
    ///
    /// All zero where nothing may; [`Stage::failure`] then says why.
    pub fn allowed(&mut self) -> Mask<'_> {
        self.look();
        Mask::new(self.mask.as_deref().unwrap_or_default())
    }

    /// Moves to where the history says it is.
    fn follow(&mut self, history: &[u32]) {
        let begins = *self.begins.get_or_insert(history.len());
        if history.len() < begins {
            // Back into the prompt: another text.
            self.begins = Some(history.len());
        }
        let tokens = history.get(self.begins.unwrap_or(0)..).unwrap_or_default();
        if tokens != self.tokens {
            self.tokens.clear();
            self.tokens.extend_from_slice(tokens);
            self.mask = None;
        }
    }

    /// Makes the mask, if it is not there.
    fn look(&mut self) {
        if self.mask.is_some() {
            return;
        }
        self.failure = None;
        let mask = self.masked().unwrap_or_else(|why| {
            self.failure = Some(why);
            vec![0; self.compiled.vocabulary.size().div_ceil(32)]
        });
        self.mask = Some(mask);
    }

    fn masked(&mut self) -> Result<Vec<u32>, String> {
        // Taken out for as long as the parser is asked.
        let tokens = std::mem::take(&mut self.tokens);
        let mask = self.masked_after(&tokens);
        self.tokens = tokens;
        mask
    }

    fn masked_after(&mut self, tokens: &[u32]) -> Result<Vec<u32>, String> {
        let vocabulary = self.compiled.vocabulary.clone();
        let size = vocabulary.size();
        let nothing = |why: &str| nothing_fits(tokens.len(), why);
        let end = tokens.iter().position(|&t| vocabulary.is_end(t));
        let (text, after) = tokens.split_at(end.unwrap_or(tokens.len()));
        if let Some(token) = after.iter().find(|&&t| !vocabulary.is_end(t)) {
            return Err(format!("token {token} came after the end of the text"));
        }
        let mut words = vec![0; size.div_ceil(32)];
        let mut may_end = end.is_some();
        if !may_end {
            let mask = self.walk(text, Walker::mask).map_err(|why| nothing(&why))?;
            let mask = mask.as_slice();
            may_end = mask.get(size / 32).is_some_and(|word| word >> (size % 32) & 1 == 1);
            words.iter_mut().zip(mask).for_each(|(word, allowed)| *word = *allowed);
            // The tokens that end a text come in below; llguidance's own end is beyond the last token.
            let own = words.last_mut().filter(|_| !size.is_multiple_of(32));
            own.into_iter().for_each(|last| *last &= (1 << (size % 32)) - 1);
            vocabulary.ends().iter().for_each(|&id| set(&mut words, id, false));
        }
        let goes_on = words.iter().any(|&word| word != 0);
        if may_end && !(goes_on && self.on) {
            vocabulary.ends().iter().for_each(|&id| set(&mut words, id, true));
        } else if !goes_on {
            return Err(nothing(""));
        }
        Ok(words)
    }

    /// Asks the parser at a place: the shared one, or a new one where another copy has taken that elsewhere or it fails.
    ///
    /// What a parser has learned of other texts counts against its limits, so a text at which one fails is read once more in one
    /// that is new; only if it fails there too has the text itself gone too far.
    fn walk<T>(&mut self, text: &[u32], ask: impl Fn(&mut Walker) -> Result<T, String>) -> Result<T, String> {
        let read = |walker: &mut Walker| walker.go_to(text).and_then(|()| ask(walker));
        let new = || lock(&self.compiled.start).copy();
        let alone = Arc::strong_count(&self.walker) == 1;
        // Held from what is seen of it until it is used: another copy may move it or have it fail.
        let mut walker = lock(&self.walker);
        // One step back is a draw that was made again, or only asked about.
        if alone || walker.back(text) <= 1 {
            let found = read(&mut walker);
            if !walker.failed() {
                return found;
            }
            // For the others it is as it was at the beginning.
            *walker = new();
        }
        drop(walker);
        let mut own = new();
        let found = read(&mut own);
        self.walker = Arc::new(Mutex::new(own));
        found
    }
}

/// Why there is no token that could come after so many.
fn nothing_fits(tokens: usize, why: &str) -> String {
    let after = match tokens {
        0 => "at the beginning of the text".into(),
        1 => "after 1 token".into(),
        n => format!("after {n} tokens"),
    };
    // What llguidance says where its mask is empty.
    if why.is_empty() || why == "NoExtensionBias" {
        format!("no token of the vocabulary fits the grammar {after}")
    } else {
        format!("finding the tokens that fit the grammar {after}: {why}")
    }
}

fn set(words: &mut [u32], id: u32, on: bool) {
    if let Some(word) = words.get_mut(id as usize / 32) {
        let bit = 1 << (id % 32);
        *word = if on { *word | bit } else { *word & !bit };
    }
}

impl Stage for Constraint {
    fn name(&self) -> &str {
        "grammar"
    }

    fn apply(&mut self, candidates: &mut Candidates, history: &[u32]) {
        self.follow(history);
        let mask = self.allowed();
        let keep = |id| mask.allows(id);
        if candidates.as_slice().iter().any(|c| keep(c.id)) {
            candidates.retain(|c| keep(c.id));
        } else {
            candidates.map(|_| f32::NEG_INFINITY);
        }
    }

    fn mask(&mut self, history: &[u32]) -> Option<Mask<'_>> {
        self.follow(history);
        Some(self.allowed())
    }

    fn accept(&mut self, token: u32) {
        if self.begins.is_some() {
            self.tokens.push(token);
            self.mask = None;
        }
    }

    fn reset(&mut self) {
        self.begins = None;
        self.tokens.clear();
        self.mask = None;
        self.failure = None;
    }

    fn failure(&self) -> Option<String> {
        self.failure.clone()
    }

    /// Where the text begins; the rest is in the history.
    fn state(&self) -> Vec<u8> {
        self.begins.map(|at| (at as u64).to_le_bytes().to_vec()).unwrap_or_default()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), SampleError> {
        let begins = match state.first_chunk::<8>().filter(|_| state.len() == 8) {
            None if state.is_empty() => None,
            at => Some(at.and_then(|at| usize::try_from(u64::from_le_bytes(*at)).ok())),
        };
        if begins == Some(None) {
            return Err(SampleError::bad_state(self.name()));
        }
        self.reset();
        self.begins = begins.flatten();
        Ok(())
    }

    fn needs(&self) -> Needs {
        Needs::All
    }

    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(self.clone())
    }
}
