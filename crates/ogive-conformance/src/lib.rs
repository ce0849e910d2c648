//! An oracle backend and the cases every Ogive backend must pass.

mod oracle;

pub use oracle::Oracle;
