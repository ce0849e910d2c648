//! Dense strips: sixteen rows, one lane for each, and the lanes of the sum one after the other.
//!
//! A few tokens stream through the weight, four chains of multiply-adds each. For many, thirty-two rows and up to twelve tokens have
//! twenty-four sums in registers: two loads of weights and twelve of activations for twenty-four multiply-adds. The weights are laid
//! for that in a part of a panel which stays in the first cache, as singles or as pairs of bf16.
#![allow(unsafe_code)]
// Closures would not be inlined: the library functions that call them lack these instructions.
#![allow(clippy::needless_range_loop)]

use super::{
    many::ask,
    pairs,
    panel::{Both, ROWS, floats, put_strip},
    put_lanes,
};
use crate::{
    linear::{Columns, Dense, Few, Job, LANES, STRIP, Side, Strips, stay_normal},
    pool::Stripe,
    simd::{
        avx2::{
            ahead::AHEAD,
            columns::{DEPTHS, F16, F32, ODD_EVEN, Part, per_step, word},
            panel::Lanes,
        },
        vendor::{is_amd, reads_ahead},
    },
};
use std::{arch::x86_64::*, cell::RefCell};

/// What is multiplied besides what AVX2 knows: pairs of bf16 with the instruction for them, and pairs of which some product could be too
/// small for it.
pub(super) const PAIRS: u8 = 3;
pub(super) const SMALL_PAIRS: u8 = 4;

/// Whether the instruction for pairs of bf16 makes more products than that for singles: on AMD it makes twice as many, on Intel
/// half as many.
pub(in crate::simd) fn are_pairs_fast() -> bool {
    is_amd() && is_x86_feature_detected!("avx512bf16")
}

/// Steps of a part of a panel.
const STEPS: usize = 128;
/// Tokens whose sums of all lanes have room in registers.
const STREAMED: usize = 4;
/// Tokens whose sums of one lane have: two registers of rows each.
const MANY: usize = 12;

/// Up to how many tokens it pays to stream through strips, by measurement, and how many together: pairs are so little work that laying them
/// anew pays sooner.
pub(in crate::simd) const fn few(side: Side) -> Few {
    match side {
        Side::Single => Few { tokens: 256, together: STREAMED, many: MANY },
        Side::OddEven => Few { tokens: 32, together: STREAMED, many: MANY },
        Side::Pairs => Few { tokens: 64, together: pairs::TOGETHER, many: MANY },
    }
}

/// What a thread keeps from run to run.
#[derive(Default)]
struct Scratch {
    panel: Vec<Both<f32>>,
    /// `[panels, DEPTHS, tokens]`
    sums: Vec<Both<f32>>,
    /// Of each of a few tokens, the lanes of the sum.
    waiting: Vec<[Both<f32>; LANES]>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// [`Columns::fill`] with these instructions.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(in crate::simd) fn lay(side: Side, x: &[f32], k: usize, out: &mut Columns) {
    out.fill(side, x, k);
}

/// Fills a stripe of the result. Where the weight's side is pairs, the machine has the instruction for them.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn stripe(job: &Job<'_>, kind: Dense, side: Side, out: &mut Stripe<'_>) {
    let pieces = job.input.columns(side);
    let few = job.input.n() <= few(side).tokens;
    match (kind, side) {
        (Dense::F32, _) if few => streamed::<F32>(job, pieces, out),
        (Dense::F16, _) if few => streamed::<F16>(job, pieces, out),
        (Dense::Bf16, Side::Pairs) if few && job.input.n() > STREAMED => {
            SCRATCH.with_borrow_mut(|Scratch { waiting, .. }| pairs::stripe(job, pieces, out, waiting));
        }
        (Dense::Bf16, Side::Pairs) if few => streamed::<PAIRS>(job, pieces, out),
        (Dense::Bf16, _) if few => streamed::<ODD_EVEN>(job, pieces, out),
        (Dense::F32, _) => many::<F32>(job, pieces, out),
        (Dense::F16, _) => many::<F16>(job, pieces, out),
        (Dense::Bf16, Side::Pairs) => many::<PAIRS>(job, pieces, out),
        (Dense::Bf16, _) => many::<ODD_EVEN>(job, pieces, out),
    }
}

