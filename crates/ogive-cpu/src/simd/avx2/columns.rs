//! Dense strips: sixteen rows, a lane of two registers for each, and the lanes of the sum one after the other.
//!
//! One token streams through the weight, four chains of multiply-adds for each register. Of more, up to six have twelve sums in registers,
//! of one lane at a time: a few meet some steps in the strip itself, lane after lane, and for many a lane's words are laid in a part of a
//! panel, which stays in the first cache.
#![allow(unsafe_code)]
// Closures would not be inlined: the library functions that call them lack these instructions.
#![allow(clippy::needless_range_loop)]

use super::{
    ahead::{self, Level, ask},
    panel::Lanes,
    put,
};
use crate::{
    linear::{Columns, Dense, Few, Job, LANES, STRIP, Side},
    pool::Stripe,
    simd::vendor::reads_ahead_of_f32,
};
use std::{arch::x86_64::*, cell::RefCell, ops::Range};

/// Words of a panel: 16 KiB of the first cache.
const WORDS: usize = 256;
/// Sums of different depths of the tree that wait for their partners, and the result.
pub(in crate::simd) const DEPTHS: usize = LANES.ilog2() as usize + 1;
/// Bytes of a strip that all of a few tokens meet before the next come: they stay in the first cache, with the activations of some tokens.
const CHUNK: usize = 8 << 10;
/// How far ahead a chunk is asked for: the farther half of the next one and the nearer half of that after it.
const AHEAD: usize = CHUNK / 2 * 3;
/// Tokens whose sums have room in registers.
const TOGETHER: usize = 6;
/// Steps whose activations of the next tokens are asked for together: of six tokens three lines.
const ASKED: usize = 8;

/// What is multiplied: singles as they are, halves made singles, pairs of bf16 made singles.
pub(in crate::simd) const F32: u8 = 0;
pub(in crate::simd) const F16: u8 = 1;
pub(in crate::simd) const ODD_EVEN: u8 = 2;

/// What a thread keeps from run to run.
#[derive(Default)]
struct Scratch {
    panel: Vec<Lanes<f32>>,
    /// `[panels, DEPTHS, tokens]`
    sums: Vec<Lanes<f32>>,
    /// Of each of a few tokens, the lanes of the sum.
    waiting: Vec<[Lanes<f32>; LANES]>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Up to how many tokens it pays to stream through strips, by measurement; and as many together as have two sums each in registers beside
/// their operands, which are more where pairs are taken apart.
pub(in crate::simd) const fn few(side: Side) -> Few {
    let (tokens, together) = match side {
        Side::Single => (47, TOGETHER),
        Side::OddEven | Side::Pairs => (31, TOGETHER - 1),
    };
    Few { tokens, together, many: TOGETHER }
}

/// Bytes of a word of sixteen rows.
pub(in crate::simd) const fn word(kind: u8) -> usize {
    if kind == F16 { 32 } else { 64 }
}

/// Steps of activations for one of the weight's.
pub(in crate::simd) const fn per_step(kind: u8) -> usize {
    if kind == ODD_EVEN { 2 } else { 1 }
}

/// [`Columns::fill`] with these instructions.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::simd) fn lay(side: Side, x: &[f32], k: usize, out: &mut Columns) {
    out.fill(side, x, k);
}

/// Fills a stripe of the result.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn stripe(job: &Job<'_>, kind: Dense, out: &mut Stripe<'_>) {
    let few = |side| job.input.n() <= few(side).tokens;
    match kind {
        Dense::F32 if few(Side::Single) => streamed::<F32>(job, Side::Single, out),
        Dense::F16 if few(Side::Single) => streamed::<F16>(job, Side::Single, out),
        Dense::Bf16 if few(Side::OddEven) => streamed::<ODD_EVEN>(job, Side::OddEven, out),
        Dense::F32 => many::<F32>(job, Side::Single, out),
        Dense::F16 => many::<F16>(job, Side::Single, out),
        Dense::Bf16 => many::<ODD_EVEN>(job, Side::OddEven, out),
    }
}

