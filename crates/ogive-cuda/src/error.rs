//! One error for everything that can go wrong between a program and a GPU.
//!
//! Operators turn it into the error all backends share; those who use this crate's own functions get it as it is.

use std::fmt;

/// A result whose error is [`Error`] unless said otherwise.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// `CUDA_ERROR_OUT_OF_MEMORY`
pub(crate) const OUT_OF_MEMORY: u32 = 2;
/// How what was being done ends where it takes such memory, which is the machine's and not the device's.
pub(crate) const PAGE_LOCKED: &str = "page-locked memory";

/// What failed between a program and a GPU, and what to do about it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A library is missing, too old, or not to be loaded.
    #[error("{library}: {why}")]
    Library {
        /// Which: the driver, NVRTC or cuBLAS.
        library: &'static str,
        /// What was looked for, what was found, and what helps.
        why: String,
    },
    /// There is no such device.
    #[error(
        "cuda:{asked}: there {} here; look at nvidia-smi, and at CUDA_VISIBLE_DEVICES if it is set",
        Devices(*.found)
    )]
    NoDevice {
        /// The number asked for.
        asked: usize,
        /// How many there are.
        found: usize,
    },
    /// A call to the driver failed.
    #[error("{doing}: the CUDA driver says {name} ({code}){}{queued}", Hint(*.code, .doing))]
    Driver {
        /// What was being done.
        doing: String,
        /// The driver's number for it.
        code: u32,
        /// And its name.
        name: String,
        /// Where the device failed in the middle of its work, the kernels that were queued last, as the end of a sentence; else empty.
        queued: String,
    },
    /// The device has too little memory.
    #[error(
        "{doing}: {asked} bytes of device memory asked for, {free} free of {total}{}; use a smaller context, cache, step or model, or close other programs that use the GPU",
        Missing(*.asked, *.free)
    )]
    Memory {
        /// What was being done.
        doing: String,
        /// Bytes asked for.
        asked: u64,
        /// Bytes that could be had.
        free: u64,
        /// Bytes of the device.
        total: u64,
    },
    /// NVRTC refused a kernel.
    #[error("compiling {kernel} for {target}: {log}")]
    Compile {
        /// The module.
        kernel: String,
        /// The architecture.
        target: String,
        /// What NVRTC said.
        log: String,
    },
    /// A step is being recorded, and what was asked for cannot be part of a record.
    #[error("{doing}: not while a step is recorded; the step is run without a record")]
    Recording {
        /// What was being done.
        doing: String,
    },
    /// Something is larger than a launch can be.
    #[error("{doing}: {what} is {size}, more than {limit}, the most that is supported; use smaller steps")]
    Limit {
        /// What was being done.
        doing: String,
        /// What is too large.
        what: &'static str,
        /// How large it is.
        size: u64,
        /// How large it may be.
        limit: u64,
    },
}

impl Error {
    /// What is wrong, without what was looked for and what helps: the message up to its first semicolon.
    #[must_use]
    pub fn brief(&self) -> String {
        let text = match self {
            Self::Library { why, .. } => why.clone(),
            other => other.to_string(),
        };
        text.split(';').next().unwrap_or_default().to_owned()
    }

    /// Whether the device is lost to this process, so that nothing helps but to start a new one.
    #[must_use]
    pub fn is_device_lost(&self) -> bool {
        matches!(self, Self::Driver { code, .. } if is_lost(*code))
    }
}

/// How much more would do, where that is known: the driver may refuse what is free, in pieces.
struct Missing(u64, u64);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.checked_sub(self.1).filter(|missing| *missing > 0) {
            Some(missing) => write!(f, ", {missing} too few"),
            None => Ok(()),
        }
    }
}

struct Devices(usize);

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("is no device"),
            1 => f.write_str("is one device (cuda:0)"),
            n => write!(f, "are {n} devices (cuda:0 to cuda:{})", n - 1),
        }
    }
}

/// Whether the device failed in the middle of a kernel, which ends the process's use of it: a wrong or misaligned address, a kernel that
/// took too long, an assertion, a wrong stack, instruction, address space or program counter, a launch that failed, tensor memory that was
/// not given back; or its memory or its links, be the error contained or not; or the server through which processes share it has ended this one's use.
pub(crate) fn is_lost(code: u32) -> bool {
    matches!(code, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719 | 721 | 810)
}

