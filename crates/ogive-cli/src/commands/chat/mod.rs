//! `ogive chat`: a conversation.
//!
//! With a terminal there is a line editor with a history; without one, every line of stdin is a message, so that a
//! conversation can be scripted. Either way only the answers go to stdout; what the model thinks goes to stderr.

mod history;
mod input;
mod slash;

use crate::answer::{self, Ended, Writer};
use crate::args::Context;
use crate::calling::{self, Calling};
use crate::commands::template::read_template;
use crate::drafting::Drafting;
use crate::error::{Doing, Error, Result, both};
use crate::files;
use crate::options::{Machine, ModelPath};
use crate::output;
use crate::sampling::Sampling;
use crate::seeing::Seeing;
use input::{Input, Reader};
use ogive::tokenizer::template::{ChatTemplate, Message};
use ogive::{Chat, Generate, Image, Session};
use serde_json::Value;
use slash::Slash;
use std::path::{Path, PathBuf};

/// Arguments of `ogive chat`.
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
    /// Has the model see from the beginning, so that /image can show it something; --image and --mmproj do that, too
    #[arg(long)]
    vision: bool,
    /// Tokens of prompt and answer together [default: the model's, up to 4096]
    #[arg(short, long, value_name = "N")]
    context: Option<usize>,
    /// Keeps the conversation in FILE: goes on with it if it is there, and writes it on leaving, also by Ctrl-C, where the terminal is
    /// closed, or where SIGTERM ends the program
    #[arg(long, value_name = "FILE")]
    session: Option<PathBuf>,
    /// What the assistant is to be
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// A Jinja file instead of the model's chat template
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
    // Last, for its heading holds for all that follows.
    #[command(flatten)]
    sampling: Sampling,
}

/// A conversation by a template of the user's own, or the model's.
pub(crate) fn conversation(session: Session, template: Option<&Path>, system: Option<&str>) -> Result<Chat> {
    let source = match (template, session.model().chat_template()) {
        (Some(path), _) => read_template(path)?,
        (None, Some(own)) => own.to_owned(),
        (None, None) => {
            return Err(Error::failed(
                "this model has no chat template; give one with --chat-template FILE, or use `ogive run --raw`",
            ));
        }
    };
    let at = template.map_or("the model's chat template".into(), |path| path.display().to_string());
    let chat = Chat::new(session, ChatTemplate::new(&source).doing(format_args!("reading {at}"))?)?;
    Ok(match system {
        Some(text) => chat.system(text),
        None => chat,
    })
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let path = args.model.get(context);
    let mut how = args.sampling.generate()?;
    let tools = args.calling.read(&mut how)?;
    args.session.as_deref().map_or(Ok(()), |file| files::check_session(file, path))?;
    let images = args.seeing.images()?;
    let model = args.seeing.open(&args.machine, path, args.context, args.vision, context)?;
    let model = args.drafting.over(model, &args.machine, args.context, context)?;
    args.sampling.show_seed(&how, context);
    let session = match args.session.as_deref().filter(|file| file.exists()) {
        Some(file) => model.load_session(file)?,
        None => model.session()?,
    };
    let chat = conversation(session, args.chat_template.as_deref(), args.system.as_deref())?;
    let mut chat = calling::over(chat, tools)?;
    images.into_iter().for_each(|image| chat.show(image));
    let read = chat.session().tokens().len();
    if read > 0 {
        context.note(format_args!("{} messages, {read} tokens read", chat.messages().len()));
    }
    let mut reader = Reader::new(context)?;
    if reader.is_interactive() {
        context.note("Write a message and press Enter. /help lists the commands, Ctrl-D leaves.");
    }
    let call = args.calling.call();
    let mut talk = Talk { chat, how, call, figures: None, context, failed: false, path };
    talk.tell_what_waits();
    // From the first message until all is written: whatever comes meanwhile, what was said before is not to be lost by it.
    let patience = match args.session {
        Some(_) => context.interrupt.keeping(),
        None => context.interrupt.patience(),
    };
    let left = talk.lead(&mut reader);
    // However it ended: an error on the way is no reason to lose it either.
    let kept = match &args.session {
        Some(file) if talk.has_something() => talk.chat.save(file).map_err(Error::from),
        _ => Ok(()),
    };
    both(left, kept)?;
    if patience.over() { Err(Error::Interrupted) } else { Ok(()) }
}

