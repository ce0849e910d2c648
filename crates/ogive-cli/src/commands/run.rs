//! `ogive run`: go on from a prompt.
//!
//! Nothing is added to the text, not even a line break at its end, unless stdout is a terminal: what a script reads is
//! what the model wrote.

use crate::answer::{self, Ended, Steps, Writer};
use crate::args::Context;
use crate::calling::{self, Calling};
use crate::commands::chat::conversation;
use crate::drafting::Drafting;
use crate::error::{Doing, Error, Result, both};
use crate::files;
use crate::interrupt::Patience;
use crate::logprobs;
use crate::options::{Machine, ModelPath};
use crate::output;
use crate::sampling::{Sampling, plain_chain};
use crate::seeing::{self, Seeing};
use ogive::sampler::{Chain, SampleError};
use ogive::{Chat, Generate, Generation, Parts, Prompt, Session};
use serde_json::{Value, json};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// After so long it is said that stdin is waited for.
const SILENT: Duration = Duration::from_secs(1);

/// Arguments of `ogive run`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelPath,
    #[command(flatten)]
    machine: Machine,
    #[command(flatten)]
    drafting: Drafting,
    #[command(flatten)]
    seeing: Seeing,
    #[command(flatten)]
    calling: Calling,
    /// Tokens of prompt and answer together [default: the model's, up to 4096]
    #[arg(short, long, value_name = "N")]
    context: Option<usize>,
    /// Plain text in, whatever chat template the model has
    #[arg(long, conflicts_with = "tools")]
    raw: bool,
    /// The same, and special tokens that PROMPT spells count, as those of fill-in-the-middle do
    #[arg(long, conflicts_with_all = ["system", "chat_template", "tools"])]
    special: bool,
    /// Prints one JSON object in the end instead of text as it comes; what a model thinks is apart in it, as `thinking`
    #[arg(long)]
    json: bool,
    /// What the assistant is to be, for the chat template
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    system: Option<String>,
    /// A Jinja file instead of the model's chat template
    #[arg(long, value_name = "FILE", conflicts_with = "raw")]
    chat_template: Option<PathBuf>,
    /// Tells how likely each token was and the N likeliest at its place: with --json as `logprobs`, else on stderr
    #[arg(long, value_name = "N")]
    logprobs: Option<usize>,
    /// Writes the session to FILE in the end, also where Ctrl-C or an error ends the answer: its tokens, and what the model has read of
    /// them
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Goes on with a session of the same model that --save wrote: a conversation with PROMPT as its next message, plain
    /// text from PROMPT, of which nothing is read again that FILE has; where it stopped without PROMPT, if stdin is a terminal or empty
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,
    /// What to go on from; an empty text begins with BOS alone, `-` reads stdin, as does no PROMPT where stdin is a pipe or a file. It is
    /// read to its end: where a pipe is held open, as by a supervisor, `</dev/null` says that nothing comes
    prompt: Option<String>,
    // Last, for its heading holds for all that follows.
    #[command(flatten)]
    sampling: Sampling,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let prompt = prompt(args, context)?;
    check_template(args, prompt.as_deref())?;
    let images = args.seeing.images()?;
    let path = args.model.get(context);
    let mut how = args.sampling.generate()?;
    let tools = args.calling.read(&mut how)?;
    if args.calling.call().is_some() && args.logprobs.is_some() {
        return Err(Error::Usage(
            "a call that is asked for has no log probabilities: leave out --logprobs".into(),
        ));
    }
    args.save.as_deref().map_or(Ok(()), |save| files::check_session(save, path))?;
    how.logprobs = args.logprobs;
    let model = args.seeing.open(&args.machine, path, args.context, false, context)?;
    let model = args.drafting.over(model, &args.machine, args.context, context)?;
    let mut session = match &args.load {
        Some(file) => model.load_session(file)?,
        None => model.session()?,
    };
    let Some(prompt) = prompt else {
        let generation = resumed(&mut session, &mut how, args, context)?;
        let said = say(generation, &how, args, context);
        return finish(said, args, |file| session.save(file));
    };
    args.sampling.show_seed(&how, context);
    let templated = args.chat_template.is_some() || args.system.is_some() || model.chat_template().is_some();
    if templated && !args.raw && !args.special && !prompt.is_empty() {
        let chat = conversation(session, args.chat_template.as_deref(), args.system.as_deref())?;
        let mut chat = calling::over(chat, tools)?;
        images.into_iter().for_each(|image| chat.show(image));
        if let Some(tool) = args.calling.call() {
            return called(&mut chat, &prompt, tool, &how, args, context);
        }
        let several = "the last answer has several calls, and PROMPT is what came of one: `ogive chat --session` takes them one by one";
        let reply = calling::say(&mut chat, &prompt, &how)?.ok_or_else(|| Error::failed(several))?;
        let said = say(reply, &how, args, context);
        finish(said, args, |file| chat.save(file))
    } else if !tools.is_empty() {
        let why =
            "--tools is for a conversation, and this model has no chat template, or the prompt is empty";
        Err(Error::Usage(why.into()))
    } else {
        let prompt = match (images.is_empty(), args.special) {
            (false, special) => {
                if !special {
                    context.note("with an image, special tokens that PROMPT spells count, as with --special");
                }
                seeing::prompt(&model, prompt, images)
            }
            (true, true) => Prompt::Special(prompt),
            (true, false) => Prompt::Text(prompt),
        };
        let said = say(session.generate(prompt, &how)?, &how, args, context);
        finish(said, args, |file| session.save(file))
    }
}

