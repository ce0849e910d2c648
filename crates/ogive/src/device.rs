//! Which machine to use, and why.

use crate::engine::backend::{Backend, Split};
use crate::memory::{Layout, On};
use crate::placement::{GpuLayers, Layers};
use crate::weights::Checkpoint;
use crate::{Error, Options, Result, gpus};
use std::{fmt, str::FromStr, sync::Arc};

/// Which machine to run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Device {
    /// The best there is: as few GPUs as hold the model, in the driver's order. If all hold too little, layers are shared out among them
    /// and the CPU; if none can be used, it is the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The CUDA device of this number. An error where there is none, never a silent run on the CPU.
    Cuda(usize),
    /// Several CUDA devices, which share a model's layers.
    Cudas(CudaDevices),
}

/// The numbers of several CUDA devices, in the order in which a step goes over them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaDevices {
    numbers: [u16; Self::MOST],
    count: usize,
}

impl CudaDevices {
    /// No machine has more.
    const MOST: usize = 16;

    /// The devices of these numbers.
    ///
    /// # Errors
    /// If there are none, more than 16, or one twice; if a number is above 65535.
    pub fn new(numbers: &[usize]) -> Result<Self> {
        let mut all = Self { numbers: [0; Self::MOST], count: numbers.len() };
        for (i, number) in numbers.iter().enumerate() {
            let wrong = || Error::Device(format!("cuda:{number}: up to {} devices, each once", Self::MOST));
            let place = all.numbers.get_mut(i).ok_or_else(wrong)?;
            let beyond = |_| Error::Device(format!("cuda:{number}: devices have numbers up to {}", u16::MAX));
            *place = u16::try_from(*number).map_err(beyond)?;
            if numbers.iter().take(i).any(|other| other == number) {
                return Err(wrong());
            }
        }
        if numbers.is_empty() { Err(Error::Device("no device was named".into())) } else { Ok(all) }
    }

