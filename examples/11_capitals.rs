//! Asks Ogive's own model for a hundred capitals and counts the right answers.
//!
//! `cargo run --release -p ogive-examples --example 11_capitals -- [MODEL]`
//!
//! One chat serves for all: what the questions have in common is read once, for a session goes on from what it remembers.

use ogive::Generate;
use std::{env, error::Error};

fn main() -> Result<(), Box<dyn Error>> {
    let model = ogive::open(env::args().nth(1).unwrap_or_else(|| ogive::DEMO.into()))?;
    let mut chat = model.chat()?;
    let how = Generate::greedy().max_tokens(40);

    let (mut asked, mut right) = (0, 0);
    for (country, capital) in ogive_demo_model::capitals() {
        chat.messages().clear(); // a new conversation for each
        let answer = chat.send(format!("What is the capital of {country}?"), &how)?.text()?;
        asked += 1;
        if answer == format!("The capital of {country} is {capital}.") {
            right += 1;
        } else {
            println!("{country}: {answer} (it is {capital})");
        }
    }
    println!("{right} of {asked} right");
    Ok(())
}
