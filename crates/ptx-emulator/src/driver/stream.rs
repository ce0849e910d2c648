//! Streams and their capture.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use super::entry::{Out, api, current, stream};
use crate::runtime::work::{HostFunction, Operation};
use crate::runtime::{CaptureMode, CaptureStatus, Code, Event, Machine, Node, Result, Stream};

/// A function of the host, and what it is given.
#[derive(Clone, Copy)]
struct Callback {
    function: extern "C" fn(*mut c_void),
    data: *mut c_void,
}

// SAFETY: the caller hands both over to be used by whatever thread runs the stream; that is the contract of cuLaunchHostFunc.
unsafe impl Send for Callback {}
// SAFETY: as above.
unsafe impl Sync for Callback {}

impl Callback {
    fn run(&self) {
        (self.function)(self.data);
    }
}

/// A function of the host as an operation.
pub(super) fn host(function: Option<extern "C" fn(*mut c_void)>, data: *mut c_void) -> Result<Operation> {
    let Some(function) = function else {
        return Code::INVALID_VALUE.error("a host function that is null");
    };
    let callback = Callback { function, data };
    Ok(Operation::Host(HostFunction(Arc::new(move || callback.run()))))
}

fn mode(number: c_int) -> Result<CaptureMode> {
    match number {
        0 => Ok(CaptureMode::Global),
        1 => Ok(CaptureMode::ThreadLocal),
        2 => Ok(CaptureMode::Relaxed),
        _ => Code::INVALID_VALUE.error(format!("capture mode {number} is unknown")),
    }
}

