//! An image and two questions about it. It is read once: the second question costs its own words.
//!
//! `cargo run --release -p ogive-examples --example 14_look -- MODEL IMAGE [QUESTION]`
//!
//! MODEL is a Hugging Face folder of a model that sees, as it is downloaded: Gemma 3, Qwen2-VL to Qwen3-VL, Pixtral, SmolVLM and others. What cuts its
//! images is described in it (`preprocessor_config.json`).

use ogive::{Generate, Image, Options};
use std::{env, error::Error, io::Write};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let (Some(path), Some(file)) = (args.next(), args.next()) else {
        return Err("14_look wants a model that sees and an image: 14_look MODEL IMAGE [QUESTION]".into());
    };
    let question = args.next().unwrap_or_else(|| "What is this?".into());

    // Without `vision` the same folder is a model of texts. A large image is thousands of tokens.
    let model = Options::new().vision().context(8192).open(path)?;
    let image = Image::open(file)?;
    if let Some(pixels) = image.pixels() {
        println!("{} x {} pixels", pixels.width(), pixels.height());
    }

    let mut chat = model.chat()?;
    chat.show(image); // with what is said next
    let how = Generate::greedy().max_tokens(60);
    for said in [&*question, "And what else?"] {
        println!("user: {said}");
        print!("assistant: ");
        let mut reply = chat.send(said, &how)?;
        for piece in &mut reply {
            print!("{}", piece?);
            std::io::stdout().flush()?;
        }
        let (all, times) = (reply.generation().prompt_ids().len(), reply.generation().times());
        println!("\n({} of the prompt's {all} tokens had to be read)", times.prompt_tokens);
    }
    Ok(())
}
