//! What happened so far, in numbers: so that a test can say "one upload and one download a step, and no other wait".

/// Counts since the machine was switched on or the counts were taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Allocations of device memory.
    pub allocations: u64,
    /// The most bytes of device memory that were allocated at a time, on all devices together.
    pub most_bytes: u64,
    /// Allocations of pinned memory.
    pub host_allocations: u64,
    /// Copies from the host to a device, as queued; those in graphs count with each launch of the graph.
    pub uploads: u64,
    /// Bytes of them.
    pub upload_bytes: u64,
    /// Copies from a device to the host.
    pub downloads: u64,
    /// Bytes of them.
    pub download_bytes: u64,
    /// Copies to and from host memory that is not pinned.
    pub pageable_copies: u64,
    /// Copies within and between devices.
    pub device_copies: u64,
    /// Of these, those between devices.
    pub peer_copies: u64,
    /// Fills.
    pub fills: u64,
    /// Kernels launched, those of graphs included.
    pub launches: u64,
    /// Library calls that compute (GEMMs).
    pub library_calls: u64,
    /// Calls of cuBLAS, those that only set something included.
    pub cublas_calls: u64,
    /// Graphs launched.
    pub graph_launches: u64,
    /// Graphs instantiated.
    pub graph_instantiations: u64,
    /// Times the host waited for the device: synchronisations of streams, events and contexts, synchronous copies and frees.
    pub host_waits: u64,
    /// Of these, how often there was something to wait for.
    pub host_blocked: u64,
    /// Modules loaded.
    pub modules: u64,
    /// Calls of the driver interface.
    pub calls: u64,
    /// Tasks that ran.
    pub tasks: u64,
}
