//! `POST /v1/rerank`: texts in the order in which they answer a question.
//!
//! The form is Jina's, which llama.cpp and others have too. Scores lie between 0 and 1, as Jina's do; `raw_scores` gives the model's own, which llama.cpp has.

use crate::error::Refusal;
use crate::fields::Fields;
use crate::server::Shared;
use axum::extract::{self, State};
use axum::response::Response;
use ogive::{Prompt, Rerank};
use serde_json::{Value, json};
use std::sync::Arc;

/// Texts of one request at most.
const MOST: usize = 2048;

pub(crate) async fn answer(
    State(shared): State<Arc<Shared>>,
    request: extract::Request,
) -> Result<Response, Refusal> {
    shared.compute(request, rerank).await
}

fn rerank(given: &[u8], shared: &Shared) -> Result<String, Refusal> {
    let fields = Fields::read(given)?;
    let query = fields.need("query").and_then(|_| fields.text("query"))?.unwrap_or_default();
    fields.need("documents")?;
    let wrong = || {
        Refusal::field(
            "documents",
            "it is to be a list of texts, or of objects with a `text`, and not an empty one",
        )
    };
    let text = |json: &Value| json.get("text").unwrap_or(json).as_str().map(str::to_owned);
    let texts: Option<Vec<String>> = fields.list("documents")?.into_iter().flatten().map(text).collect();
    let texts = texts.filter(|texts| !texts.is_empty()).ok_or_else(wrong)?;
    if texts.len() > MOST {
        return Err(Refusal::field(
            "documents",
            format!("{} texts are more than the {MOST} of a request", texts.len()),
        ));
    }
    let top = fields.within("top_n", 1, usize::MAX)?.unwrap_or(usize::MAX);
    let shown = fields.flag("return_documents")?.unwrap_or(false);
    let sigmoid = !fields.flag("raw_scores")?.unwrap_or(false);
    fields.refuse(&[
        ("rank_fields", "send the text alone"),
        ("max_chunks_per_doc", "send the parts as documents"),
        ("max_tokens_per_doc", "a text that is too long is an error; cut it yourself"),
        ("truncate", "a text that is too long is an error; cut it yourself"),
        ("truncate_prompt_tokens", "a text that is too long is an error; cut it yourself"),
    ])?;
    let model = &shared.model;
    let mut how = Rerank::new().sigmoid(sigmoid);
    how.instruction = fields.text("instruction")?.map(str::to_owned);
    let scores = model.rerank(query, &texts, &how).map_err(|e| Refusal::of(&e))?;
    let mut tokens = 0;
    for text in &texts {
        for part in [query, text] {
            // An empty one has none.
            tokens += model.encode(&Prompt::Text(part.to_owned())).map_or(0, |ids| ids.len());
        }
    }
    let mut order: Vec<(usize, f32)> = scores.into_iter().enumerate().collect();
    // Of equals the first stays first.
    order.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let result = |(index, score): (usize, f32)| {
        let mut result = json!({ "index": index, "relevance_score": short(score) });
        if shown {
            result["document"] = json!({ "text": texts[index] });
        }
        result
    };
    let results: Vec<Value> = order.into_iter().take(top).map(result).collect();
    let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
    Ok(json!({ "object": "list", "model": shared.options.name, "usage": usage, "results": results })
        .to_string())
}

/// The number whose shortest decimal is that of `score`: of single precision, and not the digits that double precision adds.
fn short(score: f32) -> f64 {
    score.to_string().parse().unwrap_or(f64::from(score))
}
