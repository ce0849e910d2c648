//! NVRTC: the compiler, as a library that was opened by its path.
//!
//! Its interface is a dozen functions that have not changed since 11.2, so they are declared here and not bound to a version.
#![allow(unsafe_code)]

use super::advice::OLDEST;
use super::search::{Candidate, keep_beside, told};
use crate::error::{Error, Result};
use libloading::Library;
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, PoisonError};

type Program = *mut c_void;

macro_rules! functions {
    ($($field:ident = $symbol:literal ($($ty:ty),*);)*) => {
        struct Functions {
            $($field: unsafe extern "C" fn($($ty),*) -> c_int,)*
            // Never closed: what a library started at its opening may outlive whoever opened it.
            _library: ManuallyDrop<Library>,
        }

        impl Functions {
            fn of(library: Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: the type is the one that NVRTC's documentation has for this symbol, and the library that the
                    // pointer leads into stays open as long as the table that holds it.
                    $($field: *unsafe { library.get::<unsafe extern "C" fn($($ty),*) -> c_int>($symbol)? },)*
                    _library: ManuallyDrop::new(library),
                })
            }
        }
    };
}

functions! {
    count = b"nvrtcGetNumSupportedArchs\0" (*mut c_int);
    architectures = b"nvrtcGetSupportedArchs\0" (*mut c_int);
    create = b"nvrtcCreateProgram\0" (*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char);
    compile = b"nvrtcCompileProgram\0" (Program, c_int, *const *const c_char);
    destroy = b"nvrtcDestroyProgram\0" (*mut Program);
    log_size = b"nvrtcGetProgramLogSize\0" (Program, *mut usize);
    log = b"nvrtcGetProgramLog\0" (Program, *mut c_char);
    ptx_size = b"nvrtcGetPTXSize\0" (Program, *mut usize);
    ptx = b"nvrtcGetPTX\0" (Program, *mut c_char);
    cubin_size = b"nvrtcGetCUBINSize\0" (Program, *mut usize);
    cubin = b"nvrtcGetCUBIN\0" (Program, *mut c_char);
}

/// No log or program is larger.
const LARGEST: usize = 1 << 28;

/// A compiler.
pub(crate) struct Nvrtc {
    f: Functions,
    /// Where it was found.
    pub(crate) path: PathBuf,
    /// Its version, major and minor.
    pub(crate) version: (u32, u32),
    /// Bytes of its file, where that is known.
    pub(crate) len: Option<u64>,
    /// Architectures it compiles for, as 75, 80, 90.
    pub(crate) architectures: Vec<u32>,
}

/// Older versions are not safe to use from two threads at once, and the library is one, however often it was opened.
static BUSY: Mutex<()> = Mutex::new(());

impl std::fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nvrtc")
            .field("path", &self.path)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// What a compiler is wanted for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// The driver's version of CUDA.
    pub(crate) driver: (u32, u32),
    /// The device's compute capability.
    pub(crate) capability: (u32, u32),
}

impl Wanted {
    pub(super) fn device(self) -> u32 {
        self.capability.0 * 10 + self.capability.1
    }

    /// Smaller is to be tried first: the driver's own generation, older ones, newer ones.
    pub(super) fn order(self, generation: u32) -> u32 {
        match generation {
            0 => 1,
            g if g <= self.driver.0 => self.driver.0 - g,
            g => 100 + g,
        }
    }

    /// Nothing better can come: it is not newer than the driver and knows the device itself.
    pub(super) fn is_best(self, n: &Nvrtc) -> bool {
        !self.is_newer(n) && n.architectures.contains(&self.device())
    }

    /// Whether it is of a newer generation than the driver, which may then refuse what it makes.
    pub(super) fn is_newer(self, n: &Nvrtc) -> bool {
        n.version.0 > self.driver.0
    }

