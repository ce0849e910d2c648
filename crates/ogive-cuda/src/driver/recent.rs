//! What was queued last, for the error of a device that failed in the middle of it: such an error comes when somebody waits, and the
//! driver says of it no more than a number.
//!
//! The last launches and not all since the last wait, which may be thousands. Which of them failed is not known, as the host runs ahead of
//! the device; with the driver's `CUDA_LAUNCH_BLOCKING=1` it is the last. A text is made for an error alone.

use super::Extent;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// So many are kept.
const KEPT: usize = 8;

/// A kernel in a module, and how it was spread; nothing of a recorded step but that it was one.
type Entry = Option<(&'static str, Arc<str>, Extent)>;

/// What was queued last in a context.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<VecDeque<Entry>>);

impl Recent {
    /// Notes a kernel of `module`.
    pub(super) fn kernel(&self, name: &'static str, module: &Arc<str>, extent: Extent) {
        self.push(Some((name, Arc::clone(module), extent)));
    }

    /// Notes a recorded step.
    pub(super) fn step(&self) {
        self.push(None);
    }

    fn push(&self, entry: Entry) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == KEPT {
            all.pop_front();
        }
        all.push_back(entry);
    }
}

impl fmt::Display for Recent {
    /// The newest first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (i, entry) in all.iter().rev().enumerate() {
            f.write_str(if i == 0 { "; queued last: " } else { ", " })?;
            match entry {
                Some((name, module, extent)) => write!(f, "{name} of {module} {extent}")?,
                None => f.write_str("a recorded step")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_come_first_and_the_oldest_are_forgotten() {
        let recent = Recent::default();
        assert_eq!(recent.to_string(), "");
        let extent = Extent { grid: [2, 1, 1], block: [32, 1, 1], shared: 64 };
        for _ in 0..KEPT {
            recent.kernel("add", &"elementwise".into(), extent);
        }
        recent.step();
        let text = recent.to_string();
        let first = "; queued last: a recorded step, add of elementwise on [2, 1, 1] blocks of [32, 1, 1] with 64 bytes of shared memory, add";
        assert!(text.starts_with(first), "{text}");
        assert_eq!(text.matches("elementwise").count(), KEPT - 1);
    }
}
