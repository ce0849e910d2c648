//! `cargo xtask tidy`: the tree against the house rules. All findings are listed at once.
//!
//! Every check is a function from a [`Tree`], which is a map of paths to texts, to findings: so a test can plant a
//! fault in three lines and see it found.

mod arrows;
mod docs;
mod files;
mod links;
mod manifests;
mod unsafety;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;

use cargo_metadata::MetadataCommand;

/// Something that breaks a rule, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    /// From one; 0 where the whole file is meant.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_string(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line.max(1), self.message)
    }
}

/// The tracked text files, by their paths from the root.
#[derive(Debug, Default)]
struct Tree {
    files: BTreeMap<String, String>,
    /// Everything tracked, what is no text too: links may point there.
    paths: Vec<String>,
}

impl Tree {
    fn read(root: &Path) -> Result<Self, String> {
        let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output();
        let listed = listed.map_err(|e| format!("git cannot be started: {e}"))?;
        if !listed.status.success() {
            return Err(format!("git ls-files failed: {}", String::from_utf8_lossy(&listed.stderr).trim()));
        }
        let mut tree = Self::default();
        for path in String::from_utf8_lossy(&listed.stdout).split('\0').filter(|p| !p.is_empty()) {
            // A file can be tracked and deleted; a corpus need not be text.
            let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
            tree.paths.push(path.to_string());
            if let Ok(text) = String::from_utf8(bytes) {
                tree.files.insert(path.to_string(), text);
            }
        }
        Ok(tree)
    }

    fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Files whose path starts and ends so.
    fn matching<'a>(&'a self, start: &'a str, end: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let files = self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        files.filter(move |(path, _)| path.starts_with(start) && path.ends_with(end))
    }

    /// The libraries, by the folders that have a manifest.
    fn crates(&self) -> impl Iterator<Item = &str> {
        let libraries =
            self.matching("crates/", "/Cargo.toml").filter_map(|(path, _)| path.split('/').nth(1));
        // The one library that is not under its own name in `crates`.
        libraries.chain(self.get("kernels/Cargo.toml").map(|_| "ogive-kernels"))
    }
}

/// Runs every check on the tree at `root`.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .map_err(|e| format!("cargo metadata failed: {e}"))?;
    let tree = Tree::read(root)?;
    let graph = arrows::Graph::of(&metadata);
    for (from, to) in &graph.dev {
        eprintln!("tidy: for tests only: {from} -> {to}");
    }
    let mut findings = arrows::check(&graph);
    findings.extend(manifests::check(&manifests::published(&metadata)));
    findings.extend(files::check(&tree));
    findings.extend(unsafety::check(&tree));
    findings.extend(docs::check(&tree));
    findings.extend(links::check(&tree));
    findings.sort();
    findings.dedup();
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => {
            eprintln!("tidy: {} files, no findings", tree.paths.len());
            Ok(())
        }
        n => Err(format!("tidy: {n} findings, listed above")),
    }
}

#[cfg(test)]
fn tree(files: &[(&str, &str)]) -> Tree {
    Tree {
        files: files.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect(),
        paths: files.iter().map(|(path, _)| path.to_string()).collect(),
    }
}

/// Fails unless exactly these places are found, in order.
#[cfg(test)]
fn assert_found(mut findings: Vec<Finding>, expected: &[(&str, usize, &str)]) {
    findings.sort();
    let found: Vec<_> = findings.iter().map(|f| (f.path.as_str(), f.line)).collect();
    let places: Vec<_> = expected.iter().map(|(path, line, _)| (*path, *line)).collect();
    assert_eq!(found, places, "{findings:#?}");
    for (finding, (_, _, words)) in findings.iter().zip(expected) {
        assert!(finding.message.contains(words), "{words:?} in {finding}");
    }
}
