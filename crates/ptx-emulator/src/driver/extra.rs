//! What no driver has: functions for tests of programs that run on the shared library.
//!
//! They are found like any other function, so a test that also runs on a GPU asks whether they are there and skips what needs them.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint};

use super::entry::{Out, Text, api, current, last_error};
use super::init::put_text;
use crate::runtime::Code;

api! {
    /// A count by its name: the fields of `runtime::Counts`.
    fn ptxEmuCount(m, name: Text, value: Out<u64>) {
        let counts = m.counts();
        let wanted = name.get()?;
        value.set(match wanted.as_str() {
            "allocations" => counts.allocations,
            "most_bytes" => counts.most_bytes,
            "host_allocations" => counts.host_allocations,
            "uploads" => counts.uploads,
            "upload_bytes" => counts.upload_bytes,
            "downloads" => counts.downloads,
            "download_bytes" => counts.download_bytes,
            "pageable_copies" => counts.pageable_copies,
            "device_copies" => counts.device_copies,
            "peer_copies" => counts.peer_copies,
            "fills" => counts.fills,
            "launches" => counts.launches,
            "library_calls" => counts.library_calls,
            "cublas_calls" => counts.cublas_calls,
            "graph_launches" => counts.graph_launches,
            "graph_instantiations" => counts.graph_instantiations,
            "host_waits" => counts.host_waits,
            "host_blocked" => counts.host_blocked,
            "modules" => counts.modules,
            "calls" => counts.calls,
            "tasks" => counts.tasks,
            _ => return Code::NOT_FOUND.error(format!("there is no count {wanted}")),
        })
    }

    /// Counts anew.
    fn ptxEmuResetCounts(m) { m.reset_counts(); Ok(()) }

    /// The report of the first fault since the last call, as text; `CUDA_ERROR_NOT_FOUND` if there was none.
    fn ptxEmuTakeFault(m, text: Out<c_char>, room: c_int) {
        match m.take_fault() {
            Some(fault) => put_text(text, room, &fault.to_string()),
            None => Code::NOT_FOUND.error("there was no fault"),
        }
    }

    /// The sentence of this thread's last error.
    fn ptxEmuLastError(_m, text: Out<c_char>, room: c_int) { put_text(text, room, &last_error()) }

    /// Lets contexts that an error killed work again.
    fn ptxEmuForgive(m) { m.forgive(); Ok(()) }

    /// Allocations that live: their number.
    fn ptxEmuLeaks(m, count: Out<u64>) { count.set(m.leaks().len() as u64) }

    fn cuProfilerStart(m) { m.check_context(current()?) }

    fn cuProfilerStop(m) { m.check_context(current()?) }

    fn cuCtxAttach(_m, _context: Out<u64>, _flags: c_uint) { Code::NOT_SUPPORTED.error("contexts are not counted by users any more") }

    fn cuCtxDetach(_m, _context: u64) { Code::NOT_SUPPORTED.error("contexts are not counted by users any more") }

}
