//! A step costs one upload, its plan, and one download, what it is asked for; nothing between them waits for the device.
//!
//! Counted in the emulator's trace of driver calls, between two marks that the test writes there.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use ogive_backend::tensor::{F16, HostWeight, Result};
use ogive_backend::{
    Activation, AttnSpec, Backend, Batch, BlockTable, CacheSpec, Ids, LayerCache, Rope, Weight,
};
use ogive_cuda::CudaBackend;
use ptx_emulator_launcher::{Error, Launcher, test, test_name};

const DIM: usize = 64;

/// One layer of a Llama, and what it is given.
struct Model {
    ws: Vec<Weight>,
    rope: Rope,
    cache: ogive_backend::Cache,
    ones: ogive_backend::tensor::Tensor,
}

impl Model {
    fn new(b: &CudaBackend) -> Result<Self> {
        let values: Vec<f32> = (0..DIM * DIM).map(|i| ((i * 31) % 97) as f32 / 97.0 - 0.5).collect();
        let w = HostWeight::from_f32("w", [1, DIM, DIM], &values)?;
        Ok(Self {
            ws: (0..8).map(|_| b.upload_weight(&w)).collect::<Result<_>>()?,
            rope: Rope::new(vec![0.5; 16]),
            cache: b.new_cache(&CacheSpec::new(vec![LayerCache::full(DIM, DIM)], 4, 8, 2).element(&F16))?,
            ones: b.upload(&[1.0; DIM], [DIM].into())?,
        })
    }

    fn step(&self, b: &CudaBackend, past: usize) -> Result<u32> {
        let [table, q, k, v, out, gate, up, down] = &self.ws[..] else { return Ok(0) };
        let mut batch = Batch::default();
        batch.push(&[7], past, vec![BlockTable { first: 0, blocks: (0..8).collect() }], [0, 1]);
        batch.want_last();
        let plan = b.plan(batch)?;
        let x = b.embed(table, Ids::Tokens, &plan)?;
        let normed = b.rms_norm(&x, &self.ones, 1e-5)?;
        let heads = |w: &Weight| b.linear(&normed, w)?.reshape([1, 2, 32]);
        let (q, k, v) = (heads(q)?, heads(k)?, b.linear(&normed, v)?);
        let spec = AttnSpec::causal(2, 2, 32);
        let y = b.rope_attend(0, q, k, &v, &self.rope, &self.cache, &spec, &plan)?;
        let (x, normed) = b.add_rms_norm(x, &b.linear(&y, out)?, &self.ones, 1e-5)?;
        let y = b.linear(&b.linear_gated(&normed, gate, up, Activation::Silu)?, down)?;
        let (_, normed) = b.add_rms_norm(x, &y, &self.ones, 1e-5)?;
        let logits = b.linear(&b.outputs(&normed, &plan)?, table)?;
        Ok(b.argmax(&logits)?.first().copied().unwrap_or(0))
    }
}

#[test]
fn one_upload_and_one_download() {
    let name = test_name!();
    if test::case().is_some() {
        let b = CudaBackend::new().unwrap();
        let model = Model::new(&b).unwrap();
        // What the first step compiles and takes, the later ones have.
        let warm = (0..2).map(|past| model.step(&b, past).unwrap()).last();
        eprintln!("mark: begin");
        let token = model.step(&b, 2).unwrap();
        eprintln!("mark: end");
        return println!("tokens {warm:?} and {token}");
    }
    let launcher = Launcher::new()
        .set("PTX_EMU_TRACE", "1")
        .set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"));
    if let Err(e @ Error::NoLibrary { .. }) = launcher.environment(&|_| {}) {
        return println!("skipped: {name}: {e}");
    }
    let Some(report) = test::run(name, "trace", &launcher) else { return };
    let report = report.ok();
    let between: Vec<&str> = report
        .stderr
        .lines()
        .skip_while(|line| !line.contains("mark: begin"))
        .take_while(|line| !line.contains("mark: end"))
        .collect();
    let count = |word: &str| between.iter().filter(|line| line.contains(word)).count();
    let calls = ["cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuLaunchKernel"].map(count);
    println!("cuda: uploads, downloads and launches of a step: {calls:?}");
    assert_eq!(calls[..2], [1, 1], "{}", between.join("\n"));
    assert!(calls[2] > 10, "{calls:?}");
    for nothing in
        ["cuMemAlloc", "cuMemHostAlloc", "cuModuleLoadData", "cuModuleGetFunction", "cuEventSynchronize"]
    {
        assert_eq!(count(nothing), 0, "{nothing}");
    }
    // The one wait comes with the download, which comes last.
    assert_eq!(count("Synchronize"), 1, "{}", between.join("\n"));
    let last = between.iter().rev().find(|line| !line.contains("cuCtxSetCurrent"));
    assert!(last.is_some_and(|line| line.contains("cuStreamSynchronize")), "{last:?}");
}
