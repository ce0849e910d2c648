//! What came of a run.

use std::fmt;
use std::time::Duration;

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Every check held.
    Passed,
    /// What went wrong, a line for each check that did not hold.
    Failed(Vec<String>),
    /// Not run, and why.
    Skipped(String),
}

/// What came of one case.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The case.
    pub name: String,
    /// How it ended.
    pub status: Status,
    /// Comparisons and refusals checked.
    pub checks: usize,
    /// The worst error as a fraction of what is allowed: above 1 is a failure. 0 where every bit agreed.
    pub worst: f64,
    /// The check the worst error was in.
    pub worst_at: String,
    /// Time taken.
    pub time: Duration,
}

/// What came of all cases. Prints as a table.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The backend, as its facts name it.
    pub backend: String,
    /// The seed of all random inputs.
    pub seed: u64,
    /// A line for each case.
    pub outcomes: Vec<Outcome>,
}

impl Report {
    /// The cases that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|o| matches!(o.status, Status::Failed(_)))
    }
    /// The cases that were not run.
    pub fn skipped(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|o| matches!(o.status, Status::Skipped(_)))
    }
    /// Whether there were cases and none failed.
    pub fn passed(&self) -> bool {
        !self.outcomes.is_empty() && self.failures().next().is_none()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.outcomes.iter().map(|o| o.name.len()).max().unwrap_or(0);
        for o in &self.outcomes {
            let (mark, lines) = match &o.status {
                Status::Passed => ("ok    ", &[][..]),
                Status::Failed(why) => ("FAILED", &why[..]),
                Status::Skipped(why) => {
                    writeln!(f, "skip    {:width$}  {why}", o.name)?;
                    continue;
                }
            };
            let worst = match &o.worst_at {
                at if o.worst > 0.0 => format!("{:8.3} of the limit at {at}", o.worst),
                _ => String::new(),
            };
            writeln!(
                f,
                "{mark}  {:width$}  {:4} checks {:5} ms {worst}",
                o.name,
                o.checks,
                o.time.as_millis()
            )?;
            for line in lines {
                writeln!(f, "        {line}")?;
            }
        }
        let (failed, skipped) = (self.failures().count(), self.skipped().count());
        write!(
            f,
            "{}: {} passed, {failed} failed, {skipped} skipped, seed {}",
            self.backend,
            self.outcomes.len() - failed - skipped,
            self.seed
        )
    }
}
