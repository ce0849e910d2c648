//! Messages of a conversation, as OpenAI's clients send them.
//!
//! Templates have what is shown before what is said, so images of a message stand before its text, wherever among its parts they are. An image comes with the
//! request as a data URL; nothing is fetched, for a server that fetches what strangers name is theirs.

use crate::error::Refusal;
use ogive::tokenizer::template::Message;
use ogive::{Model, ToolCall};
use serde_json::Value;

/// Who sees what messages show.
struct Eyes<'m> {
    #[cfg_attr(not(feature = "vision"), expect(dead_code, reason = "such a build has no images"))]
    model: &'m Model,
    /// Pixels of the images so far: a request's have no more together than one may have.
    #[cfg(feature = "vision")]
    pixels: usize,
}

/// Reads the list of messages.
pub(crate) fn read(list: &Value, model: &Model) -> Result<Vec<Message>, Refusal> {
    let list = list.as_array().filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| Refusal::field("messages", "it is to be a list of messages"))?;
    let mut eyes = Eyes {
        model,
        #[cfg(feature = "vision")]
        pixels: 0,
    };
    let mut messages: Vec<Message> = Vec::with_capacity(list.len());
    for (i, json) in list.iter().enumerate() {
        let mut message = message(json, &format!("messages[{i}]"), &mut eyes)?;
        if let Some((id, name)) = message.result_of.as_mut().filter(|(_, name)| name.is_empty()) {
            // OpenAI's clients have the id alone, and some templates want the name.
            let mut calls = messages.iter().rev().flat_map(|message| &message.calls);
            if let Some(call) = calls.find(|call| call.id == *id) {
                name.clone_from(&call.name);
            }
        }
        messages.push(message);
    }
    Ok(messages)
}

fn message(json: &Value, at: &str, eyes: &mut Eyes<'_>) -> Result<Message, Refusal> {
    let text = |key: &str| match json.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(Refusal::field(format!("{at}.{key}"), "it is to be a text")),
    };
    let role = text("role")?.ok_or_else(|| Refusal::field(format!("{at}.role"), "it is missing"))?;
    // What is `developer` to new models of OpenAI's is `system` to templates.
    let role = if role == "developer" { "system" } else { role };
    if !["system", "user", "assistant", "tool"].contains(&role) {
        let why = format!("there is no role {role:?}; there are system, developer, user, assistant and tool");
        return Err(Refusal::field(format!("{at}.role"), why));
    }
    let mut message = Message::new(role, "");
    let calls = json.get("tool_calls").filter(|calls| !calls.is_null());
    if let Some(calls) = calls {
        let wrong = || {
            Refusal::field(
                format!("{at}.tool_calls"),
                "it is to be a list of calls of functions, with arguments that are a JSON object",
            )
        };
        let list = calls.as_array().filter(|_| role == "assistant").ok_or_else(wrong)?;
        message.calls = list.iter().map(ToolCall::from_json).collect::<Option<_>>().ok_or_else(wrong)?;
    }
    if json.get("function_call").is_some_and(|call| !call.is_null()) {
        return Err(Refusal::unsupported(format!("{at}.function_call"), "use `tool_calls`"));
    }
    let refused = text("refusal")?.filter(|text| role == "assistant" && !text.is_empty());
    let content = format!("{at}.content");
    match json.get("content") {
        Some(Value::String(text)) => message.content.clone_from(text),
        Some(Value::Array(parts)) => parts_of(parts, &content, eyes, &mut message)?,
        None | Some(Value::Null) if !message.calls.is_empty() => {}
        None | Some(Value::Null) if refused.is_some() => {
            message.content = refused.unwrap_or_default().to_owned()
        }
        None | Some(Value::Null) => return Err(Refusal::field(content, "it is missing")),
        Some(_) => return Err(Refusal::field(content, "it is to be a text or a list of parts")),
    }
    for key in ["reasoning_content", "reasoning", "thinking"] {
        if let Some(thought) = text(key)?.filter(|_| role == "assistant" && message.thinking.is_empty()) {
            message.thinking = thought.to_owned();
        }
    }
    if role == "tool" {
        let id = text("tool_call_id")?.ok_or_else(|| {
            Refusal::field(
                format!("{at}.tool_call_id"),
                "it is missing: it says which call this is the result of",
            )
        })?;
        message.result_of = Some((id.to_owned(), text("name")?.unwrap_or_default().to_owned()));
    }
    Ok(message)
}

fn parts_of(parts: &[Value], at: &str, eyes: &mut Eyes<'_>, message: &mut Message) -> Result<(), Refusal> {
    let mut texts = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        let at = format!("{at}[{i}]");
        match part.get("type").and_then(Value::as_str) {
            Some("text") => {
                let text = part.get("text").and_then(Value::as_str);
                texts.push(text.ok_or_else(|| Refusal::field(format!("{at}.text"), "it is to be a text"))?);
            }
            // What an assistant has said, too.
            Some("refusal") => {
                let text = part.get("refusal").and_then(Value::as_str);
                texts
                    .push(text.ok_or_else(|| Refusal::field(format!("{at}.refusal"), "it is to be a text"))?);
            }
            Some("image_url") => image(part, &at, eyes, message)?,
            kind => {
                let kind = kind.unwrap_or("nothing that is known");
                let why = format!("a part of the type {kind:?} cannot be read; there are text and image_url");
                return Err(Refusal::unsupported(format!("{at}.type"), why));
            }
        }
    }
    message.content = texts.join("\n");
    Ok(())
}

#[cfg(not(feature = "vision"))]
fn image(_: &Value, at: &str, _: &mut Eyes<'_>, _: &mut Message) -> Result<(), Refusal> {
    Err(Refusal::unsupported(at, "this server was built without images (the feature `vision`)"))
}

#[cfg(feature = "vision")]
fn image(part: &Value, at: &str, eyes: &mut Eyes<'_>, message: &mut Message) -> Result<(), Refusal> {
    if !eyes.model.sees() {
        return Err(Refusal::unsupported(at, "the model was not opened to see images"));
    }
    let image = &part["image_url"];
    let url = image.get("url").unwrap_or(image).as_str();
    let at = format!("{at}.image_url");
    let wrong = |why: &str| Refusal::field(&*at, why);
    if image.get("detail").is_some_and(|detail| detail == "low") {
        return Err(Refusal::unsupported(
            at,
            "images are seen as the model's own processor has them; leave `detail` out, or send a smaller image",
        ));
    }
    let url = url.ok_or_else(|| wrong("it is to be {\"url\": \"data:image/…;base64,…\"}"))?;
    let data = url
        .strip_prefix("data:")
        .and_then(|data| data.split_once(','))
        .filter(|(kind, _)| kind.ends_with(";base64"));
    let (_, data) = data.ok_or_else(|| {
        wrong("nothing is fetched here; send the image itself as a data URL, data:image/…;base64,…")
    })?;
    let bytes = crate::base64::decode(data).ok_or_else(|| wrong("what is behind `base64,` is no Base64"))?;
    let image = ogive::Image::decode(&bytes).map_err(|e| wrong(&e.to_string()))?;
    eyes.pixels += image.pixels().map_or(0, |of| of.width() * of.height());
    if eyes.pixels > ogive::images::MAX_PIXELS {
        return Err(wrong(&format!(
            "the images of a request have more than {} pixels together",
            ogive::images::MAX_PIXELS
        )));
    }
    *message = std::mem::replace(message, Message::new("", "")).attach(image);
    Ok(())
}
