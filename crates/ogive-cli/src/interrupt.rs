//! What Ctrl-C does, and what signals do that ask the program to end: SIGTERM, and SIGHUP of a terminal that is closed.
//!
//! Nothing waits for it but what says so: by default the program ends at once. While a [`Patience`] lives, the first
//! Ctrl-C only sets a flag, to be looked at between steps, and the second ends the program after all: a step may be long.
//! One may live within another's life, as an answer's within that of the conversation: they share the flag. Where something would be lost
//! that a file is to keep, the second asks for no more than to keep it and leave, and the third ends the program.
//!
//! Signals are noted likewise, but for good: where Ctrl-C stops an answer alone, they end the conversation too. A second SIGTERM ends the
//! program after all, for it may write to somebody who never reads; SIGHUP is noted however often it comes, as a terminal that is closed sends
//! several.
//!
//! Ended at once or with all in order, the program dies by the signal itself, as if nobody had taken it, and not with a code of its own: a
//! shell's loop ends at Ctrl-C only then, and a shell sets the terminal right after who was killed and after nobody else, and the editor of
//! `ogive chat` has it raw.

use crate::error::{Doing, Result};
use crate::output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::SeqCst};

/// What a Ctrl-C does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// It is noted.
    Note,
    /// What is kept in a file is to be written there, and then the program ends.
    Keep,
    /// The program ends.
    End,
}

#[derive(Debug, Default)]
struct Flags {
    /// How many wait for it.
    patient: AtomicUsize,
    /// How many of those have something to keep.
    keeping: AtomicUsize,
    /// How often Ctrl-C came since it was heeded.
    hits: AtomicUsize,
    /// Whether the program is to end.
    ending: AtomicBool,
    /// The signal that asked for it; 0 for Ctrl-C's.
    by: AtomicI32,
}

impl Flags {
    /// Takes a Ctrl-C.
    fn hit(&self) -> Then {
        let before = self.hits.fetch_add(1, SeqCst);
        if self.patient.load(SeqCst) == 0 {
            return Then::End;
        }
        let keeping = self.keeping.load(SeqCst) > 0;
        match before {
            0 if keeping || !self.ending.load(SeqCst) => Then::Note,
            1 if keeping => {
                self.ending.store(true, SeqCst);
                Then::Keep
            }
            _ => Then::End,
        }
    }

    /// Takes a Ctrl-C; says whether the program ends by it.
    fn ctrl_c(&self) -> bool {
        let then = self.hit();
        if then == Then::Keep {
            output::note(
                "the conversation is kept when this step is done; Ctrl-C once more ends at once, and what was said since is lost",
            );
        }
        then == Then::End
    }

    /// Takes a signal to end, `again` if it is one more that counts; says whether the program ends by it.
    #[cfg(any(unix, test))]
    fn end(&self, signal: i32, again: bool) -> bool {
        self.by.store(signal, SeqCst);
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
        signals::listen(Arc::clone(&flags))?;
        Ok(Self(flags))
    }

    /// From here on the first Ctrl-C is only noted, until the guard is dropped. One that was noted before stays so where another guard
    /// lives.
    pub(crate) fn patience(&self) -> Patience<'_> {
        if self.0.patient.fetch_add(1, SeqCst) == 0 {
            self.0.hits.store(0, SeqCst);
        }
        Patience { flags: &self.0, keeps: false }
    }

    /// The same, and the second only asks to keep what there is to keep.
    pub(crate) fn keeping(&self) -> Patience<'_> {
        let mut patience = self.patience();
        patience.keeps = true;
        self.0.keeping.fetch_add(1, SeqCst);
        patience
    }

    /// Whether Ctrl-C was noted; the next is then the first again.
    pub(crate) fn heed(&self) -> bool {
        self.0.hits.swap(0, SeqCst) > 0
    }

    /// Whether a signal asked the program to end, and not only what it does.
    pub(crate) fn is_final(&self) -> bool {
        self.0.ending.load(SeqCst)
    }

    /// Ends the program by the signal that was noted. Whatever was to be put in order must be so.
    pub(crate) fn end(&self) -> ! {
        signals::die(self.0.by.load(SeqCst))
    }
}

/// While this lives, the first Ctrl-C is only noted, and so are the first SIGTERM and every SIGHUP.
#[derive(Debug)]
pub(crate) struct Patience<'i> {
    flags: &'i Flags,
    keeps: bool,
}

impl Patience<'_> {
    /// Whether Ctrl-C or a signal came.
    pub(crate) fn over(&self) -> bool {
        self.flags.hits.load(SeqCst) > 0 || self.flags.ending.load(SeqCst)
    }
}

impl Drop for Patience<'_> {
    fn drop(&mut self) {
        self.flags.keeping.fetch_sub(usize::from(self.keeps), SeqCst);
        self.flags.patient.fetch_sub(1, SeqCst);
    }
}

/// Signals, by a thread that waits for them.
///
/// A handler could only set flags, would be another one than the line editor's, and could not be taken off again without unsafe code: what
/// is blocked and waited for keeps the action it has, which is to kill.
#[cfg(unix)]
mod signals {
    use super::{Doing, Flags, Result};
    use nix::sys::signal::{SigSet, Signal, raise};
    use std::sync::Arc;
    use std::thread;
    use std::time::{Duration, Instant};

