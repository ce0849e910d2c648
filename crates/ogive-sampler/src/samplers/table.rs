//! Which samplers a chain's text may name, and where their values go.
//!
//! One table holds it all: the parser, the printer and the errors cannot disagree.

use std::str::FromStr;

use crate::error::SampleError;
use crate::params::SamplerParams;

/// What a stage of a chain's text does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sampler {
    /// [`LogitBias`](crate::stages::LogitBias). It stands first where the list does not name it.
    LogitBias,
    /// [`Penalties`](crate::stages::Penalties).
    Penalties,
    /// [`Dry`](crate::stages::Dry).
    Dry,
    /// [`TopNSigma`](crate::stages::TopNSigma).
    TopNSigma,
    /// [`TopK`](crate::stages::TopK).
    TopK,
    /// [`Typical`](crate::stages::Typical).
    Typical,
    /// [`TopP`](crate::stages::TopP).
    TopP,
    /// [`MinP`](crate::stages::MinP).
    MinP,
    /// [`Xtc`](crate::stages::Xtc).
    Xtc,
    /// [`Temperature`](crate::stages::Temperature), or
    /// [`DynamicTemperature`](crate::stages::DynamicTemperature) where it has a range.
    Temperature,
    /// [`Greedy`](crate::stages::Greedy).
    Greedy,
    /// [`Mirostat`](crate::stages::Mirostat); nothing may follow it.
    Mirostat,
    /// [`MirostatV2`](crate::stages::MirostatV2); nothing may follow it.
    MirostatV2,
    /// [`AdaptiveP`](crate::stages::AdaptiveP). Wherever it is named, it comes last, as in llama.cpp.
    AdaptiveP,
}

/// Where a value goes.
#[derive(Clone, Copy)]
pub(super) enum Field {
    Number(fn(&mut SamplerParams) -> &mut f32),
    Count(fn(&mut SamplerParams) -> &mut usize),
    /// A count of which -1 says all.
    Window(fn(&mut SamplerParams) -> &mut usize),
}

pub(super) struct Entry {
    sampler: Sampler,
    /// As it is printed; llama.cpp's where it has one.
    pub(super) name: &'static str,
    /// Other spellings; a hyphen counts as an underscore.
    aliases: &'static [&'static str],
    pub(super) fields: &'static [(&'static str, Field)],
}

const fn entry(
    sampler: Sampler,
    name: &'static str,
    aliases: &'static [&'static str],
    fields: &'static [(&'static str, Field)],
) -> Entry {
    Entry { sampler, name, aliases, fields }
}

use Field::{Count, Number, Window};

static TABLE: [Entry; 14] = [
    entry(Sampler::LogitBias, "logit_bias", &[], &[]),
    entry(
        Sampler::Penalties,
        "penalties",
        &[],
        &[
            ("repeat", Number(|p| &mut p.repeat_penalty)),
            ("frequency", Number(|p| &mut p.frequency_penalty)),
            ("presence", Number(|p| &mut p.presence_penalty)),
            ("last_n", Window(|p| &mut p.penalty_last_n)),
        ],
    ),
    entry(
        Sampler::Dry,
        "dry",
        &[],
        &[
            ("multiplier", Number(|p| &mut p.dry_multiplier)),
            ("base", Number(|p| &mut p.dry_base)),
            ("allowed_length", Count(|p| &mut p.dry_allowed_length)),
            ("last_n", Window(|p| &mut p.dry_penalty_last_n)),
        ],
    ),
    entry(Sampler::TopNSigma, "top_n_sigma", &["top_nsigma"], &[("n", Number(|p| &mut p.top_n_sigma))]),
    entry(Sampler::TopK, "top_k", &[], &[("k", Count(|p| &mut p.top_k))]),
    entry(
        Sampler::Typical,
        "typ_p",
        &["typical", "typical_p", "typ"],
        &[("p", Number(|p| &mut p.typical_p))],
    ),
    entry(Sampler::TopP, "top_p", &["nucleus"], &[("p", Number(|p| &mut p.top_p))]),
    entry(Sampler::MinP, "min_p", &[], &[("p", Number(|p| &mut p.min_p))]),
    entry(
        Sampler::Xtc,
        "xtc",
        &[],
        &[
            ("probability", Number(|p| &mut p.xtc_probability)),
            ("threshold", Number(|p| &mut p.xtc_threshold)),
        ],
    ),
    entry(
        Sampler::Temperature,
        "temperature",
        &["temp", "temp_ext"],
        &[
            ("t", Number(|p| &mut p.temperature)),
            ("range", Number(|p| &mut p.dynatemp_range)),
            ("exponent", Number(|p| &mut p.dynatemp_exponent)),
        ],
    ),
    entry(Sampler::Greedy, "greedy", &[], &[]),
    entry(Sampler::Mirostat, "mirostat", &["mirostat_v1"], &MIROSTAT),
    entry(Sampler::MirostatV2, "mirostat_v2", &["mirostat2"], &MIROSTAT),
    entry(
        Sampler::AdaptiveP,
        "adaptive_p",
        &[],
        &[("target", Number(|p| &mut p.adaptive_target)), ("decay", Number(|p| &mut p.adaptive_decay))],
    ),
];

