//! Copies.
#![allow(unsafe_code)]

use std::ffi::c_uint;

use super::entry::{In, api, current, stream};
use super::types::{Copy2, Copy3, Side2, Side3};
use crate::runtime::{Code, Context, Machine, Place3, Result, Transfer};

/// Copies in a stream; with `wait`, returns when it is done.
fn copy(m: &Machine, handle: u64, transfer: &Transfer, wait: bool) -> Result<()> {
    // SAFETY: the caller of the C interface promises that host memory is there, until the stream has done the copy.
    unsafe { m.transfer(current()?, stream(handle), transfer, wait) }
}

const HOST: c_uint = 1;
const DEVICE: c_uint = 2;
const UNIFIED: c_uint = 4;

/// The address a side means and whether it must be the device's.
fn address(kind: c_uint, host: u64, device: u64, array: u64) -> Result<(u64, bool)> {
    match kind {
        HOST => Ok((host, false)),
        DEVICE => Ok((device, true)),
        UNIFIED => Ok((device, false)),
        _ => Code::NOT_SUPPORTED.error(format!("copying arrays ({array:#x}) is not emulated")),
    }
}

fn beyond<T>() -> Result<T> {
    Code::INVALID_VALUE.error("copying beyond all addresses")
}

fn side2(side: &Side2) -> Result<(Place3, bool)> {
    let (base, device) = address(side.kind, side.host, side.device, side.array)?;
    let offset = side.y.checked_mul(side.pitch).and_then(|rows| rows.checked_add(side.x));
    match offset.and_then(|offset| base.checked_add(offset as u64)) {
        Some(address) => Ok((Place3 { address, pitch: side.pitch as u64, height: 0 }, device)),
        None => beyond(),
    }
}

fn side3(side: &Side3) -> Result<(Place3, bool)> {
    let (base, device) = address(side.kind, side.host, side.device, side.array)?;
    let rows = side.z.checked_mul(side.height).and_then(|rows| rows.checked_add(side.y));
    let offset =
        rows.and_then(|rows| rows.checked_mul(side.pitch)).and_then(|bytes| bytes.checked_add(side.x));
    match offset.and_then(|offset| base.checked_add(offset as u64)) {
        Some(address) => {
            Ok((Place3 { address, pitch: side.pitch as u64, height: side.height as u64 }, device))
        }
        None => beyond(),
    }
}

fn two(given: &Copy2) -> Result<Transfer> {
    let ((from, from_device), (to, to_device)) = (side2(&given.from)?, side2(&given.to)?);
    Ok(Transfer { to, from, to_device, from_device, extent: [given.width as u64, given.height as u64, 1] })
}

/// A copy in three dimensions.
pub(super) fn three(given: &Copy3) -> Result<Transfer> {
    let ((from, from_device), (to, to_device)) = (side3(&given.from)?, side3(&given.to)?);
    let extent = [given.width as u64, given.height as u64, given.depth as u64];
    Ok(Transfer { to, from, to_device, from_device, extent })
}

fn up(to: u64, from: u64, bytes: usize) -> Transfer {
    Transfer::line(to, true, from, false, bytes as u64)
}

fn down(to: u64, from: u64, bytes: usize) -> Transfer {
    Transfer::line(to, false, from, true, bytes as u64)
}

fn within(to: u64, from: u64, bytes: usize) -> Transfer {
    Transfer::line(to, true, from, true, bytes as u64)
}

fn any(to: u64, from: u64, bytes: usize) -> Transfer {
    Transfer::line(to, false, from, false, bytes as u64)
}

api! {
    fn cuMemcpyHtoD_v2 | cuMemcpyHtoD_v2_ptds(m, to: u64, from: u64, bytes: usize) { copy(m, 0, &up(to, from, bytes), true) }

    fn cuMemcpyHtoDAsync_v2 | cuMemcpyHtoDAsync_v2_ptsz(m, to: u64, from: u64, bytes: usize, handle: u64) {
        copy(m, handle, &up(to, from, bytes), false)
    }

    fn cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds(m, to: u64, from: u64, bytes: usize) { copy(m, 0, &down(to, from, bytes), true) }

    fn cuMemcpyDtoHAsync_v2 | cuMemcpyDtoHAsync_v2_ptsz(m, to: u64, from: u64, bytes: usize, handle: u64) {
        copy(m, handle, &down(to, from, bytes), false)
    }

    fn cuMemcpyDtoD_v2 | cuMemcpyDtoD_v2_ptds(m, to: u64, from: u64, bytes: usize) { copy(m, 0, &within(to, from, bytes), true) }

    fn cuMemcpyDtoDAsync_v2 | cuMemcpyDtoDAsync_v2_ptsz(m, to: u64, from: u64, bytes: usize, handle: u64) {
        copy(m, handle, &within(to, from, bytes), false)
    }

    fn cuMemcpy | cuMemcpy_ptds(m, to: u64, from: u64, bytes: usize) { copy(m, 0, &any(to, from, bytes), true) }

    fn cuMemcpyAsync | cuMemcpyAsync_ptsz(m, to: u64, from: u64, bytes: usize, handle: u64) {
        copy(m, handle, &any(to, from, bytes), false)
    }

    fn cuMemcpyPeer | cuMemcpyPeer_ptds(m, to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize) {
        m.check_memory_of(Context(to_context), to)?;
        m.check_memory_of(Context(from_context), from)?;
        copy(m, 0, &within(to, from, bytes), true)
    }

    fn cuMemcpyPeerAsync | cuMemcpyPeerAsync_ptsz(m, to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize, handle: u64) {
        m.check_memory_of(Context(to_context), to)?;
        m.check_memory_of(Context(from_context), from)?;
        copy(m, handle, &within(to, from, bytes), false)
    }

    fn cuMemcpy2D_v2 | cuMemcpy2D_v2_ptds(m, given: In<Copy2>) { copy(m, 0, &two(&given.get()?)?, true) }

    fn cuMemcpy2DUnaligned_v2 | cuMemcpy2DUnaligned_v2_ptds(m, given: In<Copy2>) { copy(m, 0, &two(&given.get()?)?, true) }

    fn cuMemcpy2DAsync_v2 | cuMemcpy2DAsync_v2_ptsz(m, given: In<Copy2>, handle: u64) { copy(m, handle, &two(&given.get()?)?, false) }

    fn cuMemcpy3D_v2 | cuMemcpy3D_v2_ptds(m, given: In<Copy3>) { copy(m, 0, &three(&given.get()?)?, true) }

    fn cuMemcpy3DAsync_v2 | cuMemcpy3DAsync_v2_ptsz(m, given: In<Copy3>, handle: u64) { copy(m, handle, &three(&given.get()?)?, false) }

    fn cuMemcpy3DPeer | cuMemcpy3DPeer_ptds(m, given: In<Copy3>) { copy(m, 0, &three(&given.get()?)?, true) }

    fn cuMemcpy3DPeerAsync | cuMemcpy3DPeerAsync_ptsz(m, given: In<Copy3>, handle: u64) { copy(m, handle, &three(&given.get()?)?, false) }
}
