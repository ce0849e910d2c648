//! A packed matrix, and how it becomes a weight in one of ggml's formats without losing a bit.
//!
//! An element is `scale · (code - zero)`: a half times a small whole number, which is what [`Q4_0`], [`Q5_0`] and [`Q8_0`] are, with a
//! scale for 32 columns. A scale of 64 or 128 columns is repeated. Which format is decided by what the zero points allow, and not
//! by which numbers there are: they take a thirtieth of the codes' room, and a group that uses both ends of its codes, as groups do,
//! needs all of it. What fits none (8 bits that are not centred, scales that are no halves, groups that part a block) is decoded
//! to single precision.

use super::codes::{BLOCK, Block, Codes};
use ogive_tensor::{Bytes, Error, F16, F32, Format, HostWeight, Q4_0, Q5_0, Q8_0, Result, Unpacked};
use std::sync::Arc;

/// Rows that are written at a time: their words fill lines of the cache, and what is written stays in the nearest.
const TILE: usize = 128;

/// A matrix of codes, `[rows, cols]`, with a scale and a zero point for each row and group of columns. Its parts fit each other.
#[derive(Clone, Debug)]
pub(super) struct Matrix {
    pub(super) name: String,
    pub(super) codes: Codes,
    pub(super) zeros: Zeros,
    pub(super) scales: Scales,
    pub(super) groups: Groups,
}

/// The zero points.
#[derive(Clone, Debug)]
pub(super) enum Zeros {
    /// One for all.
    Same(u16),
    /// Packed like the codes: `[groups, rows]`, or `[rows, groups]` if `by_row`.
    Each { codes: Codes, by_row: bool },
}

/// The scales: `[groups, rows]`, or `[rows, groups]` if `by_row`.
#[derive(Clone, Debug)]
pub(super) struct Scales {
    pub(super) bytes: Bytes,
    pub(super) format: &'static Format,
    pub(super) by_row: bool,
}

/// Which group a column belongs to.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    pub(super) count: usize,
    /// Columns of a group, where no list says otherwise.
    pub(super) size: usize,
    /// The group of each column, as words.
    pub(super) list: Option<Bytes>,
}

/// What a matrix becomes.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) format: &'static Format,
    /// The column that each of the weight's columns is, if they have to be moved.
    pub(super) order: Option<Arc<[u32]>>,
    /// Why it is decoded, if it is.
    why: Option<Arc<str>>,
    /// The group of each of the weight's columns.
    groups: Vec<u32>,
}

impl Matrix {
    fn shape(&self) -> [usize; 2] {
        [self.codes.rows, self.codes.cols]
    }

    /// What it becomes. Fails if it has more elements than can be counted, or columns of groups that are not there.
    pub(super) fn plan(&self) -> Result<Plan> {
        let groups = self.groups.of_columns(&self.name, self.codes.cols)?;
        let whole =
            |groups: &[u32]| groups.chunks(BLOCK).all(|b| b.len() == BLOCK && b.iter().all(|g| *g == b[0]));
        let decoded = |groups, why: &str| Plan { format: &F32, order: None, why: Some(why.into()), groups };
        let format = match self.block_format() {
            Some(format) if self.scales.are_halves() => format,
            Some(_) => return Ok(decoded(groups, "no packed format holds scales that are no halves")),
            None => {
                return Ok(decoded(groups, "no packed format holds 8 bits with zero points other than 128"));
            }
        };
        if whole(&groups) {
            return Ok(Plan { format, order: None, why: None, groups });
        }
        let mut order: Vec<u32> = (0..).take(groups.len()).collect();
        let group = |col: &u32| groups.get(*col as usize).copied();
        order.sort_by_key(group);
        let sorted: Vec<u32> = order.iter().filter_map(group).collect();
        Ok(if whole(&sorted) {
            Plan { format, order: Some(order.into()), why: None, groups: sorted }
        } else if !self.codes.cols.is_multiple_of(BLOCK) {
            decoded(groups, &format!("rows of {} columns are no whole blocks of {BLOCK}", self.codes.cols))
        } else {
            decoded(groups, &format!("groups of {} columns are no whole blocks of {BLOCK}", self.groups.size))
        })
    }

    /// Bits that the file has for an element, its share of scales and zero points included.
    fn file_bits(&self) -> f32 {
        let zeros = match &self.zeros {
            Zeros::Same(_) => 0,
            Zeros::Each { codes, .. } => codes.words.len(),
        };
        let ([rows, cols], bytes) = (self.shape(), self.codes.words.len() + zeros + self.scales.bytes.len());
        8.0 * bytes as f32 / (rows as f32 * cols as f32).max(1.0)
    }

