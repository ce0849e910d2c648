//! A vocabulary in the form that masks are computed from: a tree of the tokens' bytes.
//!
//! The crate takes tokens as a plain list and knows no tokenizer, so that whoever has another one, or none, can constrain too;
//! [`ogive`](https://docs.rs/ogive) hands over its own. It depends on the sampler, whose stage it is, and nothing depends on it
//! but the façade.

use crate::error::{GrammarError, at_most};
use crate::expr::TokenRef;
use crate::lark::Tokens;
use crate::walker;
use llguidance::ParserFactory;
use llguidance::earley::SlicedBiasComputer;
use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// A token, as a grammar sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Token<'t> {
    /// Stands for these bytes, which need not be whole characters.
    Text(&'t [u8]),
    /// Means something to the model and is no text: never allowed by a grammar's characters, only by its name, which this is.
    Special(&'t [u8]),
    /// Never allowed.
    Unused,
}

/// llguidance's trees take so many tokens; the largest vocabularies have some 300 000.
const MAX_TOKENS: usize = (1 << 23) - 1;
/// And so many nodes.
const MAX_TREE: usize = (1 << 22) - 2;
/// And so long a token; the longest known is 1024 spaces. Longer ones are never allowed.
const MAX_TOKEN_BYTES: usize = 1024;

/// The tokens of a model, prepared for grammars. Cheap to clone.
///
/// Preparing takes some tenths of a second at 150 000 tokens: do it once for a model.
///
/// ```
/// use ogive_grammar::{Token, Vocabulary};
/// let tokens = [Token::Text(b"yes"), Token::Text(b"no"), Token::Special(b"</s>")];
/// let vocabulary = Vocabulary::new(tokens, &[2])?;
/// assert_eq!(vocabulary.size(), 3);
/// # Ok::<(), ogive_grammar::GrammarError>(())
/// ```
#[derive(Clone)]
pub struct Vocabulary(Arc<Inner>);

struct Inner {
    factory: ParserFactory,
    size: usize,
    ends: Vec<u32>,
    usable: Vec<bool>,
    named: HashMap<Vec<u8>, u32>,
}

impl fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vocabulary")
            .field("size", &self.0.size)
            .field("ends", &self.0.ends)
            .finish_non_exhaustive()
    }
}

impl Vocabulary {
    /// From all tokens in order of their ids, and those that end a text.
    ///
    /// # Errors
    /// If no token ends a text, or one that does is not there; if there are more tokens, or more bytes in them, than the trees
    /// have room for.
    pub fn new<'t>(tokens: impl IntoIterator<Item = Token<'t>>, ends: &[u32]) -> Result<Self, GrammarError> {
        let tokens: Vec<Token<'t>> = tokens.into_iter().collect();
        let size = tokens.len();
        at_most("the vocabulary's number of tokens", size, MAX_TOKENS)?;
        let mut ends = ends.to_vec();
        ends.sort_unstable();
        ends.dedup();
        match ends.last() {
            None => {
                let why = "no token ends a text, so no constrained text could end; name one";
                return Err(GrammarError::Vocabulary(why.into()));
            }
            Some(&last) if last as usize >= size => {
                let why = format!("token {last} is to end a text, but there are {size} tokens");
                return Err(GrammarError::Vocabulary(why));
            }
            Some(_) => {}
        }
        // One more than there are: the end as llguidance sees it, which stands for all of ours.
        let mut words = vec![Vec::new(); size + 1];
        let (mut usable, mut named) = (vec![false; size], HashMap::new());
        for (id, token) in (0u32..).zip(&tokens) {
            let at = id as usize;
            let is_end = ends.binary_search(&id).is_ok();
            let (Token::Text(name) | Token::Special(name)) = token else { continue };
            if name.starts_with(b"<") && name.ends_with(b">") {
                // Of equal names the special one.
                if matches!(token, Token::Special(_)) {
                    named.insert(name.to_vec(), id);
                } else {
                    named.entry(name.to_vec()).or_insert(id);
                }
            }
            match token {
                _ if is_end => {}
                Token::Special(_) => {
                    words[at] = format!("X[{id}]").into_bytes();
                    // No text has this byte, so no characters lead here.
                    words[at][0] = TokTrie::SPECIAL_TOKEN_MARKER;
                    usable[at] = true;
                }
                Token::Text(bytes) => {
                    let fits = (1..=MAX_TOKEN_BYTES).contains(&bytes.len());
                    if !fits || bytes.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER) {
                        continue;
                    }
                    words[at] = bytes.to_vec();
                    usable[at] = true;
                }
                Token::Unused => {}
            }
        }
        at_most("the number of different beginnings of tokens", tree_size(&words), MAX_TREE)?;
        let end = u32::try_from(size).unwrap_or(u32::MAX);
        let factory = catch_unwind(AssertUnwindSafe(|| {
            let trie = TokTrie::from(&TokRxInfo::new(end + 1, end), &words);
            let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
            let slices = SlicedBiasComputer::general_slices();
            let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)?;
            factory.quiet();
            *factory.limits_mut() = walker::limits();
            Ok(factory)
        }));
        let factory = factory.map_err(|e| GrammarError::Vocabulary(walker::message(&e.to_string())))?;
        Ok(Self(Arc::new(Inner { factory, size, ends, usable, named })))
    }

    /// How many tokens there are.
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// The tokens that end a text, in ascending order.
    pub fn ends(&self) -> &[u32] {
        &self.0.ends
    }

    pub(crate) fn is_end(&self, token: u32) -> bool {
        self.0.ends.binary_search(&token).is_ok()
    }

    pub(crate) fn factory(&self) -> &ParserFactory {
        &self.0.factory
    }
}

impl Tokens for Vocabulary {
    fn resolve(&self, token: &TokenRef) -> Result<u32, GrammarError> {
        let wrong = |why| GrammarError::Token { token: token.text.clone(), why };
        let id = match token.id {
            Some(id) => id,
            None => {
                let found = self.0.named.get(token.text.as_bytes());
                *found.ok_or_else(|| wrong("which the vocabulary does not have"))?
            }
        };
        if id as usize >= self.0.size {
            return Err(wrong("which is beyond the vocabulary's last"));
        }
        if !token.negated && self.is_end(id) {
            return Err(wrong("which ends the text, so that nothing can be made of it; leave it out"));
        }
        if !token.negated && !self.0.usable.get(id as usize).is_some_and(|u| *u) {
            return Err(wrong("which is not in use"));
        }
        Ok(id)
    }

    fn all_but(&self, except: &BTreeSet<u32>) -> Vec<(u32, u32)> {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for (id, _) in (0..).zip(&self.0.usable).filter(|(id, usable)| **usable && !except.contains(id)) {
            match ranges.last_mut() {
                Some(last) if last.1 + 1 == id => last.1 = id,
                _ => ranges.push((id, id)),
            }
        }
        ranges
    }
}

/// Nodes of the tree of these words: those that share a beginning share its nodes.
fn tree_size(words: &[Vec<u8>]) -> usize {
    let mut sorted: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    sorted.sort_unstable();
    let shared = |a: &[u8], b: &[u8]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let own = sorted.windows(2).map(|w| w[1].len() - shared(w[0], w[1]));
    1 + sorted.first().map_or(0, |w| w.len()) + own.sum::<usize>()
}