/// Has a tool called in answer to the prompt.
fn called(
    chat: &mut Chat,
    prompt: &str,
    tool: &str,
    how: &Generate,
    args: &Args,
    context: &Context,
) -> Result<()> {
    if let Some(call) = chat.waits_for() {
        let why =
            format!("PROMPT is what came of the call of {}, which is answered: leave out --call", call.name);
        return Err(Error::Usage(why));
    }
    let call = calling::json(&calling::call(chat, prompt, tool, how)?);
    if args.json {
        let samplers = plain_chain(&how.sampler);
        output::line(
            json!({ "text": "", "finish": "stop", "seed": how.sampler.seed, "samplers": samplers, "tool_calls": [call] }),
        )?;
    } else {
        let end = if output::is_terminal() { "\n" } else { "" };
        output::write(format!("{call}{end}").as_bytes())?;
    }
    let _patience = context.interrupt.patience();
    args.save.as_deref().map_or(Ok(()), |file| Ok(chat.save(file)?))
}

/// The prompt that was given, or comes by stdin. Of a session that is gone on with there need be none.
fn prompt(args: &Args, context: &Context) -> Result<Option<String>> {
    match args.prompt.as_deref() {
        Some("-") => files::stdin_line().map(Some),
        Some(text) => Ok(Some(text.to_owned())),
        None if args.load.is_some() => next_message(context),
        None if io::stdin().is_terminal() => Err(no_prompt("there is no prompt")),
        None => match files::stdin_line()? {
            // Nobody means this: a script without a terminal, or a program before the pipe that failed.
            text if text.is_empty() => Err(no_prompt("there is no prompt, and nothing came by stdin")),
            text => Ok(Some(text)),
        },
    }
}

/// What stdin says to a session that is gone on with; nothing, if it is a terminal or empty. A pipe that somebody has left open has no end,
/// and without a word that would look like a program that hangs.
fn next_message(context: &Context) -> Result<Option<String>> {
    if io::stdin().is_terminal() {
        return Ok(None);
    }
    let (tell, read) = channel();
    thread::Builder::new()
        .name("stdin".into())
        .spawn(move || tell.send(files::stdin_line()))
        .doing("starting to read stdin")?;
    let text = read.recv_timeout(SILENT).or_else(|_| {
        context.note(
            "waiting for the end of stdin, for what it says is the prompt; `</dev/null` goes on without one",
        );
        read.recv()
    });
    let text = text.doing("reading stdin")??;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// That what is for a PROMPT has one. (--raw asks for no template, and that is so without a PROMPT too.)
fn check_template(args: &Args, prompt: Option<&str>) -> Result<()> {
    let why = match prompt {
        None => "without one the session goes on where it stopped",
        Some("") => "an empty one begins with BOS alone",
        Some(_) => return Ok(()),
    };
    let (system, template) = (args.system.is_some(), args.chat_template.is_some());
    let (special, image) = (args.special && prompt.is_none(), args.seeing.any() && prompt.is_none());
    let tools = args.calling.any();
    let options = [
        (system, "--system"),
        (template, "--chat-template"),
        (special, "--special"),
        (image, "--image"),
        (tools, "--tools"),
    ];
    for (given, option) in options {
        if given {
            let why = format!("{option} is for a PROMPT, and {why}: give a text, or leave {option} out");
            return Err(Error::Usage(why));
        }
    }
    Ok(())
}

fn no_prompt(why: &str) -> Error {
    let how = "give the text to go on from, as in `ogive run \"Once upon a time\"`, or let it come by stdin";
    Error::Usage(format!("{why}: {how}; `ogive chat` talks, and `ogive run --help` tells more"))
}

/// Goes on where a session stopped, its sampler too. With other samplers than it had, or another seed, draws begin anew.
fn resumed<'s>(
    session: &'s mut Session,
    how: &mut Generate,
    args: &Args,
    context: &Context,
) -> Result<Generation<'s>> {
    let why = match session.resume(how).map(drop) {
        Ok(()) if args.sampling.is_seeded() => {
            "the session goes on with this seed, and not where its random numbers stopped"
        }
        Ok(()) => {
            let chain = session.chain().map(Chain::seed);
            how.sampler.seed = chain.unwrap_or(how.sampler.seed);
            return Ok(session.resume(how)?);
        }
        Err(ogive::Error::Sampler(SampleError::State { .. })) => {
            "the session goes on by other samplers than it was drawn by"
        }
        Err(e) => return Err(e.into()),
    };
    args.sampling.show_seed(how, context);
    context.note(why);
    Ok(session.resume_anew(how)?)
}

