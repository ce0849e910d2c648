//! Handles of the library, and what every call has in common.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::gemm::{Compute, Scalar};
use super::status::{INTERNAL_ERROR, INVALID_VALUE, NOT_INITIALIZED, Status, names};
use crate::driver::entry::{In, Out, current, machine, settings};
use crate::fault::Fault;
use crate::runtime::work::{Native, Operation, Reach};
use crate::runtime::{Context, Machine, Stream, in_host_function, say};

/// `CUBLAS_POINTER_MODE_DEVICE`.
const DEVICE: c_int = 1;

/// A handle.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Handle {
    pub(super) context: Context,
    pub(super) stream: u64,
    pub(super) pointer_mode: c_int,
    math: c_int,
    atomics: c_int,
}

static HANDLES: Mutex<Option<HashMap<u64, Handle>>> = Mutex::new(None);

fn with_handles<T>(work: impl FnOnce(&mut HashMap<u64, Handle>) -> T) -> T {
    let mut handles = HANDLES.lock().unwrap_or_else(PoisonError::into_inner);
    work(handles.get_or_insert_with(HashMap::new))
}

/// Runs a call, with the trace and without panics.
pub(super) fn call(name: &'static str, body: impl FnOnce(&'static Machine) -> Result<(), Status>) -> c_int {
    let run = || {
        let machine = machine()?;
        in_host_function()?;
        machine.called_cublas().map_or(Ok(()), |status| Err(Status(status)))?;
        body(machine)
    };
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(INTERNAL_ERROR));
    if settings().is_ok_and(|settings| settings.trace) {
        match result {
            Ok(()) => say(&format!("ptx-emulator: {name}")),
            Err(status) => say(&format!("ptx-emulator: {name} = {}", names(status.0).0.to_string_lossy())),
        }
    }
    result.map_or_else(|status| status.0, |()| 0)
}

