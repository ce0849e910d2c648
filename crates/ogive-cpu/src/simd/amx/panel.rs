//! Up to four strips of a packed weight, up to 256 columns of them, unpacked for tiles.
//!
//! A superblock's sub-scales would have to be applied between two products. Instead they go into the codes, cut into digits so that
//! the product of a digit and a code is a byte again: Q4_K's scale is `16 h + l`, and both `h · code` and `l · code` stay below 256.
//! So each digit makes a plane of bytes, a superblock's sum is `16 Σ h · code · a + Σ l · code · a`, and that is exact, as it is
//! defined to be. Other blocks stand as they are, and are multiplied one by one.
#![allow(unsafe_code)]
// Closures would not be inlined: the library functions that call them lack these instructions.
#![allow(clippy::needless_range_loop)]

use crate::simd::{
    avx2::{
        codes::{self, has_min},
        panel::Lanes,
    },
    avx512::{
        panel::put,
        strip::{Block, Scales, blocks, factors, parts, quad, raise},
    },
};
use std::arch::x86_64::*;

/// Strips of a panel: activations that have come into the first cache are used so many times, and the planes of two superblocks have room
/// beside them.
pub(super) const fn strips(f: u8) -> usize {
    match way(f) {
        Way::Planes(..) => 2,
        Way::Blocks => 4,
    }
}

/// Groups of a superblock's parts, which are unpacked together.
pub(super) const GROUPS: usize = 4;

/// A tile B: row `i` has four neighbouring codes of each of a strip's rows.
pub(super) type Tile = [Lanes<[u8; 4]>; 16];
/// The same of 32 codes.
pub(super) type HalfTile = [Lanes<[u8; 4]>; 8];

/// How a format's superblocks are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// As planes of digits, the first the most significant, of numbers to this base.
    Planes(usize, i32),
    /// 32 codes at a time.
    Blocks,
}

/// The way of a format.
pub(super) const fn way(f: u8) -> Way {
    match f {
        // 15 · 3.
        codes::Q2_K => Way::Planes(1, 1),
        // -4 · -32 is one more than a byte holds, so the sign is turned round.
        codes::Q3_K => Way::Planes(1, -1),
        // 15 · 15.
        codes::Q4_K => Way::Planes(2, 16),
        // 7 · 31.
        codes::Q5_K => Way::Planes(2, 8),
        // Digits from -3 to 3, times -32.
        codes::Q6_K => Way::Planes(3, 7),
        _ => Way::Blocks,
    }
}

/// Planes of a format.
pub(super) const fn planes(f: u8) -> usize {
    match way(f) {
        Way::Planes(n, _) => n,
        Way::Blocks => 1,
    }
}

/// The unpacked rows; its buffers are used again. All is strip by strip.
#[derive(Debug, Default)]
pub(super) struct Panel {
    /// How many there are.
    pub(super) strips: usize,
    /// For each 64 codes of a superblock, a group, its planes. `[strips, GROUPS, planes]`
    pub(super) planes: Vec<Tile>,
    /// What each 16 activations of a superblock are multiplied with, twice in bf16. `[strips]`
    pub(super) mins: Vec<Tile>,
    /// Codes of 32 elements. `[strips, blocks]`
    pub(super) blocks: Vec<HalfTile>,
    /// What their sums are multiplied with, where they are parts of a superblock. `[strips, blocks]`
    pub(super) scales: Vec<Lanes<i32>>,
    /// The factor of the codes of a block or superblock. `[strips, count]`
    pub(super) d: Vec<Lanes<f32>>,
    /// The factor of its minima, with its sign. `[strips, count]`
    pub(super) m: Vec<Lanes<f32>>,
}

