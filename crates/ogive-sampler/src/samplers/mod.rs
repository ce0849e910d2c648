//! A chain as text: `penalties:1.1,top_k:40,min_p:0.05,temperature:0.8`.
//!
//! Names stand in the order of the stages, apart by a comma (or llama.cpp's semicolon), and after a name its values,
//! apart by colons. A value that is left out is the one of [`SamplerParams`], so a list of bare names is llama.cpp's
//! `--samplers` and says the order alone.

mod table;

pub use table::Sampler;

use std::fmt;
use std::str::FromStr;

use crate::error::SampleError;
use crate::params::SamplerParams;
use table::Field::{self, Count, Number, Window};

/// A value that a text gives.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Number(f32),
    Count(usize),
    /// -1 where it is `usize::MAX`.
    Window(usize),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Number(x) => write!(f, "{x}"),
            Self::Window(usize::MAX) => f.write_str("-1"),
            Self::Count(n) | Self::Window(n) => write!(f, "{n}"),
        }
    }
}

/// One stage of a chain's text: which, and the values it was given.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    sampler: Sampler,
    values: Vec<Value>,
}

impl Step {
    /// Which it is.
    pub fn sampler(&self) -> Sampler {
        self.sampler
    }

    /// `params` with the values that this step was given.
    pub(crate) fn applied(&self, params: &SamplerParams) -> SamplerParams {
        let mut params = params.clone();
        for ((_, field), value) in self.sampler.entry().fields.iter().zip(&self.values) {
            match (field, *value) {
                (Number(at), Value::Number(x)) => *at(&mut params) = x,
                (Count(at), Value::Count(n)) | (Window(at), Value::Window(n)) => *at(&mut params) = n,
                // The parser makes no other pairs.
                _ => {}
            }
        }
        params
    }
}

impl From<Sampler> for Step {
    fn from(sampler: Sampler) -> Self {
        Self { sampler, values: Vec::new() }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sampler.name())?;
        self.values.iter().try_for_each(|value| write!(f, ":{value}"))
    }
}

impl FromStr for Step {
    type Err = SampleError;

    fn from_str(text: &str) -> Result<Self, SampleError> {
        let mut parts = text.split(':');
        let sampler: Sampler = parts.next().unwrap_or_default().parse()?;
        let entry = sampler.entry();
        let mut values = Vec::new();
        for part in parts {
            let Some((name, field)) = entry.fields.get(values.len()) else {
                return Err(SampleError::TooManyValues {
                    sampler: entry.name,
                    takes: match entry.fields {
                        [] => "none".to_owned(),
                        fields => fields.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(":"),
                    },
                });
            };
            values.push(field.parse(entry.name, name, part.trim())?);
        }
        Ok(Self { sampler, values })
    }
}

impl Field {
    fn parse(self, sampler: &'static str, name: &'static str, text: &str) -> Result<Value, SampleError> {
        let (value, expected) = match self {
            Number(_) => (text.parse().ok().filter(|x: &f32| x.is_finite()).map(Value::Number), "a number"),
            Count(_) => (text.parse().ok().map(Value::Count), "a whole number from 0"),
            Window(_) if text == "-1" => (Some(Value::Window(usize::MAX)), ""),
            Window(_) => (text.parse().ok().map(Value::Window), "a whole number from 0, or -1 for all"),
        };
        value.ok_or_else(|| SampleError::Value { sampler, name, value: text.to_owned(), expected })
    }
}

/// The stages of a chain in order, as text gives them.
///
/// ```
/// use ogive_sampler::{SamplerParams, Samplers};
///
/// let samplers: Samplers = "top_k:40,min-p:0.05,temp".parse()?;
/// assert_eq!(samplers.to_string(), "top_k:40,min_p:0.05,temperature");
///
/// let chain = SamplerParams { samplers, temperature: 0.7, ..SamplerParams::default() }.build()?;
/// assert_eq!(chain.to_string(), "top_k:40,min_p:0.05,temperature:0.7");
///
/// let error = "top_k:40,mim_p:0.05".parse::<Samplers>().unwrap_err();
/// assert!(error.to_string().contains("did you mean min_p?"));
/// # Ok::<(), ogive_sampler::SampleError>(())
/// ```
///
/// No stages at all, an empty text, draws from the model's own distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Samplers(Vec<Step>);

impl Samplers {
    /// In order.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }
}

impl Default for Samplers {
    /// llama.cpp's order: penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature; and
    /// adaptive_p, which does nothing unless it is given a target.
    fn default() -> Self {
        use Sampler as S;
        let order = [
            S::Penalties,
            S::Dry,
            S::TopNSigma,
            S::TopK,
            S::Typical,
            S::TopP,
            S::MinP,
            S::Xtc,
            S::Temperature,
            S::AdaptiveP,
        ];
        order.into_iter().map(Step::from).collect()
    }
}

impl<S: Into<Step>> FromIterator<S> for Samplers {
    fn from_iter<I: IntoIterator<Item = S>>(steps: I) -> Self {
        Self(steps.into_iter().map(Into::into).collect())
    }
}

impl fmt::Display for Samplers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            write!(f, "{}{step}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Samplers {
    type Err = SampleError;

    fn from_str(text: &str) -> Result<Self, SampleError> {
        if text.trim().is_empty() {
            return Ok(Self(Vec::new()));
        }
        let mut steps = Vec::new();
        for (i, part) in text.split([',', ';']).enumerate() {
            if part.trim().is_empty() {
                return Err(SampleError::EmptyStage { place: i + 1 });
            }
            steps.push(part.parse()?);
        }
        Ok(Self(steps))
    }
}
