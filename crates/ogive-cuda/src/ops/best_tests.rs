//! Rows of one slice and of several against the host's choice, with equals, infinities and what is no number.

#![allow(clippy::print_stdout)]

use super::*;
use crate::CudaBackend;
use crate::launch::tests::on;
use ogive_backend::{Backend, best_of};
use ptx_emulator_launcher::{Nvrtc, test_name};

/// Few values, so that many are equal.
fn row(seed: usize, cols: usize) -> Vec<f32> {
    let value = |i: usize| match (i * 2_654_435_761 + seed * 97) >> 7 & 1023 {
        0 => f32::NAN,
        1 => f32::INFINITY,
        2 => f32::NEG_INFINITY,
        3 => -0.0,
        n => (n % 400) as f32 - 200.0,
    };
    (0..cols).map(value).collect()
}

fn choices() {
    let b = CudaBackend::new().unwrap();
    // The last: more is left of its slices than one slice holds.
    for (n, cols, k) in [
        (3, 1, 1),
        (2, 300, 64),
        (2, SLICE, 1),
        (3, SLICE + 5, 64),
        (2, 3 * SLICE, 7),
        (1, 9 * SLICE + 77, 40),
        (1, 65 * SLICE + 3, 64),
    ] {
        let rows: Vec<Vec<f32>> = (0..n).map(|seed| row(seed, cols)).collect();
        let x = b.upload(&rows.concat(), [n, cols].into()).unwrap();
        let bits = |found: &[(u32, f32)]| found.iter().map(|(i, v)| (*i, v.to_bits())).collect::<Vec<_>>();
        for (got, row) in b.best(&x, k).unwrap().iter().zip(&rows) {
            assert_eq!(bits(got), bits(&best_of(row, k)), "{k} of {cols}");
        }
        let kept = b.top_k(x.clone(), k).unwrap();
        for (got, row) in b.best(&kept, k).unwrap().iter().zip(&rows) {
            assert_eq!(bits(got), bits(&best_of(row, k)), "{k} kept of {cols}");
        }
    }
    // All are least: the first ones.
    let x = b.upload(&vec![f32::NAN; SLICE + 9], [1, SLICE + 9].into()).unwrap();
    let found = b.best(&x, 3).unwrap();
    assert_eq!(found[0].iter().map(|(i, _)| *i).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn slices_give_what_the_host_chooses() {
    on(test_name!(), Nvrtc::V12, "sm_80", choices);
}
