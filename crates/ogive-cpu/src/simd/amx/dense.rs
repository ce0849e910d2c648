//! Dense weights in bf16 times any number of tokens, in tiles.
//!
//! The words of a strip, two neighbours of each of sixteen rows, are tiles B as they lie, and lines of activations tiles A. One
//! instruction adds the products of 32 columns. Up to sixteen tokens stream through the weight, two strips at a time. For more, 32 tokens and
//! 32 rows have four tiles of sums, so that two tiles of each side are read for four products; and columns go by slices of two
//! strips that stay in the first cache while all tokens pass, whose lines come from the second.
//!
//! Reads bound it: with all in the first cache this loop makes 2.8 TFLOP/s of 3.8 on a core of a Xeon, with activations from
//! the second 2.4 and from the third 1.5.
#![allow(unsafe_code)]

use super::tile::{Shape, Sums, Tiles};
use crate::{
    linear::{CHUNK, Job, Line, Lines, STRIP, TILED},
    pool::Stripe,
    simd::{
        avx2::{
            self,
            ahead::{AHEAD, LINE, ask, ask_second},
        },
        avx512::panel::put_strip,
    },
};
use std::{arch::x86_64::*, cell::RefCell, ops::Range};

/// Chunks of 32 columns in a slice.
const SLICE: usize = 16;
/// Rows of a panel.
const ROWS: usize = 2 * STRIP;
/// Bytes of a row in a chunk.
const BYTES: usize = 2 * CHUNK;

/// A tile B: 32 columns of sixteen rows.
type Words = Sums<u32>;

/// What a thread keeps from run to run.
#[derive(Default)]
struct Scratch {
    /// The sums of each panel with each group: for each half of the tokens those of each strip.
    sums: Vec<[[Sums<f32>; 2]; 2]>,
    /// A slice of the strips of a panel that cannot be read as they lie.
    words: [Vec<Words>; 2],
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// [`Lines::fill`] with these instructions.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(in crate::simd) fn lay(x: &[f32], k: usize, alone: bool, out: &mut Lines) {
    out.fill(x, k, alone);
}

