//! Dense strips times many tokens: thirty-two rows and up to twelve tokens have twenty-four sums in registers.
//!
//! Two loads of weights and twelve of activations make twenty-four multiply-adds. The weights are laid for that in a part of a panel
//! which stays in the first cache, as singles or as pairs of bf16.
#![allow(unsafe_code)]
// Closures would not be inlined: the library functions that call them lack these instructions.
#![allow(clippy::needless_range_loop)]

use super::{
    super::panel::{Both, ROWS, floats, put_strip},
    F32, PAIRS, SMALL_PAIRS, load, multiply, per_step, word,
};
use crate::{
    linear::{Columns, Job, LANES, STRIP, Strips, TOGETHER, stay_normal},
    pool::Stripe,
    simd::avx2::panel::Lanes,
};
use std::{arch::x86_64::*, cell::RefCell, ops::Range};

/// Steps of a part of a panel, of one lane or of several.
const STEPS: usize = 128;
/// Depths of the tree, in each of which a sum waits for its partner, and that of the result.
const DEPTHS: usize = 5;

/// What a thread keeps from run to run.
#[derive(Default)]
struct Scratch {
    panel: Vec<Both<f32>>,
    /// What waits from part to part. `[panels, DEPTHS, tokens]`
    sums: Vec<Both<f32>>,
    /// What waits in a part, for the tokens of a piece. `[DEPTHS, tokens]`
    near: Vec<Both<f32>>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn many<const KIND: u8>(job: &Job<'_>, pieces: &[Columns], out: &mut Stripe<'_, f32>) {
    let n = job.input.n();
    SCRATCH.with_borrow_mut(|Scratch { panel, sums, near }| {
        let width = out.width();
        let panels = (0..width).step_by(ROWS);
        // What they hold does not matter: each is written before it is read.
        sums.resize(panels.len() * DEPTHS * n, [Lanes([0.0; STRIP]); 2]);
        near.resize(DEPTHS * Columns::MOST, [Lanes([0.0; STRIP]); 2]);
        let steps = job.strip(0).unwrap_or_default().len() / (LANES * word(KIND));
        let parts: Vec<Part> = Part::all(steps).collect();
        let strips_at = |first| {
            let strip = |r| job.strip(if r < width { r } else { first }).unwrap_or_default();
            [strip(first), strip(first + STRIP)]
        };
        for (i, part) in parts.iter().enumerate() {
            for (first, all) in panels.clone().zip(sums.chunks_exact_mut(DEPTHS * n)) {
                let next = first + ROWS;
                let next =
                    if next < out.width() { Some((next, part)) } else { Some(0).zip(parts.get(i + 1)) };
                let next = next.map(|(first, part)| Words { strips: strips_at(first), part });
                let now = Words { strips: strips_at(first), part };
                let mut sums = Sums { all, near, n, t: 0, out, first };
                one_part::<KIND>(job, &now, next.as_ref(), pieces, panel, &mut sums);
            }
        }
    });
}

/// Some steps of one lane, or all of some lanes whose sums make one. All rows of a stripe meet them before the next come, so that
/// their activations stay near.
struct Part {
    lanes: Range<usize>,
    steps: Range<usize>,
    /// Whether they are the lanes' last.
    last: bool,
}

impl Part {
    /// All of them, of lanes of so many steps.
    fn all(steps: usize) -> impl Iterator<Item = Self> {
        let together = if steps <= STEPS { 1 << (STEPS / steps.max(1)).min(LANES).ilog2() } else { 1 };
        let part = move |lane: usize, from: usize| {
            let end = steps.min(from + STEPS);
            Self { lanes: lane..lane + together, steps: from..end, last: end == steps }
        };
        let starts = move || (0..steps).step_by(STEPS);
        (0..LANES).step_by(together).flat_map(move |lane| starts().map(move |from| part(lane, from)))
    }
}

/// The words of a part of a panel.
struct Words<'a> {
    strips: [&'a [u8]; 2],
    part: &'a Part,
}

impl Words<'_> {
    /// How many there are of a row.
    fn len(&self) -> usize {
        self.part.lanes.len() * self.part.steps.len()
    }

