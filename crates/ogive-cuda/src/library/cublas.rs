//! cuBLAS: one product of it, for many rows, and as the measure of what a device's matrix units give.
//!
//! Loaded when it is asked for and not with the backend: it is hundreds of megabytes that few runs want. Its interface here is eight
//! functions that have not changed since CUDA 11, so they are declared and not bound to a version.
#![allow(unsafe_code)]

use super::advice::left_out;
use super::nvrtc::Wanted;
use super::search::{Candidate, Kind, Places, keep_beside, told};
use super::{cublas_files, unfit};
use crate::driver::{Address, Context, Stream};
use crate::error::{Error, Result};
use libloading::Library;
use std::cmp::Reverse;
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::Arc;

type Handle = *mut c_void;

/// What a matrix is of: `CUDA_R_32F`, `CUDA_R_16F`, `CUDA_R_16BF`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    F32 = 0,
    F16 = 2,
    Bf16 = 14,
}

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
    workspace: unsafe extern "C" fn(Handle, Address, usize) -> c_int,
    gemm: Gemm,
    // Never closed: what a library started at its opening may outlive whoever opened it.
    _library: ManuallyDrop<Library>,
}

/// A product `c = a · bᵀ`, row-major: `[n, k] · [m, k]ᵀ -> [n, m]`, sums in single precision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    /// `n`, `m` and `k`.
    pub(crate) sizes: [c_int; 3],
    /// What `a` and `b` are of.
    pub(crate) from: Element,
    /// What `c` is of.
    pub(crate) to: Element,
    /// Where `a`, `b` and `c` begin.
    pub(crate) at: [Address; 3],
    /// Elements from one of their rows to the next.
    pub(crate) pitches: [c_int; 3],
}

/// cuBLAS on a device.
pub(crate) struct Cublas {
    f: Functions,
    handle: Handle,
    context: Arc<Context>,
    /// Where it was found.
    pub(crate) path: PathBuf,
    /// Its version, major, minor and patch.
    pub(crate) version: [u32; 3],
}

// SAFETY: a handle may be used from any thread, by one at a time; it is not `Sync`, and whoever shares it locks.
unsafe impl Send for Cublas {}

impl std::fmt::Debug for Cublas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cublas")
            .field("path", &self.path)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// The function that starts it, which every version has.
const CREATE: &[u8] = b"cublasCreate_v2\0";

/// Opens it, and before it the library that most of it is in.
fn open(candidate: &Candidate) -> Result<Library, String> {
    let name = candidate.path.file_name().unwrap_or_default().to_string_lossy();
    if let Some(generation) = name.strip_prefix("libcublas.so.") {
        keep_beside(&candidate.path, &format!("libcublasLt.so.{generation}"))?;
    }
    candidate.open()
}

/// Why the library at `path` is none.
fn none(path: &Path, e: &libloading::Error) -> String {
    format!("{} is no cuBLAS of CUDA 11 or newer ({})", path.display(), told(path, e))
}

fn failed(doing: &str, status: c_int) -> Error {
    Error::Library { library: "cuBLAS", why: format!("{doing}: it returned status {status}") }
}

fn check(doing: &str, status: c_int) -> Result<()> {
    if status == 0 { Ok(()) } else { Err(failed(doing, status)) }
}

impl Cublas {
    /// The newest there is that this build may load and the driver takes, of those where the user says before all others, started for the device
    /// of `stream`. One that does not start is started once more after `make_room`, as it takes device memory.
    pub(crate) fn find(stream: &Stream, wanted: Wanted, make_room: &dyn Fn()) -> Result<Self> {
        let (places, driver) = (Places::here(), wanted.driver);
        let (_, mut refused) = cublas_files(&places, driver);
        let mut candidates = places.candidates(Kind::Cublas);
        candidates.retain(|c| c.generation <= driver.0);
        candidates.sort_by_key(|c| (!places.is_named(&c.path), Reverse(c.generation)));
        for candidate in candidates {
            let started = match open(&candidate) {
                Ok(library) => Self::start(library, &candidate.loaded_from(), stream, make_room),
                Err(_) if !candidate.is_file() => continue,
                Err(why) => Err(Error::Library { library: "cuBLAS", why }),
            };
            let why = match started {
                Ok(found) if places.allows(found.version[0]) => return Ok(found),
                Ok(found) => left_out(&found.path, found.version[0], &places),
                Err(Error::Library { why, .. }) => why,
                Err(e) => e.to_string(),
            };
            if !refused.contains(&why) {
                refused.push(why);
            }
        }
        Err(unfit(Kind::Cublas, &places, Some(wanted), &refused))
    }

    /// Opens the file and starts nothing; why it is no cuBLAS, in a sentence, where it is none.
    pub(super) fn look(path: &Path) -> Result<(), String> {
        let library = ManuallyDrop::new(open(&Candidate::new(path.into(), 0))?);
        // SAFETY: the function is looked for and not called.
        let found = unsafe { library.get::<unsafe extern "C" fn(*mut Handle) -> c_int>(CREATE) };
        found.map(drop).map_err(|e| none(path, &e))
    }

