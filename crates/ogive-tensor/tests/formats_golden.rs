//! Every format against blocks that ggml made: decoded bit for bit, and for the older formats encoded byte for byte.

mod common;

use ndarray_npy::NpzReader;
use ogive_tensor::half::f16;
use ogive_tensor::ndarray::Array2;
use ogive_tensor::{
    FORMATS, Format, IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS, NVFP4, TQ1_0, TQ2_0,
};
use std::fs::File;

struct Golden {
    raw: Array2<u8>,
    decoded: Array2<f32>,
    original: Array2<f32>,
}

fn golden(format: &Format) -> Option<Golden> {
    let name = format!("golden/quant/blocks_{}.npz", format.name.to_uppercase());
    let file = File::open(common::shared()?.join(name)).ok()?;
    let mut npz = NpzReader::new(file).expect("an npz file");
    let raw = npz.by_name("raw").expect("raw");
    let (decoded, original) = (npz.by_name("deq").expect("deq"), npz.by_name("original").expect("original"));
    Some(Golden { raw, decoded, original })
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn decodes_bit_for_bit() {
    let mut seen = Vec::new();
    for format in FORMATS {
        let Some(g) = golden(format) else { continue };
        for (raw, decoded) in g.raw.outer_iter().zip(g.decoded.outer_iter()) {
            let mut out = vec![0.0; decoded.len()];
            format.decode_row(raw.as_slice().unwrap(), &mut out);
            assert_eq!(bits(&out), bits(decoded.as_slice().unwrap()), "{format:?}");
        }
        seen.push(format.name);
    }
    if common::shared().is_some() {
        let others = 4 + SUMS.len();
        assert_eq!(
            seen.len(),
            FORMATS.len() - others,
            "f32, iq4_xs, nvfp4, f8_e4m3 and those of `SUMS` have none; seen {seen:?}"
        );
    }
}

#[test]
fn plain_and_older_formats_encode_byte_for_byte() {
    let searched = ["iq4_nl", "mxfp4"];
    for format in FORMATS.iter().filter(|f| f.block_len <= 32 && !searched.contains(&f.name)) {
        let Some(g) = golden(format) else { continue };
        for (raw, original) in g.raw.outer_iter().zip(g.original.outer_iter()) {
            let mut out = vec![0; raw.len()];
            format.encode_row(original.as_slice().unwrap(), &mut out).unwrap();
            assert_eq!(out, raw.as_slice().unwrap(), "{format:?}");
        }
    }
}

#[test]
fn searched_formats_encode_no_worse_than_the_reference() {
    for format in FORMATS.iter().filter(|f| f.block_len == 256 || ["iq4_nl", "mxfp4"].contains(&f.name)) {
        let Some(g) = golden(format) else { continue };
        let (mut ours, mut numbers, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        for (original, decoded) in g.original.outer_iter().zip(g.decoded.outer_iter()) {
            let mut row = vec![0; format.row_bytes(original.len())];
            format.encode_row(original.as_slice().unwrap(), &mut row).unwrap();
            let mut out = vec![0.0; original.len()];
            format.decode_row(&row, &mut out);
            ours.extend(out);
            numbers.extend(original.iter().copied());
            theirs.extend(decoded.iter().copied());
        }
        let (ours, theirs) = (common::rmse(&ours, &numbers), common::rmse(&theirs, &numbers));
        assert!(ours <= theirs, "{format:?}: {ours} against ggml's {theirs}");
    }
}

/// Where `d` is (IQ1_M's is in the highest bits of four words), and a sum over the bits that ggml's `dequantize_row_*` of llama.cpp (as `llama-cpp-sys-2` 0.1.161 has it)
/// makes of a thousand random blocks, which have every entry of every table. A sum and not the numbers: they would be nine megabytes.
static SUMS: [(&Format, usize, u64); 9] = [
    (&IQ1_S, 0, 0x96e2_434c_abbf_8205),
    (&IQ1_M, 48, 0xb5b7_34e4_8482_fee5),
    (&IQ2_XXS, 0, 0x5a3e_5f6b_f560_9789),
    (&IQ2_XS, 0, 0x0c78_d756_db78_b2e9),
    (&IQ2_S, 0, 0x7216_54f3_0522_e145),
    (&IQ3_XXS, 0, 0x77a1_8e4f_8010_b7cd),
    (&IQ3_S, 0, 0x539f_2aef_2cad_98b5),
    (&TQ1_0, 52, 0x4158_1d17_fbcf_8325),
    (&TQ2_0, 64, 0x7c17_2e95_3ee7_c325),
];

#[test]
fn random_blocks_decode_to_the_bits_that_ggml_makes() {
    for (format, at, want) in SUMS {
        let (mut numbers, mut sum, mut out) = (common::Numbers(2025), 0xcbf2_9ce4_8422_2325_u64, [0.0; 256]);
        for _ in 0..1000 {
            let mut block = numbers.bytes(format.block_bytes);
            let d = f16::from_f32(numbers.even()).to_bits();
            if format == &IQ1_M {
                for i in 0..4 {
                    let byte = &mut block[at + 2 * i + 1];
                    *byte = *byte & 15 | (d >> (4 * i) << 4) as u8;
                }
            } else {
                block[at..at + 2].copy_from_slice(&d.to_le_bytes());
            }
            (format.decode)(&block, &mut out);
            // FNV-1a, a number at a time.
            sum = out.iter().fold(sum, |s, v| (s ^ u64::from(v.to_bits())).wrapping_mul(0x0100_0000_01b3));
        }
        assert_eq!(sum, want, "{format:?}: {sum:#x}");
    }
}

/// Of the bytes that ggml's `quantize_row_tq1_0_ref` and `quantize_row_tq2_0_ref` of the same llama.cpp make of numbers, of which every fourth block has three alone.
#[test]
fn ternary_formats_encode_byte_for_byte() {
    for (format, want) in [(&TQ1_0, 0x5afd_4025_40cb_c4f6_u64), (&TQ2_0, 0x2ba3_d745_5637_33ea)] {
        let mut numbers = common::Numbers(2025);
        let number = |i: usize| {
            let v = numbers.even();
            if (i / 256).is_multiple_of(4) { (v * 1.5).round() * 0.25 } else { v }
        };
        let x: Vec<f32> = (0..256 * 1000).map(number).collect();
        let mut row = vec![0; format.row_bytes(x.len())];
        format.encode_row(&x, &mut row).unwrap();
        let sum = row
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |s, v| (s ^ u64::from(*v)).wrapping_mul(0x0100_0000_01b3));
        assert_eq!(sum, want, "{format:?}: {sum:#x}");
    }
}

/// As above, of blocks of which the first have every scale there is; and what ggml's `quantize_row_nvfp4_ref` of the same llama.cpp is off by, as a
/// part of what zeros would be: the smaller numbers are, the fewer scales there are for them, and ggml's come to zeros.
#[test]
fn nvfp4_decodes_to_the_bits_that_ggml_makes_and_encodes_no_worse() {
    let (mut numbers, mut sum, mut out) = (common::Numbers(2025), 0xcbf2_9ce4_8422_2325_u64, [0.0; 64]);
    for i in 0..1000 {
        let mut block = numbers.bytes(NVFP4.block_bytes);
        if i < 64 {
            (0..4).for_each(|j| block[j] = (4 * i + j) as u8);
        }
        (NVFP4.decode)(&block, &mut out);
        sum = out.iter().fold(sum, |s, v| (s ^ u64::from(v.to_bits())).wrapping_mul(0x0100_0000_01b3));
    }
    assert_eq!(sum, 0x5346_975a_8b84_ab25, "{sum:#x}");
    for (size, theirs, ours) in [(1.0, 0.0952, 0.082), (0.02, 0.1028, 0.09), (0.002, 0.966, 0.16)] {
        let mut numbers = common::Numbers(7);
        let x: Vec<f32> = (0..64 * 500).map(|_| numbers.bell() * size).collect();
        let (mut row, mut back) = (vec![0; NVFP4.row_bytes(x.len())], vec![0.0; x.len()]);
        NVFP4.encode_row(&x, &mut row).unwrap();
        NVFP4.decode_row(&row, &mut back);
        let error = common::rmse(&back, &x) / f64::from(size);
        assert!(error < ours && ours < theirs, "{size}: {error} against {ours}, and ggml's {theirs}");
    }
}