/// What helps, for the codes that people meet, and what was being done.
struct Hint<'a>(u32, &'a str);

impl fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            OUT_OF_MEMORY if self.1.ends_with(PAGE_LOCKED) => {
                "; the machine is short of memory that stays in place: close other programs, or raise the container's limit or that of locked memory (ulimit -l)"
            }
            OUT_OF_MEMORY => {
                "; close other programs that use the GPU (nvidia-smi lists them), or use a smaller context, cache, step or model"
            }
            3 | 4 => "; the driver is shutting down or was not started",
            34 => {
                "; this libcuda is the toolkit's stub and not the driver's: take its folder off LD_LIBRARY_PATH"
            }
            100 => "; no device is visible: look at nvidia-smi, and at CUDA_VISIBLE_DEVICES if it is set",
            46 => "; another program may have the GPU for itself, or its mode may forbid it: look at nvidia-smi",
            101 => "; look at nvidia-smi, and at CUDA_VISIBLE_DEVICES if it is set",
            209 => "; the device cannot run what was compiled",
            218 | 222 => "; NVRTC is newer than the driver: update the driver or install an older NVRTC",
            304 => "; the system refused the driver something: are there /dev/nvidia* that this user may open?",
            code if is_lost(code) => {
                "; this process cannot use the device any more: start a new one, and report this"
            }
            802 => "; wait until the machine's NVSwitches are set up (nvidia-fabricmanager)",
            803 => "; the driver's library and its kernel module are of different versions: reboot",
            804 => "; this device cannot run with a driver library newer than its kernel module",
            999 => "; is the driver's kernel module loaded (nvidia-smi)?",
            _ => "",
        })
    }
}

impl From<Error> for ogive_tensor::Error {
    fn from(e: Error) -> Self {
        match e {
            Error::Memory { doing, asked, free, .. } => {
                Self::new(doing, ogive_tensor::ErrorKind::Memory { needed: asked, available: free })
            }
            Error::Recording { doing } => Self::new(doing, ogive_tensor::ErrorKind::Recording),
            lost if lost.is_device_lost() => Self::device_lost("cuda", lost),
            other => Self::other("cuda", other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_helps() {
        let e = Error::Library { library: "NVRTC", why: "libnvrtc.so not found; looked in x; do y".into() };
        assert_eq!(e.brief(), "libnvrtc.so not found");
        let e = Error::NoDevice { asked: 2, found: 1 };
        assert!(e.to_string().starts_with("cuda:2: there is one device (cuda:0) here; look at nvidia-smi"));
        let e = Error::Driver {
            doing: "starting".into(),
            code: 34,
            name: "CUDA_ERROR_STUB_LIBRARY".into(),
            queued: String::new(),
        };
        assert!(e.to_string().contains("LD_LIBRARY_PATH"));
        let e = Error::Memory { doing: "linear".into(), asked: 10, free: 3, total: 9 };
        assert!(
            e.to_string()
                .starts_with("linear: 10 bytes of device memory asked for, 3 free of 9, 7 too few; ")
        );
        let scattered = Error::Memory { doing: "linear".into(), asked: 3, free: 3, total: 9 };
        assert!(scattered.brief().ends_with("3 free of 9"), "{scattered}");
        let driver = |doing: &str, code| Error::Driver {
            doing: doing.into(),
            code,
            name: String::new(),
            queued: String::new(),
        };
        // An address, an error that was contained, tensor memory that was kept, a client that its server ended.
        for code in [700, 226, 721, 810] {
            let lost = driver("linear", code);
            assert!(lost.to_string().contains("this process cannot use the device any more"), "{lost}");
            assert!(ogive_tensor::Error::from(lost).is_device_lost(), "{code}");
        }
        assert!(driver("loading", OUT_OF_MEMORY).to_string().contains("nvidia-smi"));
        let pinned = driver("taking 9 bytes of page-locked memory", OUT_OF_MEMORY).to_string();
        assert!(pinned.contains("ulimit -l") && !pinned.contains("nvidia-smi"), "{pinned}");
        let shared = ogive_tensor::Error::from(e);
        assert!(!shared.is_device_lost());
        assert!(matches!(shared.kind(), ogive_tensor::ErrorKind::Memory { needed: 10, available: 3 }));
    }
}
