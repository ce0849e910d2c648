//! Log probabilities for people and for programs.
//!
//! As JSON they have the fields of OpenAI's and llama.cpp's servers, so that what reads those reads these. What cannot come
//! at all has minus infinity, which JSON does not have: it is `null`.

use crate::error::one_line;
use ogive::{Logprob, TokenLogprobs};
use serde_json::{Value, json};

fn fields(of: &Logprob) -> Value {
    json!({ "id": of.id, "token": of.text(), "bytes": of.bytes, "logprob": of.logprob })
}

/// An object for each token.
pub(crate) fn json(tokens: &[TokenLogprobs]) -> Value {
    let each = |of: &TokenLogprobs| {
        let mut object = fields(&of.token);
        object["top_logprobs"] = of.best.iter().map(fields).collect();
        object
    };
    tokens.iter().map(each).collect()
}

/// A line for each token, and one for all.
pub(crate) fn table(tokens: &[TokenLogprobs]) -> String {
    let percent = |of: &Logprob| format!("{:.1} %", 100.0 * of.probability());
    let spelled = |of: &Logprob| one_line(&format!("{:?}", of.text()));
    let mut out = format!("{:<20} {:>9} {:>8}  likeliest\n", "token", "logprob", "p");
    for of in tokens {
        let best: Vec<String> = of.best.iter().map(|b| format!("{} {}", spelled(b), percent(b))).collect();
        let (token, p) = (spelled(&of.token), percent(&of.token));
        let line = format!("{token:<20} {:>9.4} {p:>8}  {}", of.token.logprob, best.join(", "));
        out += line.trim_end();
        out.push('\n');
    }
    let sum: f64 = tokens.iter().map(|t| t.token.logprob).sum();
    let perplexity = (-sum / tokens.len().max(1) as f64).exp();
    out + &format!("{} tokens: logprob {sum:.4} together, perplexity {perplexity:.3}", tokens.len())
}