    /// Smaller is better.
    pub(super) fn rank(self, n: &Nvrtc) -> (bool, bool, u32) {
        (self.is_newer(n), !n.architectures.contains(&self.device()), self.order(n.version.0))
    }

    /// Whether it makes something that the device can run.
    pub(super) fn can_use(self, n: &Nvrtc) -> bool {
        n.architectures.iter().any(|&a| a <= self.device())
    }
}

/// The newest architecture that is no newer than the device. 10.1 is for its own devices only: CUDA 13 calls it 11.0, and nobody promises that
/// a driver takes PTX of the old name for another.
fn nearest(architectures: &[u32], device: u32) -> Option<u32> {
    architectures.iter().copied().filter(|&a| a == device || (a < device && a != 101)).max()
}

/// The first line of a log that tells of an error.
fn begin(log: &str) -> &str {
    let lines = || log.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines().find(|line| line.contains("error")).or_else(|| lines().next());
    line.unwrap_or("without a word").trim_end_matches('.')
}

/// What was compiled: machine code for one architecture, or PTX for it and later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Machine code.
    Cubin(u32),
    /// PTX, which the driver compiles.
    Ptx(u32),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cubin(a) => write!(f, "sm_{a}"),
            Self::Ptx(a) => write!(f, "compute_{a}"),
        }
    }
}

/// Major and minor. An error without a reason where the library has the function and it fails.
fn version(library: &Library) -> Result<(u32, u32), Option<libloading::Error>> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the type is the one that NVRTC's documentation has for this symbol, which all versions have; both numbers are on the
    // stack.
    let asked = unsafe {
        let ask = library.get::<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>(b"nvrtcVersion\0");
        ask.map_err(Some)?(&raw mut major, &raw mut minor)
    };
    let number = |n: c_int| u32::try_from(n).map_err(|_| None);
    if asked == 0 { Ok((number(major)?, number(minor)?)) } else { Err(None) }
}

impl Nvrtc {
    /// Opens the library at `path`.
    pub(crate) fn at(path: &Path) -> Result<Self> {
        let opened = Candidate::new(path.into(), 0).open().and_then(|library| Self::of(library, path));
        opened.map_err(|why| Error::Library { library: "NVRTC", why })
    }

    /// Asks a library, which was found at `path`, what it is.
    pub(super) fn of(library: Library, path: &Path) -> Result<Self, String> {
        let at = path.display();
        let version = version(&library).map_err(|e| {
            let why = e.map_or("it does not say which version".into(), |e| told(path, &e));
            format!("{at} is no NVRTC ({why})")
        })?;
        let named = format!("{at} is NVRTC {}.{}", version.0, version.1);
        if version < OLDEST {
            return Err(format!("{named}, and {}.{} is the oldest that will do", OLDEST.0, OLDEST.1));
        }
        keep_beside(path, &format!("libnvrtc-builtins.so.{}.{}", version.0, version.1))?;
        let f = Functions::of(library).map_err(|e| format!("{named} and not whole ({})", told(path, &e)))?;
        let silent = || format!("{named} and does not say what it compiles for");
        let mut count = 0;
        // SAFETY: the number is on the stack.
        let asked = unsafe { (f.count)(&raw mut count) };
        if asked != 0 || !(1..=1000).contains(&count) {
            return Err(silent());
        }
        let mut architectures = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: NVRTC writes as many numbers as it said there are, for which there is room.
        let listed = unsafe { (f.architectures)(architectures.as_mut_ptr()) };
        if listed != 0 {
            return Err(silent());
        }
        Ok(Self {
            f,
            path: path.to_owned(),
            version,
            len: std::fs::metadata(path).ok().map(|file| file.len()),
            architectures: architectures.into_iter().map(|a| u32::try_from(a).unwrap_or(0)).collect(),
        })
    }

    /// The architecture to compile for: the device's own, or the nearest older one.
    pub(crate) fn nearest(&self, capability: (u32, u32)) -> Option<u32> {
        nearest(&self.architectures, capability.0 * 10 + capability.1)
    }

