//! The CUDA driver: the only folder that names cudarc, and all of the driver that this crate uses. `handles` wraps what it gives out.
//!
//! cudarc gives the types; the functions are looked up here, one by one, in the library that was found. cudarc's own look-up
//! panics where a library or a symbol is missing, and its result type is an enum of the binding's version, while a newer driver
//! may return numbers that enum does not know. Here a missing symbol is an error and a result is a number.
//!
//! Handles own what they stand for and give it back when dropped; failures of giving back are nobody's news. Device memory is
//! reached by address only, never by reference, so nothing a kernel does to it can break a rule of Rust's.
#![allow(unsafe_code)]

mod graphs;
mod handles;
mod overlap;
mod peers;
mod recent;
mod timing;
mod unified;

pub(crate) use graphs::Recorded;
pub(crate) use handles::{Event, Extent, Function, Image, Pinned, Stream};
pub(crate) use timing::Mark;

use crate::error::{Error, Result, is_lost};
use crate::library::told;
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction, CUfunction_attribute,
    CUmodule, CUstream,
};

use libloading::Library;
use recent::Recent;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// Where something lies in device memory.
pub(crate) type Address = CUdeviceptr;

/// Declares the table of functions, each returning the driver's number.
macro_rules! functions {
    ($($field:ident = $symbol:literal ($($ty:ty),*);)*) => {
        struct Functions {
            $($field: unsafe extern "C" fn($($ty),*) -> u32,)*
            graphs: Option<graphs::Functions>,
            overlap: Option<overlap::Launch>,
            peers: Option<peers::Functions>,
            elapsed: Option<timing::Elapsed>,
            // Never closed: what a library started at its opening may outlive whoever opened it.
            _library: ManuallyDrop<Library>,
        }

        impl Functions {
            fn of(library: Library, path: &Path) -> Result<Self> {
                Ok(Self {
                    $($field: {
                        // SAFETY: the type is the one that NVIDIA's driver API documents for this symbol, and the library
                        // that the pointer leads into stays open as long as the table that holds it.
                        let found = unsafe { library.get::<unsafe extern "C" fn($($ty),*) -> u32>($symbol) };
                        *found.map_err(|e| Error::Library {
                            library: "CUDA driver",
                            why: format!("{} is no driver of CUDA 11 or newer ({}); update the driver", path.display(), told(path, &e)),
                        })?
                    },)*
                    graphs: graphs::Functions::of(&library),
                    overlap: overlap::launch(&library),
                    peers: peers::Functions::of(&library),
                    elapsed: timing::elapsed(&library),
                    _library: ManuallyDrop::new(library),
                })
            }
        }
    };
}

functions! {
    init = b"cuInit\0" (c_uint);
    version = b"cuDriverGetVersion\0" (*mut c_int);
    error_name = b"cuGetErrorName\0" (u32, *mut *const c_char);
    device_count = b"cuDeviceGetCount\0" (*mut c_int);
    device_get = b"cuDeviceGet\0" (*mut CUdevice, c_int);
    device_name = b"cuDeviceGetName\0" (*mut c_char, c_int, CUdevice);
    device_memory = b"cuDeviceTotalMem_v2\0" (*mut usize, CUdevice);
    device_attribute = b"cuDeviceGetAttribute\0" (*mut c_int, c_uint, CUdevice);
    context_retain = b"cuDevicePrimaryCtxRetain\0" (*mut CUcontext, CUdevice);
    context_release = b"cuDevicePrimaryCtxRelease_v2\0" (CUdevice);
    context_set = b"cuCtxSetCurrent\0" (CUcontext);
    memory_info = b"cuMemGetInfo_v2\0" (*mut usize, *mut usize);
    memory_allocate = b"cuMemAlloc_v2\0" (*mut CUdeviceptr, usize);
    memory_free = b"cuMemFree_v2\0" (CUdeviceptr);
    pinned_allocate = b"cuMemHostAlloc\0" (*mut *mut c_void, usize, c_uint);
    pinned_free = b"cuMemFreeHost\0" (*mut c_void);
    copy_in = b"cuMemcpyHtoDAsync_v2\0" (CUdeviceptr, *const c_void, usize, CUstream);
    copy_out = b"cuMemcpyDtoHAsync_v2\0" (*mut c_void, CUdeviceptr, usize, CUstream);
    copy_within = b"cuMemcpyDtoDAsync_v2\0" (CUdeviceptr, CUdeviceptr, usize, CUstream);
    fill = b"cuMemsetD8Async\0" (CUdeviceptr, u8, usize, CUstream);
    stream_create = b"cuStreamCreate\0" (*mut CUstream, c_uint);
    stream_wait = b"cuStreamSynchronize\0" (CUstream);
    stream_destroy = b"cuStreamDestroy_v2\0" (CUstream);
    event_create = b"cuEventCreate\0" (*mut CUevent, c_uint);
    event_record = b"cuEventRecord\0" (CUevent, CUstream);
    event_wait = b"cuEventSynchronize\0" (CUevent);
    event_destroy = b"cuEventDestroy_v2\0" (CUevent);
    module_load = b"cuModuleLoadData\0" (*mut CUmodule, *const c_void);
    module_unload = b"cuModuleUnload\0" (CUmodule);
    module_function = b"cuModuleGetFunction\0" (*mut CUfunction, CUmodule, *const c_char);
    function_get = b"cuFuncGetAttribute\0" (*mut c_int, c_uint, CUfunction);
    function_set = b"cuFuncSetAttribute\0" (CUfunction, c_uint, c_int);
    launch = b"cuLaunchKernel\0" (CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void, *mut *mut c_void);
}

