//! NVIDIA's wheels: pinned in `wheels.txt`, fetched by pip, kept unpacked.
//!
//! pip does the fetching because it knows mirrors, proxies and its own cache, and compares hashes itself; a downloader of our own
//! would have to learn all that. A folder that stands under its final name is complete: it is renamed into place last.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Error;

const PINNED: &str = include_str!("../wheels.txt");
/// A failure is not tried again for so long: forty tests without a network shall not wait forty times.
const PATIENCE: Duration = Duration::from_secs(120);

/// A compiler, by its major version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Nvrtc {
    /// 11.8: `sm_35` to `sm_90`.
    V11,
    /// 12.9: `sm_50` to `sm_121`.
    V12,
    /// 13.5: `sm_75` to `sm_121`.
    V13,
}

impl Nvrtc {
    /// All of them, oldest first.
    pub const ALL: [Self; 3] = [Self::V11, Self::V12, Self::V13];

    fn package(self) -> &'static str {
        match self {
            Self::V11 => "nvidia-cuda-nvrtc-cu11",
            Self::V12 => "nvidia-cuda-nvrtc-cu12",
            Self::V13 => "nvidia-cuda-nvrtc",
        }
    }

    pub(crate) fn folder(self, cache: &Path, say: &dyn Fn(&str)) -> Result<PathBuf, Error> {
        let wheel = Wheel::named(self.package())?;
        let root = wheel.unpacked(cache, say)?;
        // Until CUDA 12 each library has its folder; from 13 on they share one.
        let folders = ["nvidia/cuda_nvrtc/lib", "nvidia/cu13/lib"].map(|inner| root.join(inner));
        folders.into_iter().find(|folder| folder.is_dir()).ok_or_else(|| wheel.lacks("lib folder", &root))
    }

    /// The compiler's library in its folder.
    ///
    /// # Errors
    /// [`Error::Incomplete`] if it is not there.
    pub fn library(self, folder: &Path) -> Result<PathBuf, Error> {
        let wheel = Wheel::named(self.package())?;
        let name = match self {
            // Named after the first version with this interface.
            Self::V11 => "libnvrtc.so.11.2",
            Self::V12 => "libnvrtc.so.12",
            Self::V13 => "libnvrtc.so.13",
        };
        Some(folder.join(name)).filter(|path| path.is_file()).ok_or_else(|| wheel.lacks(name, folder))
    }
}

impl fmt::Display for Nvrtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V11 => "11",
            Self::V12 => "12",
            Self::V13 => "13",
        })
    }
}

impl std::str::FromStr for Nvrtc {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|nvrtc| nvrtc.to_string() == text);
        found.ok_or_else(|| format!("no NVRTC {text:?}; there are 11, 12 and 13"))
    }
}

/// The folders of the toolkit's headers.
pub(crate) fn headers(cache: &Path, say: &dyn Fn(&str)) -> Result<Vec<PathBuf>, Error> {
    let parts = [
        ("nvidia-cuda-runtime-cu12", "nvidia/cuda_runtime/include"),
        ("nvidia-cuda-nvcc-cu12", "nvidia/cuda_nvcc/include"),
    ];
    let mut folders = Vec::new();
    for (package, inner) in parts {
        let wheel = Wheel::named(package)?;
        let root = wheel.unpacked(cache, say)?;
        let folder = root.join(inner);
        if !folder.is_dir() {
            return Err(wheel.lacks("include folder", &root));
        }
        folders.push(folder);
    }
    Ok(folders)
}

/// One pinned file of a package index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wheel {
    /// The package.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The line for pip, with the hash.
    requirement: String,
}

impl fmt::Display for Wheel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

impl Wheel {
    /// All pinned wheels, in the order of the list.
    #[must_use]
    pub fn pinned() -> Vec<Self> {
        let lines = PINNED.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines
            .filter_map(|line| {
                let (name, rest) = line.split_once("==")?;
                let version = rest.split_whitespace().next()?;
                Some(Self { name: name.into(), version: version.into(), requirement: line.into() })
            })
            .collect()
    }

    fn named(name: &str) -> Result<Self, Error> {
        let found = Self::pinned().into_iter().find(|wheel| wheel.name == name);
        found.ok_or_else(|| Error::Pip { wheel: name.into(), detail: "it is not in the list".into() })
    }

    fn lacks(&self, what: &str, folder: &Path) -> Error {
        Error::Incomplete { wheel: self.to_string(), what: what.into(), folder: folder.into() }
    }

