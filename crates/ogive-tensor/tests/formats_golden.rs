//! Every format against blocks that ggml made: decoded bit for bit, and for the older formats encoded byte for byte.

mod common;

use ndarray_npy::NpzReader;
use ogive_tensor::ndarray::Array2;
use ogive_tensor::{FORMATS, Format};
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
        assert_eq!(
            seen.len(),
            FORMATS.len() - 3,
            "all but f32, iq4_xs and f8_e4m3 have golden blocks, seen {seen:?}"
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
