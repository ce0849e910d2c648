//! An oracle backend and the cases every Ogive backend must pass.
//!
//! [`Oracle`] says what each operator means. [`run`] puts a backend through every case and gives a [`Report`];
//! [`assert_conforms`] is the same for use in a test.

mod oracle;
mod suite;

pub use oracle::Oracle;
pub use suite::{Case, Options, Outcome, Report, Status, assert_conforms, cases, run};
