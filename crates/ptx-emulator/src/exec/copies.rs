//! Asynchronous copies.

/// Copies a warp has under way (`cp.async`).
#[derive(Debug, Default)]
pub(crate) struct WarpCopies {}

/// Bulk copies a block has under way.
#[derive(Debug, Default)]
pub(crate) struct BlockCopies {}

impl WarpCopies {
    /// A block begins.
    pub(crate) fn reset(&mut self) {}
}

impl BlockCopies {
    /// A block begins.
    pub(crate) fn reset(&mut self) {}
}
