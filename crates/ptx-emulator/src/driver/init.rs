//! Initialisation, versions, and how a program finds the other functions.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::entry::{self, Out, Symbol, Text, call_always};
use crate::runtime::{Code, Result};

/// Names whose function depends on the version asked for: name, first version, function.
const VERSIONED: &[(&str, i32, &str)] = &[
    ("cuCtxCreate", 12050, "cuCtxCreate_v4"),
    ("cuCtxCreate", 11040, "cuCtxCreate_v3"),
    ("cuCtxCreate", 0, "cuCtxCreate_v2"),
    ("cuCtxGetDevice", 13000, "cuCtxGetDevice_v2"),
    ("cuCtxGetDevice", 0, "cuCtxGetDevice"),
    ("cuCtxSynchronize", 13000, "cuCtxSynchronize_v2"),
    ("cuCtxSynchronize", 0, "cuCtxSynchronize"),
    ("cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"),
    ("cuDeviceGetUuid", 0, "cuDeviceGetUuid"),
    ("cuEventElapsedTime", 12080, "cuEventElapsedTime_v2"),
    ("cuEventElapsedTime", 0, "cuEventElapsedTime"),
    ("cuGetProcAddress", 12000, "cuGetProcAddress_v2"),
    ("cuGetProcAddress", 0, "cuGetProcAddress"),
    ("cuGraphAddDependencies", 12030, "cuGraphAddDependencies_v2"),
    ("cuGraphAddDependencies", 0, "cuGraphAddDependencies"),
    ("cuGraphAddKernelNode", 12000, "cuGraphAddKernelNode_v2"),
    ("cuGraphAddKernelNode", 0, "cuGraphAddKernelNode"),
    ("cuGraphExecKernelNodeSetParams", 12000, "cuGraphExecKernelNodeSetParams_v2"),
    ("cuGraphExecKernelNodeSetParams", 0, "cuGraphExecKernelNodeSetParams"),
    ("cuGraphExecUpdate", 12000, "cuGraphExecUpdate_v2"),
    ("cuGraphExecUpdate", 0, "cuGraphExecUpdate"),
    ("cuGraphGetEdges", 12030, "cuGraphGetEdges_v2"),
    ("cuGraphGetEdges", 0, "cuGraphGetEdges"),
    ("cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags"),
    ("cuGraphInstantiate", 0, "cuGraphInstantiate_v2"),
    ("cuGraphKernelNodeGetParams", 12000, "cuGraphKernelNodeGetParams_v2"),
    ("cuGraphKernelNodeGetParams", 0, "cuGraphKernelNodeGetParams"),
    ("cuGraphKernelNodeSetParams", 12000, "cuGraphKernelNodeSetParams_v2"),
    ("cuGraphKernelNodeSetParams", 0, "cuGraphKernelNodeSetParams"),
    ("cuGraphNodeGetDependencies", 12030, "cuGraphNodeGetDependencies_v2"),
    ("cuGraphNodeGetDependencies", 0, "cuGraphNodeGetDependencies"),
    ("cuGraphNodeGetDependentNodes", 12030, "cuGraphNodeGetDependentNodes_v2"),
    ("cuGraphNodeGetDependentNodes", 0, "cuGraphNodeGetDependentNodes"),
    ("cuGraphRemoveDependencies", 12030, "cuGraphRemoveDependencies_v2"),
    ("cuGraphRemoveDependencies", 0, "cuGraphRemoveDependencies"),
    ("cuMemAdvise", 12020, "cuMemAdvise_v2"),
    ("cuMemAdvise", 0, "cuMemAdvise"),
    ("cuMemPrefetchAsync", 12020, "cuMemPrefetchAsync_v2"),
    ("cuMemPrefetchAsync", 0, "cuMemPrefetchAsync"),
    ("cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"),
    ("cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo_v2"),
    ("cuStreamGetCaptureInfo", 0, "cuStreamGetCaptureInfo"),
];

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: u64 = 2;

