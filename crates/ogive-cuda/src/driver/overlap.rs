//! Launches that overlap: a kernel's blocks take their places while the one before still runs, and wait there for what it writes
//! ("programmatic dependent launch").
//!
//! Looked up when the driver is opened, as an older one has no such call. Asked for from CUDA 12.3 on: before that, a stream that is
//! recorded does not keep what this says.
#![allow(unsafe_code)]

use super::{CUfunction, Extent, Function, Stream};
use crate::error::Result;
use cudarc::driver::sys::{CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig};
use libloading::Library;
use std::ffi::c_void;
use std::ptr::null_mut;

/// `cuLaunchKernelEx`.
pub(super) type Launch =
    unsafe extern "C" fn(*const CUlaunchConfig, CUfunction, *mut *mut c_void, *mut *mut c_void) -> u32;

/// The call, if the driver has it.
pub(super) fn launch(library: &Library) -> Option<Launch> {
    // SAFETY: the type is the one that NVIDIA's driver API documents for this symbol, and whoever keeps it keeps the library open.
    unsafe { library.get::<Launch>(b"cuLaunchKernelEx\0").ok().map(|f| *f) }
}

impl Stream {
    /// Whether launches can overlap, also in what is recorded.
    pub(crate) fn can_overlap(&self) -> bool {
        self.context.driver.f.overlap.is_some() && self.context.driver.version >= (12, 3)
    }

    /// Queues a kernel that begins with `griddepcontrol.wait`, to start before the one before it is done. `arguments` as for `launch`.
    pub(crate) fn launch_overlapping(
        &self,
        kernel: &Function,
        doing: &str,
        e: Extent,
        arguments: &mut [[u64; 2]],
    ) -> Result<()> {
        let described = || format!("{doing}: launching {} of {} {e}", kernel.name, kernel.image.what);
        let Some(launch) = self.context.enter(described)?.overlap else {
            return self.launch(kernel, doing, e, arguments);
        };
        let mut pointers: Vec<*mut c_void> = arguments.iter_mut().map(|a| (&raw mut *a).cast()).collect();
        let mut attribute = CUlaunchAttribute {
            id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: CUlaunchAttributeValue { pad: [0; 64] },
        };
        attribute.value.programmaticStreamSerializationAllowed = 1;
        let config = CUlaunchConfig {
            gridDimX: e.grid[0],
            gridDimY: e.grid[1],
            gridDimZ: e.grid[2],
            blockDimX: e.block[0],
            blockDimY: e.block[1],
            blockDimZ: e.block[2],
            sharedMemBytes: e.shared,
            hStream: self.raw,
            attrs: &raw mut attribute,
            numAttrs: 1,
        };
        // SAFETY: the configuration and its one attribute live through the call; arguments as for `launch`.
        let code = unsafe { launch(&raw const config, kernel.raw, pointers.as_mut_ptr(), null_mut()) };
        self.context.recent.kernel(kernel.name, &kernel.image.what, e);
        self.context.check(described, code)
    }
}
