//! A step costs one upload, its plan, and one download, what it is asked for; nothing between them waits for the device. A step that came
//! before is one launch.
//!
//! Counted in the emulator's trace of driver calls, between two marks that the test writes there.
#![allow(clippy::print_stdout, clippy::print_stderr)]

#[path = "common/llama.rs"]
mod llama;

use llama::Model;
use ogive_backend::Backend;
use ogive_backend::tensor::{F16, Format, Q8_0, Result};
use ogive_cuda::{Activations, Builder, CudaBackend};
use ptx_emulator_launcher::{Launcher, test, test_name};

/// The lines of the third of three steps; `None` where there is no emulator.
fn third_step(name: &str, replay: bool, overlap: bool) -> Option<Vec<String>> {
    let kind = if overlap { "sm_90" } else { "sm_80" };
    third_step_of(name, kind, replay, &CudaBackend::builder().overlap(overlap), |b| Model::new(b, 0))
}

/// The same of this model, on a backend of these settings and a device of this kind.
fn third_step_of(
    name: &str,
    kind: &str,
    replay: bool,
    builder: &Builder,
    model: impl FnOnce(&CudaBackend) -> Result<Model>,
) -> Option<Vec<String>> {
    if test::case().is_some() {
        let b = builder.clone().build().unwrap();
        let model = model(&b).unwrap();
        let step = |past| {
            let batch = Model::batch(&[7], past);
            let logits = match replay {
                true => model.replayed_top_k(&b, 1, batch, 1),
                false => model.logits(&b, &b.plan(batch).unwrap()),
            };
            b.argmax(&logits.unwrap()).unwrap()
        };
        // What the first steps compile, take and record, the later ones have.
        let warm = (4..6).map(step).last();
        eprintln!("mark: begin");
        let token = step(6);
        eprintln!("mark: end");
        println!("tokens {warm:?} and {token:?}");
        return None;
    }
    between_marks(name, kind)
}

/// What the test `name` has the driver do between its marks, on a device of this kind.
fn between_marks(name: &str, kind: &str) -> Option<Vec<String>> {
    let launcher = Launcher::new()
        .set("PTX_EMU_TRACE", "1")
        .set("PTX_EMU_DEVICES", kind)
        .set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"));
    let report = test::run(name, "trace", &launcher)?.ok();
    let after = report.stderr.lines().skip_while(|line| !line.contains("mark: begin")).skip(1);
    Some(after.take_while(|line| !line.contains("mark: end")).map(str::to_owned).collect())
}

/// How often each of these calls was made.
fn count<const N: usize>(lines: &[String], calls: [&str; N]) -> [usize; N] {
    calls.map(|call| lines.iter().filter(|line| line.contains(call)).count())
}

/// The calls whose price a step must not pay.
fn takes_and_waits_for_nothing(lines: &[String]) {
    let nothing = ["cuMemAlloc", "cuMemHostAlloc", "cuModule", "cuEventSynchronize", "cuStreamBeginCapture"];
    assert_eq!(count(lines, nothing), [0; 5], "{}", lines.join("\n"));
    // The one wait comes with the download, which comes last.
    assert_eq!(count(lines, ["Synchronize"]), [1], "{}", lines.join("\n"));
    let last = lines.iter().rev().find(|line| !line.contains("cuCtxSetCurrent"));
    assert!(last.is_some_and(|line| line.contains("cuStreamSynchronize")), "{last:?}");
}

#[test]
fn one_upload_and_one_download() {
    let Some(lines) = third_step(test_name!(), false, false) else { return };
    let [up, down, launches] = count(&lines, ["cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuLaunchKernel"]);
    println!("cuda: uploads, downloads and launches of a step: {up}, {down}, {launches}");
    assert_eq!([up, down], [1, 1], "{}", lines.join("\n"));
    assert_eq!(launches, 15, "{}", lines.join("\n"));
    takes_and_waits_for_nothing(&lines);
}

/// What is more than a piece of 4 MiB is copied out piece by piece, while the next one is on its way.
#[test]
fn large_results_come_in_pieces_that_overlap() {
    const LEN: usize = (9 << 20) / 4 + 3;
    if test::case().is_some() {
        let b = CudaBackend::new().unwrap();
        let values: Vec<f32> = (0..LEN).map(|i| i as f32).collect();
        let x = b.upload(&values, [LEN].into()).unwrap();
        eprintln!("mark: begin");
        let got = b.download(&x).unwrap();
        eprintln!("mark: end");
        assert!(got == values, "other values came down");
        return;
    }
    let Some(lines) = between_marks(test_name!(), "sm_80") else { return };
    let calls = ["cuMemcpyDtoHAsync", "cuEventRecord", "cuEventSynchronize", "cuStreamSynchronize"];
    let order: Vec<_> =
        lines.iter().filter_map(|line| calls.iter().find(|call| line.contains(*call))).collect();
    let [copy, mark, wait, end] = calls.each_ref();
    assert_eq!(order, [copy, mark, copy, wait, mark, copy, wait, end], "{}", lines.join("\n"));
}

