//! Which machine to use, and why.

use crate::engine::backend::Backend;
use crate::{Error, Options, Result};
use std::{fmt, str::FromStr, sync::Arc};

/// Which machine to run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Device {
    /// The best there is.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The CUDA device of this number. An error where there is none, never a silent run on the CPU.
    Cuda(usize),
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        match s.split_once(':') {
            None if s == "auto" => Ok(Self::Auto),
            None if s == "cpu" => Ok(Self::Cpu),
            None if s == "cuda" => Ok(Self::Cuda(0)),
            Some(("cuda", n)) if n.parse::<usize>().is_ok() => Ok(Self::Cuda(n.parse().unwrap_or_default())),
            _ => Err(Error::Device(format!("`{s}` is none; known are auto, cpu, cuda and cuda:N"))),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(n) => write!(f, "cuda:{n}"),
        }
    }
}

const NO_CUDA: &str = "this build of Ogive has no CUDA backend";

/// A backend's name and what it says of itself.
pub(crate) fn describe(backend: &dyn Backend) -> String {
    let facts = backend.facts();
    format!("{}: {}", facts.name, facts.description)
}

/// The backend for what was asked, and a line that says what was taken and why.
pub(crate) fn backend(options: &Options) -> Result<(Arc<dyn Backend>, String)> {
    match options.device {
        Device::Cuda(n) => {
            Err(Error::Device(format!("cuda:{n} was asked for, but {NO_CUDA}; use the device cpu")))
        }
        Device::Cpu => {
            let cpu = cpu(options)?;
            let line = format!("using {}", describe(&*cpu));
            Ok((cpu, line))
        }
        Device::Auto => {
            let cpu = cpu(options)?;
            let line = format!("using {} ({NO_CUDA})", describe(&*cpu));
            Ok((cpu, line))
        }
    }
}

#[cfg(feature = "cpu")]
fn cpu(options: &Options) -> Result<Arc<dyn Backend>> {
    let precision = if options.exact { ogive_cpu::Precision::Exact } else { ogive_cpu::Precision::Default };
    let mut builder = ogive_cpu::CpuBackend::builder().precision(precision);
    if let Some(threads) = options.threads {
        builder = builder.threads(threads);
    }
    Ok(Arc::new(builder.build()?))
}

#[cfg(not(feature = "cpu"))]
fn cpu(_: &Options) -> Result<Arc<dyn Backend>> {
    Err(Error::Device("this build of Ogive has no CPU backend; turn the feature `cpu` on".into()))
}

/// Every device this build could use, with a line about each.
pub fn devices() -> Vec<(Device, String)> {
    let cpu = backend(&Options::new().device(Device::Cpu)).map(|(b, _)| b.facts().description);
    vec![
        (Device::Cpu, cpu.unwrap_or_else(|e| e.to_string())),
        (Device::Cuda(0), format!("not available: {NO_CUDA}")),
    ]
}