    /// In both strips the word of a lane and a step of it.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    fn at<const KIND: u8>(&self, lane: usize, step: usize) -> [*const u8; 2] {
        let steps = self.strips[0].len() / (LANES * word(KIND));
        assert!(lane < LANES && step < steps && self.strips[1].len() == self.strips[0].len());
        let at = ((lane / TOGETHER * steps + step) * TOGETHER + lane % TOGETHER) * word(KIND);
        self.strips.map(|strip| strip[at..at + word(KIND)].as_ptr())
    }

    /// Asks for the `i`th of so many shares: the processor does not see what comes after a part of a lane.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn ask<const KIND: u8>(&self, i: usize, shares: usize) {
        let Part { lanes, steps, .. } = self.part;
        let stride = TOGETHER * word(KIND);
        let (mut word, end) = (self.len() * i / shares, self.len() * (i + 1) / shares);
        while word < end {
            let (lane, step) = (lanes.start + word / steps.len(), steps.start + word % steps.len());
            let run = (end - word).min(steps.end - step);
            for first in self.at::<KIND>(lane, step) {
                for step in 0..run {
                    // SAFETY: a prefetch reads nothing and never faults, wherever it points.
                    #[allow(unused_unsafe, reason = "older compilers have it as an unsafe function")]
                    unsafe {
                        _mm_prefetch::<_MM_HINT_T1>(first.wrapping_add(step * stride).cast())
                    };
                }
            }
            word += run;
        }
    }
}

/// Sums of a panel's rows.
struct Sums<'a, 'b> {
    all: &'a mut [Both<f32>],
    near: &'a mut [Both<f32>],
    /// All tokens, and the first of a piece.
    n: usize,
    t: usize,
    /// Where results go, and the panel's first row there.
    out: &'a mut Stripe<'b, f32>,
    first: usize,
}

impl Sums<'_, '_> {
    /// Where those of a depth wait, for `T` tokens of a piece and a part of so many lanes: what only its own lanes add is near.
    fn waiting<const T: usize>(&mut self, depth: usize, lanes: usize) -> &mut [Both<f32>; T] {
        let near = 1 << depth < lanes;
        let (list, at) =
            if near { (&mut *self.near, depth * T) } else { (&mut *self.all, depth * self.n + self.t) };
        list[at..].first_chunk_mut().expect("there is room for all tokens in each depth")
    }
}

/// What a part adds to the lanes' sums for all tokens, and what they complete in the tree.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn one_part<const KIND: u8>(
    job: &Job<'_>,
    words: &Words<'_>,
    next_words: Option<&Words<'_>>,
    pieces: &[Columns],
    panel: &mut Vec<Both<f32>>,
    sums: &mut Sums<'_, '_>,
) {
    let part = words.part;
    panel.resize(words.len() * per_step(KIND), [Lanes([0.0; STRIP]); 2]);
    unpack::<KIND>(words, panel);
    let (start, end) = (part.steps.start * per_step(KIND), part.steps.end * per_step(KIND));
    let part = Part { lanes: part.lanes.clone(), steps: start..end, last: part.last };
    for (i, piece) in pieces.iter().enumerate() {
        let next = &pieces[(i + 1) % pieces.len()];
        if let Some(words) = next_words {
            words.ask::<KIND>(i, pieces.len());
        }
        if KIND == PAIRS && !stay_normal(piece.least, job.w.strips().map_or(i32::MIN, Strips::least)) {
            tokens::<SMALL_PAIRS>(panel, piece, next, &part, sums);
        } else if KIND == PAIRS {
            tokens::<PAIRS>(panel, piece, next, &part, sums);
        } else {
            tokens::<F32>(panel, piece, next, &part, sums);
        }
        sums.t += piece.tokens;
    }
}

/// Lays words of two strips side by side, what is not pairs as singles: in the strips, four lanes share the sets of the first cache
/// that one would need.
#[inline]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl")]
fn unpack<const KIND: u8>(words: &Words<'_>, panel: &mut [Both<f32>]) {
    let lanes = panel.chunks_exact_mut(words.part.steps.len() * per_step(KIND));
    for (lane, panel) in words.part.lanes.clone().zip(lanes) {
        for (step, to) in words.part.steps.clone().zip(panel.chunks_exact_mut(per_step(KIND))) {
            let both = words.at::<KIND>(lane, step);
            for half in 0..2 {
                // SAFETY: the word is there; the array has 64 bytes and starts at a multiple of 64.
                unsafe {
                    let values = load::<KIND>(both[half]);
                    for i in 0..per_step(KIND) {
                        _mm512_store_ps(to[i][half].0.as_mut_ptr(), values[i]);
                    }
                }
            }
        }
    }
}

