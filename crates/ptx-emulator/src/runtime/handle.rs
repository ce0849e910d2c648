//! Names for what the machine keeps: numbers that are looked up, never addresses.
//!
//! A program that uses a stream after destroying it, or an event as a stream, gets an error and not a crash: handles are not used
//! twice in a process's life.

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);
    )*};
}

handles! {
    /// A context (`CUcontext`).
    Context;
    /// A stream (`CUstream`).
    Stream;
    /// An event (`CUevent`).
    Event;
    /// A loaded module (`CUmodule`, `CUlibrary`).
    Module;
    /// A kernel of a module (`CUfunction`, `CUkernel`).
    Function;
    /// A graph (`CUgraph`).
    Graph;
    /// A node of a graph (`CUgraphNode`).
    Node;
    /// An instantiated graph (`CUgraphExec`).
    Exec;
    /// A memory pool (`CUmemoryPool`).
    Pool;
}

impl Stream {
    /// The context's default stream, which waits for all blocking streams and they for it.
    pub const DEFAULT: Self = Self(0);
    /// The same by its other name (`CU_STREAM_LEGACY`).
    pub const LEGACY: Self = Self(1);
    /// The default stream of the calling thread (`CU_STREAM_PER_THREAD`).
    pub const PER_THREAD: Self = Self(2);
}
