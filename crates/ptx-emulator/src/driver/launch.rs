//! Launches.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};

use super::entry::{In, api, current, stream};
use super::types::{LaunchAttribute, LaunchConfigC};
use crate::runtime::{Code, Function, LaunchConfig, Machine, Result};

/// `CU_LAUNCH_PARAM_BUFFER_POINTER`, `_BUFFER_SIZE`; 0 ends the list.
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;

/// The parameter block of a kernel, from the addresses of its arguments or from one buffer.
pub(super) fn arguments(
    m: &Machine,
    function: Function,
    params: *const *const c_void,
    extra: *const *const c_void,
) -> Result<Vec<u8>> {
    let program = m.function_facts(function)?.3;
    let mut block = vec![0u8; program.param_bytes as usize];
    if !extra.is_null() {
        if !params.is_null() {
            return Code::INVALID_VALUE.error("arguments are given twice: as addresses and as a buffer");
        }
        let (buffer, size) = from_extra(extra)?;
        if size < block.len() {
            return Code::INVALID_VALUE.error(format!(
                "a buffer of {size} bytes of arguments; {} takes {}",
                program.name,
                block.len()
            ));
        }
        let bytes = In::from(buffer).list(block.len())?;
        return Ok(bytes);
    }
    if program.params.is_empty() {
        return Ok(block);
    }
    let addresses = In::from(params).list(program.params.len())?;
    for (slot, address) in program.params.iter().zip(addresses) {
        let bytes = In::from(address.cast::<u8>()).list(slot.size as usize)?;
        let at = slot.offset as usize;
        if let Some(target) = block.get_mut(at..at + bytes.len()) {
            target.copy_from_slice(&bytes);
        }
    }
    Ok(block)
}

fn from_extra(extra: *const *const c_void) -> Result<(*const u8, usize)> {
    let (mut buffer, mut size) = (std::ptr::null(), 0);
    // The list has at most two pairs and an end.
    for pair in 0..3 {
        let key = In::from(extra.wrapping_add(pair * 2)).get()? as usize;
        if key == 0 {
            return Ok((buffer, size));
        }
        let value = In::from(extra.wrapping_add(pair * 2 + 1)).get()?;
        match key {
            BUFFER_POINTER => buffer = value.cast::<u8>(),
            BUFFER_SIZE => size = In::from(value.cast::<usize>()).get()?,
            _ => return Code::INVALID_VALUE.error(format!("launch parameter {key} is unknown")),
        }
    }
    Code::INVALID_VALUE.error("a list of launch parameters without an end")
}

/// What the attributes of a launch change.
fn attributes(list: &[LaunchAttribute], config: &mut LaunchConfig) -> Result<()> {
    for attribute in list {
        let [a, b, c, ..] = attribute.value;
        match attribute.id {
            // IGNORE, ACCESS_POLICY_WINDOW, SYNCHRONIZATION_POLICY, PRIORITY, MEM_SYNC_DOMAIN(_MAP), PREFERRED_SHARED_MEMORY_CARVEOUT: hints.
            0 | 1 | 3 | 8 | 9 | 10 | 14 => {}
            // COOPERATIVE
            2 => config.cooperative = a != 0,
            // CLUSTER_DIMENSION
            4 if (a, b, c) == (1, 1, 1) => {}
            4 => {
                return Code::NOT_SUPPORTED
                    .error(format!("clusters of {a} by {b} by {c} blocks are not emulated"));
            }
            // CLUSTER_SCHEDULING_POLICY_PREFERENCE
            5 => {}
            // PROGRAMMATIC_STREAM_SERIALIZATION
            6 => config.programmatic = a != 0,
            7 => return Code::NOT_SUPPORTED.error("programmatic events are not emulated"),
            id => return Code::NOT_SUPPORTED.error(format!("launch attribute {id} is not emulated")),
        }
    }
    Ok(())
}

fn launch(
    m: &Machine,
    function: u64,
    config: &LaunchConfig,
    handle: u64,
    params: *const *const c_void,
    extra: *const *const c_void,
) -> Result<()> {
    let function = Function(function);
    let block = arguments(m, function, params, extra)?;
    m.launch_bytes(current()?, stream(handle), function, config, block)
}

fn config(given: &LaunchConfigC) -> Result<LaunchConfig> {
    let mut config = LaunchConfig {
        grid: given.grid,
        block: given.block,
        shared: given.shared,
        ..LaunchConfig::default()
    };
    attributes(&In::from(given.attributes).list(given.count as usize)?, &mut config)?;
    Ok(config)
}

api! {
    fn cuLaunchKernel | cuLaunchKernel_ptsz(
        m, function: u64, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, handle: u64,
        params: *const *const c_void, extra: *const *const c_void,
    ) {
        let config = LaunchConfig { grid: [gx, gy, gz], block: [bx, by, bz], shared, ..LaunchConfig::default() };
        launch(m, function, &config, handle, params, extra)
    }

    fn cuLaunchCooperativeKernel | cuLaunchCooperativeKernel_ptsz(
        m, function: u64, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, handle: u64,
        params: *const *const c_void,
    ) {
        let grid = [gx, gy, gz];
        let config = LaunchConfig { grid, block: [bx, by, bz], shared, cooperative: true, programmatic: false };
        launch(m, function, &config, handle, params, std::ptr::null())
    }

    fn cuLaunchKernelEx | cuLaunchKernelEx_ptsz(
        m, given: In<LaunchConfigC>, function: u64, params: *const *const c_void, extra: *const *const c_void,
    ) {
        let given = given.get()?;
        launch(m, function, &config(&given)?, given.stream, params, extra)
    }

    fn cuLaunchCooperativeKernelMultiDevice(m, _list: In<c_void>, _count: c_uint, _flags: c_uint) {
        m.check_context(current()?)?;
        Code::NOT_SUPPORTED.error("cooperative launches over several devices are not emulated")
    }

    fn cuOccupancyMaxActiveClusters(m, count: crate::driver::entry::Out<c_int>, function: u64, given: In<LaunchConfigC>) {
        let given = given.get()?;
        let config = config(&given)?;
        let threads = config.block.iter().fold(1u32, |n, x| n.saturating_mul(*x));
        let blocks = m.occupancy(Function(function), threads as c_int, u64::from(config.shared))?;
        let device = m.context_device(current()?)?.0;
        count.set(blocks * m.device(device)?.model.sms as c_int)
    }
}