    /// The format that has every number that `code - zero` can be.
    fn block_format(&self) -> Option<&'static Format> {
        let zeros = self.zeros();
        let (low, high) = zeros.iter().fold((u16::MAX, 0), |(low, high), z| (low.min(*z), high.max(*z)));
        let (least, most) = (-i32::from(high), (1 << self.codes.bits) - 1 - i32::from(low));
        let all = [(&Q4_0, 8), (&Q5_0, 16), (&Q8_0, 128)];
        all.into_iter().find(|(_, end)| least >= -end && most < *end).map(|(format, _)| format)
    }

    /// The weight, whose bytes are made when they are read.
    pub(super) fn weight(self) -> Result<HostWeight> {
        let (plan, [rows, cols]) = (self.plan()?, self.shape());
        let len = rows.checked_mul(plan.format.row_bytes(cols)).filter(|n| isize::try_from(*n).is_ok());
        let len =
            len.ok_or_else(|| Error::invalid(&self.name, "it has more elements than can be counted"))?;
        let (name, format, order) = (self.name.clone(), plan.format, plan.order.clone());
        let unpacked = plan.why.clone().map(|why| Unpacked::new(self.file_bits(), why));
        let bytes = Bytes::lazy(len, move |bytes| self.fill(&plan, bytes));
        let weight = HostWeight::new(name, [1, rows, cols], format, bytes)?.with_unpacked(unpacked);
        match order {
            Some(order) => weight.with_input_perm(order),
            None => Ok(weight),
        }
    }

    /// The packed bytes, row by row.
    fn fill(&self, plan: &Plan, to: &mut [u8]) {
        if std::ptr::eq(plan.format, &F32) {
            self.decode(plan, to);
        } else {
            self.pack(plan, to);
        }
        self.codes.words.release();
    }

    /// Blocks with repeated scales.
    fn pack(&self, plan: &Plan, to: &mut [u8]) {
        let ([rows, cols], format) = (self.shape(), plan.format);
        let (words, zeros, scales) =
            (self.codes.words(), self.zeros(), self.scales.halves(&self.groups, rows));
        let (put, stride) = (Put::of(format), format.row_bytes(cols));
        let mut codes: [Block; TILE] = [[0; BLOCK]; TILE];
        for (tile, to) in to.chunks_mut((stride * TILE).max(1)).enumerate() {
            let first = tile * TILE;
            let here = first..rows.min(first + TILE);
            let codes = &mut codes[..here.len()];
            for (block, groups) in plan.groups.chunks(BLOCK).enumerate() {
                match plan.order.as_deref().and_then(|order| order.chunks(BLOCK).nth(block)) {
                    Some(cols) => self.codes.gather(words, here.clone(), cols, codes),
                    None => self.codes.block(words, here.clone(), block, codes),
                }
                let group = groups[0] as usize * rows;
                let beside = zeros[group..][here.clone()].iter().zip(&scales[group..][here.clone()]);
                for (r, (codes, (zero, scale))) in codes.iter().zip(beside).enumerate() {
                    let at = r * stride + block * format.block_bytes;
                    put.block(codes, *zero, *scale, &mut to[at..at + format.block_bytes]);
                }
            }
        }
    }

    /// Single precision, element by element.
    fn decode(&self, plan: &Plan, to: &mut [u8]) {
        let [rows, cols] = self.shape();
        let (words, zeros, scales) =
            (self.codes.words(), self.zeros(), self.scales.singles(&self.groups, rows));
        for (row, to) in to.chunks_mut((4 * cols).max(1)).enumerate() {
            for (col, (to, group)) in to.as_chunks_mut::<4>().0.iter_mut().zip(&plan.groups).enumerate() {
                let at = *group as usize * rows + row;
                let code = i32::from(self.codes.at(words, row, col)) - i32::from(zeros[at]);
                *to = (code as f32 * scales[at]).to_le_bytes();
            }
        }
    }

    /// `[groups, rows]`
    fn zeros(&self) -> Vec<u16> {
        let [rows, _] = self.shape();
        match &self.zeros {
            Zeros::Same(zero) => vec![*zero; rows * self.groups.count],
            Zeros::Each { codes, by_row } => {
                let words = codes.words();
                let at = |group, row| {
                    if *by_row { codes.at(words, row, group) } else { codes.at(words, group, row) }
                };
                let all = (0..self.groups.count).flat_map(|g| (0..rows).map(move |r| (g, r)));
                all.map(|(g, r)| u16::from(at(g, r))).collect()
            }
        }
    }
}

