//! How long the first kernels take, in processes of their own: with no kernel compiled before, and with all of them on disk.

use crate::report::Start;
use crate::{Report, Result, Run};
use ogive::backend::Backend;
use ogive::engine::{Limits, Request};
use ogive::{Model, Options};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

/// What a child says.
#[derive(Debug, Serialize, Deserialize)]
struct Said {
    backend: f64,
    first: f64,
    again: f64,
}

pub(crate) fn measure(run: &Run, report: &mut Report) -> Result<()> {
    let name = if run.smoke { "tiny:q4_k_m" } else { "llama-3.2-1b:q4_k_m" };
    let model = run.model(name)?;
    let kernels = tempfile::tempdir()?;
    for cache in ["cold", "cached"] {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--first").arg(&model).args(["--device", &run.device.to_string()]);
        command.env("OGIVE_CUDA_CACHE", kernels.path()).stdin(Stdio::null()).stderr(Stdio::inherit());
        // The driver keeps what it compiles itself too.
        let out = command.env("CUDA_CACHE_DISABLE", "1").output()?;
        if !out.status.success() {
            return Err(format!("a start with {cache} kernels ended with {}", out.status).into());
        }
        let said: Said = serde_json::from_slice(&out.stdout)?;
        report.starts.push(Start {
            model: name.into(),
            cache,
            backend_seconds: said.backend,
            kernels_seconds: (said.first - said.again).max(0.0),
        });
    }
    Ok(())
}

/// A prompt of two tokens and two drawn ones: every kind of step that a session has.
fn steps(model: &Model) -> Result<f64> {
    let begin = Instant::now();
    let mut engine = model.engine(Limits::new(64))?;
    for event in engine.run(Request::new([1, 2], 2))? {
        event?;
    }
    Ok(begin.elapsed().as_secs_f64())
}

/// In the child.
#[allow(clippy::print_stdout)] // what the parent reads
pub(crate) fn child(model: &Path, device: usize) -> Result<()> {
    let begin = Instant::now();
    let cuda: Arc<dyn Backend> = Arc::new(crate::backend(device, "auto", false)?);
    let backend = begin.elapsed().as_secs_f64();
    let model = Options::new().backend(cuda).open(model)?;
    let (first, _) = (steps(&model)?, steps(&model)?);
    println!("{}", serde_json::to_string(&Said { backend, first, again: steps(&model)? })?);
    Ok(())
}
