//! `POST /v1/chat/completions`.
//!
//! All messages come with each request, so a conversation has no state here; what the engine still keeps of it is not computed again. A call that the client
//! asks for is drawn as such: its arguments alone, by the tool's schema, behind what the template writes before them.

use crate::error::Refusal;
use crate::fields::Fields;
use crate::reply::{About, Chunks, collect, whole};
use crate::sampling::{self, TOP};
use crate::server::Shared;
use crate::tools::{Choice, Tools};
use crate::{delivery, messages, sse};
use axum::extract::{self, State};
use axum::response::Response;
use ogive::engine::Request;
use ogive::{Answer, Conversation, Generate};
use serde_json::Value;
use std::sync::Arc;

/// What a request asks for.
struct Asked {
    talk: Conversation,
    how: Generate,
    answers: usize,
    tools: Option<Tools>,
    stream: bool,
    usage: bool,
}

pub(crate) async fn answer(
    State(shared): State<Arc<Shared>>,
    request: extract::Request,
) -> Result<Response, Refusal> {
    let (given, place) = shared.admit(request).await?;
    let reader = Arc::clone(&shared);
    let asked = shared.read(move || read(&given, &reader)).await?;
    let Asked { talk, how, answers, tools, stream, usage } = asked;
    let choice = tools.as_ref().map_or(&Choice::Free, |tools| &tools.choice).clone();
    let (one_call, made, logprobs) =
        (tools.as_ref().is_some_and(|tools| tools.one_call), talk.calls_made(), how.logprobs.is_some());
    // Which tools are called, and the tokens that it took to say so.
    let forced: Option<Vec<(String, usize)>> = match (&choice, tools.as_ref().map(|tools| &*tools.list)) {
        (Choice::Free, _) | (_, None) => None,
        (Choice::One(name), _) => Some(vec![(name.clone(), 0); answers]),
        (Choice::Any, Some([only])) => Some(vec![(only.name.clone(), 0); answers]),
        (Choice::Any, Some(_)) => {
            let (mut talk, how, reader) = (talk.clone(), how.clone(), Arc::clone(&shared));
            let read = move || sampling::for_answers(&reader, &name(&mut talk, &how)?, &all(answers));
            let names = shared.read(read).await?;
            let said = collect(shared.draw(names, false, &place)?, answers).await?;
            if said.iter().any(|(_, ended)| ended.cut) {
                return Err(Refusal::field("max_tokens", "it leaves no room for a call"));
            }
            Some(said.into_iter().map(|(piece, ended)| (piece.parts.answer, ended.tokens)).collect())
        }
    };
    let (reader, tools, mut talk) = (Arc::clone(&shared), forced.clone(), talk);
    let read = move || match tools {
        None => {
            let asked = talk.ask(&how).map_err(|e| Refusal::of(&e))?;
            sampling::for_answers(&reader, &asked, &all(answers))
        }
        Some(tools) => calls(&mut talk, &tools, &how, &reader),
    };
    let asked = shared.read(read).await?;
    let prompt_tokens = asked.first().map_or(0, |(request, _)| request.prompt.len());
    let letters = shared.draw(asked, one_call, &place)?;
    let named = matches!(choice, Choice::One(_));
    let object = if stream { "chat.completion.chunk" } else { "chat.completion" };
    let head = shared.head("chatcmpl", object);
    let about = About { head, prompt_tokens, logprobs, usage, made, forced, named };
    if stream {
        return sse::respond(letters, Chunks::new(about, answers), shared, place).await;
    }
    let drawn = collect(letters, answers).await?;
    let json = shared.write(move || Ok(whole(drawn, &about).to_string())).await?;
    Ok(delivery::whole(json, place))
}

fn all(answers: usize) -> Vec<usize> {
    (0..answers).collect()
}

/// What the engine is asked for answers that are calls of these tools.
fn calls(
    talk: &mut Conversation,
    tools: &[(String, usize)],
    how: &Generate,
    shared: &Shared,
) -> Result<Vec<(Request, Answer)>, Refusal> {
    let mut found = Vec::new();
    for (first, (tool, _)) in tools.iter().enumerate() {
        let of = |(_, (name, _)): &(usize, &(String, usize))| name == tool;
        let which: Vec<usize> = tools.iter().enumerate().filter(of).map(|(i, _)| i).collect();
        // Each tool once.
        if which.first() == Some(&first) {
            let asked = sampling::for_answers(shared, &arguments(talk, tool, how)?, &which)?;
            found.extend(which.into_iter().zip(asked));
        }
    }
    found.sort_by_key(|(i, _)| *i);
    Ok(found.into_iter().map(|(_, asked)| asked).collect())
}

#[cfg(feature = "grammar")]
fn name(talk: &mut Conversation, how: &Generate) -> Result<(Request, Answer), Refusal> {
    talk.ask_name(how).map_err(|e| Refusal::of(&e))
}

#[cfg(feature = "grammar")]
fn arguments(talk: &mut Conversation, tool: &str, how: &Generate) -> Result<(Request, Answer), Refusal> {
    talk.ask_arguments(tool, how).map_err(|e| Refusal::of(&e))
}

