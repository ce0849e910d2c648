//! `unsafe` lives where docs/ARCHITECTURE.md says, and every block names the invariant it leans on.
//!
//! The places are read from the document (invariant 8), so there is one list. Clippy checks the comments too, but only
//! in code that the machine at hand compiles; this reads every file.

use super::{Finding, Tree};
use crate::source::{code_only, has_word};

const DOCUMENT: &str = "docs/ARCHITECTURE.md";
/// The number of the invariant that lists the places.
const INVARIANT: &str = "8.";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let places = places(tree, &mut findings);
    for (path, text) in tree.matching("", ".rs") {
        let allowed = places
            .iter()
            .any(|place| path == place || path.starts_with(&format!("{}/", place.trim_end_matches('/'))));
        let lines: Vec<&str> = text.lines().collect();
        for (i, line) in code_only(text).lines().enumerate() {
            if has_word(line, "unsafe") {
                if !allowed {
                    let message =
                        format!("`unsafe` outside the places that {DOCUMENT}, invariant {INVARIANT} lists");
                    findings.push(Finding::new(path, i + 1, message));
                } else if needs_comment(line) && !is_explained(&lines, i) {
                    let message = "`unsafe` without a `// SAFETY:` comment that names its invariant";
                    findings.push(Finding::new(path, i + 1, message));
                }
            }
            if !allowed
                && has_word(line, "unsafe_code")
                && (has_word(line, "allow") || has_word(line, "expect"))
            {
                let message = format!(
                    "`unsafe_code` is allowed outside the places of {DOCUMENT}, invariant {INVARIANT}"
                );
                findings.push(Finding::new(path, i + 1, message));
            }
        }
    }
    findings
}

/// The paths in back quotes of invariant 8.
fn places(tree: &Tree, findings: &mut Vec<Finding>) -> Vec<String> {
    let Some(text) = tree.get(DOCUMENT) else {
        findings.push(Finding::new(
            DOCUMENT,
            0,
            "file is missing: its invariant 8 lists where `unsafe` may stand",
        ));
        return Vec::new();
    };
    let mut places = Vec::new();
    let mut inside = false;
    let mut seen = false;
    for (i, line) in text.lines().enumerate() {
        let starts_item =
            line.split_once('.').is_some_and(|(n, _)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
        if starts_item || line.starts_with('#') {
            inside = line.starts_with(INVARIANT) && line.to_lowercase().contains("unsafe");
        }
        if !inside {
            continue;
        }
        seen = true;
        for place in line.split('`').skip(1).step_by(2).filter(|place| place.contains('/')) {
            let found = |path: &String| {
                path == place || path.starts_with(&format!("{}/", place.trim_end_matches('/')))
            };
            if !tree.paths.iter().any(found) {
                findings.push(Finding::new(
                    DOCUMENT,
                    i + 1,
                    format!("invariant 8 lists `{place}`, which does not exist"),
                ));
            }
            places.push(place.to_string());
        }
    }
    if !seen {
        findings.push(Finding::new(
            DOCUMENT,
            0,
            "no item `8.` about `unsafe`: it lists where `unsafe` may stand",
        ));
    }
    places
}

/// Blocks and implementations. An `unsafe fn` states its contract under `# Safety`, which clippy checks.
fn needs_comment(line: &str) -> bool {
    let mut rest = line;
    while let Some(at) = rest.find("unsafe") {
        rest = &rest[at + "unsafe".len()..];
        let next = rest.trim_start();
        if next.starts_with('{')
            || next.is_empty()
            || (next.starts_with("impl") && !next.starts_with("impl_"))
        {
            return true;
        }
    }
    false
}

/// Whether the line itself or the comment above its statement says SAFETY.
fn is_explained(lines: &[&str], at: usize) -> bool {
    if lines.get(at).is_some_and(|line| line.contains("SAFETY:")) {
        return true;
    }
    // The statement may begin some lines above its `unsafe`; the comment stands directly over it.
    let mut code = 0;
    for line in lines.get(..at).unwrap_or_default().iter().rev().map(|line| line.trim()) {
        if line.starts_with("//") {
            if line.contains("SAFETY:") {
                return true;
            }
        } else if !line.starts_with("#[") {
            code += 1;
            if code > 2 || line.is_empty() || line.ends_with(';') || line.ends_with('}') {
                return false;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{assert_found, tree};

    const INVARIANTS: &str = "# Invariants\n7. x `crates/c/src`\n8. Unsafe lives in\n   `crates/a/src/simd` and `crates/b/src/map.rs`.\n9. y `crates/d/src`\n";
    const SOUND: &str = "//! x\n// SAFETY: the length was checked.\nlet x = unsafe { f() };\n";

    #[test]
    fn the_places_are_those_of_the_document() {
        let found = check(&tree(&[
            (DOCUMENT, INVARIANTS),
            ("crates/a/src/simd/avx2.rs", SOUND),
            ("crates/b/src/map.rs", SOUND),
            ("crates/b/src/other.rs", SOUND),
            ("crates/c/src/lib.rs", "//! unsafe\n#![forbid(unsafe_code)]\n#![allow(unsafe_code)]\n"),
            ("crates/d/src/lib.rs", SOUND),
        ]));
        assert_found(
            found,
            &[
                ("crates/b/src/other.rs", 3, "outside the places"),
                ("crates/c/src/lib.rs", 3, "is allowed outside"),
                ("crates/d/src/lib.rs", 3, "outside the places"),
            ],
        );
    }

    #[test]
    fn blocks_are_explained() {
        let text = "//! x\nlet a = unsafe { f() };\n// SAFETY: y.\nlet b =\n    unsafe { f() };\nunsafe impl Send for X {}\n/// # Safety\nunsafe fn g() {}\nlet c = unsafe { f() }; // SAFETY: z.\n// SAFETY: for d.\nlet d = unsafe { f() };\nlet e = unsafe { f() };\n";
        let found = check(&tree(&[
            (DOCUMENT, INVARIANTS),
            ("crates/a/src/simd/a.rs", text),
            ("crates/b/src/map.rs", SOUND),
        ]));
        let place = |line| ("crates/a/src/simd/a.rs", line, "SAFETY");
        assert_found(found, &[place(2), place(6), place(12)]);
    }

    #[test]
    fn a_list_that_is_missing_or_stale_is_found() {
        assert_found(check(&tree(&[])), &[(DOCUMENT, 0, "missing")]);
        assert_found(check(&tree(&[(DOCUMENT, "# x\n8. Something else\n")])), &[(DOCUMENT, 0, "no item")]);
        let found = check(&tree(&[(DOCUMENT, INVARIANTS), ("crates/a/src/simd/a.rs", SOUND)]));
        assert_found(found, &[(DOCUMENT, 4, "does not exist")]);
    }
}