/// Fills a stripe of the result.
///
/// # Safety
/// The machine has what is enabled here, and tiles.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn stripe(job: &Job<'_>, out: &mut Stripe<'_>) {
    SCRATCH.with_borrow_mut(|scratch| match job.input.lines() {
        [alone] if alone.tokens <= TILED => {
            // SAFETY: the caller says that there are tiles.
            let tiles = unsafe { Tiles::cut(Shape::Tokens(alone.tokens as u8)) };
            few(&tiles, job, alone, scratch, out);
        }
        groups => {
            // SAFETY: the same.
            let tiles = unsafe { Tiles::cut(Shape::Full) };
            many(&tiles, job, groups, scratch, out);
        }
    });
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn few(tiles: &Tiles, job: &Job<'_>, x: &Lines, Scratch { words, .. }: &mut Scratch, out: &mut Stripe<'_>) {
    let chunks = x.lines.len() / x.each;
    let mut sums = [Sums([[0.0; 16]; 16]); 2];
    for first in (0..out.width()).step_by(ROWS) {
        tiles.zero::<0>();
        tiles.zero::<1>();
        for start in (0..chunks).step_by(SLICE) {
            let slice = start..chunks.min(start + SLICE);
            let [a, b] = panel(job, first, out.width(), slice.clone(), words);
            for ((a, b), x) in a.iter().zip(b).zip(x.lines[start * x.each..].chunks_exact(x.each)) {
                for line in (0..size_of::<Words>()).step_by(LINE) {
                    for strip in [a, b] {
                        ask_second(std::ptr::from_ref(strip).cast::<u8>().wrapping_add(AHEAD + line));
                    }
                }
                // SAFETY: a line for each token is read, and two whole tiles.
                unsafe {
                    tiles.load::<4, 64>(x.as_ptr().cast());
                    tiles.load::<6, 64>(a.0.as_ptr().cast());
                    tiles.bf16::<0, 4, 6>();
                    tiles.load::<7, 64>(b.0.as_ptr().cast());
                    tiles.bf16::<1, 4, 7>();
                }
            }
        }
        let [a, b] = &mut sums;
        tiles.store::<0, _>(a);
        tiles.store::<1, _>(b);
        for t in 0..x.tokens {
            let strips = out.row(t)[first..].chunks_mut(STRIP);
            strips.zip(&sums).for_each(|(to, Sums(of_strip))| put_strip(to, &of_strip[t]));
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn many(
    tiles: &Tiles,
    job: &Job<'_>,
    groups: &[Lines],
    Scratch { sums, words }: &mut Scratch,
    out: &mut Stripe<'_>,
) {
    let chunks = groups.first().map_or(0, |group| group.lines.len() / group.each);
    let panels = (0..out.width()).step_by(ROWS);
    // What they hold does not matter: the first slice begins them.
    sums.resize(panels.len() * groups.len(), [[Sums([[0.0; 16]; 16]); 2]; 2]);
    for start in (0..chunks).step_by(SLICE) {
        let slice = start..chunks.min(start + SLICE);
        for (first, sums) in panels.clone().zip(sums.chunks_exact_mut(groups.len())) {
            let strips = panel(job, first, out.width(), slice.clone(), words);
            let next = match first + ROWS {
                next if next < out.width() => Next::new(job, next, start, groups.len()),
                _ => Next::new(job, 0, start + SLICE, groups.len()),
            };
            for (g, (group, sums)) in groups.iter().zip(sums).enumerate() {
                let x = &group.lines[slice.start * group.each..slice.end * group.each];
                match group.each {
                    TILED => half(tiles, strips, x, start == 0, &mut sums[0], next.share(g)),
                    _ => whole(tiles, strips, x, start == 0, sums, next.share(g)),
                }
            }
        }
    }
    // A row of the result is a page of its own: all panels' results for one come together.
    for t in 0..job.input.n() {
        let (group, t_of_group) = (t / (2 * TILED), t % (2 * TILED));
        for (to, sums) in out.row(t).chunks_mut(ROWS).zip(sums.chunks_exact(groups.len())) {
            let half = &sums[group][t_of_group / TILED];
            let strips = to.chunks_mut(STRIP).zip(half);
            strips.for_each(|(to, Sums(of_strip))| put_strip(to, &of_strip[t_of_group % TILED]));
        }
    }
}

/// The slice of a panel that is read after this one: each group asks for a share of it.
#[derive(Clone, Copy)]
struct Next {
    strips: [*const u8; 2],
    /// Lines of a strip that are asked for with each chunk.
    each: usize,
}

impl Next {
    /// That from row `first` and chunk `start` on. What lies behind a strip's end may be asked for, and so may nothing.
    fn new(job: &Job<'_>, first: usize, start: usize, groups: usize) -> Self {
        let strip = job.strip(first).unwrap_or_default();
        let from = strip.as_ptr().wrapping_add(start * size_of::<Words>());
        Self {
            strips: [from, from.wrapping_add(strip.len())],
            each: if strip.is_empty() { 0 } else { (size_of::<Words>() / LINE).div_ceil(groups) },
        }
    }

    /// That of group `g`.
    fn share(self, g: usize) -> Self {
        let before = g * self.each * SLICE * LINE;
        Self { strips: self.strips.map(|strip| strip.wrapping_add(before)), ..self }
    }

    /// Asks for what is due with chunk `i`, into the second cache: it is read once this panel is through.
    #[inline(always)]
    fn ask(self, i: usize) {
        for line in i * self.each..(i + 1) * self.each {
            self.strips.iter().for_each(|strip| ask_second(strip.wrapping_add(line * LINE)));
        }
    }
}

/// Goes on with the sums of 32 tokens and 32 rows, or begins them.
#[inline]
#[target_feature(enable = "avx512f")]
fn whole(
    tiles: &Tiles,
    [a, b]: [&[Words]; 2],
    x: &[Line],
    begins: bool,
    sums: &mut [[Sums<f32>; 2]; 2],
    next_panel: Next,
) {
    /// Lines of the next sums that are asked for with each chunk.
    const EACH: usize = size_of::<[[Sums<f32>; 2]; 2]>() / LINE / SLICE;
    let next = std::ptr::from_ref(sums).wrapping_add(1).cast::<u8>();
    let [[first_a, first_b], [second_a, second_b]] = sums;
    // SAFETY: whole tiles are read.
    unsafe {
        if begins {
            tiles.zero::<0>();
            tiles.zero::<1>();
            tiles.zero::<2>();
            tiles.zero::<3>();
        } else {
            tiles.load::<0, 64>(first_a.0.as_ptr().cast());
            tiles.load::<1, 64>(first_b.0.as_ptr().cast());
            tiles.load::<2, 64>(second_a.0.as_ptr().cast());
            tiles.load::<3, 64>(second_b.0.as_ptr().cast());
        }
        for (i, ((a, b), x)) in a.iter().zip(b).zip(x.as_chunks::<{ 2 * TILED }>().0).enumerate() {
            next_panel.ask(i);
            for line in 0..EACH {
                ask(next.wrapping_add((i * EACH + line) * LINE));
            }
            tiles.load_once::<4, 64>(x.as_ptr().cast());
            tiles.load::<6, 64>(a.0.as_ptr().cast());
            tiles.load::<7, 64>(b.0.as_ptr().cast());
            tiles.load_once::<5, 64>(x[TILED..].as_ptr().cast());
            tiles.bf16::<0, 4, 6>();
            tiles.bf16::<1, 4, 7>();
            tiles.bf16::<2, 5, 6>();
            tiles.bf16::<3, 5, 7>();
        }
    }
    tiles.store::<0, _>(first_a);
    tiles.store::<1, _>(first_b);
    tiles.store::<2, _>(second_a);
    tiles.store::<3, _>(second_b);
}

/// The same for sixteen tokens.
#[inline]
#[target_feature(enable = "avx512f")]
fn half(
    tiles: &Tiles,
    [a, b]: [&[Words]; 2],
    x: &[Line],
    begins: bool,
    [sums_a, sums_b]: &mut [Sums<f32>; 2],
    next_panel: Next,
) {
    // SAFETY: whole tiles are read.
    unsafe {
        if begins {
            tiles.zero::<0>();
            tiles.zero::<1>();
        } else {
            tiles.load::<0, 64>(sums_a.0.as_ptr().cast());
            tiles.load::<1, 64>(sums_b.0.as_ptr().cast());
        }
        for (i, ((a, b), x)) in a.iter().zip(b).zip(x.as_chunks::<TILED>().0).enumerate() {
            next_panel.ask(i);
            tiles.load_once::<4, 64>(x.as_ptr().cast());
            tiles.load::<6, 64>(a.0.as_ptr().cast());
            tiles.load::<7, 64>(b.0.as_ptr().cast());
            tiles.bf16::<0, 4, 6>();
            tiles.bf16::<1, 4, 7>();
        }
    }
    tiles.store::<0, _>(sums_a);
    tiles.store::<1, _>(sums_b);
}

/// The chunks `slice` of the two strips from row `first` on. Where the stripe ends with the first, it stands in for the second.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn panel<'a>(
    job: &'a Job<'_>,
    first: usize,
    width: usize,
    slice: Range<usize>,
    [a, b]: &'a mut [Vec<Words>; 2],
) -> [&'a [Words]; 2] {
    let second = if first + STRIP < width { first + STRIP } else { first };
    [strip(job, first, width, slice.clone(), a), strip(job, second, width, slice, b)]
}

/// The chunks `slice` of sixteen rows: where they lie, or where they are laid in strips on the way.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn strip<'a>(
    job: &'a Job<'_>,
    first: usize,
    width: usize,
    slice: Range<usize>,
    words: &'a mut Vec<Words>,
) -> &'a [Words] {
    // SAFETY: any bytes are words.
    let laid = job.strip(first).map(|strip| (strip, unsafe { strip.align_to::<Words>() }));
    if let Some((strip, (before, whole, _))) = laid {
        assert!(before.is_empty(), "strips begin at lines of the cache");
        if let Some(slice) = whole.get(slice.clone()) {
            return slice;
        }
        // A row ends inside a chunk; zeros follow.
        words.clear();
        words.resize(slice.len(), Sums([[0; 16]; 16]));
        let rest = strip[slice.start * size_of::<Words>()..].as_chunks().0;
        let to = words.iter_mut().flat_map(|Sums(words)| words.as_flattened_mut());
        to.zip(rest).for_each(|(to, word)| *to = u32::from_le_bytes(*word));
        return words;
    }
    let rows = avx2::rows::<STRIP>(job, first, width);
    words.resize(slice.len(), Sums([[0; 16]; 16]));
    for (i, to) in slice.zip(&mut *words) {
        transpose(&rows, i, to);
    }
    words
}

