//! What a backend promises, so that the suite knows what to hold it to.

use ogive_backend::tensor::{BF16, F16, F32, FORMATS, Format, Q8_0};

/// What is tested and how closely. [`new`](Self::new) is right for a backend that computes in single precision.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Largest relative error of operators that only move values. 0, the default, demands the same bits; a backend that
    /// keeps activations in half precision needs more.
    pub moved: f32,
    /// Largest error of single precision arithmetic, relative to the root mean square of the expected values.
    pub exact: f32,
    /// Largest normalised mean square error of products with bf16 activations.
    pub bf16: f32,
    /// Largest normalised mean square error of products with int8 activations, and of q8_0 caches.
    pub int8: f32,
    /// Whether products with packed and bf16 weights are held to `exact`. `None`: as the backend's `facts` say.
    pub exact_weights: Option<bool>,
    /// Weight formats to test; all of `ogive-tensor`'s by default. A stranger's format is always tested.
    pub formats: Vec<&'static Format>,
    /// Element types of the cache to test: f32, f16, bf16 and q8_0 by default.
    pub elements: Vec<&'static Format>,
    /// Whether the backend promises that a row's result is bit for bit the same, whatever else is in the step and
    /// however a prompt is cut. Otherwise those cases are skipped, visibly.
    pub bit_exact_batching: bool,
    /// Products of many rows that take more multiplications are left out, visibly: for machines that are played by a program. By default
    /// none is.
    pub largest: usize,
    /// Run only the cases whose name contains one of these; all, if there are none.
    pub filter: Vec<String>,
    /// Where random inputs start. Equal seeds, equal inputs.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            moved: 0.0,
            exact: 2e-5,
            bf16: 2e-5,
            int8: 5e-4,
            exact_weights: None,
            formats: FORMATS.to_vec(),
            elements: vec![&F32, &F16, &BF16, &Q8_0],
            bit_exact_batching: false,
            largest: usize::MAX,
            filter: Vec::new(),
            seed: 1,
        }
    }
}

impl Options {
    /// Single precision, all formats, no promise of equal bits.
    pub fn new() -> Self {
        Self::default()
    }
    /// Holds the backend to equal bits whatever the batch.
    #[must_use]
    pub fn bit_exact_batching(self) -> Self {
        Self { bit_exact_batching: true, ..self }
    }
    /// Leaves out products of many rows that take more multiplications.
    #[must_use]
    pub fn largest(self, largest: usize) -> Self {
        Self { largest, ..self }
    }
    /// Runs only cases whose name contains `part`, or one of the parts given before.
    #[must_use]
    pub fn filter(mut self, part: impl Into<String>) -> Self {
        self.filter.push(part.into());
        self
    }
    /// Other random inputs.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }
    /// Other weight formats.
    #[must_use]
    pub fn formats(self, formats: Vec<&'static Format>) -> Self {
        Self { formats, ..self }
    }
    /// Other element types of the cache.
    #[must_use]
    pub fn elements(self, elements: Vec<&'static Format>) -> Self {
        Self { elements, ..self }
    }
    /// Another bound on operators that only move values.
    #[must_use]
    pub fn moved(self, moved: f32) -> Self {
        Self { moved, ..self }
    }
    /// Another bound on single precision arithmetic.
    #[must_use]
    pub fn exact(self, exact: f32) -> Self {
        Self { exact, ..self }
    }
    /// Other bounds on products with bf16 and int8 activations.
    #[must_use]
    pub fn rounded(self, bf16: f32, int8: f32) -> Self {
        Self { bf16, int8, ..self }
    }
    /// Whether products with packed and bf16 weights are held to the bound of single precision.
    #[must_use]
    pub fn exact_weights(self, exact: bool) -> Self {
        Self { exact_weights: Some(exact), ..self }
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.filter.is_empty() || self.filter.iter().any(|part| name.contains(part.as_str()))
    }
}
