//! Everything that can be chosen: from the environment, and by whoever uses the library.
//!
//! | Variable | Values | Default |
//! |---|---|---|
//! | `PTX_EMU_DEVICES` | `sm_80`, or several with their memory: `sm_80,sm_90:16G`; `none` | `sm_80:8G` |
//! | `CUDA_VISIBLE_DEVICES` | indices into that list, as with any driver | all |
//! | `PTX_EMU_DRIVER` | what `cuDriverGetVersion` says, `13000` for CUDA 13.0 | `13050` |
//! | `PTX_EMU_CUBLAS` | of which CUDA cuBLAS says it is, `12090` for CUDA 12.9 | the driver's |
//! | `PTX_EMU_SCHEDULE` | `eager`, `lazy`, `random`, `adversarial`: when and in which order queued work runs ([`Schedule`]) | `random` |
//! | `PTX_EMU_SEED` | a number: the order of streams, graph nodes and blocks | `0` |
//! | `PTX_EMU_CHECK` | `0`, `1` (the checker), `races` (global memory too) | `0` |
//! | `PTX_EMU_WORKERS` | threads that run blocks | all cores |
//! | `PTX_EMU_LIMIT` | warp instructions after which a launch is stopped (error 702); `0`: never | ten thousand million |
//! | `PTX_EMU_IDLE_MS` | when the host made no call for so long, queued work runs by itself; `0`: never | `100` |
//! | `PTX_EMU_PAGEABLE` | `waits`, `late`: whether an asynchronous download to pageable memory is done when the call returns | `waits` |
//! | `PTX_EMU_PEERS` | `0`: no device can reach another's memory | `1` |
//! | `PTX_EMU_TRACE` | `1`: each call and its result on standard error | `0` |
//! | `PTX_EMU_STATS` | `1`: counts of calls, launches and instructions when the process ends | `0` |
//! | `PTX_EMU_FAULT` | what shall fail: a list of the below | nothing |
//!
//! Faults: `alloc:N` (the n-th allocation fails; `N+`: and all after it), `host-alloc:N`, `launch:N[:CODE]`, `memcpy:N[:CODE]`, `peer:N[:CODE]`, `graph:N[:CODE]`, `module:N[:CODE]`,
//! `lost:N[:CODE]` (with the n-th call the device is gone), `missing-symbol:NAME`, `no-device`, `init:CODE`, `driver:VERSION`, `memory:SIZE`,
//! `integrated:SIZE` (all devices say that their memory is the machine's, and that no more than this of it is free).
//!
//! A value that makes no sense is an error and not a default: a test that runs with other settings than it believes proves
//! nothing.

mod faults;

use std::time::Duration;

pub use faults::{Faults, Nth};

use crate::device::{MODELS, Model};

/// Memory of a device unless the settings say otherwise.
const DEFAULT_MEMORY: u64 = 8 << 30;
/// Warp instructions of a launch unless the settings say otherwise: some minutes on a small machine, so that blocks that spin for ever
/// end in a report and not in a test that hangs.
const DEFAULT_LIMIT: u64 = 10_000_000_000;

/// When and in which order queued work runs. Every order that a policy takes is one a GPU may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// At once, as it is queued. Hides missing synchronisation; for looking at something else.
    Eager,
    /// Only what a synchronisation needs, the oldest first: work nobody waits for never ran.
    Lazy,
    /// At a synchronisation, any runnable work of any stream, drawn from the seed, until the awaited is done.
    #[default]
    Random,
    /// At a synchronisation, the newest runnable work first: what should have been waited for comes last.
    Adversarial,
}

/// How much is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// What a GPU would notice.
    #[default]
    Off,
    /// The checker.
    On,
    /// Races in global memory as well.
    Races,
}

/// One device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Which kind.
    pub model: &'static Model,
    /// Bytes of memory.
    pub memory: u64,
    /// Its place in the machine, before `CUDA_VISIBLE_DEVICES`.
    pub slot: u32,
}

