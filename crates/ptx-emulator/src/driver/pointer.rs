//! What is known of an address.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};

use super::entry::{In, Out, api};
use crate::runtime::{Code, Machine, PointerFacts, Result};

/// Writes one attribute; the type of its place depends on it.
fn put(m: &Machine, facts: &PointerFacts, attribute: c_int, address: u64, to: Out<c_void>) -> Result<()> {
    let number = |value: c_int| to.cast::<c_int>().set(value);
    let long = |value: u64| to.cast::<u64>().set(value);
    match attribute {
        1 => long(facts.context.0),
        // CU_MEMORYTYPE_HOST or _DEVICE.
        2 => number(if facts.pinned { 1 } else { 2 }),
        3 => long(address),
        4 if facts.pinned => long(address),
        4 => Code::INVALID_VALUE.error("device memory has no address on the host"),
        6 => number(0),
        7 => long(facts.serial),
        8 => to.cast::<u8>().set(0),
        9 => number(facts.device as c_int),
        11 => long(facts.start),
        12 => to.cast::<usize>().set(facts.bytes as usize),
        13 => to.cast::<u8>().set(1),
        16 => number(3),
        17 => long(facts.pool.map_or(0, |pool| pool.0)),
        10 | 14 | 15 | 18 => number(0),
        _ => {
            let _ = m;
            Code::INVALID_VALUE.error(format!("pointer attribute {attribute} is unknown"))
        }
    }
}

api! {
    fn cuPointerGetAttribute(m, to: Out<c_void>, attribute: c_int, address: u64) {
        put(m, &m.pointer(address)?, attribute, address, to)
    }

    fn cuPointerGetAttributes(m, count: c_uint, attributes: In<c_int>, places: In<u64>, address: u64) {
        let facts = m.pointer(address);
        for (attribute, place) in attributes.list(count as usize)?.into_iter().zip(places.list(count as usize)?) {
            let to = Out::from(place as *mut c_void);
            match &facts {
                Ok(facts) => put(m, facts, attribute, address, to)?,
                // An address the driver does not know has zeroes for attributes; that is no error of this call.
                Err(_) if attribute == 9 => to.cast::<c_int>().set(-2)?,
                Err(_) if matches!(attribute, 2 | 6 | 10 | 14 | 15 | 16 | 18) => to.cast::<c_int>().set(0)?,
                Err(_) if matches!(attribute, 8 | 13) => to.cast::<u8>().set(0)?,
                Err(_) => to.cast::<u64>().set(0)?,
            }
        }
        Ok(())
    }

    fn cuPointerSetAttribute(m, _value: In<c_void>, attribute: c_int, address: u64) {
        m.pointer(address)?;
        // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: a hint here.
        if attribute == 6 { Ok(()) } else { Code::INVALID_VALUE.error(format!("pointer attribute {attribute} cannot be set")) }
    }

    fn cuMemGetAddressRange_v2(m, start: Out<u64>, bytes: Out<usize>, address: u64) {
        let facts = m.pointer(address)?;
        start.offer(facts.start);
        bytes.offer(facts.bytes as usize);
        Ok(())
    }
}
