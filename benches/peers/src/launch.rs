//! How long an engine takes from nothing to a first token, and how much memory it has had after a prompt and some tokens.

use crate::Result;
use crate::engines::{Engine, Start};
use crate::peer::Peer;
use crate::phase::{Phase, Sizes};
use crate::report::{median, middle};
use serde::Serialize;
use std::path::Path;
use std::time::Instant;

/// Tokens of the prompt before the first token: as before decoding.
const PROMPT: usize = 8;

/// An engine's starts with one of its settings.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Launches {
    /// Name, version and setting.
    pub(crate) engine: String,
    /// From starting the process to the first token after a prompt of 8, start by start.
    pub(crate) seconds: Vec<f64>,
    /// The most memory that the process had by the end of the long prompt and the tokens decoded after it, its share of files included; where the system tells.
    pub(crate) bytes: Vec<u64>,
}

/// Starts each engine with each of its settings so many times, in turn, and once before for the system's cache of files.
pub(crate) fn measure(
    model: &Path,
    engines: &[&Engine],
    how: &Start,
    sizes: &Sizes,
    count: usize,
) -> Result<Vec<Launches>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let each = |e: &&Engine| e.starts.iter().map(|s| (*s).to_owned()).map(|s| (**e, s)).collect::<Vec<_>>();
    let mut all: Vec<(Engine, String, Launches)> =
        engines.iter().flat_map(each).map(|(e, s)| (e, s, Launches::default())).collect();
    for i in 0..=count {
        for (engine, setting, launches) in &mut all {
            let begin = Instant::now();
            let mut peer = Peer::start(engine, model, &Start { setting: setting.clone(), ..how.clone() })?;
            peer.prefill(PROMPT)?;
            let seconds = begin.elapsed().as_secs_f64();
            if sizes.has(Phase::Prefill) {
                peer.prefill(sizes.prefill)?;
            }
            // Weights may be laid anew beside this.
            if sizes.has(Phase::Decode) {
                peer.decode(sizes.decode)?;
            }
            eprintln!("{}: first token after {seconds:.2} s, start {i}/{count}", peer.about);
            if i > 0 {
                launches.seconds.push(seconds);
                launches.bytes.extend(peer.peak_bytes());
            }
            launches.engine = peer.about.clone();
        }
    }
    Ok(all.into_iter().map(|a| a.2).collect())
}

impl Launches {
    pub(crate) fn start(&self) -> f64 {
        median(self.seconds.iter().copied())
    }

    pub(crate) fn peak(&self) -> Option<f64> {
        middle(self.bytes.iter().map(|b| *b as f64))
    }
}
