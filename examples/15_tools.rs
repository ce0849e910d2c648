//! A model that may call functions of yours. It writes what it wants to know, you look it up, and it goes on with that.
//!
//! `cargo run --release -p ogive-examples --example 15_tools -- MODEL [QUESTION]`

use ogive::{Generate, Tool, ToolCall};
use serde_json::json;
use std::{env, error::Error};

/// What comes of a call. Arguments are what the model wrote: look at them before you believe them.
fn run(call: &ToolCall) -> String {
    let number = |name: &str| call.arguments.get(name).and_then(serde_json::Value::as_f64);
    match (&*call.name, number("a"), number("b")) {
        ("add", Some(a), Some(b)) => json!({ "result": a + b }).to_string(),
        ("multiply", Some(a), Some(b)) => json!({ "result": a * b }).to_string(),
        _ => json!({ "error": "there is no such function of two numbers" }).to_string(),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let Some(model) = args.next() else {
        return Err("15_tools wants a model that calls tools: 15_tools MODEL [QUESTION]".into());
    };
    let question = args.next().unwrap_or_else(|| "What is 1234 times 5678, plus 9?".into());

    let number = json!({ "type": "number" });
    let two = json!({ "type": "object", "properties": { "a": number, "b": number }, "required": ["a", "b"] });
    let tools = [Tool::new("add", "a + b", two.clone()), Tool::new("multiply", "a * b", two)];
    // Here a model whose template shows no calls is an error.
    let mut chat = ogive::open(model)?.chat()?.tools(tools)?;

    let how = Generate::greedy().max_tokens(400);
    let mut reply = chat.send(question, &how)?;
    // A model may go on calling for ever.
    for _ in 0..8 {
        println!("{}", reply.text()?.trim());
        let calls = reply.calls().to_vec();
        drop(reply); // The calls are part of the conversation now.
        if calls.is_empty() {
            return Ok(());
        }
        for call in &calls {
            let result = run(call);
            println!("{} {} -> {result}", call.name, json!(call.arguments));
            chat.messages().push(call.result(result));
        }
        reply = chat.reply(&how)?;
    }
    Err("it still calls after eight turns".into())
}