    fn start(library: Library, path: &Path, stream: &Stream, make_room: &dyn Fn()) -> Result<Self> {
        let absent = |e: libloading::Error| Error::Library { library: "cuBLAS", why: none(path, &e) };
        // SAFETY: each field has the type that cuBLAS's documentation has for its symbol, and the table that holds them keeps the
        // library open.
        let (create, version, atomics, f) = unsafe {
            let create: unsafe extern "C" fn(*mut Handle) -> c_int = *library.get(CREATE).map_err(absent)?;
            let version: unsafe extern "C" fn(Handle, *mut c_int) -> c_int =
                *library.get(b"cublasGetVersion_v2\0").map_err(absent)?;
            let atomics: unsafe extern "C" fn(Handle, c_int) -> c_int =
                *library.get(b"cublasSetAtomicsMode\0").map_err(absent)?;
            let f = Functions {
                destroy: *library.get(b"cublasDestroy_v2\0").map_err(absent)?,
                stream: *library.get(b"cublasSetStream_v2\0").map_err(absent)?,
                workspace: *library.get(b"cublasSetWorkspace_v2\0").map_err(absent)?,
                gemm: *library.get(b"cublasGemmEx\0").map_err(absent)?,
                _library: ManuallyDrop::new(library),
            };
            (create, version, atomics, f)
        };
        let (lent, mut handle) = (stream.lend()?, null_mut());
        // SAFETY: the handle is written to a pointer on the stack; the context it belongs to is current.
        let mut made = unsafe { create(&raw mut handle) };
        if made != 0 {
            // Whatever it says: it has several words for memory that it did not get.
            make_room();
            // SAFETY: as above.
            made = unsafe { create(&raw mut handle) };
        }
        check("starting cuBLAS", made)?;
        let mut blas = Self { f, handle, context: stream.context(), path: path.to_owned(), version: [0; 3] };
        // SAFETY: the handle was just made, and the stream outlives it: both are the device's.
        check("giving cuBLAS a stream", unsafe { (blas.f.stream)(blas.handle, lent) })?;
        // SAFETY: as above. Sums that depend on who comes first are off unless they are asked for; said all the same.
        check("telling cuBLAS to sum in one order", unsafe { atomics(blas.handle, 0) })?;
        let mut number = 0;
        // SAFETY: the version is written to a number on the stack.
        check("asking cuBLAS for its version", unsafe { version(blas.handle, &raw mut number) })?;
        let number = u32::try_from(number).unwrap_or(0);
        // Until 11.4 the major is worth 1000 of these, from then on 10000.
        let worth = if number >= 100_000 { 10_000 } else { 1000 };
        blas.version = [number / worth, number % worth / 100, number % 100];
        Ok(blas)
    }

    /// From now on it works on `stream`, and in `workspace` alone: so it takes no memory of its own in a stream that is recorded, and
    /// picks the same algorithm for the same sizes. Whoever gives the memory keeps it until the stream has done what is queued.
    pub(crate) fn work_on(&self, stream: &Stream, workspace: (Address, usize)) -> Result<()> {
        let lent = stream.lend()?;
        // SAFETY: the stream is of the handle's device, and outlives what is queued in it.
        check("giving cuBLAS a stream", unsafe { (self.f.stream)(self.handle, lent) })?;
        // SAFETY: device memory is reached by address; the caller keeps it. After the stream, which takes a workspace back.
        let given = unsafe { (self.f.workspace)(self.handle, workspace.0, workspace.1) };
        check("giving cuBLAS a workspace", given)
    }

    /// Queues a product. Before, the stream's context must have been made current in this thread, as [`work_on`](Self::work_on) does.
    pub(crate) fn multiply(&self, p: &Product) -> Result<()> {
        let ([n, m, k], [a, b, c], [a_pitch, b_pitch, c_pitch]) = (p.sizes, p.at, p.pitches);
        let (one, zero, from) = (1f32, 0f32, p.from as c_int);
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
                from,
                b_pitch,
                a,
                from,
                a_pitch,
                (&raw const zero).cast(),
                c,
                p.to as c_int,
                c_pitch,
                COMPUTE_32F,
                DEFAULT,
            )
        };
        check("multiplying with cuBLAS", status)
    }

    /// Queues `c = a · bᵀ` of bfloat16 numbers, rows end to end, with the workspace that cuBLAS has by itself.
    pub(crate) fn bf16(&self, stream: &Stream, sizes: [c_int; 3], at: [Address; 3]) -> Result<()> {
        stream.lend()?;
        let [_, m, k] = sizes;
        self.multiply(&Product { sizes, from: Element::Bf16, to: Element::Bf16, at, pitches: [k, k, m] })
    }
}

impl Drop for Cublas {
    fn drop(&mut self) {
        // It waits for the device that is current: of another it would wait for the wrong one.
        if self.context.make_current().is_ok() {
            // SAFETY: made once by `start`; it waits for its own work.
            unsafe { (self.f.destroy)(self.handle) };
        }
    }
}
