//! What every call has in common: the one machine of the process, the current context, the trace, errors, and no panic.
//!
//! The functions are not `unsafe fn`: their pointers are wrapped in types ([`Out`], [`In`], [`Text`]) whose methods check for null and carry the one
//! promise that the C interface is built on, which is the caller's.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use crate::runtime::{Code, Context, Error, Machine, Result, Stream, in_host_function, say};
use crate::settings::Settings;

/// Where a result goes.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

/// Something given by its address.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

/// A string of C.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Text(*const c_char);

// Not derived: that would ask for `T: Copy`.
impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

fn null<T>(what: &str) -> Result<T> {
    Code::INVALID_VALUE.error(format!("{what} is a null pointer"))
}

impl<T> Out<T> {
    /// Writes a result.
    pub(crate) fn set(self, value: T) -> Result<()> {
        if self.0.is_null() {
            return null("the place for a result");
        }
        // SAFETY: the caller of the C interface promises that a result's place is his to write.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Writes a result if it is wanted.
    pub(crate) fn offer(self, value: T) {
        // A null pointer says that it is not wanted.
        let _ = self.set(value);
    }

    /// Writes the first results of a list.
    pub(crate) fn fill(self, values: impl IntoIterator<Item = T>) -> Result<()> {
        for (index, value) in values.into_iter().enumerate() {
            if self.0.is_null() {
                return null("the place for results");
            }
            // SAFETY: as above, for as many results as the caller said there is room for.
            unsafe { self.0.add(index).write(value) };
        }
        Ok(())
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// A result that nobody wants.
    pub(crate) fn nowhere() -> Self {
        Self(std::ptr::null_mut())
    }

    pub(crate) fn from(address: *mut T) -> Self {
        Self(address)
    }

    /// A place whose type another argument tells.
    pub(crate) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

impl<T: Copy> Out<T> {
    /// What stands there: some results are asked for by what is in their place.
    pub(crate) fn get(self) -> Result<T> {
        In(self.0.cast_const()).get()
    }
}

impl<T: Copy> In<T> {
    /// Reads it.
    pub(crate) fn get(self) -> Result<T> {
        if self.0.is_null() {
            return null("an argument");
        }
        // SAFETY: the caller of the C interface promises that an argument is there to read.
        Ok(unsafe { self.0.read() })
    }

    /// Reads `count` of them.
    pub(crate) fn list(self, count: usize) -> Result<Vec<T>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.0.is_null() {
            return null("a list");
        }
        // SAFETY: as above, for as many as the caller said there are.
        Ok((0..count).map(|index| unsafe { self.0.add(index).read() }).collect())
    }

    pub(crate) fn from(address: *const T) -> Self {
        Self(address)
    }
}

impl<T> In<T> {
    /// Something whose type another argument tells.
    pub(crate) fn cast<U>(self) -> In<U> {
        In(self.0.cast())
    }
}

impl Text {
    /// Reads it.
    pub(crate) fn get(self) -> Result<String> {
        if self.0.is_null() {
            return null("a string");
        }
        // SAFETY: the caller of the C interface promises a string that ends.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}

impl<T> fmt::Debug for Out<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}", self.0)
    }
}

impl<T> fmt::Debug for In<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}", self.0)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Ok(text) => write!(f, "{text:?}"),
            Err(_) => f.write_str("null"),
        }
    }
}

static SETTINGS: OnceLock<Result<Settings, String>> = OnceLock::new();
static MACHINE: OnceLock<Machine> = OnceLock::new();

thread_local! {
    /// The current contexts of this thread, the innermost last.
    static CURRENT: RefCell<Vec<Context>> = const { RefCell::new(Vec::new()) };
    /// The call is of the variant whose default stream is the thread's own.
    static PER_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// The settings in the environment, read once.
pub(crate) fn settings() -> Result<&'static Settings> {
    let read = SETTINGS.get_or_init(|| {
        Settings::from_env().map_err(|invalid| {
            say(&invalid.to_string());
            invalid.to_string()
        })
    });
    read.as_ref().map_err(|invalid| Error::new(Code::UNKNOWN, invalid.clone()))
}

/// The machine of this process.
pub(crate) fn machine() -> Result<&'static Machine> {
    MACHINE.get().ok_or_else(|| Error::new(Code::NOT_INITIALIZED, "cuInit was not called"))
}

/// Switches the machine on.
pub(crate) fn initialize() -> Result<&'static Machine> {
    let settings = settings()?;
    if let Some(code) = settings.faults.init {
        return Code(code).error("made to fail by the settings");
    }
    if settings.faults.no_device || settings.devices.is_empty() {
        return Code::NO_DEVICE.error("the settings have no device");
    }
    Ok(MACHINE.get_or_init(|| {
        if settings.stats || settings.check >= crate::settings::Check::On {
            // SAFETY: `at_exit` is a function of this library, which stays loaded: it holds statics and threads.
            let _ = unsafe { atexit(at_exit) };
        }
        Machine::new(settings.clone())
    }))
}

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> c_int;
}

extern "C" fn at_exit() {
    let report = || {
        let Ok(machine) = machine() else { return };
        let settings = machine.settings();
        if settings.check >= crate::settings::Check::On {
            for line in machine.leaks() {
                say(&line);
            }
        }
        if settings.stats {
            say(&format!("ptx-emulator: {:?}", machine.counts()));
        }
    };
    // A report that fails must not take the program's exit with it.
    let _ = catch_unwind(AssertUnwindSafe(report));
}