/// Whether the instruction for pairs makes what the definition makes of the weight and these activations.
pub(super) fn stay_normal_in(job: &Job<'_>, piece: &Columns) -> bool {
    stay_normal(piece.least, job.w.strips().map_or(i32::MIN, Strips::least))
}

/// Whether memory takes longer than arithmetic for so many tokens. Some processors then read ahead by themselves, and do so best where
/// nothing is asked for.
const fn waits(kind: u8, tokens: usize) -> bool {
    tokens == 1 || tokens < 4 && matches!(kind, F32 | PAIRS)
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn streamed<const KIND: u8>(job: &Job<'_>, pieces: &[Columns], out: &mut Stripe<'_>) {
    for first in (0..out.width()).step_by(STRIP) {
        let Some(strip) = job.strip(first) else { return };
        let mut t = 0;
        for piece in pieces {
            let small = KIND == PAIRS && !stay_normal_in(job, piece);
            t += match piece.tokens {
                4 if small => put_lanes(out, t, first, stream::<SMALL_PAIRS, 4>(strip, piece)),
                3 if small => put_lanes(out, t, first, stream::<SMALL_PAIRS, 3>(strip, piece)),
                2 if small => put_lanes(out, t, first, stream::<SMALL_PAIRS, 2>(strip, piece)),
                _ if small => put_lanes(out, t, first, stream::<SMALL_PAIRS, 1>(strip, piece)),
                4 => put_lanes(out, t, first, stream::<KIND, 4>(strip, piece)),
                3 => put_lanes(out, t, first, stream::<KIND, 3>(strip, piece)),
                2 => put_lanes(out, t, first, stream::<KIND, 2>(strip, piece)),
                _ => put_lanes(out, t, first, stream::<KIND, 1>(strip, piece)),
            };
        }
    }
}

/// Products of a strip's rows with `T` tokens.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn stream<const KIND: u8, const T: usize>(strip: &[u8], piece: &Columns) -> [Lanes<f32>; T] {
    let steps = strip.len() / (LANES * word(KIND));
    let each = steps * per_step(KIND);
    let x = &piece.values.as_chunks::<T>().0[..LANES * each];
    assert!(strip.len() == LANES * steps * word(KIND));
    let mut sums = [[_mm512_setzero_ps(); T]; LANES];
    let asks = !(waits(KIND, T) && reads_ahead());
    for step in 0..steps {
        for l in 0..LANES {
            // SAFETY: the strip has as many words as stands above. A prefetch reads nothing, wherever it points.
            let w = unsafe {
                let w = strip.as_ptr().add((step * LANES + l) * word(KIND));
                if asks && (word(KIND) == 64 || l % 2 == 0) {
                    _mm_prefetch::<_MM_HINT_T1>(w.wrapping_add(AHEAD).cast());
                }
                load::<KIND>(w)
            };
            for t in 0..T {
                let at = l * each + step * per_step(KIND);
                let x = [x[at][t], if KIND == ODD_EVEN { x[at + 1][t] } else { 0 }];
                sums[l][t] = multiply::<KIND>(sums[l][t], w, x);
            }
        }
    }
    let mut out = [Lanes([0.0; STRIP]); T];
    for t in 0..T {
        let halves = [_mm512_add_ps(sums[0][t], sums[1][t]), _mm512_add_ps(sums[2][t], sums[3][t])];
        // SAFETY: 64 bytes are written to an array of 64 that starts at a multiple of 64.
        unsafe { _mm512_store_ps(out[t].0.as_mut_ptr(), _mm512_add_ps(halves[0], halves[1])) };
    }
    out
}

/// A word of sixteen rows as it is multiplied: one value of each, or the odd and the even one.
///
/// # Safety
/// There are [`word`] bytes.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn load<const KIND: u8>(w: *const u8) -> [__m512; 2] {
    // SAFETY: the caller says that there are so many bytes.
    unsafe {
        match KIND {
            F16 => [_mm512_cvtph_ps(_mm256_loadu_si256(w.cast())), _mm512_setzero_ps()],
            ODD_EVEN | SMALL_PAIRS => odd_even(_mm512_loadu_si512(w.cast())),
            _ => [_mm512_loadu_ps(w.cast()), _mm512_setzero_ps()],
        }
    }
}

