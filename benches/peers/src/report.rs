//! What came out: a table for people, JSON for everything else.

use crate::engines::Start;
use crate::file::{Arithmetic, Work};
use crate::launch::Launches;
use crate::phase::{Asked, Phase, Row};
use crate::trace::Trace;
use ogive::cpu::ceilings::Peaks;
use serde::{Serialize, Serializer};
use std::fmt::Write;

/// One repetition.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Repetition {
    /// Bytes a second of plain reads, each time they were measured.
    pub(crate) bandwidth: Vec<f64>,
    /// Operations a second.
    #[serde(serialize_with = "peaks")]
    pub(crate) peaks: Peaks,
    /// Tokens a second, entry by entry.
    pub(crate) rates: Vec<f64>,
    /// Bytes a second that plain reads had while a rate was measured, entry by entry.
    pub(crate) reads: Vec<f64>,
    /// The best token after the short prompt, engine by engine: a sign that all compute the same.
    pub(crate) first: Vec<u32>,
    /// Processes that were running or waiting to, a minute's average; what the system says.
    pub(crate) load: Option<f64>,
}

fn peaks<S: Serializer>(peaks: &Peaks, to: S) -> Result<S::Ok, S::Error> {
    serde_json::json!({ "int8": peaks.int8, "bf16": peaks.bf16, "f32": peaks.f32 }).serialize(to)
}

/// A line of the table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Entry {
    #[serde(flatten)]
    pub(crate) row: Row,
    /// Name, version and setting.
    pub(crate) engine: String,
    /// Whether the engine rounds F16 and F32 weights to bf16.
    #[serde(skip)]
    pub(crate) rounds: bool,
}

/// A model's figures.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Measured {
    pub(crate) model: String,
    pub(crate) work: Work,
    pub(crate) launches: Vec<Launches>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) repetitions: Vec<Repetition>,
}

/// The middle one, or the mean of the two in the middle; 0 of none.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    middle(values).unwrap_or(0.0)
}

/// The median, where there are any.
pub(crate) fn middle(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let n = values.len();
    (n > 0).then(|| (values[n.saturating_sub(1) / 2] + values[n / 2]) / 2.0)
}

/// A figure with so many decimals and its unit, or a dash where there is none.
fn shown(value: Option<f64>, decimals: usize, unit: &str) -> String {
    value.filter(|v| v.is_finite()).map_or("–".into(), |v| format!("{v:.decimals$}{unit}"))
}

impl Work {
    /// What part of the machine's ceiling a rate is: of its reads where tokens come one by one, of its arithmetic where
    /// many share the weights.
    fn fraction(&self, entry: &Entry, e: usize, at: &Repetition) -> Option<f64> {
        let (row, rate) = (&entry.row, at.rates[e]);
        let sizes = row.sizes;
        let past = match row.phase {
            Phase::Decode | Phase::Together => 0,
            Phase::Depth => sizes.depth,
            Phase::Prefill => {
                let peak = match self.arithmetic {
                    Arithmetic::Int8 => at.peaks.int8,
                    Arithmetic::F32 if entry.rounds => at.peaks.bf16,
                    Arithmetic::Bf16 => at.peaks.bf16,
                    Arithmetic::F32 => at.peaks.f32,
                };
                return Some(2.0 * self.weights as f64 * rate / peak?);
            }
        };
        let at_once = if row.phase == Phase::Together { sizes.together } else { 1 };
        let cached = (past + sizes.decode / 2) * at_once;
        let weights = self.touched(at_once, entry.rounds);
        let bytes = weights + (row.cache.bytes(self.elements) * cached as u64) as f64;
        Some(bytes * rate / at_once as f64 / at.reads[e])
    }
}

impl Measured {
    fn rates(&self, entry: usize) -> impl Iterator<Item = f64> {
        self.repetitions.iter().map(move |r| r.rates[entry])
    }

