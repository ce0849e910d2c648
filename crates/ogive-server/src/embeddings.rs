//! `POST /v1/embeddings`: vectors of texts.
//!
//! They are computed beside the engine, with which they take turns at the machine, and one request at a time: a request's texts share steps already.

use crate::completions::texts;
use crate::error::{self, Refusal};
use crate::fields::Fields;
use crate::server::Shared;
use axum::extract::{self, State};
use axum::response::Response;
use ogive::{Embed, Model, Prompt};
use serde_json::{Value, json};
use std::sync::Arc;

/// Texts of one request at most, as OpenAI has it.
const MOST: usize = 2048;

pub(crate) async fn answer(
    State(shared): State<Arc<Shared>>,
    request: extract::Request,
) -> Result<Response, Refusal> {
    let (given, _place) = shared.admit(request).await?;
    let computer = Arc::clone(&shared);
    let json = shared.compute(move || embed(&given, &computer)).await?;
    Ok(error::answer(&json))
}

fn embed(given: &[u8], shared: &Shared) -> Result<Value, Refusal> {
    let fields = Fields::read(given)?;
    let texts = texts(fields.need("input")?).map_err(|why| Refusal::field("input", why))?;
    if texts.len() > MOST {
        return Err(Refusal::field(
            "input",
            format!("{} texts are more than the {MOST} of a request", texts.len()),
        ));
    }
    let packed = match fields.text("encoding_format")? {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(Refusal::field("encoding_format", "it is to be float or base64")),
    };
    let mut how = Embed::new();
    how.dimensions = fields.within("dimensions", 1, usize::MAX)?;
    let tokens = tokens(&shared.model, &texts)?;
    let vectors = shared.model.embed_all(texts, &how).map_err(|e| Refusal::of(&e))?; // [texts, dimensions]
    let vector = |(index, row): (usize, ogive::ndarray::ArrayView1<'_, f32>)| {
        let vector: Value = if packed {
            crate::base64::encode(&row.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()).into()
        } else {
            row.iter().copied().collect()
        };
        json!({ "object": "embedding", "index": index, "embedding": vector })
    };
    let data: Vec<Value> = vectors.rows().into_iter().enumerate().map(vector).collect();
    let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
    Ok(json!({ "object": "list", "data": data, "model": shared.options.name, "usage": usage }))
}

/// How many tokens texts have; that of ids there are such.
fn tokens(model: &Model, texts: &[Prompt]) -> Result<usize, Refusal> {
    let mut tokens = 0;
    for (i, text) in texts.iter().enumerate() {
        let ids = match text {
            Prompt::Text(text) if text.is_empty() => {
                Err(Refusal::field(format!("input[{i}]"), "it is empty"))
            }
            text => model.encode(text).map_err(|e| Refusal::of(&e)),
        }?;
        let vocab = model.layers().vocab().unwrap_or(usize::MAX);
        if let Some(id) = ids.iter().find(|id| **id as usize >= vocab) {
            return Err(Refusal::field(
                format!("input[{i}]"),
                format!("token {id} is none of the {vocab} that the model knows"),
            ));
        }
        tokens += ids.len();
    }
    Ok(tokens)
}
