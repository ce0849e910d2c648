//! `POST /v1/embeddings`: vectors of texts.
//!
//! They are computed beside the engine, with which they take turns at the machine, and one request at a time: a request's texts share steps already.

use crate::completions::texts;
use crate::error::Refusal;
use crate::fields::Fields;
use crate::server::Shared;
use axum::extract::{self, State};
use axum::response::Response;
use ogive::{Embed, Model, Prompt};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Texts of one request at most, as OpenAI has it.
const MOST: usize = 2048;

/// Fields of other servers that would change vectors, and what to do instead.
const REFUSED: [(&str, &str); 8] = [
    ("embedding_type", "use `encoding_format`"),
    ("instruction", "write it before the texts, or name one of the model's own by `prompt_name`"),
    ("late_chunking", "send each part by itself"),
    ("output_dimension", "use `dimensions`"),
    ("output_dtype", "vectors are of single precision; leave it out"),
    ("task", "use `input_type` or `prompt_name`"),
    ("truncate", "a text that is too long is an error; cut it yourself"),
    ("truncate_prompt_tokens", "a text that is too long is an error; cut it yourself"),
];

pub(crate) async fn answer(
    State(shared): State<Arc<Shared>>,
    request: extract::Request,
) -> Result<Response, Refusal> {
    shared.compute(request, embed).await
}

fn embed(given: &[u8], shared: &Shared) -> Result<String, Refusal> {
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
    fields.refuse(&REFUSED)?;
    if fields.flag("add_special_tokens")? == Some(false) {
        let why =
            "texts get the tokens that the model was made for; send ids to have others, or leave it out";
        return Err(Refusal::unsupported("add_special_tokens", why));
    }
    for name in ["normalize", "normalized"] {
        if fields.flag(name)? == Some(false) {
            return Err(Refusal::unsupported(name, "vectors are of length 1 here; leave it out"));
        }
    }
    if fields.get("embd_normalize").is_some_and(|norm| norm.as_f64() != Some(2.0)) {
        return Err(Refusal::unsupported("embd_normalize", "vectors are of length 1 here; leave it out"));
    }
    let mut how = Embed::new();
    how.dimensions = fields.within("dimensions", 1, usize::MAX)?;
    how.prompt = prompt(&fields, shared.model.prompts())?;
    let tokens = tokens(&shared.model, &texts)?;
    let vectors = shared.model.embed_all(texts, &how).map_err(|e| Refusal::of(&e))?; // [texts, dimensions]
    let mut data = String::new();
    for (index, row) in vectors.rows().into_iter().enumerate() {
        let wrong = |e| Refusal::failed(format!("writing a vector: {e}"));
        // By itself and not as a `Value`, where every number would be 32 bytes, and one of double precision.
        let vector = if packed {
            let bytes: Vec<u8> = row.iter().flat_map(|x| x.to_le_bytes()).collect();
            format!("\"{}\"", crate::base64::encode(&bytes))
        } else {
            serde_json::to_string(&row.to_vec()).map_err(wrong)?
        };
        let comma = if index == 0 { "" } else { "," };
        data += &format!("{comma}{{\"object\":\"embedding\",\"index\":{index},\"embedding\":{vector}}}");
    }
    let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
    let model = json!(shared.options.name);
    Ok(format!("{{\"object\":\"list\",\"data\":[{data}],\"model\":{model},\"usage\":{usage}}}"))
}

/// The checkpoint's prompt that is to stand before texts: `prompt_name` has its name, and `input_type` says what texts are for, as others' models know it.
fn prompt(fields: &Fields, known: &BTreeMap<String, String>) -> Result<Option<String>, Refusal> {
    let name = match (fields.text("prompt_name")?, fields.text("input_type")?) {
        (Some(_), Some(_)) => {
            return Err(Refusal::field(
                "input_type",
                "it stands beside `prompt_name`; leave one of them out",
            ));
        }
        (Some(name), None) => name,
        (None, None) => return Ok(None),
        (None, Some("query" | "search_query")) => "query",
        (None, Some("document" | "passage" | "search_document")) => {
            // Many models have words before what is looked for alone.
            match ["document", "passage"].into_iter().find(|name| known.contains_key(*name)) {
                None if known.contains_key("query") => return Ok(None),
                name => name.unwrap_or("document"),
            }
        }
        (None, Some(other)) => other,
    };
    Ok(Some(name.to_owned()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_texts_are_for_is_a_prompt_of_the_checkpoint() {
        let known = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), String::new())).collect();
        let asked = |json: serde_json::Value, names: &[&str]| {
            prompt(&Fields::read(json.to_string().as_bytes()).unwrap(), &known(names)).ok().flatten()
        };
        for (kind, names, want) in [
            ("query", &["query"][..], Some("query")),
            ("search_query", &[], Some("query")),
            ("document", &["query", "document"], Some("document")),
            ("search_document", &["query", "passage"], Some("passage")),
            ("passage", &["query"], None),
            ("document", &[], Some("document")),
            ("clustering", &["clustering"], Some("clustering")),
        ] {
            assert_eq!(asked(json!({ "input_type": kind }), names).as_deref(), want, "{kind} {names:?}");
        }
        assert_eq!(asked(json!({ "prompt_name": "document" }), &["query"]).as_deref(), Some("document"));
        assert_eq!(asked(json!({}), &["query"]), None);
    }
}
