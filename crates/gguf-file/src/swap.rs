//! Data of big-endian files in little-endian order: which bytes of a block are numbers of several bytes.
//!
//! Of each block format this has the places from its struct in ggml-common.h, and not a list of offsets in code, so that the two can be
//! compared line by line. Formats that are missing are refused: bytes that are swapped wrongly are a model that talks nonsense.

use crate::ggml_type::GgmlType;

/// Where in a block of the format there are numbers of several bytes, and how many each has; `None` where it is not known.
const fn numbers(ty: GgmlType) -> Option<&'static [(usize, usize)]> {
    Some(match ty {
        // `d`; what else IQ2_S and IQ3_S have is bytes
        GgmlType::Q4_0 | GgmlType::Q8_0 | GgmlType::IQ4_NL | GgmlType::IQ2_S | GgmlType::IQ3_S => &[(0, 2)],
        // `d` and `m`, or `dmin`; the small scales of K-quants are bytes
        GgmlType::Q4_1 | GgmlType::Q4_K | GgmlType::Q5_K => &[(0, 2), (2, 2)],
        // `qh`, which ggml copies out of a number of 32 bits
        GgmlType::Q5_0 => &[(0, 2), (2, 4)],
        GgmlType::Q5_1 => &[(0, 2), (2, 2), (4, 4)],
        GgmlType::Q2_K => &[(80, 2), (82, 2)],
        GgmlType::Q3_K => &[(108, 2)],
        GgmlType::Q6_K => &[(208, 2)],
        // `d` and `scales_h`
        GgmlType::IQ4_XS => &[(0, 2), (2, 2)],
        GgmlType::TQ1_0 => &[(52, 2)],
        GgmlType::TQ2_0 => &[(64, 2)],
        GgmlType::MXFP4 | GgmlType::NVFP4 => &[],
        _ => return None,
    })
}

/// The same in little-endian order; `None` where the format is not known well enough.
pub(crate) fn swapped(ty: GgmlType, bytes: &[u8]) -> Option<Vec<u8>> {
    let size = usize::try_from(ty.block_bytes()).ok()?;
    let whole = [(0, size)];
    let numbers = if ty.is_plain() { &whole[..] } else { numbers(ty)? };
    let mut out = bytes.to_vec();
    for block in out.chunks_exact_mut(size) {
        for (at, len) in numbers {
            block.get_mut(*at..at + len)?.reverse();
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_within_their_blocks_and_apart() {
        for ty in GgmlType::ALL {
            let mut end = 0;
            for (at, len) in numbers(*ty).unwrap_or_default() {
                assert!(*at >= end, "{ty}");
                end = at + len;
            }
            assert!(end as u64 <= ty.block_bytes(), "{ty}");
        }
    }
}
