//! What is measured: the phases of a repetition, and how much of each.

use crate::engines::Cache;
use serde::{Serialize, Serializer};

/// One measurement of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// Tokens one by one after a short prompt.
    Decode,
    /// A prompt.
    Prefill,
    /// Tokens one by one after a long prompt.
    Depth,
    /// Tokens of several sequences, each step one of each.
    Together,
}

impl Phase {
    pub(crate) const ALL: &[Self] = &[Self::Decode, Self::Prefill, Self::Depth, Self::Together];

    /// Whether tokens come one by one.
    pub(crate) const fn decodes(self) -> bool {
        matches!(self, Self::Decode | Self::Depth)
    }
}

/// How much of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Tokens that are decoded.
    pub(crate) decode: usize,
    /// Tokens of the prompt that is read.
    pub(crate) prefill: usize,
    /// Tokens before those that are decoded at depth; 0 leaves the phase out.
    pub(crate) depth: usize,
    /// Sequences that are decoded together; 0 leaves the phase out.
    pub(crate) together: usize,
}

/// Tokens before decoding begins, where depth is not the point.
const SHORT: usize = 8;
/// Tokens that a sequence may have at least, asked for or not: figures of memory are then of the same cache.
const CONTEXT: usize = 4096;

impl Sizes {
    /// Whether there is anything to do in `phase`.
    pub(crate) fn has(&self, phase: Phase) -> bool {
        self.tokens(phase) > 0
    }

    /// Tokens whose time is taken.
    pub(crate) fn tokens(&self, phase: Phase) -> usize {
        match phase {
            Phase::Decode => self.decode,
            Phase::Prefill => self.prefill,
            Phase::Depth if self.depth == 0 => 0,
            Phase::Depth => self.decode,
            Phase::Together => self.together * self.decode,
        }
    }

    /// Tokens of a prompt that is read in `phase`.
    pub(crate) fn prompt(&self, phase: Phase) -> usize {
        match phase {
            Phase::Decode | Phase::Together => SHORT,
            Phase::Prefill => self.prefill,
            Phase::Depth => self.depth,
        }
    }

    /// The phase in a table.
    pub(crate) fn name(&self, phase: Phase) -> String {
        match phase {
            Phase::Decode => "decode".into(),
            Phase::Prefill => format!("prefill {}", self.prefill),
            Phase::Depth => format!("decode at {}", self.depth),
            Phase::Together => format!("decode, {} together", self.together),
        }
    }
}

/// A value of an option, or several: JSON has one without a list around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Several<T>(pub(crate) Vec<T>);

impl<T: Copy + PartialEq> Several<T> {
    /// Each value once, in the order they were named in.
    pub(crate) fn of(values: &[T]) -> Self {
        let mut once = Vec::new();
        for value in values {
            if !once.contains(value) {
                once.push(*value);
            }
        }
        Self(once)
    }

    /// `value` where it tells one row from another.
    fn mark(&self, value: T) -> Option<T> {
        (self.0.len() > 1).then_some(value)
    }
}

impl<T: Serialize> Serialize for Several<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.0[..] {
            [one] => one.serialize(to),
            several => several.serialize(to),
        }
    }
}

/// All that is asked for.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Asked {
    pub(crate) decode: usize,
    pub(crate) prefill: usize,
    pub(crate) depth: usize,
    pub(crate) together: Several<usize>,
    #[serde(skip)]
    pub(crate) caches: Several<Cache>,
}

/// What is measured, by each engine: a phase, of these sizes, with this cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    pub(crate) phase: Phase,
    /// Sequences together, where several numbers of them are asked for.
    #[serde(rename = "together", skip_serializing_if = "Option::is_none")]
    number: Option<usize>,
    /// What keys and values are kept in, where several are asked for.
    #[serde(rename = "cache", skip_serializing_if = "Option::is_none")]
    named: Option<Cache>,
    #[serde(skip)]
    pub(crate) sizes: Sizes,
    #[serde(skip)]
    pub(crate) cache: Cache,
}

