//! `cargo xtask minimal-versions` and `cargo xtask semver`: whether what the manifests promise is true.
//!
//! The first is a step of `ci`; the second is not, for it wants a release to compare with and a tool that takes longer to build than
//! all of Ogive. docs/RELEASING.md says when it is run.
//!
//! The oldest versions are resolved in a copy of the tree, for resolving writes Cargo.lock, and what is committed there is what
//! everyone else builds. Of the copy only what has changed is written, so that cargo checks only that again.

use crate::ci::command;
use crate::golden::done;
use cargo_metadata::MetadataCommand;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `cargo xtask help` says.
pub(crate) const HELP: &str = "  minimal-versions    builds what is published with the oldest dependencies that its manifests allow
  semver [REV]        compares public interfaces with a revision's, by default the last tag's (wants cargo-semver-checks)
";

/// Builds the published crates with the lowest versions of what they name themselves.
pub(crate) fn minimal(root: &Path) -> Result<(), String> {
    let metadata = metadata(root)?;
    let tree = metadata.target_directory.as_std_path().join("minimal-versions/tree");
    copy(root, &tree)?;
    // Unstable, but only this one switch: the compiler that builds is the stable one.
    let update = |more: &[&str]| {
        let mut update = command(&tree);
        update.args(["-Z", "direct-minimal-versions", "update"]).args(more).env("RUSTC_BOOTSTRAP", "1");
        done(&mut update, "cargo update to the oldest versions")
    };
    // Without a network what was found the last time will do.
    update(&["--quiet"]).or_else(|_| update(&["--offline"]))?;
    let mut check = command(&tree);
    check.args(["check", "--all-features"]).env("CARGO_TARGET_DIR", tree.with_file_name("build"));
    check.args(published(&metadata).iter().flat_map(|name| ["--package", name]));
    done(&mut check, "cargo check with the oldest dependencies")
}

/// Compares with the revision, or with the last tag.
pub(crate) fn semver(root: &Path, revision: Option<&str>) -> Result<(), String> {
    let revision = match revision {
        Some(revision) => revision.to_owned(),
        None => last_tag(root)?,
    };
    let mut checks = command(root);
    checks.args(["semver-checks", "check-release", "--baseline-rev", &revision]);
    checks.args(published(&metadata(root)?).iter().flat_map(|name| ["--package", name]));
    done(&mut checks, "cargo semver-checks (`cargo install cargo-semver-checks --locked` if it is missing)")
}

fn metadata(root: &Path) -> Result<cargo_metadata::Metadata, String> {
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec();
    metadata.map_err(|e| format!("cargo metadata failed: {e}"))
}

/// Libraries of the workspace that may be published. The program has no interface in Rust, and is built all the same.
fn published(metadata: &cargo_metadata::Metadata) -> Vec<&str> {
    let may =
        |p: &&cargo_metadata::Package| p.publish.as_ref().is_none_or(|registries| !registries.is_empty());
    metadata.workspace_packages().into_iter().filter(may).map(|p| p.name.as_str()).collect()
}

fn last_tag(root: &Path) -> Result<String, String> {
    let tag = git(root, &["describe", "--tags", "--abbrev=0"])
        .map_err(|_| "semver: there is no tag yet; name a revision to compare with".to_owned())?;
    Ok(tag.trim().to_owned())
}

/// Makes `to` what is in the tree and not ignored, but for Cargo.lock.
fn copy(root: &Path, to: &Path) -> Result<(), String> {
    let failed = |path: &str| {
        let path = path.to_owned();
        move |e: std::io::Error| format!("copying {path}: {e}")
    };
    let listed = git(root, &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    // A file can be tracked and deleted.
    let now: Vec<&str> =
        listed.split('\0').filter(|p| *p != "Cargo.lock" && root.join(p).is_file()).collect();
    let list = to.with_extension("list");
    let before = fs::read_to_string(&list).unwrap_or_default();
    for gone in before.split('\0').filter(|p| !p.is_empty() && !now.contains(p)) {
        fs::remove_file(to.join(gone)).map_err(failed(gone))?;
    }
    for path in &now {
        let (bytes, to) = (fs::read(root.join(path)).map_err(failed(path))?, to.join(path));
        if fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        let folder = to.parent().map(PathBuf::from).unwrap_or_default();
        fs::create_dir_all(folder).and_then(|()| fs::write(&to, bytes)).map_err(failed(path))?;
    }
    fs::write(&list, now.join("\0")).map_err(failed("the list"))
}

fn git(root: &Path, args: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(args).current_dir(root).output();
    let output = output.map_err(|e| format!("git cannot be started: {e}"))?;
    if !output.status.success() {
        return Err(format!(
            "git {} failed: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_are_the_crates_and_nothing_that_helps_to_make_them() {
        let metadata = metadata(&crate::root()).unwrap();
        let names = published(&metadata);
        for name in ["ogive", "ogive-cli", "gguf-file", "ogive-kernels"] {
            assert!(names.contains(&name), "{names:?}");
        }
        for name in ["xtask", "ogive-benches", "ogive-examples", "ogive-example-outside"] {
            assert!(!names.contains(&name), "{names:?}");
        }
    }
}
