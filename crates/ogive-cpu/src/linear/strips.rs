//! Rows of a weight in strips of sixteen, so that a register with a lane for each row is read straight through.
//!
//! How the words of a dense strip lie is written in [`super::columns`]. A packed one holds what its sixteen rows hold and not a byte
//! more, block after block along the columns. Within a block comes one word (four bytes) of each of the sixteen rows, then another of
//! each, in the order in which a kernel with one token wants them ([`Packed::place`]); last the bytes that fill no word, as rows have
//! them. Every format with kernels keeps four neighbouring elements in the same bits of one word's bytes, or a multiple of four of them
//! (see [`Packed::odd`] for the two bytes that stand in the way, and [`Packed::high`] for the word that is given such an order), so one
//! rule serves all, and no format needs a packed form of its own, but for NVFP4: its blocks of four scales are laid as four of one, each with its scale
//! behind it, so that kernels meet MXFP4's form with half as many codes. Words of codes that name groups ([`Book`]) lie so too, with what else is of the same
//! weights beside them. The price is a copy; the file's pages are given back when it is made.

use super::{
    book::{Book, CODED},
    columns,
    dense::Dense,
    packed::Packed,
};
use crate::{
    pool::Pool,
    room::{Room, Rooms},
};
use ogive_tensor::Bytes;
use std::sync::{
    Arc,
    atomic::{AtomicI32, Ordering},
};

/// Bytes of strips that a thread lays at a time.
const AT_A_TIME: usize = 1 << 20;
/// Bytes of a part: what may be in memory as a file has it and in strips both.
const PART: usize = if cfg!(test) { 12 << 10 } else { 16 << 20 };
/// Rows of a strip.
pub(crate) const STRIP: usize = 16;

impl Packed {
    /// Where a block's bytes that fill no word begin, and how many there are: the factor in front of or behind the codes.
    pub(crate) const fn odd(self) -> (usize, usize) {
        match self {
            Self::Q4_0 | Self::Q5_0 | Self::Q8_0 | Self::Iq4Nl => (0, 2),
            Self::Mxfp4 | Self::Nvfp4 => (0, 1),
            Self::Tq2 => (64, 2),
            Self::Q3K => (108, 2),
            Self::Q6K => (208, 2),
            Self::Q4_1 | Self::Q5_1 | Self::Q2K | Self::Q4K | Self::Q5K | Self::Iq4Xs | Self::Coded => (0, 0),
        }
    }

    /// Which word has a bit of each of 32 codes, one after the other. In a strip bit `i` of its byte `j` is code `4 i + j`'s, so that four
    /// neighbours' are in the same place of its bytes, as their other bits are: [`by_fours`].
    const fn high(self) -> Option<usize> {
        match self {
            Self::Q5_0 => Some(0),
            Self::Q5_1 => Some(1),
            _ => None,
        }
    }

    /// Where word `w` of a row's block, of those that are whole, stands among the words of a strip's block. Mostly where the file has it;
    /// otherwise memory would be read to and fro, which a processor that reads ahead of a program does not follow.
    pub(crate) const fn place(self, w: usize) -> usize {
        match self {
            // Sub-scales first, which the file has behind the codes; then the high bits among the low ones that are read with them first.
            Self::Q3K => match w {
                0..8 => 4 + 2 * w,
                8..16 => 3 + 2 * (w - 8),
                16..24 => 3 + w,
                _ => w - 24,
            },
            // The same: high bits among the first low ones.
            Self::Q5K => match w {
                4..12 => 5 + 2 * (w - 4),
                12..20 => 4 + 2 * (w - 12),
                _ => w,
            },
            // Sub-scales first; then, for each half `n` of the codes and each half `h` of 32, two words of low bits and the one of high
            // bits that goes with both.
            Self::Q6K => {
                let (n, h, i) =
                    if w < 32 { (w / 16, w / 4 % 2, w % 4) } else { (w / 8 % 2, w / 4 % 2, w % 4) };
                match w {
                    0..32 => 4 + 24 * n + 12 * h + 3 * i + w / 8 % 2,
                    32..48 => 4 + 24 * n + 12 * h + 3 * i + 2,
                    _ => w - 48,
                }
            }
            _ => w,
        }
    }
}