/// The conversation and how it goes on.
struct Talk<'c> {
    chat: Chat,
    how: Generate,
    /// The tool that messages are answered by.
    call: Option<&'c str>,
    figures: Option<String>,
    context: &'c Context,
    failed: bool,
    /// The model's.
    path: &'c Path,
}

impl Talk<'_> {
    /// Whether there is anything to keep.
    fn has_something(&mut self) -> bool {
        !self.chat.session().tokens().is_empty() || !self.chat.messages().is_empty()
    }

    /// Hears until somebody leaves.
    fn lead(&mut self, reader: &mut Reader) -> Result<()> {
        let mut leaving = false;
        loop {
            // One that came in an answer stopped it, as Ctrl-C does, but is meant for the conversation.
            if self.context.interrupt.is_final() {
                return Err(Error::Interrupted);
            }
            // One that came in a command, as in /load, is as good as the key after it.
            let input = match reader.is_interactive() && self.context.interrupt.heed() {
                true => Input::CtrlC { empty: true },
                false => reader.next()?,
            };
            match input {
                Input::Text(text) if self.hear(&text)? => return self.end(reader),
                Input::Text(_) => leaving = false,
                Input::Signal => {
                    // The next one, while the session is saved, is another.
                    self.context.interrupt.heed();
                    return Err(Error::Interrupted);
                }
                Input::CtrlC { empty: true } if leaving => return Ok(()),
                Input::CtrlC { empty } => {
                    leaving = empty;
                    if empty {
                        output::note("Ctrl-C once more leaves, and so does Ctrl-D");
                    }
                }
                Input::Refused(why) => {
                    leaving = false;
                    self.complain(why);
                }
                Input::End => return self.end(reader),
            }
        }
    }

    /// What became of it: without a terminal, an error that was told on the way counts.
    fn end(&self, reader: &Reader) -> Result<()> {
        if self.failed && !reader.is_interactive() {
            return Err(Error::failed("the conversation did not go as it should; see above"));
        }
        Ok(())
    }

    /// Takes a message or a command; says whether to leave.
    fn hear(&mut self, text: &str) -> Result<bool> {
        match Slash::parse(text) {
            None if text.trim().is_empty() => {}
            // Two slashes at the beginning: a message that begins with one.
            None => self.say(text.strip_prefix('/').unwrap_or(text))?,
            Some(Ok(Slash::Exit)) => return Ok(true),
            Some(Ok(command)) => self.obey(command),
            Some(Err(why)) => self.complain(&why),
        }
        Ok(false)
    }

    fn complain(&mut self, why: &str) {
        self.failed = true;
        output::error(why);
    }

    /// For whom a call waits whose result is the next message.
    fn tell_what_waits(&self) {
        if let Some(call) = self.chat.waits_for() {
            output::note(format_args!("what comes of {}? The next message is that", call.name));
        }
    }

    /// Sends a message, or what came of a call, and writes the answer. What goes wrong with it does not end the conversation.
    fn say(&mut self, text: &str) -> Result<()> {
        if let Some(tool) = self.call.filter(|_| self.chat.waits_for().is_none()) {
            return self.call(text, tool);
        }
        let (ended, figures) = match calling::say(&mut self.chat, text, &self.how) {
            // Another call waits.
            Ok(None) => (Ok(Ended::Stop), None),
            Ok(Some(mut reply)) => {
                let mut writer = Writer::new(self.context);
                let ended = answer::follow(&mut reply, self.context, |parts| writer.write(parts));
                let figures = ended.as_ref().ok().map(|e| answer::figures(reply.generation(), *e));
                output::write(b"\n")?;
                (ended, figures)
            }
            Err(e) => (Err(e.into()), None),
        };
        self.reseed();
        match ended {
            Err(Error::Failed(why)) => self.fail(&why),
            Err(e) => return Err(e),
            Ok(Ended::Context) => {
                output::note("the context is full: /reset begins anew, --context N asks for more")
            }
            Ok(Ended::Interrupted) => {
                self.context.interrupt.heed();
                output::note("(stopped)");
            }
            Ok(Ended::Stop | Ended::Length) => {}
        }
        self.tell_what_waits();
        self.figures = figures;
        Ok(())
    }

    /// The next answer's draws are others, and still follow from the one seed.
    fn reseed(&mut self) {
        self.how.sampler.seed = self.how.sampler.seed.wrapping_add(1);
    }

    /// Tells what went wrong with an answer.
    fn fail(&mut self, why: &str) {
        self.complain(why);
        if !self.chat.shown().is_empty() {
            output::note("the image still waits for the next message: /image alone takes it back");
        }
    }

    /// Sends a message, and has a tool called.
    fn call(&mut self, text: &str, tool: &str) -> Result<()> {
        let called = calling::call(&mut self.chat, text, tool, &self.how);
        self.reseed();
        self.figures = None;
        match called.map_err(Error::from) {
            Ok(call) => output::line(calling::json(&call))?,
            Err(Error::Failed(why)) => self.fail(&why),
            Err(e) => return Err(e),
        }
        self.tell_what_waits();
        Ok(())
    }

    fn obey(&mut self, command: Slash) {
        match command {
            Slash::Help => output::note(slash::HELP),
            Slash::Reset => {
                self.chat.messages().retain(|m| m.role == "system");
                self.chat.shown().clear();
                output::note("a new conversation");
            }
            Slash::System(text) => {
                let messages = self.chat.messages();
                messages.retain(|m| m.role != "system");
                if !text.is_empty() {
                    messages.insert(0, Message::new("system", text));
                }
                output::note("from the next answer on");
            }
            Slash::Image(None) => {
                self.chat.shown().clear();
                output::note("the next message shows no image");
            }
            Slash::Image(Some(_)) if !self.chat.session().model().sees() => self.complain(
                "the model was not opened to see: begin with --vision, --image or --mmproj, if it is one that can",
            ),
            Slash::Image(Some(path)) => match Image::open(&path) {
                Ok(image) => {
                    self.chat.show(image);
                    output::note("with the next message");
                }
                Err(e) => self.complain(&e.to_string()),
            },
            Slash::Save(path) => match self.save(&path) {
                Ok(()) => output::note(format_args!("saved to {}", path.display())),
                Err(Error::Failed(why)) => self.complain(&why),
                Err(_) => {}
            },
            Slash::Load(path) => match self.load(&path) {
                Ok(n) => output::note(format_args!("{n} messages from {}", path.display())),
                Err(Error::Failed(why)) => self.complain(&why),
                Err(_) => {}
            },
            Slash::Stats => self.stats(),
            Slash::Exit => {}
        }
    }

    /// As a list of messages, which `ogive template` reads, or with all that the model has read.
    fn save(&mut self, path: &Path) -> Result<()> {
        files::check(path, self.path)?;
        let _patience = self.context.interrupt.patience();
        if !is_json(path) {
            return Ok(self.chat.save(path)?);
        }
        if self.chat.messages().iter().any(|m| !m.attached.is_empty()) {
            let why = "the conversation has images, which a list of messages has not; save it under a name that does not end in .json";
            return Err(Error::failed(why));
        }
        let messages: Vec<Value> = self.chat.messages().iter().map(Message::to_json).collect();
        let text = serde_json::to_string_pretty(&messages)?;
        files::write(path, |file| writeln!(file, "{text}"))
    }

    /// Goes on with another conversation instead; says how many messages it has.
    fn load(&mut self, path: &Path) -> Result<usize> {
        if is_json(path) {
            let at = || format!("reading a conversation from {}", path.display());
            let said: Vec<Value> = serde_json::from_slice(&files::read(path, at())?).doing(at())?;
            let messages: Option<Vec<Message>> = said.iter().map(Message::from_json).collect();
            let wrong = || Error::failed(format_args!("{}: a message needs a role and a content", at()));
            *self.chat.messages() = messages.ok_or_else(wrong)?;
        } else {
            self.chat.load(path)?;
        }
        self.chat.shown().clear();
        Ok(self.chat.messages().len())
    }

    fn stats(&mut self) {
        let messages = self.chat.messages().len();
        let session = self.chat.session();
        let (used, most) = (session.tokens().len(), session.model().context());
        output::note(session.model().device());
        output::note(format_args!("{messages} messages; {used} of {most} tokens of context"));
        if let Some(figures) = &self.figures {
            output::note(figures);
        }
    }
}

/// Whether a file is to have messages alone.
fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json"))
}
