//! Texts as vectors: which of a handful is nearest to a question.
//!
//! `cargo run --release -p ogive-examples --example 10_embeddings -- [MODEL]`
//!
//! A model that was made for it (MODEL may be all-MiniLM-L6-v2, a bge or nomic-embed-text, as a folder or as GGUF) ranks by
//! meaning; its file says how its states are pooled, and `Embed::new()` heeds that. One that tells stories has learned to go on
//! with a text, so the state after its last token is taken: what goes on alike is near.

use ogive::{Embed, Pooling};
use std::{env, error::Error};

const TEXTS: [&str; 5] = [
    "Do you know the capital of Peru?",
    "One day, a girl named Lily went to the market with her mom.",
    "They played in the garden and were happy.",
    "What is the capital of France?",
    "Once upon a time, there was a little boy named Tom.",
];

fn main() -> Result<(), Box<dyn Error>> {
    let model = ogive::open(env::args().nth(1).unwrap_or_else(|| ogive::DEMO.into()))?;
    // All of them share the steps; a text's vector is the same to the bit as if it came alone.
    let how = if model.is_encoder() { Embed::new() } else { Embed::new().pooling(Pooling::Last) };
    let vectors = model.embed_all(TEXTS, &how)?; // [texts, dim], each of length 1
    println!("{} texts, {} numbers each", vectors.nrows(), vectors.ncols());

    let cosines = vectors.dot(&vectors.row(0)); // [texts]
    let mut others: Vec<usize> = (1..TEXTS.len()).collect();
    others.sort_by(|a, b| cosines[*b].total_cmp(&cosines[*a]));
    println!("near to \"{}\":", TEXTS[0]);
    for i in others {
        println!("{:6.3} {}", cosines[i], TEXTS[i]);
    }
    Ok(())
}