#[cfg(not(feature = "grammar"))]
fn name(_: &mut Conversation, _: &Generate) -> Result<(Request, Answer), Refusal> {
    Err(Refusal::unsupported("tool_choice", sampling::NO_GRAMMAR))
}

#[cfg(not(feature = "grammar"))]
fn arguments(_: &mut Conversation, _: &str, _: &Generate) -> Result<(Request, Answer), Refusal> {
    Err(Refusal::unsupported("tool_choice", sampling::NO_GRAMMAR))
}

fn read(given: &[u8], shared: &Shared) -> Result<Asked, Refusal> {
    let fields = Fields::read(given)?;
    let mut how = sampling::generate(&fields, shared)?;
    let tools = Tools::read(&fields)?;
    how = format(&fields, how)?;
    #[cfg(feature = "grammar")]
    if let (Some(_), Some(_)) = (&how.grammar, &tools) {
        let why = "an answer that is held to a form calls no tools; leave out `tools`, or say `tool_choice`: \"none\"";
        let of = if fields.get("response_format").is_some() { "response_format" } else { "grammar" };
        return Err(Refusal::unsupported(of, why));
    }
    if tools.as_ref().is_some_and(|tools| tools.strict) {
        how = strict(how)?;
    }
    let wanted = fields.flag("logprobs")?.unwrap_or(false);
    match fields.within("top_logprobs", 0, TOP)? {
        Some(_) if !wanted => return Err(Refusal::field("top_logprobs", "it wants `logprobs` to be true")),
        top if wanted => how.logprobs = Some(top.unwrap_or(0)),
        _ => {}
    }
    if fields.list("modalities")?.is_some_and(|all| all.iter().any(|one| one != "text")) {
        return Err(Refusal::unsupported("modalities", "there is text alone"));
    }
    let own = if tools.is_some() { &shared.with_tools } else { &shared.talk };
    let mut talk = own.clone().map_err(Refusal::bad)?;
    if let Some(tools) = &tools {
        talk = talk.tools(tools.list.clone()).map_err(|e| Refusal::field("tools", e.to_string()))?;
    }
    if let Some(variables) = fields.object("chat_template_kwargs")? {
        talk.options().variables.extend(variables.clone());
    }
    if let Some(effort) = fields.text("reasoning_effort")? {
        if !talk.template().contains("reasoning_effort") {
            let why =
                "this model's chat template knows no effort; what it knows goes into `chat_template_kwargs`";
            return Err(Refusal::unsupported("reasoning_effort", why));
        }
        talk.options().variables.insert("reasoning_effort".into(), effort.into());
    }
    *talk.messages() = messages::read(fields.need("messages")?, &shared.model)?;
    let stream = fields.flag("stream")?.unwrap_or(false);
    let usage = match fields.object("stream_options")?.and_then(|options| options.get("include_usage")) {
        None | Some(Value::Null) => false,
        Some(on) => on
            .as_bool()
            .ok_or_else(|| Refusal::field("stream_options.include_usage", "it is to be true or false"))?,
    };
    Ok(Asked { talk, how, answers: sampling::answers(&fields)?, tools, stream, usage })
}

/// Holds the answer to the form that is asked for.
fn format(fields: &Fields, how: Generate) -> Result<Generate, Refusal> {
    let Some(format) = fields.object("response_format")? else { return Ok(how) };
    let schema = match format.get("type").and_then(Value::as_str) {
        Some("text") => return Ok(how),
        Some("json_object") => r#"{"type": "object"}"#.to_owned(),
        Some("json_schema") => {
            let schema = format.get("json_schema").and_then(|json| json.get("schema"));
            schema
                .ok_or_else(|| Refusal::field("response_format.json_schema.schema", "it is missing"))?
                .to_string()
        }
        _ => {
            return Err(Refusal::field(
                "response_format.type",
                "it is to be text, json_object or json_schema",
            ));
        }
    };
    held(how, &schema)
}

#[cfg(feature = "grammar")]
fn held(how: Generate, schema: &str) -> Result<Generate, Refusal> {
    if how.grammar.is_some() {
        return Err(Refusal::field("response_format", "the answer is held to a `grammar` already"));
    }
    how.json_schema(schema).map_err(|e| Refusal::field("response_format", e.to_string()))
}

#[cfg(not(feature = "grammar"))]
fn held(_: Generate, _: &str) -> Result<Generate, Refusal> {
    Err(Refusal::unsupported("response_format", sampling::NO_GRAMMAR))
}

#[cfg(feature = "grammar")]
#[expect(clippy::unnecessary_wraps, reason = "a build without grammars refuses it")]
fn strict(how: Generate) -> Result<Generate, Refusal> {
    Ok(how.strict())
}

#[cfg(not(feature = "grammar"))]
fn strict(_: Generate) -> Result<Generate, Refusal> {
    Err(Refusal::unsupported("tools", format!("`strict`: {}", sampling::NO_GRAMMAR)))
}