/// A word with its bits elsewhere.
fn changed(word: [u8; 4], order: fn(u32) -> u32) -> [u8; 4] {
    order(u32::from_le_bytes(word)).to_le_bytes()
}

/// The word with bits `P` and `Q` of each bit's number exchanged.
fn swap<const P: u32, const Q: u32>(v: u32) -> u32 {
    // Of each pair of bits that change places the lower, whose number has the lower of the two bits and not the other.
    let lower = const {
        let (mut mask, mut bit) = (0, 0);
        while bit < 32 {
            if bit >> P & 1 == 1 && bit >> Q & 1 == 0 {
                mask |= 1 << bit;
            }
            bit += 1;
        }
        mask
    };
    let apart = const { (1 << Q) - (1 << P) };
    let differ = (v >> apart ^ v) & lower;
    v ^ differ ^ differ << apart
}

/// Bit `4 i + j` becomes bit `i` of byte `j`: its number, of five bits, is turned by two.
fn by_fours(v: u32) -> u32 {
    swap::<2, 4>(swap::<1, 2>(swap::<2, 3>(swap::<0, 2>(v))))
}

/// And back: code by code, as a file has them.
fn one_by_one(v: u32) -> u32 {
    swap::<0, 2>(swap::<2, 3>(swap::<1, 2>(swap::<2, 4>(v))))
}

/// Lays the whole blocks of sixteen equally long rows into `strip`, which is as long as all of them.
///
/// # Panics
/// If a length is another.
pub(crate) fn pack(format: Packed, rows: &[&[u8]; STRIP], strip: &mut [u8]) {
    assert!(rows.iter().all(|row| row.len() * STRIP == strip.len()));
    // Bytes of a block, and what `odd` and `place` say: known to the compiler, as blocks of thirty-two elements are small.
    let as_is = |w| w;
    match format {
        Packed::Mxfp4 => lay::<17, 0, 1>(rows, strip, as_is),
        Packed::Nvfp4 => lay_sixteens(rows, strip),
        Packed::Q4_0 | Packed::Iq4Nl => lay::<18, 0, 2>(rows, strip, as_is),
        Packed::Q4_1 => lay::<20, 0, 0>(rows, strip, as_is),
        Packed::Q5_0 => lay::<22, 0, 2>(rows, strip, as_is),
        Packed::Q5_1 => lay::<24, 0, 0>(rows, strip, as_is),
        Packed::Q8_0 => lay::<34, 0, 2>(rows, strip, as_is),
        Packed::Q2K => lay::<84, 0, 0>(rows, strip, as_is),
        Packed::Q3K => lay::<110, 108, 2>(rows, strip, |w| Packed::Q3K.place(w)),
        Packed::Iq4Xs => lay::<136, 0, 0>(rows, strip, as_is),
        Packed::Tq2 => lay::<66, 64, 2>(rows, strip, as_is),
        Packed::Coded => lay::<CODED, 0, 0>(rows, strip, as_is),
        Packed::Q4K => lay::<144, 0, 0>(rows, strip, as_is),
        Packed::Q5K => lay::<176, 0, 0>(rows, strip, |w| Packed::Q5K.place(w)),
        Packed::Q6K => lay::<210, 208, 2>(rows, strip, |w| Packed::Q6K.place(w)),
    }
    if let Some(w) = format.high() {
        for block in strip.chunks_exact_mut(STRIP * format.block().1) {
            let words = &mut block.as_chunks_mut().0[STRIP * w..][..STRIP];
            words.iter_mut().for_each(|word| *word = changed(*word, by_fours));
        }
    }
}

/// The same of a format whose codes name groups of levels.
///
/// # Panics
/// If a length is another.
fn pack_book(book: Book, rows: &[&[u8]; STRIP], strip: &mut [u8]) {
    assert!(rows.iter().all(|row| row.len() * STRIP == strip.len()));
    match book {
        Book::Iq1S => lay::<50, 0, 2>(rows, strip, |w| Book::Iq1S.place(w)),
        Book::Iq1M => lay::<56, 0, 0>(rows, strip, |w| Book::Iq1M.place(w)),
        Book::Iq2Xxs => lay::<66, 0, 2>(rows, strip, |w| w),
        Book::Iq2Xs => lay::<74, 0, 2>(rows, strip, |w| Book::Iq2Xs.place(w)),
        Book::Iq2S => lay::<82, 0, 2>(rows, strip, |w| Book::Iq2S.place(w)),
        Book::Iq3Xxs => lay::<98, 0, 2>(rows, strip, |w| Book::Iq3Xxs.place(w)),
        Book::Iq3S => lay::<110, 0, 2>(rows, strip, |w| Book::Iq3S.place(w)),
        Book::Tq1 => lay::<54, 52, 2>(rows, strip, |w| w),
    }
}