    /// A Markdown table: how long engines take to start, and the memory they need.
    fn launches(&self) -> String {
        let mut out = String::new();
        let Some(us) = self.launches.first() else { return out };
        let _ = writeln!(
            out,
            "| engine | first token after | least | most | peak memory | time, memory to ours |"
        );
        let _ = writeln!(out, "|---|---:|---:|---:|---:|---:|");
        for them in &self.launches {
            let least = them.seconds.iter().copied().fold(f64::INFINITY, f64::min);
            let most = them.seconds.iter().copied().fold(0.0, f64::max);
            let _ = writeln!(
                out,
                "| {} | {:.2} s | {least:.2} | {most:.2} | {} | {:.2} ×, {} |",
                them.engine,
                them.start(),
                shown(them.peak().map(|b| b / 1e6), 0, " MB"),
                them.start() / us.start(),
                shown(them.peak().zip(us.peak()).map(|(them, us)| them / us), 2, " ×"),
            );
        }
        out
    }

    /// Markdown tables: one of starts, and one with a line for each phase and engine; medians over the repetitions.
    pub(crate) fn table(&self) -> String {
        let mut out = format!("\n### {}\n\n{}\n", self.model, self.launches());
        let Some(begin) = self.repetitions.first() else { return out };
        let (count, touched) = (self.repetitions.len(), self.work.bytes / 1_000_000);
        let _ = write!(out, "{count} repetitions; a token touches {touched} MB");
        type Get = fn(&Repetition) -> Option<f64>;
        let of = |get: Get, unit: f64, decimals| {
            shown(middle(self.repetitions.iter().filter_map(get)).map(|v| v / unit), decimals, "")
        };
        let reads = || self.repetitions.iter().flat_map(|r| r.bandwidth.iter().copied());
        let [usual, least, most] = [middle(reads()), reads().reduce(f64::min), reads().reduce(f64::max)]
            .map(|r| shown(r.map(|r| r / 1e9), 1, ""));
        let _ = write!(out, "; memory reads at {usual} GB/s ({least} to {most})");
        let peaks: [(&str, Get); 3] =
            [("int8", |r| r.peaks.int8), ("bf16", |r| r.peaks.bf16), ("f32", |r| r.peaks.f32)];
        for (name, peak) in peaks {
            let _ = write!(out, ", {name} {}", of(peak, 1e12, 2));
        }
        let first = begin.first.first();
        let agree = self.repetitions.iter().flat_map(|r| &r.first).all(|t| Some(t) == first);
        let _ = writeln!(
            out,
            " TOP/s; load average {}; the engines {} on the first token\n",
            of(|r| r.load, 1.0, 1),
            if agree { "agree" } else { "DO NOT AGREE" }
        );
        let us = self.entries.first().map_or("", |e| e.engine.split(' ').next().unwrap_or_default());
        let _ = writeln!(out, "| phase | engine | tokens/s | least | most | of the ceiling | {us} is |");
        let _ = writeln!(out, "|---|---|---:|---:|---:|---:|---:|");
        for (e, entry) in self.entries.iter().enumerate() {
            let least = self.rates(e).fold(f64::INFINITY, f64::min);
            let most = self.rates(e).fold(0.0, f64::max);
            let first = self.entries.iter().position(|f| f.row == entry.row).unwrap_or(e);
            let ratio = median(self.repetitions.iter().map(|r| r.rates[first] / r.rates[e]));
            let fractions = self.repetitions.iter().filter_map(|r| self.work.fraction(entry, e, r));
            let _ = writeln!(
                out,
                "| {} | {} | {:.2} | {least:.2} | {most:.2} | {} | {ratio:.2} × |",
                entry.row.name(),
                entry.engine,
                median(self.rates(e)),
                shown(middle(fractions).map(|f| 100.0 * f), 0, " %")
            );
        }
        out
    }
}

