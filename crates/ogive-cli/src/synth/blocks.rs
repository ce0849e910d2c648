//! Random weights, packed: blocks are drawn as they lie in the file, not quantised from numbers.
//!
//! A quantiser that searches for the best scales would take an hour over 8 billion random weights and change nothing that
//! can be measured. Instead the codes of a block are uniform over their range and its scales are drawn about a value that
//! gives the decoded weights the standard deviation asked for and mean 0. What is lost is the bell shape of real weights
//! within a block; what a kernel does with them is the same. The layouts are those of `ogive_tensor`'s formats, whose
//! decoders the tests hold against this.

use super::rng::Rng;
use ogive::tensor::half::{bf16, f16};
use ogive::weights::gguf_file::GgmlType;

/// Fills `out`, whole blocks of type `ty`, with weights of deviation `std`. The types are those that
/// the formats of [`FORMATS`](super::FORMATS) come to; any other is left as it is and not reported.
pub(crate) fn fill(ty: GgmlType, std: f32, rng: &mut Rng, out: &mut [u8]) {
    let Ok(len) = usize::try_from(ty.block_bytes()) else { return };
    let block: fn(f32, &mut Rng, &mut [u8]) = match ty {
        GgmlType::F32 => |std, rng, b| b.copy_from_slice(&(std * rng.normal()).to_le_bytes()),
        GgmlType::F16 => |std, rng, b| b.copy_from_slice(&f16::from_f32(std * rng.normal()).to_le_bytes()),
        GgmlType::BF16 => |std, rng, b| b.copy_from_slice(&bf16::from_f32(std * rng.normal()).to_le_bytes()),
        GgmlType::Q8_0 => q8_0,
        GgmlType::Q4_0 => q4_0,
        GgmlType::Q5_0 => q5_0,
        GgmlType::Q5_1 => q5_1,
        GgmlType::MXFP4 => mxfp4,
        GgmlType::NVFP4 => nvfp4,
        GgmlType::Q4_K => q4_k,
        GgmlType::Q5_K => q5_k,
        GgmlType::Q6_K => q6_k,
        GgmlType::IQ1_S => |std, rng, b| coded(b, 0, signed_scale(std, 7.1995, rng), rng),
        GgmlType::IQ1_M => iq1_m,
        GgmlType::IQ2_XXS => |std, rng, b| coded(b, 0, scale(std, 53.362, rng), rng),
        GgmlType::IQ2_XS => |std, rng, b| coded(b, 0, scale(std, 55.9, rng), rng),
        GgmlType::IQ2_S => |std, rng, b| coded(b, 0, scale(std, 56.392, rng), rng),
        GgmlType::IQ3_XXS => |std, rng, b| coded(b, 0, scale(std, 142.414, rng), rng),
        GgmlType::IQ3_S => |std, rng, b| coded(b, 0, scale(std, 140.236, rng), rng),
        GgmlType::TQ1_0 => tq1_0,
        GgmlType::TQ2_0 => tq2_0,
        _ => return,
    };
    for b in out.chunks_exact_mut(len) {
        block(std, rng, b);
    }
}

/// A block's scale: such that weights whose codes have a root mean square of `unit` get the deviation `std`, and a
/// quarter more or less from block to block.
fn scale(std: f32, unit: f32, rng: &mut Rng) -> f16 {
    // The root mean square of numbers between 0.75 and 1.25.
    const SPREAD: f32 = 1.010_363;
    let factor = 0.75 + 0.5 * (rng.bits() >> 40) as f32 / (1_u32 << 24) as f32;
    f16::from_f32(std / (unit * SPREAD) * factor)
}

/// The same with a random sign, which centres codes that have one more value below zero than above.
fn signed_scale(std: f32, unit: f32, rng: &mut Rng) -> f16 {
    let d = scale(std, unit, rng);
    if rng.bits() >> 63 == 0 { d } else { -d }
}

/// Codes -127 to 127, 0 twice as often: their mean square is 5397.5.
fn q8_0(std: f32, rng: &mut Rng, b: &mut [u8]) {
    b[..2].copy_from_slice(&scale(std, 73.468, rng).to_le_bytes());
    rng.fill(&mut b[2..]);
    for q in &mut b[2..] {
        *q = if *q == 0x80 { 0 } else { *q };
    }
}

