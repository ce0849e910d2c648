//! JSON by a schema: whatever the model would say, what comes is of the form that was asked for.
//!
//! `cargo run --release -p ogive-examples --example 09_json -- [MODEL [SCHEMA.json]]`

use ogive::Generate;
use serde_json::Value;
use std::io::{self, Write};
use std::{env, error::Error, fs};

const SCHEMA: &str = r#"{
  "type": "object",
  "properties": {
    "hero": { "enum": ["Lily", "Tom", "Max"] },
    "age": { "type": "integer", "minimum": 3, "maximum": 9 },
    "finds": { "type": "array", "items": { "type": "string", "pattern": "^[a-z]{3,8}$" }, "minItems": 1, "maxItems": 3 }
  },
  "required": ["hero", "age", "finds"],
  "additionalProperties": false
}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let model = ogive::open(args.next().unwrap_or_else(|| ogive::DEMO.into()))?;
    let schema = args.next().map_or(Ok(SCHEMA.into()), fs::read_to_string)?;

    // The schema is read here: one that contradicts itself, or asks for what cannot be enforced, is an error.
    let how = Generate::new().seed(1).max_tokens(200).json_schema(&schema)?;
    let mut session = model.session()?;
    let mut answer = session.generate("Once upon a time, in a big forest, ", &how)?;

    // As it comes, like any other text. `answer.json::<T>()` would wait for all of it.
    let mut text = String::new();
    for piece in &mut answer {
        let piece = piece?;
        print!("{piece}");
        io::stdout().flush()?;
        text += &piece;
    }
    println!();

    // Only an answer that max_tokens has cut short is not what was asked for.
    if answer.is_complete() == Some(false) {
        return Err(format!("cut short after {} tokens", answer.ids().len()).into());
    }
    let value: Value = serde_json::from_str(&text)?;
    println!("{} keys", value.as_object().map_or(0, |object| object.len()));
    Ok(())
}
