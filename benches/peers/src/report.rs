//! What came out: a table for people, JSON for everything else.

use serde::Serialize;
use std::fmt::Write;

/// One repetition. Engines in their order.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Repetition {
    /// Bytes a second, plain reads.
    pub(crate) bandwidth: f64,
    /// Tokens a second.
    pub(crate) decode: Vec<f64>,
    /// Tokens a second.
    pub(crate) prefill: Vec<f64>,
    /// The best token after the short prompt: a sign that all compute the same.
    pub(crate) first: Vec<u32>,
    /// Processes that were running or waiting to, a minute's average; what the system says.
    pub(crate) load: Option<f64>,
}

/// A model's figures.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) model: String,
    /// The file's size.
    pub(crate) bytes: u64,
    /// Names and versions.
    pub(crate) engines: Vec<String>,
    pub(crate) repetitions: Vec<Repetition>,
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n => (values[(n - 1) / 2] + values[n / 2]) / 2.0,
    }
}

impl Measured {
    fn rates(&self, phase: fn(&Repetition) -> &Vec<f64>, engine: usize) -> impl Iterator<Item = f64> {
        self.repetitions.iter().map(move |r| phase(r)[engine])
    }

    /// A Markdown table: a row for each engine and phase, medians over the repetitions.
    pub(crate) fn table(&self) -> String {
        let mut out = format!("\n### {} ({} MB)\n\n", self.model, self.bytes / 1_000_000);
        let bandwidth = median(self.repetitions.iter().map(|r| r.bandwidth));
        let token = self.repetitions.first().and_then(|r| r.first.first());
        let load = median(self.repetitions.iter().filter_map(|r| r.load));
        let agree = self.repetitions.iter().flat_map(|r| &r.first).all(|t| Some(t) == token);
        let first = self.engines.first().map_or("", String::as_str);
        let _ = writeln!(
            out,
            "{} repetitions; memory reads at {:.1} GB/s; load average {load:.1}; the engines {} on the first token\n",
            self.repetitions.len(),
            bandwidth / 1e9,
            if agree { "agree" } else { "DO NOT AGREE" }
        );
        let _ = writeln!(out, "| phase | engine | tokens/s | least | most | GB/s of file | {first} is |");
        let _ = writeln!(out, "|---|---|---:|---:|---:|---:|---:|");
        let phases: [(&str, fn(&Repetition) -> &Vec<f64>); 2] =
            [("decode", |r| &r.decode), ("prefill", |r| &r.prefill)];
        for (name, phase) in phases {
            for (e, engine) in self.engines.iter().enumerate() {
                let rate = median(self.rates(phase, e));
                let least = self.rates(phase, e).fold(f64::INFINITY, f64::min);
                let most = self.rates(phase, e).fold(0.0, f64::max);
                let ratio = median(self.repetitions.iter().map(|r| phase(r)[0] / phase(r)[e]));
                // Only decoding reads the whole file for each token.
                let read = match name {
                    "decode" => format!("{:.1}", rate * self.bytes as f64 / 1e9),
                    _ => String::new(),
                };
                let _ = writeln!(
                    out,
                    "| {name} | {engine} | {rate:.2} | {least:.2} | {most:.2} | {read} | {ratio:.2} × |"
                );
            }
        }
        out
    }
}

/// Everything, with each repetition.
pub(crate) fn json(all: &[Measured], threads: usize, prompt: usize, tokens: usize) -> String {
    let whole = serde_json::json!({
        "threads": threads,
        "prompt_tokens": prompt,
        "decoded_tokens": tokens,
        "models": all,
    });
    format!("{whole:#}")
}

/// The system's load average over a minute, where it tells one.
pub(crate) fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ratios_are_of_repetitions() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
        let r = |a, b| Repetition {
            bandwidth: 1e10,
            decode: vec![a, b],
            prefill: vec![a, a],
            first: vec![7, 7],
            load: Some(1.0),
        };
        let m = Measured {
            model: "m".into(),
            bytes: 1_000_000_000,
            engines: vec!["a".into(), "b".into()],
            // A slow moment of both: the ratio is 2 throughout.
            repetitions: vec![r(10.0, 5.0), r(2.0, 1.0), r(12.0, 6.0)],
        };
        let table = m.table();
        assert!(table.contains("engines agree"), "{table}");
        assert!(table.contains("| decode | b | 5.00 | 1.00 | 6.00 | 5.0 | 2.00 × |"), "{table}");
        assert!(table.contains("| prefill | b | 10.00 | 2.00 | 12.00 |  | 1.00 × |"), "{table}");
    }
}
