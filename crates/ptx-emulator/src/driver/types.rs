//! Structures of the C interface, as `cuda.h` lays them out.
#![allow(missing_docs)]

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchConfigC {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared: c_uint,
    pub(crate) stream: u64,
    pub(crate) attributes: *const LaunchAttribute,
    pub(crate) count: c_uint,
}

/// `CUlaunchAttribute`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchAttribute {
    pub(crate) id: c_int,
    pub(crate) pad: [c_char; 4],
    /// The union; what we read of it are its first words.
    pub(crate) value: [c_uint; 16],
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`; version 1 lacks the last two.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelNodeParams {
    pub(crate) function: u64,
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared: c_uint,
    pub(crate) params: *const *const c_void,
    pub(crate) extra: *const *const c_void,
    pub(crate) kernel: u64,
    pub(crate) context: u64,
}

/// `CUDA_KERNEL_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelNodeParams1 {
    pub(crate) function: u64,
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared: c_uint,
    pub(crate) params: *const *const c_void,
    pub(crate) extra: *const *const c_void,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy2 {
    pub(crate) from: Side2,
    pub(crate) to: Side2,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// One side of [`Copy2`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side2 {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) kind: c_uint,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: u64,
    pub(crate) pitch: usize,
}

/// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`, which differ in the meaning of a reserved pointer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy3 {
    pub(crate) from: Side3,
    pub(crate) to: Side3,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// One side of [`Copy3`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side3 {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) z: usize,
    pub(crate) level: usize,
    pub(crate) kind: c_uint,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: u64,
    pub(crate) context: u64,
    pub(crate) pitch: usize,
    pub(crate) height: usize,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemsetNodeParams {
    pub(crate) to: u64,
    pub(crate) pitch: usize,
    pub(crate) value: c_uint,
    pub(crate) size: c_uint,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostNodeParams {
    pub(crate) function: Option<extern "C" fn(*mut c_void)>,
    pub(crate) data: *mut c_void,
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Location {
    pub(crate) kind: c_int,
    pub(crate) id: c_int,
}

/// `CUmemPoolProps`, up to what we read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolProps {
    pub(crate) alloc_type: c_int,
    pub(crate) handle_types: c_int,
    pub(crate) location: Location,
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpdateResult {
    pub(crate) result: c_int,
    pub(crate) node: u64,
    pub(crate) from: u64,
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct InstantiateParams {
    pub(crate) flags: u64,
    pub(crate) stream: u64,
    pub(crate) error_node: u64,
    pub(crate) result: c_int,
}
