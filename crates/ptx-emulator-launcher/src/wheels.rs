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

    fn set(self) -> Result<Set, Error> {
        Set::named(&format!("nvrtc-{self}"))
    }

    /// The version of CUDA that it came with, as the driver writes versions.
    pub(crate) fn cuda(self) -> &'static str {
        match self {
            Self::V11 => "11080",
            Self::V12 => "12090",
            Self::V13 => "13050",
        }
    }

    pub(crate) fn folder(self, cache: &Path, say: &dyn Fn(&str)) -> Result<PathBuf, Error> {
        let set = self.set()?;
        let root = set.unpacked(cache, say)?;
        // Until CUDA 12 each library has its folder; from 13 on they share one.
        let folders = ["nvidia/cuda_nvrtc/lib", "nvidia/cu13/lib"].map(|inner| root.join(inner));
        folders.into_iter().find(|folder| folder.is_dir()).ok_or_else(|| set.lacks("lib folder", &root))
    }

    /// The compiler's library in its folder.
    ///
    /// # Errors
    /// [`Error::Incomplete`] if it is not there.
    pub fn library(self, folder: &Path) -> Result<PathBuf, Error> {
        let set = self.set()?;
        let name = match self {
            // Named after the first version with this interface.
            Self::V11 => "libnvrtc.so.11.2",
            Self::V12 => "libnvrtc.so.12",
            Self::V13 => "libnvrtc.so.13",
        };
        Some(folder.join(name)).filter(|path| path.is_file()).ok_or_else(|| set.lacks(name, folder))
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

/// nvcc's own folder, with `bin`, `include` and `nvvm`.
pub(crate) fn nvcc(cache: &Path, say: &dyn Fn(&str)) -> Result<PathBuf, Error> {
    let set = Set::named("nvcc-13")?;
    let root = set.unpacked(cache, say)?;
    let folder = root.join("nvidia/cu13");
    if folder.join("bin/nvcc").is_file() { Ok(folder) } else { Err(set.lacks("nvcc", &root)) }
}

/// Wheels that are unpacked into one folder.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Set {
    name: String,
    /// Lines for pip: package, version, hash.
    requirements: Vec<String>,
}

/// The packages and their versions.
impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packages = self.requirements.iter().filter_map(|line| line.split_whitespace().next());
        f.write_str(&packages.collect::<Vec<_>>().join(", ").replace("==", " "))
    }
}

impl Set {
    fn pinned() -> Vec<Self> {
        let mut sets: Vec<Self> = Vec::new();
        for line in PINNED.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix("# [").and_then(|rest| rest.strip_suffix(']')) {
                sets.push(Self { name: name.into(), requirements: Vec::new() });
            } else if line.contains("==")
                && let Some(set) = sets.last_mut()
            {
                set.requirements.push(line.into());
            }
        }
        sets
    }

    fn named(name: &str) -> Result<Self, Error> {
        let found = Self::pinned().into_iter().find(|set| set.name == name);
        found.ok_or_else(|| Error::Pip { wheel: name.into(), detail: "it is not in the list".into() })
    }

    fn lacks(&self, what: &str, folder: &Path) -> Error {
        Error::Incomplete { wheel: self.to_string(), what: what.into(), folder: folder.into() }
    }

    /// The name of its folder: another version, another folder.
    fn folder_name(&self) -> String {
        let version =
            self.requirements.first().and_then(|line| line.split_once("==")?.1.split_whitespace().next());
        format!("{}-{}", self.name, version.unwrap_or("0"))
    }

    /// The folder with its files; fetched the first time.
    fn unpacked(&self, cache: &Path, say: &dyn Fn(&str)) -> Result<PathBuf, Error> {
        let name = self.folder_name();
        let folder = cache.join(&name);
        if folder.is_dir() {
            return Ok(folder);
        }
        here()?;
        std::fs::create_dir_all(cache).map_err(|e| Error::files("making", cache, &e))?;
        let lock = cache.join("lock");
        let locked = std::fs::File::create(&lock).and_then(|file| file.lock().map(|()| file));
        let _locked = locked.map_err(|e| Error::files("locking", &lock, &e))?;
        // Another process may have been quicker, or may just have failed.
        if folder.is_dir() {
            return Ok(folder);
        }
        let failure = cache.join(format!("{name}.failed"));
        if let Some(error) = self.failed_lately(&failure) {
            return Err(error);
        }
        say(&format!("fetching {self} (once)"));
        let staging = cache.join(format!("{name}.part"));
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
        let list = staging.join("requirements.txt");
        std::fs::write(&list, self.requirements.join("\n") + "\n")
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

/// Refuses machines that the emulator and NVIDIA's wheels are not for.
pub(crate) fn here() -> Result<(), Error> {
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Ok(());
    }
    Err(Error::Platform { platform: format!("{} on {}", std::env::consts::OS, std::env::consts::ARCH) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_whole() {
        let sets = Set::pinned();
        let lines: Vec<&String> = sets.iter().flat_map(|set| &set.requirements).collect();
        assert_eq!(lines.len(), PINNED.lines().filter(|line| line.contains("==")).count());
        for line in lines {
            let hash = line.split("--hash=sha256:").nth(1).unwrap_or_default();
            assert!(hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()), "{line}");
        }
        for nvrtc in Nvrtc::ALL {
            assert!(nvrtc.set().unwrap().folder_name().starts_with(&format!("nvrtc-{nvrtc}-{nvrtc}.")));
            assert_eq!(nvrtc.to_string().parse(), Ok(nvrtc));
            let [major, minor] = [nvrtc.cuda()[..2].to_owned(), nvrtc.cuda()[3..4].to_owned()];
            let version = format!("nvrtc-{nvrtc}-{major}.{minor}.");
            assert!(nvrtc.set().unwrap().folder_name().starts_with(&version), "{version}");
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
        let set = Set::named("nvrtc-13").unwrap();
        let failure = folder.join("x.failed");
        assert!(set.failed_lately(&failure).is_none());
        std::fs::write(&failure, "down").unwrap();
        assert!(matches!(set.failed_lately(&failure), Some(Error::NoNetwork { .. })));
        let old = std::time::SystemTime::now() - PATIENCE * 2;
        std::fs::File::options().write(true).open(&failure).unwrap().set_modified(old).unwrap();
        assert!(set.failed_lately(&failure).is_none());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
