//! Files of compressed-tensors in the format `pack-quantized`: `weight_packed` `[out, in · bits / 32]`, `weight_scale`
//! `[out, groups]`, `weight_shape`, and perhaps `weight_zero_point` `[out · bits / 32, groups]` and `weight_g_idx` `[in]`.
//!
//! Codes and zero points are signed numbers that were made unsigned by adding half of what there is, which the difference does not see. How
//! many bits and which groups a matrix has follows from its tensors: the settings give them by patterns of names, which are not
//! read.

use super::codes::{Codes, Order};
use super::matrix::{Groups, Matrix, Zeros};
use super::parts::Parts;
use ogive_tensor::Result;

/// The matrix whose parts these are.
pub(super) fn matrix(name: &str, parts: &Parts<'_>) -> Result<Matrix> {
    let ([rows, wide], words) = parts.words("weight_packed", parts.must("weight_packed")?)?;
    let raw = parts.must("weight_shape")?;
    let numbers: Vec<i64> = match &*raw.dtype {
        "I64" => raw.bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect(),
        "I32" => raw.bytes.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b).into()).collect(),
        other => {
            return Err(parts.wrong("weight_shape", format!("two of I64 are needed and these are {other}")));
        }
    };
    let fits = |bits: &usize| numbers == [rows, wide * 32 / bits].map(|n| n as i64);
    let Some(bits) = [4, 8].into_iter().find(fits) else {
        let why = format!(
            "{numbers:?} are not {rows} rows of whole words, {wide} each, of 4 or of 8 bits; other widths are not read"
        );
        return Err(parts.wrong("weight_shape", why));
    };
    let cols = wide * 32 / bits;
    let (shape, scales) = parts.scales("weight_scale", true)?;
    let [_, count] = shape;
    if shape[0] != rows || cols % count != 0 {
        let why = format!(
            "its shape is {shape:?}, which are not the scales of {rows} rows of {cols} columns in equal groups"
        );
        return Err(parts.wrong("weight_scale", why));
    }
    let zeros = match parts.raw("weight_zero_point")? {
        None => Zeros::Same(1 << (bits - 1)),
        Some(raw) => {
            let lines = (rows * bits).div_ceil(32);
            let why = format!("{rows} rows and {count} groups of {bits} bits");
            let words = parts.words_of("weight_zero_point", raw, [lines, count], &why)?;
            let codes = Codes { words, order: Order::Down, bits, rows: count, cols: rows };
            Zeros::Each { codes, by_row: false }
        }
    };
    // A list that was never filled in has -1 in it, and counts for none, as in their own code.
    let list = parts.list("weight_g_idx", cols)?;
    let list = list.filter(|list| !list.as_chunks().0.contains(&(-1_i32).to_le_bytes()));
    Ok(Matrix {
        name: name.into(),
        codes: Codes { words, order: Order::Along, bits, rows, cols },
        zeros,
        scales,
        groups: Groups { count, size: cols / count, list },
    })
}
