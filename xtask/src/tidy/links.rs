//! Links between files of the repository lead somewhere, headings included.

use std::collections::BTreeMap;

use super::{Finding, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.matching("", ".md").filter(|(path, _)| !path.contains("/corpus/")) {
        for (line, target) in links(text) {
            if let Err(message) = resolve(tree, path, &target) {
                findings.push(Finding::new(path, line, message));
            }
        }
    }
    findings
}

/// Lines outside fenced code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(i, line)| {
        let fence = line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~");
        fenced ^= fence;
        (!fenced && !fence).then_some((i + 1, line))
    })
}

/// Targets of `[text](target)` and `[name]: target`.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut out = Vec::new();
    for (number, line) in prose(text) {
        // What stands between back quotes is code.
        let line: String = line.split('`').step_by(2).collect::<Vec<_>>().join("_");
        for (at, _) in line.match_indices("](") {
            let rest = &line[at + 2..];
            if let Some(end) = rest.find(')') {
                let target = rest[..end].split_whitespace().next().unwrap_or("");
                out.push((number, target.trim_matches(['<', '>']).to_string()));
            }
        }
        if let Some((_, target)) = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
            out.push((number, target.trim().trim_matches(['<', '>']).to_string()));
        }
    }
    out
}

fn resolve(tree: &Tree, from: &str, target: &str) -> Result<(), String> {
    let outside =
        target.split_once(':').is_some_and(|(scheme, _)| scheme.bytes().all(|b| b.is_ascii_alphanumeric()));
    if outside {
        return Ok(());
    }
    let (file, heading) =
        target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
    let path = if file.is_empty() {
        from.to_string()
    } else {
        join(from, file).ok_or("link leads out of the repository")?
    };
    let folder = format!("{path}/");
    let exists =
        path.is_empty() || tree.paths.iter().any(|known| *known == path || known.starts_with(&folder));
    if !exists {
        return Err(format!("link to `{target}`: there is no `{path}`"));
    }
    match (heading, tree.get(&path)) {
        (Some(heading), Some(text)) if path.ends_with(".md") && !headings(text).contains_key(heading) => {
            Err(format!("link to `{target}`: `{path}` has no such heading"))
        }
        _ => Ok(()),
    }
}

/// `target` seen from the folder of `from`, without dots.
fn join(from: &str, target: &str) -> Option<String> {
    let absolute = target.strip_prefix('/');
    let mut parts: Vec<&str> = if absolute.is_some() { Vec::new() } else { from.split('/').collect() };
    parts.pop();
    for part in absolute.unwrap_or(target).split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The anchors of a document's headings, as GitHub makes them; a repeated one gets a number.
fn headings(text: &str) -> BTreeMap<String, usize> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut out = BTreeMap::new();
    for (line, text) in prose(text).filter(|(_, text)| text.starts_with('#')) {
        let title = text.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let count = seen.entry(anchor.clone()).or_insert(0);
        let unique = if *count == 0 { anchor } else { format!("{anchor}-{count}") };
        *count += 1;
        out.insert(unique, line);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{assert_found, tree};

    #[test]
    fn good_links_pass() {
        let text = "# Top\n## A `b` c, d!\n[x](docs/a.md) [y](#a-b-c-d) [z](https://x.org/y) [w](docs) [r](/docs/a.md#sub)\n`[code](no.md)`\n```\n[code](no.md)\n```\n[ref]: docs/a.md\n";
        assert_found(
            check(&tree(&[("README.md", text), ("docs/a.md", "[up](../README.md#top)\n# Sub\n")])),
            &[],
        );
    }

    #[test]
    fn broken_links_are_found() {
        let text = "# Top\n[x](docs/b.md)\n[y](docs/a.md#none) [z](#none)\n[ref]: gone.md\n";
        let found = check(&tree(&[("README.md", text), ("docs/a.md", "[up](../../x.md)\n")]));
        assert_found(
            found,
            &[
                ("README.md", 2, "docs/b.md"),
                ("README.md", 3, "no such heading"),
                ("README.md", 3, "no such heading"),
                ("README.md", 4, "gone.md"),
                ("docs/a.md", 1, "out of the repository"),
            ],
        );
    }
}
