//! Several prompts at once. The engine puts whatever is to be done into one step: prompts of different lengths, and
//! sequences that begin while others are running (continuous batching).
//!
//! `cargo run --release -p ogive-examples --example 03_many_sequences -- [MODEL]`

use ogive::engine::{Finish, Limits, Request};
use std::{collections::BTreeMap, env, error::Error};

const PROMPTS: [&str; 3] = ["Once upon a time", "Lily and Tom went to the park. They", "The dog"];

fn main() -> Result<(), Box<dyn Error>> {
    let model = ogive::open(env::args().nth(1).unwrap_or_else(|| ogive::DEMO.into()))?;
    let tokenizer = model.tokenizer()?;

    // Memory is bounded here, before anything runs: two sequences at a time, the third waits for a place.
    let mut engine = model.engine(Limits::new(256).sequences(2))?;
    let mut texts = BTreeMap::new();
    for prompt in PROMPTS {
        let ids = model.encode(&prompt.into())?;
        let stream = tokenizer.stream_after(&ids);
        let id = engine.add(Request::new(ids, 40).stop(tokenizer.eog()))?;
        texts.insert(id, (prompt.to_string(), stream));
    }
    let mut failed = false;
    while !engine.is_idle() {
        for event in engine.step()? {
            let Some((text, stream)) = texts.get_mut(&event.id) else { continue };
            if let Some(token) = event.token.filter(|t| !tokenizer.is_eog(*t)) {
                text.push_str(&stream.push(token)?);
            }
            if let Some(why) = event.finish {
                text.push_str(&stream.finish());
                println!("[{}] {text} ({why:?})", event.id);
                // A sequence that fails ends alone: the others go on.
                failed |= matches!(why, Finish::Failed(_));
            }
        }
    }
    let stats = engine.stats();
    eprintln!("{} steps for {} tokens", stats.steps, stats.rows);
    if failed { Err("a sequence failed".into()) } else { Ok(()) }
}
