//! Kernels by name: compiled at first use for the device and the model's constants, kept in memory and on disk.
//!
//! Machine code is preferred, as loading it takes no compiler; a driver that refuses it gets PTX from then on. A kernel's defines are part
//! of its name here, so a specialised kernel is found as quickly as any other.

mod disk;

use crate::driver::{Context, Function, Image};
use crate::error::{Error, Result};
use crate::library::{Nvrtc, Target};
use crate::memory::Pool;
use disk::Disk;
use ogive_kernels::Source;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// The value of a define.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Value {
    /// A number.
    Count(usize),
    /// A word, such as a format's name.
    Word(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(n) => write!(f, "{n}"),
            Self::Word(w) => f.write_str(w),
        }
    }
}

/// A define.
pub(crate) type Define = (&'static str, Value);

/// Module, kernel, defines.
type Key = (&'static str, &'static str, Vec<Define>);

/// What every kernel is compiled with, and these defines.
pub(crate) fn options<'a, V: fmt::Display>(defines: impl Iterator<Item = (&'a str, V)>) -> Vec<String> {
    let fixed = ["--std=c++17", "-default-device"].map(str::to_owned);
    fixed.into_iter().chain(defines.map(|(name, value)| format!("-D{name}={value}"))).collect()
}

/// Errors of a driver that cannot take an image made for another device or by a newer compiler.
const REFUSED: [u32; 4] = [200, 209, 218, 222];

/// A variable: with `ptx`, kernels are PTX from the start and the driver compiles them, which tells a fault of one compiler from one of a kernel.
const CODE: &str = "OGIVE_CUDA_CODE";

/// All kernels of a device.
#[derive(Debug)]
pub(crate) struct Modules {
    context: Arc<Context>,
    pool: Arc<Pool>,
    nvrtc: Arc<Nvrtc>,
    capability: (u32, u32),
    disk: Disk,
    cubins: AtomicBool,
    kernels: Mutex<HashMap<Key, Arc<Function>>>,
}

impl Modules {
    pub(crate) fn new(
        context: &Arc<Context>,
        pool: &Arc<Pool>,
        nvrtc: Arc<Nvrtc>,
        capability: (u32, u32),
    ) -> Self {
        Self {
            context: Arc::clone(context),
            pool: Arc::clone(pool),
            nvrtc,
            capability,
            disk: Disk::here(),
            cubins: AtomicBool::new(std::env::var_os(CODE).is_none_or(|code| code != "ptx")),
            kernels: Mutex::default(),
        }
    }

    /// All of what L1 and shared memory have together is shared memory for kernels that are loaded from now on.
    pub(crate) fn prefer_shared(&self) {
        self.context.prefer_shared();
    }

    /// The compiler.
    pub(crate) fn nvrtc(&self) -> &Nvrtc {
        &self.nvrtc
    }

    /// A kernel of `source` under these defines.
    pub(crate) fn kernel(
        &self,
        source: &'static Source,
        kernel: &'static str,
        defines: Vec<Define>,
    ) -> Result<Arc<Function>> {
        let key = (source.name, kernel, defines);
        // Held while compiling: two threads that want the same kernel shall not both compile it.
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = kernels.get(&key) {
            return Ok(Arc::clone(found));
        }
        // Memory for code is taken when a module is loaded or, mostly, when a kernel of it is first asked for. Records of steps keep theirs: to
        // drop them is to wait for another thread's step, which may want the lock that is held here.
        let function = self.pool.retried(|| self.image(source, kernel, &key.2)?.function(kernel));
        let function = Arc::new(function?);
        kernels.insert(key, Arc::clone(&function));
        Ok(function)
    }

    /// A module of that kernel alone: its others, under other defines mostly, may never be wanted, and would take a compiler as long.
    fn image(&self, source: &Source, kernel: &'static str, defines: &[Define]) -> Result<Arc<Image>> {
        let options = options(defines.iter().copied());
        let text = source.text_of(kernel);
        let target = self.nvrtc.target(self.capability, self.cubins.load(Relaxed));
        match self.load(kernel, &text, target, &options) {
            Err(Error::Driver { code, .. })
                if REFUSED.contains(&code) && matches!(target, Target::Cubin(_)) =>
            {
                tracing::debug!(target: "ogive::cuda", code, "the driver refuses machine code; using PTX");
                self.cubins.store(false, Relaxed);
                self.load(kernel, &text, self.nvrtc.target(self.capability, false), &options)
            }
            loaded => loaded,
        }
    }

    fn load(&self, name: &str, text: &str, target: Target, options: &[String]) -> Result<Arc<Image>> {
        // With its defines: a kernel that fails is one of many of its name.
        let defines: Vec<&str> = options.iter().filter_map(|o| o.strip_prefix("-D")).collect();
        let what = match defines.as_slice() {
            [] => name.to_owned(),
            defines => format!("{name} ({})", defines.join(" ")),
        };
        let key = key(self.nvrtc.version, self.nvrtc.len, target, options, text);
        let code = match self.disk.get(&key) {
            Some(code) => code,
            None => {
                let compiled = self.nvrtc.compile(name, text, target, options);
                let (code, _) = compiled.map_err(|e| match e {
                    Error::Compile { target, log, .. } => {
                        Error::Compile { kernel: what.clone(), target, log }
                    }
                    e => e,
                })?;
                self.disk.put(&key, &code);
                code
            }
        };
        Image::load(&self.context, &format!("{what} for {target}"), &code)
    }
}

/// What a compiled module depends on. Of the compiler the length of its file too, where it is known: releases of one version give themselves the same
/// two numbers, and code of one that had a fault shall not outlive it.
fn key(version: (u32, u32), len: Option<u64>, target: Target, options: &[String], text: &str) -> String {
    let ((major, minor), len) = (version, len.map_or_else(String::new, |len| format!(" of {len} bytes")));
    format!("{major}.{minor}{len}\n{target}\n{}\n{text}", options.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_compiler_made_is_not_taken() {
        let options = ["-DA=1".to_owned()];
        let of = |version, len| key(version, len, Target::Cubin(90), &options, "text");
        let all = [of((12, 9), None), of((12, 9), Some(5)), of((12, 9), Some(6)), of((13, 0), Some(5))];
        for (i, key) in all.iter().enumerate() {
            assert_eq!(all.iter().position(|other| other == key), Some(i), "{key}");
        }
    }
}