/// The two numbers of each pair.
#[inline]
#[target_feature(enable = "avx512f")]
fn odd_even(pairs: __m512i) -> [__m512; 2] {
    let odd = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32.cast_signed()));
    [_mm512_castsi512_ps(odd), _mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs))]
}

/// `sum` and one step's products of sixteen rows with a token's values.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn multiply<const KIND: u8>(sum: __m512, w: [__m512; 2], x: [u32; 2]) -> __m512 {
    let x = x.map(u32::cast_signed);
    match KIND {
        PAIRS => {
            let (mut sum, x) = (sum, _mm512_set1_epi32(x[0]));
            // SAFETY: it reads and writes registers. Whoever has pairs has the instruction.
            unsafe {
                std::arch::asm!("vdpbf16ps {}, {}, {}", inout(zmm_reg) sum, in(zmm_reg) w[0], in(zmm_reg) x,
                    options(pure, nomem, nostack, preserves_flags));
            }
            sum
        }
        SMALL_PAIRS => {
            let x = odd_even(_mm512_set1_epi32(x[0]));
            _mm512_fmadd_ps(x[1], w[1], _mm512_fmadd_ps(x[0], w[0], sum))
        }
        ODD_EVEN => {
            let x = [_mm512_set1_epi32(x[0]), _mm512_set1_epi32(x[1])];
            let sum = _mm512_fmadd_ps(_mm512_castsi512_ps(x[0]), w[0], sum);
            _mm512_fmadd_ps(_mm512_castsi512_ps(x[1]), w[1], sum)
        }
        _ => _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_set1_epi32(x[0])), w[0], sum),
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn many<const KIND: u8>(job: &Job<'_>, pieces: &[Columns], out: &mut Stripe<'_>) {
    let n = job.input.n();
    SCRATCH.with_borrow_mut(|Scratch { panel, sums, .. }| {
        let panels = (0..out.width()).step_by(ROWS);
        // What they hold does not matter: each is written before it is read.
        sums.resize(panels.len() * DEPTHS * n, [Lanes([0.0; STRIP]); 2]);
        let steps = job.strip(0).unwrap_or_default().len() / (LANES * word(KIND));
        let mut parts = (0..LANES).flat_map(|lane| Part::of(lane, steps, STEPS)).peekable();
        while let Some(part) = parts.next() {
            for (first, sums) in panels.clone().zip(sums.chunks_exact_mut(DEPTHS * n)) {
                let strip = |r| job.strip(if r < out.width() { r } else { first }).unwrap_or_default();
                let strips = [strip(first), strip(first + STRIP)];
                let next = match first + ROWS {
                    next if next < out.width() => ([strip(next), strip(next + STRIP)], Some(&part)),
                    _ => ([strip(0), strip(STRIP)], parts.peek()),
                };
                one_part::<KIND>(job, (strips, &part), next, pieces, panel, sums);
            }
        }
        // A row of the result is a page of its own: all panels' results for one come together.
        for t in 0..n {
            let row = out.row(t).chunks_mut(ROWS);
            for (to, sums) in row.zip(sums.chunks_exact(DEPTHS * n)) {
                let both = &sums[(DEPTHS - 1) * n + t];
                to.chunks_mut(STRIP).zip(both).for_each(|(to, sums)| put_strip(to, &sums.0));
            }
        }
    });
}

