//! What Ctrl-C does.
//!
//! Nothing waits for it but what says so: by default the program ends at once. While a [`Patience`] lives, the first
//! Ctrl-C only sets a flag, to be looked at between steps, and the second ends the program after all: a step may be long.

use crate::error::{Doing, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// The exit code of a program that Ctrl-C ended.
const CODE: i32 = 130;

#[derive(Debug, Default)]
struct Flags {
    patient: AtomicBool,
    hit: AtomicBool,
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
            if !seen.patient.load(SeqCst) || seen.hit.swap(true, SeqCst) {
                std::process::exit(CODE);
            }
        })
        .doing("taking Ctrl-C over")?;
        Ok(Self(flags))
    }

    /// From here on the first Ctrl-C is only noted, until the guard is dropped.
    pub(crate) fn patience(&self) -> Patience<'_> {
        self.0.hit.store(false, SeqCst);
        self.0.patient.store(true, SeqCst);
        Patience(&self.0)
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
        self.0.patient.store(false, SeqCst);
    }
}