/// One token streams through the weight; of several each piece meets some steps of a strip before the next come, so that a strip is read from
/// memory once, and words that come again are in the first cache.
#[target_feature(enable = "avx2,fma,f16c")]
fn streamed<const KIND: u8>(job: &Job<'_>, side: Side, out: &mut Stripe<'_>) {
    let pieces = job.input.columns(side);
    let n = job.input.n();
    SCRATCH.with_borrow_mut(|Scratch { waiting, .. }| {
        for first in (0..out.width()).step_by(STRIP) {
            let Some(strip) = job.strip(first) else { return };
            if let ([piece], 1) = (pieces, n) {
                put(out, 0, first, &one::<KIND>(strip, piece));
                continue;
            }
            waiting.clear();
            waiting.resize(n, [Lanes([0.0; STRIP]); LANES]);
            add_products::<KIND>(strip, pieces, waiting);
            for (t, sums) in waiting.iter().enumerate() {
                let mut row = Lanes([0.0; STRIP]);
                for half in 0..2 {
                    store(&mut row, half, add_up(sums.each_ref().map(|sums| floats(sums, half))));
                }
                put(out, t, first, &row.0);
            }
        }
    });
}

/// A word of eight rows as it is multiplied: one value of each, or the odd and the even one.
///
/// # Safety
/// There are [`word`] bytes.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn load<const KIND: u8>(w: *const u8, half: usize) -> [__m256; 2] {
    // SAFETY: the caller says that there are so many bytes, of which these are a half.
    unsafe {
        let w = w.add(half * (word(KIND) / 2));
        match KIND {
            F16 => [_mm256_cvtph_ps(_mm_loadu_si128(w.cast())), _mm256_setzero_ps()],
            ODD_EVEN => {
                let pairs = _mm256_loadu_si256(w.cast());
                let odd = _mm256_and_si256(pairs, _mm256_set1_epi32(0xffff_0000_u32.cast_signed()));
                [_mm256_castsi256_ps(odd), _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs))]
            }
            _ => [_mm256_loadu_ps(w.cast()), _mm256_setzero_ps()],
        }
    }
}

/// `sum` and one step's products of eight rows with a token's values.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn multiply<const KIND: u8>(sum: __m256, w: [__m256; 2], x: [u32; 2]) -> __m256 {
    let sum = _mm256_fmadd_ps(_mm256_set1_ps(f32::from_bits(x[0])), w[0], sum);
    if KIND == ODD_EVEN { _mm256_fmadd_ps(_mm256_set1_ps(f32::from_bits(x[1])), w[1], sum) } else { sum }
}

/// The same of sixteen rows with the values of `N` tokens.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn multiply_all<const N: usize>(w: [__m256; 2], x: &[u32; N], sums: &mut [[__m256; 2]; N]) {
    for n in 0..N {
        let x = _mm256_set1_ps(f32::from_bits(x[n]));
        for half in 0..2 {
            sums[n][half] = _mm256_fmadd_ps(x, w[half], sums[n][half]);
        }
    }
}