fn always(name: &'static str, body: impl FnOnce() -> Result<()>) -> c_int {
    call_always(name, String::new, body)
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: c_uint) -> c_int {
    always("cuInit", || {
        if flags != 0 {
            return Code::INVALID_VALUE.error(format!("flags {flags:#x}; there are none"));
        }
        entry::initialize().map(|_| ())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(version: Out<c_int>) -> c_int {
    always("cuDriverGetVersion", || version.set(entry::settings()?.driver_version))
}

/// NVRTC opens the driver and asks for tables of its own; there are none, and it goes on without.
#[unsafe(no_mangle)]
extern "C" fn cuGetExportTable(table: Out<*const c_void>, _id: *const c_void) -> c_int {
    always("cuGetExportTable", || {
        table.offer(std::ptr::null());
        Code::NOT_FOUND.error("private tables of the driver are not there")
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress_v2(
    name: Text,
    function: Out<*const c_void>,
    version: c_int,
    flags: u64,
    status: Out<c_int>,
) -> c_int {
    always("cuGetProcAddress_v2", || {
        let wanted = name.get()?;
        match find(&wanted, version, flags) {
            Ok(address) => {
                status.offer(0);
                function.set(address)
            }
            Err(error) => {
                // CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND; with version 2 that is not an error of the call.
                function.offer(std::ptr::null());
                if status.is_null() { Err(error) } else { status.set(1) }
            }
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress(
    name: Text,
    function: Out<*const c_void>,
    version: c_int,
    flags: u64,
) -> c_int {
    always("cuGetProcAddress", || {
        function.offer(std::ptr::null());
        function.set(find(&name.get()?, version, flags)?)
    })
}

fn find(name: &str, version: c_int, flags: u64) -> Result<*const c_void> {
    let settings = entry::settings()?;
    let newest = VERSIONED.iter().find(|(base, first, _)| *base == name && version >= *first);
    let second = format!("{name}_v2");
    let mut candidates = Vec::new();
    match newest {
        Some((_, _, actual)) => candidates.push((*actual).to_owned()),
        None => candidates.extend([second, name.to_owned()]),
    }
    if flags & PER_THREAD != 0 {
        let variants: Vec<_> =
            candidates.iter().flat_map(|c| [format!("{c}_ptsz"), format!("{c}_ptds")]).collect();
        candidates.splice(0..0, variants);
    }
    let missing = |candidate: &str| {
        settings.faults.missing.iter().any(|missing| missing == name || missing == candidate)
    };
    let found = candidates
        .iter()
        .filter(|candidate| !missing(candidate))
        .find_map(|candidate| super::symbols().find(|symbol| symbol.name == *candidate));
    match found {
        Some(symbol) => Ok(symbol.address),
        None => Code::NOT_FOUND.error(format!("the driver has no function {name}")),
    }
}

/// What this file defines.
pub(super) static SYMBOLS: &[Symbol] = &[
    Symbol { name: "cuInit", address: cuInit as *const c_void },
    Symbol { name: "cuDriverGetVersion", address: cuDriverGetVersion as *const c_void },
    Symbol { name: "cuGetExportTable", address: cuGetExportTable as *const c_void },
    Symbol { name: "cuGetProcAddress", address: cuGetProcAddress as *const c_void },
    Symbol { name: "cuGetProcAddress_v2", address: cuGetProcAddress_v2 as *const c_void },
];

/// A string for C, with its end, cut to `room` bytes.
pub(super) fn put_text(to: Out<c_char>, room: c_int, text: &str) -> Result<()> {
    let Some(room) = usize::try_from(room).ok().filter(|room| *room > 0) else {
        return Code::INVALID_VALUE.error("no room for a name");
    };
    let bytes = text.bytes().take(room - 1).chain([0]);
    to.fill(bytes.map(|byte| byte as c_char))
}
