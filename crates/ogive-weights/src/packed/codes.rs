//! Where a packed matrix keeps its small whole numbers: in words of 32 bits, little-endian, in one of three orders.
//!
//! Blocks of 32 columns are taken out at once, for some neighbouring rows: the orders of AutoGPTQ and AutoAWQ have neighbouring rows in
//! neighbouring words, so a block of a single row would read a line of the cache for each of its words.

use ogive_tensor::Bytes;
use std::{array::from_fn, ops::Range};

/// Columns of a block, as ggml's formats have them.
pub(super) const BLOCK: usize = 32;

/// The 32 numbers of a row's block.
pub(super) type Block = [u8; BLOCK];

/// Which word has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Words `[rows, cols · bits / 32]`: each row is a stream of bits. So compressed-tensors.
    Along,
    /// Words `[cols · bits / 32, rows]`: the same streams, side by side. So AutoGPTQ.
    Down,
    /// Words `[cols, rows / 8]` of eight rows each, those of even number first. 4 bits; so AutoAWQ's `gemm`.
    Interleaved,
}

/// A matrix of numbers of `bits` bits: 4 for [`Order::Interleaved`], else 2, 3, 4 or 8. Rows of streams are whole words.
#[derive(Clone, Debug)]
pub(super) struct Codes {
    pub(super) words: Bytes,
    pub(super) order: Order,
    pub(super) bits: usize,
    pub(super) rows: usize,
    pub(super) cols: usize,
}

/// Where in its word [`Order::Interleaved`] has each of eight rows.
const NIBBLE: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

impl Codes {
    /// The words, to be had once and not for each number: the bytes may have to be found first.
    pub(super) fn words(&self) -> &[[u8; 4]] {
        self.words.as_chunks().0
    }

    /// The number at `row` and `col`: the definition of the orders. What is outside the words is 0.
    pub(super) fn at(&self, words: &[[u8; 4]], row: usize, col: usize) -> u8 {
        let word = |i: usize| words.get(i).map_or(0, |w| u32::from_le_bytes(*w));
        if self.order == Order::Interleaved {
            let nibble = NIBBLE.get(row % 8).map_or(0, |n| 4 * n);
            return (word(col * (self.rows / 8) + row / 8) >> nibble) as u8 & 15;
        }
        let (i, shift) = (col * self.bits / 32, col * self.bits % 32);
        let part = |i: usize| match self.order {
            Order::Down => word(i * self.rows + row),
            _ => word(row * (self.cols * self.bits / 32) + i),
        };
        // Of 3 bits some are in two words.
        let next = if shift + self.bits > 32 { part(i + 1) } else { 0 };
        let both = u64::from(part(i)) | u64::from(next) << 32;
        (both >> shift) as u8 & ((1_u16 << self.bits) - 1) as u8
    }

    /// The numbers of block `block` for each of `rows`, to `to`.
    pub(super) fn block(&self, words: &[[u8; 4]], rows: Range<usize>, block: usize, to: &mut [Block]) {
        match (self.order, self.bits) {
            (Order::Interleaved, _) => self.interleaved(words, rows, block, to),
            (Order::Down, 2) => self.down::<2>(words, rows, block, to),
            (Order::Down, 3) => self.down::<3>(words, rows, block, to),
            (Order::Down, 4) => self.down::<4>(words, rows, block, to),
            (Order::Down, _) => self.down::<8>(words, rows, block, to),
            (Order::Along, 4) => self.along::<4>(words, rows, block, to),
            (Order::Along, _) => self.along::<8>(words, rows, block, to),
        }
    }

    /// The same of the columns `cols`, wherever they are.
    pub(super) fn gather(&self, words: &[[u8; 4]], rows: Range<usize>, cols: &[u32], to: &mut [Block]) {
        for (i, &col) in cols.iter().enumerate().take(BLOCK) {
            for (row, to) in rows.clone().zip(to.iter_mut()) {
                to[i] = self.at(words, row, col as usize);
            }
        }
    }

    fn down<const BITS: usize>(&self, words: &[[u8; 4]], rows: Range<usize>, block: usize, to: &mut [Block]) {
        let lines: [&[[u8; 4]]; BITS] = from_fn(|i| {
            let line = (block * BITS + i) * self.rows;
            words.get(line + rows.start..line + rows.end).unwrap_or_default()
        });
        for (r, to) in to.iter_mut().enumerate() {
            *to = unpack(lines.map(|line| line.get(r).map_or(0, |w| u32::from_le_bytes(*w))));
        }
    }

    fn along<const BITS: usize>(
        &self,
        words: &[[u8; 4]],
        rows: Range<usize>,
        block: usize,
        to: &mut [Block],
    ) {
        let stride = self.cols * BITS / 32;
        for (row, to) in rows.zip(to) {
            let own = words.get(row * stride + block * BITS..).and_then(|w| w.first_chunk::<BITS>());
            *to = unpack(own.map_or([0; BITS], |own| own.map(u32::from_le_bytes)));
        }
    }

