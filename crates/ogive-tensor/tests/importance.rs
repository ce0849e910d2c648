//! Packing by importance: what counts more comes back more exactly, and what is said of it cannot do harm.
//!
//! How far each format is off is held to bounds and not to bytes, so that a better search need not change this file.

mod common;

use common::Numbers;
use ogive_tensor::{FORMATS, Format, Q4_K, format_by_name};

const COLS: usize = 512;

/// Those with something to choose.
fn searched() -> impl Iterator<Item = &'static Format> {
    let fixed = ["q8_0", "tq1_0", "tq2_0"];
    FORMATS.iter().copied().filter(move |f| f.block_len > 1 && f.encode.is_some() && !fixed.contains(&f.name))
}

fn packed(format: &Format, values: &[f32], importance: &[f32]) -> Vec<u8> {
    let mut out = vec![0xAA; format.row_bytes(values.len())];
    format.encode_row_by(values, importance, &mut out).unwrap();
    out
}

fn there_and_back(format: &Format, values: &[f32], importance: &[f32]) -> Vec<f32> {
    let mut out = vec![f32::NAN; values.len()];
    format.decode_row(&packed(format, values, importance), &mut out);
    out
}

/// Root of the weighed squares of what is left, as a part of those of what there was.
fn error(a: &[f32], b: &[f32], importance: &[f32]) -> f64 {
    let (mut left, mut whole) = (0.0, 0.0);
    for ((a, b), w) in a.iter().zip(b).zip(importance.iter().map(|w| f64::from(*w)).cycle()) {
        left += w * (f64::from(*a) - f64::from(*b)).powi(2);
        whole += w * f64::from(*b).powi(2);
    }
    (left / whole).sqrt()
}

/// Spread over some two powers of ten, as those are that a model's activations give.
fn importances(numbers: &mut Numbers) -> Vec<f32> {
    (0..COLS).map(|_| (1.2 * numbers.bell()).exp()).collect()
}

/// About normal numbers, and such with some far from the others.
fn rows(numbers: &mut Numbers) -> [Vec<f32>; 2] {
    let bell = (0..4 * COLS).map(|_| numbers.bell() * 0.02).collect();
    [bell, (0..4 * COLS).map(|_| numbers.bell() * numbers.bell().exp() * 0.02).collect()]
}

/// What a format may be off by: what it is, for normal numbers all alike, and a hundredth more.
fn bound(format: &Format) -> f64 {
    match format.name {
        "q4_0" => 0.087,
        "q4_1" => 0.080,
        "q5_0" => 0.044,
        "q5_1" => 0.0395,
        "q2_k" => 0.268,
        "q3_k" => 0.146,
        "q4_k" => 0.072,
        "q5_k" => 0.036,
        "q6_k" => 0.018,
        "iq4_nl" | "iq4_xs" => 0.076,
        "mxfp4" => 0.113,
        "nvfp4" => 0.090,
        other => panic!("a bound for {other} is missing here"),
    }
}

#[test]
fn what_counts_more_comes_back_more_exactly() {
    let mut numbers = Numbers(77);
    let importance = importances(&mut numbers);
    let [bell, wild] = rows(&mut numbers);
    for format in searched() {
        for x in [&bell, &wild] {
            let (mut alike, mut by) = (Vec::new(), Vec::new());
            for x in x.chunks_exact(COLS) {
                alike.extend(there_and_back(format, x, &[]));
                by.extend(there_and_back(format, x, &importance));
            }
            let (alike, by) =
                ((error(&alike, x, &[1.0]), error(&alike, x, &importance)), error(&by, x, &importance));
            // MXFP4 has little to choose.
            let gain = if format.name == "mxfp4" { 1.0 } else { 0.99 };
            assert!(by < alike.1 * gain, "{format:?}: {by} by importance, {} without", alike.1);
            assert!(x != &bell || alike.0 < bound(format), "{format:?}: off by {}", alike.0);
        }
    }
}

/// Bytes depend on ratios alone, however large the numbers, and none or all alike is the same, but where ggml's bytes are kept.
#[test]
fn only_ratios_count() {
    let mut numbers = Numbers(78);
    let importance = importances(&mut numbers);
    let x: Vec<f32> = (0..COLS).map(|_| numbers.bell()).collect();
    for format in searched() {
        let want = packed(format, &x, &importance);
        for power in [-120, -30, 100] {
            let times: Vec<f32> = importance.iter().map(|w| w * 2_f32.powi(power)).collect();
            assert!(packed(format, &x, &times) == want, "{format:?} by 2^{power}");
        }
        let none = packed(format, &x, &[]);
        assert!(packed(format, &x, &[0.0; COLS]) == none, "{format:?}");
        let older = ["q4_0", "q4_1", "q5_0", "q5_1"].contains(&format.name);
        assert!(older || packed(format, &x, &[0.3; COLS]) == none, "{format:?}");
    }
}

/// Whatever is important, and whatever the numbers are: something comes back, and of finite numbers finite ones.
#[test]
fn nothing_is_spoiled_by_what_counts() {
    let mut numbers = Numbers(79);
    for format in searched() {
        let mut x: Vec<f32> = (0..COLS).map(|_| numbers.bell()).collect();
        x[300] = 1.0;
        let alike = (there_and_back(format, &x, &[])[300] - 1.0).abs();
        let far = x.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
        let mut one = vec![0.0; COLS];
        one[300] = 1.0;
        let ends: Vec<f32> = (0..COLS).map(|i| [f32::MAX, 1e-45, 0.0, 1.0][i % 4]).collect();
        for importance in [&one, &ends] {
            let back = there_and_back(format, &x, importance);
            assert!(back.iter().all(|v| v.abs() < 3.0 * far), "{format:?}");
            assert!(importance == &ends || (back[300] - 1.0).abs() <= alike, "{format:?}: {}", back[300]);
            for wild in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN_POSITIVE, 1e-45] {
                let mut x = x.clone();
                x[300] = wild;
                let back = there_and_back(format, &x, importance);
                assert!(back[..256].iter().all(|v| v.is_finite()), "{format:?} with {wild}");
            }
        }
    }
}

#[test]
fn false_importances_are_refused() {
    let mut out = vec![0; Q4_K.row_bytes(COLS)];
    for (len, false_one) in
        [(COLS - 1, 1.0), (1, 1.0), (COLS + 256, 1.0), (COLS, -0.5), (COLS, f32::NAN), (COLS, f32::INFINITY)]
    {
        let mut importance = vec![1.0; len];
        importance[len - 1] = false_one;
        let e = Q4_K.encode_row_by(&[1.0; COLS], &importance, &mut out).unwrap_err().to_string();
        assert!(e.starts_with("q4_k: ") && e.contains("importances of 512 elements"), "{e}");
    }
    let f32s = format_by_name("f32").unwrap();
    assert_eq!(packed(f32s, &[1.0, 2.0], &[0.0, 3.0]), packed(f32s, &[1.0, 2.0], &[]));
}
