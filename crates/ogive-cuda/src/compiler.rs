//! The compiler by itself: what a bundle, a gate or a table of registers wants of NVRTC without a device.
//!
//! Public, because kernels are worth compiling where no GPU is: that is where most of their mistakes are found.

use crate::error::{Error, Result};
use crate::library::{Nvrtc, Target};
use ogive_kernels::Source;
use std::path::Path;

/// An NVRTC that was opened by its path.
#[derive(Debug)]
pub struct Compiler(Nvrtc);

/// A module that was compiled.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Compiled {
    /// Machine code or PTX.
    pub code: Vec<u8>,
    /// What the compiler said; for machine code, registers and memory of each kernel.
    pub log: String,
    /// What each kernel takes; for machine code only.
    pub resources: Vec<Resources>,
}

/// What a kernel takes of a multiprocessor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resources {
    /// The kernel.
    pub kernel: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of registers kept in memory, written and read.
    pub spilled: u32,
    /// Bytes of memory that a thread has for itself: for registers that spill, and for arrays that are indexed by what only a run tells.
    pub stack: u32,
    /// Bytes of shared memory that the kernel declares.
    pub shared: u32,
}

impl Compiler {
    /// Opens the library at `path`, whatever its generation.
    ///
    /// # Errors
    /// If it is no NVRTC of 11.8 or newer.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Nvrtc::at(path.as_ref()).map(Self)
    }

    /// Major and minor.
    #[must_use]
    pub fn version(&self) -> (u32, u32) {
        self.0.version
    }

    /// What it compiles for, as 75, 80, 90.
    #[must_use]
    pub fn architectures(&self) -> &[u32] {
        &self.0.architectures
    }

    /// Machine code of `source` for one architecture.
    ///
    /// # Errors
    /// If the compiler refuses it.
    pub fn cubin(&self, source: &Source, defines: &[(&str, &str)], architecture: u32) -> Result<Compiled> {
        self.compile(source, defines, Target::Cubin(architecture))
    }

    /// PTX of `source` for one architecture and later ones.
    ///
    /// # Errors
    /// If the compiler refuses it.
    pub fn ptx(&self, source: &Source, defines: &[(&str, &str)], architecture: u32) -> Result<Compiled> {
        self.compile(source, defines, Target::Ptx(architecture))
    }

    fn compile(&self, source: &Source, defines: &[(&str, &str)], target: Target) -> Result<Compiled> {
        let mut options = crate::module::options(defines.iter().copied());
        if matches!(target, Target::Cubin(_)) {
            options.push("--ptxas-options=-v".into());
        }
        let (code, log) = self.0.compile(source.name, &source.text(), target, &options)?;
        let resources = resources(&log);
        if matches!(target, Target::Cubin(_)) && resources.len() != source.kernels.len() {
            let why =
                format!("{} of {} kernels in the compiler's log", resources.len(), source.kernels.len());
            return Err(Error::Compile { kernel: source.name.into(), target: target.to_string(), log: why });
        }
        Ok(Compiled { code, log, resources })
    }
}

/// Reads what `--ptxas-options=-v` prints.
fn resources(log: &str) -> Vec<Resources> {
    let before = |line: &str, words: &str| {
        let number = line.split(words).next().and_then(|front| front.split_whitespace().last());
        number.and_then(|n| n.parse::<u32>().ok()).unwrap_or(0)
    };
    let mut all: Vec<Resources> = Vec::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let kernel = rest.split('\'').next().unwrap_or_default().to_owned();
            all.push(Resources { kernel, registers: 0, spilled: 0, stack: 0, shared: 0 });
        }
        let Some(last) = all.last_mut() else { continue };
        if line.contains("bytes stack frame") {
            // Of functions that it calls there are lines of their own.
            last.stack = last.stack.max(before(line, " bytes stack frame"));
        }
        if line.contains("bytes spill stores") {
            last.spilled = before(line, " bytes spill stores") + before(line, " bytes spill loads");
        }
        if line.contains(" registers") {
            last.registers = before(line, " registers");
            last.shared = if line.contains(" bytes smem") { before(line, " bytes smem") } else { 0 };
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_log() {
        let log = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'attend' for 'sm_80'\n\
            ptxas info    : Function properties for attend\n\
            ptxas         .    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\n\
            ptxas info    : Used 40 registers, used 1 barriers, 1312 bytes smem, 504 bytes cmem[0]\n\
            ptxas info    : Compiling entry function 'add' for 'sm_80'\n\
            ptxas info    : Used 16 registers, 380 bytes cmem[0]";
        let of = |kernel: &str, registers, [spilled, stack]: [u32; 2], shared| Resources {
            kernel: kernel.into(),
            registers,
            spilled,
            stack,
            shared,
        };
        assert_eq!(resources(log), [of("attend", 40, [12, 16], 1312), of("add", 16, [0, 0], 0)]);
    }
}
