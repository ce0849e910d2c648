//! Formats of very few bits for tests: blocks of random bytes with a factor that is chosen, as not all of them have an encoder, and what a group of them is.
//!
//! Codes are taken from the decoder of the tensor crate and not written down a second time: what kernels add to it are the ways that codes go, and
//! those are tested to the bit by the tests of products. Tables stand in the kernels a second time; they are compared entry by entry.

use super::int8::tests::{Group, Random};
use ogive_kernels::EMBED;
use ogive_tensor::{Format, NVFP4, format_by_name, grids};

/// Formats of very few bits, and what their block's factor is a multiple of.
pub(crate) const FEW: [(&str, f32); 9] = [
    ("iq1_s", 0.125),
    ("iq1_m", 0.125),
    ("iq2_xxs", 0.125),
    ("iq2_xs", 0.125),
    ("iq2_s", 0.125),
    ("iq3_xxs", 0.25),
    ("iq3_s", 1.0),
    ("tq1_0", 1.0),
    ("tq2_0", 1.0),
];

pub(crate) fn is_few(name: &str) -> bool {
    FEW.iter().any(|(few, _)| *few == name)
}

/// Where each four bits of a block's factor lie, from the lowest on: of which byte, and how far up.
fn factor_of(name: &str) -> [(usize, u32); 4] {
    let whole = |at| [(at, 0), (at, 4), (at + 1, 0), (at + 1, 4)];
    match name {
        "iq1_m" => [(49, 4), (51, 4), (53, 4), (55, 4)],
        "tq1_0" => whole(52),
        "tq2_0" => whole(64),
        _ => whole(0),
    }
}

pub(crate) fn factor(name: &str, b: &[u8]) -> u16 {
    factor_of(name).iter().rev().fold(0, |half, (at, shift)| half << 4 | u16::from(b[*at] >> shift & 15))
}

pub(crate) fn set_factor(name: &str, b: &mut [u8], half: u16) {
    for (i, (at, shift)) in factor_of(name).into_iter().enumerate() {
        b[at] = b[at] & !(15 << shift) | ((half >> (4 * i) & 15) as u8) << shift;
    }
}

/// The i-th 32 of a block of such a format: factors as they lie, and codes from what the decoder makes of the block with a factor of one, which
/// tests of the tensor crate hold to ggml's.
pub(crate) fn group_of_few(unit: f32, name: &str, b: &[u8], i: usize) -> Group {
    let top = |at: usize| i32::from(b[at] >> 4);
    let of = |h: usize| match name {
        "iq1_s" => 2 * (top(35 + 2 * i) & 7) + 1,
        "iq1_m" => {
            let both = i32::from(b[48 + i / 2 * 2]) | i32::from(b[49 + i / 2 * 2]) << 8;
            2 * (both >> (6 * (i % 2) + 3 * h) & 7) + 1
        }
        "iq2_xxs" => 2 * top(9 + 8 * i) + 1,
        "iq2_xs" => 2 * (i32::from(b[66 + i]) >> (4 * h) & 15) + 1,
        "iq2_s" => 2 * (i32::from(b[74 + i]) >> (4 * h) & 15) + 1,
        "iq3_xxs" => 2 * top(69 + 4 * i) + 1,
        "iq3_s" => 2 * (i32::from(b[106 + i / 2]) >> (4 * (i % 2)) & 15) + 1,
        _ => 1,
    };
    let (scales, mut one, mut values) = ([0, 1].map(of), b.to_vec(), [0.0; 256]);
    set_factor(name, &mut one, 0x3c00);
    (format_by_name(name).unwrap().decode)(&one, &mut values);
    let codes = std::array::from_fn(|j| {
        let code = values[32 * i + j] / (unit * scales[j / 16] as f32);
        assert_eq!(code, code.round(), "{name}");
        code as i32
    });
    let half = factor(name, b).to_le_bytes();
    Group { codes, scales, mins: [1; 2], d: self::half(&half, 0) * unit, m: None, apart: None }
}

pub(crate) fn half(b: &[u8], at: usize) -> f32 {
    let bits = u16::from_le_bytes([b[at], b[at + 1]]);
    let (sign, e, m) = (if bits >> 15 == 1 { -1.0 } else { 1.0 }, bits >> 10 & 31, f32::from(bits & 1023));
    match (e, bits & 1023) {
        (31, 0) => sign * f32::INFINITY,
        (31, _) => f32::NAN,
        (0, _) => sign * m * 2f32.powi(-24),
        _ => sign * (1024.0 + m) * 2f32.powi(i32::from(e) - 25),
    }
}

/// The i-th 32 of a block's elements of NVFP4, by its decoder: of scales of two, levels are what they are, and of levels of one half scales are.
pub(crate) fn group_of_nvfp4(b: &[u8], i: usize) -> Group {
    let (mut levels, mut scales, mut values) = ([0x40; 36], [0x11; 36], [[0.0; 64]; 2]);
    levels[4..].copy_from_slice(&b[4..]);
    scales[..4].copy_from_slice(&b[..4]);
    NVFP4.decode_row(&levels, &mut values[0]);
    NVFP4.decode_row(&scales, &mut values[1]);
    let codes = std::array::from_fn(|j| values[0][32 * i + j] as i32);
    let apart = Some([values[1][32 * i], values[1][32 * i + 16]]);
    Group { codes, scales: [1; 2], mins: [1; 2], d: 1.0, m: None, apart }
}

/// Rows of random bytes with factors that leave elements below one.
pub(crate) fn bytes_of(format: &Format, salt: u64, [rows, cols]: [usize; 2]) -> Vec<u8> {
    let mut r = Random(salt);
    let mut bytes: Vec<u8> = (0..rows * format.row_bytes(cols)).map(|_| r.bits() as u8).collect();
    // A third, and of those with factors and large codes beside it some thousandth.
    let factor = if format.name.starts_with("tq") { 0x3555 } else { 0x1555 };
    for (i, block) in bytes.chunks_mut(format.block_bytes).enumerate() {
        set_factor(format.name, block, factor + (i % 5) as u16 * 0x111);
    }
    bytes
}

#[test]
fn grids_are_those_of_the_decoders() {
    let text = EMBED.files.iter().find(|(name, _)| *name == "grids.cu").unwrap().1;
    let table = |name: &str| -> Vec<u16> {
        let body = text.split(&format!(" {name}[")).nth(1).unwrap().split(['{', '}']).nth(1).unwrap();
        let words = body.split(',').map(str::trim).filter(|word| !word.is_empty());
        words.map(|word| u16::from_str_radix(word.trim_start_matches("0x"), 16).unwrap()).collect()
    };
    // Kernels have a level of three bits in four.
    let spread = |entry: &u16| (0..4).map(|j| (entry >> (3 * j) & 7) << (4 * j)).sum::<u16>();
    assert_eq!(table("iq2_xxs_grid"), grids::IQ2_XXS);
    assert_eq!(table("iq2_xs_grid"), grids::IQ2_XS);
    assert_eq!(table("iq2_s_grid"), grids::IQ2_S);
    assert_eq!(table("iq1_grid"), grids::IQ1);
    assert_eq!(table("iq3_xxs_grid"), grids::IQ3_XXS.each_ref().map(spread));
    assert_eq!(table("iq3_s_grid"), grids::IQ3_S.each_ref().map(spread));
}
