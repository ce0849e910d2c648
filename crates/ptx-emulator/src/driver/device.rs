//! Devices.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};

use super::entry::{Out, Text, api};
use super::init::put_text;
use crate::runtime::{Code, Machine, Result};
use crate::settings::Device;

/// A device by the number C gives it.
pub(super) fn device(machine: &'static Machine, device: c_int) -> Result<(u32, &'static Device)> {
    match u32::try_from(device) {
        Ok(index) => Ok((index, machine.device(index)?)),
        Err(_) => Code::INVALID_DEVICE.error(format!("there is no device {device}")),
    }
}

/// `CU_DEVICE_ATTRIBUTE_INTEGRATED`
const INTEGRATED: c_int = 18;

fn pci(device: &Device) -> String {
    format!("0000:{:02X}:00.0", device.slot + 1)
}

api! {
    fn cuDeviceGetCount(m, count: Out<c_int>) { count.set(c_int::try_from(m.device_count()).unwrap_or(c_int::MAX)) }

    fn cuDeviceGet(m, out: Out<c_int>, ordinal: c_int) { device(m, ordinal)?; out.set(ordinal) }

    fn cuDeviceGetName(m, name: Out<c_char>, room: c_int, dev: c_int) { put_text(name, room, device(m, dev)?.1.model.name) }

    fn cuDeviceGetUuid(m, uuid: Out<[u8; 16]>, dev: c_int) { let (_, d) = device(m, dev)?; uuid.set(d.model.uuid(d.slot)) }

    fn cuDeviceGetUuid_v2(m, uuid: Out<[u8; 16]>, dev: c_int) { let (_, d) = device(m, dev)?; uuid.set(d.model.uuid(d.slot)) }

    fn cuDeviceTotalMem_v2(m, bytes: Out<usize>, dev: c_int) { bytes.set(device(m, dev)?.1.memory as usize) }

    fn cuDeviceGetAttribute(m, value: Out<c_int>, attribute: c_int, dev: c_int) {
        let (_, found) = device(m, dev)?;
        if attribute == INTEGRATED && m.settings().integrated.is_some() {
            return value.set(1);
        }
        match found.model.attribute(attribute, found.slot) {
            Some(known) => value.set(known),
            None => Code::INVALID_VALUE.error(format!("device attribute {attribute} is unknown")),
        }
    }

    fn cuDeviceComputeCapability(m, major: Out<c_int>, minor: Out<c_int>, dev: c_int) {
        let (_, found) = device(m, dev)?;
        major.set(found.model.capability.0 as c_int)?;
        minor.set(found.model.capability.1 as c_int)
    }

    fn cuDeviceCanAccessPeer(m, can: Out<c_int>, dev: c_int, peer: c_int) {
        let (a, b) = (device(m, dev)?.0, device(m, peer)?.0);
        can.set(c_int::from(a != b && m.settings().peers))
    }

    fn cuDeviceGetP2PAttribute(m, value: Out<c_int>, attribute: c_int, dev: c_int, peer: c_int) {
        let (a, b) = (device(m, dev)?.0, device(m, peer)?.0);
        if a == b {
            return Code::INVALID_DEVICE.error("a device is not its own peer");
        }
        match attribute {
            // PERFORMANCE_RANK, ACCESS_SUPPORTED, NATIVE_ATOMIC_SUPPORTED, CUDA_ARRAY_ACCESS_SUPPORTED.
            1 | 4 => value.set(0),
            2 | 3 => value.set(c_int::from(m.settings().peers)),
            _ => Code::INVALID_VALUE.error(format!("peer attribute {attribute} is unknown")),
        }
    }

    fn cuDeviceGetPCIBusId(m, id: Out<c_char>, room: c_int, dev: c_int) { put_text(id, room, &pci(device(m, dev)?.1)) }

    fn cuDeviceGetByPCIBusId(m, out: Out<c_int>, id: Text) {
        let wanted = id.get()?;
        let found = m.settings().devices.iter().position(|d| pci(d).eq_ignore_ascii_case(&wanted));
        match found {
            Some(index) => out.set(index as c_int),
            None => Code::INVALID_DEVICE.error(format!("there is no device at {wanted}")),
        }
    }

    fn cuDeviceGetExecAffinitySupport(m, out: Out<c_int>, _kind: c_int, dev: c_int) { device(m, dev)?; out.set(0) }

    fn cuDeviceGetDefaultMemPool(m, pool: Out<u64>, dev: c_int) { pool.set(m.device_pools(device(m, dev)?.0)?.0.0) }

    fn cuDeviceGetMemPool(m, pool: Out<u64>, dev: c_int) { pool.set(m.device_pools(device(m, dev)?.0)?.1.0) }

    fn cuDeviceSetMemPool(m, dev: c_int, pool: u64) { m.set_device_pool(device(m, dev)?.0, crate::runtime::Pool(pool)) }
}