    /// Their numbers.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.numbers.iter().take(self.count).map(|n| usize::from(*n))
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let none =
            || Error::Device(format!("`{s}` is none; known are auto, cpu, cuda, cuda:N and cuda:N,cuda:M"));
        let number = |s: &str| match s.split_once(':') {
            None if s == "cuda" => Ok(0),
            Some(("cuda", n)) => n.parse::<usize>().map_err(|_| none()),
            _ => Err(none()),
        };
        match s {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            list if list.contains(',') => {
                Ok(Self::Cudas(CudaDevices::new(&list.split(',').map(number).collect::<Result<Vec<_>>>()?)?))
            }
            one => number(one).map(Self::Cuda),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(n) => write!(f, "cuda:{n}"),
            Self::Cudas(all) => {
                let all: Vec<String> = all.iter().map(|n| format!("cuda:{n}")).collect();
                f.write_str(&all.join(","))
            }
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

/// Whether the environment forbids GPUs: `OGIVE_FORCE_CPU` is set, and not to `0`.
pub fn cpu_is_forced() -> bool {
    std::env::var_os(FORCE_CPU).is_some_and(|v| !v.is_empty() && v != "0")
}

/// A backend, and a line that says what was taken and why.
pub(crate) type Taken = (Arc<dyn Backend>, String);

pub(crate) fn using(backend: Arc<dyn Backend>) -> Taken {
    let line = format!("using {}", describe(&*backend));
    (backend, line)
}

/// An error where layers on a GPU are asked for, and the CPU.
fn agree(options: &Options) -> Result<()> {
    let Some(GpuLayers::Count(n @ 1..)) = options.gpu_layers else { return Ok(()) };
    let other = match options.device {
        Device::Cpu => "the device cpu".to_owned(),
        Device::Auto if cpu_is_forced() => format!("{FORCE_CPU} is set"),
        _ => return Ok(()),
    };
    let n = GpuLayers::Count(n);
    Err(Error::Device(format!("{n} layers on a GPU were asked for, and {other}: leave one of them out")))
}

/// The backend for what was asked, for this checkpoint, and a line that says what was taken and why.
pub(crate) fn backend(options: &Options, checkpoint: &Checkpoint) -> Result<Taken> {
    agree(options)?;
    let named = |numbers: &[usize]| {
        if cpu_is_forced() {
            let why = format!("{} was asked for, but {FORCE_CPU} is set; use the device cpu", options.device);
            return Err(Error::Device(why));
        }
        gpus::named(options, checkpoint, numbers)
    };
    match options.device {
        Device::Cuda(n) => named(&[n]),
        Device::Cudas(all) => named(&all.iter().collect::<Vec<_>>()),
        Device::Cpu => Ok(using(cpu(options)?)),
        Device::Auto if cpu_is_forced() => {
            let (cpu, line) = using(cpu(options)?);
            Ok((cpu, format!("{line} ({FORCE_CPU} is set)")))
        }
        Device::Auto => gpus::fewest(options, checkpoint),
    }
}

#[cfg(feature = "cuda")]
fn cuda_builder(options: &Options, number: usize) -> ogive_cuda::Builder {
    use ogive_cuda::{Activations, Compute, CudaBackend};
    let compute = match options {
        Options { exact: true, .. } => Compute::F32,
        Options { bf16: true, .. } => Compute::Bf16,
        _ => Compute::Auto,
    };
    let activations = if options.int8 && !options.exact { Activations::Int8 } else { Activations::Float };
    CudaBackend::builder().device(number).compute(compute).activations(activations)
}

/// A device; the reason, where there is none, in one clause.
#[cfg(feature = "cuda")]
pub(crate) fn cuda(options: &Options, number: usize) -> Result<Arc<dyn Backend>, String> {
    let backend = cuda_builder(options, number).build();
    Ok(Arc::new(backend.map_err(|e| if options.device == Device::Auto { e.brief() } else { e.to_string() })?))
}

/// How many devices the driver has.
#[cfg(feature = "cuda")]
pub(crate) fn cuda_count() -> usize {
    ogive_cuda::CudaBackend::devices().map_or(0, |found| found.len())
}

#[cfg(not(feature = "cuda"))]
pub(crate) fn cuda_count() -> usize {
    0
}

#[cfg(not(feature = "cuda"))]
pub(crate) fn cuda(options: &Options, _: usize) -> Result<Arc<dyn Backend>, String> {
    let instead = if options.device == Device::Auto { "" } else { "; use the device cpu" };
    Err(format!("this build of Ogive has no CUDA backend{instead}"))
}

/// Where a model will be that is opened with these options, and how memory is taken there.
pub(crate) fn layout<'a>(options: &'a Options, checkpoint: &'a Checkpoint) -> Result<Layout<'a>> {
    if let Some(own) = &options.backend {
        let split = (&**own as &dyn std::any::Any).downcast_ref::<Split>();
        return Ok(match split {
            Some(split) => Layout::Split(ons(&**own), Box::new(|parts| Ok(split.with_parts(parts)?))),
            None => Layout::Whole(of_backend(&**own)),
        });
    }
    agree(options)?;
    let numbers = match options.device {
        Device::Cuda(n) => vec![n],
        Device::Cudas(all) => all.iter().collect(),
        Device::Auto if !cpu_is_forced() => cuda_first().into_iter().collect(),
        _ => Vec::new(),
    };
    if numbers.is_empty() {
        return Ok(Layout::Whole(On::default()));
    }
    let ons: Vec<On> = numbers.iter().map(|n| on_cuda(options, *n)).collect();
    let layers = Layers::of(checkpoint, options);
    let gpu = match options.gpu_layers {
        Some(GpuLayers::Count(n)) => n.min(layers.count),
        _ => layers.count,
    };
    if gpu == 0 && layers.count > 0 {
        return Ok(Layout::Whole(On::default()));
    }
    if ons.len() == 1 && gpu == layers.count || layers.count == 0 {
        return Ok(Layout::Whole(ons.into_iter().next().unwrap_or_default()));
    }
    // One device has its layers however much is free; several that do not say get equal shares.
    let free = |n: &usize| if ons.len() == 1 { 1 } else { device_memory(Device::Cuda(*n)).unwrap_or(1) };
    let homes = layers.homes(gpu, &numbers.iter().map(free).collect::<Vec<_>>(), &ons)?;
    Ok(Layout::Split(homes.with_cpu(&ons), Box::new(move |parts| layers.split(parts, &homes))))
}

/// How each part of a backend takes memory, in the order of a step.
pub(crate) fn ons(backend: &dyn Backend) -> Vec<On> {
    match (backend as &dyn std::any::Any).downcast_ref::<Split>() {
        Some(split) => split.parts().iter().map(|part| of_backend(&**part)).collect(),
        None => vec![of_backend(backend)],
    }
}

/// Bytes that a GPU has left; `None` of other machines, and where it is not known.
pub(crate) fn free(backend: &dyn Backend) -> Option<u64> {
    let facts = backend.facts();
    let all = facts.memory.filter(|_| facts.name == "cuda")?;
    #[cfg(feature = "cuda")]
    if let Some(cuda) = (backend as &dyn std::any::Any).downcast_ref::<ogive_cuda::CudaBackend>() {
        return Some(all.saturating_sub(cuda.memory_used().0));
    }
    Some(all)
}

/// Bytes that a GPU can still give, as its driver has it now: another program may have taken some since it was opened.
pub(crate) fn left(backend: &dyn Backend) -> Option<u64> {
    #[cfg(feature = "cuda")]
    if let Some(cuda) = (backend as &dyn std::any::Any).downcast_ref::<ogive_cuda::CudaBackend>() {
        return cuda.memory_left().ok();
    }
    free(backend)
}

/// How a backend takes memory; one that wraps another does as its device by default.
pub(crate) fn of_backend(backend: &dyn Backend) -> On {
    #[cfg(feature = "cuda")]
    if let Some(cuda) = (backend as &dyn std::any::Any).downcast_ref::<ogive_cuda::CudaBackend>() {
        return On { sizes: cuda.sizes(), graphs: true };
    }
    if backend.facts().name == "cuda" { on_cuda(&Options::new(), 0) } else { On::default() }
}

#[cfg(feature = "cuda")]
fn on_cuda(options: &Options, number: usize) -> On {
    On { sizes: cuda_builder(options, number).sizes(), graphs: true }
}

#[cfg(feature = "cuda")]
fn cuda_first() -> Option<usize> {
    ogive_cuda::CudaBackend::first_available().ok()
}

#[cfg(not(feature = "cuda"))]
fn on_cuda(_: &Options, _: usize) -> On {
    On::default()
}

#[cfg(not(feature = "cuda"))]
fn cuda_first() -> Option<usize> {
    None
}

#[cfg(feature = "cpu")]
pub(crate) fn cpu(options: &Options) -> Result<Arc<dyn Backend>> {
    let precision = match options {
        Options { exact: true, .. } => ogive_cpu::Precision::Exact,
        Options { bf16: true, .. } => ogive_cpu::Precision::Bf16,
        _ => ogive_cpu::Precision::Default,
    };
    let builder = ogive_cpu::CpuBackend::builder().precision(precision);
    let mut builder = builder.repack(options.repack).background(options.background);
    if let Some(threads) = options.threads {
        builder = builder.threads(threads);
    }
    Ok(Arc::new(builder.build()?))
}

#[cfg(not(feature = "cpu"))]
pub(crate) fn cpu(_: &Options) -> Result<Arc<dyn Backend>> {
    Err(Error::Device("this build of Ogive has no CPU backend; turn the feature `cpu` on".into()))
}

/// Every device this build could use, with a line about each; what cannot be used, with the reason. [`libraries`] says what helps.
pub fn devices() -> Vec<(Device, String)> {
    listed(&Options::new())
}

/// The same, the CPU with so many threads.
pub(crate) fn listed(options: &Options) -> Vec<(Device, String)> {
    let cpu = cpu(options).map(|b| b.facts().description);
    let mut all = vec![(Device::Cpu, cpu.unwrap_or_else(|e| e.to_string()))];
    all.extend(cuda_devices());
    all
}

#[cfg(feature = "cuda")]
fn cuda_devices() -> Vec<(Device, String)> {
    use ogive_cuda::{CudaBackend, DeviceInfo, Error};
    let found = CudaBackend::devices().and_then(|found| match found.is_empty() {
        true => Err(Error::NoDevice { asked: 0, found: 0 }),
        false => Ok(found),
    });
    let found = match found {
        Ok(found) => found,
        Err(e) => return vec![(Device::Cuda(0), format!("not available: {}", e.brief()))],
    };
    // Each is opened: whether a driver takes what a compiler makes, and a device has memory, shows nowhere else.
    let why_not = |d: &DeviceInfo| match cpu_is_forced() {
        true => Some(format!("{FORCE_CPU} is set")),
        // What more there is to say stands with the libraries.
        false => CudaBackend::with_device(d.number).err().map(|e| e.brief()),
    };
    let line = |d: &DeviceInfo| match why_not(d) {
        None => d.to_string(),
        Some(why) => format!("{d}; not available: {why}"),
    };
    found.iter().map(|d| (Device::Cuda(d.number), line(d))).collect()
}

#[cfg(not(feature = "cuda"))]
fn cuda_devices() -> Vec<(Device, String)> {
    vec![(Device::Cuda(0), "not available: this build of Ogive has no CUDA backend".into())]
}

/// Bytes that a device has for models now; `None` where it cannot be used, or does not say. The CPU says so on Linux: what the system and the
/// limits of this process leave it, the pages of mapped files among it.
#[must_use]
pub fn device_memory(device: Device) -> Option<u64> {
    match device {
        Device::Cuda(n) => cuda(&Options::new().device(device), n).ok()?.facts().memory,
        Device::Cudas(all) => all.iter().map(|n| device_memory(Device::Cuda(n))).sum(),
        Device::Cpu => cpu(&Options::new()).ok()?.facts().memory,
        Device::Auto => None,
    }
}

/// What was found of the libraries that devices need, where, and what is missing: a line for each.
pub fn libraries() -> Vec<String> {
    #[cfg(feature = "cuda")]
    return ogive_cuda::report().to_string().lines().map(str::to_owned).collect();
    #[cfg(not(feature = "cuda"))]
    Vec::new()
}
