//! A report as text for people and as JSON for scripts.
//!
//! Long lists, a vocabulary say, are cut in both unless the whole was asked for: in JSON a cut list is an object that
//! says how long it is, so that nobody takes a part for the whole.

use super::report::Report;
use crate::figures::{Bytes, Count};
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Elements of a list that are shown in any case.
const SHORT: usize = 16;
/// Characters of a value that fit a line.
const LINE: usize = 96;

/// One JSON object.
pub(super) fn json(report: &Report, full: bool) -> Value {
    let metadata: Map<String, Value> = report
        .metadata
        .iter()
        .map(|(k, v)| (k.clone(), if full { v.clone() } else { shortened(v) }))
        .collect();
    let tensors: Vec<Value> = report
        .tensors
        .iter()
        .map(|t| json!({ "name": t.name, "shape": t.shape, "format": t.format, "bytes": t.bytes }))
        .collect();
    let formats: Map<String, Value> = report
        .totals()
        .into_iter()
        .map(|(f, t)| (f.into(), json!({ "tensors": t.tensors, "elements": t.elements, "bytes": t.bytes })))
        .collect();
    let memory = match &report.memory {
        Ok(m) => json!({
            "context": m.context, "weights": m.weights, "cache": m.cache, "working": m.working, "graphs": m.graphs, "total": m.total(),
        }),
        Err(e) => json!({ "error": e }),
    };
    let vocabulary = match &report.vocabulary {
        Ok((model, size, template)) => json!({ "model": model, "size": size, "chat_template": template }),
        Err(e) => json!({ "error": e }),
    };
    json!({
        "path": report.path.to_string_lossy(),
        "form": report.form,
        "architecture": report.architecture,
        "parameters": report.tensors.iter().fold(0_u64, |n, t| n.saturating_add(t.elements)),
        "metadata": metadata,
        "vocabulary": vocabulary,
        "tensors": tensors,
        "formats": formats,
        "memory": memory,
    })
}

fn shortened(value: &Value) -> Value {
    match value {
        Value::Array(v) if v.len() > SHORT => json!({ "length": v.len(), "first": &v[..SHORT] }),
        other => other.clone(),
    }
}

/// Text for people.
pub(super) fn text(report: &Report, full: bool) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_text(&mut out, report, full);
    out
}

fn write_text(out: &mut String, report: &Report, full: bool) -> std::fmt::Result {
    let elements = report.tensors.iter().fold(0_u64, |n, t| n.saturating_add(t.elements));
    let vocabulary = match &report.vocabulary {
        Ok((model, size, template)) => {
            let template = if *template { "with" } else { "without" };
            format!("{model}, {} tokens, {template} a chat template", Count(*size as u64))
        }
        Err(e) => format!("none: {e}"),
    };
    for (name, value) in [
        ("file", report.path.display().to_string()),
        ("kind", report.kind.clone()),
        ("architecture", report.architecture.clone().unwrap_or_else(|| "not said".into())),
        ("parameters", Count(elements).to_string()),
        ("vocabulary", vocabulary),
    ] {
        writeln!(out, "{name:<13} {}", plain(&value, usize::MAX))?;
    }

    writeln!(out, "\nmetadata ({})", report.metadata.len())?;
    let wide = report.metadata.iter().map(|(k, _)| k.len()).max().unwrap_or(0).min(48);
    for (key, value) in &report.metadata {
        writeln!(out, "  {:<wide$}  {}", plain(key, usize::MAX), shown(value, full))?;
    }

    writeln!(out, "\ntensors ({})", report.tensors.len())?;
    let wide = report.tensors.iter().map(|t| t.name.len()).max().unwrap_or(0).min(64);
    for t in &report.tensors {
        let shape = format!("{:?}", t.shape);
        let bytes = t.bytes.map_or_else(|| "?".into(), |b| Bytes(b).to_string());
        writeln!(out, "  {:<wide$}  {shape:<20} {:<8} {bytes:>12}", plain(&t.name, usize::MAX), t.format)?;
    }

    writeln!(out, "\nformats")?;
    for (format, total) in report.totals() {
        let (tensors, elements, bytes) = (Count(total.tensors), Count(total.elements), Bytes(total.bytes));
        writeln!(out, "  {format:<8} {tensors:>6} tensors {elements:>16} elements {bytes:>12}")?;
    }

    match &report.memory {
        Ok(m) => {
            writeln!(out, "\nmemory at a context of {} tokens", Count(m.context as u64))?;
            let graphs = (m.graphs > 0).then_some(("recorded", m.graphs));
            let always = [("weights", m.weights), ("cache", m.cache), ("working", m.working)];
            for (name, bytes) in always.into_iter().chain(graphs).chain([("total", m.total())]) {
                writeln!(out, "  {name:<8} {:>12}", Bytes(bytes).to_string())?;
            }
            Ok(())
        }
        Err(e) => writeln!(out, "\nmemory: not known: {e}"),
    }
}

/// A value in one line.
fn shown(value: &Value, full: bool) -> String {
    let most = if full { usize::MAX } else { LINE };
    match value {
        Value::Array(v) if !full && v.len() > SHORT => {
            let first: Vec<String> = v.iter().take(4).map(|v| plain(&v.to_string(), 20)).collect();
            format!("[{}, …] ({} in all)", first.join(", "), Count(v.len() as u64))
        }
        Value::String(text) => plain(text, most),
        other => plain(&other.to_string(), most),
    }
}

/// Text that keeps to its line: control characters escaped, and cut after `most` characters.
fn plain(text: &str, most: usize) -> String {
    let mut out = String::new();
    for (n, c) in text.chars().enumerate() {
        if n >= most {
            out.push('…');
            break;
        }
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_to_a_line() {
        assert_eq!(plain("a\nb\u{1b}[2J", 9), "a\\nb\\u{1b}[2J");
        assert_eq!(plain("abcdef", 3), "abc…");
        let long: Vec<u32> = (0..1000).collect();
        assert_eq!(shown(&json!(long), false), "[0, 1, 2, 3, …] (1,000 in all)");
        assert_eq!(shown(&json!([1, 2]), false), "[1,2]");
        assert_eq!(shown(&json!("x"), false), "x");
        assert_eq!(shortened(&json!(long))["length"], 1000);
        assert_eq!(shortened(&json!([1])), json!([1]));
    }
}
