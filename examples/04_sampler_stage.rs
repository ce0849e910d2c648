//! A sampler stage of one's own: no word with a given letter. It looks at one token at a time, so a letter is one of those that no vocabulary cuts: ASCII's.
//!
//! `cargo run --release -p ogive-examples --example 04_sampler_stage -- [MODEL [LETTER]]`

use ogive::Generate;
use ogive::sampler::{Candidates, Chain, Needs, Stage, stages};
use ogive::tokenizer::Tokenizer;
use std::{env, error::Error};

/// Forbids every token whose text has a certain letter. Those that are no text, as what ends a story, have names, which do not count.
#[derive(Clone, Debug)]
struct Without {
    /// In ascending order.
    banned: Vec<u32>,
}

impl Without {
    fn new(letter: &str, tokenizer: &Tokenizer) -> ogive::Result<Self> {
        let mut banned = Vec::new();
        for id in 0..u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX) {
            let text = String::from_utf8_lossy(tokenizer.token_bytes(id)?).to_lowercase();
            let is_text =
                !tokenizer.is_eog(id) && !tokenizer.token_kind(id).is_some_and(|kind| kind.is_special());
            if is_text && text.contains(letter) {
                banned.push(id);
            }
        }
        Ok(Self { banned })
    }
}

impl Stage for Without {
    fn name(&self) -> &str {
        "without"
    }

    fn apply(&mut self, candidates: &mut Candidates, _history: &[u32]) {
        let is_banned = |id: u32| self.banned.binary_search(&id).is_ok();
        candidates.map(|c| if is_banned(c.id) { f32::NEG_INFINITY } else { c.logit });
    }

    /// At worst all banned tokens are better than the best allowed one. Saying so spares the backend sending all logits;
    /// `Needs::All`, the default, is always right.
    fn needs(&self) -> Needs {
        Needs::NextAnd(self.banned.len())
    }

    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(self.clone())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let model = ogive::open(args.next().unwrap_or_else(|| ogive::DEMO.into()))?;
    let letter = args.next().unwrap_or_else(|| "s".into()).to_lowercase();
    if letter.len() != 1 {
        return Err(
            format!("{letter:?} is not one ASCII letter, and others may be cut over several tokens").into()
        );
    }

    let chain = Chain::new(42)
        .then(Without::new(&letter, model.tokenizer()?)?)
        .then(stages::TopK::new(40))
        .then(stages::Temperature::new(0.7)?);
    let mut session = model.session()?;
    let how = Generate::new().max_tokens(300); // its sampler is not looked at: the chain is given
    println!("{}", session.generate_with("Once upon a time", &how, chain)?.text()?);
    Ok(())
}
