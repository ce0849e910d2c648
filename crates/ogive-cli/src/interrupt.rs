//! What Ctrl-C does, and what signals do that ask the program to end: SIGTERM, and SIGHUP of a terminal that is closed.
//!
//! Nothing waits for it but what says so: by default the program ends at once. While a [`Patience`] lives, the first
//! Ctrl-C only sets a flag, to be looked at between steps, and the second ends the program after all: a step may be long.
//! One may live within another's life, as an answer's within that of the conversation: they share the flag.
//!
//! Signals are noted likewise, but for good: where Ctrl-C stops an answer alone, they end the conversation too. A second SIGTERM ends the
//! program after all, for it may write to somebody who never reads; SIGHUP is noted however often it comes, as a terminal that is closed sends
//! several. Where a signal ends the program at once it kills it, as if nobody had taken it: a shell sets the terminal right after who was
//! killed and after nobody else, and the editor of `ogive chat` has it raw.

use crate::error::{Doing, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// The exit code of a program that Ctrl-C ended, or a signal that somebody waited for: by another one it is killed.
const CODE: i32 = 130;

#[derive(Debug, Default)]
struct Flags {
    /// How many wait for it.
    patient: AtomicUsize,
    hit: AtomicBool,
    /// Whether the program is to end.
    ending: AtomicBool,
}

impl Flags {
    /// Takes a Ctrl-C; says whether the program ends by it.
    fn hit(&self) -> bool {
        self.patient.load(SeqCst) == 0 || self.ending.load(SeqCst) || self.hit.swap(true, SeqCst)
    }

    /// Takes a signal to end, `again` if it is one more that counts; says whether the program ends by it.
    #[cfg(any(unix, test))]
    fn end(&self, again: bool) -> bool {
        self.ending.store(true, SeqCst);
        again || self.patient.load(SeqCst) == 0
    }
}

/// What Ctrl-C does.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<Flags>);

impl Interrupt {
    /// Takes Ctrl-C and signals over. Once in a process, before it has other threads.
    pub(crate) fn install() -> Result<Self> {
        let flags = Arc::new(Flags::default());
        #[cfg(unix)]
        signals::listen(Arc::clone(&flags))?;
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

    /// Whether a signal asked the program to end, and not only what it does.
    pub(crate) fn is_final(&self) -> bool {
        self.0.ending.load(SeqCst)
    }
}

/// While this lives, the first Ctrl-C is only noted, and so are the first SIGTERM and every SIGHUP.
#[derive(Debug)]
pub(crate) struct Patience<'i>(&'i Flags);

impl Patience<'_> {
    /// Whether Ctrl-C or a signal came.
    pub(crate) fn over(&self) -> bool {
        self.0.hit.load(SeqCst) || self.0.ending.load(SeqCst)
    }
}

impl Drop for Patience<'_> {
    fn drop(&mut self) {
        self.0.patient.fetch_sub(1, SeqCst);
    }
}

/// SIGTERM and SIGHUP, by a thread that waits for them.
///
/// `ctrlc` could take them too, but would not tell them from Ctrl-C, and would take the SIGHUP that `nohup` has a program ignore.
#[cfg(unix)]
mod signals {
    use super::{CODE, Doing, Flags, Result};
    use nix::sys::signal::{SigSet, Signal, raise};
    use std::sync::Arc;
    use std::thread;
    use std::time::{Duration, Instant};

    /// A SIGTERM so soon after the first is the same one: `timeout` sends it to the program, and then to the group that it is in.
    const ECHO: Duration = Duration::from_secs(1);

    pub(super) fn listen(flags: Arc<Flags>) -> Result<()> {
        let mut signals = SigSet::empty();
        [Signal::SIGTERM, Signal::SIGHUP]
            .into_iter()
            .filter(|s| !is_ignored(*s))
            .for_each(|s| signals.add(s));
        // Every later thread blocks them too: one that did not would get them, and the program would end.
        signals.thread_block().doing("taking signals over")?;
        let wait = move || {
            let mut first = None;
            while let Ok(signal) = signals.wait() {
                let again =
                    signal == Signal::SIGTERM && first.get_or_insert_with(Instant::now).elapsed() >= ECHO;
                if flags.end(again) {
                    die(signal);
                }
            }
        };
        thread::Builder::new().name("signals".into()).spawn(wait).doing("starting to wait for signals")?;
        Ok(())
    }

    /// Ends the program by the signal itself, which nothing handles.
    fn die(signal: Signal) -> ! {
        let _ = SigSet::from(signal).thread_unblock();
        let _ = raise(signal);
        // Not reached, unless a library has begun to handle it.
        std::process::exit(CODE)
    }

    /// Whether the program was started so that a signal is nothing to it.
    #[cfg(target_os = "linux")]
    fn is_ignored(signal: Signal) -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let mask = mask.and_then(|mask| u128::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| (mask >> (signal as i32 - 1)) & 1 == 1)
    }

    /// Elsewhere one that is ignored does not come to who waits for it.
    #[cfg(not(target_os = "linux"))]
    fn is_ignored(_: Signal) -> bool {
        false
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

    #[test]
    fn a_signal_is_noted_for_good() {
        let interrupt = Interrupt(Arc::default());
        assert!(interrupt.0.end(false), "nobody waits");
        let interrupt = Interrupt(Arc::default());
        let patience = interrupt.patience();
        assert!(!interrupt.0.end(false) && !interrupt.0.end(false), "a terminal sends several");
        assert!(patience.over() && interrupt.is_final());
        interrupt.heed();
        assert!(patience.over(), "it is no Ctrl-C that was heeded");
        drop(patience);
        let _patience = interrupt.patience();
        assert!(interrupt.patience().over() && interrupt.is_final());
        assert!(interrupt.0.hit(), "Ctrl-C does not wait for what is to end anyhow");
        assert!(interrupt.0.end(true), "nor does a second SIGTERM");
    }
}
