//! Contexts, and which one is current on a thread.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};

use super::device::device;
use super::entry::{Out, api, current, with_stack};
use crate::runtime::{Code, Context, PRIORITIES};

/// Scheduling, mapped host memory, local memory kept, sync of memory operations.
const FLAGS: c_uint = 0xff;

fn make(
    m: &'static crate::runtime::Machine,
    out: Out<u64>,
    flags: c_uint,
    dev: c_int,
) -> crate::runtime::Result<()> {
    if flags & !FLAGS != 0 {
        return Code::INVALID_VALUE.error(format!("context flags {flags:#x}"));
    }
    let context = m.create_context(device(m, dev)?.0, flags)?;
    with_stack(|stack| stack.push(context));
    out.set(context.0)
}

api! {
    fn cuDevicePrimaryCtxRetain(m, context: Out<u64>, dev: c_int) {
        let made = m.retain_primary(device(m, dev)?.0)?;
        context.set(made.0)
    }

    fn cuDevicePrimaryCtxRelease(m, dev: c_int) { m.release_primary(device(m, dev)?.0) }

    fn cuDevicePrimaryCtxRelease_v2(m, dev: c_int) { m.release_primary(device(m, dev)?.0) }

    fn cuDevicePrimaryCtxReset(m, dev: c_int) { m.reset_primary(device(m, dev)?.0) }

    fn cuDevicePrimaryCtxReset_v2(m, dev: c_int) { m.reset_primary(device(m, dev)?.0) }

    fn cuDevicePrimaryCtxGetState(m, dev: c_int, flags: Out<c_uint>, active: Out<c_int>) {
        let (on, set) = m.primary_state(device(m, dev)?.0)?;
        flags.set(set)?;
        active.set(c_int::from(on))
    }

    fn cuDevicePrimaryCtxSetFlags_v2(m, dev: c_int, flags: c_uint) {
        let (index, _) = device(m, dev)?;
        if flags & !FLAGS != 0 {
            return Code::INVALID_VALUE.error(format!("context flags {flags:#x}"));
        }
        if m.primary_state(index)?.0 {
            let context = m.retain_primary(index)?;
            let set = m.set_context_flags(context, flags);
            m.release_primary(index)?;
            return set;
        }
        Ok(())
    }

    fn cuCtxCreate_v2(m, context: Out<u64>, flags: c_uint, dev: c_int) { make(m, context, flags, dev) }

    fn cuCtxCreate_v3(m, context: Out<u64>, _affinity: *const c_void, count: c_int, flags: c_uint, dev: c_int) {
        if count != 0 {
            return Code::NOT_SUPPORTED.error("contexts with execution affinity are not emulated");
        }
        make(m, context, flags, dev)
    }

    fn cuCtxCreate_v4(m, context: Out<u64>, parameters: *const c_void, flags: c_uint, dev: c_int) {
        if !parameters.is_null() {
            return Code::NOT_SUPPORTED.error("contexts with execution affinity or shared with graphics are not emulated");
        }
        make(m, context, flags, dev)
    }

    fn cuCtxDestroy_v2(m, context: u64) {
        let context = Context(context);
        m.destroy_context(context)?;
        with_stack(|stack| if stack.last() == Some(&context) { stack.pop(); });
        Ok(())
    }

    fn cuCtxGetCurrent(_m, context: Out<u64>) { context.set(with_stack(|stack| stack.last().copied().unwrap_or_default()).0) }

    fn cuCtxSetCurrent(m, context: u64) {
        let context = Context(context);
        if context != Context(0) {
            m.context_device(context)?;
        }
        with_stack(|stack| {
            stack.pop();
            if context != Context(0) {
                stack.push(context);
            }
        });
        Ok(())
    }

    fn cuCtxPushCurrent_v2(m, context: u64) {
        m.context_device(Context(context))?;
        with_stack(|stack| stack.push(Context(context)));
        Ok(())
    }

    fn cuCtxPopCurrent_v2(_m, context: Out<u64>) {
        match with_stack(Vec::pop) {
            Some(popped) => {
                context.offer(popped.0);
                Ok(())
            }
            None => Code::INVALID_CONTEXT.error("no context is current on this thread"),
        }
    }

    fn cuCtxGetDevice(m, dev: Out<c_int>) { dev.set(m.context_device(current()?)?.0 as c_int) }

    fn cuCtxGetDevice_v2(m, dev: Out<c_int>, context: u64) {
        let context = if context == 0 { current()? } else { Context(context) };
        dev.set(m.context_device(context)?.0 as c_int)
    }

    fn cuCtxGetFlags(m, flags: Out<c_uint>) { flags.set(m.context_device(current()?)?.1) }

    fn cuCtxSetFlags(m, flags: c_uint) {
        if flags & !FLAGS != 0 {
            return Code::INVALID_VALUE.error(format!("context flags {flags:#x}"));
        }
        m.set_context_flags(current()?, flags)
    }

    fn cuCtxGetId(m, context: u64, id: Out<u64>) {
        let context = if context == 0 { current()? } else { Context(context) };
        m.context_device(context)?;
        id.set(context.0)
    }

    fn cuCtxGetApiVersion(m, context: u64, version: Out<c_uint>) {
        if context != 0 {
            m.context_device(Context(context))?;
        }
        version.set(3020)
    }

    fn cuCtxSynchronize(m) { m.synchronize(current()?) }

    fn cuCtxSynchronize_v2(m, context: u64) {
        m.synchronize(if context == 0 { current()? } else { Context(context) })
    }

    fn cuCtxGetLimit(m, value: Out<usize>, limit: c_int) { value.set(m.context_limit(current()?, limit, None)? as usize) }

    fn cuCtxSetLimit(m, limit: c_int, value: usize) { m.context_limit(current()?, limit, Some(value as u64)).map(|_| ()) }

    fn cuCtxGetCacheConfig(m, value: Out<c_int>) { value.set(m.context_cache(current()?, None)?) }

    fn cuCtxSetCacheConfig(m, value: c_int) { m.context_cache(current()?, Some(value)).map(|_| ()) }

    fn cuCtxGetSharedMemConfig(m, value: Out<c_int>) { m.check_context(current()?)?; value.set(1) }

    fn cuCtxSetSharedMemConfig(m, _value: c_int) { m.check_context(current()?) }

    fn cuCtxGetStreamPriorityRange(m, least: Out<c_int>, greatest: Out<c_int>) {
        m.check_context(current()?)?;
        least.offer(PRIORITIES.0);
        greatest.offer(PRIORITIES.1);
        Ok(())
    }

    fn cuCtxResetPersistingL2Cache(m) { m.check_context(current()?) }

    fn cuCtxEnablePeerAccess(m, peer: u64, flags: c_uint) {
        if flags != 0 {
            return Code::INVALID_VALUE.error(format!("peer access flags {flags:#x}; there are none"));
        }
        m.peer_access(current()?, Context(peer), true)
    }

    fn cuCtxDisablePeerAccess(m, peer: u64) { m.peer_access(current()?, Context(peer), false) }
}
