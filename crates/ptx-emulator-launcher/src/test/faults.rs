//! Walks of faults: a case runs once for each call that a fault can hit, and what becomes of it is held to what may.
//!
//! The case does its work twice, as what failed once may work then. It prints `error: …` for each error, and one line under a key of its
//! choice for each time the work was done, with what came of it: the same line whenever it is right.
//!
//! ```no_run
//! use ptx_emulator_launcher::test::faults::{After, Faults, Walk, each};
//! use ptx_emulator_launcher::{Launcher, test, test_name};
//!
//! # fn work() -> Result<u32, String> { Ok(1) }
//! # #[allow(clippy::test_attr_in_doctest)]
//! #[test]
//! fn out_of_memory() {
//!     if test::case().is_some() {
//!         println!(); // the harness has begun a line
//!         for _ in 0..2 {
//!             work().map_or_else(|e| println!("error: {e}"), |sum| println!("sum: {sum}"));
//!         }
//!         return;
//!     }
//!     let walk = Walk {
//!         fault: "alloc:N,alloc:M",
//!         counts: &["allocations"],
//!         next: each,
//!         after: After::WorksAgain,
//!         wanted: &["out of memory"],
//!     };
//!     Faults::new(test_name!(), "sum", Launcher::new()).take(&walk);
//! }
//! ```

use super::Report;
use crate::Launcher;

/// What a launch fails with that the driver refuses, which is an error of the call and not of the context.
const REFUSED: &str = "701";

/// What may become of a case's work when a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Nothing: there is another way.
    Works,
    /// One error at most, and what comes next works.
    WorksAgain,
    /// An error, and the work is done once at most.
    Fails,
    /// The same; but nobody hears of it who only gives back.
    FailsOrEnds,
}

impl After {
    /// Whether so many errors, and so many times that the work was done, are what may be.
    fn allows(self, errors: usize, done: usize) -> bool {
        match self {
            Self::Works => errors == 0 && done == 2,
            // What was not built the first time does all of the work.
            Self::WorksAgain => errors <= 1 && done + errors >= 2,
            Self::Fails => errors > 0 && done < 2,
            Self::FailsOrEnds => (errors == 0) == (done == 2),
        }
    }
}

/// A fault at every call it can hit, or at some.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// `PTX_EMU_FAULT`, with `N` for the call's number and `M` for the next.
    pub fault: &'static str,
    /// What the emulator calls such calls in its counts.
    pub counts: &'static [&'static str],
    /// The number to try after this one: [`each`], or [`wider`].
    pub next: fn(u64) -> u64,
    /// What may become of the work.
    pub after: After,
    /// What an error says, all of it.
    pub wanted: &'static [&'static str],
}

/// Every call.
#[must_use]
pub fn each(at: u64) -> u64 {
    at + 1
}

/// At first each call, then ever further apart: for faults that can hit hundreds.
#[must_use]
pub fn wider(at: u64) -> u64 {
    at + 1 + at / 16
}

/// A test whose case faults can strike.
#[derive(Clone, Debug)]
pub struct Faults {
    name: String,
    key: String,
    launcher: Launcher,
    first: bool,
    also: fn(&Report) -> Result<(), String>,
}

impl Faults {
    /// The test of this name, whose case prints its results under `key`.
    #[must_use]
    pub fn new(name: &str, key: &str, launcher: Launcher) -> Self {
        let launcher = launcher.set("PTX_EMU_STATS", "1");
        Self { name: name.into(), key: key.into(), launcher, first: false, also: |_| Ok(()) }
    }

    /// Strikes only the calls of the first time that the work is done; the second is there to show that it is.
    #[must_use]
    pub fn first(self) -> Self {
        Self { first: true, ..self }
    }

    /// What is held of a report besides.
    #[must_use]
    pub fn also(self, also: fn(&Report) -> Result<(), String>) -> Self {
        Self { also, ..self }
    }

    /// Runs the case with this fault; `None` where there is no emulator. Nothing may leak.
    ///
    /// # Panics
    /// If the case did not pass or leaks; see [`run`](super::run), too.
    #[track_caller]
    #[must_use]
    pub fn with(&self, fault: &str) -> Option<Report> {
        let mut launcher = self.launcher.clone().set("PTX_EMU_FAULT", fault);
        if fault.ends_with(REFUSED) {
            // The emulator refuses a graph's launch at one of its kernels, and queues those before it without an order. A driver that
            // refuses it queues none. Run at once, they come before what is launched instead.
            launcher = launcher.set("PTX_EMU_SCHEDULE", "eager");
        }
        let report = super::run(&self.name, fault, &launcher)?;
        // A lost device frees nothing: what it held is gone with it.
        Some(if fault.starts_with("lost") { report.ok_but_for_leaks() } else { report.ok() })
    }