/// Everything that can be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The devices that programs see.
    pub devices: Vec<Device>,
    /// `cuDriverGetVersion`.
    pub driver_version: i32,
    /// Of which CUDA cuBLAS is; `None`: the driver's.
    pub cublas_version: Option<i32>,
    /// When queued work runs.
    pub schedule: Schedule,
    /// What all orders are drawn from.
    pub seed: u64,
    /// How much is checked.
    pub check: Check,
    /// Threads that run blocks.
    pub workers: usize,
    /// Warp instructions after which a launch is stopped.
    pub limit: Option<u64>,
    /// Idle time after which queued work runs by itself; `None`: never.
    pub idle: Option<Duration>,
    /// An asynchronous download to pageable memory is under way when the call returns. CUDA allows it; drivers have always waited, and programs
    /// (cudarc's among them) build on that.
    pub late_downloads: bool,
    /// Devices can be given access to one another's memory.
    pub peers: bool,
    /// Each call on standard error.
    pub trace: bool,
    /// Counts at the end.
    pub stats: bool,
    /// What shall fail.
    pub faults: Faults,
    /// Devices say that their memory is the machine's, and that no more than so many bytes of it are free, as where its cache of files has the others.
    pub integrated: Option<u64>,
}

/// A variable that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ptx-emulator: {variable}: `{value}` {what}")]
pub struct Invalid {
    variable: String,
    value: String,
    what: String,
}

impl Invalid {
    fn new(variable: &str, value: &str, what: &str) -> Self {
        Self { variable: variable.into(), value: value.into(), what: what.into() }
    }
}

impl Default for Settings {
    fn default() -> Self {
        let model = Model::find("sm_80").unwrap_or(&MODELS[0]);
        Self {
            devices: vec![Device { model, memory: DEFAULT_MEMORY, slot: 0 }],
            driver_version: 13050,
            cublas_version: None,
            late_downloads: false,
            peers: true,
            schedule: Schedule::default(),
            seed: 0,
            check: Check::Off,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            limit: Some(DEFAULT_LIMIT),
            idle: Some(Duration::from_millis(100)),
            trace: false,
            stats: false,
            faults: Faults::default(),
            integrated: None,
        }
    }
}

