//! Modules: PTX given as text or as a file. Cubins and fat binaries hold machine code and are refused.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::entry::{In, Out, Text, api, current};
use crate::runtime::{Code, Error, Machine, Module, Result, say};

/// Options of the JIT whose values are results: the log of information, the log of errors, and their sizes.
const INFO_LOG: c_int = 3;
const INFO_SIZE: c_int = 4;
const ERROR_LOG: c_int = 5;
const ERROR_SIZE: c_int = 6;

/// The text at an address, if it is text.
fn image(start: *const c_void) -> Result<String> {
    let head = In::from(start.cast::<u8>());
    // A short text ends within these bytes; the end is met before anything behind it is read.
    let mut bytes = [0u8; 4];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = In::from(start.cast::<u8>().wrapping_add(index)).get()?;
        if *byte == 0 {
            break;
        }
    }
    head.get()?;
    check_magic(&bytes)?;
    // SAFETY: the caller of the C interface promises that text ends with a zero.
    Ok(unsafe { CStr::from_ptr(start.cast()) }.to_string_lossy().into_owned())
}

fn check_magic(head: &[u8]) -> Result<()> {
    let what = match head {
        [0x7f, b'E', b'L', b'F', ..] => "a cubin",
        [0x50, 0xed, 0x55, 0xba, ..] => "a fat binary",
        [0xed, 0x43, 0x4e, b'P', ..] => "compressed PTX",
        _ => return Ok(()),
    };
    // Not said aloud: a program that tries machine code first and then PTX does nothing wrong, and the code tells the others.
    let message = format!(
        "{what} holds machine code and cannot be emulated; give PTX (nvrtc with compute_XX, nvcc -ptx)"
    );
    Code::NO_BINARY_FOR_GPU.error(message)
}

/// Loads, and tells what is wrong: in the log buffer if there is one, and to whoever watches.
fn load(m: &Machine, text: &str, log: Out<c_char>, room: usize, size: Out<usize>) -> Result<Module> {
    let loaded = m.load_module(current()?, text);
    if let Err(error) = &loaded {
        say(&format!("ptx-emulator: {}", error.message));
        if room > 0 && !log.is_null() {
            let bytes: Vec<c_char> =
                error.message.bytes().take(room - 1).chain([0]).map(|b| b as c_char).collect();
            size.offer(bytes.len());
            log.fill(bytes)?;
        }
    }
    loaded
}

fn plain(m: &Machine, text: &str) -> Result<Module> {
    load(m, text, Out::nowhere(), 0, Out::nowhere())
}

fn file(name: Text) -> Result<String> {
    let name = name.get()?;
    let bytes =
        std::fs::read(&name).map_err(|error| Error::new(Code::FILE_NOT_FOUND, format!("{name}: {error}")))?;
    check_magic(&bytes)?;
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

fn with_options(
    m: &Machine,
    text: &str,
    count: c_uint,
    options: In<c_int>,
    values: In<*mut c_void>,
) -> Result<Module> {
    let options = options.list(count as usize)?;
    let values = values.list(count as usize)?;
    let value =
        |wanted: c_int| options.iter().zip(&values).find(|(option, _)| **option == wanted).map(|(_, v)| *v);
    let log = value(ERROR_LOG).unwrap_or(std::ptr::null_mut());
    // The size stands in the pointer itself, and the bytes used come back in its place.
    let room = value(ERROR_SIZE).unwrap_or(std::ptr::null_mut()) as usize;
    if let (Some(info), Some(room)) = (value(INFO_LOG), value(INFO_SIZE))
        && room as usize > 0
    {
        Out::from(info.cast::<c_char>()).offer(0);
    }
    load(m, text, Out::from(log.cast()), room, Out::nowhere())
}

api! {
    fn cuModuleLoad(m, module: Out<u64>, name: Text) { module.set(plain(m, &file(name)?)?.0) }

    fn cuModuleLoadData(m, module: Out<u64>, start: *const c_void) { module.set(plain(m, &image(start)?)?.0) }

    fn cuModuleLoadDataEx(
        m, module: Out<u64>, start: *const c_void, count: c_uint, options: In<c_int>, values: In<*mut c_void>,
    ) {
        module.set(with_options(m, &image(start)?, count, options, values)?.0)
    }

    fn cuModuleLoadFatBinary(m, _module: Out<u64>, _start: *const c_void) {
        m.check_context(current()?)?;
        Code::NO_BINARY_FOR_GPU.error("a fat binary cannot be emulated; give PTX")
    }

    fn cuModuleUnload(m, module: u64) { m.unload_module(Module(module)) }

    fn cuModuleGetLoadingMode(_m, mode: Out<c_int>) {
        // CU_MODULE_EAGER_LOADING.
        mode.set(1)
    }

    fn cuModuleGetFunction(m, function: Out<u64>, module: u64, name: Text) {
        function.set(m.function(Module(module), &name.get()?)?.0)
    }

    fn cuModuleGetFunctionCount(m, count: Out<c_uint>, module: u64) { count.set(m.functions(Module(module))?.len() as c_uint) }

    fn cuModuleEnumerateFunctions(m, list: Out<u64>, count: c_uint, module: u64) {
        list.fill(m.functions(Module(module))?.into_iter().take(count as usize).map(|(_, function)| function.0))
    }

    fn cuModuleGetGlobal_v2(m, address: Out<u64>, bytes: Out<usize>, module: u64, name: Text) {
        let (start, len) = m.global(Module(module), &name.get()?)?;
        address.offer(start);
        bytes.offer(len as usize);
        Ok(())
    }

    fn cuLibraryLoadData(
        m, library: Out<u64>, start: *const c_void, options: In<c_int>, values: In<*mut c_void>, count: c_uint,
        _library_options: In<c_int>, _library_values: In<*mut c_void>, _library_count: c_uint,
    ) {
        library.set(with_options(m, &image(start)?, count, options, values)?.0)
    }

    fn cuLibraryLoadFromFile(
        m, library: Out<u64>, name: Text, options: In<c_int>, values: In<*mut c_void>, count: c_uint,
        _library_options: In<c_int>, _library_values: In<*mut c_void>, _library_count: c_uint,
    ) {
        library.set(with_options(m, &file(name)?, count, options, values)?.0)
    }

    fn cuLibraryUnload(m, library: u64) { m.unload_module(Module(library)) }

    fn cuLibraryGetKernel(m, kernel: Out<u64>, library: u64, name: Text) {
        kernel.set(m.function(Module(library), &name.get()?)?.0)
    }

    fn cuLibraryGetModule(m, module: Out<u64>, library: u64) { m.functions(Module(library))?; module.set(library) }

    fn cuLibraryGetGlobal(m, address: Out<u64>, bytes: Out<usize>, library: u64, name: Text) {
        let (start, len) = m.global(Module(library), &name.get()?)?;
        address.offer(start);
        bytes.offer(len as usize);
        Ok(())
    }

    fn cuKernelGetFunction(m, function: Out<u64>, kernel: u64) {
        m.function_attribute(crate::runtime::Function(kernel), 0)?;
        function.set(kernel)
    }
}
