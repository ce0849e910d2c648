//! Ogive, by its facade: an engine with one sequence, which draws the best token.

use super::Running;
use crate::Result;
use ogive::engine::{Engine, Finish, Limits, Request, SeqId};
use ogive::tensor::F16;
use std::path::Path;

/// Tokens of a sequence at most.
const CONTEXT: usize = 4096;

struct Ogive {
    engine: Engine,
    vocabulary: usize,
    sequence: Option<SeqId>,
}

/// Default settings: weights repacked or not as the backend likes, keys and values in half precision.
pub(super) fn open(path: &Path, threads: usize) -> Result<Box<dyn Running>> {
    let model =
        ogive::Options::new().device(ogive::Device::Cpu).threads(threads).context(CONTEXT).open(path)?;
    eprintln!("ogive: {}", model.device());
    // As the facade's own sessions have it.
    let engine = model.engine(Limits::new(CONTEXT).step_tokens(512).element(&F16))?;
    let vocabulary = model.config().usize("vocab_size")?;
    Ok(Box::new(Ogive { engine, vocabulary, sequence: None }))
}

impl Running for Ogive {
    fn about(&self) -> String {
        concat!("ogive ", env!("CARGO_PKG_VERSION")).into()
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
                if let Some(Finish::Failed(e)) = event.finish {
                    return Err(e.to_string().into());
                }
                if let Some(token) = event.token {
                    return Ok(token);
                }
            }
        }
    }
}