/// Shared memory that every device grants without asking: to what a kernel declares and what its launch adds, together.
const GRANTED: u32 = 48 << 10;
/// The number of the attribute that tells what a kernel declares.
const DECLARED_SHARED: c_uint = CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES as c_uint;
/// The number of the attribute that grants a kernel more.
const DYNAMIC_SHARED: c_uint =
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as c_uint;
/// That of the one that splits what L1 and shared memory have together.
const CARVEOUT: c_uint = CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT as c_uint;

/// The number of the attribute of a device whose memory is the machine's own.
const INTEGRATED: c_uint = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED as c_uint;

/// A driver that was found and started.
pub(crate) struct Driver {
    f: Functions,
    /// The CUDA version the driver knows, major and minor.
    pub(crate) version: (u32, u32),
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("version", &self.version).finish_non_exhaustive()
    }
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its number among the visible ones.
    pub number: usize,
    /// What its maker calls it.
    pub name: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of shared memory a block may have where it asks for them.
    pub shared_memory: u32,
    /// Bytes of its L2 cache; 0 where the driver does not say.
    pub l2_cache: u32,
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (gib, (major, minor)) = (self.memory as f64 / f64::from(1 << 30), self.capability);
        write!(f, "{}, {gib:.0} GiB, sm_{major}{minor}", self.name)
    }
}

/// The driver's own version, such as 580.65.06, where the system says it: its interface knows only CUDA's.
pub(crate) fn release() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    let number = |word: &&str| word.contains('.') && word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    line.split_whitespace().find(number).map(str::to_owned)
}

impl Driver {
    /// Starts the driver of this library.
    pub(crate) fn start(library: Library, path: &Path) -> Result<Arc<Self>> {
        let mut driver = Self { f: Functions::of(library, path)?, version: (0, 0) };
        // SAFETY: starting takes no pointers, and the version is written to a number on the stack.
        let (started, mut version) = (unsafe { (driver.f.init)(0) }, 0);
        driver.check(|| format!("starting the CUDA driver {}", path.display()), started)?;
        // SAFETY: as above.
        let asked = unsafe { (driver.f.version)(&raw mut version) };
        driver.check(|| "asking the CUDA driver for its version".into(), asked)?;
        let version = u32::try_from(version).unwrap_or(0);
        driver.version = (version / 1000, version % 1000 / 10);
        Ok(Arc::new(driver))
    }

