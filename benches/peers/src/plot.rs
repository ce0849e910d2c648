//! A picture of what was measured: for each model and phase a bar for each engine, the longest the fastest.

use crate::{Result, report::median};
use serde_json::Value;
use std::fmt::Write;

/// Pixels: of the whole, where bars begin, the longest of them, and of a row.
const WIDTH: usize = 820;
const LEFT: usize = 210;
const LONGEST: f64 = 420.0;
const ROW: usize = 17;
/// Of the first engine and those after it.
const COLOURS: [&str; 4] = ["#c2410c", "#64748b", "#94a3b8", "#cbd5e1"];

/// An SVG of the figures in these files, which `--json` wrote.
pub(crate) fn svg(files: &[Value]) -> Result<String> {
    let mut body = String::new();
    let mut y = 14;
    for file in files {
        for model in list(file, "models")? {
            let name = model["model"].as_str().unwrap_or_default().trim_end_matches(".gguf");
            y += 12;
            let _ = writeln!(body, "<text x=\"14\" y=\"{y}\" font-weight=\"bold\">{}</text>", escaped(name));
            y += 8;
            rows(model, &file["sizes"], &mut y, &mut body)?;
        }
    }
    let height = y + 10;
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    ))
}

/// One model's bars.
fn rows(model: &Value, sizes: &Value, y: &mut usize, body: &mut String) -> Result<()> {
    let (entries, repetitions) = (list(model, "entries")?, list(model, "repetitions")?);
    let rate = |entry: usize| median(repetitions.iter().filter_map(|r| r["rates"][entry].as_f64()));
    let labels: Vec<_> = entries.iter().map(|entry| label(entry, sizes)).collect();
    let mut engine = 0;
    for (e, entry) in entries.iter().enumerate() {
        let first = e == 0 || labels[e] != labels[e - 1];
        engine = if first { 0 } else { engine + 1 };
        let same = (0..entries.len()).filter(|i| labels[*i] == labels[e]);
        let fastest = same.map(rate).fold(f64::MIN_POSITIVE, f64::max);
        let top = *y;
        *y += ROW;
        let base = top + 13;
        if first {
            let _ = writeln!(body, "<text x=\"14\" y=\"{base}\">{}</text>", escaped(&labels[e]));
        }
        let about = entry["engine"].as_str().unwrap_or_default();
        let name = about.split([' ', '(']).next().unwrap_or_default();
        let length = (rate(e) / fastest * LONGEST).round();
        let colour = COLOURS[engine.min(COLOURS.len() - 1)];
        let _ = writeln!(
            body,
            "<rect x=\"{LEFT}\" y=\"{}\" width=\"{length}\" height=\"{}\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"{base}\">{} {:.0}</text>",
            top + 2,
            ROW - 3,
            LEFT as f64 + length + 6.0,
            escaped(name),
            rate(e)
        );
    }
    Ok(())
}

/// What an entry's phase is called beside its bars.
fn label(entry: &Value, sizes: &Value) -> String {
    // An entry says what the file has several of.
    let size = |name: &str| entry[name].as_u64().or(sizes[name].as_u64()).unwrap_or_default();
    let phase = match entry["phase"].as_str().unwrap_or_default() {
        "prefill" => format!("prompt of {}, tokens/s", size("prefill")),
        "depth" => format!("decode after {}", size("depth")),
        "together" => format!("decode, {} together", size("together")),
        other => format!("{other}, tokens/s"),
    };
    match entry["cache"].as_str() {
        Some(cache) => format!("{phase}, {cache}"),
        None => phase,
    }
}

fn list<'a>(value: &'a Value, name: &str) -> Result<&'a Vec<Value>> {
    value[name]
        .as_array()
        .ok_or_else(|| format!("there is no list `{name}`: is this what --json wrote?").into())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_has_the_longest_bar() {
        let file = serde_json::json!({
            "sizes": { "decode": 4, "prefill": 512, "depth": 0, "together": 0 },
            "models": [{
                "model": "a<b.gguf",
                "entries": [
                    { "phase": "prefill", "engine": "ogive 0.1.0" },
                    { "phase": "prefill", "engine": "other (1.0, plain)" },
                ],
                "repetitions": [{ "rates": [300.0, 100.0] }, { "rates": [200.0, 100.0] }],
            }],
        });
        let several = serde_json::json!({
            "sizes": { "together": [8, 32] },
            "models": [{
                "entries": [
                    { "phase": "together", "together": 8, "cache": "f16", "engine": "ogive 0.1.0" },
                    { "phase": "together", "together": 32, "cache": "f16", "engine": "ogive 0.1.0" },
                ],
                "repetitions": [{ "rates": [300.0, 100.0] }],
            }],
        });
        let svg = svg(&[file]).unwrap();
        for part in
            ["a&lt;b<", "prompt of 512", "width=\"420\"", "width=\"168\"", ">ogive 250<", ">other 100<"]
        {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        for part in ["decode, 8 together, f16<", "decode, 32 together, f16<"] {
            assert!(super::svg(std::slice::from_ref(&several)).unwrap().contains(part), "{part}");
        }
        assert!(super::svg(&[Value::Null]).unwrap_err().to_string().contains("--json"));
    }
}
