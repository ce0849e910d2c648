//! What the device gives at best: copies, reads, cuBLAS's products.
//!
//! The largest of several ways counts, as no operator may be blamed for what one of them leaves.

use crate::clock::Clock;
use crate::figure::{Ceilings, Figure};
use crate::{Report, Result, Run};
use ogive::cuda::CudaBackend;
use ogive::cuda::measure::Stretch;

/// A way to move memory: how much counts for each byte, and its call.
type Way = (&'static str, f64, fn(&Stretch<'_>) -> ogive::cuda::Result<()>);

const WAYS: [Way; 3] = [
    ("copy, cuMemcpyDtoD", 2.0, |m| m.copy()),
    ("copy, our kernel", 2.0, |m| m.copy_by_kernel()),
    ("read, our kernel", 1.0, |m| m.read()),
];

/// Sides of the square products.
const SIDES: [usize; 3] = [4096, 8192, 16384];

pub(crate) fn measure(run: &Run, report: &mut Report) -> Result<()> {
    report.ceilings = Ceilings { bandwidth: copies(run, report)?, rate: 0.0 };
    match run.cuda.blas() {
        Ok(_) => report.ceilings.rate = products(run, report, &run.cuda)?,
        Err(why) => report.note(format!("no rate of matrix products was measured: {why}")),
    }
    Ok(())
}

fn copies(run: &Run, report: &mut Report) -> Result<f64> {
    let free = run.cuda.info().memory / 4;
    let size = run.pick(1 << 30, 1 << 16).min(usize::try_from(free)?);
    let memory = run.cuda.stretch(size)?;
    let mut best = 0f64;
    for (name, counts, go) in WAYS {
        let times = Clock::new(run).device(1, || Ok(go(&memory)?))?;
        let figure =
            Figure::new(name, format!("{} bytes", memory.bytes()), times, [counts * size as f64, 0.0]);
        // Reads move more than copies do; what the goals name is the copy.
        if counts > 1.0 {
            best = best.max(figure.gigabytes_per_second * 1e9);
        }
        report.add("ceilings", figure);
    }
    if !memory.is_copied()? {
        report.note("the copies did not copy: do not trust this run".into());
    }
    Ok(best)
}

fn products(run: &Run, report: &mut Report, cuda: &CudaBackend) -> Result<f64> {
    let blas = cuda.blas()?;
    let [major, minor, patch] = blas.version();
    report.note(format!("cuBLAS {major}.{minor}.{patch} ({})", blas.path().display()));
    let mut best = 0f64;
    let shapes = SIDES.map(|n| [n; 3]).into_iter().chain([[2048, 14336, 4096], [512, 14336, 4096]]);
    let shapes: Vec<[usize; 3]> = if run.smoke { vec![[16, 32, 16]] } else { shapes.collect() };
    for [rows, cols, inner] in shapes {
        let product = blas.product(rows, cols, inner)?;
        let times = Clock::new(run).device(1, || Ok(product.compute()?))?;
        let bytes = 2.0 * (rows * inner + cols * inner + rows * cols) as f64;
        let case = format!("[{rows}, {inner}] · [{cols}, {inner}]ᵀ");
        let figure = Figure::new("cuBLAS bf16", case, times, [bytes, product.operations()]);
        best = best.max(figure.teraflops * 1e12);
        report.add("ceilings", figure);
    }
    Ok(best)
}