/// The same for blocks of `SIZE` bytes, of which `ODD` from `AT` on fill no word.
fn lay<const SIZE: usize, const AT: usize, const ODD: usize>(
    rows: &[&[u8]; STRIP],
    strip: &mut [u8],
    place: impl Fn(usize) -> usize,
) {
    let rows = rows.map(|row| row.as_chunks::<SIZE>().0);
    for (b, to) in strip.chunks_exact_mut(STRIP * SIZE).enumerate() {
        let (words, tail) = to.split_at_mut((SIZE - ODD) * STRIP);
        let words = words.as_chunks_mut::<4>().0.as_chunks_mut::<STRIP>().0;
        for (r, row) in rows.iter().enumerate() {
            let block = &row[b];
            let code = if AT == 0 { &block[ODD..] } else { &block[..AT] };
            for (w, from) in code.as_chunks::<4>().0.iter().enumerate() {
                words[place(w)][r] = *from;
            }
            tail[r * ODD..][..ODD].copy_from_slice(&block[AT..AT + ODD]);
        }
    }
}

/// The same for NVFP4, with blocks of 16: two words of codes of each row, then each row's scale.
fn lay_sixteens(rows: &[&[u8]; STRIP], strip: &mut [u8]) {
    let fours = strip.as_chunks_mut::<{ 9 * STRIP }>().0.as_chunks_mut::<4>().0;
    for (r, row) in rows.iter().enumerate() {
        for (block, to) in row.as_chunks::<36>().0.iter().zip(&mut *fours) {
            let (scales, codes) = block.split_at(4);
            for ((to, scale), codes) in to.iter_mut().zip(scales).zip(codes.as_chunks::<8>().0) {
                to[4 * r..][..4].copy_from_slice(&codes[..4]);
                to[4 * STRIP + 4 * r..][..4].copy_from_slice(&codes[4..]);
                to[8 * STRIP + r] = *scale;
            }
        }
    }
}

/// And back.
fn sixteens(strip: &[u8], r: usize, row: &mut [u8]) {
    let fours = strip.as_chunks::<{ 9 * STRIP }>().0.as_chunks::<4>().0;
    for (block, from) in row.as_chunks_mut::<36>().0.iter_mut().zip(fours) {
        let (scales, codes) = block.split_at_mut(4);
        for ((from, scale), codes) in from.iter().zip(scales).zip(codes.as_chunks_mut::<8>().0) {
            codes[..4].copy_from_slice(&from[4 * r..][..4]);
            codes[4..].copy_from_slice(&from[4 * STRIP + 4 * r..][..4]);
            *scale = from[8 * STRIP + r];
        }
    }
}

/// Gives back row `r` of a strip: [`pack`], read backwards.
///
/// # Panics
/// If there is no such row, or `row` is not a sixteenth of the strip.
pub(crate) fn unpack(format: Packed, strip: &[u8], r: usize, row: &mut [u8]) {
    if format == Packed::Nvfp4 {
        return sixteens(strip, r, row);
    }
    let high = |w, word| if format.high() == Some(w) { changed(word, one_by_one) } else { word };
    take(format.block().1, format.odd(), |w| format.place(w), high, strip, r, row);
}

/// The same of a format whose codes name groups of levels.
///
/// # Panics
/// If there is no such row, or `row` is not a sixteenth of the strip.
fn unpack_book(book: Book, strip: &[u8], r: usize, row: &mut [u8]) {
    take(book.bytes(), book.odd(), |w| book.place(w), |_, word| word, strip, r, row);
}

