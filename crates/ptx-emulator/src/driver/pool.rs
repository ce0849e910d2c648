//! Memory pools.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use super::device::device;
use super::entry::{In, Out, api};
use super::types::PoolProps;
use crate::runtime::{Code, Pool};

api! {
    fn cuMemPoolCreate(m, pool: Out<u64>, properties: In<PoolProps>) {
        let wanted = properties.get()?;
        // Pinned memory of a device, not shared with other processes.
        if wanted.alloc_type != 1 || wanted.location.kind != 1 {
            return Code::INVALID_VALUE.error(format!("a pool of {wanted:?}; pools are of pinned memory of a device"));
        }
        if wanted.handle_types != 0 {
            return Code::NOT_SUPPORTED.error("pools that are shared between processes are not emulated");
        }
        pool.set(m.create_pool(device(m, wanted.location.id)?.0)?.0)
    }

    fn cuMemPoolDestroy(m, pool: u64) { m.destroy_pool(Pool(pool)) }

    fn cuMemPoolTrimTo(m, pool: u64, keep: usize) { m.trim_pool(Pool(pool), keep as u64) }

    fn cuMemPoolSetAttribute(m, pool: u64, attribute: c_int, value: In<c_void>) {
        let value = if (1..=3).contains(&attribute) {
            u64::from(value.cast::<u32>().get()?)
        } else {
            value.cast::<u64>().get()?
        };
        m.set_pool_attribute(Pool(pool), attribute, value)
    }

    fn cuMemPoolGetAttribute(m, pool: u64, attribute: c_int, value: Out<c_void>) {
        let found = m.pool_attribute(Pool(pool), attribute)?;
        if (1..=3).contains(&attribute) { value.cast::<u32>().set(found as u32) } else { value.cast::<u64>().set(found) }
    }

    fn cuMemPoolSetAccess(m, pool: u64, _access: In<c_void>, _count: usize) { m.pool_attribute(Pool(pool), 4).map(|_| ()) }

    fn cuMemPoolGetAccess(m, flags: Out<c_int>, pool: u64, _location: In<c_void>) {
        m.pool_attribute(Pool(pool), 4)?;
        // Read and write.
        flags.set(3)
    }
}
