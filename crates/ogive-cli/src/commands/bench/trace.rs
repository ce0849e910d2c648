//! `ogive bench --trace`: where a step's time goes, and how near each operator is to what the machine can do.
//!
//! Measured by runs of their own, after those whose figures are told: watching takes time too. The model is the same; only the engine
//! asks it through a backend that keeps count.

use super::Args;
use super::measure::{Bench, Load, Window};
use crate::error::{Error, Result};
use crate::figures::Table;
use ogive::Model;
use ogive::backend::{Facts, TraceEntry, Work};
use ogive::cpu::CpuBackend;
use ogive::cpu::ceilings::{Memory, Peaks};
use ogive::tensor::{BF16, F16, F32};
use serde_json::{Value, json};
use std::time::Duration;

/// Bytes read to measure how fast memory is, of all threads together; less where memory is short.
const READ: u64 = 1 << 30;
/// The row of what is in no operator: the engine, the model's own code, and the watching.
const BETWEEN: &str = "between operators";

/// What the machine can do at most.
#[derive(Debug)]
struct Ceilings {
    threads: usize,
    /// Bytes a second.
    read: f64,
    /// Operations a second.
    peaks: Peaks,
}

impl Ceilings {
    fn measure(threads: usize, facts: &Facts) -> Self {
        let bytes = facts.memory.map_or(READ, |free| READ.min(free / 4));
        let share = usize::try_from(bytes).unwrap_or(usize::MAX) / threads.max(1);
        Self { threads, read: Memory::new(threads, share).read_rate(), peaks: Peaks::measure(threads) }
    }
}

/// What products are computed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arithmetic {
    Int8,
    Bf16,
    F32,
}

/// What decides on it besides the formats of weights.
#[derive(Clone, Copy, Debug)]
struct Computes {
    /// All weights are decoded.
    exact: bool,
    /// BF16 weights are multiplied as they are, and not as singles that are made of them.
    bf16: bool,
}

impl Arithmetic {
    /// As the CPU computes: packed weights with activations of 8 bits, and attention in single precision.
    fn of(entry: &TraceEntry, computes: Computes) -> Self {
        let single = |format| format == &F32 || format == &F16 || format == &BF16 && !computes.bf16;
        match entry.weights.iter().map(|w| w.1).find(|f| !single(*f)) {
            _ if computes.exact => Self::F32,
            Some(format) if format == &BF16 => Self::Bf16,
            Some(_) => Self::Int8,
            None => Self::F32,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
        }
    }

    fn peak(self, peaks: &Peaks) -> Option<f64> {
        match self {
            Self::Int8 => peaks.int8,
            Self::Bf16 => peaks.bf16,
            Self::F32 => peaks.f32,
        }
    }
}

/// The windows of one kind, prefill or decode, together.
#[derive(Debug, Default)]
struct Phase {
    wall: Duration,
    steps: u64,
    /// The one that took longest first.
    entries: Vec<TraceEntry>,
}

impl Phase {
    fn add(&mut self, window: Window) {
        self.wall += window.time;
        for new in window.entries {
            self.steps += if new.operator == "plan" { new.calls } else { 0 };
            match self.entries.iter_mut().find(|e| e.operator == new.operator && e.weights == new.weights) {
                Some(e) => {
                    e.calls += new.calls;
                    e.time += new.time;
                    e.work += new.work;
                }
                None => self.entries.push(new),
            }
        }
        self.entries.sort_by_key(|e| std::cmp::Reverse(e.time));
    }

    fn between(&self) -> Duration {
        self.wall.saturating_sub(self.entries.iter().map(|e| e.time).sum())
    }

