//! Queued work: a graph of tasks, of which some are ready.
//!
//! There are no queues. A stream is the set of tasks that its next task must wait for, an event is such a set frozen, a graph launch
//! adds its nodes as they stand: one rule (a task runs when those before it are done) covers streams, events, graphs and the default
//! stream, and every order it leaves open is one that a GPU may take.

use std::collections::HashMap;

use super::handle::Context;
use super::order::Orders;
use super::work::Work;

/// Counts tasks in the order in which they were queued; not used twice.
pub(crate) type TaskId = u64;

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Waiting or ready.
    Queued,
    /// A dependent launch that may run up to its wait.
    Early,
    /// A dependent launch that stands at its wait.
    Parked,
}

/// One task.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) context: Context,
    /// `None` while it runs.
    pub(crate) work: Option<Work>,
    pub(crate) stage: Stage,
    /// What must be done first and is not.
    pub(crate) before: Vec<TaskId>,
    /// Who waits for this one.
    pub(crate) after: Vec<TaskId>,
    /// Launches that may begin when this one releases its dependents.
    pub(crate) secondaries: Vec<TaskId>,
}

/// All tasks that are not done.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    all: HashMap<TaskId, Task>,
    ready: Vec<TaskId>,
    last: TaskId,
    /// Where races are looked for.
    pub(crate) orders: Option<Orders>,
}

impl Tasks {
    /// Queues work behind `before` (of which some may be done: they need not be waited for, but they do come before).
    pub(crate) fn add(
        &mut self,
        context: Context,
        work: Work,
        before: impl IntoIterator<Item = TaskId>,
        primary: Option<TaskId>,
    ) -> TaskId {
        self.last += 1;
        let id = self.last;
        let before: Vec<TaskId> = before.into_iter().collect();
        let mut waits: Vec<TaskId> = Vec::new();
        if let Some(orders) = &mut self.orders {
            orders.add(id, &before, primary);
        }
        for one in before {
            if !waits.contains(&one)
                && let Some(task) = self.all.get_mut(&one)
            {
                task.after.push(id);
                waits.push(one);
            }
        }
        let primary = primary.filter(|primary| waits.contains(primary));
        if let Some(task) = primary.and_then(|primary| self.all.get_mut(&primary)) {
            task.secondaries.push(id);
        }
        if waits.is_empty() {
            self.ready.push(id);
        }
        let task = Task {
            context,
            work: Some(work),
            stage: Stage::Queued,
            before: waits,
            after: Vec::new(),
            secondaries: Vec::new(),
        };
        self.all.insert(id, task);
        id
    }

    /// Whether a task is done (or was never there).
    pub(crate) fn is_done(&self, id: TaskId) -> bool {
        !self.all.contains_key(&id)
    }

    /// A task that is not done.
    pub(crate) fn get(&self, id: TaskId) -> Option<&Task> {
        self.all.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.all.get_mut(&id)
    }

    /// The tasks that can run now, in no particular order.
    pub(crate) fn ready(&self) -> &[TaskId] {
        &self.ready
    }

    /// How many are not done.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Those of which `wanted` holds.
    pub(crate) fn which(&self, wanted: impl Fn(&Task) -> bool) -> Vec<TaskId> {
        let mut found: Vec<TaskId> =
            self.all.iter().filter(|(_, task)| wanted(task)).map(|(id, _)| *id).collect();
        found.sort_unstable();
        found
    }

    /// A task is done: those that waited for it alone become ready.
    pub(crate) fn finish(&mut self, id: TaskId) {
        self.ready.retain(|ready| *ready != id);
        let Some(task) = self.all.remove(&id) else { return };
        for after in task.after {
            let Some(waiting) = self.all.get_mut(&after) else { continue };
            waiting.before.retain(|before| *before != id);
            if waiting.before.is_empty() {
                // Also where it could have begun early and did not yet: now nothing holds it.
                waiting.stage = Stage::Queued;
                if !self.ready.contains(&after) {
                    self.ready.push(after);
                }
            }
        }
    }

    /// A launch released its dependents: those that wait for nothing else may begin.
    pub(crate) fn release(&mut self, id: TaskId) {
        let Some(task) = self.all.get_mut(&id) else { return };
        for secondary in std::mem::take(&mut task.secondaries) {
            let Some(waiting) = self.all.get_mut(&secondary) else { continue };
            if waiting.before == [id] && waiting.stage == Stage::Queued {
                waiting.stage = Stage::Early;
                self.ready.push(secondary);
            }
        }
    }

    /// A dependent launch has come to its wait.
    pub(crate) fn park(&mut self, id: TaskId) {
        self.ready.retain(|ready| *ready != id);
        if let Some(task) = self.all.get_mut(&id) {
            task.stage = Stage::Parked;
        }
    }

    /// Whether a launch has dependents that could begin before it ends.
    pub(crate) fn has_secondaries(&self, id: TaskId) -> bool {
        self.all.get(&id).is_some_and(|task| {
            task.secondaries.iter().any(|s| self.all.get(s).is_some_and(|waiting| waiting.before == [id]))
        })
    }

    /// Whether `id` is needed for one of `goals`: the tasks themselves and all that must come before them.
    pub(crate) fn needed(&self, goals: &[TaskId]) -> std::collections::HashSet<TaskId> {
        let mut found = std::collections::HashSet::new();
        let mut open: Vec<TaskId> = goals.to_vec();
        while let Some(id) = open.pop() {
            if let Some(task) = self.all.get(&id)
                && found.insert(id)
            {
                open.extend(&task.before);
            }
        }
        found
    }
}
