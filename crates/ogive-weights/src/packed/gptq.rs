//! AutoGPTQ's files, and GPTQModel's: `qweight` `[in · bits / 32, out]`, `qzeros` `[groups, out · bits / 32]`, `scales`
//! `[groups, out]` and `g_idx` `[in]`.
//!
//! Zero points stand there less one (`checkpoint_format` `gptq`, or none). GPTQModel, and transformers through it, subtracts that one
//! from each number of a whole word at once: a zero point of 0 borrows from its neighbour, and only adding to the whole word gives both
//! back. Of 3 bits, which lie across words, each number has its one by itself, but GPTQModel subtracted them in the wrong places until its
//! pull request 2763. So zero points of 3 bits that must be 4, as the settings say `sym`, are taken to be 4 whatever stands there.

use super::codes::{Codes, Order};
use super::matrix::{Groups, Matrix, Zeros};
use super::parts::Parts;
use ogive_tensor::{Bytes, Result};

/// What the settings say of all matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gptq {
    pub(super) bits: usize,
    /// Columns of a group; all of them if nothing is said.
    pub(super) group: Option<usize>,
    /// Whether zero points stand in the file less one.
    pub(super) less_one: bool,
    /// Whether all zero points are half of what the codes reach to.
    pub(super) symmetric: bool,
}

impl Gptq {
    /// The matrix whose parts these are.
    pub(super) fn matrix(self, name: &str, parts: &Parts<'_>) -> Result<Matrix> {
        let Self { bits, group, less_one, symmetric } = self;
        let ([lines, rows], words) = parts.words("qweight", parts.must("qweight")?)?;
        if lines * 32 % bits != 0 {
            let why = format!(
                "{lines} lines of words are no whole numbers of {bits} bits; is `bits` of the settings true?"
            );
            return Err(parts.wrong("qweight", why));
        }
        let cols = lines * 32 / bits;
        let (shape, scales) = parts.scales("scales", false)?;
        let size = group.unwrap_or(cols);
        let count = cols.div_ceil(size);
        if shape != [count, rows] {
            let why = format!(
                "its shape is {shape:?}, where {rows} rows of {cols} columns of {bits} bits in groups of {size} need {:?}; \
                 are `bits` and `group_size` of the settings true for it? Matrices with settings of their own (`dynamic`) are not read",
                [count, rows]
            );
            return Err(parts.wrong("scales", why));
        }
        if rows * bits % 32 != 0 {
            let why = format!("the zero points of {rows} rows of {bits} bits do not fill words");
            return Err(parts.wrong("qzeros", why));
        }
        let why = format!("{rows} rows and {count} groups of {bits} bits");
        let zeros = parts.words_of("qzeros", parts.must("qzeros")?, [count, rows * bits / 32], &why)?;
        let zeros = if bits == 3 && less_one && symmetric {
            Zeros::Same(4)
        } else {
            let words = if less_one { raised(&zeros, bits) } else { zeros };
            let codes = Codes { words, order: Order::Along, bits, rows: count, cols: rows };
            Zeros::Each { codes, by_row: false }
        };
        Ok(Matrix {
            name: name.into(),
            codes: Codes { words, order: Order::Down, bits, rows, cols },
            zeros,
            scales,
            groups: Groups { count, size, list: parts.list("g_idx", cols)? },
        })
    }
}

/// Words of zero points with the one that was subtracted from each.
fn raised(words: &[u8], bits: usize) -> Bytes {
    if bits == 3 {
        // 32 numbers in three words. The ones go to the lower bits of each, which have room for the sum; the highest bit has no carry.
        let ones = ((1_u128 << 96) - 1) / 7;
        let highest = ones << 2;
        let raise = |three: &[u8; 12]| {
            let mut all = [0; 16];
            all[..12].copy_from_slice(three);
            let all = u128::from_le_bytes(all);
            let sum = ((all & !highest) + ones) ^ (all & highest);
            sum.to_le_bytes().into_iter().take(12)
        };
        return words.as_chunks().0.iter().flat_map(raise).collect::<Vec<u8>>().into();
    }
    let ones = u32::MAX / ((1 << bits) - 1);
    let raise = |word: &[u8; 4]| u32::from_le_bytes(*word).wrapping_add(ones).to_le_bytes();
    words.as_chunks().0.iter().flat_map(raise).collect::<Vec<u8>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    #[test]
    fn a_zero_point_of_zero_gives_back_what_it_borrowed() {
        // [0, 5, 3, 1, 0, 8, 8, 8] of 4 bits, less 0x11111111.
        assert_eq!(*raised(&bytes(&[0x776F_023F]), 4), bytes(&[0x8880_1350]));
        for (bits, ones) in [(2, 0x5555_5555_u32), (4, 0x1111_1111), (8, 0x0101_0101)] {
            for word in [0, 1, ones, 0x0800_8001, 0x8000_0000, u32::MAX] {
                assert_eq!(
                    *raised(&bytes(&[word.wrapping_sub(ones)]), bits),
                    bytes(&[word]),
                    "{bits} {word:x}"
                );
            }
        }
    }

    #[test]
    fn numbers_of_three_bits_are_raised_each_by_itself() {
        let word = |numbers: [u8; 32]| {
            let all = numbers.iter().rev().fold(0_u128, |all, n| all << 3 | u128::from(*n));
            all.to_le_bytes()[..12].to_vec()
        };
        let numbers: [u8; 32] = std::array::from_fn(|i| (i * 5 + i / 8) as u8 % 8);
        assert_eq!(*raised(&word(numbers), 3), word(numbers.map(|n| (n + 1) % 8)));
    }
}