    /// Machine code for the device if it is known here, else PTX for the nearest older architecture.
    pub(crate) fn target(&self, capability: (u32, u32), cubins: bool) -> Target {
        let device = capability.0 * 10 + capability.1;
        let below = self.nearest(capability).unwrap_or(device);
        if cubins && below == device { Target::Cubin(device) } else { Target::Ptx(below) }
    }

    /// Compiles next to nothing for a device; why it cannot, where it cannot: it opens libraries of its own that may be missing.
    pub(super) fn compiles(&self, capability: (u32, u32)) -> Result<(), String> {
        let target = self.target(capability, false);
        let text = "extern \"C\" __global__ void trial() {}";
        self.compile("trial", text, target, &[]).map(drop).map_err(|e| match e {
            Error::Compile { log, .. } => begin(&log).to_owned(),
            e => e.to_string(),
        })
    }

    /// Compiles `text`; also gives the compiler's log.
    pub(crate) fn compile(
        &self,
        name: &str,
        text: &str,
        target: Target,
        options: &[String],
    ) -> Result<(Vec<u8>, String)> {
        let _alone = BUSY.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |log: String| Error::Compile { kernel: name.into(), target: target.to_string(), log };
        let c = |text: &str| CString::new(text).map_err(|e| failed(e.to_string()));
        let mut options = options.iter().map(|o| c(o)).collect::<Result<Vec<_>>>()?;
        options.push(c(&format!("--gpu-architecture={target}"))?);
        let (source, file) = (c(text)?, c(&format!("{name}.cu"))?);
        let mut program = null_mut();
        // SAFETY: both texts end with a zero and live through the call; there are no headers.
        let made =
            unsafe { (self.f.create)(&raw mut program, source.as_ptr(), file.as_ptr(), 0, null(), null()) };
        if made != 0 {
            return Err(failed(format!("NVRTC gives error {made} before it has begun")));
        }
        let program = Owned { f: &self.f, program };
        let pointers: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        let count = c_int::try_from(pointers.len()).unwrap_or(0);
        // SAFETY: the options end with zeros and live through the call.
        let compiled = unsafe { (self.f.compile)(program.program, count, pointers.as_ptr()) };
        let log = program.read(self.f.log_size, self.f.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned();
        if compiled != 0 {
            return Err(failed(log));
        }
        let code = match target {
            Target::Cubin(_) => program.read(self.f.cubin_size, self.f.cubin),
            Target::Ptx(_) => program.read(self.f.ptx_size, self.f.ptx),
        };
        let code = code.filter(|code| !code.is_empty());
        code.map(|code| (code, log)).ok_or_else(|| failed("NVRTC gave nothing back".into()))
    }
}

/// A program that is destroyed in the end.
struct Owned<'a> {
    f: &'a Functions,
    program: Program,
}

impl Owned<'_> {
    fn read(
        &self,
        size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        fill: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> Option<Vec<u8>> {
        let mut len = 0;
        // SAFETY: the size is written to a number on the stack.
        let asked = unsafe { size(self.program, &raw mut len) };
        if asked != 0 || len > LARGEST {
            return None;
        }
        let mut bytes = vec![0; len];
        // SAFETY: NVRTC writes as many bytes as it said.
        (unsafe { fill(self.program, bytes.as_mut_ptr().cast()) } == 0).then_some(bytes)
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: made once, by `compile`.
        unsafe { (self.f.destroy)(&raw mut self.program) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_is_no_newer() {
        let known = [50, 75, 80, 86, 89, 90, 100, 101, 120];
        for (device, want) in [(80, 80), (87, 86), (90, 90), (103, 100), (101, 101), (121, 120), (52, 50)] {
            assert_eq!(nearest(&known, device), Some(want), "{device}");
        }
        assert_eq!(nearest(&known, 37), None);
    }
}