    /// Takes the walk, and says on standard output how far it went. Does nothing where there is no emulator.
    ///
    /// # Panics
    /// If there are results that differ, errors that do not say what is wanted, or more or fewer of either than may be.
    #[track_caller]
    #[allow(clippy::print_stdout)] // a test's log should say
    pub fn take(&self, walk: &Walk) {
        let Some(clean) = self.with("") else { return };
        let calls = clean.counted(walk.counts);
        let total = if self.first { calls.div_ceil(2) } else { calls };
        let results: Vec<&str> = clean.values(&self.key).collect();
        let &[result, again] = &results[..] else { panic!("not two results: {}", clean.stdout) };
        assert_eq!(result, again, "{}", clean.stdout);
        let (mut at, mut tried, mut met) = (1, 0, 0);
        while at <= total {
            let fault = walk.fault.replace('N', &at.to_string()).replace('M', &(at + 1).to_string());
            let Some(report) = self.with(&fault) else { return };
            match self.check(walk, &report, result) {
                Ok(errors) => met += u64::from(errors > 0),
                Err(why) => panic!("{fault}: {why}\n{}{}", report.stdout, report.stderr),
            }
            (at, tried) = ((walk.next)(at), tried + 1);
        }
        println!("cuda: {}: {tried} of {total} calls failed, {met} times with an error", walk.fault);
        assert!(tried > 0 && (met > 0) == (walk.after != After::Works), "{}: {met} of {tried}", walk.fault);
    }

    /// How many errors there were, if all is as it may be.
    fn check(&self, walk: &Walk, report: &Report, result: &str) -> Result<usize, String> {
        let errors: Vec<&str> = report.values("error").collect();
        let unsaid = |error: &&&str| !walk.wanted.iter().all(|wanted| error.contains(wanted));
        if let Some(error) = errors.iter().find(unsaid) {
            return Err(format!("an error without {:?}: {error}", walk.wanted));
        }
        let results: Vec<&str> = report.values(&self.key).collect();
        if results.iter().any(|given| *given != result) {
            return Err(format!("{results:?} and not {result}"));
        }
        if !walk.after.allows(errors.len(), results.len()) {
            return Err(format!(
                "{} errors and {} results, which is not {:?}",
                errors.len(),
                results.len(),
                walk.after
            ));
        }
        (self.also)(report).map(|()| errors.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(stdout: &str) -> Report {
        Report { passed: true, ending: "a case".into(), stdout: stdout.into(), stderr: String::new() }
    }

    #[test]
    fn what_may_be_is_told_from_what_may_not() {
        // Errors and results.
        let all = [(0, 2), (1, 1), (1, 2), (2, 0), (1, 0), (0, 1), (2, 1)];
        for (after, allowed) in [
            (After::Works, &[(0, 2)][..]),
            (After::WorksAgain, &[(0, 2), (1, 1), (1, 2)]),
            (After::Fails, &[(1, 1), (2, 0), (1, 0), (2, 1)]),
            (After::FailsOrEnds, &[(0, 2), (1, 1), (2, 0), (1, 0), (2, 1)]),
        ] {
            let got: Vec<_> = all.into_iter().filter(|(errors, done)| after.allows(*errors, *done)).collect();
            assert_eq!(got, allowed, "{after:?}");
        }
    }

    #[test]
    fn a_report_is_held_to_its_walk() {
        let faults = Faults::new("test", "sum", Launcher::new());
        let walk = Walk {
            fault: "alloc:N",
            counts: &["allocations"],
            next: each,
            after: After::WorksAgain,
            wanted: &["memory", "bytes"],
        };
        let check = |faults: &Faults, stdout| faults.check(&walk, &report(stdout), "3");
        assert_eq!(check(&faults, "sum: 3\nsum: 3\n"), Ok(0));
        assert_eq!(check(&faults, "error: no 5 bytes of memory\nsum: 3\n"), Ok(1));
        assert!(check(&faults, "error: no memory\nsum: 3\n").unwrap_err().contains("without"));
        assert!(check(&faults, "sum: 3\nsum: 4\n").unwrap_err().contains("and not 3"));
        assert!(check(&faults, "sum: 3\n").unwrap_err().contains("WorksAgain"));
        let picky = faults.also(|report| report.values("held").next().map(drop).ok_or("nothing held".into()));
        assert_eq!(check(&picky, "sum: 3\nsum: 3\n"), Err("nothing held".into()));
    }

    #[test]
    fn steps_are_each_call_or_ever_wider() {
        let walk = |next: fn(u64) -> u64| {
            std::iter::successors(Some(1), |at| Some(next(*at))).take_while(|at| *at <= 40).count()
        };
        assert_eq!((walk(each), walk(wider)), (40, 26));
    }
}
