//! Names and descriptions of errors.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};

use super::entry::{Out, Symbol, call_always};
use crate::runtime::Code;

fn text(name: &'static str, code: c_int, out: Out<*const c_char>, description: bool) -> c_int {
    call_always(
        name,
        || code.to_string(),
        || match Code(code).names() {
            Some((short, long)) => out.set(if description { long } else { short }.as_ptr()),
            None => {
                out.offer(std::ptr::null());
                Code::INVALID_VALUE.error(format!("{code} is no error of the driver"))
            }
        },
    )
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(code: c_int, out: Out<*const c_char>) -> c_int {
    text("cuGetErrorName", code, out, false)
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(code: c_int, out: Out<*const c_char>) -> c_int {
    text("cuGetErrorString", code, out, true)
}

/// What this file defines.
pub(super) static SYMBOLS: &[Symbol] = &[
    Symbol { name: "cuGetErrorName", address: cuGetErrorName as *const c_void },
    Symbol { name: "cuGetErrorString", address: cuGetErrorString as *const c_void },
];
