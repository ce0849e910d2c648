//! Text from a prompt, piece by piece.
//!
//! `cargo run --release -p ogive-examples --example 01_generate -- [MODEL [PROMPT]]`, where MODEL is a GGUF file or a
//! Hugging Face folder; without one it is Ogive's own small model, as in all examples.

use ogive::Generate;
use std::{env, error::Error, io::Write};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let path = args.next().unwrap_or_else(|| ogive::DEMO.into());
    let prompt = args.next().unwrap_or_else(|| "Once upon a time".into());

    let model = ogive::open(path)?;
    let mut session = model.session()?;
    // Always the best token, so that the text is the same on every run; `Generate::new()` draws instead.
    let how = Generate::greedy().max_tokens(100);

    print!("{prompt}");
    let mut text = session.generate(prompt, &how)?;
    for piece in &mut text {
        print!("{}", piece?);
        std::io::stdout().flush()?;
    }
    println!();
    eprintln!("{}, {:.0} tokens a second", model.device(), text.times().decode_rate());
    Ok(())
}