    fn interleaved(&self, words: &[[u8; 4]], rows: Range<usize>, block: usize, to: &mut [Block]) {
        let stride = self.rows / 8;
        for (eight, to) in (rows.start / 8..).zip(to.as_chunks_mut::<8>().0) {
            for part in 0..BLOCK / 8 {
                let turned = turned(from_fn(|i| {
                    let word = words.get((block * BLOCK + part * 8 + i) * stride + eight);
                    word.map_or(0, |w| u32::from_le_bytes(*w))
                }));
                for (to, nibble) in to.iter_mut().zip(NIBBLE) {
                    to.as_chunks_mut::<8>().0[part] = spread(turned[nibble]);
                }
            }
        }
    }
}

/// Eight words of eight nibbles, with nibble `i` of word `k` where nibble `k` of word `i` was.
fn turned(mut words: [u32; 8]) -> [u32; 8] {
    for (step, mask) in [(4, 0x0000_FFFF), (2, 0x00FF_00FF), (1, 0x0F0F_0F0F)] {
        for i in (0..8).filter(|i| i & step == 0) {
            let differ = (words[i] >> (4 * step) ^ words[i + step]) & mask;
            words[i] ^= differ << (4 * step);
            words[i + step] ^= differ;
        }
    }
    words
}

/// The nibbles of a word, the lowest first.
fn spread(word: u32) -> [u8; 8] {
    let x = u64::from(word);
    let x = (x | x << 16) & 0x0000_FFFF_0000_FFFF;
    let x = (x | x << 8) & 0x00FF_00FF_00FF_00FF;
    let x = (x | x << 4) & 0x0F0F_0F0F_0F0F_0F0F;
    x.to_le_bytes()
}

/// The 32 numbers of a stream of as many words as each has bits.
fn unpack<const BITS: usize>(words: [u32; BITS]) -> Block {
    let mut codes = [0; BLOCK];
    match BITS {
        4 => {
            for (to, word) in codes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
                *to = spread(word);
            }
        }
        8 => {
            for (to, word) in codes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
                *to = word.to_le_bytes();
            }
        }
        _ => {
            // 96 bits at most.
            let stream = words.iter().rev().fold(0_u128, |stream, word| stream << 32 | u128::from(*word));
            for (i, to) in codes.iter_mut().enumerate() {
                *to = (stream >> (i * BITS)) as u8 & ((1_u16 << BITS) - 1) as u8;
            }
        }
    }
    codes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_what_the_definition_says() {
        let kinds = [(Order::Along, 4), (Order::Along, 8), (Order::Interleaved, 4)]
            .into_iter()
            .chain([2, 3, 4, 8].map(|bits| (Order::Down, bits)));
        for (order, bits) in kinds {
            let (rows, cols) = (24, 96);
            let bytes: Vec<u8> = (0..rows * cols * bits / 8).map(|i| (i * 97 + i / 5) as u8).collect();
            let codes = Codes { words: bytes.into(), order, bits, rows, cols };
            let words = codes.words();
            let columns: Vec<u32> = (32..64).collect();
            let (mut got, mut gathered) = ([[0; BLOCK]; 16], [[0; BLOCK]; 16]);
            codes.block(words, 8..24, 1, &mut got);
            codes.gather(words, 8..24, &columns, &mut gathered);
            assert_eq!(got, gathered, "{order:?} {bits}");
            let most = got.iter().flatten().max().copied();
            assert_eq!(most, Some(((1_u16 << bits) - 1) as u8), "{order:?} {bits}");
        }
    }

    #[test]
    fn the_orders_are_those_of_the_packers() {
        let of = |order, bits, rows, cols, words: &[u32]| Codes {
            words: words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>().into(),
            order,
            bits,
            rows,
            cols,
        };
        // AutoAWQ packs rows 0, 2, 4, 6, 1, 3, 5, 7, the first in the lowest bits.
        let awq = of(Order::Interleaved, 4, 8, 1, &[0x7531_6420]);
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(|row| awq.at(awq.words(), row, 0)), [0, 1, 2, 3, 4, 5, 6, 7]);
        // AutoGPTQ's eleventh number of 3 bits: two of them in the first word, one in the second; and the 22nd the other way.
        let gptq = of(Order::Down, 3, 1, 32, &[0xC000_0000, 0x8000_0001, 0x0000_0003]);
        let nonzero = (0..32).filter(|col| gptq.at(gptq.words(), 0, *col) == 7);
        assert_eq!(nonzero.collect::<Vec<_>>(), [10, 21]);
    }
}