/// Goes on with the lanes' sums for the tokens of a piece, in single precision or with pairs.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn tokens<const KIND: u8>(
    w: &[Both<f32>],
    piece: &Columns,
    next: &Columns,
    part: &Part,
    sums: &mut Sums<'_, '_>,
) {
    match piece.tokens {
        12 => piece_of::<KIND, 12>(w, piece, next, part, sums),
        11 => piece_of::<KIND, 11>(w, piece, next, part, sums),
        10 => piece_of::<KIND, 10>(w, piece, next, part, sums),
        9 => piece_of::<KIND, 9>(w, piece, next, part, sums),
        8 => piece_of::<KIND, 8>(w, piece, next, part, sums),
        7 => piece_of::<KIND, 7>(w, piece, next, part, sums),
        6 => piece_of::<KIND, 6>(w, piece, next, part, sums),
        5 => piece_of::<KIND, 5>(w, piece, next, part, sums),
        _ => unreachable!("more than a few tokens make pieces of five and more"),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn piece_of<const KIND: u8, const T: usize>(
    w: &[Both<f32>],
    piece: &Columns,
    next: &Columns,
    part: &Part,
    sums: &mut Sums<'_, '_>,
) {
    let (lanes, each) = (part.lanes.len(), part.steps.len());
    let x = piece.values.as_chunks::<T>().0;
    let at = part.lanes.start * (x.len() / LANES) + part.steps.start;
    let x = &x[at..at + w.len()];
    let ahead = next.values.as_ptr().wrapping_add(at * next.tokens).addr().wrapping_sub(x.as_ptr().addr());
    for ((w, x), lane) in w.chunks_exact(each).zip(x.chunks_exact(each)).zip(part.lanes.clone()) {
        // Where this lane's sums wait between its parts there is room until they are complete.
        let depth = lane.trailing_ones() as usize;
        let mut values = [[_mm512_setzero_ps(); 2]; T];
        if part.steps.start > 0 {
            for (to, from) in values.iter_mut().zip(sums.waiting::<T>(depth, lanes)) {
                *to = [floats(&from[0]), floats(&from[1])];
            }
        }
        steps::<KIND, T>(w, x, ahead, &mut values);
        if part.last {
            for depth in 0..depth {
                for (to, from) in values.iter_mut().zip(sums.waiting::<T>(depth, lanes)) {
                    for half in 0..2 {
                        to[half] = _mm512_add_ps(floats(&from[half]), to[half]);
                    }
                }
            }
        }
        let to = sums.waiting::<T>(depth, lanes);
        for (to, from) in to.iter_mut().zip(values) {
            for half in 0..2 {
                // SAFETY: 64 bytes are written to an array of 64 that starts at a multiple of 64.
                unsafe { _mm512_store_ps(to[half].0.as_mut_ptr(), from[half]) };
            }
        }
        if part.last && depth + 1 == DEPTHS {
            let results = *to;
            for (t, both) in results.iter().enumerate() {
                let row = sums.out.row(sums.t + t)[sums.first..].chunks_mut(STRIP);
                row.zip(both).for_each(|(to, sums)| put_strip(to, sums));
            }
        }
    }
}

/// The loop of [`steps`], spelt out: a compiler would fetch a token's value twice, which makes more loads than the processor has time
/// for.
macro_rules! steps {
    ($op:literal, $sums:ident, $w:ident, $x:ident, $ahead:ident, $tokens:literal, $($t:literal $a:ident $b:ident),+) => {
        // Their type names the registers.
        let mut spent = [_mm512_setzero_ps(); 3];
        std::arch::asm!(
            "2:",
            "vmovaps {c0}, zmmword ptr [{w}]",
            "vmovaps {c1}, zmmword ptr [{w} + 64]",
            "prefetcht0 byte ptr [{x} + {ahead}]",
            $(
                concat!("vbroadcastss {v}, dword ptr [{x} + 4 * ", $t, "]"),
                concat!($op, " {", stringify!($a), "}, {c0}, {v}"),
                concat!($op, " {", stringify!($b), "}, {c1}, {v}"),
            )+
            "add {w}, 128",
            concat!("add {x}, 4 * ", $tokens),
            "dec {n}",
            "jnz 2b",
            w = inout(reg) $w.as_ptr() => _,
            x = inout(reg) $x.as_ptr() => _,
            ahead = in(reg) $ahead,
            n = inout(reg) $w.len() => _,
            c0 = out(zmm_reg) spent[0],
            c1 = out(zmm_reg) spent[1],
            v = out(zmm_reg) spent[2],
            $($a = inout(zmm_reg) $sums[$t][0], $b = inout(zmm_reg) $sums[$t][1],)+
            options(pure, readonly, nostack),
        );
        let _ = spent;
    };
}

/// Adds the products of words with `T` tokens, of as many steps; `ahead` bytes from them are the next ones'.
#[inline]
#[target_feature(enable = "avx512f")]
fn steps<const KIND: u8, const T: usize>(
    w: &[Both<f32>],
    x: &[[u32; T]],
    ahead: usize,
    sums: &mut [[__m512; 2]; T],
) {
    const { assert!(size_of::<Both<f32>>() == 128) };
    assert!(!w.is_empty() && w.len() == x.len());
    if let Some(sums) = sums.first_chunk_mut::<12>() {
        // SAFETY: what is read are two lists of so many steps. Whoever has pairs has the instruction for them.
        unsafe {
            if KIND == F32 {
                steps!("vfmadd231ps", sums, w, x, ahead, 12, 0 a0 b0, 1 a1 b1, 2 a2 b2, 3 a3 b3, 4 a4 b4, 5 a5 b5,
                    6 a6 b6, 7 a7 b7, 8 a8 b8, 9 a9 b9, 10 a10 b10, 11 a11 b11);
                return;
            } else if KIND == PAIRS {
                steps!("vdpbf16ps", sums, w, x, ahead, 12, 0 a0 b0, 1 a1 b1, 2 a2 b2, 3 a3 b3, 4 a4 b4, 5 a5 b5,
                    6 a6 b6, 7 a7 b7, 8 a8 b8, 9 a9 b9, 10 a10 b10, 11 a11 b11);
                return;
            }
        }
    } else if T == 11
        && let Some(sums) = sums.first_chunk_mut::<11>()
    {
        // SAFETY: the same.
        unsafe {
            if KIND == F32 {
                steps!("vfmadd231ps", sums, w, x, ahead, 11, 0 a0 b0, 1 a1 b1, 2 a2 b2, 3 a3 b3, 4 a4 b4, 5 a5 b5,
                    6 a6 b6, 7 a7 b7, 8 a8 b8, 9 a9 b9, 10 a10 b10);
                return;
            } else if KIND == PAIRS {
                steps!("vdpbf16ps", sums, w, x, ahead, 11, 0 a0 b0, 1 a1 b1, 2 a2 b2, 3 a3 b3, 4 a4 b4, 5 a5 b5,
                    6 a6 b6, 7 a7 b7, 8 a8 b8, 9 a9 b9, 10 a10 b10);
                return;
            }
        }
    }
    for (w, x) in w.iter().zip(x) {
        for half in 0..2 {
            // SAFETY: the array has 64 bytes.
            let w = unsafe { load::<KIND>(w[half].0.as_ptr().cast()) };
            for t in 0..T {
                sums[t][half] = multiply::<KIND>(sums[t][half], w, [x[t], 0]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_every_step_of_every_lane_once_and_in_order() {
        for steps in [0, 1, 7, 16, 28, 64, 128, 129, 300] {
            let mut seen = Vec::new();
            for part in Part::all(steps) {
                assert!(part.lanes.len() == 1 || part.steps == (0..steps) && part.last, "{steps} steps");
                assert!(
                    part.lanes.len() * part.steps.len() <= STEPS && part.lanes.start % part.lanes.len() == 0
                );
                assert_eq!(part.last, part.steps.end == steps);
                seen.extend(part.lanes.flat_map(|lane| part.steps.clone().map(move |step| (lane, step))));
            }
            let all: Vec<_> = (0..LANES).flat_map(|lane| (0..steps).map(move |step| (lane, step))).collect();
            assert_eq!(seen, all);
        }
    }
}
