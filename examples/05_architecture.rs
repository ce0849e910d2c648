//! An architecture from another crate: GPT-NeoX (Pythia), which `examples/outside` adds. docs/ADD-A-MODEL.md tells how it is written.
//!
//! `cargo run --release -p ogive-examples --example 05_architecture -- [MODEL [PROMPT]]`, where MODEL is a Hugging Face
//! folder with a GPT-NeoX, by default the tiny one beside that crate. Without a prompt it goes on from three ids, as tiny models have
//! no vocabulary.

use ogive::{Generate, Options, Prompt};
use std::{env, error::Error};

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/outside/golden");

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let path = args.next().unwrap_or_else(|| TINY.into());
    let prompt = args.next().map_or(Prompt::Ids(vec![1, 5, 17]), Prompt::Text);

    // A registry is a plain value: Ogive's own architectures and one more.
    let registry = ogive_example_outside::registry();
    println!("known: {}", registry.names().collect::<Vec<_>>().join(", "));

    let model = Options::new().registry(registry).open(path)?;
    println!("opened: {}, contexts of up to {} tokens", model.architecture(), model.context());
    let mut session = model.session()?;
    let mut text = session.generate(prompt, &Generate::greedy().max_tokens(16).ignore_end())?;
    let pieces: String = text.by_ref().collect::<Result<_, _>>()?;
    println!("text: {pieces:?}");
    println!("ids: {:?}", text.ids());
    Ok(())
}
