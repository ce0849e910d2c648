//! What a registry and docs.rs show of a crate: every published manifest says it, so that `cargo publish` has nothing to warn of.
//!
//! Read from `cargo metadata` and not from the manifests' text: what the workspace gives to all is in it already.

use cargo_metadata::{Metadata, Package};

use super::Finding;

/// What a manifest says of its crate.
#[derive(Debug, Clone)]
pub(super) struct Manifest {
    /// From the root.
    path: String,
    description: bool,
    license: bool,
    /// A page of documentation, or a repository whose readme is one.
    page: bool,
    /// Whether there are features that are off by default, or can be switched off.
    features: bool,
    /// Whether docs.rs is told which features to document.
    told: bool,
}

impl Manifest {
    fn of(package: &Package, path: String) -> Self {
        let filled = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.trim().is_empty());
        let docs = package.metadata.pointer("/docs/rs");
        Self {
            path,
            description: filled(&package.description),
            license: filled(&package.license) || package.license_file.is_some(),
            page: filled(&package.documentation) || filled(&package.repository),
            features: package.features.keys().any(|name| name != "default"),
            told: docs
                .is_some_and(|docs| ["all-features", "features"].iter().any(|key| docs.get(key).is_some())),
        }
    }
}

/// The manifests of the packages that are published.
pub(super) fn published(metadata: &Metadata) -> Vec<Manifest> {
    let packages = metadata.workspace_packages().into_iter();
    let packages = packages.filter(|package| !package.publish.as_ref().is_some_and(Vec::is_empty));
    let manifest = |package: &Package| {
        let path = package.manifest_path.strip_prefix(&metadata.workspace_root);
        Manifest::of(package, path.unwrap_or(&package.manifest_path).to_string())
    };
    packages.map(manifest).collect()
}

pub(super) fn check(manifests: &[Manifest]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in manifests {
        let rules = [
            (manifest.description, "no `description`: a published crate says in a line what it is"),
            (manifest.license, "no `license`: a published crate takes the workspace's"),
            (
                manifest.page,
                "neither `documentation` nor `repository`: a published crate says where to read on",
            ),
            (
                manifest.told || !manifest.features,
                "features, and no `all-features` under [package.metadata.docs.rs]: docs.rs would leave out what they add",
            ),
        ];
        for (_, message) in rules.iter().filter(|(holds, _)| !holds) {
            findings.push(Finding::new(&manifest.path, 0, *message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_found;

    fn good() -> Manifest {
        Manifest {
            path: "crates/a/Cargo.toml".into(),
            description: true,
            license: true,
            page: true,
            features: true,
            told: true,
        }
    }

    #[test]
    fn what_says_everything_passes() {
        assert_found(check(&[good(), Manifest { features: false, told: false, ..good() }]), &[]);
    }

    #[test]
    fn what_is_left_out_is_named() {
        const PATH: &str = "crates/a/Cargo.toml";
        let found = |manifest| check(&[good(), manifest]);
        let lacks = |words| [(PATH, 0, words)];
        assert_found(found(Manifest { description: false, ..good() }), &lacks("`description`"));
        assert_found(found(Manifest { license: false, ..good() }), &lacks("`license`"));
        assert_found(found(Manifest { page: false, ..good() }), &lacks("`documentation`"));
        assert_found(found(Manifest { told: false, ..good() }), &lacks("docs.rs"));
    }

    #[test]
    fn manifests_are_read_as_cargo_reads_them() {
        let folder = std::env::temp_dir().join(format!("tidy-manifests-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("src")).unwrap();
        std::fs::write(folder.join("src/lib.rs"), "").unwrap();
        let read = |rest: &str| {
            let text = format!(
                "[package]\nname = \"a\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{rest}\n[workspace]\n"
            );
            std::fs::write(folder.join("Cargo.toml"), text).unwrap();
            let mut command = cargo_metadata::MetadataCommand::new();
            check(&published(&command.manifest_path(folder.join("Cargo.toml")).no_deps().exec().unwrap()))
        };
        let all = "description = \"a\"\nlicense = \"MIT\"\ndocumentation = \"https://docs.rs/a\"\n";
        let features = "[features]\nx = []\n";
        assert_found(read(all), &[]);
        assert_found(read(&format!("{all}{features}[package.metadata.docs.rs]\nall-features = true\n")), &[]);
        assert_found(read(&format!("{all}{features}")), &[("Cargo.toml", 0, "docs.rs")]);
        assert_eq!(read("").len(), 3);
        assert_found(read("publish = false"), &[]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
