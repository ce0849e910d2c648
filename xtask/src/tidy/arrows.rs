//! Which crate may depend on which: the arrows of the design against `cargo metadata`.
//!
//! The table below is the rule; docs/ARCHITECTURE.md draws it. A crate may also name what its arrows lead to anyway
//! (ogive-cpu names ogive-tensor, which ogive-backend brings): that adds a word to a manifest and nothing to what
//! the crate knows. A new arrow is a change of the design: change the drawing, say why, then change the table.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata};

use super::Finding;

const RULE: &str = "the arrows are in docs/ARCHITECTURE.md and xtask/src/tidy/arrows.rs";

/// Every library and what it may depend on.
const ARROWS: [(&str, &[&str]); 22] = [
    ("gguf-file", &[]),
    ("ogive-tensor", &[]),
    ("ogive-sampler", &[]),
    // A stage of the sampler. It takes tokens as a plain list, so sampler and tokenizer know nothing of each other.
    ("ogive-grammar", &["ogive-sampler"]),
    // Bytes, and nothing else.
    ("ogive-demo-model", &[]),
    ("ogive-kernels", &[]),
    ("ogive-backend", &["ogive-tensor"]),
    ("ogive-conformance", &["ogive-backend"]),
    ("ogive-cpu", &["ogive-backend"]),
    ("ogive-cuda", &["ogive-backend", "ogive-kernels"]),
    ("ogive-weights", &["ogive-tensor", "gguf-file"]),
    // Pictures in, numbers and text out. It computes with no model, so it knows none.
    ("ogive-vision", &["ogive-tensor"]),
    ("ogive-nn", &["ogive-backend"]),
    ("ogive-models", &["ogive-nn"]),
    ("ogive-tokenizer", &["gguf-file"]),
    ("ogive-engine", &["ogive-nn", "ogive-sampler"]),
    (
        "ogive",
        &[
            "ogive-models",
            "ogive-engine",
            "ogive-grammar",
            "ogive-weights",
            "ogive-tokenizer",
            "ogive-cpu",
            "ogive-cuda",
            "ogive-demo-model",
            "ogive-vision",
        ],
    ),
    ("ogive-quantize", &["ogive-weights", "ogive-tokenizer"]),
    // A router around the façade; a program of one's own nests it.
    ("ogive-server", &["ogive"]),
    ("ogive-cli", &["ogive", "ogive-quantize", "ogive-server"]),
    // Stands in for the CUDA driver in tests; knows PTX and nothing of ours.
    ("ptx-emulator", &[]),
    // Sets up the emulator for programs and tests; finds it as a file, not as a crate.
    ("ptx-emulator-launcher", &[]),
];

/// Backends: what models and the engine must not know, and what must not know models.
const BACKENDS: [&str; 3] = ["ogive-conformance", "ogive-cpu", "ogive-cuda"];

/// What holds whatever the table says: these crates never reach those.
const FACTS: [(&str, &[&str], &[&str]); 3] = [
    ("models and the engine know no backend", &["ogive-nn", "ogive-models", "ogive-engine"], &BACKENDS),
    ("backends know no model", &BACKENDS, &["ogive-nn", "ogive-models", "ogive-engine"]),
    (
        "tensor, sampler, tokenizer, vision and weights know no machine",
        &["ogive-tensor", "ogive-sampler", "ogive-tokenizer", "ogive-vision", "ogive-weights", "gguf-file"],
        &[
            "ogive-backend",
            "ogive-nn",
            "ogive-models",
            "ogive-engine",
            "ogive-conformance",
            "ogive-cpu",
            "ogive-cuda",
        ],
    ),
];

/// The workspace's packages and the dependencies among them.
#[derive(Debug, Default)]
pub(super) struct Graph {
    /// Published packages and their manifests, as paths from the root.
    libraries: BTreeMap<String, String>,
    /// Packages that are not published: tools, examples, benches. They may depend on anything.
    tools: BTreeSet<String>,
    /// Dependencies of the program itself, and of its build.
    normal: BTreeSet<(String, String)>,
    /// Dependencies of tests, which are exempt.
    pub(super) dev: BTreeSet<(String, String)>,
}

impl Graph {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let mut graph = Self::default();
        let packages = metadata.workspace_packages();
        let names: BTreeSet<String> = packages.iter().map(|p| p.name.to_string()).collect();
        for package in &packages {
            let name = package.name.to_string();
            let manifest = package.manifest_path.strip_prefix(&metadata.workspace_root);
            let manifest = manifest.map_or_else(|_| package.manifest_path.to_string(), ToString::to_string);
            if package.publish.as_ref().is_some_and(Vec::is_empty) {
                graph.tools.insert(name.clone());
            } else {
                graph.libraries.insert(name.clone(), manifest);
            }
            for dependency in package.dependencies.iter().filter(|d| names.contains(&d.name)) {
                let arrow = (name.clone(), dependency.name.clone());
                match dependency.kind {
                    DependencyKind::Development => graph.dev.insert(arrow),
                    _ => graph.normal.insert(arrow),
                };
            }
        }
        graph
    }

    fn manifest(&self, name: &str) -> &str {
        self.libraries.get(name).map_or("Cargo.toml", String::as_str)
    }
}