/// Runs a call on a handle, which it may change.
pub(super) fn on(
    name: &'static str,
    handle: u64,
    body: impl FnOnce(&'static Machine, &mut Handle) -> Result<(), Status>,
) -> c_int {
    call(name, |machine| {
        let mut known = with_handles(|handles| handles.get(&handle).copied()).ok_or(NOT_INITIALIZED)?;
        body(machine, &mut known)?;
        with_handles(|handles| handles.insert(handle, known));
        Ok(())
    })
}

impl Handle {
    /// A scalar argument, read now or when the operation runs.
    pub(super) fn scalar(&self, address: *const c_void, compute: Compute) -> Result<Scalar, Status> {
        if address.is_null() {
            return Err(INVALID_VALUE);
        }
        if self.pointer_mode == DEVICE {
            return Ok(Scalar::Device(address as u64));
        }
        let bytes = In::from(address.cast::<u8>()).list(compute.scalar().size() as usize)?;
        let mut value = [0; 8];
        for (to, from) in value.iter_mut().zip(bytes) {
            *to = from;
        }
        Ok(Scalar::Value(value))
    }

    /// Queues a computation in the handle's stream.
    pub(super) fn submit(
        &self,
        machine: &Machine,
        name: &'static str,
        run: impl Fn(&Reach<'_>) -> Result<(), Fault> + Send + Sync + 'static,
    ) -> Result<(), Status> {
        let native = Native { name, run: std::sync::Arc::new(run) };
        Ok(machine.submit(self.context, Stream(self.stream), Operation::Native(native))?)
    }

    /// Whether results go to the host: then the call waits.
    pub(super) fn waits(&self) -> bool {
        self.pointer_mode != DEVICE
    }

    /// The architecture of the handle's device.
    pub(super) fn arch(&self, machine: &Machine) -> Result<u32, Status> {
        let device = machine.context_device(self.context)?.0;
        Ok(machine.device(device)?.model.arch())
    }
}

#[unsafe(no_mangle)]
extern "C" fn cublasCreate_v2(out: Out<u64>) -> c_int {
    // The library initialises the driver if nobody did.
    if machine().is_err() && crate::driver::entry::initialize().is_err() {
        return NOT_INITIALIZED.0;
    }
    call("cublasCreate_v2", |machine| {
        let context = match current() {
            Ok(context) => context,
            Err(_) => machine.retain_primary(0)?,
        };
        machine.check_context(context)?;
        let handle = Handle { context, ..Handle::default() };
        // Not used twice, so that a destroyed handle is known as one.
        static NEXT: AtomicU64 = AtomicU64::new(0xb1a5_0000);
        let number = NEXT.fetch_add(64, Ordering::Relaxed);
        with_handles(|handles| handles.insert(number, handle));
        Ok(out.set(number)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasDestroy_v2(handle: u64) -> c_int {
    call("cublasDestroy_v2", |_| {
        with_handles(|handles| handles.remove(&handle)).map(|_| ()).ok_or(NOT_INITIALIZED)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasSetStream_v2(handle: u64, stream: u64) -> c_int {
    on("cublasSetStream_v2", handle, |machine, known| {
        machine.stream_properties(known.context, Stream(stream))?;
        known.stream = stream;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetStream_v2(handle: u64, stream: Out<u64>) -> c_int {
    on("cublasGetStream_v2", handle, |_, known| Ok(stream.set(known.stream)?))
}

#[unsafe(no_mangle)]
extern "C" fn cublasSetPointerMode_v2(handle: u64, mode: c_int) -> c_int {
    on("cublasSetPointerMode_v2", handle, |_, known| {
        if !(0..=1).contains(&mode) {
            return Err(INVALID_VALUE);
        }
        known.pointer_mode = mode;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetPointerMode_v2(handle: u64, mode: Out<c_int>) -> c_int {
    on("cublasGetPointerMode_v2", handle, |_, known| Ok(mode.set(known.pointer_mode)?))
}

#[unsafe(no_mangle)]
extern "C" fn cublasSetMathMode(handle: u64, mode: c_int) -> c_int {
    on("cublasSetMathMode", handle, |_, known| {
        // Precision flags stand above the mode itself.
        if !(0..=3).contains(&(mode & 0xf)) {
            return Err(INVALID_VALUE);
        }
        known.math = mode;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetMathMode(handle: u64, mode: Out<c_int>) -> c_int {
    on("cublasGetMathMode", handle, |_, known| Ok(mode.set(known.math)?))
}

#[unsafe(no_mangle)]
extern "C" fn cublasSetAtomicsMode(handle: u64, mode: c_int) -> c_int {
    on("cublasSetAtomicsMode", handle, |_, known| {
        known.atomics = mode;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetAtomicsMode(handle: u64, mode: Out<c_int>) -> c_int {
    on("cublasGetAtomicsMode", handle, |_, known| Ok(mode.set(known.atomics)?))
}

#[unsafe(no_mangle)]
extern "C" fn cublasSetWorkspace_v2(handle: u64, workspace: u64, bytes: usize) -> c_int {
    on("cublasSetWorkspace_v2", handle, |machine, _| {
        if !workspace.is_multiple_of(256) {
            return Err(INVALID_VALUE);
        }
        if bytes > 0 && machine.pointer(workspace)?.bytes < bytes as u64 {
            return Err(INVALID_VALUE);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetVersion_v2(_handle: u64, version: Out<c_int>) -> c_int {
    // Major times 10 000 and minor times 100, of the CUDA that the library came with.
    call("cublasGetVersion_v2", |machine| {
        let settings = machine.settings();
        let cuda = settings.cublas_version.unwrap_or(settings.driver_version);
        Ok(version.set(cuda / 1000 * 10_000 + cuda % 1000 / 10 * 100)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetStatusName(status: c_int) -> *const c_char {
    names(status).0.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetStatusString(status: c_int) -> *const c_char {
    names(status).1.as_ptr()
}