impl Panel {
    /// Unpacks one superblock of each strip.
    #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
    pub(super) fn superblock<const F: u8, const N: usize>(&mut self, strips: &[&[u8]]) {
        self.make_room::<F>(strips.len());
        for (s, strip) in strips.iter().enumerate() {
            let block = &blocks::<N>(strip)[0];
            let scales = Scales::of::<F, N>(block);
            for g in 0..GROUPS {
                self.group::<F, N>(block, &scales, g, s * GROUPS + g);
            }
            self.rest::<F, N>(block, &scales, s);
        }
    }

    /// For a superblock of each of so many strips.
    pub(super) fn make_room<const F: u8>(&mut self, strips: usize) {
        self.strips = strips;
        self.planes.resize(strips * GROUPS * planes(F), [Lanes([[0; 4]; 16]); 16]);
        self.mins.resize(strips, [Lanes([[0; 4]; 16]); 16]);
        self.d.resize(strips, Lanes([0.0; 16]));
        self.m.resize(strips, Lanes([0.0; 16]));
    }

    /// What is unpacked of a superblock besides its planes.
    #[inline]
    #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
    pub(super) fn rest<const F: u8, const N: usize>(&mut self, block: &Block<N>, scales: &Scales, s: usize) {
        if has_min(F) {
            let each = 16 / parts(F);
            for (i, rows) in self.mins[s].chunks_exact_mut(2 * each).enumerate() {
                let pair = scales.mins(i);
                let low = _mm512_and_si512(pair, _mm512_set1_epi32(0xffff));
                for (j, row) in rows.iter_mut().enumerate() {
                    let min = if j < each { low } else { _mm512_srli_epi32::<16>(pair) };
                    // A number of eight bits is a bf16: the upper half of it in single precision.
                    let high = _mm512_castps_si512(_mm512_cvtepi32_ps(min));
                    put(row, _mm512_or_si512(high, _mm512_srli_epi32::<16>(high)));
                }
            }
        }
        self.factors::<F, N>(s, block);
    }