    fn check(&self, doing: impl FnOnce() -> String, code: u32) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let mut name = std::ptr::null();
        // SAFETY: the driver writes a pointer to a text of its own, which lives as long as it is loaded.
        let known = unsafe { (self.f.error_name)(code, &raw mut name) } == 0 && !name.is_null();
        let name = match known {
            // SAFETY: the driver said that it wrote a text.
            true => unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
            false => "an error that this driver has no name for".into(),
        };
        Err(Error::Driver { doing: doing(), code, name, queued: String::new() })
    }

    /// How many devices are visible.
    pub(crate) fn devices(&self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: the count is written to a number on the stack.
        let code = unsafe { (self.f.device_count)(&raw mut count) };
        self.check(|| "counting CUDA devices".into(), code)?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    fn handle(&self, number: usize) -> Result<CUdevice> {
        let found = self.devices()?;
        let none = Error::NoDevice { asked: number, found };
        let ordinal = c_int::try_from(number).ok().filter(|_| number < found).ok_or(none)?;
        let mut device = 0;
        // SAFETY: the handle is written to a number on the stack.
        let code = unsafe { (self.f.device_get)(&raw mut device, ordinal) };
        self.check(|| format!("opening cuda:{number}"), code)?;
        Ok(device)
    }

    /// What device `number` is.
    pub(crate) fn info(&self, number: usize) -> Result<DeviceInfo> {
        let (device, doing) = (self.handle(number)?, || format!("asking what cuda:{number} is"));
        let (mut name, mut memory) = ([0 as c_char; 256], 0);
        // SAFETY: the name is written to a buffer whose length, but for a zero at its end, goes with it.
        self.check(doing, unsafe { (self.f.device_name)(name.as_mut_ptr(), 255, device) })?;
        // SAFETY: the size is written to a number on the stack.
        self.check(doing, unsafe { (self.f.device_memory)(&raw mut memory, device) })?;
        let attribute = |which: CUdevice_attribute| {
            let mut value = 0;
            // SAFETY: the value is written to a number on the stack.
            let code = unsafe { (self.f.device_attribute)(&raw mut value, which as c_uint, device) };
            self.check(doing, code).map(|()| u32::try_from(value).unwrap_or(0))
        };
        use CUdevice_attribute as A;
        Ok(DeviceInfo {
            number,
            // SAFETY: the buffer ends with a zero that the driver was not told of.
            name: unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned(),
            memory: memory as u64,
            capability: (
                attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            shared_memory: attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
                .unwrap_or(GRANTED)
                .max(GRANTED),
            l2_cache: attribute(A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE).unwrap_or(0),
        })
    }
}

/// A device's primary context, which other libraries in the process use too.
#[derive(Debug)]
pub(crate) struct Context {
    driver: Arc<Driver>,
    device: CUdevice,
    raw: CUcontext,
    recent: Recent,
    /// Hundredths of a multiprocessor's L1 and shared memory that kernels ask for as shared memory.
    shared: AtomicI32,
    /// Whether the device's memory is the machine's own.
    unified: bool,
}

// SAFETY: the driver's handles may be used from any thread; every use makes the context current first.
unsafe impl Send for Context {}
// SAFETY: as above; the driver locks inside.
unsafe impl Sync for Context {}

impl Context {
    /// The context of device `number`.
    pub(crate) fn new(driver: Arc<Driver>, number: usize) -> Result<Arc<Self>> {
        let (device, mut raw) = (driver.handle(number)?, null_mut());
        // SAFETY: the handle is written to a pointer on the stack, and released once, when this is dropped.
        let code = unsafe { (driver.f.context_retain)(&raw mut raw, device) };
        driver.check(|| format!("making a context on cuda:{number}"), code)?;
        let mut integrated = 0;
        // SAFETY: the value is written to a number on the stack.
        let asked = unsafe { (driver.f.device_attribute)(&raw mut integrated, INTEGRATED, device) };
        // Where the driver does not say, its figures count.
        let unified = asked == 0 && integrated != 0;
        let shared = AtomicI32::new(handles::ALL_KERNELS);
        Ok(Arc::new(Self { driver, device, raw, recent: Recent::default(), shared, unified }))
    }

    /// All of what L1 and shared memory have together is shared memory from now on, for kernels that are loaded from now on.
    pub(crate) fn prefer_shared(&self) {
        self.shared.store(handles::LARGE_BLOCKS, Relaxed);
    }

    /// The functions, with the context current in this thread.
    fn enter(&self, doing: impl FnOnce() -> String) -> Result<&Functions> {
        // SAFETY: the context is retained as long as this lives.
        let code = unsafe { (self.driver.f.context_set)(self.raw) };
        self.check(doing, code)?;
        Ok(&self.driver.f)
    }

    /// An error unless `code` is none. One of a device that failed in the middle of its work names what it had to do, as the driver does not.
    fn check(&self, doing: impl FnOnce() -> String, code: u32) -> Result<()> {
        self.driver.check(doing, code).map_err(|e| match e {
            Error::Driver { doing, code, name, .. } if is_lost(code) => {
                Error::Driver { doing, code, name, queued: self.recent.to_string() }
            }
            e => e,
        })
    }

    /// Bytes of memory: free, and altogether.
    pub(crate) fn memory(&self) -> Result<(u64, u64)> {
        let doing = || "asking how much device memory is free".to_owned();
        let (f, mut free, mut total) = (self.enter(doing)?, 0, 0);
        // SAFETY: both sizes are written to numbers on the stack.
        let code = unsafe { (f.memory_info)(&raw mut free, &raw mut total) };
        self.check(doing, code)?;
        let (free, total) = (free as u64, total as u64);
        Ok((if self.unified { unified::free(free, total) } else { free }, total))
    }

    /// Takes device memory; [`free`](Self::free) gives it back.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<Address> {
        let doing = || format!("taking {bytes} bytes of device memory");
        let (f, mut address) = (self.enter(doing)?, 0);
        // SAFETY: the address is written to a number on the stack.
        let code = unsafe { (f.memory_allocate)(&raw mut address, bytes) };
        self.check(doing, code)?;
        Ok(address)
    }

    /// Gives device memory back, after what still uses it.
    pub(crate) fn free(&self, address: Address) {
        if let Ok(f) = self.enter(String::new) {
            // SAFETY: an address that was not given out is an error to the driver and nothing else.
            unsafe { (f.memory_free)(address) };
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once by `new`.
        unsafe { (self.driver.f.context_release)(self.device) };
    }
}