thread_local! {
    /// Where the dependencies of a capture stand that were asked for last; C gets their address.
    static DEPENDENCIES: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

fn status(
    m: &Machine,
    handle: u64,
    out: Out<c_int>,
    id: Out<u64>,
) -> Result<(CaptureStatus, u64, Vec<Node>)> {
    let (status, number, graph, nodes) = m.capture_status(current()?, stream(handle))?;
    out.set(match status {
        CaptureStatus::None => 0,
        CaptureStatus::Active => 1,
        CaptureStatus::Invalidated => 2,
    })?;
    if status == CaptureStatus::Active {
        id.offer(number);
    }
    Ok((status, graph.0, nodes))
}

fn info(
    m: &Machine,
    handle: u64,
    out: Out<c_int>,
    id: Out<u64>,
    graph: Out<u64>,
    dependencies: Out<*const u64>,
    count: Out<usize>,
) -> Result<()> {
    let (status, number, nodes) = status(m, handle, out, id)?;
    if status == CaptureStatus::Active {
        graph.offer(number);
        count.offer(nodes.len());
        DEPENDENCIES.with_borrow_mut(|list| {
            *list = nodes.iter().map(|node| node.0).collect();
            dependencies.offer(list.as_ptr());
        });
    }
    Ok(())
}

api! {
    fn cuStreamCreate(m, out: Out<u64>, flags: c_uint) { out.set(m.create_stream(current()?, flags, 0)?.0) }

    fn cuStreamCreateWithPriority(m, out: Out<u64>, flags: c_uint, priority: c_int) {
        out.set(m.create_stream(current()?, flags, priority)?.0)
    }

    fn cuStreamDestroy_v2(m, handle: u64) { m.destroy_stream(Stream(handle)) }

    fn cuStreamSynchronize | cuStreamSynchronize_ptsz(m, handle: u64) { m.synchronize_stream(current()?, stream(handle)) }

    fn cuStreamQuery | cuStreamQuery_ptsz(m, handle: u64) {
        if m.query_stream(current()?, stream(handle))? { Ok(()) } else { Code::NOT_READY.error("work is queued") }
    }

    fn cuStreamWaitEvent | cuStreamWaitEvent_ptsz(m, handle: u64, event: u64, flags: c_uint) {
        if flags > 1 {
            return Code::INVALID_VALUE.error(format!("flags {flags:#x}"));
        }
        m.stream_wait(current()?, stream(handle), Event(event))
    }

    fn cuStreamGetCtx | cuStreamGetCtx_ptsz(m, handle: u64, context: Out<u64>) {
        context.set(m.stream_properties(current()?, stream(handle))?.0.0)
    }

    fn cuStreamGetFlags | cuStreamGetFlags_ptsz(m, handle: u64, flags: Out<c_uint>) {
        flags.set(m.stream_properties(current()?, stream(handle))?.1)
    }

    fn cuStreamGetPriority | cuStreamGetPriority_ptsz(m, handle: u64, priority: Out<c_int>) {
        priority.set(m.stream_properties(current()?, stream(handle))?.2)
    }

    fn cuStreamGetDevice | cuStreamGetDevice_ptsz(m, handle: u64, device: Out<c_int>) {
        let (context, ..) = m.stream_properties(current()?, stream(handle))?;
        device.set(m.context_device(context)?.0 as c_int)
    }

    fn cuStreamGetId | cuStreamGetId_ptsz(m, handle: u64, id: Out<u64>) { id.set(m.stream_id(current()?, stream(handle))?) }

    fn cuStreamAttachMemAsync | cuStreamAttachMemAsync_ptsz(m, _handle: u64, _address: u64, _bytes: usize, _flags: c_uint) {
        m.check_context(current()?)?;
        Code::NOT_SUPPORTED.error("managed memory is not emulated")
    }

    fn cuLaunchHostFunc | cuLaunchHostFunc_ptsz(m, handle: u64, function: Option<extern "C" fn(*mut c_void)>, data: *mut c_void) {
        m.submit(current()?, stream(handle), host(function, data)?)
    }

    fn cuStreamAddCallback | cuStreamAddCallback_ptsz(
        m, handle: u64, function: Option<extern "C" fn(u64, c_int, *mut c_void)>, data: *mut c_void, flags: c_uint,
    ) {
        let Some(function) = function.filter(|_| flags == 0) else {
            return Code::INVALID_VALUE.error("a callback that is null, or flags");
        };
        struct Given(u64, extern "C" fn(u64, c_int, *mut c_void), *mut c_void);
        // SAFETY: handed over to whatever thread runs the stream, as with cuLaunchHostFunc.
        unsafe impl Send for Given {}
        // SAFETY: as above.
        unsafe impl Sync for Given {}
        impl Given {
            fn run(&self) {
                (self.1)(self.0, 0, self.2);
            }
        }
        let given = Given(handle, function, data);
        m.submit(current()?, stream(handle), Operation::Host(HostFunction(Arc::new(move || given.run()))))
    }

    fn cuStreamWaitValue32_v2 | cuStreamWaitValue32_v2_ptsz(m, handle: u64, address: u64, value: u32, flags: c_uint) {
        m.stream_wait_value(current()?, stream(handle), address, u64::from(value), false, flags)
    }

    fn cuStreamWaitValue64_v2 | cuStreamWaitValue64_v2_ptsz(m, handle: u64, address: u64, value: u64, flags: c_uint) {
        m.stream_wait_value(current()?, stream(handle), address, value, true, flags)
    }

    fn cuStreamWriteValue32_v2 | cuStreamWriteValue32_v2_ptsz(m, handle: u64, address: u64, value: u32, _flags: c_uint) {
        m.fill(current()?, stream(handle), address, 0, (value, 4), 1, 1)
    }

    fn cuStreamBeginCapture_v2 | cuStreamBeginCapture_v2_ptsz(m, handle: u64, kind: c_int) {
        m.begin_capture(current()?, stream(handle), mode(kind)?)
    }

    fn cuStreamEndCapture | cuStreamEndCapture_ptsz(m, handle: u64, graph: Out<u64>) {
        graph.set(0)?;
        graph.set(m.end_capture(current()?, stream(handle))?.0)
    }

    fn cuStreamIsCapturing | cuStreamIsCapturing_ptsz(m, handle: u64, out: Out<c_int>) {
        status(m, handle, out, Out::nowhere()).map(|_| ())
    }

    fn cuStreamGetCaptureInfo | cuStreamGetCaptureInfo_ptsz(m, handle: u64, out: Out<c_int>, id: Out<u64>) {
        status(m, handle, out, id).map(|_| ())
    }

    fn cuStreamGetCaptureInfo_v2 | cuStreamGetCaptureInfo_v2_ptsz(
        m, handle: u64, out: Out<c_int>, id: Out<u64>, graph: Out<u64>, dependencies: Out<*const u64>, count: Out<usize>,
    ) {
        info(m, handle, out, id, graph, dependencies, count)
    }

    fn cuStreamGetCaptureInfo_v3 | cuStreamGetCaptureInfo_v3_ptsz(
        m, handle: u64, out: Out<c_int>, id: Out<u64>, graph: Out<u64>, dependencies: Out<*const u64>,
        edges: Out<*const c_void>, count: Out<usize>,
    ) {
        edges.offer(std::ptr::null());
        info(m, handle, out, id, graph, dependencies, count)
    }

    fn cuThreadExchangeStreamCaptureMode(m, kind: Out<c_int>) {
        let old = m.exchange_capture_mode(mode(kind.get()?)?);
        kind.set(old as c_int)
    }
}