/// The same for blocks of `size` bytes, of which `odd` from `at` on fill no word; `word` gives back what the file has in place of one.
fn take(
    size: usize,
    (at, odd): (usize, usize),
    place: impl Fn(usize) -> usize,
    word: impl Fn(usize, [u8; 4]) -> [u8; 4],
    strip: &[u8],
    r: usize,
    row: &mut [u8],
) {
    assert!(r < STRIP && row.len() * STRIP == strip.len());
    for (from, to) in strip.chunks_exact(STRIP * size).zip(row.chunks_exact_mut(size)) {
        let (words, tail) = from.split_at((size - odd) * STRIP);
        let (low, rest) = to.split_at_mut(at);
        let (middle, high) = rest.split_at_mut(odd);
        middle.copy_from_slice(&tail[r * odd..][..odd]);
        let code = if at == 0 { high } else { low };
        let words = words.as_chunks::<4>().0.as_chunks::<STRIP>().0;
        for (w, to) in code.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *to = word(w, words[place(w)][r]);
        }
    }
}

/// What strips are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Packed(Packed),
    Coded(Book),
    Dense(Dense),
    /// Rows of whole words, one after the other.
    Words,
}

/// A weight in strips, or its first rows.
#[derive(Clone, Debug)]
pub(crate) struct Strips {
    /// Each begins at a page of its own. Rows that are missing in an expert's last strip are zeros.
    parts: Vec<Arc<Room>>,
    /// Strips of a part, but the last.
    each: usize,
    of: Of,
    experts: usize,
    /// Rows of an expert.
    rows: usize,
    /// Bytes of a strip.
    strip: usize,
    /// Bytes of a row in the file.
    row_bytes: usize,
    /// Of bf16 the smallest exponent, as [`columns::least`] has it.
    least: i32,
}

impl Strips {
    /// Strips for `experts` matrices of so many rows, none of which is laid; `None` where there is nothing to lay.
    pub(crate) fn new(of: Of, [experts, rows, row_bytes]: [usize; 3]) -> Option<Self> {
        // Without rows there may be more columns than can be multiplied.
        if experts == 0 || rows == 0 {
            return None;
        }
        let strip = STRIP
            * match of {
                Of::Packed(_) | Of::Coded(_) | Of::Words => row_bytes,
                Of::Dense(kind) => kind.strip_row_bytes(row_bytes / kind.bytes()),
            };
        experts.checked_mul(rows.div_ceil(STRIP))?.checked_mul(strip).filter(|len| *len > 0)?;
        let each = (PART / strip).max(1);
        Some(Self { parts: Vec::new(), each, of, experts, rows, strip, row_bytes, least: i32::MAX })
    }