/// An answer that is over.
struct Said<'c> {
    ended: Result<Ended>,
    /// Whether any of it was drawn.
    drawn: bool,
    /// From its first step to where it is saved: a session that is half written would be left under another name.
    patience: Patience<'c>,
}

/// Saves what is to be saved, however the answer ended: at Ctrl-C, at an error and where its reader has had enough, what came of it. Of an
/// error before its first token there is nothing that was not there before.
fn finish(said: Said<'_>, args: &Args, save: impl FnOnce(&Path) -> ogive::Result<()>) -> Result<()> {
    let kept = match &args.save {
        Some(file) if said.drawn || said.ended.is_ok() => save(file).map_err(Error::from),
        _ => Ok(()),
    };
    let ended = both(said.ended, kept)?;
    if ended == Ended::Interrupted || said.patience.over() { Err(Error::Interrupted) } else { Ok(()) }
}

fn say<'c>(mut steps: impl Steps, how: &Generate, args: &Args, context: &'c Context) -> Said<'c> {
    let patience = context.interrupt.patience();
    let mut said = Parts::default();
    let mut writer = Writer::new(context);
    let ended = answer::follow(&mut steps, context, |parts| {
        if args.json {
            said.push(parts);
            return Ok(());
        }
        writer.write(parts)
    });
    let generation = steps.generation();
    let drawn = !generation.ids().is_empty();
    let told = match &ended {
        Ok(ended) => tell(generation, *ended, &said, how, args, context),
        Err(Error::Failed(why)) if args.json && drawn => {
            let mut object = object(generation, &said, how);
            (object["finish"], object["error"]) = (json!("failed"), json!(why));
            output::line(object)
        }
        Err(_) => Ok(()),
    };
    Said { ended: ended.and_then(|ended| told.map(|()| ended)), drawn, patience }
}

/// The answer as an object, but for why it ended.
fn object(generation: &Generation<'_>, said: &Parts, how: &Generate) -> Value {
    let times = generation.times();
    let mut object = json!({
        "prompt_ids": generation.prompt_ids(),
        "ids": generation.ids(),
        "text": said.answer,
        "finish": null,
        "complete": generation.is_complete(),
        "seed": how.sampler.seed,
        "samplers": plain_chain(&how.sampler),
        "prefill_tokens_per_second": answer::measured(times.prefill_rate()),
        "decode_tokens_per_second": answer::measured(times.decode_rate()),
    });
    if times.drafted > 0 {
        object["drafted"] = json!(times.drafted);
        object["accepted"] = json!(times.accepted);
    }
    if !said.thinking.is_empty() {
        object["thinking"] = json!(said.thinking);
    }
    if !said.calls.is_empty() {
        object["tool_calls"] = said.calls.iter().map(calling::json).collect();
    }
    if how.logprobs.is_some() {
        object["logprobs"] = logprobs::json(generation.logprobs());
        object["cumulative_logprob"] = json!(generation.cumulative_logprob());
    }
    object
}

/// What there is to tell of an answer that no error ended.
fn tell(
    generation: &Generation<'_>,
    ended: Ended,
    said: &Parts,
    how: &Generate,
    args: &Args,
    context: &Context,
) -> Result<()> {
    if args.json {
        let mut object = object(generation, said, how);
        object["finish"] = json!(ended.word());
        output::line(object)?;
    } else if output::is_terminal() {
        output::write(b"\n")?;
    }
    if how.logprobs.is_some() && !args.json {
        output::note(logprobs::table(generation.logprobs()));
    }
    context.note(answer::figures(generation, ended));
    if generation.is_complete() == Some(false) {
        context.note("the answer was cut off before it was what was asked for: -n and --context allow more");
    }
    Ok(())
}
