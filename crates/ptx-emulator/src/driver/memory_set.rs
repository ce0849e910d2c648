//! Fills.
#![allow(unsafe_code)]

use super::entry::{api, current, stream};

api! {
    fn cuMemsetD8_v2 | cuMemsetD8_v2_ptds(m, to: u64, value: u8, count: usize) {
        m.fill(current()?, stream(0), to, 0, (u32::from(value), 1), count as u64, 1)
    }

    fn cuMemsetD8Async | cuMemsetD8Async_ptsz(m, to: u64, value: u8, count: usize, handle: u64) {
        m.fill(current()?, stream(handle), to, 0, (u32::from(value), 1), count as u64, 1)
    }

    fn cuMemsetD2D8_v2 | cuMemsetD2D8_v2_ptds(m, to: u64, pitch: usize, value: u8, width: usize, height: usize) {
        m.fill(current()?, stream(0), to, pitch as u64, (u32::from(value), 1), width as u64, height as u64)
    }

    fn cuMemsetD2D8Async | cuMemsetD2D8Async_ptsz(m, to: u64, pitch: usize, value: u8, width: usize, height: usize, handle: u64) {
        m.fill(current()?, stream(handle), to, pitch as u64, (u32::from(value), 1), width as u64, height as u64)
    }

    fn cuMemsetD16_v2 | cuMemsetD16_v2_ptds(m, to: u64, value: u16, count: usize) {
        m.fill(current()?, stream(0), to, 0, (u32::from(value), 2), count as u64, 1)
    }

    fn cuMemsetD16Async | cuMemsetD16Async_ptsz(m, to: u64, value: u16, count: usize, handle: u64) {
        m.fill(current()?, stream(handle), to, 0, (u32::from(value), 2), count as u64, 1)
    }

    fn cuMemsetD2D16_v2 | cuMemsetD2D16_v2_ptds(m, to: u64, pitch: usize, value: u16, width: usize, height: usize) {
        m.fill(current()?, stream(0), to, pitch as u64, (u32::from(value), 2), width as u64, height as u64)
    }

    fn cuMemsetD2D16Async | cuMemsetD2D16Async_ptsz(m, to: u64, pitch: usize, value: u16, width: usize, height: usize, handle: u64) {
        m.fill(current()?, stream(handle), to, pitch as u64, (u32::from(value), 2), width as u64, height as u64)
    }

    fn cuMemsetD32_v2 | cuMemsetD32_v2_ptds(m, to: u64, value: u32, count: usize) {
        m.fill(current()?, stream(0), to, 0, (value, 4), count as u64, 1)
    }

    fn cuMemsetD32Async | cuMemsetD32Async_ptsz(m, to: u64, value: u32, count: usize, handle: u64) {
        m.fill(current()?, stream(handle), to, 0, (value, 4), count as u64, 1)
    }

    fn cuMemsetD2D32_v2 | cuMemsetD2D32_v2_ptds(m, to: u64, pitch: usize, value: u32, width: usize, height: usize) {
        m.fill(current()?, stream(0), to, pitch as u64, (value, 4), width as u64, height as u64)
    }

    fn cuMemsetD2D32Async | cuMemsetD2D32Async_ptsz(m, to: u64, pitch: usize, value: u32, width: usize, height: usize, handle: u64) {
        m.fill(current()?, stream(handle), to, pitch as u64, (value, 4), width as u64, height as u64)
    }
}
