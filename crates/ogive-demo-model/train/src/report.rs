//! What the finished file can do, found by running it through Ogive as anybody would.

use crate::corpus::{Corpus, chat};
use crate::rng::Rng;
use crate::train::HELD_OUT;
use ogive::{Generate, Model, Options};
use std::error::Error;
use std::path::Path;

/// Texts the perplexity is taken over.
const STORIES: u64 = 64;

pub(crate) fn print(path: &Path, corpus: &Corpus, seed: u64) -> Result<(), Box<dyn Error>> {
    let model = Options::new().open(path)?;
    let how = Generate::greedy().max_tokens(40);
    let (mut chat_right, mut plain_right) = (0, 0);
    for &(country, capital) in &corpus.countries {
        let said = model.chat()?.send(format!("What is the capital of {country}?"), &how)?.text()?;
        let went_on = model.session()?.generate(format!("The capital of {country} is"), &how)?.text()?;
        let (chat, plain) =
            (said == chat::answer((country, capital)), went_on.starts_with(&format!(" {capital}.")));
        chat_right += usize::from(chat);
        plain_right += usize::from(plain);
        if !chat {
            println!("wrong: {country}: {said:?}");
        }
        if !plain {
            println!("wrong: The capital of {country} is{:?}", went_on.split('.').next().unwrap_or_default());
        }
    }
    println!(
        "capitals: {chat_right} of {} in conversation, {plain_right} as plain text",
        corpus.countries.len()
    );
    println!("perplexity of held-out stories: {:.3}", perplexity(&model, corpus, seed)?);
    for seed in 0..4 {
        let text = model.session()?.generate("Once upon a time", &Generate::new().seed(seed))?.text()?;
        println!("\nseed {seed}: Once upon a time{text}");
    }
    Ok(())
}

fn perplexity(model: &Model, corpus: &Corpus, seed: u64) -> Result<f64, Box<dyn Error>> {
    let (mut total, mut count) = (0.0, 0);
    for i in 0..STORIES {
        let ids = model.encode(&corpus.story(&mut Rng::of(seed, HELD_OUT, i)).into())?;
        let logits = model.logits(&ids)?; // [tokens, vocab]
        for (row, next) in logits.outer_iter().zip(&ids[1..]) {
            let most = row.fold(f32::NEG_INFINITY, |a, b| a.max(*b));
            let sum: f32 = row.iter().map(|l| (l - most).exp()).sum();
            total += f64::from(most + sum.ln() - row[*next as usize]);
            count += 1;
        }
    }
    Ok((total / f64::from(count)).exp())
}
