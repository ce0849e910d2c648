//! Heads and lengths of source files, no conditions in models, and bindings in their place.

use super::{Finding, Tree};
use crate::source::{code_only, has_word};

/// Most lines a file may have.
const LIMIT: usize = 500;
/// Most lines of an architecture: it names layers and does nothing else.
const ARCHITECTURE: usize = 150;
/// Most lines of an example: it shows one idea.
const EXAMPLE: usize = 80;

/// Folders whose Rust files are held to the rules.
const FOLDERS: [&str; 6] = ["crates/", "kernels/", "examples/", "benches/", "fuzz/", "xtask/"];

/// Where cudarc may be named: the driver's folder, and tests of the emulator, which are programs as others write them.
const BINDINGS: [&str; 2] = ["crates/ogive-cuda/src/driver/", "crates/ptx-emulator/tests/"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for folder in FOLDERS {
        for (path, text) in tree.matching(folder, ".rs") {
            head(path, text, &mut findings);
            length(path, text, &mut findings);
            if path.starts_with("crates/ogive-models/src/") {
                conditions(path, text, &mut findings);
            }
            if !BINDINGS.iter().any(|place| path.starts_with(place)) {
                bindings(path, text, &mut findings);
            }
        }
    }
    findings
}

fn head(path: &str, text: &str, findings: &mut Vec<Finding>) {
    if !text.starts_with("//!") {
        findings.push(Finding::new(path, 1, "file does not open with `//!` saying what it is for"));
    }
}

fn limit(path: &str) -> (usize, &'static str) {
    let name = path.strip_prefix("crates/ogive-models/src/");
    if name.is_some_and(|name| !name.contains('/') && name != "lib.rs") {
        return (ARCHITECTURE, "an architecture");
    }
    // The package that adds an architecture from outside is a crate, not an example file.
    if path.starts_with("examples/outside/") {
        return (ARCHITECTURE, "an outside architecture");
    }
    let example = path.starts_with("examples/") && !path.starts_with("examples/tests/");
    if example { (EXAMPLE, "an example") } else { (LIMIT, "a file") }
}

fn length(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let lines = text.lines().count();
    let (limit, what) = limit(path);
    if lines > limit {
        let message = format!("{lines} lines; {what} has at most {limit}: split it by ideas");
        findings.push(Finding::new(path, limit + 1, message));
    }
}

/// Models are the same everywhere: no `cfg` but that of their tests.
fn conditions(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (i, line) in code_only(text).lines().enumerate() {
        let tests = line.trim() == "#[cfg(test)]";
        if !tests && ["cfg", "cfg_attr", "cfg_if"].iter().any(|word| has_word(line, word)) {
            findings.push(Finding::new(
                path,
                i + 1,
                "`cfg` in a model: models name layers, conditions belong to backends",
            ));
        }
    }
}

/// The driver's bindings can be replaced in one place.
fn bindings(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (i, line) in code_only(text).lines().enumerate().filter(|(_, line)| has_word(line, "cudarc")) {
        let folder = BINDINGS[0];
        findings.push(Finding::new(path, i + 1, format!("`cudarc` outside {folder}: `{}`", line.trim())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{assert_found, tree};

    #[test]
    fn files_open_with_their_purpose() {
        let found = check(&tree(&[
            ("crates/a/src/lib.rs", "//! Good.\n"),
            ("crates/a/src/b.rs", "// Bad.\n"),
            ("crates/a/tests/c.rs", "\n//! Late.\n"),
            ("other/d.rs", ""),
        ]));
        assert_found(
            found,
            &[("crates/a/src/b.rs", 1, "open with"), ("crates/a/tests/c.rs", 1, "open with")],
        );
    }

    #[test]
    fn files_are_short() {
        let lines = |n: usize| format!("//! x\n{}", "\n".repeat(n - 1));
        let (fits, long) = (lines(500), lines(501));
        let (model, long_model) = (lines(150), lines(151));
        let (example, long_example) = (lines(80), lines(81));
        let found = check(&tree(&[
            ("crates/a/src/a.rs", &fits),
            ("crates/a/src/b.rs", &long),
            ("crates/ogive-models/src/lib.rs", &long_model),
            ("crates/ogive-models/src/llama.rs", &model),
            ("crates/ogive-models/src/mixtral.rs", &long_model),
            ("examples/examples/a.rs", &example),
            ("examples/examples/b.rs", &long_example),
            ("examples/outside/src/lib.rs", &long_example),
            ("examples/tests/run.rs", &long_example),
        ]));
        assert_found(
            found,
            &[
                ("crates/a/src/b.rs", 501, "501 lines"),
                ("crates/ogive-models/src/mixtral.rs", 151, "architecture"),
                ("examples/examples/b.rs", 81, "example"),
            ],
        );
    }

    #[test]
    fn models_have_no_conditions() {
        let text = "//! cfg(x)\n#[cfg(test)]\nfn a() {}\n#[cfg(feature = \"x\")]\nif cfg!(windows) {}\n// cfg\nlet cfgs = 1;\n";
        let found =
            check(&tree(&[("crates/ogive-models/src/a.rs", text), ("crates/ogive-cpu/src/a.rs", text)]));
        assert_found(
            found,
            &[("crates/ogive-models/src/a.rs", 4, "cfg"), ("crates/ogive-models/src/a.rs", 5, "cfg")],
        );
    }

    #[test]
    fn bindings_are_named_in_one_place() {
        let text =
            "//! cudarc\nuse cudarc::driver;\nfn a() -> ::cudarc::X {}\n// cudarc\nlet x = \"cudarc\";\n";
        let found = check(&tree(&[
            ("crates/ogive-cuda/src/driver/mod.rs", text),
            ("crates/ogive-cuda/src/driver_a.rs", text),
            ("crates/ogive-cuda/tests/a.rs", text),
            ("crates/ptx-emulator/tests/a.rs", text),
        ]));
        let [a, b] = ["crates/ogive-cuda/src/driver_a.rs", "crates/ogive-cuda/tests/a.rs"];
        assert_found(found, &[(a, 2, "cudarc"), (a, 3, "cudarc"), (b, 2, "cudarc"), (b, 3, "cudarc")]);
    }
}