/// Lays chunk `i` of sixteen rows as a strip has it; behind their ends are zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn transpose(rows: &[&[u8]; STRIP], i: usize, to: &mut Words) {
    let mut v = [_mm512_setzero_si512(); 16];
    for (v, row) in v.iter_mut().zip(rows) {
        let row = &row[i * BYTES..];
        // A bit for each element.
        let there = ((1_u64 << (row.len() / 2).min(CHUNK)) - 1) as u32;
        // SAFETY: elements of the row are read.
        *v = unsafe { _mm512_maskz_loadu_epi16(there, row.as_ptr().cast()) };
    }
    // Words of neighbours alternate within quarters of a register, then pairs of words, then quarters.
    let mut pairs = v;
    for i in 0..8 {
        pairs[2 * i] = _mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
        pairs[2 * i + 1] = _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
    // Register `4 i + w` has word `4 q + w` of rows `4 i` to `4 i + 3` in its quarter `q`.
    let mut fours = v;
    for i in 0..4 {
        for half in 0..2 {
            let (low, high) = (pairs[4 * i + half], pairs[4 * i + 2 + half]);
            fours[4 * i + 2 * half] = _mm512_unpacklo_epi64(low, high);
            fours[4 * i + 2 * half + 1] = _mm512_unpackhi_epi64(low, high);
        }
    }
    for w in 0..4 {
        let [a, b, c, d] = [fours[w], fours[4 + w], fours[8 + w], fours[12 + w]];
        let (ab, cd) =
            (_mm512_shuffle_i32x4::<0b01_00_01_00>(a, b), _mm512_shuffle_i32x4::<0b01_00_01_00>(c, d));
        let (ab_high, cd_high) =
            (_mm512_shuffle_i32x4::<0b11_10_11_10>(a, b), _mm512_shuffle_i32x4::<0b11_10_11_10>(c, d));
        let quarters = [
            _mm512_shuffle_i32x4::<0b10_00_10_00>(ab, cd),
            _mm512_shuffle_i32x4::<0b11_01_11_01>(ab, cd),
            _mm512_shuffle_i32x4::<0b10_00_10_00>(ab_high, cd_high),
            _mm512_shuffle_i32x4::<0b11_01_11_01>(ab_high, cd_high),
        ];
        for (q, quarter) in quarters.into_iter().enumerate() {
            // SAFETY: 64 bytes are written to an array of 64.
            unsafe { _mm512_store_si512(to.0[4 * q + w].as_mut_ptr().cast(), quarter) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_laid_as_strips_have_them() {
        if !crate::simd::Path::Avx512.is_supported() {
            return;
        }
        for k in [32, 64, 1, 33, 50, 63] {
            let rows: Vec<Vec<u8>> =
                (0..STRIP).map(|r| (0..2 * k).map(|i| (i * 7 + r * 31 + 1) as u8).collect()).collect();
            let rows: [&[u8]; STRIP] = std::array::from_fn(|r| &*rows[r]);
            for chunk in 0..k.div_ceil(CHUNK) {
                let mut got = Sums([[u32::MAX; 16]; 16]);
                // SAFETY: the machine has AVX-512.
                unsafe { transpose(&rows, chunk, &mut got) };
                for (w, words) in got.0.iter().enumerate() {
                    for (row, word) in rows.iter().zip(words) {
                        let byte = |i| row.get(chunk * BYTES + 4 * w + i).copied().unwrap_or(0);
                        assert_eq!(*word, u32::from_le_bytes([0, 1, 2, 3].map(byte)), "k={k} word {w}");
                    }
                }
            }
        }
    }
}