/// What a part of two strips adds to the lane's sums for all tokens, and what they complete in the tree; `next` is unpacked next.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn one_part<const KIND: u8>(
    job: &Job<'_>,
    (strips, part): ([&[u8]; 2], &Part),
    next: ([&[u8]; 2], Option<&Part>),
    pieces: &[Columns],
    panel: &mut Vec<Both<f32>>,
    sums: &mut [Both<f32>],
) {
    let n = job.input.n();
    let steps = strips[0].len() / (LANES * word(KIND));
    assert!(strips.iter().all(|strip| strip.len() == LANES * steps * word(KIND)));
    assert!(part.steps.end <= steps && part.lane < LANES);
    let stride = LANES * word(KIND);
    let first = part.lane * word(KIND) + part.steps.start * stride;
    // SAFETY: the lane has so many words, of which this is one.
    let words = strips.map(|strip| unsafe { strip.as_ptr().add(first) });
    // SAFETY: the lane has so many words from there on.
    unsafe { unpack::<KIND>(words, stride, part.steps.len(), panel) };
    let (start, end) = (part.steps.start * per_step(KIND), part.steps.end * per_step(KIND));
    let part = Part { lane: part.lane, steps: start..end, last: part.last };
    let mut t = 0;
    // Of the next one's words a few with each piece: a word lies too far from the one before it for the processor to see what comes.
    let (next_strips, ahead) = (next.0, next.1.map_or(0..0, |part| part.steps.clone()));
    let share = ahead.len().div_ceil(pieces.len());
    let next_lane = next.1.map_or(0, |part| part.lane);
    for (i, piece) in pieces.iter().enumerate() {
        for step in ahead.clone().skip(i * share).take(share) {
            next_strips.iter().for_each(|strip| ask(strip, step * stride + next_lane * word(KIND), 1));
        }
        let next = &pieces[(i + 1) % pieces.len()];
        let now = &mut Sums { all: sums, n, t };
        t += piece.tokens;
        if KIND == PAIRS && !stay_normal_in(job, piece) {
            tokens::<SMALL_PAIRS>(panel, piece, next, &part, now);
        } else if KIND == PAIRS {
            tokens::<PAIRS>(panel, piece, next, &part, now);
        } else {
            tokens::<F32>(panel, piece, next, &part, now);
        }
    }
}

/// Where sums of tokens from `t` on are: `[DEPTHS, n]`.
struct Sums<'a> {
    all: &'a mut [Both<f32>],
    n: usize,
    t: usize,
}

/// Lays `count` words of two strips side by side, what is not pairs as singles: in the strips, four lanes share the sets of the first
/// cache that one would need.
///
/// # Safety
/// There are so many, `stride` bytes apart.
#[inline]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl")]
unsafe fn unpack<const KIND: u8>(
    words: [*const u8; 2],
    stride: usize,
    count: usize,
    panel: &mut Vec<Both<f32>>,
) {
    panel.resize(count * per_step(KIND), [Lanes([0.0; STRIP]); 2]);
    for (step, to) in panel.chunks_exact_mut(per_step(KIND)).enumerate() {
        for half in 0..2 {
            // SAFETY: the caller says that the words are there; the array has 64 bytes and starts at a multiple of 64.
            unsafe {
                let values = load::<KIND>(words[half].add(step * stride));
                for i in 0..per_step(KIND) {
                    _mm512_store_ps(to[i][half].0.as_mut_ptr(), values[i]);
                }
            }
        }
    }
}

/// Goes on with the lane's sums for the tokens of a piece, in single precision or with pairs.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn tokens<const KIND: u8>(
    w: &[Both<f32>],
    piece: &Columns,
    next: &Columns,
    part: &Part,
    sums: &mut Sums<'_>,
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
    sums: &mut Sums<'_>,
) {
    let x = piece.values.as_chunks::<T>().0;
    let at = part.lane * (x.len() / LANES) + part.steps.start;
    let x = &x[at..at + w.len()];
    // Where this lane's sums wait between its parts there is room until they are complete.
    let depth = part.lane.trailing_ones() as usize;
    let slot = |depth: usize| depth * sums.n + sums.t..depth * sums.n + sums.t + T;
    let mut values = [[_mm512_setzero_ps(); 2]; T];
    if part.steps.start > 0 {
        for (to, from) in values.iter_mut().zip(&sums.all[slot(depth)]) {
            *to = [floats(&from[0]), floats(&from[1])];
        }
    }
    let ahead = next.values.as_ptr().wrapping_add(at * next.tokens).addr().wrapping_sub(x.as_ptr().addr());
    steps::<KIND, T>(w, x, ahead, &mut values);
    if part.last {
        for depth in 0..depth {
            for (to, from) in values.iter_mut().zip(&sums.all[slot(depth)]) {
                for half in 0..2 {
                    to[half] = _mm512_add_ps(floats(&from[half]), to[half]);
                }
            }
        }
    }
    for (to, from) in sums.all[slot(depth)].iter_mut().zip(values) {
        for half in 0..2 {
            // SAFETY: 64 bytes are written to an array of 64 that starts at a multiple of 64.
            unsafe { _mm512_store_ps(to[half].0.as_mut_ptr(), from[half]) };
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
