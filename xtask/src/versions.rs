//! `cargo xtask minimal-versions` and `cargo xtask semver`: whether what the manifests promise is true.
//!
//! The first is a step of `ci`; the second is not, for it wants a release to compare with and a tool that takes longer to build than
//! all of Ogive. docs/RELEASING.md says when it is run.
//!
//! What is checked with the oldest versions is what others will get: the packed crates, unpacked side by side in a workspace of their own. So a file
//! that is not packed, or a manifest that leans on the workspace's, is found too, and Cargo.lock, which is what everyone here builds, is left alone.

use crate::ci::command;
use crate::golden::done;
use cargo_metadata::{Metadata, MetadataCommand, Package};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `cargo xtask help` says.
pub(crate) const HELP: &str = "  minimal-versions    packs what is published, and builds that with the oldest dependencies that its manifests allow
  semver [REV]        compares public interfaces with a revision's, by default the last tag's (wants cargo-semver-checks)
";

/// Packs the published crates and checks what is packed with the lowest versions of what they name themselves.
pub(crate) fn minimal(root: &Path) -> Result<(), String> {
    let metadata = metadata(root)?;
    let target = metadata.target_directory.as_std_path();
    let folder = target.join("minimal-versions");
    let tree = unpacked(root, &published(&metadata), &folder)?;
    // Unstable, but only this one switch: the compiler that builds is the stable one.
    let update = |more: &[&str]| {
        let mut update = command(&tree);
        update.args(["-Z", "direct-minimal-versions", "update"]).args(more).env("RUSTC_BOOTSTRAP", "1");
        done(&mut update, "cargo update to the oldest versions")
    };
    // Without a network what was found the last time will do.
    update(&["--quiet"]).or_else(|_| update(&["--offline"]))?;
    let mut check = command(&tree);
    // As the workspace compiles, and where it does: what macros are made of, and much else that they do not name themselves, is there.
    check.args(["check", "--workspace", "--all-features"]).env("CARGO_TARGET_DIR", target);
    check.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
    done(&mut check, "cargo check of what is packed, with the oldest dependencies")
}

/// What would be uploaded of these packages, unpacked in `folder`: a workspace in which they take each other from beside them.
fn unpacked(root: &Path, packages: &[&Package], folder: &Path) -> Result<PathBuf, String> {
    let failed = |e: std::io::Error| format!("unpacking into {}: {e}", folder.display());
    let (packed, tree) = (folder.join("packed"), folder.join("tree"));
    for old in [&packed, &tree] {
        match fs::remove_dir_all(old) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
    }
    // With all that an upload checks, but for the build: that is ours, of all at once and without making code.
    let mut publish = command(root);
    publish.args(["publish", "--dry-run", "--no-verify", "--workspace", "--allow-dirty", "--quiet"]);
    done(publish.arg("--target-dir").arg(&packed), "cargo publish --dry-run")?;
    fs::create_dir_all(&tree).map_err(failed)?;
    let mut manifest =
        String::from("[workspace]\nresolver = \"3\"\nmembers = [\"*-*.*.*\"]\n\n[patch.crates-io]\n");
    for package in packages {
        let of = format!("{}-{}", package.name, package.version);
        let archive = found(&packed, &format!("{of}.crate"))
            .ok_or_else(|| format!("cargo publish --dry-run packs no {of}.crate"))?;
        // Files are as new as this: all that are packed are of one day, and cargo goes by that.
        let mut tar = Command::new("tar");
        done(tar.args(["-xmzf"]).arg(archive).arg("-C").arg(&tree), "tar")?;
        manifest += &format!("{} = {{ path = \"{of}\" }}\n", package.name);
    }
    fs::write(tree.join("Cargo.toml"), manifest).map_err(failed)?;
    Ok(tree)
}

/// The file of this name in a folder or below it.
fn found(folder: &Path, name: &str) -> Option<PathBuf> {
    let entries: Vec<PathBuf> = folder.read_dir().ok()?.flatten().map(|entry| entry.path()).collect();
    let here = entries.iter().find(|path| path.is_file() && path.file_name().is_some_and(|n| n == name));
    here.cloned().or_else(|| entries.iter().find_map(|path| found(path, name)))
}

/// Compares with the revision, or with the last tag.
pub(crate) fn semver(root: &Path, revision: Option<&str>) -> Result<(), String> {
    let revision = match revision {
        Some(revision) => revision.to_owned(),
        None => last_tag(root)?,
    };
    let mut checks = command(root);
    checks.args(["semver-checks", "check-release", "--baseline-rev", &revision]);
    checks.args(published(&metadata(root)?).iter().flat_map(|package| ["--package", package.name.as_str()]));
    done(&mut checks, "cargo semver-checks (`cargo install cargo-semver-checks --locked` if it is missing)")
}

fn metadata(root: &Path) -> Result<Metadata, String> {
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec();
    metadata.map_err(|e| format!("cargo metadata failed: {e}"))
}

/// What the workspace publishes.
fn published(metadata: &Metadata) -> Vec<&Package> {
    let may = |p: &&Package| p.publish.as_ref().is_none_or(|registries| !registries.is_empty());
    metadata.workspace_packages().into_iter().filter(may).collect()
}

fn last_tag(root: &Path) -> Result<String, String> {
    let tag = git(root, &["describe", "--tags", "--abbrev=0"])
        .map_err(|_| "semver: there is no tag yet; name a revision to compare with".to_owned())?;
    Ok(tag.trim().to_owned())
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
        let names: Vec<&str> = published(&metadata).iter().map(|package| package.name.as_str()).collect();
        for name in ["ogive", "ogive-cli", "gguf-file", "ogive-kernels"] {
            assert!(names.contains(&name), "{names:?}");
        }
        for name in ["xtask", "ogive-benches", "ogive-examples", "ogive-example-outside"] {
            assert!(!names.contains(&name), "{names:?}");
        }
    }
}
