//! Device memory.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint};

use super::entry::{Out, api, current, stream};
use super::types::Location;
use crate::runtime::{Code, Pool};

api! {
    fn cuMemAlloc_v2(m, address: Out<u64>, bytes: usize) { address.set(m.allocate(current()?, bytes as u64)?) }

    fn cuMemAllocPitch_v2(m, address: Out<u64>, pitch: Out<usize>, width: usize, height: usize, _element: c_uint) {
        let row = width.max(1).next_multiple_of(512);
        let Some(bytes) = row.checked_mul(height) else {
            return Code::INVALID_VALUE.error(format!("{height} rows of {width} bytes"));
        };
        pitch.set(row)?;
        address.set(m.allocate(current()?, bytes as u64)?)
    }

    fn cuMemFree_v2(m, address: u64) { m.free(current()?, address) }

    fn cuMemGetInfo_v2(m, free: Out<usize>, total: Out<usize>) {
        let (left, all) = m.memory_info(current()?)?;
        free.offer(left.min(m.settings().integrated.unwrap_or(u64::MAX)) as usize);
        total.offer(all as usize);
        Ok(())
    }

    fn cuMemAllocAsync | cuMemAllocAsync_ptsz(m, address: Out<u64>, bytes: usize, handle: u64) {
        address.set(m.allocate_async(current()?, bytes as u64, None, stream(handle))?)
    }

    fn cuMemAllocFromPoolAsync | cuMemAllocFromPoolAsync_ptsz(m, address: Out<u64>, bytes: usize, pool: u64, handle: u64) {
        address.set(m.allocate_async(current()?, bytes as u64, Some(Pool(pool)), stream(handle))?)
    }

    fn cuMemFreeAsync | cuMemFreeAsync_ptsz(m, address: u64, handle: u64) { m.free_async(current()?, address, stream(handle)) }

    fn cuMemAllocManaged(m, _address: Out<u64>, _bytes: usize, _flags: c_uint) {
        m.check_context(current()?)?;
        Code::NOT_SUPPORTED.error("managed memory is not emulated")
    }

    fn cuMemAdvise(m, _address: u64, _bytes: usize, _advice: c_int, _device: c_int) {
        m.check_context(current()?)?;
        Code::INVALID_VALUE.error("advice is for managed memory, which is not emulated")
    }

    fn cuMemAdvise_v2(m, _address: u64, _bytes: usize, _advice: c_int, _location: Location) {
        m.check_context(current()?)?;
        Code::INVALID_VALUE.error("advice is for managed memory, which is not emulated")
    }

    fn cuMemPrefetchAsync | cuMemPrefetchAsync_ptsz(m, _address: u64, _bytes: usize, _device: c_int, _handle: u64) {
        m.check_context(current()?)?;
        Code::INVALID_VALUE.error("prefetching is for managed memory, which is not emulated")
    }

    fn cuMemPrefetchAsync_v2 | cuMemPrefetchAsync_v2_ptsz(m, _address: u64, _bytes: usize, _location: Location, _flags: c_uint, _handle: u64) {
        m.check_context(current()?)?;
        Code::INVALID_VALUE.error("prefetching is for managed memory, which is not emulated")
    }
}
