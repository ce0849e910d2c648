//! A device, a stream and a module, and launches with their arguments in a list.
//!
//! cudarc's builder takes arguments one by one and by reference; the tests want a line for each launch. Events that cudarc records
//! behind the scenes are off: what a test does not order shall not be ordered.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::collections::hash_map::DefaultHasher;
use std::ffi::c_void;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaModule, CudaSlice, CudaStream, DevicePtr, DeviceRepr, DriverError, LaunchConfig,
    PushKernelArg, ValidAsZeroBits, sys,
};

/// An argument of a kernel. It borrows the slice it points to, so that none is given back before the launch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arg<'a> {
    Long(u64),
    Word(u32),
    Pointer(u64, PhantomData<&'a ()>),
}

impl<'a, T> From<&'a CudaSlice<T>> for Arg<'a> {
    fn from(slice: &'a CudaSlice<T>) -> Self {
        Self::Pointer(address(slice), PhantomData)
    }
}

impl From<u64> for Arg<'_> {
    fn from(value: u64) -> Self {
        Self::Long(value)
    }
}

impl From<i32> for Arg<'_> {
    fn from(value: i32) -> Self {
        Self::Word(value.cast_unsigned())
    }
}

impl From<u32> for Arg<'_> {
    fn from(value: u32) -> Self {
        Self::Word(value)
    }
}

impl From<f32> for Arg<'_> {
    fn from(value: f32) -> Self {
        Self::Word(value.to_bits())
    }
}

/// Arguments of a launch.
macro_rules! args {
    ($($arg:expr),* $(,)?) => { &[$($crate::support::Arg::from($arg)),*] };
}
pub(crate) use args;

/// Where a slice begins on the device.
pub(crate) fn address<T>(slice: &CudaSlice<T>) -> u64 {
    slice.device_ptr(slice.stream()).0
}

/// A device with what is needed to use it.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub(crate) context: Arc<CudaContext>,
    pub(crate) stream: Arc<CudaStream>,
    module: Option<Arc<CudaModule>>,
    promised: Cell<u64>,
}

impl Gpu {
    /// The device of architecture `arch`, or else the first above it.
    pub(crate) fn open(arch: u32) -> Self {
        let count = CudaContext::device_count().unwrap();
        let mut best: Option<(u32, Arc<CudaContext>)> = None;
        for ordinal in 0..usize::try_from(count).unwrap() {
            let context = CudaContext::new(ordinal).unwrap();
            let (major, minor) = context.compute_capability().unwrap();
            let capability = u32::try_from(major * 10 + minor).unwrap();
            if capability >= arch && best.as_ref().is_none_or(|(least, _)| capability < *least) {
                best = Some((capability, context));
            }
        }
        let (_, context) = best.unwrap_or_else(|| panic!("no device for sm_{arch} among {count}"));
        // SAFETY: the tests order their work by one stream, or by events of their own.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().unwrap();
        Self { context, stream, module: None, promised: Cell::new(0) }
    }

    /// The same with a module.
    pub(crate) fn with(mut self, ptx: &str) -> Self {
        self.module = Some(self.context.load_module(ptx.into()).unwrap());
        self
    }

    /// Another stream on the same device and module.
    pub(crate) fn other_stream(&self) -> Self {
        self.on(self.context.new_stream().unwrap())
    }

    /// The same device and module with this stream.
    pub(crate) fn on(&self, stream: Arc<CudaStream>) -> Self {
        let (context, module) = (Arc::clone(&self.context), self.module.clone());
        Self { context, stream, module, promised: Cell::new(0) }
    }

    pub(crate) fn module(&self) -> &Arc<CudaModule> {
        self.module.as_ref().unwrap()
    }

    pub(crate) fn up<T: DeviceRepr>(&self, values: &[T]) -> CudaSlice<T> {
        self.stream.clone_htod(values).unwrap()
    }

    pub(crate) fn zeros<T: DeviceRepr + ValidAsZeroBits>(&self, len: usize) -> CudaSlice<T> {
        self.stream.alloc_zeros(len).unwrap()
    }