    fn share(&self, time: Duration) -> f64 {
        time.as_secs_f64() / self.wall.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// A rate and what part of a ceiling it is; `None` where nothing was counted.
fn rate(amount: u64, time: Duration, ceiling: Option<f64>) -> Option<(f64, Option<f64>)> {
    let seconds = time.as_secs_f64();
    (amount > 0 && seconds > 0.0).then(|| {
        let rate = amount as f64 / seconds;
        (rate, ceiling.map(|c| rate / c))
    })
}

/// What was seen.
#[derive(Debug)]
pub(super) struct Traced {
    ceilings: Ceilings,
    computes: Computes,
    phases: Vec<(&'static str, Phase)>,
}

/// The model's backend. Only on the CPU does a call's time say what it took.
pub(super) fn cpu(model: &Model) -> Result<&CpuBackend> {
    model.backend().downcast_ref::<CpuBackend>().ok_or_else(|| {
        let name = model.backend().facts().name;
        let why = format!("calls of the backend `{name}` return before their work is done");
        Error::failed(format_args!("--trace times operators on the CPU alone: {why}; add --device cpu"))
    })
}

impl Traced {
    pub(super) fn measure(model: &Model, load: Load, args: &Args) -> Result<Self> {
        let (cpu, facts) = (cpu(model)?, model.backend().facts());
        let ceilings = Ceilings::measure(cpu.threads(), &facts);
        let computes = Computes { exact: facts.exact, bf16: cpu.multiplies_bf16() };
        let mut bench = Bench::traced(model, load)?;
        let mut phases = Vec::new();
        type Run = fn(&mut Bench) -> Result<Window>;
        let runs: [(&str, usize, Run); 2] =
            [("prefill", args.prompt, Bench::prefill), ("decode", args.tokens, Bench::decode)];
        for (name, _, run) in runs.into_iter().filter(|(_, tokens, _)| *tokens > 0) {
            let mut phase = Phase::default();
            run(&mut bench)?;
            for _ in 0..args.repetitions.get() {
                phase.add(run(&mut bench)?);
            }
            phases.push((name, phase));
        }
        Ok(Self { ceilings, computes, phases })
    }

    /// Tables for people: a row for each operator, times and calls of a step.
    pub(super) fn table(&self) -> String {
        let c = &self.ceilings;
        let tera = |name: &str, peak: Option<f64>| peak.map(|p| format!(", {name} {:.3} TOP/s", p / 1e12));
        let peaks = [("int8", c.peaks.int8), ("bf16", c.peaks.bf16), ("f32", c.peaks.f32)];
        let peaks: String = peaks.into_iter().filter_map(|(name, peak)| tera(name, peak)).collect();
        let s = if c.threads == 1 { "" } else { "s" };
        let mut out = format!("ceilings of {} thread{s}: reads {:.2} GB/s{peaks}\n", c.threads, c.read / 1e9);
        for (name, phase) in &self.phases {
            let steps = phase.steps.max(1) as f64;
            let step = phase.wall.as_secs_f64() / steps;
            out += &format!("\n{name}: {} steps traced, {:.3} ms each\n", phase.steps, 1e3 * step);
            let mut table = Table::new([
                "operator", "weights", "calls", "ms", "share", "GB/s", "of reads", "GOP/s", "of peak",
            ]);
            let row = |operator: &str, weights: String, calls: String, time: Duration| {
                let ms = format!("{:.3}", 1e3 * time.as_secs_f64() / steps);
                [operator.to_owned(), weights, calls, ms, percent(phase.share(time))]
            };
            for e in &phase.entries {
                let arithmetic = Arithmetic::of(e, self.computes);
                let (reads, computes) = self.rates(e);
                let [bytes, of_reads] = cells(reads, "");
                let [operations, of_peak] = cells(computes, arithmetic.name());
                let calls = format!("{}", (10.0 * e.calls as f64 / steps).round() / 10.0);
                let [a, b, c, d, f] = row(e.operator, weights(e), calls, e.time);
                table.row([a, b, c, d, f, bytes, of_reads, operations, of_peak]);
            }
            let [a, b, c, d, f] = row(BETWEEN, String::new(), String::new(), phase.between());
            table.row([a, b, c, d, f, String::new(), String::new(), String::new(), String::new()]);
            out += &table.to_string();
        }
        out.truncate(out.trim_end().len());
        out
    }

    /// The same and more, for scripts: sums over all steps.
    pub(super) fn json(&self) -> Value {
        let c = &self.ceilings;
        let phase = |name: &str| {
            let found = self.phases.iter().find(|(n, _)| *n == name);
            found.map_or(Value::Null, |(_, phase)| self.phase_json(phase))
        };
        json!({
            "ceilings": {
                "threads": c.threads,
                "read_bytes_per_second": c.read,
                "int8_operations_per_second": c.peaks.int8,
                "bf16_operations_per_second": c.peaks.bf16,
                "f32_operations_per_second": c.peaks.f32,
            },
            "prefill": phase("prefill"),
            "decode": phase("decode"),
        })
    }

    fn phase_json(&self, phase: &Phase) -> Value {
        let entry = |e: &TraceEntry| {
            let (reads, computes) = self.rates(e);
            let weights = e.weights.iter().map(|(shape, f)| json!({"shape": shape, "format": f.name}));
            json!({
                "operator": e.operator,
                "weights": weights.collect::<Vec<_>>(),
                "arithmetic": (e.work.operations > 0).then(|| Arithmetic::of(e, self.computes).name()),
                "calls": e.calls,
                "seconds": e.time.as_secs_f64(),
                "share": phase.share(e.time),
                "bytes": e.work.bytes,
                "operations": e.work.operations,
                "bytes_per_second": reads.map(|r| r.0),
                "of_reads": reads.and_then(|r| r.1),
                "operations_per_second": computes.map(|r| r.0),
                "of_peak": computes.and_then(|r| r.1),
            })
        };
        let between = phase.between();
        json!({
            "steps": phase.steps,
            "seconds": phase.wall.as_secs_f64(),
            "operators": phase.entries.iter().map(entry).collect::<Vec<_>>(),
            "between_operators": { "seconds": between.as_secs_f64(), "share": phase.share(between) },
        })
    }

    #[expect(clippy::type_complexity, reason = "two rates, each with its part of a ceiling")]
    fn rates(&self, e: &TraceEntry) -> (Option<(f64, Option<f64>)>, Option<(f64, Option<f64>)>) {
        let Work { bytes, operations, .. } = e.work;
        let peak = Arithmetic::of(e, self.computes).peak(&self.ceilings.peaks);
        (rate(bytes, e.time, Some(self.ceilings.read)), rate(operations, e.time, peak))
    }
}

fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}

/// A rate and what part of the named ceiling it is.
fn cells(rate: Option<(f64, Option<f64>)>, ceiling: &str) -> [String; 2] {
    let Some((rate, of)) = rate else { return [String::new(), String::new()] };
    let part = of.map_or(String::new(), |of| format!("{} {ceiling}", percent(of)));
    [format!("{:.2}", rate / 1e9), part.trim_end().to_owned()]
}

/// The weights of a call in one cell: all rows together where they have one input.
fn weights(e: &TraceEntry) -> String {
    let mut formats: Vec<&str> = e.weights.iter().map(|w| w.1.name).collect();
    formats.dedup();
    let formats = formats.join("+");
    match e.weights.first() {
        None => String::new(),
        Some(([1, _, cols], _)) if e.weights.iter().all(|w| w.0[0] == 1 && w.0[2] == *cols) => {
            let rows: usize = e.weights.iter().map(|w| w.0[1]).sum();
            format!("{rows} × {cols} {formats}")
        }
        Some(([experts, ..], _)) => format!("{experts} experts {formats}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive::tensor::{Format, Q4_K, Q6_K};

    fn entry(operator: &'static str, weights: &[([usize; 3], &'static Format)], millis: u64) -> TraceEntry {
        let mut e = TraceEntry::default();
        (e.operator, e.weights) = (operator, weights.to_vec());
        (e.calls, e.time) = (2, Duration::from_millis(millis));
        (e.work.bytes, e.work.operations) = (millis * 5_000_000, millis * 100_000_000);
        e
    }

    #[test]
    fn parts_and_what_is_between_make_the_whole() {
        let qkv: [([usize; 3], &'static Format); 2] = [([1, 48, 256], &Q4_K), ([1, 16, 256], &Q6_K)];
        let mut phase = Phase::default();
        for _ in 0..2 {
            let mut plan = entry("plan", &[], 0);
            (plan.calls, plan.work) = (1, Work::default());
            let entries = vec![entry("linear_many", &qkv, 20), plan, entry("attend_cache", &[], 5)];
            phase.add(Window { tokens: 1, time: Duration::from_millis(30), entries });
        }
        assert_eq!((phase.steps, phase.between()), (2, Duration::from_millis(10)));
        let mut peaks = Peaks::default();
        (peaks.int8, peaks.f32) = (Some(4e11), Some(1e11));
        let ceilings = Ceilings { threads: 2, read: 1e10, peaks };
        let computes = Computes { exact: false, bf16: true };
        let traced = Traced { ceilings, computes, phases: vec![("decode", phase)] };
        let text = traced.table();
        let row = |start: &str| {
            let line = text.lines().find(|l| l.starts_with(start)).unwrap();
            line.split_whitespace().skip(start.split(' ').count()).collect::<Vec<_>>().join(" ")
        };
        assert!(
            text.contains("ceilings of 2 threads: reads 10.00 GB/s, int8 0.400 TOP/s, f32 0.100"),
            "{text}"
        );
        assert!(text.contains("decode: 2 steps traced, 30.000 ms each"), "{text}");
        assert_eq!(row("linear_many"), "64 × 256 q4_k+q6_k 2 20.000 66.7 % 5.00 50.0 % 100.00 25.0 % int8");
        assert_eq!(row("attend_cache"), "2 5.000 16.7 % 5.00 50.0 % 100.00 100.0 % f32");
        assert_eq!(row("plan"), "1 0.000 0.0 %");
        assert_eq!(row(BETWEEN), "5.000 16.7 %");
        let json = traced.json();
        assert!(json["prefill"].is_null());
        assert_eq!(json["decode"]["operators"][0]["of_reads"], 0.5);
        assert_eq!(json["decode"]["operators"][1]["arithmetic"], "f32");
    }

    #[test]
    fn arithmetic_is_the_cpus() {
        let of = |formats: &[&'static Format], exact, bf16| {
            let weights: Vec<_> = formats.iter().map(|f| ([1, 2, 256], *f)).collect();
            Arithmetic::of(&entry("linear", &weights, 1), Computes { exact, bf16 })
        };
        for bf16 in [false, true] {
            assert_eq!([of(&[&F16], false, bf16), of(&[&F32], false, bf16)], [Arithmetic::F32; 2]);
            assert_eq!([of(&[&Q4_K], true, bf16), of(&[&BF16], true, bf16)], [Arithmetic::F32; 2]);
            assert_eq!(of(&[&Q4_K], false, bf16), Arithmetic::Int8);
        }
        assert_eq!(of(&[&BF16], false, true), Arithmetic::Bf16);
        // Without instructions for bf16 it is made singles, and a machine that has such for other paths is not what it is held against.
        assert_eq!(of(&[&BF16], false, false), Arithmetic::F32);
        assert_eq!(of(&[&BF16, &Q4_K], false, false), Arithmetic::Int8);
    }
}