impl Settings {
    /// Reads the environment.
    ///
    /// # Errors
    /// The first variable that makes no sense.
    pub fn from_env() -> Result<Self, Invalid> {
        Self::read(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// Reads variables from wherever `variable` finds them; an empty one counts as absent.
    ///
    /// # Errors
    /// The first variable that makes no sense.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Invalid> {
        let get = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let number = |name: &str| -> Result<Option<u64>, Invalid> {
            let Some(text) = get(name) else { return Ok(None) };
            text.trim().parse().map(Some).map_err(|_| Invalid::new(name, &text, "is not a whole number"))
        };
        let switch = |name: &str, otherwise: bool| -> Result<bool, Invalid> {
            match get(name).as_deref().map(str::trim) {
                None => Ok(otherwise),
                Some("0") => Ok(false),
                Some("1") => Ok(true),
                Some(text) => Err(Invalid::new(name, text, "is neither 0 nor 1")),
            }
        };
        let mut settings = Self::default();
        if let Some(text) = get("PTX_EMU_DEVICES") {
            settings.devices =
                devices(&text).map_err(|what| Invalid::new("PTX_EMU_DEVICES", &text, &what))?;
        }
        let version = |name: &str| -> Result<Option<i32>, Invalid> {
            let Some(number) = number(name)? else { return Ok(None) };
            let version = i32::try_from(number).ok().filter(|v| (6000..100_000).contains(v));
            let none = || Invalid::new(name, &number.to_string(), "is no version such as 12080");
            version.map(Some).ok_or_else(none)
        };
        settings.driver_version = version("PTX_EMU_DRIVER")?.unwrap_or(settings.driver_version);
        settings.cublas_version = version("PTX_EMU_CUBLAS")?;
        settings.schedule = match get("PTX_EMU_SCHEDULE").as_deref().map(str::trim) {
            None => Schedule::default(),
            Some("eager") => Schedule::Eager,
            Some("lazy") => Schedule::Lazy,
            Some("random") => Schedule::Random,
            Some("adversarial") => Schedule::Adversarial,
            Some(text) => {
                return Err(Invalid::new(
                    "PTX_EMU_SCHEDULE",
                    text,
                    "is not eager, lazy, random or adversarial",
                ));
            }
        };
        settings.check = match get("PTX_EMU_CHECK").as_deref().map(str::trim) {
            None | Some("0") => Check::Off,
            Some("1") => Check::On,
            Some("races") => Check::Races,
            Some(text) => return Err(Invalid::new("PTX_EMU_CHECK", text, "is not 0, 1 or races")),
        };
        settings.seed = number("PTX_EMU_SEED")?.unwrap_or(0);
        if let Some(workers) = number("PTX_EMU_WORKERS")? {
            settings.workers =
                usize::try_from(workers).ok().filter(|n| (1..=1024).contains(n)).ok_or_else(|| {
                    Invalid::new("PTX_EMU_WORKERS", &workers.to_string(), "is not between 1 and 1024")
                })?;
        }
        if let Some(limit) = number("PTX_EMU_LIMIT")? {
            settings.limit = (limit > 0).then_some(limit);
        }
        if let Some(idle) = number("PTX_EMU_IDLE_MS")? {
            settings.idle = (idle > 0).then(|| Duration::from_millis(idle));
        }
        settings.late_downloads = match get("PTX_EMU_PAGEABLE").as_deref().map(str::trim) {
            None | Some("waits") => false,
            Some("late") => true,
            Some(text) => return Err(Invalid::new("PTX_EMU_PAGEABLE", text, "is neither waits nor late")),
        };
        settings.peers = switch("PTX_EMU_PEERS", true)?;
        settings.trace = switch("PTX_EMU_TRACE", false)?;
        settings.stats = switch("PTX_EMU_STATS", false)?;
        if let Some(text) = get("PTX_EMU_FAULT") {
            let parsed = faults::parse(&text)?;
            settings.faults = parsed.faults;
            settings.integrated = parsed.integrated;
            settings.driver_version = parsed.driver.unwrap_or(settings.driver_version);
            if let Some(memory) = parsed.memory {
                settings.devices.iter_mut().for_each(|device| device.memory = memory);
            }
        }
        // An empty value means no device at all, as the driver has it.
        if let Some(text) = variable("CUDA_VISIBLE_DEVICES") {
            settings.devices = visible(&settings.devices, &text);
        }
        Ok(settings)
    }

    /// Replaces the devices: `sm_80,sm_90:16G`.
    ///
    /// # Errors
    /// An unknown model or a size that is none.
    pub fn with_devices(mut self, list: &str) -> Result<Self, Invalid> {
        self.devices = devices(list).map_err(|what| Invalid::new("devices", list, &what))?;
        Ok(self)
    }

    /// Replaces the faults: the syntax of `PTX_EMU_FAULT`.
    ///
    /// # Errors
    /// An item that makes no sense.
    pub fn with_faults(mut self, list: &str) -> Result<Self, Invalid> {
        let parsed = faults::parse(list)?;
        self.faults = parsed.faults;
        self.integrated = parsed.integrated;
        self.driver_version = parsed.driver.unwrap_or(self.driver_version);
        if let Some(memory) = parsed.memory {
            self.devices.iter_mut().for_each(|device| device.memory = memory);
        }
        Ok(self)
    }
}

fn devices(list: &str) -> Result<Vec<Device>, String> {
    if list.trim() == "none" {
        return Ok(Vec::new());
    }
    let mut devices = Vec::new();
    for (slot, item) in list.split(',').map(str::trim).enumerate() {
        let (name, memory) = item.split_once(':').map_or((item, None), |(name, memory)| (name, Some(memory)));
        let known = || MODELS.iter().map(|model| model.arch_name).collect::<Vec<_>>().join(", ");
        let model = Model::find(name)
            .ok_or_else(|| format!("names the unknown model `{name}`; there are {}", known()))?;
        let memory = memory.map_or(Ok(DEFAULT_MEMORY), bytes)?;
        let slot = u32::try_from(slot).map_err(|_| "names too many devices".to_owned())?;
        if slot >= 64 {
            return Err("names more than 64 devices".into());
        }
        devices.push(Device { model, memory, slot });
    }
    Ok(devices)
}

/// `512M`, `16G`, or bytes.
fn bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let size =
        digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).filter(|n| (1..=1 << 43).contains(n));
    size.ok_or_else(|| format!("has the size `{text}`; a size is a number with K, M or G"))
}

