//! NVRTC by its file, so that one process can have all versions of it.
//!
//! cudarc's own interface knows one library by name and no headers in memory. Results are kept on disk by what went in: the tests
//! run each kernel under many settings, and the compiler's answer does not depend on them.
#![allow(unsafe_code)]

use std::collections::hash_map::DefaultHasher;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::hash::{Hash, Hasher};
use std::path::PathBuf;

use libloading::Library;
use ptx_emulator_launcher::{Launcher, Nvrtc};

/// The header every kernel includes.
const PRELUDE: &str = include_str!("prelude.cuh");

type Program = *mut c_void;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Text = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;

/// One version of the compiler; its library is opened when something is not in the cache.
#[derive(Debug)]
pub(crate) struct Compiler {
    pub(crate) version: Nvrtc,
    folder: PathBuf,
    cache: PathBuf,
}

impl Compiler {
    /// The compiler, fetched if need be.
    pub(crate) fn new(version: Nvrtc) -> Self {
        let folder = Launcher::new().nvrtc_folder(version, &|_| ()).unwrap();
        let cache = std::env::var_os(ptx_emulator_launcher::CACHE).map(PathBuf::from).unwrap().join("ptx");
        std::fs::create_dir_all(&cache).unwrap();
        Self { version, folder, cache }
    }

    /// Baseline architectures this version has and the tests use.
    pub(crate) fn architectures(&self) -> &'static [u32] {
        match self.version {
            Nvrtc::V11 => &[61, 70, 75, 80, 90],
            Nvrtc::V12 => &[61, 70, 75, 80, 90, 120],
            Nvrtc::V13 => &[75, 80, 90, 120],
        }
    }

    /// PTX of `source`, with `defines` as `NAME=VALUE`.
    pub(crate) fn compile(
        &self,
        name: &str,
        source: &str,
        arch: u32,
        defines: &[&str],
        headers: &[PathBuf],
    ) -> String {
        let mut options = vec![
            format!("--gpu-architecture=compute_{arch}"),
            "--std=c++17".into(),
            "--generate-line-info".into(),
        ];
        options.extend(defines.iter().map(|define| format!("--define-macro={define}")));
        options.extend(headers.iter().map(|folder| format!("--include-path={}", folder.display())));
        let mut key = DefaultHasher::new();
        (self.folder.file_name(), &self.folder, name, source, PRELUDE, &options).hash(&mut key);
        let stem = format!("{}-{}-sm_{arch}-{:016x}", name.replace('/', "-"), self.version, key.finish());
        let kept = self.cache.join(format!("{stem}.ptx"));
        if let Ok(ptx) = std::fs::read_to_string(&kept) {
            return ptx;
        }
        let ptx = self
            .translate(name, source, &options)
            .unwrap_or_else(|log| panic!("{name}, NVRTC {}, compute_{arch}: {log}", self.version));
        let part = self.cache.join(format!("{stem}.{}", std::process::id()));
        std::fs::write(&part, &ptx).unwrap();
        std::fs::rename(&part, &kept).unwrap();
        ptx
    }

    fn translate(&self, name: &str, source: &str, options: &[String]) -> Result<String, String> {
        let text = |s: &str| CString::new(s).unwrap();
        let (name, source) = (text(name), text(source));
        let (header, header_name) = (text(PRELUDE), text("prelude.cuh"));
        let (headers, header_names) = ([header.as_ptr()], [header_name.as_ptr()]);
        let options: Vec<CString> = options.iter().map(|option| text(option)).collect();
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let count = c_int::try_from(options.len()).unwrap();
        let path = self.version.library(&self.folder).unwrap();
        let mut program: Program = std::ptr::null_mut();
        // SAFETY: the functions have these types in every version of nvrtc.h; strings end in NUL and outlive the calls.
        unsafe {
            let library = Library::new(&path).map_err(|e| e.to_string())?;
            let create = library.get::<Create>(b"nvrtcCreateProgram\0").unwrap();
            let compile = library.get::<Compile>(b"nvrtcCompileProgram\0").unwrap();
            let destroy = library.get::<Destroy>(b"nvrtcDestroyProgram\0").unwrap();
            let made = create(
                &raw mut program,
                source.as_ptr(),
                name.as_ptr(),
                1,
                headers.as_ptr(),
                header_names.as_ptr(),
            );
            assert_eq!(made, 0, "nvrtcCreateProgram");
            let result = compile(program, count, options.as_ptr());
            let answer = if result == 0 {
                Ok(fetch(&library, program, b"nvrtcGetPTXSize\0", b"nvrtcGetPTX\0"))
            } else {
                Err(fetch(&library, program, b"nvrtcGetProgramLogSize\0", b"nvrtcGetProgramLog\0"))
            };
            destroy(&raw mut program);
            // It registers handlers that run when the process ends: it must stay.
            std::mem::forget(library);
            answer
        }
    }
}

fn fetch(library: &Library, program: Program, size: &[u8], text: &[u8]) -> String {
    // SAFETY: as above; the buffer has the length the library asked for, and it writes a string that ends in NUL.
    unsafe {
        let size = library.get::<Size>(size).unwrap();
        let text = library.get::<Text>(text).unwrap();
        let mut bytes = 0;
        assert_eq!(size(program, &raw mut bytes), 0);
        let mut buffer = vec![0u8; bytes.max(1)];
        assert_eq!(text(program, buffer.as_mut_ptr().cast()), 0);
        CStr::from_bytes_until_nul(&buffer).unwrap().to_string_lossy().into_owned()
    }
}
