//! What holds of every format whatever its bytes: any bytes decode, any numbers pack, and packing loses no more than the
//! number of bits says.

mod common;

use common::Numbers;
use half::f16;
use ogive_tensor::{FORMATS, Format, HostWeight, IQ4_XS, format_by_name};
use proptest::prelude::*;

fn decode(format: &Format, bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![f32::NAN; bytes.len() / format.block_bytes * format.block_len];
    format.decode_row(bytes, &mut out);
    out
}

fn encode(format: &Format, values: &[f32]) -> Vec<u8> {
    let mut out = vec![0xAA; format.row_bytes(values.len())];
    format.encode_row(values, &mut out).unwrap();
    out
}

fn there_and_back(format: &Format, values: &[f32]) -> Vec<f32> {
    decode(format, &encode(format, values))
}

/// What a format costs at most for a whole block of these numbers, as a part of the spread of a block: half a step of
/// its codes, and for two-level scales the rounding of the scale.
fn bound(format: &Format) -> f32 {
    match format.name {
        "f32" => 0.0,
        "f16" => 1.0 / 2048.0,
        "bf16" => 1.0 / 256.0,
        "q8_0" => 0.004,
        // Half a step of sixteen between two powers of two.
        "f8_e4m3" => 0.032,
        "q6_k" => 0.02,
        "q5_0" | "q5_1" => 0.033,
        "q5_k" => 0.05,
        "q4_0" | "q4_1" => 0.065,
        // Uneven levels: the widest gap decides, and MXFP4's largest value may be cut off by a quarter.
        "iq4_nl" | "iq4_xs" => 0.11,
        "mxfp4" | "nvfp4" => 0.15,
        "q4_k" => 0.08,
        "q3_k" => 0.25,
        "q2_k" => 0.35,
        "iq2_s" | "iq3_s" | "tq1_0" | "tq2_0" => 0.5,
        // Of signs that come in pairs one may be false, and IQ1 has as few entries for its levels.
        "iq2_xxs" | "iq2_xs" | "iq3_xxs" | "iq1_s" | "iq1_m" => 1.0,
        other => panic!("a bound for {other} is missing here"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_decode(seed in any::<u64>()) {
        for format in FORMATS {
            let bytes = Numbers(seed | 1).bytes(format.block_bytes * 3);
            prop_assert_eq!(decode(format, &bytes).len(), 3 * format.block_len);
        }
    }

    #[test]
    fn what_is_packed_comes_back_within_its_bits(seed in any::<u64>(), power in -1_i32..3, shift in -2.0_f32..2.0) {
        for format in FORMATS.iter().filter(|f| f.encode.is_some()) {
            let mut numbers = Numbers(seed | 1);
            let values: Vec<f32> = (0..256).map(|_| (numbers.even() + shift) * 10_f32.powi(power)).collect();
            let furthest = values.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
            for (v, back) in values.iter().zip(there_and_back(format, &values)) {
                prop_assert!((v - back).abs() <= bound(format) * 2.0 * furthest, "{format:?}: {v} became {back}");
            }
        }
    }

    #[test]
    fn any_numbers_pack(bits in prop::collection::vec(any::<u32>(), 256)) {
        let values: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        for format in FORMATS.iter().filter(|f| f.encode.is_some()) {
            prop_assert_eq!(there_and_back(format, &values).len(), 256);
        }
    }
}

#[test]
fn zeros_stay_zero_and_constants_stay_constant() {
    for format in FORMATS.iter().filter(|f| f.encode.is_some()) {
        assert!(there_and_back(format, &[0.0; 256]).iter().all(|&v| v == 0.0), "{format:?}");
        for value in [1.0, -1.0, 0.25, -0.07] {
            let back = there_and_back(format, &[value; 256]);
            // MXFP4 has powers of two for scales, NVFP4 few small ones, FP8 none.
            let off = if ["mxfp4", "nvfp4", "f8_e4m3"].contains(&format.name) { 0.11 } else { 4e-3 };
            let far = back.iter().find(|v| (**v - value).abs() > off * value.abs());
            assert_eq!(far, None, "{format:?}: {value}");
        }
    }
}

/// Two-level scales get so small that an f16 cannot hold them; that must cost a few bits and not the block.
#[test]
fn small_weights_survive() {
    let mut numbers = Numbers(5);
    for format in FORMATS.iter().filter(|f| f.block_len == 256 && f.encode.is_some()) {
        for size in [1e-3, 1e-4, 1e-5] {
            let x: Vec<f32> = (0..1024).map(|_| numbers.even() * size).collect();
            let error = common::rmse(&there_and_back(format, &x), &x) / common::rmse(&x, &[0.0; 1024]);
            let most = match format.name {
                "tq1_0" | "tq2_0" => 0.6,
                "iq1_s" | "iq1_m" => 0.45,
                "iq2_xxs" => 0.35,
                _ => 0.3,
            };
            assert!(error < most, "{format:?} at {size}: {error}");
        }
    }
}

/// Scales and minima that are rounded to a few steps, or to none, have to fit each other all the same. The bounds are parts of what
/// zeros would be off by; ggml's are 1 for numbers that small in four and five bits, and 0.038 for five bits and numbers far from the
/// others.
#[test]
fn coarse_scales_are_no_worse_than_zeros() {
    let small = |r: &mut Numbers| r.bell() * 1e-7;
    let wild = |r: &mut Numbers| r.bell() * 0.02 + if r.even() > 0.992 { 3.0 } else { 0.0 };
    for (name, draw, most) in [
        ("q2_k", small as fn(&mut Numbers) -> f32, 0.35),
        ("q4_k", small, 0.97),
        ("q5_k", small, 0.2),
        ("q2_k", wild, 0.09),
        ("q4_k", wild, 0.0375),
        ("q5_k", wild, 0.043),
    ] {
        let (format, mut numbers) = (format_by_name(name).unwrap(), Numbers(2024));
        let x: Vec<f32> = (0..512 * 256).map(|_| draw(&mut numbers)).collect();
        let error = common::rmse(&there_and_back(format, &x), &x) / common::rmse(&x, &vec![0.0; x.len()]);
        assert!(error < most, "{name}: {error}");
    }
}

/// The squares of what is left of such numbers are infinite.
#[test]
fn huge_numbers_are_packed_in_mxfp4() {
    let mxfp4 = format_by_name("mxfp4").unwrap();
    let levels = [0.0, 0.5, -1.0, 1.5, 2.0, -3.0, 4.0, 6.0_f32];
    for power in [0, 70, 100, 125] {
        let of =
            |by: f32| -> Vec<f32> { levels.repeat(4).iter().map(|v| v * by * 2_f32.powi(power)).collect() };
        assert_eq!(there_and_back(mxfp4, &of(1.01)), of(1.0), "{power}");
    }
    assert_eq!(there_and_back(mxfp4, &[f32::MAX; 32]), [1.5 * 2_f32.powi(127); 32]);
}

#[test]
fn one_wild_number_spoils_no_more_than_its_block() {
    for format in FORMATS.iter().filter(|f| f.encode.is_some()) {
        for wild in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN_POSITIVE, 1e-45] {
            let mut values = [0.5; 512];
            values[300] = wild;
            let back = there_and_back(format, &values);
            assert!(back[..256].iter().all(|v| (v - 0.5).abs() < 1e-3), "{format:?} with {wild}");
        }
    }
}

/// Scale and minimum from the extremes of each sub-block, rounded to what the format can store: what a K-quant gets
/// without a search.
fn naive(format: &Format, x: &[f32]) -> Vec<f32> {
    let (sub, levels, fine, symmetric) = match format.name {
        "q2_k" => (16, 3.0, 15.0, false),
        "q3_k" => (16, 4.0, 32.0, true),
        "q4_k" => (32, 15.0, 63.0, false),
        "q5_k" => (32, 31.0, 63.0, false),
        "q6_k" => (16, 32.0, 128.0, true),
        other => panic!("{other} is no K-quant"),
    };
    let most = |f: &dyn Fn(&[f32]) -> f32| x.chunks(sub).map(f).fold(0.0_f32, f32::max);
    let low = |x: &[f32]| -x.iter().copied().fold(0.0_f32, f32::min);
    let furthest = |x: &[f32]| x.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
    let scale = |x: &[f32]| {
        if symmetric {
            furthest(x) / levels
        } else {
            (x.iter().copied().fold(0.0_f32, f32::max) + low(x)) / levels
        }
    };
    let (d, dmin) = (most(&scale) / fine, most(&low) / fine);
    let (d, dmin) = (f16::from_f32(d).to_f32(), f16::from_f32(dmin).to_f32());
    x.chunks(sub)
        .flat_map(|x| {
            let s = d * (scale(x) / d).round().min(fine);
            let m = if symmetric { 0.0 } else { dmin * (low(x) / dmin).round().min(fine) };
            let range = if symmetric { -levels..=levels - 1.0 } else { 0.0..=levels };
            x.iter().map(move |v| s * ((v + m) / s).round().clamp(*range.start(), *range.end()) - m)
        })
        .collect()
}

#[test]
fn the_search_beats_the_extremes() {
    for format in FORMATS.iter().filter(|f| f.name.ends_with("_k")) {
        let mut numbers = Numbers(2024);
        for (kind, draw) in [("even", Numbers::even as fn(&mut Numbers) -> f32), ("bell", Numbers::bell)] {
            let x: Vec<f32> = (0..64 * 256).map(|_| draw(&mut numbers) * 0.02).collect();
            let simple: Vec<f32> = x.chunks(256).flat_map(|x| naive(format, x)).collect();
            let (ours, simple) = (common::rmse(&there_and_back(format, &x), &x), common::rmse(&simple, &x));
            assert!(ours < simple, "{format:?}, {kind}: {ours} against {simple}");
        }
    }
}

/// IQ4_XS element by element, from its description alone: it has no golden blocks.
#[test]
fn iq4_xs_is_as_described() {
    const LEVELS: [f32; 16] =
        [-127., -104., -83., -65., -49., -35., -22., -10., 1., 13., 25., 38., 53., 69., 89., 113.];
    let mut numbers = Numbers(7);
    for _ in 0..50 {
        let mut b = numbers.bytes(IQ4_XS.block_bytes);
        b[..2].copy_from_slice(&f16::from_f32(numbers.even()).to_le_bytes());
        let (d, high) = (f16::from_le_bytes([b[0], b[1]]).to_f32(), u32::from(b[2]) | u32::from(b[3]) << 8);
        for (e, v) in decode(&IQ4_XS, &b).into_iter().enumerate() {
            let (group, within) = (e / 32, e % 32);
            let low = if group % 2 == 0 { b[4 + group / 2] & 15 } else { b[4 + group / 2] >> 4 };
            let scale = f32::from(low) + 16.0 * ((high >> (2 * group)) % 4) as f32;
            let byte = b[8 + 16 * group + within % 16];
            let level = LEVELS[usize::from(if within < 16 { byte & 15 } else { byte >> 4 })];
            assert_eq!(v.to_bits(), (d * (scale - 32.0) * level).to_bits(), "element {e}");
        }
    }
}

#[test]
fn formats_have_names_and_fill_shapes() {
    for format in FORMATS {
        assert_eq!(format_by_name(&format.name.to_uppercase()), Some(*format));
        let bytes = vec![0; 3 * format.row_bytes(256)];
        let w = HostWeight::new("w", [1, 3, 256], format, bytes.into()).unwrap();
        assert_eq!(w.to_vec().len(), 768);
    }
    assert_eq!(format_by_name("q9_9"), None);
    static READ_ONLY: Format =
        Format { name: "odd", block_len: 1, block_bytes: 1, decode: |_, o| o[0] = 0.0, encode: None };
    let e = READ_ONLY.encode_row(&[0.0; 4], &mut [0; 4]).unwrap_err();
    assert_eq!(e.to_string(), "odd: this format can be read but not written");
}
