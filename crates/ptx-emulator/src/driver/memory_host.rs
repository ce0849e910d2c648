//! Pinned host memory.
#![allow(unsafe_code)]

use std::ffi::{c_uint, c_void};

use super::entry::{Out, api, current};
use crate::runtime::Code;

/// Portable, mapped, write-combined.
const ALLOC_FLAGS: c_uint = 7;
/// Portable, mapped, I/O memory, read-only.
const REGISTER_FLAGS: c_uint = 15;

api! {
    fn cuMemHostAlloc(m, address: Out<u64>, bytes: usize, flags: c_uint) {
        if flags & !ALLOC_FLAGS != 0 {
            return Code::INVALID_VALUE.error(format!("flags {flags:#x}"));
        }
        address.set(m.allocate_host(current()?, bytes as u64, flags)?)
    }

    fn cuMemAllocHost_v2(m, address: Out<u64>, bytes: usize) { address.set(m.allocate_host(current()?, bytes as u64, 0)?) }

    fn cuMemFreeHost(m, address: u64) { m.free_host(address) }

    fn cuMemHostRegister_v2(m, start: *mut c_void, bytes: usize, flags: c_uint) {
        if flags & !REGISTER_FLAGS != 0 {
            return Code::INVALID_VALUE.error(format!("flags {flags:#x}"));
        }
        // SAFETY: the caller of the C interface promises to keep the memory until it is unregistered.
        unsafe { m.register_host(current()?, start.cast(), bytes as u64, flags) }
    }

    fn cuMemHostUnregister(m, start: u64) { m.unregister_host(start) }

    fn cuMemHostGetDevicePointer_v2(m, address: Out<u64>, host: u64, flags: c_uint) {
        let found = m.pointer(host)?;
        if flags != 0 || !found.pinned {
            return Code::INVALID_VALUE.error(format!("{host:#x} is no pinned memory, or flags {flags:#x}"));
        }
        address.set(host)
    }

    fn cuMemHostGetFlags(m, flags: Out<c_uint>, host: u64) { flags.set(m.host_flags(host)?) }
}