    /// The folder with its files; fetched the first time.
    fn unpacked(&self, cache: &Path, say: &dyn Fn(&str)) -> Result<PathBuf, Error> {
        let folder = cache.join(format!("{}-{}", self.name, self.version));
        if folder.is_dir() {
            return Ok(folder);
        }
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            let platform = format!("{} on {}", std::env::consts::OS, std::env::consts::ARCH);
            return Err(Error::Platform { platform });
        }
        std::fs::create_dir_all(cache).map_err(|e| Error::files("making", cache, &e))?;
        let lock = cache.join("lock");
        let locked = std::fs::File::create(&lock).and_then(|file| file.lock().map(|()| file));
        let _locked = locked.map_err(|e| Error::files("locking", &lock, &e))?;
        // Another process may have been quicker, or may just have failed.
        if folder.is_dir() {
            return Ok(folder);
        }
        let failure = cache.join(format!("{}-{}.failed", self.name, self.version));
        if let Some(error) = self.failed_lately(&failure) {
            return Err(error);
        }
        say(&format!("fetching {self} (once)"));
        let staging = cache.join(format!("{}-{}.part", self.name, self.version));
        let outcome = self.fetch(&staging).and_then(|()| {
            std::fs::rename(&staging, &folder).map_err(|e| Error::files("moving", &staging, &e))
        });
        match &outcome {
            Ok(()) => std::fs::remove_file(&failure).ok(),
            Err(Error::NoNetwork { detail, .. }) => std::fs::write(&failure, detail).ok(),
            Err(_) => None,
        };
        outcome.map(|()| folder)
    }

    fn failed_lately(&self, failure: &Path) -> Option<Error> {
        let age = std::fs::metadata(failure).and_then(|m| m.modified()).ok()?.elapsed().ok()?;
        let detail = std::fs::read_to_string(failure).ok().filter(|_| age < PATIENCE)?;
        Some(Error::NoNetwork { wheel: self.to_string(), detail })
    }

    fn fetch(&self, staging: &Path) -> Result<(), Error> {
        if staging.exists() {
            std::fs::remove_dir_all(staging).map_err(|e| Error::files("emptying", staging, &e))?;
        }
        std::fs::create_dir_all(staging).map_err(|e| Error::files("making", staging, &e))?;
        let list = staging.join("requirement.txt");
        std::fs::write(&list, format!("{}\n", self.requirement))
            .map_err(|e| Error::files("writing", &list, &e))?;
        let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
        let output = Command::new(&python)
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-input",
                "--disable-pip-version-check",
                "--retries",
                "2",
            ])
            .args(["--no-deps", "--no-compile", "--only-binary", ":all:", "--require-hashes", "--target"])
            .arg(staging)
            .arg("--requirement")
            .arg(&list)
            .output();
        let wheel = self.to_string();
        let output = match output {
            Ok(output) => output,
            Err(e) => return Err(Error::NoPip { wheel, python, detail: e.to_string() }),
        };
        if output.status.success() {
            return Ok(());
        }
        Err(explained(wheel, python, &String::from_utf8_lossy(&output.stderr)))
    }
}

/// What went wrong, from pip's words.
fn explained(wheel: String, python: String, said: &str) -> Error {
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let detail = lines.get(lines.len().saturating_sub(6)..).unwrap_or_default().join("\n");
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if has(&["No module named pip"]) {
        Error::NoPip { wheel, python, detail }
    } else if has(&["DO NOT MATCH THE HASHES"]) {
        Error::WrongHash { wheel, detail }
    } else if has(&["NewConnectionError", "Connection", "timed out", "resolution", "ProxyError", "SSLError"])
    {
        Error::NoNetwork { wheel, detail }
    } else {
        Error::Pip { wheel, detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_whole() {
        let wheels = Wheel::pinned();
        assert_eq!(wheels.len(), PINNED.lines().filter(|line| line.contains("==")).count());
        for wheel in &wheels {
            let hash = wheel.requirement.split("--hash=sha256:").nth(1).unwrap_or_default();
            assert!(hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()), "{wheel}");
        }
        for nvrtc in Nvrtc::ALL {
            assert!(Wheel::named(nvrtc.package()).is_ok(), "{nvrtc}");
            assert_eq!(nvrtc.to_string().parse(), Ok(nvrtc));
        }
    }

    #[test]
    fn what_pip_says_is_explained() {
        let said = |text: &str| explained("w".into(), "python3".into(), text).to_string();
        assert!(said("/usr/bin/python3: No module named pip").contains("python3-pip"));
        assert!(said("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE\nExpected x").contains("hash"));
        assert!(
            said("WARNING: Retrying after NewConnectionError('x')\nERROR: No matching").contains("reached")
        );
        assert!(said("ERROR: No matching distribution found for w").contains("wheels.txt"));
    }

    #[test]
    fn a_failure_is_remembered_for_a_while() {
        let folder = std::env::temp_dir().join(format!("emu-failed-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let wheel = Wheel::named("nvidia-cuda-nvrtc").unwrap();
        let failure = folder.join("x.failed");
        assert!(wheel.failed_lately(&failure).is_none());
        std::fs::write(&failure, "down").unwrap();
        assert!(matches!(wheel.failed_lately(&failure), Some(Error::NoNetwork { .. })));
        let old = std::time::SystemTime::now() - PATIENCE * 2;
        std::fs::File::options().write(true).open(&failure).unwrap().set_modified(old).unwrap();
        assert!(wheel.failed_lately(&failure).is_none());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
