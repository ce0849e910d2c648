//! One error type for everything that computes or loads: what was being done, what was wrong, and what to do.
//!
//! One type rather than one per crate, because an error from a backend passes through layers, model and engine, and
//! each would only wrap it again. Crates that know no machine (files, tokenizer, sampler) have their own.

use crate::Shape;

/// A result whose error is [`Error`] unless said otherwise.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What failed: the operator, weight or key, and what was wrong with it.
#[derive(Debug, thiserror::Error)]
#[error("{}: {}", .0.at, .0.what())]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    at: String,
    kind: ErrorKind,
    /// Whether `at` says what helps.
    advised: bool,
}

impl Inner {
    fn what(&self) -> String {
        match self.kind {
            ErrorKind::Memory { needed, available } if self.advised => memory(needed, available),
            ref kind => kind.to_string(),
        }
    }
}

/// What is too large for what.
fn memory(needed: u64, available: u64) -> String {
    format!("needs {needed} bytes of memory, of which {available} are free")
}

/// And what helps in general. What is free and not given is no question of sizes.
fn advice(needed: u64, available: u64) -> &'static str {
    if needed > available {
        "; use a smaller context, cache or model"
    } else {
        ", but not in one piece, or not for long; close other programs that use it, or try again"
    }
}

/// What was wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Two shapes that had to agree do not.
    #[error("shapes {0:?} and {1:?} do not fit")]
    Shape(Shape, Shape),
    /// The tensor, weight, cache or plan was made by another backend.
    #[error("the handle belongs to another backend; upload it to the one that uses it")]
    Foreign,
    /// This cannot be done here.
    #[error("{0}")]
    Unsupported(String),
    /// No weight, configuration key or architecture has this name.
    #[error("there is nothing of this name{0}")]
    Missing(String),
    /// A file, configuration or argument contradicts itself or the rest.
    #[error("{0}")]
    Invalid(String),
    /// The cache has no place left.
    #[error("the cache is full: {0}")]
    CacheFull(String),
    /// There is not enough memory.
    #[error("{}{}", memory(*needed, *available), advice(*needed, *available))]
    Memory {
        /// Bytes asked for.
        needed: u64,
        /// Bytes that could be had.
        available: u64,
    },
    /// The device failed in the middle of its work, as the backend's error says. Whatever is on it is lost, and so is what this process
    /// does on it from now on: a program that serves others ends, and is started anew.
    #[error(transparent)]
    DeviceLost(Box<dyn std::error::Error + Send + Sync>),
    /// Values were asked for while a step was being recorded, so the step cannot be replayed.
    #[error("values cannot be read while a step is recorded")]
    Recording,
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// An error of another crate.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// An error of this `kind` while doing `at`.
    pub fn new(at: impl Into<String>, kind: ErrorKind) -> Self {
        Self(Box::new(Inner { at: at.into(), kind, advised: false }))
    }
    /// Two shapes disagree in operator `at`.
    pub fn shape(at: &str, a: Shape, b: Shape) -> Self {
        Self::new(at, ErrorKind::Shape(a, b))
    }
    /// `at` was handed a handle from another backend.
    pub fn foreign(at: &str) -> Self {
        Self::new(at, ErrorKind::Foreign)
    }
    /// Nothing is called `name`.
    pub fn missing(name: &str) -> Self {
        Self::new(name, ErrorKind::Missing(String::new()))
    }
    /// Nothing is called `name`; `known` says what there is instead.
    pub fn missing_among(name: &str, known: &str) -> Self {
        Self::new(name, ErrorKind::Missing(format!("; known are {known}")))
    }
    /// `at` cannot be done, for the reason `why`.
    pub fn unsupported(at: &str, why: impl Into<String>) -> Self {
        Self::new(at, ErrorKind::Unsupported(why.into()))
    }
    /// What was given for `at` is wrong, as `why` says.
    pub fn invalid(at: &str, why: impl Into<String>) -> Self {
        Self::new(at, ErrorKind::Invalid(why.into()))
    }
    /// The cache is full, as `why` says.
    pub fn cache_full(why: impl Into<String>) -> Self {
        Self::new("cache", ErrorKind::CacheFull(why.into()))
    }
    /// Another crate's error while doing `at`.
    pub fn other(at: &str, e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::new(at, ErrorKind::Other(e.into()))
    }
    /// The device failed while doing `at`, as the backend's error `e` says, and cannot be used any more.
    pub fn device_lost(at: &str, e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::new(at, ErrorKind::DeviceLost(e.into()))
    }
    /// The same error, met while doing `what`.
    #[must_use]
    pub fn within(mut self, what: &str) -> Self {
        self.0.at = if self.0.at.is_empty() { what.into() } else { format!("{what}: {}", self.0.at) };
        self
    }
    /// The same error, met while doing `what`, which says what helps: the general advice of its kind is left out.
    #[must_use]
    pub fn advised(mut self, what: &str) -> Self {
        self.0.advised = true;
        self.within(what)
    }

    /// What was wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }
    /// Whether the error says that something does not exist, which some callers take for an answer.
    pub fn is_missing(&self) -> bool {
        matches!(self.kind(), ErrorKind::Missing(_))
    }
    /// Whether the device is lost to this process, so that nothing helps but to start a new one.
    pub fn is_device_lost(&self) -> bool {
        matches!(self.kind(), ErrorKind::DeviceLost(_))
    }
}

/// Turns "there is none" into `None`; other errors stay errors.
///
/// # Errors
/// That of `found`, unless it says that something [is missing](Error::is_missing).
pub fn optional<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(t) => Ok(Some(t)),
        Err(e) if e.is_missing() => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_where_and_what() {
        let e = Error::shape("add", [2, 3].into(), [4].into()).within("layer 0");
        assert_eq!(e.to_string(), "layer 0: add: shapes [2, 3] and [4] do not fit");
        let e = Error::missing_among("Foo", "Bar, Baz");
        assert_eq!(e.to_string(), "Foo: there is nothing of this name; known are Bar, Baz");
        assert!(optional::<()>(Err(e)).unwrap().is_none());
        assert!(optional::<()>(Err(Error::foreign("add"))).is_err());
    }

    #[test]
    fn advice_fits_the_figures_and_is_given_once() {
        let of = |needed, available| Error::new("linear", ErrorKind::Memory { needed, available });
        let told = "linear: needs 9 bytes of memory, of which 3 are free";
        assert_eq!(of(9, 3).to_string(), format!("{told}; use a smaller context, cache or model"));
        assert_eq!(of(9, 3).advised("a (b would fit)").to_string(), format!("a (b would fit): {told}"));
        // Nothing smaller helps where there is enough.
        let text = of(3, 3).to_string();
        assert!(text.contains("close other programs") && !text.contains("smaller"), "{text}");
        assert_eq!(Error::foreign("add").advised("x").to_string(), Error::foreign("x: add").to_string());
    }
}
