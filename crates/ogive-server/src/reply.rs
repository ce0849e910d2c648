//! Answers of conversations, as OpenAI's clients read them: whole, or in chunks.
//!
//! A chunk cannot be taken back, and a call that the model began may turn out to be none. What was not sent yet is text then. What was sent is, where the
//! answer was cut, a call that was cut, as OpenAI has it; else the stream ends with an error, as a client would act on half a call.

use crate::error::Refusal;
use crate::mailbox::{Ended, Letters, Piece};
use crate::sse::{Events, Writer};
use ogive::{CallEvent, Logprob, Parts, TokenLogprobs};
use serde_json::{Map, Value, json};

/// What all answers of a request have in common.
#[derive(Clone, Debug)]
pub(crate) struct About {
    /// Id, kind, time and model.
    pub(crate) head: Value,
    pub(crate) prompt_tokens: usize,
    pub(crate) logprobs: bool,
    /// Whether a stream tells how much was read and drawn.
    pub(crate) usage: bool,
    /// Calls that the conversation has had: ids go on from there.
    pub(crate) made: usize,
    /// For each answer, the tool that it is a call of, and tokens that were drawn before. None where the model says what it wants.
    pub(crate) forced: Option<Vec<(String, usize)>>,
    /// Whether the client has named that tool.
    pub(crate) named: bool,
}

impl About {
    /// Makes what a forced answer says into a call.
    fn call(&self, index: usize, piece: &mut Piece, begun: &mut bool) {
        let Some((name, before)) = self.forced.as_ref().and_then(|all| all.get(index)) else { return };
        let mut calling = Vec::new();
        if !std::mem::replace(begun, true) {
            calling.push(CallEvent::Begins { index: 0, name: name.clone() });
        }
        let json = std::mem::take(&mut piece.parts.answer);
        if !json.is_empty() {
            calling.push(CallEvent::Arguments { index: 0, json });
        }
        piece.parts.calling = calling;
        if let Some(Ok(ended)) = &mut piece.end {
            ended.tokens += before;
        }
    }

    fn finish(&self, ended: &Ended, calls: bool) -> &'static str {
        match (ended.cut, calls) {
            (true, _) => "length",
            (false, true) if !self.named => "tool_calls",
            _ => "stop",
        }
    }

    fn id(&self, index: usize) -> String {
        format!("call{:05}", self.made + index + 1)
    }
}

/// How much was read and drawn.
pub(crate) fn usage(prompt: usize, drawn: usize) -> Value {
    json!({ "prompt_tokens": prompt, "completion_tokens": drawn, "total_tokens": prompt + drawn })
}

/// All that came of answers.
pub(crate) async fn collect(letters: Letters, answers: usize) -> Result<Vec<(Piece, Ended)>, Refusal> {
    let mut all: Vec<Piece> = (0..answers).map(|_| Piece::default()).collect();
    while let Some((index, piece)) = letters.next().await {
        let Some(one) = all.get_mut(index) else { continue };
        one.parts.push(&piece.parts);
        one.logprobs.extend(piece.logprobs);
        one.end = piece.end;
    }
    let ended = |mut piece: Piece| {
        let ended = piece.end.take().unwrap_or_else(|| Err(Refusal::failed("an answer has no end")))?;
        Ok((piece, ended))
    };
    all.into_iter().map(ended).collect()
}

/// Whole answers.
pub(crate) fn whole(all: Vec<(Piece, Ended)>, about: &About) -> Value {
    let (mut choices, mut drawn) = (Vec::new(), 0);
    for (index, (mut piece, ended)) in all.into_iter().enumerate() {
        piece.end = Some(Ok(ended));
        about.call(index, &mut piece, &mut false);
        let Some(Ok(ended)) = piece.end else { continue };
        drawn += ended.tokens;
        let calls = calls(&piece.parts, about);
        let mut message = json!({ "role": "assistant", "content": null, "refusal": null });
        let said = if calls.is_empty() { &*piece.parts.answer } else { piece.parts.answer.trim_end() };
        if !said.is_empty() || calls.is_empty() {
            message["content"] = said.into();
        }
        if !piece.parts.thinking.is_empty() {
            message["reasoning_content"] = piece.parts.thinking.into();
        }
        let finish = about.finish(&ended, !calls.is_empty());
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        let logprobs = about.logprobs.then(|| logprobs(&piece.logprobs));
        choices.push(
            json!({ "index": index, "message": message, "logprobs": logprobs, "finish_reason": finish }),
        );
    }
    let mut answer = about.head.clone();
    answer["choices"] = choices.into();
    answer["usage"] = usage(about.prompt_tokens, drawn);
    answer
}

/// The calls of an answer, without those that were taken back.
fn calls(parts: &Parts, about: &About) -> Vec<Value> {
    let mut calls: Vec<(usize, String, String, String)> = Vec::new();
    for event in &parts.calling {
        match event {
            CallEvent::Begins { index, name } => {
                calls.push((*index, about.id(*index), name.clone(), String::new()))
            }
            CallEvent::Arguments { index, json } => {
                calls
                    .iter_mut()
                    .filter(|(of, ..)| of == index)
                    .for_each(|(.., arguments)| arguments.push_str(json));
            }
            CallEvent::Ends { index, call } => {
                calls
                    .iter_mut()
                    .filter(|(of, ..)| of == index)
                    .for_each(|(_, id, ..)| id.clone_from(&call.id));
            }
            CallEvent::TakenBack { index } => calls.retain(|(of, ..)| of < index),
            _ => {}
        }
    }
    let call = |(_, id, name, arguments)| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
    calls.into_iter().map(call).collect()
}