/// The current context of this thread.
pub(crate) fn current() -> Result<Context> {
    let context = CURRENT.with_borrow(|stack| stack.last().copied());
    context
        .filter(|context| *context != Context(0))
        .ok_or_else(|| Error::new(Code::INVALID_CONTEXT, "no context is current on this thread"))
}

/// Works on the stack of current contexts.
pub(crate) fn with_stack<T>(work: impl FnOnce(&mut Vec<Context>) -> T) -> T {
    CURRENT.with_borrow_mut(work)
}

/// The stream a handle means in this call.
pub(crate) fn stream(handle: u64) -> Stream {
    if handle == 0 && PER_THREAD.get() { Stream::PER_THREAD } else { Stream(handle) }
}

/// Runs a call of the interface.
pub(crate) fn call(
    name: &'static str,
    per_thread: bool,
    arguments: impl FnOnce() -> String,
    body: impl FnOnce(&'static Machine) -> Result<()>,
) -> c_int {
    PER_THREAD.set(per_thread);
    let mut body = Some(body);
    finish(name, &mut once(arguments), &mut || {
        let machine = admitted()?;
        body.take().map_or(Ok(()), |body| body(machine))
    })
}

/// Runs a call that needs no machine.
pub(crate) fn call_always(
    name: &'static str,
    arguments: impl FnOnce() -> String,
    body: impl FnOnce() -> Result<()>,
) -> c_int {
    let mut body = Some(body);
    finish(name, &mut once(arguments), &mut || body.take().map_or(Ok(()), |body| body()))
}

/// The machine, if this thread may call it now and the device is not lost.
fn admitted() -> Result<&'static Machine> {
    let machine = machine()?;
    in_host_function()?;
    let count = machine.called();
    if let Some(lost) = machine.settings().faults.lost.filter(|lost| lost.strikes(count)) {
        return Code(lost.code).error("the device is lost: the settings want it");
    }
    Ok(machine)
}

fn once<T: Default>(f: impl FnOnce() -> T) -> impl FnMut() -> T {
    let mut f = Some(f);
    move || f.take().map(|f| f()).unwrap_or_default()
}

/// What all calls have in common; not generic, since there are hundreds of them.
fn finish(
    name: &'static str,
    arguments: &mut dyn FnMut() -> String,
    run: &mut dyn FnMut() -> Result<()>,
) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|_| Code::UNKNOWN.error("the emulator itself failed; please report it"));
    // Settings that make no sense have no trace either.
    if settings().is_ok_and(|settings| settings.trace) {
        let arguments = catch_unwind(AssertUnwindSafe(arguments)).unwrap_or_default();
        match &result {
            Ok(()) => say(&format!("ptx-emulator: {name}({arguments})")),
            Err(error) => say(&format!("ptx-emulator: {name}({arguments}) = {} {error}", error.code.0)),
        }
    }
    match result {
        Ok(()) => 0,
        Err(error) => {
            LAST_ERROR.with_borrow_mut(|last| *last = error.message);
            error.code.0
        }
    }
}

thread_local! {
    static LAST_ERROR: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The sentence of this thread's last error.
pub(crate) fn last_error() -> String {
    LAST_ERROR.with_borrow(Clone::clone)
}

/// A function by its name, for `cuGetProcAddress`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    pub(crate) name: &'static str,
    pub(crate) address: *const c_void,
}

// SAFETY: the address of a function is the same for every thread.
unsafe impl Sync for Symbol {}

/// Defines functions of the C interface and a table of them. `fn name | name_ptsz (…)` defines both variants of the default stream.
macro_rules! api {
    ($($(#[$attribute:meta])* fn $name:ident $(| $variant:ident)? ($($arguments:tt)*) $body:block)*) => {
        $(
            $crate::driver::entry::export!([$name $($variant)?] {$(#[$attribute])*} ($($arguments)*) $body);
        )*

        /// What this file defines.
        pub(crate) static SYMBOLS: &[$crate::driver::entry::Symbol] = &[
            $(
                $crate::driver::entry::Symbol { name: stringify!($name), address: $name as *const std::ffi::c_void },
                $($crate::driver::entry::Symbol { name: stringify!($variant), address: $variant as *const std::ffi::c_void },)?
            )*
        ];
    };
}

/// One function of [`api`], or both variants.
macro_rules! export {
    ([$name:ident] {$(#[$attribute:meta])*} $arguments:tt $body:block) => {
        $crate::driver::entry::export!($(#[$attribute])* $name false $arguments $body);
    };
    ([$name:ident $variant:ident] {$(#[$attribute:meta])*} $arguments:tt $body:block) => {
        $crate::driver::entry::export!($(#[$attribute])* $name false $arguments $body);
        $crate::driver::entry::export!($(#[$attribute])* $variant true $arguments $body);
    };
    ($(#[$attribute:meta])* $name:ident $per_thread:literal ($machine:ident $(, $arg:ident: $ty:ty)* $(,)?) $body:block) => {
        $(#[$attribute])*
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $ty),*) -> std::ffi::c_int {
            #[allow(unused_mut)]
            let arguments = || {
                let mut text = String::new();
                $(text += &format!("{}{}={:x?}", if text.is_empty() { "" } else { ", " }, stringify!($arg), $arg);)*
                text
            };
            $crate::driver::entry::call(stringify!($name), $per_thread, arguments, |$machine| $body)
        }
    };
}
pub(crate) use {api, export};
