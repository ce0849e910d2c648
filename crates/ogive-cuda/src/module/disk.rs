//! Compiled kernels on disk, so that a program starts in a tenth of a second the second time.
//!
//! A file holds everything it was compiled from beside the code, and a checksum of both: a name that two sources share by chance, a
//! torn write and another process's half-written file all read as "not there". Writing goes to a file of its own that is
//! then renamed, and failing to write is no error: the cache is a convenience.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The folder, or `off`.
const VARIABLE: &str = "OGIVE_CUDA_CACHE";
const MAGIC: &[u8] = b"ogive kernel 1\n";
/// No compiled module is larger.
const LARGEST: u64 = 1 << 28;

/// Where compiled kernels are kept, if anywhere.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    folder: Option<PathBuf>,
}

impl Disk {
    /// What the environment says: `OGIVE_CUDA_CACHE`, else the user's folder for caches.
    pub(super) fn here() -> Self {
        let path = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let folder = match path(VARIABLE) {
            Some(off) if off.as_os_str() == "off" || off.as_os_str() == "0" => None,
            Some(folder) => Some(folder),
            None => path("XDG_CACHE_HOME")
                .or_else(|| path("HOME").map(|home| home.join(".cache")))
                .map(|cache| cache.join("ogive").join("kernels")),
        };
        Self { folder }
    }

    fn path(&self, key: &str) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(format!("{:032x}.bin", fnv128(key.as_bytes()))))
    }

    /// What was compiled from `key`, if it is there and whole.
    pub(super) fn get(&self, key: &str) -> Option<Vec<u8>> {
        let path = self.path(key)?;
        if std::fs::metadata(&path).ok()?.len() > LARGEST {
            return None;
        }
        let file = std::fs::read(&path).ok()?;
        let (body, sum) = file.split_last_chunk::<8>()?;
        if u64::from_le_bytes(*sum) != fnv64(body) {
            return None;
        }
        let rest = body.strip_prefix(MAGIC)?;
        let (len, rest) = rest.split_first_chunk::<8>()?;
        let (stored, code) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
        (stored == key.as_bytes() && !code.is_empty()).then(|| code.to_vec())
    }

    /// Keeps what was compiled from `key`.
    pub(super) fn put(&self, key: &str, code: &[u8]) {
        let Some(path) = self.path(key) else { return };
        if let Err(e) = write(&path, key, code) {
            tracing::debug!(target: "ogive::cuda", path = %path.display(), error = %e, "a compiled kernel was not kept");
        }
    }
}

fn write(path: &Path, key: &str, code: &[u8]) -> std::io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = MAGIC.to_vec();
    file.extend((key.len() as u64).to_le_bytes());
    file.extend(key.as_bytes());
    file.extend(code);
    file.extend(fnv64(&file).to_le_bytes());
    let staged = path.with_extension(format!("{}.{}", std::process::id(), NUMBER.fetch_add(1, Relaxed)));
    let done = std::fs::write(&staged, file).and_then(|()| std::fs::rename(&staged, path));
    if done.is_err() {
        std::fs::remove_file(&staged).ok();
    }
    done
}

/// FNV-1a (Fowler, Noll and Vo, <https://www.rfc-editor.org/rfc/rfc9923>): enough to notice damage, no defence against intent.
fn fnv64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