/// Codes -8 to 7: 21.5.
fn q4_0(std: f32, rng: &mut Rng, b: &mut [u8]) {
    b[..2].copy_from_slice(&signed_scale(std, 4.6368, rng).to_le_bytes());
    rng.fill(&mut b[2..]);
}

/// Codes -16 to 15: 85.5.
fn q5_0(std: f32, rng: &mut Rng, b: &mut [u8]) {
    b[..2].copy_from_slice(&signed_scale(std, 9.2466, rng).to_le_bytes());
    rng.fill(&mut b[2..]);
}

/// Codes 0 to 31 above a minimum of -15.5: 85.25.
fn q5_1(std: f32, rng: &mut Rng, b: &mut [u8]) {
    let d = scale(std, 9.2331, rng);
    b[..2].copy_from_slice(&d.to_le_bytes());
    b[2..4].copy_from_slice(&f16::from_f32(-15.5 * d.to_f32()).to_le_bytes());
    rng.fill(&mut b[4..]);
}

/// Levels 0 to 6 of either sign: their mean square is 8.5625. A scale is a power of two, so one of two neighbours is drawn, the more
/// often the nearer it is.
fn mxfp4(std: f32, rng: &mut Rng, b: &mut [u8]) {
    let exponent = (std / 2.926_174).log2();
    let low = exponent.floor();
    let upper = (4.0_f32.powf(exponent - low) - 1.0) / 3.0;
    let drawn = (rng.bits() >> 40) as f32 / (1_u32 << 24) as f32;
    b[0] = (127.0 + low) as u8 + u8::from(drawn < upper);
    rng.fill(&mut b[1..]);
}

/// The same levels with a scale that has three bits of fraction, of which one of two neighbours is drawn likewise.
fn nvfp4(std: f32, rng: &mut Rng, b: &mut [u8]) {
    let value = |s: u8| match s >> 3 {
        0 => f32::from(s) / 512.0,
        e => f32::from(8 | s & 7) * 2.0_f32.powi(i32::from(e) - 10),
    };
    let want = std / 2.926_174;
    let low = (0..0x7e_u8).rev().find(|s| value(*s) <= want).unwrap_or(0);
    let (below, above) = (value(low).powi(2), value(low + 1).powi(2));
    for s in &mut b[..4] {
        let drawn = (rng.bits() >> 40) as f32 / (1_u32 << 24) as f32;
        *s = low + u8::from(drawn < (want.powi(2) - below) / (above - below));
    }
    rng.fill(&mut b[4..]);
}

/// Codes 0 to 15 times scales of 31 to 62, less 7.5 times as much: 47787.5.
fn q4_k(std: f32, rng: &mut Rng, b: &mut [u8]) {
    pairs(scale(std, 218.604, rng), 7.5, rng, b);
    rng.fill(&mut b[16..]);
}

/// Codes 0 to 31 likewise, less 15.5 times as much: 191719.5.
fn q5_k(std: f32, rng: &mut Rng, b: &mut [u8]) {
    pairs(scale(std, 437.858, rng), 15.5, rng, b);
    rng.fill(&mut b[16..]);
}

/// The first 16 bytes of the two formats above: scales, and minima that differ from them by at most one, with `dmin` the
/// `middle` of the codes times `d`.
fn pairs(d: f16, middle: f32, rng: &mut Rng, b: &mut [u8]) {
    b[..2].copy_from_slice(&d.to_le_bytes());
    b[2..4].copy_from_slice(&f16::from_f32(middle * d.to_f32()).to_le_bytes());
    let bits = rng.bits();
    let s = |i: usize| 31 + (bits >> (7 * i) & 31) as u8;
    // One less, the same, the same, one more.
    let m = |i: usize| s(i) + [0, 1, 1, 2][(bits >> (7 * i + 5) & 3) as usize] - 1;
    for i in 0..4 {
        b[4 + i] = s(i) | s(4 + i) >> 4 << 6;
        b[8 + i] = m(i) | m(4 + i) >> 4 << 6;
        b[12 + i] = s(4 + i) & 15 | m(4 + i) << 4;
    }
}

