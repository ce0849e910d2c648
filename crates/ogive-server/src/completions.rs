//! `POST /v1/completions`: texts that go on.
//!
//! Special tokens that a prompt spells count, as with other servers: whoever has conversations by this route writes the template's marks by hand.

use crate::delivery;
use crate::error::Refusal;
use crate::fields::Fields;
use crate::mailbox::{Ended, Piece};
use crate::reply::{collect, number, usage};
use crate::sampling::{self, TOP};
use crate::server::Shared;
use crate::sse::{self, Events, Writer};
use axum::extract::{self, State};
use axum::response::Response;
use ogive::engine::Request;
use ogive::{Answer, Prompt, TokenLogprobs};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Answers to one request at most, to all its prompts.
const MOST: usize = 256;

/// What a request asks for.
struct Asked {
    requests: Vec<(Request, Answer)>,
    prompt_tokens: usize,
    logprobs: bool,
    stream: bool,
    usage: bool,
}

pub(crate) async fn answer(
    State(shared): State<Arc<Shared>>,
    request: extract::Request,
) -> Result<Response, Refusal> {
    let (given, place) = shared.admit(request).await?;
    let reader = Arc::clone(&shared);
    let Asked { requests, prompt_tokens, logprobs, stream, usage: told } =
        shared.read(move || read(&given, &reader)).await?;
    let answers = requests.len();
    let letters = shared.draw(requests, false, &place)?;
    let head = shared.head("cmpl", "text_completion");
    if stream {
        let writer =
            Chunks { head, prompt_tokens, logprobs, usage: told, drawn: 0, offsets: vec![0; answers] };
        return sse::respond(letters, writer, shared, place).await;
    }
    let drawn = collect(letters, answers).await?;
    let write = move || Ok(whole(head, drawn, prompt_tokens, logprobs).to_string());
    Ok(delivery::whole(shared.write(write).await?, place))
}

/// Whole answers, behind what stands before all of them.
fn whole(head: Value, all: Vec<(Piece, Ended)>, prompt_tokens: usize, logprobs: bool) -> Value {
    let (mut choices, mut drawn) = (Vec::new(), 0);
    for (index, (piece, ended)) in all.into_iter().enumerate() {
        drawn += ended.tokens;
        let logprobs = logprobs.then(|| likely(&piece.logprobs, &mut 0));
        let finish = if ended.cut { "length" } else { "stop" };
        choices.push(json!({ "index": index, "text": piece.parts.answer, "logprobs": logprobs, "finish_reason": finish }));
    }
    let mut whole = head;
    whole["choices"] = choices.into();
    whole["usage"] = usage(prompt_tokens, drawn);
    whole
}

fn read(given: &[u8], shared: &Shared) -> Result<Asked, Refusal> {
    let fields = Fields::read(given)?;
    let mut how = sampling::generate(&fields, shared)?;
    fields.refuse(&[
        ("response_format", "hold the answer by `grammar`, or ask /v1/chat/completions"),
        ("tools", "ask /v1/chat/completions"),
    ])?;
    how.logprobs = fields.within("logprobs", 0, TOP)?;
    let prompts = prompts(fields.need("prompt")?)?;
    let answers = sampling::answers(&fields)?;
    if prompts.len() * answers > MOST {
        return Err(Refusal::field(
            "prompt",
            format!("{} answers are asked for, and {MOST} are the most", prompts.len() * answers),
        ));
    }
    let (mut requests, mut prompt_tokens) = (Vec::new(), 0);
    let which: Vec<usize> = (0..answers).collect();
    for prompt in prompts {
        let asked = shared.model.ask(prompt, &how).map_err(|e| Refusal::of(&e))?;
        prompt_tokens += asked.0.prompt.len();
        requests.extend(sampling::for_answers(shared, &asked, &which)?);
    }
    let include = fields.object("stream_options")?.and_then(|options| options.get("include_usage"));
    let usage = include.is_some_and(|on| on == true);
    let (stream, logprobs) = (fields.flag("stream")?.unwrap_or(false), how.logprobs.is_some());
    Ok(Asked { requests, prompt_tokens, logprobs, stream, usage })
}

/// A text, ids, or a list of either.
fn prompts(json: &Value) -> Result<Vec<Prompt>, Refusal> {
    let all = texts(json).map_err(|why| Refusal::field("prompt", why))?;
    let special = |prompt| match prompt {
        Prompt::Text(text) => Prompt::Special(text),
        other => other,
    };
    Ok(all.into_iter().map(special).collect())
}

/// What OpenAI's interface takes as texts: a text, ids of tokens, or a list of either.
pub(crate) fn texts(json: &Value) -> Result<Vec<Prompt>, &'static str> {
    const WHAT: &str = "it is to be a text, ids of tokens, or a list of either, and not an empty one";
    let ids = |list: &[Value]| {
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        list.iter().map(id).collect::<Option<Vec<u32>>>().filter(|ids| !ids.is_empty()).map(Prompt::Ids)
    };
    let one = |value: &Value| match value {
        Value::String(text) => Some(Prompt::Text(text.clone())),
        Value::Array(list) => ids(list),
        _ => None,
    };
    let all = match json {
        Value::Array(list) if list.first().is_some_and(|first| !first.is_number()) => {
            list.iter().map(one).collect()
        }
        other => one(other).map(|one| vec![one]),
    };
    all.ok_or(WHAT)
}

/// How likely tokens were, in the form of this route. `offset`: bytes of the text before them.
fn likely(all: &[TokenLogprobs], offset: &mut usize) -> Value {
    let mut offsets = Vec::new();
    for each in all {
        offsets.push(*offset);
        *offset += each.token.text().chars().count();
    }
    let tokens: Vec<String> = all.iter().map(|each| each.token.text()).collect();
    let numbers: Vec<f64> = all.iter().map(|each| number(&each.token)).collect();
    let best = |each: &TokenLogprobs| -> Value {
        each.best.iter().map(|token| (token.text(), number(token).into())).collect::<Map<_, _>>().into()
    };
    let best: Vec<Value> = all.iter().map(best).collect();
    json!({ "tokens": tokens, "token_logprobs": numbers, "top_logprobs": best, "text_offset": offsets })
}

struct Chunks {
    head: Value,
    prompt_tokens: usize,
    logprobs: bool,
    usage: bool,
    drawn: usize,
    offsets: Vec<usize>,
}

impl Writer for Chunks {
    fn piece(&mut self, index: usize, piece: Piece, out: &mut Events) -> Result<(), Refusal> {
        let Some(offset) = self.offsets.get_mut(index) else { return Ok(()) };
        let finish = match piece.end {
            Some(Err(why)) => return Err(why),
            Some(Ok(ended)) => {
                self.drawn += ended.tokens;
                Some(if ended.cut { "length" } else { "stop" })
            }
            None => None,
        };
        let likely = (self.logprobs && !piece.logprobs.is_empty()).then(|| likely(&piece.logprobs, offset));
        if finish.is_none() && likely.is_none() && piece.parts.answer.is_empty() {
            return Ok(());
        }
        let mut chunk = self.head.clone();
        chunk["choices"] = json!([{ "index": index, "text": piece.parts.answer, "logprobs": likely, "finish_reason": finish }]);
        if self.usage {
            chunk["usage"] = Value::Null;
        }
        out.push(&chunk);
        Ok(())
    }

    fn end(&mut self, out: &mut Events) {
        if self.usage {
            let mut chunk = self.head.clone();
            chunk["choices"] = json!([]);
            chunk["usage"] = usage(self.prompt_tokens, self.drawn);
            out.push(&chunk);
        }
    }
}