impl Scales {
    /// Whether all are halves, whatever they are written as.
    fn are_halves(&self) -> bool {
        if std::ptr::eq(self.format, &F16) {
            return true;
        }
        let mut half = [0; 2];
        self.decoded().into_iter().all(|v| {
            let _ = F16.encode_row(&[v], &mut half);
            let mut back = [0.0];
            F16.decode_row(&half, &mut back);
            back == [v]
        })
    }

    fn decoded(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.bytes.len() / self.format.block_bytes];
        self.format.decode_row(&self.bytes, &mut values);
        values
    }

    /// `[groups, rows]`
    fn singles(&self, groups: &Groups, rows: usize) -> Vec<f32> {
        self.by_group(self.decoded(), groups, rows)
    }

    /// `[groups, rows]`
    fn halves(&self, groups: &Groups, rows: usize) -> Vec<[u8; 2]> {
        if std::ptr::eq(self.format, &F16) {
            return self.by_group(self.bytes.as_chunks().0.to_vec(), groups, rows);
        }
        let halves = self.singles(groups, rows).into_iter().map(|v| {
            let mut half = [0; 2];
            let _ = F16.encode_row(&[v], &mut half);
            half
        });
        halves.collect()
    }

    fn by_group<T: Copy>(&self, values: Vec<T>, groups: &Groups, rows: usize) -> Vec<T> {
        if !self.by_row {
            return values;
        }
        let columns = (0..groups.count).flat_map(|g| values.iter().skip(g).step_by(groups.count));
        let turned: Vec<T> = columns.copied().collect();
        debug_assert_eq!(turned.len(), groups.count * rows);
        turned
    }
}

impl Groups {
    /// The group of each of `cols` columns.
    fn of_columns(&self, name: &str, cols: usize) -> Result<Vec<u32>> {
        let Some(list) = &self.list else {
            return Ok((0..cols).map(|col| (col / self.size.max(1)) as u32).collect());
        };
        let groups = list.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect::<Vec<_>>();
        match groups.iter().position(|g| *g as usize >= self.count) {
            None => Ok(groups),
            Some(col) => {
                let why = format!(
                    "the list of groups gives column {col} the group {}, of {}; the file is damaged",
                    groups[col].cast_signed(),
                    self.count
                );
                Err(Error::invalid(name, why))
            }
        }
    }
}

/// How a block is written.
#[derive(Clone, Copy)]
enum Put {
    Q4_0,
    Q5_0,
    Q8_0,
}

impl Put {
    fn of(format: &Format) -> Self {
        match format.block_bytes {
            18 => Self::Q4_0,
            22 => Self::Q5_0,
            _ => Self::Q8_0,
        }
    }

    /// Writes 32 codes that fit the format, with their zero point and scale.
    fn block(self, codes: &Block, zero: u16, scale: [u8; 2], to: &mut [u8]) {
        let Some((d, to)) = to.split_first_chunk_mut::<2>() else { return };
        *d = scale;
        // Eight codes at a time. What is added is none of their zero points below 0 and none of their sums above 31, but for
        // those of 8 bits: their zero point is 128, which turns one bit.
        let more = |end: u16| u64::from(end.saturating_sub(zero)) * EACH;
        match self {
            Self::Q4_0 => put_nibbles(eights(codes, |eight| eight + more(8)), to),
            Self::Q5_0 => {
                let eights = eights(codes, |eight| eight + more(16));
                let Some((fifth, to)) = to.split_first_chunk_mut() else { return };
                // The fifth bit of each byte becomes one of eight neighbours.
                *fifth =
                    eights.map(|eight| ((eight >> 4 & EACH).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8);
                put_nibbles(eights.map(|eight| eight & (15 * EACH)), to);
            }
            Self::Q8_0 => {
                for (to, eight) in
                    to.as_chunks_mut().0.iter_mut().zip(eights(codes, |eight| eight ^ (128 * EACH)))
                {
                    *to = eight.to_le_bytes();
                }
            }
        }
    }
}

/// `f` of eight codes at a time, the first in the lowest byte.
fn eights(codes: &Block, f: impl Fn(u64) -> u64) -> [u64; 4] {
    let mut eights = [0; 4];
    for (to, eight) in eights.iter_mut().zip(codes.as_chunks().0) {
        *to = f(u64::from_le_bytes(*eight));
    }
    eights
}

/// The lowest bit of each of eight bytes.
const EACH: u64 = 0x0101_0101_0101_0101;

/// Column `j` in the low half of byte `j`, column `j + 16` in the high half.
fn put_nibbles([a, b, c, d]: [u64; 4], to: &mut [u8]) {
    for (to, both) in to.as_chunks_mut().0.iter_mut().zip([a | c << 4, b | d << 4]) {
        *to = both.to_le_bytes();
    }
}
