//! An answer on its way: step by step, so that Ctrl-C is heard and a long prompt shows progress.
//!
//! One loop for `run` and `chat`, over what the library gives for plain prompts and for conversations.

use crate::args::Context;
use crate::calling;
use crate::error::Result;
use crate::options::progress;
use crate::output;
use ogive::engine::Finish;
use ogive::{Generation, Parts, Reply};

/// What gives text in steps.
pub(crate) trait Steps {
    /// One step and what came of it; `None` when there is no more.
    fn step(&mut self) -> ogive::Result<Option<Parts>>;
    /// What is known of it.
    fn generation(&self) -> &Generation<'_>;
}

impl Steps for Generation<'_> {
    fn step(&mut self) -> ogive::Result<Option<Parts>> {
        Ok(Generation::step(self)?.map(Parts::from))
    }
    fn generation(&self) -> &Generation<'_> {
        self
    }
}

impl Steps for Reply<'_> {
    fn step(&mut self) -> ogive::Result<Option<Parts>> {
        self.step_parts()
    }
    fn generation(&self) -> &Generation<'_> {
        Reply::generation(self)
    }
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The model ended it, or a stop text came.
    Stop,
    /// It has as many tokens as were asked for.
    Length,
    /// The context is full.
    Context,
    /// Ctrl-C.
    Interrupted,
}

impl Ended {
    /// A word for scripts.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Context => "context",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Writes pieces where they belong: what is thought is for people.
pub(crate) struct Writer<'c> {
    context: &'c Context,
    /// Whether a line of the answer is begun.
    begun: bool,
}

impl<'c> Writer<'c> {
    pub(crate) fn new(context: &'c Context) -> Self {
        Self { context, begun: false }
    }

    pub(crate) fn write(&mut self, parts: &Parts) -> Result<()> {
        if !self.context.quiet {
            output::thought(&parts.thinking);
        }
        if !parts.answer.is_empty() {
            self.begun = !parts.answer.ends_with('\n');
            output::write(parts.answer.as_bytes())?;
        }
        for call in &parts.calls {
            // A line each, whatever was said before.
            if std::mem::replace(&mut self.begun, true) {
                output::write(b"\n")?;
            }
            output::write(calling::json(call).to_string().as_bytes())?;
        }
        Ok(())
    }
}

/// Runs an answer to its end or to Ctrl-C and hands each piece on.
pub(crate) fn follow(
    answer: &mut dyn Steps,
    context: &Context,
    mut take: impl FnMut(&Parts) -> Result<()>,
) -> Result<Ended> {
    let patience = context.interrupt.patience();
    let prompt = answer.generation().times().prompt_tokens;
    let bar = progress(context, "reading the prompt", prompt as u64, " tokens");
    loop {
        if patience.over() {
            bar.finish_and_clear();
            return Ok(Ended::Interrupted);
        }
        let step = answer.step();
        if step.is_err() || !answer.generation().ids().is_empty() {
            bar.finish_and_clear();
        } else {
            bar.set_position(answer.generation().prompt_read() as u64);
        }
        match step? {
            Some(parts) if parts.is_empty() => {}
            Some(parts) => take(&parts)?,
            None => break,
        }
    }
    Ok(match answer.generation().finish() {
        Some(Finish::Length) => Ended::Length,
        Some(Finish::Context) => Ended::Context,
        _ => Ended::Stop,
    })
}

/// Tokens a second, if there is such a number: of an answer's first token there is none, nor of a prompt that was not read again.
pub(crate) fn measured(rate: f64) -> Option<f64> {
    Some(rate).filter(|rate| *rate > 0.0)
}

/// The same behind a number of tokens.
fn at(rate: f64) -> String {
    measured(rate).map_or_else(String::new, |rate| format!(" at {rate:.1} tokens/s"))
}

/// Tokens, rates and the end, in one line.
pub(crate) fn figures(generation: &Generation<'_>, ended: Ended) -> String {
    let times = generation.times();
    let held = generation.prompt_ids().len() - times.prompt_tokens;
    let held = if held > 0 { format!(" ({held} more kept)") } else { String::new() };
    let why = match ended {
        Ended::Stop => "complete",
        Ended::Length => "as long as asked for",
        Ended::Context => "the context is full",
        Ended::Interrupted => "interrupted",
    };
    let (right, drafted) = (times.accepted, times.drafted);
    let guesses = if drafted > 0 { format!(", {right} of {drafted} guesses right") } else { String::new() };
    // Of those that were seen before there is nothing to tell.
    let seeing = times.seeing.as_secs_f64();
    let seen = if seeing < 0.05 { String::new() } else { format!("images: {seeing:.1} s; ") };
    format!(
        "{seen}prompt: {}{held}{}; answer: {}{}{guesses}; {why}",
        times.prompt_tokens,
        at(times.prefill_rate()),
        generation.ids().len(),
        at(times.decode_rate()),
    )
}