/// All that can be reached along `arrows` from `start`, itself excluded.
fn reachable<'a>(start: &'a str, next: impl Fn(&str) -> Vec<&'a str>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open = next(start);
    while let Some(name) = open.pop() {
        if seen.insert(name) {
            open.extend(next(name));
        }
    }
    seen
}

fn allowed(name: &str) -> Option<&'static [&'static str]> {
    ARROWS.iter().find(|(from, _)| *from == name).map(|(_, to)| *to)
}

pub(super) fn check(graph: &Graph) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in graph.libraries.keys() {
        if allowed(name).is_none() {
            let message = format!("crate {name} is not in the table of crates: {RULE}");
            findings.push(Finding::new(graph.manifest(name), 0, message));
        }
    }
    for (from, to) in graph.normal.iter().filter(|(from, _)| graph.libraries.contains_key(from)) {
        let known = reachable(from, |name| allowed(name).unwrap_or_default().to_vec());
        if graph.tools.contains(to) {
            let message = format!("{from} depends on {to}, which is a tool that is not published: {RULE}");
            findings.push(Finding::new(graph.manifest(from), 0, message));
        } else if !known.contains(to.as_str()) {
            let message = format!("{from} may not depend on {to}: {RULE}");
            findings.push(Finding::new(graph.manifest(from), 0, message));
        }
    }
    for (fact, subjects, strangers) in FACTS {
        for subject in subjects {
            let next = |name: &str| {
                let arrows = graph.normal.iter().filter(|(from, _)| from == name);
                arrows.map(|(_, to)| to.as_str()).collect::<Vec<_>>()
            };
            for stranger in reachable(subject, next) {
                if strangers.contains(&stranger) && *subject != stranger {
                    let message = format!("{subject} reaches {stranger}, but {fact}: {RULE}");
                    findings.push(Finding::new(graph.manifest(subject), 0, message));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_found;

    fn graph(arrows: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::default();
        for (from, to) in arrows {
            for name in [from, to] {
                graph.libraries.insert(name.to_string(), format!("crates/{name}/Cargo.toml"));
            }
            graph.normal.insert((from.to_string(), to.to_string()));
        }
        graph
    }

    #[test]
    fn the_design_passes() {
        let arrows: Vec<_> =
            ARROWS.iter().flat_map(|(from, to)| to.iter().map(move |to| (*from, *to))).collect();
        assert_found(check(&graph(&arrows)), &[]);
        assert_found(check(&graph(&[("ogive-cpu", "ogive-backend"), ("ogive-cpu", "ogive-tensor")])), &[]);
    }

    #[test]
    fn a_wrong_arrow_names_both_crates_and_the_rule() {
        let found = check(&graph(&[("ogive-sampler", "ogive-tokenizer")]));
        assert_found(
            found.clone(),
            &[("crates/ogive-sampler/Cargo.toml", 0, "ogive-sampler may not depend on ogive-tokenizer")],
        );
        assert!(found[0].message.contains("docs/ARCHITECTURE.md"));
    }

    #[test]
    fn the_facts_hold_along_detours() {
        // ogive-nn -> ogive-cpu is wrong as an arrow, and lets models and engine know a backend.
        let found = check(&graph(&[
            ("ogive-models", "ogive-nn"),
            ("ogive-engine", "ogive-nn"),
            ("ogive-nn", "ogive-cpu"),
        ]));
        let place = |name| (name, 0, "");
        assert_found(
            found,
            &[
                place("crates/ogive-engine/Cargo.toml"),
                place("crates/ogive-models/Cargo.toml"),
                ("crates/ogive-nn/Cargo.toml", 0, "may not depend on ogive-cpu"),
                ("crates/ogive-nn/Cargo.toml", 0, "know no backend"),
            ],
        );
    }

    #[test]
    fn tests_are_exempt_and_strangers_are_not() {
        let mut exempt = graph(&[("ogive-models", "ogive-nn")]);
        exempt.dev.insert(("ogive-models".into(), "ogive-cpu".into()));
        assert_found(check(&exempt), &[]);
        assert_found(
            check(&graph(&[("ogive-extra", "ogive-nn")])),
            &[
                ("crates/ogive-extra/Cargo.toml", 0, "not in the table"),
                ("crates/ogive-extra/Cargo.toml", 0, "may not depend"),
            ],
        );
        let mut tool = graph(&[("ogive-models", "ogive-nn")]);
        tool.tools.insert("xtask".into());
        tool.normal.insert(("ogive-models".into(), "xtask".into()));
        assert_found(check(&tool), &[("crates/ogive-models/Cargo.toml", 0, "tool")]);
    }
}
