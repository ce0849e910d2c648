//! Which machine to use, and why.

use crate::engine::backend::Backend;
use crate::memory::On;
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

/// Set, and neither empty nor 0: `Auto` does not look for a GPU.
const FORCE_CPU: &str = "OGIVE_FORCE_CPU";

/// A backend's name and what it says of itself.
pub(crate) fn describe(backend: &dyn Backend) -> String {
    let facts = backend.facts();
    match facts.name.as_str() {
        "cpu" => format!("the CPU, {}", facts.description),
        "cuda" => format!("CUDA: {}", facts.description),
        name => format!("{name}: {}", facts.description),
    }
}

fn forced() -> bool {
    std::env::var_os(FORCE_CPU).is_some_and(|v| !v.is_empty() && v != "0")
}

/// The backend for what was asked, and a line that says what was taken and why.
pub(crate) fn backend(options: &Options) -> Result<(Arc<dyn Backend>, String)> {
    let using = |backend: Arc<dyn Backend>| {
        let line = format!("using {}", describe(&*backend));
        Ok((backend, line))
    };
    match options.device {
        Device::Cuda(n) if forced() => {
            Err(Error::Device(format!("cuda:{n} was asked for, but {FORCE_CPU} is set; use the device cpu")))
        }
        Device::Cuda(n) => match cuda(n) {
            Ok(cuda) => using(cuda),
            Err(why) => Err(Error::Device(format!("cuda:{n} was asked for, but {why}"))),
        },
        Device::Cpu => using(cpu(options)?),
        Device::Auto if forced() => {
            let (cpu, line) = using(cpu(options)?)?;
            Ok((cpu, format!("{line} ({FORCE_CPU} is set)")))
        }
        Device::Auto => match automatic() {
            Ok(cuda) => using(cuda),
            Err(why) => {
                let (cpu, line) = using(cpu(options)?)?;
                Ok((cpu, format!("CUDA not used: {why}; {line}")))
            }
        },
    }
}

#[cfg(feature = "cuda")]
fn cuda(number: usize) -> Result<Arc<dyn Backend>, String> {
    let backend = ogive_cuda::CudaBackend::with_device(number).map_err(|e| e.to_string())?;
    Ok(Arc::new(backend))
}

/// The first device; the reason, where there is none, in one clause.
#[cfg(feature = "cuda")]
fn automatic() -> Result<Arc<dyn Backend>, String> {
    let backend = ogive_cuda::CudaBackend::new().map_err(|e| e.brief())?;
    Ok(Arc::new(backend))
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: usize) -> Result<Arc<dyn Backend>, String> {
    Err("this build of Ogive has no CUDA backend; use the device cpu".into())
}

#[cfg(not(feature = "cuda"))]
fn automatic() -> Result<Arc<dyn Backend>, String> {
    Err("this build of Ogive has no CUDA backend".into())
}

/// How the device that these options name takes memory.
pub(crate) fn sizes(options: &Options) -> On {
    if let Some(own) = &options.backend {
        return if own.facts().name == "cuda" { on_cuda() } else { On::default() };
    }
    match options.device {
        Device::Cuda(_) => on_cuda(),
        Device::Auto if !forced() && cuda_is_available() => on_cuda(),
        _ => On::default(),
    }
}

#[cfg(feature = "cuda")]
fn on_cuda() -> On {
    On { sizes: ogive_cuda::CudaBackend::sizes(), graphs: true }
}

#[cfg(feature = "cuda")]
fn cuda_is_available() -> bool {
    ogive_cuda::CudaBackend::is_available()
}

#[cfg(not(feature = "cuda"))]
fn on_cuda() -> On {
    On::default()
}

#[cfg(not(feature = "cuda"))]
fn cuda_is_available() -> bool {
    false
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

/// Every device this build could use, with a line about each; what cannot be used, with the reason. [`libraries`] says what helps.
pub fn devices() -> Vec<(Device, String)> {
    let cpu = backend(&Options::new().device(Device::Cpu)).map(|(b, _)| b.facts().description);
    let mut all = vec![(Device::Cpu, cpu.unwrap_or_else(|e| e.to_string()))];
    all.extend(cuda_devices());
    all
}

#[cfg(feature = "cuda")]
fn cuda_devices() -> Vec<(Device, String)> {
    use ogive_cuda::CudaBackend;
    let (found, why) = match (CudaBackend::devices(), CudaBackend::unavailable()) {
        (Ok(found), None) if !found.is_empty() => (found, None),
        // What helps stands with the libraries.
        (Ok(found), why) => (found, why.map(|e| e.brief())),
        (Err(e), _) => (Vec::new(), Some(e.brief())),
    };
    if found.is_empty() {
        let why = why.unwrap_or_else(|| "there is no device".into());
        return vec![(Device::Cuda(0), format!("not available: {why}"))];
    }
    let line = |d: &ogive_cuda::DeviceInfo| match &why {
        None => format!("{d}"),
        Some(why) => format!("{d}; not available: {why}"),
    };
    found.iter().map(|d| (Device::Cuda(d.number), line(d))).collect()
}

#[cfg(not(feature = "cuda"))]
fn cuda_devices() -> Vec<(Device, String)> {
    vec![(Device::Cuda(0), "not available: this build of Ogive has no CUDA backend".into())]
}

/// Bytes that a device has for models now; `None` where it cannot be used, or does not say, as the CPU.
#[must_use]
pub fn device_memory(device: Device) -> Option<u64> {
    match device {
        Device::Cuda(n) => cuda(n).ok()?.facts().memory,
        _ => None,
    }
}

/// What was found of the libraries that devices need, where, and what is missing: a line for each.
pub fn libraries() -> Vec<String> {
    #[cfg(feature = "cuda")]
    return ogive_cuda::report().to_string().lines().map(str::to_owned).collect();
    #[cfg(not(feature = "cuda"))]
    Vec::new()
}