    /// The planes of group `g` of a superblock's parts, as the panel's group `to`.
    ///
    /// One multiplication of 16 bits makes two bytes: where nothing is negative no product reaches the byte above it. Raised codes are one more
    /// than that here, so that with a negative digit every product is negative, and each takes one from the byte above.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    pub(super) fn group<const F: u8, const N: usize>(
        &mut self,
        block: &Block<N>,
        scales: &Scales,
        g: usize,
        to: usize,
    ) {
        let (each, quads) = (parts(F) / GROUPS, 64 / parts(F));
        let zero = _mm512_setzero_si512();
        // Of each part of the group and each plane, the digit in both halves of a word, and what raised codes have too much of it.
        let mut factors = [[[zero; 2]; 3]; 4];
        for pair in 0..each / 2 {
            let digits = digits::<F>(scales.pair::<F>(g * each / 2 + pair));
            for n in 0..planes(F) {
                // The lower byte twice, and one less in the upper if it is negative.
                let raised = _mm512_mullo_epi16(digits[n], _mm512_set1_epi16(raise(F) + 1));
                let upper = _mm512_add_epi16(raised, _mm512_srai_epi16::<15>(digits[n]));
                let raised = _mm512_mask_blend_epi8(!0 / 3 * 2, raised, _mm512_slli_epi16::<8>(upper));
                for half in 0..2 {
                    factors[2 * pair + half][n] = [spread(digits[n], half), spread(raised, half)];
                }
            }
        }
        for i in 0..quads {
            for k in 0..each {
                let mut c = quad::<F, N>(block, g * each + k, i);
                if raise(F) != 0 {
                    c = _mm512_add_epi8(c, _mm512_set1_epi8(1));
                }
                for n in 0..planes(F) {
                    let [digit, raised] = factors[k][n];
                    let products = _mm512_mullo_epi16(c, digit);
                    let v = match way(F) {
                        _ if raise(F) == 0 => products,
                        Way::Planes(_, -1) => _mm512_sub_epi8(raised, products),
                        _ => _mm512_sub_epi8(products, raised),
                    };
                    put(&mut self.planes[to * planes(F) + n][k * quads + i], v);
                }
            }
        }
    }

    /// Unpacks blocks of 32 codes of each strip, all equally long.
    #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
    pub(super) fn blocks<const F: u8, const N: usize>(&mut self, strips: &[&[u8]]) {
        let super_block = codes::super_block(F);
        let count = strips.first().map_or(0, |strip| blocks::<N>(strip).len());
        let each = if super_block { parts(F) } else { 1 };
        let all = strips.len() * count;
        self.strips = strips.len();
        self.blocks.resize(all * each, [Lanes([[0; 4]; 16]); 8]);
        self.scales.resize(if super_block { all * each } else { 0 }, Lanes([0; 16]));
        self.d.resize(all, Lanes([0.0; 16]));
        self.m.resize(if has_min(F) { all } else { 0 }, Lanes([0.0; 16]));
        for (s, strip) in strips.iter().enumerate() {
            for (b, block) in (s * count..).zip(&blocks::<N>(strip)[..count]) {
                for p in 0..each {
                    for i in 0..8 {
                        let v = quad::<F, N>(block, p, i);
                        let v = _mm512_sub_epi8(v, _mm512_set1_epi8(raise(F) as i8));
                        put(&mut self.blocks[b * each + p][i], v);
                    }
                }
                if super_block {
                    let scales = Scales::of::<F, N>(block);
                    for p in 0..each {
                        put(&mut self.scales[b * each + p], scales.scale::<F>(p));
                    }
                }
                self.factors::<F, N>(b, block);
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
    fn factors<const F: u8, const N: usize>(&mut self, b: usize, block: &Block<N>) {
        let (d, m) = factors::<F, N>(block);
        put(&mut self.d[b], _mm512_castps_si512(d));
        if has_min(F) {
            put(&mut self.m[b], _mm512_castps_si512(m));
        }
    }
}

/// The digits of sub-scales of 16 bits, the most significant first; as many as there are planes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn digits<const F: u8>(s: __m512i) -> [__m512i; 3] {
    let and = |v: __m512i, mask: i16| _mm512_and_si512(v, _mm512_set1_epi16(mask));
    match way(F) {
        Way::Planes(2, 8) => [_mm512_srli_epi16::<3>(s), and(s, 7), s],
        Way::Planes(2, _) => [_mm512_srli_epi16::<4>(s), and(s, 15), s],
        Way::Planes(3, _) => {
            // The nearest multiple of 49, and of what is left that of 7: from -128 to 127 these products, whose upper halves are rounded, find it.
            let less = |v: __m512i, n: __m512i, base: i16| {
                _mm512_sub_epi16(v, _mm512_mullo_epi16(n, _mm512_set1_epi16(base)))
            };
            let high = _mm512_mulhrs_epi16(s, _mm512_set1_epi16(669));
            let rest = less(s, high, 49);
            let middle = _mm512_mulhrs_epi16(rest, _mm512_set1_epi16(4681));
            [high, middle, less(rest, middle, 7)]
        }
        _ => [s; 3],
    }
}

/// One half of each word, twice.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn spread(v: __m512i, half: usize) -> __m512i {
    let bytes = _mm512_set4_epi32(0x0d0c_0d0c, 0x0908_0908, 0x0504_0504, 0x0100_0100);
    _mm512_shuffle_epi8(v, _mm512_add_epi8(bytes, _mm512_set1_epi8(2 * half as i8)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn digits_to_base_seven_are_small() {
        let nearest = |v: i32, inverse: i32| (v * inverse + (1 << 14)) >> 15;
        for s in -128..128_i32 {
            let high = nearest(s, 669);
            let middle = nearest(s - 49 * high, 4681);
            let low = s - 49 * high - 7 * middle;
            assert!([high, middle, low].iter().all(|d| d.abs() <= 3), "{s}: {high} {middle} {low}");
        }
    }
}
