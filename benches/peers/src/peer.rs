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

    /// Tokens a second in `phase`, and the best token after the prompt.
    pub(crate) fn rate(&mut self, phase: Phase, sizes: &Sizes) -> Result<(f64, u32)> {
        let ask = self.ask.as_mut().ok_or("a worker without stdin")?;
        writeln!(ask, "{}", sizes.command(phase))?;
        ask.flush()?;
        let answer = self.answer()?;
        let (seconds, token) = answer.split_once('\t').ok_or("an answer without a token")?;
        Ok((sizes.tokens(phase) as f64 / seconds.parse::<f64>()?, token.parse()?))
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
