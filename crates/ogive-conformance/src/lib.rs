//! An oracle backend and the cases every Ogive backend must pass.
//!
//! [`Oracle`] says what each operator means: one thread, plain loops, sums in double precision. [`run`] puts a backend
//! through every case and gives a [`Report`]; [`assert_conforms`] does the same in a test.
//!
//! # For the author of a backend
//!
//! Depend on this crate under `[dev-dependencies]` and write one test:
//!
//! ```
//! use ogive_backend::Backend;
//! use ogive_conformance::{Options, assert_conforms};
//! use std::sync::Arc;
//! # use ogive_conformance::Oracle as MyBackend;
//!
//! let backend: Arc<dyn Backend> = Arc::new(MyBackend);
//! assert_conforms(&backend, &Options::new().filter("activate/"));
//! ```
//!
//! Without the filter it runs some 430 cases, in a few seconds where tests are optimised (`opt-level = 1` will do). All failures are
//! listed at once, each with the check it was in, how many times the limit the error was, and the element that was worst; a panic in
//! the backend is a failure like any other. Inputs depend on nothing but the case's name and the seed, so a case that fails among all fails alone:
//! `Options::new().filter("attend/window").seed(1)`.
//!
//! A good order is that of the names: `upload`, `split`, `add`, `linear/f32`, `embed`, `rope`, `gather_kv`, `attend/`,
//! then what is provided: `linear_gated`, `attend_cache`, `rope_attend`, `moe`. A backend that overrides nothing passes
//! the latter as soon as it passes the former. A new backend can start from the oracle and replace an operator at a time.
//!
//! # What a case compares
//!
//! - A *required* operator: the backend against the oracle, on the same inputs.
//! - A *provided* one: three ways, between the backend with its overrides, the backend without them, and the oracle. So
//!   a report tells a wrong override from a wrong operator below it.
//! - Inputs that an operator takes by value but someone else still holds: they must be as they were.
//! - Wrong calls (`refused`, `foreign-handles`): they must be errors, neither results nor panics.
//! - `bits/`: the backend against itself, bit for bit, in other batches. Only where
//!   [`Options::bit_exact_batching`] says that it promises so; skipped, visibly, otherwise.
//!
//! Rows that belong to no sequence are never compared, nor is what a cache holds before anything was stored.
//!
//! # How close is close
//!
//! [`Options`] has a bound for each kind of arithmetic: values that are only moved, single precision, bf16 and int8
//! activations. Whether products with packed weights are held to single precision is read from the backend's `facts`
//! ([`Facts::exact`](ogive_backend::Facts)) unless [`Options::exact_weights`] says. A backend that keeps activations in
//! half precision raises [`Options::moved`] and [`Options::exact`]; no other backend should need to.

mod oracle;
mod suite;

pub use oracle::Oracle;
pub use suite::{Case, Options, Outcome, Report, Status, assert_conforms, cases, run};
