//! What the libraries tell, on stderr.

use std::io;
use tracing_subscriber::EnvFilter;

/// Shows warnings, and with each `-v` more. The environment variable `OGIVE_LOG` says it finer, by targets and levels, as in
/// `OGIVE_LOG=ogive_engine=trace,ogive::cuda=debug`. A target stands for all that begin so: the module that
/// an event comes from is its target, and a crate's name is that of all its modules. But CUDA's events have the target `ogive::cuda`, those of
/// several devices together (`Split`) `ogive::split`, and each operator that `Trace` sees `ogive::backend`. So `ogive=debug` is all of them.
pub(crate) fn init(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = match std::env::var("OGIVE_LOG") {
        Ok(asked) => EnvFilter::new(asked),
        Err(_) => EnvFilter::new(level),
    };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .without_time()
        .with_ansi(false)
        // By default a line that cannot be written is told of on stderr, which panics.
        .log_internal_errors(false);
    // Fails only where there is one already.
    let _ = subscriber.try_init();
}
