//! Numbers for tests, and how near they must be.

use half::{bf16, f16};

/// A stream of numbers that is the same everywhere (xorshift).
#[derive(Clone, Debug)]
pub(crate) struct Random(u32);

impl Random {
    pub(crate) fn new(seed: u32) -> Self {
        Self(seed.wrapping_mul(2_654_435_761).max(1))
    }

    pub(crate) fn word(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }

    /// Below `end`.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        self.word() % end
    }

    /// `len` numbers from -1 to 1.
    pub(crate) fn floats(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| (f64::from(self.word()) / f64::from(u32::MAX) * 2.0 - 1.0) as f32).collect()
    }

    /// `len` small integers from `-127` to `127`.
    pub(crate) fn bytes(&mut self, len: usize) -> Vec<i8> {
        (0..len).map(|_| i8::try_from(i64::from(self.below(255)) - 127).unwrap()).collect()
    }
}

/// Rounded to half precision: what goes up.
pub(crate) fn halves(values: &[f32]) -> Vec<u16> {
    values.iter().map(|v| f16::from_f32(*v).to_bits()).collect()
}

/// Half precision, widened.
pub(crate) fn halves_to_f32(bits: &[u16]) -> Vec<f32> {
    bits.iter().map(|v| f16::from_bits(*v).to_f32()).collect()
}

/// Rounded to bfloat16: what goes up.
pub(crate) fn to_bf16(values: &[f32]) -> Vec<u16> {
    values.iter().map(|v| bf16::from_f32(*v).to_bits()).collect()
}

/// `values`, each rounded to bfloat16.
pub(crate) fn as_bf16(values: &[f32]) -> Vec<f32> {
    values.iter().map(|v| bf16::from_f32(*v).to_f32()).collect()
}

/// Every pair within `tolerance`, relative where the values are large.
#[track_caller]
pub(crate) fn close(got: &[f32], wanted: &[f32], tolerance: f32) {
    assert_eq!(got.len(), wanted.len());
    for (i, (x, y)) in got.iter().zip(wanted).enumerate() {
        let error = (x - y).abs() / (1.0 + y.abs());
        assert!(error <= tolerance, "element {i} of {}: {x} and not {y}", got.len());
    }
}

/// `a` (`m` × `k`) times the transpose of `b` (`n` × `k`), in double precision.
pub(crate) fn product(a: &[f32], b: &[f32], m: usize, n: usize, k: usize) -> Vec<f32> {
    let mut c = Vec::with_capacity(m * n);
    for row in a.chunks(k).take(m) {
        for column in b.chunks(k).take(n) {
            c.push(row.iter().zip(column).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>() as f32);
        }
    }
    c
}