fn fnv128(bytes: &[u8]) -> u128 {
    let prime = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let basis = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    bytes.iter().fold(basis, |h: u128, b| (h ^ u128::from(*b)).wrapping_mul(prime))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn keeps_what_is_whole_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk { folder: Some(folder.path().join("deep/er")) };
        assert_eq!(disk.get("a"), None);
        disk.put("a", b"code");
        disk.put("b", b"other");
        assert_eq!(disk.get("a").as_deref(), Some(&b"code"[..]));
        assert_eq!(disk.get("c"), None);
        // Another key's file under this key's name, as if their hashes were the same.
        std::fs::copy(disk.path("b").unwrap(), disk.path("a").unwrap()).unwrap();
        assert_eq!(disk.get("a"), None);
        let path = disk.path("b").unwrap();
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut torn = whole.clone();
            torn[at] ^= 1;
            std::fs::write(&path, &torn).unwrap();
            assert_eq!(disk.get("b"), None, "byte {at}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(disk.get("b"), None, "cut at {at}");
        }
        let staged = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(staged, 2);
    }

    const PROCESS: &str = "OGIVE_TEST_DISK";
    const KEYS: [&str; 3] = ["a", "b", "c"];

    /// What a process keeps: its own, so that a file of two would show.
    fn code(process: u8) -> Vec<u8> {
        vec![process; 20_000 + 10_000 * usize::from(process)]
    }

    /// Whose code it is.
    fn writer(code: &[u8]) -> u8 {
        let process = code[0];
        assert!(code == self::code(process), "neither one's code nor another's: {} bytes", code.len());
        process
    }

    /// Writes and reads until it is told to stop; says when it has read what processes 0 and 1 wrote.
    fn process(folder: &Path, number: u8) {
        let disk = Disk { folder: Some(folder.join("kernels")) };
        let mut seen = [false; 2];
        while !folder.join("stop").exists() {
            for key in KEYS {
                disk.put(key, &code(number));
                if let Some(seen) = disk.get(key).and_then(|c| seen.get_mut(usize::from(writer(&c)))) {
                    *seen = true;
                }
            }
            if seen == [true; 2] {
                std::fs::write(folder.join(format!("seen-{number}")), "").unwrap();
            }
        }
    }

    /// Three processes on one folder, one of which is killed as it writes, and damage in between.
    #[test]
    fn processes_share_a_folder() {
        if let Some(case) = std::env::var_os(PROCESS) {
            let case = case.into_string().unwrap();
            let (number, folder) = case.split_once(' ').unwrap();
            return process(Path::new(folder), number.parse().unwrap());
        }
        let folder = tempfile::tempdir().unwrap();
        let (at, end) = (folder.path(), Instant::now() + Duration::from_secs(120));
        let start = |number: u8| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "module::disk::tests::processes_share_a_folder"]);
            command.env(PROCESS, format!("{number} {}", at.display())).stdin(Stdio::null());
            command.stdout(Stdio::null()).spawn().unwrap()
        };
        let mut all = [0, 1, 2].map(start);
        let disk = Disk { folder: Some(at.join("kernels")) };
        // A write that was cut off, and a file of a process that died.
        let torn = |path: &Path| std::fs::write(path, &MAGIC[..7]).is_ok();
        let mut killed = false;
        while !["seen-0", "seen-1"].iter().all(|name| at.join(name).exists()) || !killed {
            assert!(Instant::now() < end, "processes did not read what others wrote");
            let found: Vec<u8> =
                KEYS.iter().filter_map(|key| disk.get(key)).map(|code| writer(&code)).collect();
            if found.contains(&2) && !killed {
                all[2].kill().unwrap();
                all[2].wait().unwrap();
                killed = torn(&disk.path("a").unwrap().with_extension("dead.0"));
            }
            torn(&disk.path("b").unwrap());
        }
        std::fs::write(at.join("stop"), "").unwrap();
        for process in &mut all[..2] {
            assert!(process.wait().unwrap().success());
        }
        // The last tear may have come after the last write.
        disk.put("b", &code(0));
        for key in KEYS {
            assert!(writer(&disk.get(key).unwrap()) < 3, "{key}");
        }
        // Nothing is left but theirs, and what the dead had begun.
        let dead = [format!("{}.", all[2].id()), "dead.".into()];
        for file in std::fs::read_dir(at.join("kernels")).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            let (_, ending) = name.split_once('.').unwrap();
            assert!(ending == "bin" || dead.iter().any(|dead| ending.starts_with(dead)), "{name}");
        }
    }

    #[test]
    fn can_be_off() {
        let disk = Disk { folder: None };
        disk.put("a", b"code");
        assert_eq!(disk.get("a"), None);
    }

    #[test]
    fn hashes_are_fnv() {
        // From the RFC's test vectors.
        assert_eq!(fnv64(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv128(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }
}
