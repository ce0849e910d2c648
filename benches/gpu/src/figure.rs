//! One measured value, with what was moved and computed for it, and what part that is of what the device can do.

use crate::report::short;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// Seconds of the runs that counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Times {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) runs: usize,
}

impl Times {
    /// Of runs that each did something `calls` times.
    pub(crate) fn of(runs: &[Duration], calls: usize) -> Self {
        let mut seconds: Vec<f64> = runs.iter().map(|t| t.as_secs_f64() / calls.max(1) as f64).collect();
        seconds.sort_by(f64::total_cmp);
        let at = |i: usize| seconds.get(i).copied().unwrap_or(0.0);
        let n = seconds.len();
        let median = (at(n.saturating_sub(1) / 2) + at(n / 2)) / 2.0;
        Self { median, least: at(0), most: at(n.saturating_sub(1)), runs: n }
    }
}

/// What the device gives at best, as it was measured in this run.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Ceilings {
    /// Bytes a second of a copy, what is read and what is written counted.
    pub(crate) bandwidth: f64,
    /// Operations a second of cuBLAS with bfloat16 matrices; 0 where there is no cuBLAS.
    pub(crate) rate: f64,
}

/// One measured value.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    /// What was measured: `linear q4_k`, `decode`.
    pub(crate) name: String,
    /// Its sizes.
    pub(crate) case: String,
    pub(crate) times: Times,
    /// The device's share of the time, where the times are a clock's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<Times>,
    /// Bytes that must be moved at least.
    pub(crate) bytes: f64,
    /// Additions and multiplications.
    pub(crate) operations: f64,
    pub(crate) gigabytes_per_second: f64,
    pub(crate) teraflops: f64,
    /// Tokens a second, for models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tokens_per_second: Option<f64>,
    /// The least time that the ceilings allow, by the time it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) of_ceiling: Option<f64>,
    /// Which ceiling that is: `memory` or `arithmetic`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bound: Option<&'static str>,
    /// Whether it ran as a graph.
    pub(crate) graph: bool,
}

impl Figure {
    /// Something that moved so many bytes with so many operations.
    pub(crate) fn new(
        name: impl Into<String>,
        case: impl Into<String>,
        times: Times,
        work: [f64; 2],
    ) -> Self {
        let [bytes, operations] = work;
        let per_second = |n: f64| if times.median > 0.0 { n / times.median } else { 0.0 };
        Self {
            name: name.into(),
            case: case.into(),
            gigabytes_per_second: per_second(bytes) / 1e9,
            teraflops: per_second(operations) / 1e12,
            times,
            device: None,
            bytes,
            operations,
            tokens_per_second: None,
            of_ceiling: None,
            bound: None,
            graph: false,
        }
    }

    /// Held against what the device can do.
    pub(crate) fn against(mut self, ceilings: &Ceilings) -> Self {
        let least = |work: f64, most: f64| if most > 0.0 { work / most } else { 0.0 };
        let memory = least(self.bytes, ceilings.bandwidth);
        let arithmetic = least(self.operations, ceilings.rate);
        let ideal = memory.max(arithmetic);
        if ideal > 0.0 && self.times.median > 0.0 {
            self.of_ceiling = Some(ideal / self.times.median);
            self.bound = Some(if arithmetic > memory { "arithmetic" } else { "memory" });
        }
        self
    }

    /// For a step of so many tokens.
    pub(crate) fn tokens(mut self, tokens: usize) -> Self {
        self.tokens_per_second = (self.times.median > 0.0).then(|| tokens as f64 / self.times.median);
        self
    }
}

impl fmt::Display for Figure {
    /// In a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}: {}", self.name, self.case, short(self.times.median))?;
        match self.tokens_per_second {
            Some(tokens) => write!(f, ", {tokens:.1} tokens/s")?,
            None => write!(f, ", {:.1} GB/s, {:.2} TFLOP/s", self.gigabytes_per_second, self.teraflops)?,
        }
        self.of_ceiling.map_or(Ok(()), |part| write!(f, ", {:.0} % of the ceiling", 100.0 * part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_fractions() {
        let ms = |list: &[u64]| list.iter().map(|ms| Duration::from_millis(*ms)).collect::<Vec<_>>();
        let t = Times::of(&ms(&[40, 20, 60, 20]), 10);
        assert!((t.median - 0.003).abs() < 1e-9 && (t.least - 0.002).abs() < 1e-9, "{t:?}");
        assert!((t.most - 0.006).abs() < 1e-9 && t.runs == 4, "{t:?}");
        assert_eq!(Times::of(&[], 1), Times::default());
        let ceilings = Ceilings { bandwidth: 1e12, rate: 1e15 };
        let f = Figure::new("x", "", t.clone(), [1.5e9, 1e6]).against(&ceilings);
        assert_eq!(f.bound, Some("memory"));
        assert!((f.of_ceiling.unwrap() - 0.5).abs() < 1e-9 && (f.gigabytes_per_second - 500.0).abs() < 1e-6);
        let f = Figure::new("x", "", t.clone(), [1.5e6, 1.5e12]).against(&ceilings);
        assert!(f.bound == Some("arithmetic") && (f.of_ceiling.unwrap() - 0.5).abs() < 1e-9);
        // Nothing to be held against: no fraction, not one of infinity.
        let f = Figure::new("x", "", t, [1.0, 1.0]).against(&Ceilings::default());
        assert!(f.of_ceiling.is_none());
    }
}
