//! Products are compared bit for bit: paths with the scalar twin, batches with single tokens, threads with each other.
//! `accuracy` holds the twin itself against sums in double precision.

mod accuracy;
mod extremes;
mod random;
mod same_bits;
mod seams;

use super::{linear, tile::FEW};
use crate::{
    pool::Pool,
    simd::Path,
    weight::{CpuWeight, Kernel, Precision},
};
use half::f16;
use ogive_tensor::{BF16, F8_E4M3, F16, F32, FEW_BITS, FORMATS, Format, HostWeight};
use std::sync::Arc;

/// Numbers that look random and are the same everywhere.
struct Noise(u64);

impl Noise {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let x = self.0 ^ self.0 >> 29;
        x.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
    }

    /// From -1 to 1.
    fn value(&mut self) -> f32 {
        (self.bits() & 0xff_ffff) as f32 / 8_388_608.0 - 1.0
    }

    /// Roughly normal, as activations are.
    fn values(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| (0..4).map(|_| self.value()).sum()).collect()
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.bits() as u8).collect()
    }
}

/// Where the f16 factors of a block are.
fn factors_of(format: &Format) -> &'static [usize] {
    match format.name {
        "q4_0" | "q5_0" | "q8_0" | "iq4_nl" | "iq4_xs" => &[0],
        "q4_1" | "q5_1" | "q4_k" | "q5_k" => &[0, 2],
        "q2_k" => &[80, 82],
        "q3_k" => &[108],
        "q6_k" => &[208],
        "tq1_0" => &[52],
        "tq2_0" => &[64],
        name if name.starts_with("iq") && name != "iq1_m" => &[0],
        _ => &[],
    }
}

/// Writes the factor of a block of IQ1_M, which is in four words' highest bits.
fn set_iq1_m(block: &mut [u8], d: f16) {
    for i in 0..4 {
        let byte = &mut block[49 + 2 * i];
        *byte = *byte & 15 | (d.to_bits() >> (4 * i) << 4) as u8;
    }
}

/// A weight of random codes and scales, factors of an ordinary size.
fn weight(noise: &mut Noise, format: &'static Format, shape: [usize; 3]) -> HostWeight {
    let [experts, rows, cols] = shape;
    let blocks = experts * rows * cols / format.block_len;
    let mut bytes = match format {
        f if [&F32, &F16, &BF16].contains(&f) => {
            let mut bytes = vec![0; blocks * format.block_bytes];
            format.encode_row(&noise.values(blocks), &mut bytes).unwrap();
            bytes
        }
        // What is no number would hide what the others come to.
        f if f == &F8_E4M3 => {
            noise.bytes(blocks).into_iter().map(|b| if b & 0x7f == 0x7f { 0x3c } else { b }).collect()
        }
        _ => noise.bytes(blocks * format.block_bytes),
    };
    for block in bytes.chunks_exact_mut(format.block_bytes) {
        for &at in factors_of(format) {
            block[at..at + 2].copy_from_slice(&f16::from_f32(noise.value() / 64.0).to_le_bytes());
        }
        if format.name == "mxfp4" {
            block[0] = 120 + block[0] % 8;
        }
        if format.name == "nvfp4" {
            // With small scales, of which all are subnormal numbers, and what ggml takes for nothing.
            block[..3].iter_mut().for_each(|s| *s &= 0x27);
            block[3] = if block[3] < 32 { 0x7f } else { block[3] & 0x9f };
        }
        if format.name == "iq1_m" {
            set_iq1_m(block, f16::from_f32(noise.value() / 64.0));
        }
    }
    HostWeight::new("w", shape, format, bytes.into()).unwrap()
}

fn product(pool: &Pool, x: &[f32], n: usize, w: &HostWeight, precision: Precision, path: Path) -> Vec<f32> {
    let compute = |w: &Arc<CpuWeight>| {
        let mut out = vec![f32::NAN; n * w.shape()[1]];
        linear(pool, x, n, w, 0, &mut out).unwrap();
        out
    };
    let taken = Arc::new(CpuWeight::new(w, precision, path).unwrap());
    let plain = compute(&taken);
    let laid = taken.in_strips(pool);
    // Otherwise kernels that are never reached would pass.
    let coded = FEW_BITS.contains(&w.format) && precision != Precision::Exact;
    assert!(
        laid.is_some() || !coded || !matches!(path.to_string().as_str(), "avx2" | "avx-vnni"),
        "{path}, {:?}",
        w.format
    );
    if let Some(strips) = laid {
        assert_same(
            &compute(&Arc::new(strips)),
            &plain,
            &format!("{path}, {n} tokens, {:?}: in strips", w.format),
        );
    }
    plain
}

/// Products of the scalar twins, which define those of paths.
struct Twins {
    most: Vec<f32>,
    /// Of AMX, if it defines its own.
    amx: Option<Vec<f32>>,
}

impl Twins {
    fn new(pool: &Pool, x: &[f32], n: usize, w: &HostWeight, precision: Precision) -> Self {
        let of = |path| {
            let w = Arc::new(CpuWeight::twin(w, precision, path));
            let mut out = vec![f32::NAN; n * w.shape()[1]];
            linear(pool, x, n, &w, 0, &mut out).unwrap();
            out
        };
        let own = CpuWeight::twin(w, precision, Path::Amx).kernel() == Kernel::Tiled;
        let wanted = own && Path::Amx.is_supported();
        Self { most: of(Path::Scalar), amx: wanted.then(|| of(Path::Amx)) }
    }

    /// That of `path`.
    fn of(&self, path: Path) -> &[f32] {
        match &self.amx {
            Some(amx) if path == Path::Amx => amx,
            _ => &self.most,
        }
    }
}

/// Equal to the bit; of two that are not numbers the payload may differ.
#[track_caller]
fn assert_same(a: &[f32], b: &[f32], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert!(a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(), "{what}: element {i}: {a} and {b}");
    }
}

fn all_paths() -> impl Iterator<Item = Path> {
    Path::ALL.iter().copied().filter(|p| p.is_supported())
}

/// The fast paths of this machine.
fn fast_paths() -> Vec<Path> {
    all_paths().filter(|&p| p != Path::Scalar).collect()
}

/// Token counts on both sides of where `path` changes its kernels for `w`, and enough for those of many tokens.
fn counts(w: &HostWeight, path: Path) -> Vec<usize> {
    let taken = CpuWeight::new(w, Precision::Default, path).unwrap();
    let many = match taken.kernel() {
        Kernel::Packed(_) | Kernel::Coded(_) => vec![9, 14, 20, FEW, FEW + 1, FEW + 8],
        Kernel::Float8 => vec![3, 4, 5, 7, 10, 15],
        _ => {
            let side = taken.in_strips(&Pool::new(1)).and_then(|strips| strips.side());
            let few = side.map_or(FEW, |side| path.few_columns(side).tokens);
            vec![few, few + 1, few + 5, few + 12, 300]
        }
    };
    [1, 2, 6].into_iter().chain(many).collect()
}

/// The most tokens that [`counts`] has for any path.
fn most(w: &HostWeight) -> usize {
    all_paths().flat_map(|path| counts(w, path)).max().unwrap_or(1)
}

/// Row lengths that `format` allows: with and without ends, one and several blocks, more than a slice.
fn lengths(format: &Format) -> impl Iterator<Item = usize> {
    let dense: &[usize] = if format.block_len == 1 { &[1, 7, 15, 33] } else { &[] };
    let all = [32, 64, 96, 128, 256, 512, 896, 2048, 2304];
    let block = format.block_len;
    dense.iter().copied().chain(all.into_iter().filter(move |k| k % block == 0))
}
