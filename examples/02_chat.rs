//! A conversation of two turns. The second costs only what is new: the session remembers what it has read.
//!
//! `cargo run --release -p ogive-examples --example 02_chat -- [MODEL [TEMPLATE.jinja]]`

use ogive::tokenizer::template::ChatTemplate;
use ogive::{Chat, Generate};
use std::{env, error::Error, fs, io::Write};

/// For models that were never taught to talk: everything said so far, a paragraph each.
const PLAIN: &str = "{{ bos_token }}{% for m in messages %}{{ m.content }}\n{% endfor %}";

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let model = ogive::open(args.next().unwrap_or_else(|| ogive::DEMO.into()))?;

    let mut chat = match (args.next(), model.chat_template()) {
        (Some(file), _) => Chat::new(model.session()?, ChatTemplate::new(&fs::read_to_string(file)?)?)?,
        (None, Some(_)) => model.chat()?,
        (None, None) => Chat::new(model.session()?, ChatTemplate::new(PLAIN)?)?,
    };
    let how = Generate::greedy().max_tokens(40);
    for said in ["What is the capital of France?", "And of Japan?"] {
        println!("user: {said}");
        print!("assistant: ");
        let mut reply = chat.send(said, &how)?;
        for piece in &mut reply {
            print!("{}", piece?);
            std::io::stdout().flush()?;
        }
        let (all, computed) =
            (reply.generation().prompt_ids().len(), reply.generation().times().prompt_tokens);
        println!("\n({computed} of the prompt's {all} tokens had to be read)");
    }
    Ok(())
}
