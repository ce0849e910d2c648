//! Attributes of kernels.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};

use super::entry::{Out, api};
use crate::runtime::{Code, Function};

api! {
    fn cuFuncGetAttribute(m, value: Out<c_int>, attribute: c_int, function: u64) {
        value.set(m.function_attribute(Function(function), attribute)?)
    }

    fn cuFuncSetAttribute(m, function: u64, attribute: c_int, value: c_int) {
        m.set_function_attribute(Function(function), attribute, value)
    }

    fn cuKernelGetAttribute(m, value: Out<c_int>, attribute: c_int, kernel: u64, _device: c_int) {
        value.set(m.function_attribute(Function(kernel), attribute)?)
    }

    fn cuKernelSetAttribute(m, attribute: c_int, value: c_int, kernel: u64, _device: c_int) {
        m.set_function_attribute(Function(kernel), attribute, value)
    }

    fn cuFuncSetCacheConfig(m, function: u64, config: c_int) {
        m.function_attribute(Function(function), 0)?;
        if (0..=3).contains(&config) { Ok(()) } else { Code::INVALID_VALUE.error(format!("cache preference {config}")) }
    }

    fn cuFuncSetSharedMemConfig(m, function: u64, _config: c_int) { m.function_attribute(Function(function), 0).map(|_| ()) }

    fn cuFuncGetModule(m, module: Out<u64>, function: u64) { module.set(m.function_facts(Function(function))?.0.0) }

    fn cuFuncGetName(m, name: Out<*const c_char>, function: u64) {
        // The name lives as long as its module; the caller reads it before unloading that.
        name.set(m.function_facts(Function(function))?.2.as_ptr())
    }

    fn cuFuncGetParamInfo(m, function: u64, index: usize, offset: Out<usize>, size: Out<usize>) {
        let program = m.function_facts(Function(function))?.3;
        match program.params.get(index) {
            Some(slot) => {
                offset.set(slot.offset as usize)?;
                size.offer(slot.size as usize);
                Ok(())
            }
            None => Code::INVALID_VALUE.error(format!("the kernel has no parameter {index}")),
        }
    }

    fn cuFuncIsLoaded(m, state: Out<c_int>, function: u64) { m.function_attribute(Function(function), 0)?; state.set(1) }

    fn cuFuncLoad(m, function: u64) { m.function_attribute(Function(function), 0).map(|_| ()) }
}
