//! What Ctrl-C does.
//!
//! Nothing waits for it but what says so: by default the program ends at once. While a [`Patience`] lives, the first
//! Ctrl-C only sets a flag, to be looked at between steps, and the second ends the program after all: a step may be long.
//! One may live within another's life, as an answer's within that of the conversation: they share the flag.

use crate::error::{Doing, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// The exit code of a program that Ctrl-C ended.
const CODE: i32 = 130;

#[derive(Debug, Default)]
struct Flags {
    /// How many wait for it.
    patient: AtomicUsize,
    hit: AtomicBool,
}

impl Flags {
    /// Takes a Ctrl-C; says whether the program ends by it.
    fn hit(&self) -> bool {
        self.patient.load(SeqCst) == 0 || self.hit.swap(true, SeqCst)
    }
}

/// What Ctrl-C does.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<Flags>);

impl Interrupt {
    /// Takes Ctrl-C over. Once in a process.
    pub(crate) fn install() -> Result<Self> {
        let flags = Arc::new(Flags::default());
        let seen = Arc::clone(&flags);
        ctrlc::set_handler(move || {
            if seen.hit() {
                std::process::exit(CODE);
            }
        })
        .doing("taking Ctrl-C over")?;
        Ok(Self(flags))
    }

    /// From here on the first Ctrl-C is only noted, until the guard is dropped. One that was noted before stays so where another guard
    /// lives.
    pub(crate) fn patience(&self) -> Patience<'_> {
        if self.0.patient.load(SeqCst) == 0 {
            self.0.hit.store(false, SeqCst);
        }
        self.0.patient.fetch_add(1, SeqCst);
        Patience(&self.0)
    }

    /// Whether Ctrl-C was noted; the next is then the first again.
    pub(crate) fn heed(&self) -> bool {
        self.0.hit.swap(false, SeqCst)
    }
}

/// While this lives, the first Ctrl-C is only noted.
#[derive(Debug)]
pub(crate) struct Patience<'i>(&'i Flags);

impl Patience<'_> {
    /// Whether Ctrl-C came.
    pub(crate) fn over(&self) -> bool {
        self.0.hit.load(SeqCst)
    }
}

impl Drop for Patience<'_> {
    fn drop(&mut self) {
        self.0.patient.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_noted_while_somebody_waits() {
        let interrupt = Interrupt(Arc::default());
        assert!(interrupt.0.hit(), "nobody waits");
        let outer = interrupt.patience();
        {
            let inner = interrupt.patience();
            assert!(!interrupt.0.hit() && inner.over() && outer.over());
            assert!(interrupt.0.hit(), "the second ends it");
        }
        assert!(outer.over() && interrupt.heed() && !outer.over());
        assert!(!interrupt.0.hit(), "the outer one waits still");
        assert!(interrupt.patience().over(), "and what came meanwhile counts");
        drop(outer);
        assert!(!interrupt.patience().over(), "but not for who begins anew");
        assert!(interrupt.0.hit());
    }
}
