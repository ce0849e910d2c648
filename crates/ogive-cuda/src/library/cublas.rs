//! cuBLAS: one product of it, as the measure of what a device's matrix units give.
//!
//! Loaded when it is asked for and not with the backend: it is hundreds of megabytes that few runs want. Its interface here is six
//! functions that have not changed since CUDA 11, so they are declared and not bound to a version.
#![allow(unsafe_code)]

use super::search::{self, Kind, Places};
use super::{driver, missing};
use crate::driver::{Address, Stream};
use crate::error::{Error, Result};
use libloading::Library;
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

type Handle = *mut c_void;

/// `CUDA_R_16BF`
const BF16: c_int = 14;
/// `CUBLAS_COMPUTE_32F`
const COMPUTE_32F: c_int = 68;
/// `CUBLAS_GEMM_DEFAULT`
const DEFAULT: c_int = -1;
/// `CUBLAS_OP_N`
const PLAIN: c_int = 0;
/// `CUBLAS_OP_T`
const TRANSPOSED: c_int = 1;

type Gemm = unsafe extern "C" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const c_void,
    Address,
    c_int,
    c_int,
    Address,
    c_int,
    c_int,
    *const c_void,
    Address,
    c_int,
    c_int,
    c_int,
    c_int,
) -> c_int;

struct Functions {
    destroy: unsafe extern "C" fn(Handle) -> c_int,
    stream: unsafe extern "C" fn(Handle, *mut c_void) -> c_int,
    gemm: Gemm,
    // Never closed: what a library started at its opening may outlive whoever opened it.
    _library: ManuallyDrop<Library>,
}

/// cuBLAS on a device.
pub(crate) struct Cublas {
    f: Functions,
    handle: Handle,
    /// Where it was found.
    pub(crate) path: PathBuf,
    /// Its version, major, minor and patch.
    pub(crate) version: [u32; 3],
}

impl std::fmt::Debug for Cublas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cublas")
            .field("path", &self.path)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

fn failed(doing: &str, status: c_int) -> Error {
    Error::Library { library: "cuBLAS", why: format!("{doing}: it returned status {status}") }
}

fn check(doing: &str, status: c_int) -> Result<()> {
    if status == 0 { Ok(()) } else { Err(failed(doing, status)) }
}

impl Cublas {
    /// The newest there is that this build may load and the driver takes, started for the device of `stream`.
    pub(crate) fn find(stream: &Stream) -> Result<Self> {
        let (places, (driver, _)) = (Places::here(), driver()?);
        let mut candidates = places.candidates(Kind::Cublas);
        candidates.retain(|c| c.generation == 0 || c.generation <= driver.version.0);
        candidates.sort_by_key(|c| std::cmp::Reverse(c.generation));
        let mut why = None;
        for candidate in candidates {
            let Ok(library) = candidate.open() else { continue };
            match Self::start(library, &candidate.path, stream) {
                Ok(mut found) if search::allowed(found.version[0]) => {
                    found.path = candidate.loaded_from();
                    return Ok(found);
                }
                Ok(found) => {
                    let text = format!(
                        "{} is of CUDA {}, which this build leaves out",
                        found.path.display(),
                        found.version[0]
                    );
                    why = Some(Error::Library { library: "cuBLAS", why: text });
                }
                Err(e) => why = Some(e),
            }
        }
        Err(why.unwrap_or_else(|| missing(Kind::Cublas, &places)))
    }

    fn start(library: Library, path: &Path, stream: &Stream) -> Result<Self> {
        let absent = |e: libloading::Error| Error::Library {
            library: "cuBLAS",
            why: format!("{} is no cuBLAS of CUDA 11 or newer ({e})", path.display()),
        };
        // SAFETY: each field has the type that cuBLAS's documentation has for its symbol, and the table that holds them keeps the
        // library open.
        let (create, version, f) = unsafe {
            let create: unsafe extern "C" fn(*mut Handle) -> c_int =
                *library.get(b"cublasCreate_v2\0").map_err(absent)?;
            let version: unsafe extern "C" fn(Handle, *mut c_int) -> c_int =
                *library.get(b"cublasGetVersion_v2\0").map_err(absent)?;
            let f = Functions {
                destroy: *library.get(b"cublasDestroy_v2\0").map_err(absent)?,
                stream: *library.get(b"cublasSetStream_v2\0").map_err(absent)?,
                gemm: *library.get(b"cublasGemmEx\0").map_err(absent)?,
                _library: ManuallyDrop::new(library),
            };
            (create, version, f)
        };
        let (lent, mut handle) = (stream.lend()?, null_mut());
        // SAFETY: the handle is written to a pointer on the stack; the context it belongs to is current.
        check("starting cuBLAS", unsafe { create(&raw mut handle) })?;
        let mut blas = Self { f, handle, path: path.to_owned(), version: [0; 3] };
        // SAFETY: the handle was just made, and the stream outlives it: both are the device's.
        check("giving cuBLAS a stream", unsafe { (blas.f.stream)(blas.handle, lent) })?;
        let mut number = 0;
        // SAFETY: the version is written to a number on the stack.
        check("asking cuBLAS for its version", unsafe { version(blas.handle, &raw mut number) })?;
        let number = u32::try_from(number).unwrap_or(0);
        // Until 11 the major is worth 1000 of these, from then on 10000.
        let major = if number >= 100_000 { number / 10_000 } else { number / 1000 };
        blas.version = [major, number / 100 % 100, number % 100];
        Ok(blas)
    }

    /// Queues `c = a · bᵀ` of bfloat16 numbers, row-major: `[n, k] · [m, k]ᵀ -> [n, m]`, sums in single precision.
    pub(crate) fn bf16(&self, stream: &Stream, [n, m, k]: [c_int; 3], at: [Address; 3]) -> Result<()> {
        stream.lend()?;
        let ([a, b, c], one, zero) = (at, 1f32, 0f32);
        // SAFETY: cuBLAS counts in columns, so the transposed product is asked for; both factors are read now, from the stack, and
        // the matrices are device memory that the caller keeps until the stream has done it.
        let status = unsafe {
            (self.f.gemm)(
                self.handle,
                TRANSPOSED,
                PLAIN,
                m,
                n,
                k,
                (&raw const one).cast(),
                b,
                BF16,
                k,
                a,
                BF16,
                k,
                (&raw const zero).cast(),
                c,
                BF16,
                m,
                COMPUTE_32F,
                DEFAULT,
            )
        };
        check("multiplying with cuBLAS", status)
    }
}

impl Drop for Cublas {
    fn drop(&mut self) {
        // SAFETY: made once by `start`; it waits for its own work.
        unsafe { (self.f.destroy)(self.handle) };
    }
}