/// The driver's rule: devices in the order given, and nothing after the first entry that is none.
fn visible(devices: &[Device], list: &str) -> Vec<Device> {
    let mut seen: Vec<Device> = Vec::new();
    for item in list.split(',') {
        let index = item.trim().parse::<usize>().ok();
        match index.and_then(|index| devices.get(index)) {
            Some(device) if !seen.contains(device) => seen.push(*device),
            _ => break,
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::{Check, Schedule, Settings};

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, super::Invalid> {
        Settings::read(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn everything_is_read() {
        let settings = read(&[
            ("PTX_EMU_DEVICES", "sm_80,sm_90:16G,sm_120:512M"),
            ("CUDA_VISIBLE_DEVICES", "2,0,7,1"),
            ("PTX_EMU_SCHEDULE", "adversarial"),
            ("PTX_EMU_CHECK", "races"),
            ("PTX_EMU_SEED", "7"),
            ("PTX_EMU_CUBLAS", "12090"),
            ("PTX_EMU_IDLE_MS", "0"),
            ("PTX_EMU_FAULT", "alloc:3,driver:11040"),
        ])
        .expect("valid");
        let seen: Vec<_> = settings.devices.iter().map(|d| (d.model.arch_name, d.memory, d.slot)).collect();
        assert_eq!(
            seen,
            [("sm_120", 512 << 20, 2), ("sm_80", 8 << 30, 0)],
            "nothing after an index that is none"
        );
        assert_eq!((settings.schedule, settings.check), (Schedule::Adversarial, Check::Races));
        assert_eq!((settings.seed, settings.idle, settings.driver_version), (7, None, 11040));
        assert_eq!(settings.cublas_version, Some(12090));
    }

    #[test]
    fn nonsense_is_an_error_that_names_the_variable() {
        for (name, value) in [
            ("PTX_EMU_DEVICES", "sm_81"),
            ("PTX_EMU_DEVICES", "sm_80:lots"),
            ("PTX_EMU_DRIVER", "580"),
            ("PTX_EMU_CUBLAS", "12.9"),
            ("PTX_EMU_SCHEDULE", "fast"),
            ("PTX_EMU_SEED", "x"),
            ("PTX_EMU_CHECK", "yes"),
            ("PTX_EMU_WORKERS", "0"),
            ("PTX_EMU_TRACE", "on"),
            ("PTX_EMU_PEERS", "none"),
            ("PTX_EMU_FAULT", "alloc"),
        ] {
            let error = read(&[(name, value)]).expect_err(name).to_string();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn no_devices_can_be_wanted() {
        assert!(read(&[("PTX_EMU_DEVICES", "none")]).expect("valid").devices.is_empty());
        assert!(read(&[("CUDA_VISIBLE_DEVICES", "")]).expect("valid").devices.is_empty());
        assert!(read(&[("CUDA_VISIBLE_DEVICES", "-1")]).expect("valid").devices.is_empty());
    }
}
