//! `ogive serve` in a program that was built without it.
//!
//! It is no unknown command, so that whoever read of it learns how to have it, whatever switches were typed behind it.

use crate::args::Context;
use crate::error::{Error, Result};
use std::ffi::OsString;

/// What was typed, which is not looked at.
#[derive(Clone, Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _rest: Vec<OsString>,
}

pub(crate) fn run(_: &Args, _: &Context) -> Result<()> {
    Err(Error::Usage("this build of Ogive has no server; build it with one: cargo install --path crates/ogive-cli --features server".into()))
}