    /// A SIGTERM so soon after the first is the same one: `timeout` sends it to the program, and then to the group that it is in.
    const ECHO: Duration = Duration::from_secs(1);

    pub(super) fn listen(flags: Arc<Flags>) -> Result<()> {
        let mut signals = SigSet::empty();
        [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
            .into_iter()
            .filter(|s| !is_ignored(*s))
            .for_each(|s| signals.add(s));
        // Every later thread blocks them too: one that did not would get them, and the program would end.
        signals.thread_block().doing("taking signals over")?;
        let wait = move || {
            let mut first = None;
            while let Ok(signal) = signals.wait() {
                let ends = if signal == Signal::SIGINT {
                    flags.ctrl_c()
                } else {
                    let again =
                        signal == Signal::SIGTERM && first.get_or_insert_with(Instant::now).elapsed() >= ECHO;
                    flags.end(signal as i32, again)
                };
                if ends {
                    die(signal as i32);
                }
            }
        };
        thread::Builder::new().name("signals".into()).spawn(wait).doing("starting to wait for signals")?;
        Ok(())
    }

    /// Ends the program by the signal itself; 0 is Ctrl-C's.
    pub(super) fn die(signal: i32) -> ! {
        let signal = Signal::try_from(signal).unwrap_or(Signal::SIGINT);
        let _ = SigSet::from(signal).thread_unblock();
        // While it reads a line, the editor has a handler for SIGINT. It gives up the line at the first, sets the terminal right and takes
        // its handler off.
        for _ in 0..100 {
            let _ = raise(signal);
            thread::sleep(Duration::from_millis(10));
        }
        // Not reached, unless a library has begun to handle it.
        std::process::exit(128 + signal as i32)
    }

    /// Whether the program was started so that a signal is nothing to it, as by `nohup`, or by a script behind an `&`.
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

/// Where there are no signals, only Ctrl-C.
#[cfg(not(unix))]
mod signals {
    use super::{Doing, Flags, Result};
    use std::sync::Arc;

    pub(super) fn listen(flags: Arc<Flags>) -> Result<()> {
        let take = move || {
            if flags.ctrl_c() {
                die(0);
            }
        };
        ctrlc::set_handler(take).doing("taking Ctrl-C over")
    }

    /// Ends the program with the code that shells elsewhere give for Ctrl-C.
    pub(super) fn die(_: i32) -> ! {
        std::process::exit(130)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_noted_while_somebody_waits() {
        let interrupt = Interrupt(Arc::default());
        assert_eq!(interrupt.0.hit(), Then::End, "nobody waits");
        let outer = interrupt.patience();
        {
            let inner = interrupt.patience();
            assert!(interrupt.0.hit() == Then::Note && inner.over() && outer.over());
            assert_eq!(interrupt.0.hit(), Then::End, "the second ends it");
        }
        assert!(outer.over() && interrupt.heed() && !outer.over());
        assert_eq!(interrupt.0.hit(), Then::Note, "the outer one waits still");
        assert!(interrupt.patience().over(), "and what came meanwhile counts");
        drop(outer);
        assert!(!interrupt.patience().over(), "but not for who begins anew");
        assert_eq!(interrupt.0.hit(), Then::End);
    }

    #[test]
    fn a_signal_is_noted_for_good() {
        let interrupt = Interrupt(Arc::default());
        assert!(interrupt.0.end(15, false), "nobody waits");
        let interrupt = Interrupt(Arc::default());
        let patience = interrupt.patience();
        assert!(!interrupt.0.end(1, false) && !interrupt.0.end(1, false), "a terminal sends several");
        assert!(patience.over() && interrupt.is_final());
        interrupt.heed();
        assert!(patience.over(), "it is no Ctrl-C that was heeded");
        drop(patience);
        let _patience = interrupt.patience();
        assert!(interrupt.patience().over() && interrupt.is_final());
        assert_eq!(interrupt.0.hit(), Then::End, "Ctrl-C does not wait for what is to end anyhow");
        assert!(interrupt.0.end(15, true), "nor does a second SIGTERM");
    }

    #[test]
    fn where_something_is_to_be_kept_the_second_only_asks_for_that() {
        let interrupt = Interrupt(Arc::default());
        let keeping = interrupt.keeping();
        for _ in 0..2 {
            let _answer = interrupt.patience();
            assert!(interrupt.0.hit() == Then::Note && !interrupt.is_final(), "it stops the answer");
            interrupt.heed();
        }
        let answer = interrupt.patience();
        assert_eq!([(); 3].map(|()| interrupt.0.hit()), [Then::Note, Then::Keep, Then::End]);
        assert!(interrupt.is_final());
        drop(answer);
        interrupt.heed();
        assert_eq!(interrupt.0.hit(), Then::Note, "while it is kept");
        drop(keeping);
        let _other = interrupt.patience();
        assert_eq!(interrupt.0.hit(), Then::End);
    }
}