const MIROSTAT: [(&str, Field); 2] =
    [("tau", Number(|p| &mut p.mirostat_tau)), ("eta", Number(|p| &mut p.mirostat_eta))];

impl Sampler {
    pub(super) fn entry(self) -> &'static Entry {
        // The table is in the order of the variants (tested).
        &TABLE[self as usize]
    }

    /// Its name in a chain's text.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// All there are, with the names of their values, in llama.cpp's default order: what a help text shows.
    pub fn all() -> impl ExactSizeIterator<Item = (Self, Vec<&'static str>)> {
        TABLE.iter().map(|e| (e.sampler, e.fields.iter().map(|(name, _)| *name).collect()))
    }
}

impl FromStr for Sampler {
    type Err = SampleError;

    /// Its name, llama.cpp's other spellings among them; hyphens count as underscores.
    fn from_str(text: &str) -> Result<Self, SampleError> {
        let plain = text.trim().to_ascii_lowercase().replace('-', "_");
        let known = |e: &&Entry| e.name == plain || e.aliases.contains(&&*plain);
        TABLE.iter().find(known).map(|e| e.sampler).ok_or_else(|| SampleError::UnknownSampler {
            name: text.trim().to_owned(),
            hint: nearest(&plain).map(|name| format!("; did you mean {name}?")).unwrap_or_default(),
            known: TABLE.iter().map(|e| e.name).collect::<Vec<_>>().join(", "),
        })
    }
}

/// The name with the fewest letters to change, if they are few.
fn nearest(text: &str) -> Option<&'static str> {
    /// No name is as long; what is longer is none with slips in it.
    const LONGEST: usize = 24;
    let letters: Vec<char> = text.chars().take(LONGEST + 1).collect();
    let spellings = TABLE.iter().flat_map(|e| e.aliases.iter().chain([&e.name]).map(|s| (*s, e.name)));
    let distances = spellings.map(|(spelling, name)| (changes(&letters, spelling), name));
    let near = distances.filter(|&(n, _)| letters.len() <= LONGEST && n <= letters.len().div_ceil(3));
    near.min_by_key(|&(n, _)| n).map(|(_, name)| name)
}

/// Letters to insert, delete or replace to make one of the other (Levenshtein 1966).
fn changes(a: &[char], b: &str) -> usize {
    let mut row: Vec<usize> = (0..=a.len()).collect();
    for (i, letter) in b.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (above, other) in row.iter_mut().skip(1).zip(a) {
            let replaced = diagonal + usize::from(*other != letter);
            diagonal = *above;
            left = replaced.min(left + 1).min(*above + 1);
            *above = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_variants() {
        for (i, entry) in TABLE.iter().enumerate() {
            assert_eq!(entry.sampler as usize, i, "{}", entry.name);
            assert_eq!(entry.name.parse(), Ok(entry.sampler));
            for alias in entry.aliases {
                assert_eq!(alias.replace('_', "-").parse(), Ok(entry.sampler));
            }
        }
    }

    #[test]
    fn letters_to_change() {
        for (a, b, n) in
            [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("top_k", "top_p", 1)]
        {
            assert_eq!(changes(&a.chars().collect::<Vec<_>>(), b), n, "{a} {b}");
        }
        for (text, name) in [
            ("topk", Some("top_k")),
            ("temprature", Some("temperature")),
            ("mirostat2", Some("mirostat_v2")),
            ("dri", Some("dry")),
            ("typicl", Some("typ_p")),
            ("", None),
            ("beam_search", None),
            ("q", None),
        ] {
            assert_eq!(nearest(text), name, "{text}");
        }
        assert_eq!(nearest(&"top_k".repeat(1000)), None);
    }
}