    /// Memory nothing was written to.
    pub(crate) fn fresh<T: DeviceRepr>(&self, len: usize) -> CudaSlice<T> {
        // SAFETY: the elements are plain numbers, for which every bit pattern is one.
        unsafe { self.stream.alloc(len) }.unwrap()
    }

    pub(crate) fn down<T: DeviceRepr + Clone>(&self, slice: &CudaSlice<T>) -> Vec<T> {
        let values = self.stream.clone_dtoh(slice).unwrap();
        self.stream.synchronize().unwrap();
        values
    }

    /// Launches and waits; any error is the test's end.
    #[track_caller]
    pub(crate) fn run(&self, kernel: &str, grid: u32, block: u32, shared: u32, args: &[Arg<'_>]) {
        self.launch(kernel, (grid, 1, 1), (block, 1, 1), shared, args);
    }

    /// Launches on the stream.
    #[track_caller]
    pub(crate) fn launch(
        &self,
        kernel: &str,
        grid: (u32, u32, u32),
        block: (u32, u32, u32),
        shared: u32,
        args: &[Arg<'_>],
    ) {
        self.try_launch(kernel, grid, block, shared, args, false).unwrap();
    }

    /// Launches on the stream, all blocks at once if `cooperative`.
    pub(crate) fn try_launch(
        &self,
        kernel: &str,
        grid: (u32, u32, u32),
        block: (u32, u32, u32),
        shared: u32,
        args: &[Arg<'_>],
        cooperative: bool,
    ) -> Result<(), DriverError> {
        let function = self.module().load_function(kernel)?;
        if shared > 48 << 10 {
            use sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as SHARED;
            function.set_attribute(SHARED, i32::try_from(shared).unwrap())?;
        }
        let mut builder = self.stream.launch_builder(&function);
        for arg in args {
            match arg {
                Arg::Long(value) | Arg::Pointer(value, _) => builder.arg(value),
                Arg::Word(value) => builder.arg(value),
            };
        }
        let config = LaunchConfig { grid_dim: grid, block_dim: block, shared_mem_bytes: shared };
        // SAFETY: what the kernel does with its arguments is what is tested; the emulator keeps to its own memory.
        let launched =
            unsafe { if cooperative { builder.launch_cooperative(config) } else { builder.launch(config) } };
        launched.map(|_| ())
    }

    /// Launches so that the kernel may start before the one ahead of it in the stream is done (`griddepcontrol`).
    pub(crate) fn launch_dependent(&self, kernel: &str, grid: u32, block: u32, args: &[Arg<'_>]) {
        let function = self.module().load_function(kernel).unwrap();
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: grid,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: block,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: self.stream.cu_stream(),
            attrs: &raw mut attribute,
            numAttrs: 1,
        };
        let mut values: Vec<u64> = args
            .iter()
            .map(|arg| match arg {
                Arg::Long(value) | Arg::Pointer(value, _) => *value,
                Arg::Word(value) => (*value).into(),
            })
            .collect();
        let mut pointers: Vec<*mut c_void> =
            values.iter_mut().map(|value| (&raw mut *value).cast()).collect();
        // SAFETY: everything pointed to lives until the call returns; a word is the lower half of its long.
        unsafe {
            sys::cuLaunchKernelEx(
                &raw const config,
                function.cu_function(),
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
        .result()
        .unwrap();
    }

    /// Says that these values depend on nothing but the inputs.
    pub(crate) fn promise<T: Bits>(&self, values: &[T]) {
        let mut hasher = DefaultHasher::new();
        self.promised.get().hash(&mut hasher);
        for value in values {
            value.bits().hash(&mut hasher);
        }
        self.promised.set(hasher.finish());
    }

    pub(crate) fn promised(&self) -> u64 {
        self.promised.get()
    }
}

/// Values that are compared by their bits.
pub(crate) trait Bits {
    fn bits(&self) -> u64;
}

impl Bits for f32 {
    fn bits(&self) -> u64 {
        self.to_bits().into()
    }
}

impl Bits for i32 {
    fn bits(&self) -> u64 {
        self.cast_unsigned().into()
    }
}

impl Bits for u32 {
    fn bits(&self) -> u64 {
        (*self).into()
    }
}

impl Bits for u64 {
    fn bits(&self) -> u64 {
        *self
    }
}
