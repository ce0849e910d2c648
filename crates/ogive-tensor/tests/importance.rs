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
    let bell = (0..16 * COLS).map(|_| numbers.bell() * 0.02).collect();
    [bell, (0..16 * COLS).map(|_| numbers.bell() * numbers.bell().exp() * 0.02).collect()]
}

/// What formats are off by, as parts of what there is: for each of [`rows`] Ogive's and ggml's without importances (where ggml wants some, all 1),
/// and Ogive's and ggml's by [`importances`], which then weigh the squares. ggml's are what its `quantize_*` of llama.cpp (as `llama-cpp-sys-2`
/// 0.1.161 has it) make of the same numbers.
static OFF_BY: [(&str, [f64; 4], [f64; 4]); 20] = [
    ("q4_0", [0.0855, 0.0855, 0.0750, 0.0761], [0.1315, 0.1315, 0.1239, 0.1279]),
    ("q4_1", [0.0788, 0.0788, 0.0625, 0.0629], [0.1120, 0.1120, 0.0888, 0.0908]),
    ("q5_0", [0.0427, 0.0427, 0.0377, 0.0380], [0.0716, 0.0716, 0.0697, 0.0706]),
    ("q5_1", [0.0383, 0.0383, 0.0299, 0.0300], [0.0528, 0.0528, 0.0433, 0.0436]),
    ("q2_k", [0.2630, 0.2932, 0.2215, 0.2248], [0.2847, 0.3773, 0.2542, 0.2746]),
    ("q3_k", [0.1424, 0.1493, 0.1313, 0.1323], [0.1792, 0.1846, 0.1713, 0.1738]),
    ("q4_k", [0.0708, 0.0715, 0.0634, 0.0636], [0.0987, 0.1004, 0.0907, 0.0937]),
    ("q5_k", [0.0351, 0.0361, 0.0316, 0.0322], [0.0498, 0.0516, 0.0463, 0.0483]),
    ("q6_k", [0.0172, 0.0177, 0.0156, 0.0156], [0.0278, 0.0281, 0.0264, 0.0265]),
    ("iq4_nl", [0.0732, 0.0755, 0.0665, 0.0682], [0.1015, 0.1057, 0.0971, 0.0991]),
    ("iq4_xs", [0.0738, 0.0760, 0.0673, 0.0691], [0.1027, 0.1070, 0.0986, 0.1010]),
    ("mxfp4", [0.1104, 0.1129, 0.1102, 0.1129], [0.1456, 0.1512, 0.1435, 0.1513]),
    ("nvfp4", [0.0892, 0.1039, 0.0818, 0.1056], [0.0832, 0.0890, 0.0781, 0.0894]),
    ("iq1_s", [0.4418, 0.4823, 0.3896, 0.4294], [0.5374, 0.6150, 0.4704, 0.5518]),
    ("iq1_m", [0.4094, 0.4465, 0.3432, 0.3764], [0.4356, 0.4894, 0.3744, 0.4320]),
    ("iq2_xxs", [0.3262, 0.3417, 0.2626, 0.2896], [0.4664, 0.5656, 0.3998, 0.4914]),
    ("iq2_xs", [0.2843, 0.2978, 0.2294, 0.2533], [0.3887, 0.4518, 0.3375, 0.4104]),
    ("iq2_s", [0.2371, 0.2467, 0.2028, 0.2229], [0.3815, 0.4290, 0.3330, 0.3904]),
    ("iq3_xxs", [0.1734, 0.2090, 0.1362, 0.1477], [0.2307, 0.3318, 0.1963, 0.2166]),
    ("iq3_s", [0.1283, 0.1653, 0.1052, 0.1160], [0.1923, 0.2608, 0.1741, 0.1897]),
];

#[test]
fn what_counts_more_comes_back_more_exactly_and_nothing_worse_than_in_ggml() {
    let mut numbers = Numbers(77);
    let importance = importances(&mut numbers);
    let rows = rows(&mut numbers);
    for format in searched() {
        let (_, bell, wild) = OFF_BY.iter().find(|(name, ..)| *name == format.name).unwrap();
        for (x, [ours, theirs, ours_by, theirs_by]) in rows.iter().zip([*bell, *wild]) {
            let (mut alike, mut by) = (Vec::new(), Vec::new());
            for x in x.chunks_exact(COLS) {
                alike.extend(there_and_back(format, x, &[]));
                by.extend(there_and_back(format, x, &importance));
            }
            // MXFP4 has little to choose.
            let (off, gain) = (error(&by, x, &importance), if format.name == "mxfp4" { 1.0 } else { 0.99 });
            assert!(off < error(&alike, x, &importance) * gain, "{format:?}: {off} by importance");
            // Half of the last digit, and what other machines' exponentials may change.
            for (off, ours, theirs) in [(error(&alike, x, &[1.0]), ours, theirs), (off, ours_by, theirs_by)] {
                assert!(
                    off < theirs + 6e-5 && off < ours * 1.005 + 6e-5,
                    "{format:?}: {off}, once {ours}, ggml {theirs}"
                );
            }
        }
    }
}

/// Bytes depend on ratios alone, however large the numbers, and none or all alike is the same.
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
        assert!(packed(format, &x, &[0.3; COLS]) == none, "{format:?}");
    }
}

/// Columns that count a thousand to a hundred million times what others do, or alone: sums of such numbers are of the one and lose the others.
/// Nothing is worse by what counts than it is without, and what counts little is not given up.
#[test]
fn one_column_that_counts_for_all_does_no_harm() {
    let mut numbers = Numbers(80);
    let x: Vec<f32> = (0..8 * COLS).map(|_| numbers.bell() * 0.02).collect();
    for format in searched() {
        for ratio in [1e-3_f32, 1e-5, 1e-6, 1e-8, 0.0] {
            let importance: Vec<f32> = (0..COLS).map(|i| if i % 97 == 13 { 1.0 } else { ratio }).collect();
            let (mut alike, mut by) = (Vec::new(), Vec::new());
            for x in x.chunks_exact(COLS) {
                alike.extend(there_and_back(format, x, &[]));
                by.extend(there_and_back(format, x, &importance));
            }
            let off = |back: &[f32], w: &[f32]| error(back, &x, w);
            let (with, without) = (off(&by, &importance), off(&alike, &importance));
            let (all, before) = (off(&by, &[1.0]), off(&alike, &[1.0]));
            assert!(with < 1.001 * without, "{format:?}, {ratio}: {with} by importance, {without} without");
            assert!(all < 2.0 * before, "{format:?}, {ratio}: {all} in all, {before} without");
        }
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
