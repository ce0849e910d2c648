//! How much memory could be had: what the system has, within what this process's control groups may take.
//!
//! A container's limit is a control group's, and `/proc/meminfo` does not know it. Whoever takes more is ended by the kernel.
//! Files: proc(5) and the kernel's `admin-guide/cgroup-v2.rst` and `cgroup-v1/memory.rst`.

use std::fs::read_to_string;
use std::path::{Component, Path};

/// Bytes of memory that could be had, where the system tells.
pub(crate) fn available() -> Option<u64> {
    below(Path::new("/"))
}

/// How a version of control groups tells what a group has.
struct Groups {
    /// What its line in `/proc/self/cgroup` has between the colons.
    controller: &'static str,
    /// Where the groups are, below the root.
    mount: &'static str,
    limit: &'static str,
    used: &'static str,
    /// Pages of files in `memory.stat`, which give way.
    files: [&'static str; 2],
}

const VERSIONS: [Groups; 2] = [
    Groups {
        controller: "",
        mount: "sys/fs/cgroup",
        limit: "memory.max",
        used: "memory.current",
        files: ["inactive_file ", "active_file "],
    },
    Groups {
        controller: "memory",
        mount: "sys/fs/cgroup/memory",
        limit: "memory.limit_in_bytes",
        used: "memory.usage_in_bytes",
        files: ["total_inactive_file ", "total_active_file "],
    },
];

/// The same of a system whose files are below `root`.
fn below(root: &Path) -> Option<u64> {
    let info = read_to_string(root.join("proc/meminfo")).ok()?;
    let line = info.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let all = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)?;
    let mine = read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    // `0::/a/b` or `4:cpu,memory:/a/b`
    let groups = mine.lines().filter_map(|line| {
        let [_, controllers, path] = line.splitn(3, ':').collect::<Vec<_>>().try_into().ok()?;
        let of = |g: &&Groups| controllers.split(',').any(|c| c == g.controller);
        Some((VERSIONS.iter().find(of)?, Path::new(path)))
    });
    let left = groups.filter_map(|(groups, path)| {
        // One from elsewhere than the mount shows: what is at the mount is the group of the container.
        let inside = path.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
        let path = path.strip_prefix("/").ok().filter(|_| inside).unwrap_or(Path::new(""));
        // A group may take no more than those that it is in.
        path.ancestors().filter_map(|path| groups.left(&root.join(groups.mount).join(path))).min()
    });
    left.chain([all]).min()
}

impl Groups {
    /// Bytes that the group in this folder may still take, if it has a limit.
    fn left(&self, group: &Path) -> Option<u64> {
        let number = |name| read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
        let (limit, used) = (number(self.limit)?, number(self.used)?);
        let stat = read_to_string(group.join("memory.stat")).unwrap_or_default();
        let of = |name| stat.lines().find_map(|l| l.strip_prefix(name)?.trim().parse::<u64>().ok());
        let files = self.files.into_iter().filter_map(of).fold(0, u64::saturating_add);
        Some(limit.saturating_sub(used.saturating_sub(files)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const INFO: (&str, &str) = ("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    1000 kB\n");

    fn of(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let at = root.path().join(name);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(at, text).unwrap();
        }
        below(root.path())
    }

    #[test]
    fn without_a_limit_it_is_the_systems() {
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[INFO]), Some(1_024_000));
        let group = ("proc/self/cgroup", "0::/a\n");
        let none =
            [INFO, group, ("sys/fs/cgroup/a/memory.max", "max\n"), ("sys/fs/cgroup/a/memory.current", "5\n")];
        assert_eq!(of(&none), Some(1_024_000));
        for odd in ["", "0", "0::", "x:y", "0::/../b\n", ":::::\n"] {
            assert_eq!(of(&[INFO, ("proc/self/cgroup", odd)]), Some(1_024_000), "{odd}");
        }
    }

    #[test]
    fn the_narrowest_of_the_groups_counts() {
        let mut files = vec![
            INFO,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "900000\n"),
            ("sys/fs/cgroup/a/memory.current", "500000\n"),
            ("sys/fs/cgroup/a/memory.stat", "file 9\ninactive_file 40000\nactive_file 10000\n"),
            ("sys/fs/cgroup/a/b/memory.max", "800000\n"),
            ("sys/fs/cgroup/a/b/memory.current", "100000\n"),
        ];
        assert_eq!(of(&files), Some(450_000));
        files[6].1 = "800001\n";
        assert_eq!(of(&files), Some(0));
    }

    #[test]
    fn a_container_sees_its_group_at_the_mount() {
        let files = [
            INFO,
            ("proc/self/cgroup", "5:cpu:/docker/x\n4:hugetlb,memory:/docker/x\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "700000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "200000\n"),
            (
                "sys/fs/cgroup/memory/memory.stat",
                "inactive_file 1\ntotal_inactive_file 20000\ntotal_active_file 0\n",
            ),
        ];
        assert_eq!(of(&files), Some(520_000));
    }
}