/// Lanes 0 and 1, then 2 and 3, then both.
#[inline]
#[target_feature(enable = "avx2")]
fn add_up(sums: [__m256; LANES]) -> __m256 {
    _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3]))
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(to: &mut Lanes<f32>, half: usize, v: __m256) {
    assert!(half < 2);
    // SAFETY: 32 bytes are written to a half of an array of 64 that starts at a multiple of 64.
    unsafe { _mm256_store_ps(to.0.as_mut_ptr().add(8 * half), v) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn floats(from: &Lanes<f32>, half: usize) -> __m256 {
    assert!(half < 2);
    // SAFETY: 32 bytes are read from a half of an array of 64 that starts at a multiple of 64.
    unsafe { _mm256_load_ps(from.0.as_ptr().add(8 * half)) }
}

/// Products of a strip's rows with one token.
#[target_feature(enable = "avx2,fma,f16c")]
fn one<const KIND: u8>(strip: &[u8], piece: &Columns) -> [f32; STRIP] {
    let steps = strip.len() / (LANES * word(KIND));
    let each = steps * per_step(KIND);
    let x = &piece.values[..LANES * each];
    assert!(strip.len() == LANES * steps * word(KIND));
    let mut sums = [[_mm256_setzero_ps(); LANES]; 2];
    let level = Level::while_waiting().filter(|_| KIND != F32 || !reads_ahead_of_f32());
    let distance = ahead::distance(1);
    for step in 0..steps {
        for l in 0..LANES {
            if let Some(level) = level
                && (word(KIND) == 64 || l % 2 == 0)
            {
                level.ask(strip.as_ptr().wrapping_add((step * LANES + l) * word(KIND) + distance));
            }
            let at = l * each + step * per_step(KIND);
            let x = [x[at], if KIND == ODD_EVEN { x[at + 1] } else { 0 }];
            for half in 0..2 {
                // SAFETY: the strip has as many words as stands above.
                let w = unsafe { load::<KIND>(strip.as_ptr().add((step * LANES + l) * word(KIND)), half) };
                sums[half][l] = multiply::<KIND>(sums[half][l], w, x);
            }
        }
    }
    let mut out = Lanes([0.0; STRIP]);
    for half in 0..2 {
        store(&mut out, half, add_up(sums[half]));
    }
    out.0
}

/// Adds the products of a strip's rows with all tokens to their sums.
#[target_feature(enable = "avx2,fma,f16c")]
fn add_products<const KIND: u8>(strip: &[u8], pieces: &[Columns], sums: &mut [[Lanes<f32>; LANES]]) {
    let steps = strip.len() / (LANES * word(KIND));
    assert!(strip.len() == LANES * steps * word(KIND));
    let chunk = CHUNK / LANES / word(KIND);
    for start in (0..steps).step_by(chunk) {
        let some = start..steps.min(start + chunk);
        let mut t = 0;
        for piece in pieces {
            let sums = &mut sums[t..t + piece.tokens];
            match piece.tokens {
                6 => lanes::<KIND, 6>(strip, piece, some.clone(), t == 0, sums),
                5 => lanes::<KIND, 5>(strip, piece, some.clone(), t == 0, sums),
                4 => lanes::<KIND, 4>(strip, piece, some.clone(), t == 0, sums),
                3 => lanes::<KIND, 3>(strip, piece, some.clone(), t == 0, sums),
                2 => lanes::<KIND, 2>(strip, piece, some.clone(), t == 0, sums),
                _ => lanes::<KIND, 1>(strip, piece, some.clone(), t == 0, sums),
            }
            t += piece.tokens;
        }
    }
}

/// Goes on with the sums of a piece's tokens for some steps of a strip: a lane after the other, or two together where one token's or a
/// few's would not keep the multipliers busy.
#[target_feature(enable = "avx2,fma,f16c")]
fn lanes<const KIND: u8, const T: usize>(
    strip: &[u8],
    piece: &Columns,
    steps: Range<usize>,
    ahead: bool,
    sums: &mut [[Lanes<f32>; LANES]],
) {
    let each = strip.len() / (LANES * word(KIND)) * per_step(KIND);
    let words = &strip[steps.start * LANES * word(KIND)..steps.end * LANES * word(KIND)];
    let some = steps.start * per_step(KIND)..steps.end * per_step(KIND);
    let x = piece.values.as_chunks::<T>().0;
    let x: [_; LANES] = std::array::from_fn(|l| &x[l * each..][some.clone()]);
    let Some(sums) = sums.first_chunk_mut::<T>() else { return };
    if T < if KIND == ODD_EVEN { 3 } else { 4 } {
        for l in [0, 2] {
            together::<KIND, T, 2>(words, [x[l], x[l + 1]], l, ahead, sums);
        }
    } else {
        for l in 0..LANES {
            together::<KIND, T, 1>(words, [x[l]], l, ahead, sums);
        }
    }
}

/// The same for the lanes from `first` on, whose activations these are.
// By itself the sums stay in registers; within the loops that call it a compiler puts them down after each product.
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
fn together<const KIND: u8, const T: usize, const L: usize>(
    words: &[u8],
    x: [&[[u32; T]]; L],
    first: usize,
    ahead: bool,
    sums: &mut [[Lanes<f32>; LANES]; T],
) {
    let steps = words.len() / (LANES * word(KIND));
    assert!(words.len() == steps * LANES * word(KIND) && first + L <= LANES);
    let mut x = x.map(|x| x[..steps * per_step(KIND)].chunks_exact(per_step(KIND)));
    let mut now = [[[_mm256_setzero_ps(); 2]; T]; L];
    for l in 0..L {
        for t in 0..T {
            now[l][t] = [floats(&sums[t][first + l], 0), floats(&sums[t][first + l], 1)];
        }
    }
    let level = Level::here();
    for step in 0..steps {
        for l in 0..L {
            let Some(x) = x[l].next() else { return };
            let w = words[(step * LANES + first + l) * word(KIND)..].as_ptr();
            if ahead && (word(KIND) == 64 || (first + l).is_multiple_of(2)) {
                level.ask(w.wrapping_add(AHEAD));
            }
            for i in 0..per_step(KIND) {
                // SAFETY: there are as many words as stands above.
                let w = unsafe { [load::<KIND>(w, 0)[i], load::<KIND>(w, 1)[i]] };
                multiply_all(w, &x[i], &mut now[l]);
            }
        }
    }
    for l in 0..L {
        for t in 0..T {
            for half in 0..2 {
                store(&mut sums[t][first + l], half, now[l][t][half]);
            }
        }
    }
}

/// Some steps of one lane. All rows of a stripe meet them before the next come, so that their activations stay near.
pub(in crate::simd) struct Part {
    pub(in crate::simd) lane: usize,
    pub(in crate::simd) steps: Range<usize>,
    /// Whether they are the lane's last.
    pub(in crate::simd) last: bool,
}

impl Part {
    /// Those of a lane of so many steps, `most` at a time.
    pub(in crate::simd) fn of(lane: usize, steps: usize, most: usize) -> impl Iterator<Item = Self> {
        let end = move |from: usize| steps.min(from + most);
        let part = move |from| Self { lane, steps: from..end(from), last: end(from) == steps };
        (0..steps).step_by(most).map(part)
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn many<const KIND: u8>(job: &Job<'_>, side: Side, out: &mut Stripe<'_>) {
    let n = job.input.n();
    SCRATCH.with_borrow_mut(|Scratch { panel, sums, .. }| {
        let panels = (0..out.width()).step_by(STRIP);
        // What they hold does not matter: each is written before it is read.
        sums.resize(panels.len() * DEPTHS * n, Lanes([0.0; STRIP]));
        let steps = job.strip(0).unwrap_or_default().len() / (LANES * word(KIND));
        let pieces = job.input.columns(side);
        let mut parts = (0..LANES).flat_map(|lane| Part::of(lane, steps, WORDS / per_step(KIND))).peekable();
        while let Some(part) = parts.next() {
            for (first, sums) in panels.clone().zip(sums.chunks_exact_mut(DEPTHS * n)) {
                let strip = |r| job.strip(r).unwrap_or_default();
                let mut next = match first + STRIP {
                    next if next < out.width() => Next::of::<KIND>(strip(next), Some(&part), pieces.len()),
                    _ => Next::of::<KIND>(strip(0), parts.peek(), pieces.len()),
                };
                unpack::<KIND>(strip(first), &part, panel);
                let at = (part.lane * steps + part.steps.start) * per_step(KIND);
                let mut t = 0;
                for (i, piece) in pieces.iter().enumerate() {
                    next.ask_share::<KIND>();
                    let after = pieces.get(i + 1).unwrap_or(&pieces[0]);
                    tokens(panel, piece, after, at, &part, &mut Sums { all: sums, n, t });
                    t += piece.tokens;
                }
            }
        }
        // A row of the result is a page of its own: all panels' results for one come together.
        for t in 0..n {
            for (to, sums) in out.row(t).chunks_mut(STRIP).zip(sums.chunks_exact(DEPTHS * n)) {
                let sums = &sums[(DEPTHS - 1) * n + t];
                match to.first_chunk_mut() {
                    Some(to) => *to = sums.0,
                    None => to.copy_from_slice(&sums.0[..to.len()]),
                }
            }
        }
    });
}

/// Where sums of tokens from `t` on are: `[DEPTHS, n]`.
struct Sums<'a> {
    all: &'a mut [Lanes<f32>],
    n: usize,
    t: usize,
}

/// Lays a part's words as singles, one after the other.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn unpack<const KIND: u8>(strip: &[u8], part: &Part, panel: &mut Vec<Lanes<f32>>) {
    let steps = strip.len() / (LANES * word(KIND));
    assert!(strip.len() == LANES * steps * word(KIND) && part.steps.end <= steps && part.lane < LANES);
    panel.resize(part.steps.len() * per_step(KIND), Lanes([0.0; STRIP]));
    for (step, to) in part.steps.clone().zip(panel.chunks_exact_mut(per_step(KIND))) {
        for half in 0..2 {
            // SAFETY: the strip has as many words as stands above.
            let values =
                unsafe { load::<KIND>(strip.as_ptr().add((step * LANES + part.lane) * word(KIND)), half) };
            for i in 0..per_step(KIND) {
                store(&mut to[i], half, values[i]);
            }
        }
    }
}

/// The words that are unpacked next, of which a share is asked for at a time: one lies too far from the one before it for the processor to see
/// what comes.
struct Next {
    at: *const u8,
    words: usize,
    share: usize,
    level: Level,
}

impl Next {
    /// The words of a part, if there is one, asked for in so many shares.
    fn of<const KIND: u8>(strip: &[u8], part: Option<&Part>, shares: usize) -> Self {
        let (lane, steps) = part.map_or((0, 0..0), |part| (part.lane, part.steps.clone()));
        let at = strip.as_ptr().wrapping_add((steps.start * LANES + lane) * word(KIND));
        Self { at, words: steps.len(), share: steps.len().div_ceil(shares), level: Level::here() }
    }

    /// Asks for one share, or for what is left.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn ask_share<const KIND: u8>(&mut self) {
        let share = self.share.min(self.words);
        for _ in 0..share {
            self.level.ask(self.at);
            self.at = self.at.wrapping_add(LANES * word(KIND));
        }
        self.words -= share;
    }
}

/// Goes on with the lane's sums for the tokens of a piece; `next` comes after it, and `at` is the part's first step of both.
#[target_feature(enable = "avx2,fma")]
fn tokens(
    panel: &[Lanes<f32>],
    piece: &Columns,
    next: &Columns,
    at: usize,
    part: &Part,
    sums: &mut Sums<'_>,
) {
    match piece.tokens {
        6 => tokens_of::<6>(panel, piece, next, at, part, sums),
        5 => tokens_of::<5>(panel, piece, next, at, part, sums),
        4 => tokens_of::<4>(panel, piece, next, at, part, sums),
        3 => tokens_of::<3>(panel, piece, next, at, part, sums),
        2 => tokens_of::<2>(panel, piece, next, at, part, sums),
        1 => tokens_of::<1>(panel, piece, next, at, part, sums),
        n => assert_eq!(n, 0, "a piece has more tokens than there are registers for"),
    }
}

/// The same for a piece of `N`.
#[target_feature(enable = "avx2,fma")]
fn tokens_of<const N: usize>(
    panel: &[Lanes<f32>],
    piece: &Columns,
    next: &Columns,
    at: usize,
    part: &Part,
    sums: &mut Sums<'_>,
) {
    let after = next.values.as_ptr().wrapping_add(at * next.tokens);
    let distance = after.addr().wrapping_sub(piece.values.as_ptr().addr() + at * N * size_of::<u32>());
    // Where this lane's sums wait between its parts there is room until they are complete.
    let depth = part.lane.trailing_ones() as usize;
    let slot = |depth: usize| depth * sums.n + sums.t..depth * sums.n + sums.t + N;
    let mut values = [[_mm256_setzero_ps(); 2]; N];
    if part.steps.start > 0 {
        for (to, from) in values.iter_mut().zip(&sums.all[slot(depth)]) {
            *to = [floats(from, 0), floats(from, 1)];
        }
    }
    let x = &piece.values.as_chunks::<N>().0[at..][..panel.len()];
    let ((panel, rest), (x, rest_x)) = (panel.as_chunks::<ASKED>(), x.as_chunks::<ASKED>());
    for (w, x) in panel.iter().zip(x) {
        for line in 0..(ASKED * N * size_of::<u32>()).div_ceil(ahead::LINE) {
            ask(x.as_ptr().cast::<u8>().wrapping_add(distance.wrapping_add(line * ahead::LINE)));
        }
        for i in 0..ASKED {
            multiply_all([floats(&w[i], 0), floats(&w[i], 1)], &x[i], &mut values);
        }
    }
    for (w, x) in rest.iter().zip(rest_x) {
        multiply_all([floats(w, 0), floats(w, 1)], x, &mut values);
    }
    if part.last {
        for depth in 0..depth {
            for (to, from) in values.iter_mut().zip(&sums.all[slot(depth)]) {
                for half in 0..2 {
                    to[half] = _mm256_add_ps(floats(from, half), to[half]);
                }
            }
        }
    }
    for (to, from) in sums.all[slot(depth)].iter_mut().zip(values) {
        for half in 0..2 {
            store(to, half, from[half]);
        }
    }
}
