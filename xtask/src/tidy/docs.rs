//! Documents in step with the tree: tables of crates, changelogs, no paths of somebody's machine.

use std::collections::BTreeSet;

use super::{Finding, Tree};

/// Starts of paths that only exist on one machine. Written in two halves: this file is checked too.
const MACHINE_PATHS: [&str; 5] = [
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
    concat!("C:\\", "Users"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    readme(tree, &mut findings);
    architecture(tree, &mut findings);
    changelogs(tree, &mut findings);
    machine_paths(tree, &mut findings);
    findings
}

/// The README's table whose first column is headed "crate" names every library once, and no other.
fn readme(tree: &Tree, findings: &mut Vec<Finding>) {
    const PATH: &str = "README.md";
    let Some(text) = tree.get(PATH) else {
        findings.push(Finding::new(PATH, 0, "file is missing"));
        return;
    };
    let mut named: BTreeSet<&str> = BTreeSet::new();
    let mut inside = false;
    let mut table = None;
    for (i, line) in text.lines().enumerate() {
        let first = line.strip_prefix('|').and_then(|rest| rest.split('|').next()).map(str::trim);
        let Some(first) = first else {
            inside = false;
            continue;
        };
        if first.trim_matches(|c: char| !c.is_alphabetic()).eq_ignore_ascii_case("crate") {
            inside = true;
            table = table.or(Some(i + 1));
        } else if inside {
            // `name` or [`name`](link); the rule under the heading has no back quotes.
            for name in first.split('`').skip(1).step_by(2) {
                if !tree.crates().any(|c| c == name) {
                    findings.push(Finding::new(
                        PATH,
                        i + 1,
                        format!("table of crates names `{name}`, which is no crate"),
                    ));
                } else if !named.insert(name) {
                    findings.push(Finding::new(PATH, i + 1, format!("table of crates names `{name}` twice")));
                }
            }
        }
    }
    let Some(line) = table else {
        findings.push(Finding::new(PATH, 0, "no table whose first column is headed `crate`"));
        return;
    };
    for name in tree.crates().filter(|name| !named.contains(name)) {
        findings.push(Finding::new(PATH, line, format!("table of crates lacks `{name}`")));
    }
}

fn architecture(tree: &Tree, findings: &mut Vec<Finding>) {
    const PATH: &str = "docs/ARCHITECTURE.md";
    // Its absence is a finding of the check for `unsafe`.
    let Some(text) = tree.get(PATH) else { return };
    for name in tree.crates() {
        if !text.contains(&format!("`{name}`")) {
            findings.push(Finding::new(
                PATH,
                0,
                format!("does not mention `{name}`: every crate has its place there"),
            ));
        }
    }
}

fn changelogs(tree: &Tree, findings: &mut Vec<Finding>) {
    const PATH: &str = "CHANGELOG.md";
    if tree.get(PATH).is_none() {
        findings.push(Finding::new(PATH, 0, "file is missing"));
    }
    for (path, text) in
        tree.matching("", PATH).filter(|(path, _)| *path == PATH || path.ends_with("/CHANGELOG.md"))
    {
        let heading =
            |line: &str| line.trim_start_matches("## ").trim_matches(['[', ']', ' ']) == "Unreleased";
        if !text.lines().any(|line| line.starts_with("## ") && heading(line)) {
            findings.push(Finding::new(path, 0, "no section `## Unreleased`"));
        }
    }
}

fn machine_paths(tree: &Tree, findings: &mut Vec<Finding>) {
    // Corpora hold arbitrary bytes.
    for (path, text) in tree.matching("", "").filter(|(path, _)| !path.contains("/corpus/")) {
        for (i, line) in text.lines().enumerate() {
            if let Some(found) = MACHINE_PATHS.iter().find(|start| is_path(line, start)) {
                findings.push(Finding::new(path, i + 1, format!("path of one machine: {found}…")));
            }
        }
    }
}

/// Whether a path starts so: not the middle of another path or of an address, nor an example whose user is one letter.
fn is_path(line: &str, start: &str) -> bool {
    line.match_indices(start).any(|(at, _)| {
        let before = line.get(..at).and_then(|s| s.chars().next_back());
        let after = line.get(at + start.len()..).unwrap_or_default();
        let name = after.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.')).count();
        if name == 1 {
            return false;
        }
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '~' | '$' | '}' | '/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{assert_found, tree};

    const TABLE: &str = "# x\n\n| crate | what |\n|---|---|\n| `a` | x |\n| [`b`](crates/b) | y |\n\n| format |\n|---|\n| `q8` |\n";
    const CHANGES: &str = "# Changes\n\n## [Unreleased]\n";

    fn with<'a>(extra: &[(&'a str, &'a str)]) -> Tree {
        let mut files = vec![
            ("README.md", TABLE),
            ("docs/ARCHITECTURE.md", "`a` and `b`"),
            ("CHANGELOG.md", CHANGES),
            ("crates/a/Cargo.toml", ""),
            ("crates/b/Cargo.toml", ""),
        ];
        files.extend_from_slice(extra);
        tree(&files)
    }

    #[test]
    fn what_is_in_step_passes() {
        assert_found(check(&with(&[("crates/a/CHANGELOG.md", "## Unreleased\n")])), &[]);
    }

    #[test]
    fn tables_name_every_crate_and_no_other() {
        let found = check(&with(&[("crates/c/Cargo.toml", "")]));
        assert_found(found, &[("README.md", 3, "lacks `c`"), ("docs/ARCHITECTURE.md", 0, "`c`")]);
        let stale = TABLE.replace("| y |\n", "| y |\n| `gone` | z |\n| `a` | again |\n");
        let found = check(&with(&[("README.md", &stale)]));
        assert_found(found, &[("README.md", 7, "is no crate"), ("README.md", 8, "twice")]);
        assert_found(check(&with(&[("README.md", "# x\n")])), &[("README.md", 0, "no table")]);
    }

    #[test]
    fn changelogs_are_open() {
        let found = check(&with(&[("crates/a/CHANGELOG.md", "# x\n## 0.1.0\nUnreleased\n")]));
        assert_found(found, &[("crates/a/CHANGELOG.md", 0, "Unreleased")]);
        let found =
            check(&tree(&[("README.md", TABLE), ("crates/a/Cargo.toml", ""), ("crates/b/Cargo.toml", "")]));
        assert_found(found, &[("CHANGELOG.md", 0, "missing")]);
    }

    #[test]
    fn machine_paths_are_found() {
        let text = format!("fine: https://x.org{0}y ./{0} ../../x {0}a/b\nbad: {0}me/x\n", MACHINE_PATHS[0]);
        assert_found(check(&with(&[("docs/x.md", &text)])), &[("docs/x.md", 2, "one machine")]);
        assert_found(check(&with(&[("fuzz/corpus/x/y", &text)])), &[]);
    }
}