    /// These strips and another part, laid on all threads; `bytes` are those of the whole weight. `None` where there is no memory for it.
    pub(crate) fn more(&self, pool: &Pool, rooms: &Rooms, bytes: &Bytes) -> Option<Self> {
        let Self { of, rows, strip, row_bytes, .. } = *self;
        // Strips of an expert, and those that are laid.
        let (each, before) = (rows.div_ceil(STRIP), self.count());
        let mut room = rooms.take((self.experts * each - before).min(self.each) * strip)?;
        let missing = vec![0; row_bytes];
        let smallest = AtomicI32::new(self.least);
        let lay = |i: usize, strip: &mut [u8]| {
            let (expert, first) = (i / each, i % each * STRIP);
            let row = |r: usize| match first + r < rows {
                true => &bytes[(expert * rows + first + r) * row_bytes..][..row_bytes],
                false => &missing,
            };
            let rows = std::array::from_fn(row);
            match of {
                Of::Packed(format) => pack(format, &rows, strip),
                Of::Coded(book) => pack_book(book, &rows, strip),
                Of::Dense(kind) => columns::pack(kind, &rows, strip),
                Of::Words => columns::pack(Dense::F32, &rows, strip),
            }
            if of == Of::Dense(Dense::Bf16) {
                let pairs = strip.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b));
                smallest.fetch_min(columns::least(pairs), Ordering::Relaxed);
            }
        };
        let at_a_time = (AT_A_TIME / strip).max(1);
        pool.chunks(&mut room, at_a_time * strip, &|i, strips| {
            let first = before + i * at_a_time;
            strips.chunks_exact_mut(strip).enumerate().for_each(|(j, strip)| lay(first + j, strip));
        });
        let parts = self.parts.iter().cloned().chain([Arc::new(room)]).collect();
        Some(Self { parts, least: smallest.into_inner(), ..*self })
    }

    /// Strips that are laid.
    fn count(&self) -> usize {
        (self.parts.len() * self.each).min(self.experts * self.rows.div_ceil(STRIP))
    }

    /// Rows that are laid, counted through all experts.
    pub(crate) fn laid(&self) -> usize {
        let (count, each) = (self.count(), self.rows.div_ceil(STRIP));
        count / each * self.rows + (count % each * STRIP).min(self.rows)
    }

    /// Whether those are all.
    pub(crate) fn are_all(&self) -> bool {
        self.laid() == self.experts * self.rows
    }

    /// The strip that row `row` is in, counted through all experts, and its number there.
    ///
    /// # Panics
    /// If there is no such row, or it is not laid.
    pub(crate) fn strip(&self, row: usize) -> (&[u8], usize) {
        let (expert, r) = (row / self.rows, row % self.rows);
        let strip = expert * self.rows.div_ceil(STRIP) + r / STRIP;
        let part = &self.parts[strip / self.each];
        (&part[strip % self.each * self.strip..][..self.strip], r % STRIP)
    }

    /// The bytes of row `row` as the file has them.
    ///
    /// # Panics
    /// If there is no such row.
    pub(crate) fn row(&self, row: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.row_bytes];
        let (strip, r) = self.strip(row);
        match self.of {
            Of::Packed(format) => unpack(format, strip, r, &mut bytes),
            Of::Coded(book) => unpack_book(book, strip, r, &mut bytes),
            Of::Dense(kind) => columns::unpack(kind, strip, r, &mut bytes),
            Of::Words => columns::unpack(Dense::F32, strip, r, &mut bytes),
        }
        bytes
    }

    /// Of bf16 the smallest exponent.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn least(&self) -> i32 {
        self.least
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_tensor::FORMATS;

    #[test]
    fn what_is_laid_in_strips_can_be_read_back() {
        let pool = Pool::new(2);
        let packed = FORMATS.iter().filter_map(|f| Packed::of(f)).map(|f| (Of::Packed(f), f.block().1));
        for (of, size) in packed.chain(Book::ALL.iter().map(|(book, _)| (Of::Coded(*book), book.bytes()))) {
            let (experts, rows, row_bytes) = (2, 21, 3 * size);
            let bytes = (0..experts * rows * row_bytes).map(|i| (i * 7 + i / 256 * 13) as u8);
            let bytes = Bytes::from(bytes.collect::<Vec<u8>>());
            let mut strips = Strips::new(of, [experts, rows, row_bytes]).unwrap();
            while !strips.are_all() {
                strips = strips.more(&pool, &Rooms::default(), &bytes).unwrap();
            }
            for (r, want) in bytes.chunks_exact(row_bytes).enumerate() {
                assert_eq!(strips.row(r), want, "{of:?} row {r}");
            }
        }
    }

    #[test]
    fn four_neighbours_high_bits_are_in_the_same_place_of_their_bytes() {
        for bit in 0..32 {
            let (i, j) = (bit / 4, bit % 4);
            assert_eq!(by_fours(1 << bit), 1 << (8 * j + i), "bit {bit}");
            assert_eq!(one_by_one(1 << (8 * j + i)), 1 << bit, "bit {bit}");
        }
        // All bits of a word go their own ways.
        assert_eq!(one_by_one(by_fours(0x9bc3_5a01)), 0x9bc3_5a01);
    }

    #[test]
    fn a_word_of_sixteen_rows_is_one_register() {
        let block = |r: usize| (0..18).map(|i| (16 * r + i) as u8).collect::<Vec<_>>();
        let rows: [Vec<u8>; STRIP] = std::array::from_fn(block);
        let mut strip = vec![0; 18 * STRIP];
        pack(Packed::Q4_0, &rows.each_ref().map(Vec::as_slice), &mut strip);
        for r in 0..STRIP {
            assert_eq!(strip[64 + 4 * r..][..4], rows[r][6..10], "the second word of row {r}");
            assert_eq!(strip[256 + 2 * r..][..2], rows[r][..2], "the factor of row {r}");
        }
    }
}
