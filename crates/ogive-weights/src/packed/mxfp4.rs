//! gpt-oss's files: `…_blocks` `[experts, out, in / 32, 16]` and `…_scales` `[experts, out, in / 32]`, both of bytes, beside which nothing is
//! left to say: an element is one of sixteen small numbers times a power of two for 32 columns, which is [`MXFP4`] (OCP 2023,
//! "Microscaling Formats (MX) Specification").
//!
//! A byte of the file has two neighbours, the first in its low half. One of a block of ggml's has elements that are sixteen apart, and the
//! power stands before them.

use super::parts::Parts;
use crate::safetensors::Raw;
use ogive_tensor::{Bytes, Error, HostWeight, MXFP4, Result};

/// Bytes of 32 elements in the file.
const HALVES: usize = 16;

/// The weight whose parts these are, with the file's numbers. Its bytes are made when they are read.
pub(super) fn weight(name: &str, parts: &Parts<'_>) -> Result<HostWeight> {
    let (blocks, scales) = (parts.must("blocks")?, parts.must("scales")?);
    let of_bytes = |raw: &Raw| raw.dtype == "U8";
    let (Some(shape), true) = (shape(&blocks.shape), of_bytes(&blocks)) else {
        let why = format!(
            "bytes of the shape [experts, out, in / 32, {HALVES}] are needed and this is {:?} {}",
            blocks.shape, blocks.dtype
        );
        return Err(parts.wrong("blocks", why));
    };
    let want = &blocks.shape[..blocks.shape.len() - 1];
    if scales.shape != want || !of_bytes(&scales) {
        let why = format!(
            "its shape is {:?} {}, where the blocks need {want:?} U8; do the files belong together?",
            scales.shape, scales.dtype
        );
        return Err(parts.wrong("scales", why));
    }
    let len = scales.bytes.len().checked_mul(MXFP4.block_bytes).filter(|n| isize::try_from(*n).is_ok());
    let len = len.ok_or_else(|| Error::invalid(name, "it has more elements than can be counted"))?;
    let (blocks, scales) = (blocks.bytes, scales.bytes);
    let bytes = Bytes::lazy(len, move |to| {
        fill(&blocks, &scales, to);
        blocks.release();
    });
    HostWeight::new(name, shape, &MXFP4, bytes)
}

/// Experts, outputs and inputs.
fn shape(of_blocks: &[u64]) -> Option<[usize; 3]> {
    let [experts, out, groups, halves] = *of_blocks else { return None };
    let size = |n: u64| usize::try_from(n).ok();
    let cols = size(groups)?.checked_mul(MXFP4.block_len)?;
    (size(halves)? == HALVES).then_some([size(experts)?, size(out)?, cols])
}

fn fill(blocks: &[u8], scales: &[u8], to: &mut [u8]) {
    let blocks = blocks.as_chunks::<HALVES>().0;
    for ((to, from), scale) in to.as_chunks_mut::<{ HALVES + 1 }>().0.iter_mut().zip(blocks).zip(scales) {
        let [first, pairs @ ..] = to;
        *first = *scale;
        apart(from, pairs);
    }
}

/// Pairs of neighbours become pairs of elements that are half of them all apart.
#[inline(always)]
pub(super) fn apart<const N: usize>(from: &[u8; N], to: &mut [u8]) {
    let (low, high) = from.split_at(N / 2);
    for ((to, low), high) in to.as_chunks_mut::<2>().0.iter_mut().zip(low).zip(high) {
        *to = [low & 15 | high << 4, low >> 4 | high & 0xf0];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_elements_that_are_sixteen_apart() {
        let from: Vec<u8> = (0..16).map(|i| (2 * i % 16) | ((2 * i + 1) % 16) << 4).collect();
        let mut block = [0; 17];
        fill(&from, &[130], &mut block);
        let mut values = [0.0; 32];
        MXFP4.decode_row(&block, &mut values);
        let of = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        for (i, v) in values.into_iter().enumerate() {
            let sign = if i % 16 < 8 { 1.0 } else { -1.0 };
            assert_eq!(v, sign * of[i % 8] * 8.0, "{i}");
        }
    }
}