/// Everything, with each repetition, and `run`, by which it can be traced.
pub(crate) fn json(run: &Trace, all: &[Measured], how: &Start, asked: &Asked) -> String {
    let whole = serde_json::json!({
        "run": run,
        "threads": how.threads,
        "cache": asked.caches,
        "sizes": asked,
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
    use crate::engines::Cache;
    use crate::file::Stored;
    use crate::phase::Several;

    fn asked() -> Asked {
        let (together, caches) = (Several(vec![0]), Several(vec![Cache::F16]));
        Asked { decode: 4, prefill: 9, depth: 0, together, caches }
    }

    /// A line of what is asked for.
    fn entry(phase: Phase, engine: &str) -> Entry {
        let row = asked().rows().into_iter().find(|r| r.phase == phase).unwrap();
        Entry { row, engine: engine.into(), rounds: engine == "bf16" }
    }

    fn has(table: &str, parts: &[&str]) {
        parts.iter().for_each(|part| assert!(table.contains(part), "{part} in {table}"));
    }

    #[test]
    fn medians_and_ratios_are_of_repetitions() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
        let mut peaks = Peaks::default();
        peaks.int8 = Some(1e12);
        let r = |a, b| Repetition {
            bandwidth: vec![5e9, 1e10, 2e10],
            peaks,
            rates: vec![a, b, 10.0 * a, 10.0 * b],
            reads: vec![1e10; 4],
            first: vec![7, 7],
            load: Some(1.0),
        };
        let m = Measured {
            model: "m".into(),
            work: Work {
                always: Stored { plain: 1_000_000_000, rounded: 0 },
                weights: 1_000_000_000,
                ..Work::default()
            },
            entries: vec![
                entry(Phase::Decode, "a"),
                entry(Phase::Decode, "b"),
                entry(Phase::Prefill, "a"),
                entry(Phase::Prefill, "b"),
            ],
            // A slow moment of both: the ratio is 2 throughout.
            repetitions: vec![r(10.0, 5.0), r(2.0, 1.0), r(12.0, 6.0)],
            launches: vec![
                Launches { engine: "a".into(), seconds: vec![1.0, 2.0, 9.0], bytes: vec![2_000_000; 3] },
                Launches { engine: "b".into(), seconds: vec![5.0, 3.0, 4.0], bytes: vec![3_000_000; 3] },
            ],
        };
        let parts = [
            "engines agree",
            "| b | 4.00 s | 3.00 | 5.00 | 3 MB | 2.00 ×, 1.50 × |",
            "| decode | b | 5.00 | 1.00 | 6.00 | 50 % | 2.00 × |",
            "| prefill 9 | b | 50.00 | 10.00 | 60.00 | 10 % | 2.00 × |",
        ];
        has(&m.table(), &parts);
    }

    #[test]
    fn without_a_ceiling_there_is_no_part_of_it() {
        let mut peaks = Peaks::default();
        peaks.int8 = Some(2e12);
        let one = Repetition { peaks, rates: vec![50.0], first: vec![7], ..Repetition::default() };
        let m = Measured {
            work: Work { weights: 1_000_000_000, arithmetic: Arithmetic::Bf16, ..Work::default() },
            entries: vec![entry(Phase::Prefill, "a")],
            repetitions: vec![one],
            launches: vec![Launches { engine: "a".into(), seconds: vec![1.0], bytes: vec![] }],
            ..Measured::default()
        };
        let parts = [
            "| prefill 9 | a | 50.00 | 50.00 | 50.00 | – | 1.00 × |",
            "int8 2.00, bf16 –, f32 – TOP/s; load average –;",
            "| a | 1.00 s | 1.00 | 1.00 | – | 1.00 ×, – |",
        ];
        has(&m.table(), &parts);
    }

    #[test]
    fn whoever_rounds_to_bf16_is_held_against_its_rates() {
        let mut peaks = Peaks::default();
        (peaks.bf16, peaks.f32) = (Some(4e12), Some(1e12));
        let rates = vec![5.0, 5.0, 100.0, 100.0];
        let reads = vec![1e10; 4];
        let one = Repetition { peaks, rates, reads, first: vec![7, 7], ..Repetition::default() };
        let work = Work {
            always: Stored { plain: 1_000_000_000, rounded: 500_000_000 },
            weights: 2_000_000_000,
            arithmetic: Arithmetic::F32,
            ..Work::default()
        };
        let entries = [Phase::Decode, Phase::Prefill].map(|phase| [entry(phase, "a"), entry(phase, "bf16")]);
        let m = Measured { work, entries: entries.concat(), repetitions: vec![one], ..Measured::default() };
        let parts = [
            "| decode | a | 5.00 | 5.00 | 5.00 | 50 % |",
            "| decode | bf16 | 5.00 | 5.00 | 5.00 | 25 % |",
            "| prefill 9 | a | 100.00 | 100.00 | 100.00 | 40 % |",
            "| prefill 9 | bf16 | 100.00 | 100.00 | 100.00 | 10 % |",
        ];
        has(&m.table(), &parts);
    }
}
