//! Texts as vectors: which of a handful is nearest to each.
//!
//! `cargo run --release -p ogive-examples --example 10_embeddings -- [MODEL]`
//!
//! A model that was made for it (its file says how its states are pooled) ranks by meaning. One that tells stories has learned to
//! go on with a text, so what it holds for near is what goes on alike.

use ogive::Embed;
use std::{env, error::Error};

const TEXTS: [&str; 6] = [
    "Once upon a time, there was a little boy named Tom.",
    "What is the capital of France?",
    "One day, a girl named Lily went to the market with her mom.",
    "Tell me the capital of Japan.",
    "They played in the garden and were happy.",
    "Do you know the capital of Peru?",
];

fn main() -> Result<(), Box<dyn Error>> {
    let model = ogive::open(env::args().nth(1).unwrap_or_else(|| ogive::DEMO.into()))?;
    // All of them share the steps; a text's vector is the same to the bit as if it came alone.
    let vectors = model.embed_all(TEXTS, &Embed::new())?; // [texts, dim], each of length 1
    println!("{} texts, {} numbers each", vectors.nrows(), vectors.ncols());

    let cosines = vectors.dot(&vectors.t()); // [texts, texts]
    for (i, text) in TEXTS.iter().enumerate() {
        let others = (0..TEXTS.len()).filter(|j| *j != i);
        let nearest = others.max_by(|a, b| cosines[[i, *a]].total_cmp(&cosines[[i, *b]])).unwrap_or(i);
        println!("{text} <- {} ({:.3})", TEXTS[nearest], cosines[[i, nearest]]);
    }
    Ok(())
}