/// Codes -32 to 31 times scales of 64 to 127 of either sign: 3231102.
fn q6_k(std: f32, rng: &mut Rng, b: &mut [u8]) {
    rng.fill(&mut b[..208]);
    for s in &mut b[192..208] {
        let size = (64 | *s & 63) as i8;
        *s = if *s < 128 { size } else { -size } as u8;
    }
    b[208..].copy_from_slice(&scale(std, 1797.53, rng).to_le_bytes());
}

/// Any bits but for `d`, f16 from byte `at` on: in formats whose codes are places in a table every code, sign and scale is as good as
/// another. What scales of 0 to 15, `2 s + 1` times, have for a mean square is 341, those of 0 to 7 have 85; levels have that of their
/// table (`ogive_tensor::grids`).
fn coded(b: &mut [u8], at: usize, d: f16, rng: &mut Rng) {
    rng.fill(b);
    b[at..at + 2].copy_from_slice(&d.to_le_bytes());
}

/// The same, with four bits of `d` at the top of each of the last four words.
fn iq1_m(std: f32, rng: &mut Rng, b: &mut [u8]) {
    let d = signed_scale(std, 7.1995, rng).to_bits();
    rng.fill(b);
    for (i, high) in b[49..].iter_mut().step_by(2).enumerate() {
        *high = *high & 15 | ((d >> (4 * i) & 15) as u8) << 4;
    }
}

/// -1, 0 and 1, each as often: 2/3. Five to a byte, four to the last ones, whose fifth digit is 0.
fn tq1_0(std: f32, rng: &mut Rng, b: &mut [u8]) {
    coded(b, 52, scale(std, 0.816_497, rng), rng);
    for (i, q) in b[..52].iter_mut().enumerate() {
        let digits = if i < 48 { below(243, rng) } else { 3 * below(81, rng) };
        *q = (256 * digits).div_ceil(243) as u8;
    }
}

/// The same, four to a byte.
fn tq2_0(std: f32, rng: &mut Rng, b: &mut [u8]) {
    for q in &mut b[..64] {
        let digits = below(81, rng);
        *q = [1, 3, 9, 27].iter().fold(0, |q, power| q << 2 | (digits / power % 3) as u8);
    }
    b[64..].copy_from_slice(&scale(std, 0.816_497, rng).to_le_bytes());
}

fn below(n: u64, rng: &mut Rng) -> u64 {
    ((rng.bits() >> 32) * n) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive::tensor::format_by_name;

    #[test]
    fn every_type_decodes_to_the_deviation_that_was_asked_for() {
        let listed =
            ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_0", "Q5_1", "MXFP4", "NVFP4", "Q4_K", "Q5_K", "Q6_K"];
        for ty in listed.into_iter().chain(crate::synth::PURE.iter().map(|f| f.base.name())) {
            let format = format_by_name(ty).unwrap();
            let ty = *GgmlType::ALL.iter().find(|t| t.name() == ty).unwrap();
            // The scales of a wide matrix are subnormal halves.
            for std in [0.3_f32, 1.0 / 14_336.0_f32.sqrt()] {
                let n = 1 << 18;
                let mut bytes = vec![0; format.row_bytes(n)];
                fill(ty, std, &mut Rng::new(3, "w", 0), &mut bytes);
                let mut values = vec![0.0; n];
                format.decode_row(&bytes, &mut values);
                let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / n as f64 / f64::from(std);
                let square = values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / n as f64;
                let deviation = square.sqrt() / f64::from(std);
                assert!(mean.abs() < 0.01, "{ty:?} {std}: mean {mean}");
                assert!((deviation - 1.0).abs() < 0.01, "{ty:?} {std}: deviation {deviation}");
            }
        }
    }

    #[test]
    fn blocks_differ_from_each_other() {
        for ty in [GgmlType::Q4_K, GgmlType::Q6_K, GgmlType::Q8_0, GgmlType::Q5_0] {
            let len = ty.block_bytes() as usize;
            let mut bytes = vec![0; 2 * len];
            fill(ty, 1.0, &mut Rng::new(3, "w", 0), &mut bytes);
            let same = bytes[..len].iter().zip(&bytes[len..]).filter(|(a, b)| a == b).count();
            assert!(same < len / 4, "{ty:?}: {same} of {len} bytes");
        }
    }
}
