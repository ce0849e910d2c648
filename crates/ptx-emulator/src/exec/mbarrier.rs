//! Mbarriers.

/// The mbarriers of a block, by their offset in shared memory.
#[derive(Debug, Default)]
pub(crate) struct Mbarriers {}

impl Mbarriers {
    /// A block begins.
    pub(crate) fn reset(&mut self) {}
}
