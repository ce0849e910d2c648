//! Ogive, by its facade: an engine with one sequence, which draws the best token; and one with several.

use super::{Cache, Running, Start};
use crate::{Result, phase};
use ogive::engine::{Engine, Event, Finish, Limits, Request, SeqId};
use ogive::tensor::{F16, Format, Q8_0};
use std::path::Path;
use std::time::Instant;

struct Ogive {
    model: ogive::Model,
    engine: Engine,
    vocabulary: usize,
    sequence: Option<SeqId>,
    start: Start,
}

/// The setting in which weights stay in the mapped file; without one the backend lays them out as it likes when it loads them.
pub(super) const AS_STORED: &str = "as stored";
/// The setting in which it does so while it computes already, which is the facade's default.
pub(super) const BACKGROUND: &str = "in the background";

/// The setting in which F16 and F32 weights are rounded to bf16, and what they are multiplied with too.
pub(super) const BF16: &str = "bf16";

impl Start {
    fn element(&self) -> &'static Format {
        match self.cache {
            Cache::F16 => &F16,
            Cache::Q8 => &Q8_0,
        }
    }
}

pub(super) fn open(path: &Path, start: &Start) -> Result<Box<dyn Running>> {
    let model = ogive::Options::new()
        .device(ogive::Device::Cpu)
        .threads(start.threads)
        .repack(start.setting != AS_STORED)
        .background(start.setting == BACKGROUND)
        .bf16(start.setting == BF16)
        .context(start.context)
        .open(path)?;
    // As the facade's own sessions have it.
    let engine = model.engine(Limits::new(start.context).step_tokens(512).element(start.element()))?;
    let vocabulary = match model.layers().vocab() {
        Some(n) => n,
        None => model.config().usize("vocab_size")?,
    };
    Ok(Box::new(Ogive { model, engine, vocabulary, sequence: None, start: start.clone() }))
}

impl Running for Ogive {
    fn about(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        match &*self.start.setting {
            "" => format!("ogive {version}"),
            BF16 => format!("ogive-bf16 {version}"),
            setting => format!("ogive {version} ({setting})"),
        }
    }

    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn clear(&mut self) -> Result<()> {
        if let Some(id) = self.sequence.take() {
            self.engine.cancel(id);
        }
        Ok(())
    }

    fn forward(&mut self, ids: &[u32]) -> Result<u32> {
        // Draws the best token unless told otherwise.
        let request = |ids: &[u32]| Request::new(ids, 1).keep();
        match self.sequence {
            // The token that was drawn last is in the sequence already, and not yet read.
            Some(id) => self.engine.resume(id, request(&[]))?,
            None => self.sequence = Some(self.engine.add(request(ids))?),
        }
        loop {
            for event in self.engine.step()? {
                if let Some(token) = token(event)? {
                    return Ok(token);
                }
            }
        }
    }

    fn together(&mut self, prompts: &[Vec<u32>], n: usize) -> Result<f64> {
        let rows: usize = prompts.iter().map(Vec::len).sum();
        let tokens = prompts.iter().map(Vec::len).max().unwrap_or(0) + n;
        let limits = Limits::new(phase::context(tokens))
            .sequences(prompts.len())
            .cache_tokens(phase::shared(prompts.len(), tokens))
            .step_tokens(rows.max(512))
            .element(self.start.element());
        let mut engine = self.model.engine(limits)?;
        for prompt in prompts {
            engine.add(Request::new(&prompt[..], n + 1))?;
        }
        // All prompts fit one step, which draws the first token of each.
        let drawn = engine.step()?.len();
        if drawn != prompts.len() {
            return Err(format!("the first step drew {drawn} tokens for {} sequences", prompts.len()).into());
        }
        let start = Instant::now();
        let mut drawn = 0;
        while !engine.is_idle() {
            for event in engine.step()? {
                drawn += usize::from(token(event)?.is_some());
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        match drawn == n * prompts.len() {
            true => Ok(seconds),
            false => Err(format!("{drawn} tokens for {} sequences", prompts.len()).into()),
        }
    }
}

fn token(event: Event) -> Result<Option<u32>> {
    match event.finish {
        Some(Finish::Failed(e)) => Err(e.to_string().into()),
        _ => Ok(event.token),
    }
}