/// How likely tokens were. What cannot come has no number in JSON; OpenAI writes -9999.
fn logprobs(all: &[TokenLogprobs]) -> Value {
    let one =
        |token: &Logprob| json!({ "token": token.text(), "logprob": number(token), "bytes": token.bytes });
    let token = |each: &TokenLogprobs| {
        let mut token = one(&each.token);
        token["top_logprobs"] = each.best.iter().map(one).collect();
        token
    };
    json!({ "content": all.iter().map(token).collect::<Vec<_>>(), "refusal": null })
}

/// A token's log probability, as JSON has it.
pub(crate) fn number(token: &Logprob) -> f64 {
    token.logprob.max(-9999.0)
}

/// An answer of which chunks were sent.
#[derive(Debug, Default)]
struct Sent {
    begun: bool,
    /// Calls that were begun.
    calls: usize,
    /// Whether a forced one was.
    forced: bool,
}

/// Writes chunks.
#[derive(Debug)]
pub(crate) struct Chunks {
    about: About,
    sent: Vec<Sent>,
    drawn: usize,
}

impl Chunks {
    pub(crate) fn new(about: About, answers: usize) -> Self {
        Self { about, sent: (0..answers).map(|_| Sent::default()).collect(), drawn: 0 }
    }

    fn chunk(
        &self,
        index: usize,
        delta: Value,
        logprobs: Option<Value>,
        finish: Option<&str>,
        out: &mut Events,
    ) {
        let mut chunk = self.about.head.clone();
        chunk["choices"] =
            json!([{ "index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish }]);
        if self.about.usage {
            chunk["usage"] = Value::Null;
        }
        out.push(&chunk);
    }
}

impl Writer for Chunks {
    fn piece(&mut self, index: usize, mut piece: Piece, out: &mut Events) -> Result<(), Refusal> {
        let Some(sent) = self.sent.get_mut(index) else { return Ok(()) };
        self.about.call(index, &mut piece, &mut sent.forced);
        let first = !std::mem::replace(&mut sent.begun, true);
        let cut = matches!(&piece.end, Some(Ok(Ended { cut: true, .. })));
        let said = told(&mut piece.parts, sent, cut, &self.about)?;
        let calls = sent.calls > 0;
        if first {
            self.chunk(index, json!({ "role": "assistant", "content": "" }), None, None, out);
        }
        let logprobs = (self.about.logprobs && !piece.logprobs.is_empty()).then(|| logprobs(&piece.logprobs));
        if !said.is_empty() || logprobs.is_some() {
            self.chunk(index, Value::Object(said), logprobs, None, out);
        }
        match piece.end {
            Some(Err(why)) => return Err(why),
            Some(Ok(ended)) => {
                self.drawn += ended.tokens;
                let finish = self.about.finish(&ended, calls);
                self.chunk(index, json!({}), None, Some(finish), out);
            }
            None => {}
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Events) {
        if self.about.usage {
            let mut chunk = self.about.head.clone();
            chunk["choices"] = json!([]);
            chunk["usage"] = usage(self.about.prompt_tokens, self.drawn);
            out.push(&chunk);
        }
    }
}

/// What of a piece is sent.
fn told(parts: &mut Parts, sent: &mut Sent, cut: bool, about: &About) -> Result<Map<String, Value>, Refusal> {
    let mut calls: Vec<(usize, Value)> = Vec::new();
    for event in std::mem::take(&mut parts.calling) {
        match event {
            CallEvent::Begins { index, name } => {
                let function = json!({ "name": name, "arguments": "" });
                calls.push((index, json!({ "index": index, "id": about.id(index), "type": "function", "function": function })));
            }
            CallEvent::Arguments { index, json } => match calls.last_mut().filter(|(of, _)| *of == index) {
                Some((_, call)) => {
                    let before = call["function"]["arguments"].as_str().unwrap_or_default().to_owned();
                    call["function"]["arguments"] = (before + &json).into();
                }
                None => calls.push((index, json!({ "index": index, "function": { "arguments": json } }))),
            },
            CallEvent::TakenBack { index } if index >= sent.calls => calls.retain(|(of, _)| *of < index),
            // The text behind it is the call's, as far as it came.
            CallEvent::TakenBack { .. } if cut => parts.answer.clear(),
            CallEvent::TakenBack { .. } => {
                return Err(Refusal::failed(
                    "the model began a call of a tool and did not end it as one; ask again, with `strict` tools, or without `stream` to have what it wrote",
                ));
            }
            _ => {}
        }
    }
    sent.calls = calls.iter().map(|(index, _)| index + 1).max().unwrap_or(0).max(sent.calls);
    let mut delta = Map::new();
    let texts = [("reasoning_content", &mut parts.thinking), ("content", &mut parts.answer)];
    for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        delta.insert(name.into(), std::mem::take(text).into());
    }
    if !calls.is_empty() {
        delta.insert("tool_calls".into(), calls.into_iter().map(|(_, call)| call).collect());
    }
    Ok(delta)
}
