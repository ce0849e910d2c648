//! Events.
#![allow(unsafe_code)]

use std::ffi::c_uint;

use super::entry::{Out, api, current, stream};
use crate::runtime::{Code, Event};

api! {
    fn cuEventCreate(m, out: Out<u64>, flags: c_uint) { out.set(m.create_event(current()?, flags)?.0) }

    fn cuEventDestroy_v2(m, event: u64) { m.destroy_event(Event(event)) }

    fn cuEventRecord | cuEventRecord_ptsz(m, event: u64, handle: u64) { m.record_event(current()?, Event(event), stream(handle)) }

    fn cuEventRecordWithFlags | cuEventRecordWithFlags_ptsz(m, event: u64, handle: u64, flags: c_uint) {
        if flags != 0 {
            return Code::NOT_SUPPORTED.error("external event nodes in graphs are not emulated");
        }
        m.record_event(current()?, Event(event), stream(handle))
    }

    fn cuEventQuery(m, event: u64) {
        if m.query_event(Event(event))? { Ok(()) } else { Code::NOT_READY.error("the event was not reached yet") }
    }

    fn cuEventSynchronize(m, event: u64) { m.synchronize_event(Event(event)) }

    fn cuEventElapsedTime(m, milliseconds: Out<f32>, start: u64, end: u64) { milliseconds.set(m.elapsed(Event(start), Event(end))?) }

    fn cuEventElapsedTime_v2(m, milliseconds: Out<f32>, start: u64, end: u64) { milliseconds.set(m.elapsed(Event(start), Event(end))?) }
}
