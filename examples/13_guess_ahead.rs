//! Speculative decoding: a smaller model, or the text itself, guesses what comes next, and a step computes several tokens. The text is the same
//! with each of them; how much sooner it is there hangs on how often the guesses are right.
//!
//! `cargo run --release -p ogive-examples --example 13_guess_ahead -- [MODEL] [SMALLER] [PROMPT]`

use ogive::{Draft, Generate, Model, Options};
use std::sync::Arc;
use std::{env, error::Error};

fn tell(model: &Model, by: &str, prompt: &str) -> Result<String, Box<dyn Error>> {
    let mut session = model.session()?;
    let mut tale = session.generate(prompt, &Generate::greedy().max_tokens(200))?;
    let (text, times) = (tale.text()?, tale.times());
    let rate = times.decode_rate();
    println!("({by}: {rate:.1} tokens/s, {} of {} guesses right)", times.accepted, times.drafted);
    Ok(text)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let path = args.next().unwrap_or_else(|| ogive::DEMO.into());
    let smaller = args.next().unwrap_or_else(|| path.clone());
    let prompt = args.next().unwrap_or_else(|| "Once upon a time".into());

    let model = ogive::open(path)?;
    // On the same backend, whose threads they share: they take turns.
    let small = Options::new().backend(Arc::clone(model.backend())).open(smaller)?;

    let text = tell(&model, "by itself", &prompt)?;
    for (by, draft) in [("a model", Draft::model(&small)), ("its own words", Draft::lookup())] {
        let guessed = tell(&model.with_draft(draft)?, by, &prompt)?;
        // To the bit on a CPU. A GPU may round a step of several tokens otherwise than one of one.
        if guessed != text {
            println!("({by}: another text, by what was rounded otherwise)");
        }
    }
    println!("{prompt}{text}");
    Ok(())
}