#[test]
fn a_step_that_came_before_is_one_launch() {
    let Some(lines) = third_step(test_name!(), true, false) else { return };
    is_one_launch(&lines);
}

#[test]
fn so_it_is_with_weights_in_an_order() {
    let model = |b: &CudaBackend| Model::ordered(b, 0, &Q8_0);
    let builder = CudaBackend::builder();
    let Some(lines) = third_step_of(test_name!(), "sm_80", true, &builder, model) else { return };
    is_one_launch(&lines);
}

fn is_one_launch(lines: &[String]) {
    let calls =
        ["cuMemcpyHtoDAsync", "cuGraphLaunch", "cuLaunchKernel", "cuMemcpyDtoDAsync", "cuMemcpyDtoHAsync"];
    let found = count(lines, calls);
    println!("cuda: a replayed step: {calls:?}: {found:?}");
    // The plan, the step with the choice of the token, and that one's way back.
    assert_eq!(found, [1, 1, 0, 0, 1], "{}", lines.join("\n"));
    takes_and_waits_for_nothing(lines);
    let others = lines.iter().filter(|line| !calls.iter().any(|call| line.contains(call)));
    let others: Vec<&String> = others.filter(|l| !l.contains("CtxSetCurrent")).collect();
    assert_eq!(others.len(), 1, "{others:?}");
}

/// Products in integers find what norms and attention left: of seven inputs only those of the gated product and of the head are rounded by a
/// launch of their own, beside what a step in single precision launches.
#[test]
fn what_norms_give_is_rounded_by_them() {
    let builder = CudaBackend::builder().activations(Activations::Int8);
    let model = |b: &CudaBackend| Model::packed(b, 0, &Q8_0);
    let Some(lines) = third_step_of(test_name!(), "sm_80", false, &builder, model) else { return };
    let [launches] = count(&lines, ["cuLaunchKernel"]);
    println!("cuda: launches of a step in integers: {launches}");
    assert_eq!(launches, 15 + 2, "{}", lines.join("\n"));
    takes_and_waits_for_nothing(&lines);
}

/// In blocks that stay products norm and round their inputs, so that nothing else is launched between attention and the next products.
fn is_left_to_products(name: &str, format: &'static Format) {
    let builder = CudaBackend::builder().activations(Activations::Int8).persistent(true);
    let model = |b: &CudaBackend| Model::packed(b, 0, format);
    let Some(lines) = third_step_of(name, "sm_80", false, &builder, model) else { return };
    let [launches] = count(&lines, ["cuLaunchKernel"]);
    println!("cuda: launches of a step in blocks that stay: {launches}");
    assert_eq!(launches, 15 - 2, "{}", lines.join("\n"));
    takes_and_waits_for_nothing(&lines);
}

#[test]
fn what_norms_give_is_left_to_products() {
    is_left_to_products(test_name!(), &Q8_0);
}

#[test]
fn what_norms_give_is_left_to_products_of_halves() {
    is_left_to_products(test_name!(), &F16);
}

/// What weights in an order want is rounded in it: one launch for each of the seven inputs, and none that only moves.
#[test]
fn what_is_ordered_is_rounded_at_once() {
    let builder = CudaBackend::builder().activations(Activations::Int8);
    let model = |b: &CudaBackend| Model::ordered(b, 0, &Q8_0);
    let Some(lines) = third_step_of(test_name!(), "sm_80", false, &builder, model) else { return };
    assert_eq!(count(&lines, ["cuLaunchKernel"]), [15 + 7], "{}", lines.join("\n"));
    takes_and_waits_for_nothing(&lines);
}

#[test]
fn launches_overlap_where_that_is_asked_for() {
    let Some(lines) = third_step(test_name!(), false, true) else { return };
    let [overlapping, all] = count(&lines, ["cuLaunchKernelEx", "cuLaunchKernel"]);
    println!("cuda: {overlapping} of {all} launches overlap");
    assert!(overlapping == all && all > 10, "{}", lines.join("\n"));
    takes_and_waits_for_nothing(&lines);
}
