//! The other end of a worker: starts it, asks it, ends it.

use crate::Result;
use crate::engines::{Engine, Start};
use crate::phase::{Phase, Sizes};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running engine.
#[derive(Debug)]
pub(crate) struct Peer {
    child: Child,
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    name: &'static str,
    /// The engine's name, version and setting.
    pub(crate) about: String,
}

impl Peer {
    /// Starts `engine` on `model` and waits until it has loaded.
    pub(crate) fn start(engine: &Engine, model: &Path, how: &Start) -> Result<Self> {
        let threads = how.threads.to_string();
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--worker", engine.name, "--threads", &threads, "--setting", &how.setting])
            .args(["--context", &how.context.to_string(), "--cache", how.cache.name()])
            .arg(model)
            // candle has no other way to be told.
            .env("RAYON_NUM_THREADS", &threads)
            .env("CANDLE_NUM_THREADS", &threads)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let ask = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().ok_or("a worker without stdout")?);
        let name = engine.name;
        let mut peer = Self { child, ask, answers, name, about: name.to_owned() };
        let ready = peer.answer()?;
        let (seconds, about) = ready.split_once('\t').ok_or("a worker that does not say who it is")?;
        peer.about = about.to_owned();
        eprintln!("{about}: {} loaded in {:.1} s", model.display(), seconds.parse::<f64>()?);
        Ok(peer)
    }

    /// Seconds that the work of `phase` takes. Where tokens come one by one the prompt has been read.
    pub(crate) fn seconds(&mut self, phase: Phase, sizes: &Sizes) -> Result<f64> {
        match phase {
            Phase::Decode | Phase::Depth => self.decode(sizes.decode),
            Phase::Prefill => Ok(self.prefill(sizes.prefill)?.0),
            Phase::Together => Ok(self.ask("together", sizes.prompt(phase), sizes.together, sizes.decode)?.0),
        }
    }

    /// Seconds to read a prompt of so many tokens, and the best token after it.
    pub(crate) fn prefill(&mut self, tokens: usize) -> Result<(f64, u32)> {
        self.ask("prefill", tokens, 1, 0)
    }

    /// Seconds for so many more tokens.
    pub(crate) fn decode(&mut self, tokens: usize) -> Result<f64> {
        Ok(self.ask("decode", 0, 1, tokens)?.0)
    }

    /// Tells the worker what to do: with how many tokens of a prompt, how many sequences, and how many tokens to decode for each.
    /// Seconds, and the last token that was drawn.
    fn ask(&mut self, what: &str, prompt: usize, sequences: usize, tokens: usize) -> Result<(f64, u32)> {
        let ask = self.ask.as_mut().ok_or("a worker without stdin")?;
        writeln!(ask, "{what} {prompt} {sequences} {tokens}")?;
        ask.flush()?;
        let answer = self.answer()?;
        let (seconds, token) = answer.split_once('\t').ok_or("an answer without a token")?;
        Ok((seconds.parse()?, token.parse()?))
    }

    /// The most memory the process has had, where the system tells.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(format!("the engine {} ended; its reason is above", self.name).into());
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // At the end of its stdin a worker ends.
        self.ask = None;
        let _ = self.child.wait();
    }
}
