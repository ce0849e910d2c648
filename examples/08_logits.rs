//! Logits and hidden states of a whole text as `ndarray`, and what a model will take before it is loaded.
//!
//! `cargo run --release -p ogive-examples --example 08_logits -- [MODEL [TEXT]]`

use ogive::Options;
use ogive::ndarray::ArrayView1;
use std::{env, error::Error};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let path = args.next().unwrap_or_else(|| ogive::DEMO.into());
    let text = args.next().unwrap_or_else(|| "Once upon a time, there was a little girl".into());

    // `exact` computes everything in single precision: for comparing with another implementation.
    let options = Options::new().exact(true).context(256);
    println!("memory: {}", options.estimate_memory(&path)?);

    let model = options.open(&path)?;
    let ids = model.encode(&text.into())?;
    let logits = model.logits(&ids)?; // [tokens, vocab]
    let hidden = model.hidden(&ids)?; // [tokens, dim]
    println!("logits {:?}, hidden states {:?}", logits.dim(), hidden.dim());

    // How well the model foresaw each next token.
    let surprise: Vec<f32> =
        logits.outer_iter().zip(&ids[1..]).map(|(row, next)| -log_probability(row, *next)).collect();
    if surprise.is_empty() {
        println!("perplexity: none, for there is one token and nothing to foresee");
    } else {
        println!("perplexity: {:.2}", (surprise.iter().sum::<f32>() / surprise.len() as f32).exp());
    }

    // What may follow the text.
    let last = logits.row(ids.len() - 1);
    let mut order: Vec<u32> = (0..last.len() as u32).collect();
    order.sort_by(|a, b| last[*b as usize].total_cmp(&last[*a as usize]));
    for id in order.into_iter().take(5) {
        let p = log_probability(last, id).exp();
        println!("{p:.3} {:?}", model.tokenizer()?.decode(&[id])?);
    }
    Ok(())
}

/// The logarithm of a token's probability by one row of logits.
fn log_probability(row: ArrayView1<'_, f32>, id: u32) -> f32 {
    let most = row.fold(f32::NEG_INFINITY, |a, b| a.max(*b));
    let sum: f32 = row.iter().map(|l| (l - most).exp()).sum();
    row[id as usize] - most - sum.ln()
}