impl Row {
    /// The row in a table.
    pub(crate) fn name(&self) -> String {
        let phase = self.sizes.name(self.phase);
        self.named.map_or(phase.clone(), |cache| format!("{phase}, {} cache", cache.name()))
    }
}

impl Asked {
    /// The sizes with so many sequences together.
    pub(crate) fn sizes(&self, together: usize) -> Sizes {
        Sizes { decode: self.decode, prefill: self.prefill, depth: self.depth, together }
    }

    /// What keys and values are kept in where only one is measured.
    pub(crate) fn cache(&self) -> Cache {
        self.caches.0.first().copied().unwrap_or_default()
    }

    /// Everything to measure, in the order of the table.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for &phase in Phase::ALL {
            let numbers = if phase == Phase::Together { &self.together.0[..] } else { &[0] };
            for &together in numbers {
                let sizes = self.sizes(together);
                let number = self.together.mark(together).filter(|_| phase == Phase::Together);
                let row = |&cache| Row { phase, number, named: self.caches.mark(cache), sizes, cache };
                if sizes.has(phase) {
                    rows.extend(self.caches.0.iter().map(row));
                }
            }
        }
        rows
    }

    /// Tokens that a sequence may have.
    pub(crate) fn context(&self) -> usize {
        let longest = self.prefill.max(SHORT + self.decode).max(self.depth + self.decode);
        context(longest)
    }
}

/// Tokens to reserve for so many: one more is drawn, and engines like round numbers.
pub(crate) fn context(tokens: usize) -> usize {
    shared(1, tokens)
}

/// Tokens to reserve for so many sequences of so many tokens, all together.
pub(crate) fn shared(sequences: usize, tokens: usize) -> usize {
    (sequences * (tokens + 1).next_multiple_of(256)).max(CONTEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(together: &[usize], caches: &[Cache]) -> Asked {
        let (together, caches) = (Several::of(together), Several::of(caches));
        Asked { decode: 64, prefill: 512, depth: 0, together, caches }
    }

    #[test]
    fn one_value_leaves_no_mark_and_several_have_rows_each() {
        let one = asked(&[8], &[Cache::Q8]);
        let names = |asked: &Asked| asked.rows().iter().map(Row::name).collect::<Vec<_>>();
        assert_eq!(names(&one), ["decode", "prefill 512", "decode, 8 together"]);
        let json = |asked: &Asked, row: usize| serde_json::to_string(&asked.rows()[row]).unwrap();
        assert_eq!(json(&one, 2), r#"{"phase":"together"}"#);
        let sizes = r#"{"decode":64,"prefill":512,"depth":0,"together":8}"#;
        assert_eq!(serde_json::to_string(&one).unwrap(), sizes);

        let several = asked(&[8, 0, 32, 8], &[Cache::F16, Cache::Q8]);
        let expected = [
            "decode, f16 cache",
            "decode, q8_0 cache",
            "prefill 512, f16 cache",
            "prefill 512, q8_0 cache",
            "decode, 8 together, f16 cache",
            "decode, 8 together, q8_0 cache",
            "decode, 32 together, f16 cache",
            "decode, 32 together, q8_0 cache",
        ];
        assert_eq!(names(&several), expected);
        let last = r#"{"phase":"together","together":32,"cache":"q8_0"}"#;
        assert_eq!(json(&several, 7), last);
        assert_eq!(json(&several, 0), r#"{"phase":"decode","cache":"f16"}"#);
        assert_eq!(names(&asked(&[0], &[Cache::F16])), ["decode", "prefill 512"]);
    }

    #[test]
    fn the_context_is_as_long_as_what_is_asked_for() {
        let asked = |prefill, depth| Asked { depth, prefill, ..asked(&[8], &[Cache::F16]) }.context();
        assert_eq!(asked(512, 2048), CONTEXT);
        assert_eq!(asked(512, 32768), 33024);
        assert_eq!(asked(8192, 0), 8448);
        assert_eq!((shared(8, 72), shared(32, 72)), (CONTEXT, 8192));
    }
}
