//! What each task is ordered behind, for the detector of races.
//!
//! Kept apart from the tasks themselves, for two reasons: a task that is done is forgotten there, but its edges still order
//! what comes later; and nobody pays for it unless races are looked for. Edges are those the program asked for (streams,
//! events, graphs, waits of the host), never those this run happened to take.

use std::collections::HashMap;

use super::copy::{Copy, Side};
use super::task::TaskId;
use super::work::{Native, Reach, Work};
use crate::check::races::{Known, Moment, Races};
use crate::fault::Fault;
use crate::memory::Memory;

/// One task's place among the others.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) moment: Moment,
    /// What has ended when it begins.
    pub(crate) known: Known,
    /// What has ended after its `griddepcontrol.wait`.
    pub(crate) known_after_wait: Known,
}

/// The places of all tasks since the machine was switched on.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    tasks: HashMap<TaskId, Order>,
    /// The last task of each chain.
    tails: Vec<TaskId>,
    /// What the host waited for; all that it queues from then on comes after.
    host: Known,
}

impl Orders {
    /// A task was queued behind `before`, of which `primary` may still run when it begins.
    pub(crate) fn add(&mut self, id: TaskId, before: &[TaskId], primary: Option<TaskId>) {
        let mut known = self.host.clone();
        let mut known_after_wait = self.host.clone();
        for one in before {
            if let Some(order) = self.tasks.get(one) {
                known_after_wait.join(&order.known_after_wait);
                known_after_wait.add(order.moment);
                if primary == Some(*one) {
                    known.join(&order.known);
                } else {
                    known.join(&order.known_after_wait);
                    known.add(order.moment);
                }
            }
        }
        let chain = self.tails.iter().position(|tail| before.contains(tail)).unwrap_or_else(|| {
            self.tails.push(id);
            self.tails.len() - 1
        });
        if let Some(tail) = self.tails.get_mut(chain) {
            *tail = id;
        }
        let moment = Moment { chain: u32::try_from(chain).unwrap_or(u32::MAX), count: id };
        self.tasks.insert(id, Order { moment, known, known_after_wait });
    }

    /// The host waited for these tasks.
    pub(crate) fn seen_by_host(&mut self, tasks: &[TaskId]) {
        for order in tasks.iter().filter_map(|id| self.tasks.get(id)) {
            self.host.join(&order.known_after_wait);
            self.host.add(order.moment);
        }
    }

    /// The place of a task.
    pub(crate) fn of(&self, id: TaskId) -> Option<&Order> {
        self.tasks.get(&id)
    }
}

/// Tells the detector what work touches, other than a kernel or a library's computation: those tell as they go.
///
/// # Errors
/// The race that was found.
pub(super) fn transfer(races: &Races, order: &Order, work: &Work) -> Result<(), Fault> {
    let whole = |label: &str, parts: &mut dyn Iterator<Item = (u64, u64, bool)>| {
        let transfer = races.transfer(label, order.moment, &order.known);
        for (address, bytes, writes) in parts {
            transfer.touch(address, bytes, writes).map_err(|fault| *fault)?;
        }
        Ok(())
    };
    match work {
        Work::Copy(copy) => {
            whole(&format!("a copy of {} bytes", copy.extent.bytes()), &mut rows(copy).into_iter())
        }
        Work::Fill(fill) => {
            let bytes = fill.columns.saturating_mul(u64::from(fill.size));
            let label = format!("a memset of {} bytes", bytes.saturating_mul(fill.rows));
            let row = |row: u64| (fill.address.wrapping_add(row.wrapping_mul(fill.pitch)), bytes, true);
            whole(&label, &mut (0..fill.rows).map(row))
        }
        Work::Free(address) => {
            let whole_allocation = (*address, races.length(*address), true);
            whole("a free in stream order", &mut std::iter::once(whole_allocation))
        }
        _ => Ok(()),
    }
}

/// Runs a library's computation, telling the detector of what it touches if there is one.
///
/// # Errors
/// What went wrong; the race that was found.
pub(super) fn native(memory: &Memory, native: &Native, watch: Option<(&Races, &Order)>) -> Result<(), Fault> {
    let Some((races, order)) = watch else {
        return (native.run)(&Reach { memory, told: &|_, _, _| Ok(()) });
    };
    let transfer = races.transfer(native.name, order.moment, &order.known);
    let told = |address, bytes, writes| transfer.touch(address, bytes, writes).map_err(|fault| *fault);
    (native.run)(&Reach { memory, told: &told })
}

/// The bytes of device memory that a copy reads and writes, row by row.
fn rows(copy: &Copy) -> Vec<(u64, u64, bool)> {
    let mut rows = Vec::new();
    for (side, pitch, writes) in [(&copy.from, copy.from_pitch, false), (&copy.to, copy.to_pitch, true)] {
        let Side::Device(address) = side else { continue };
        for layer in 0..copy.extent.depth {
            for row in 0..copy.extent.height {
                let offset = layer.wrapping_mul(pitch.layer).wrapping_add(row.wrapping_mul(pitch.row));
                rows.push((address.wrapping_add(offset), copy.extent.width, writes));
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether `later` comes after all of `earlier`.
    fn after(orders: &Orders, later: TaskId, earlier: TaskId) -> bool {
        orders.of(later).unwrap().known.has(orders.of(earlier).unwrap().moment)
    }

    #[test]
    fn a_stream_is_one_chain_and_an_event_joins_two() {
        let mut orders = Orders::default();
        orders.add(1, &[], None);
        orders.add(2, &[1], None);
        orders.add(3, &[], None);
        orders.add(4, &[3], None);
        assert!(after(&orders, 2, 1) && !after(&orders, 4, 1) && !after(&orders, 3, 2));
        orders.add(5, &[4, 2], None);
        assert!((1..5).all(|earlier| after(&orders, 5, earlier)));
        assert_eq!(orders.tails.len(), 2);
    }

    #[test]
    fn a_fork_makes_a_chain_and_its_branches_are_not_ordered() {
        let mut orders = Orders::default();
        orders.add(1, &[], None);
        orders.add(2, &[1], None);
        orders.add(3, &[1], None);
        assert!(
            after(&orders, 2, 1) && after(&orders, 3, 1) && !after(&orders, 3, 2) && !after(&orders, 2, 3)
        );
        orders.add(4, &[2, 3], None);
        assert!(after(&orders, 4, 2) && after(&orders, 4, 3));
    }

    #[test]
    fn what_the_host_waited_for_comes_before_what_it_queues() {
        let mut orders = Orders::default();
        orders.add(1, &[], None);
        orders.add(2, &[], None);
        orders.seen_by_host(&[1]);
        orders.add(3, &[], None);
        assert!(after(&orders, 3, 1) && !after(&orders, 3, 2));
    }

    #[test]
    fn a_dependent_launch_comes_after_its_primary_at_the_wait_only() {
        let mut orders = Orders::default();
        orders.add(1, &[], None);
        orders.add(2, &[1], None);
        orders.add(3, &[2], Some(2));
        let primary = orders.of(2).unwrap().moment;
        assert!(after(&orders, 3, 1) && !after(&orders, 3, 2));
        assert!(orders.of(3).unwrap().known_after_wait.has(primary));
        orders.add(4, &[3], None);
        assert!(after(&orders, 4, 3) && after(&orders, 4, 2));
    }
}
