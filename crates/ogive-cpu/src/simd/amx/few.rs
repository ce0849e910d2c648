//! Strips of superblocks times up to sixteen tokens: one stream through the weight, as for one token.
//!
//! Memory, vectors and tiles work at the same time. A superblock of a strip is unpacked into planes in four steps, each of which unpacks a
//! group of parts and multiplies what was unpacked in the step before, so that two groups have room near; what is read soon is asked for
//! between the instructions for tiles, a line or two each time. The sums of a superblock are written in the first step of the next one, and
//! scaled and added in its last.
//! A tile has no more rows of activations than there are tokens.
#![allow(unsafe_code)]

use super::{
    panel::{GROUPS, Panel, planes},
    sums::{Out, Written},
    superblocks::{product, scale},
    tile::{Shape, Tiles},
};
use crate::{
    linear::{GROUP, Group, Job, STRIP},
    pool::Stripe,
    simd::{
        avx2::{
            ahead::{AHEAD, LINE, ask_second},
            codes::has_min,
            panel::Lanes,
        },
        avx512::{
            panel::put_strip,
            strip::{self, Block, Scales},
        },
    },
};

/// Tokens at most: a tile has a row for each.
pub(super) const MOST: usize = GROUP / 2;

/// Fills a stripe of the result. The group's lines are those of its tokens alone.
///
/// # Safety
/// The tiles are supported.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn stripe<const F: u8, const N: usize>(
    job: &Job<'_>,
    group: &Group,
    panel: &mut Panel,
    written: &mut Written,
    out: &mut Stripe<'_>,
) {
    assert!(group.tokens <= MOST && group.each == group.tokens);
    // SAFETY: the caller says that there are tiles.
    let tiles = &unsafe { Tiles::cut(Shape::Tokens(group.tokens as u8)) };
    let blocks = |first: usize| strip::blocks::<N>(job.strip(first).unwrap_or_default());
    let mut strip = blocks(0);
    let each = strip.len();
    let total = out.width().div_ceil(STRIP) * each;
    panel.make_room::<F>(1);
    let mut sums: Out = [Lanes([0.0; STRIP]); GROUP];
    for i in 0..=total {
        // The superblock that is unpacked, and the one before it, as they are numbered in their strips.
        let (b, before) = (i % each, (i + each - 1) % each);
        if b == 0 && i > 0 && i < total {
            strip = blocks(i / each * STRIP);
        }
        let block = strip.get(b).filter(|_| i < total);
        let scales = block.map(|block| Scales::of::<F, N>(block));
        let next = strip[b].as_flattened().as_ptr().wrapping_add(AHEAD);
        let unpack = |panel: &mut Panel, g| {
            if let (Some(block), Some(scales)) = (block, &scales) {
                panel.group::<F, N>(block, scales, g, g % 2);
            }
        };
        unpack(panel, 0);
        if i > 0 {
            products::<F, N, 5>(tiles, panel, group, [before, 3], next);
            write::<F>(tiles, panel, group, before, written);
        }
        unpack(panel, 1);
        if i < total {
            zero::<F>(tiles);
            products::<F, N, 4>(tiles, panel, group, [b, 0], next);
        }
        unpack(panel, 2);
        if i < total {
            products::<F, N, 5>(tiles, panel, group, [b, 1], next);
        }
        unpack(panel, 3);
        if i < total {
            products::<F, N, 4>(tiles, panel, group, [b, 2], next);
        }
        if i > 0 {
            for quarter in 0..group.tokens.div_ceil(GROUP / 4) {
                scale::<F>(panel, group, 0, before, quarter, &mut sums, written);
            }
        }
        if let (Some(block), Some(scales)) = (block, &scales) {
            panel.rest::<F, N>(block, scales, 0);
        }
        if i > 0 && before + 1 == each {
            put(&sums, group.tokens, (i - 1) / each * STRIP, out);
        }
    }
}

/// Writes the sums of the strip whose first row is `first`.
#[inline]
#[target_feature(enable = "avx512f")]
fn put(sums: &Out, tokens: usize, first: usize, out: &mut Stripe<'_>) {
    for (t, sums) in sums.iter().enumerate().take(tokens) {
        let row = &mut out.row(t)[first..];
        let width = row.len().min(STRIP);
        put_strip(&mut row[..width], &sums.0);
    }
}

/// Empties the tiles of a superblock's sums: one for each plane and one for the minima.
#[inline(always)]
fn zero<const F: u8>(tiles: &Tiles) {
    tiles.zero::<0>();
    if planes(F) > 1 {
        tiles.zero::<1>();
    }
    if planes(F) > 2 {
        tiles.zero::<2>();
    }
    if has_min(F) {
        tiles.zero::<3>();
    }
}

/// Sums the products of a quarter of superblock `b`, whose activations are tile `A`, and asks for a quarter of a block at `next`.
#[inline(always)]
fn products<const F: u8, const N: usize, const A: u8>(
    tiles: &Tiles,
    panel: &Panel,
    group: &Group,
    [b, quarter]: [usize; 2],
    next: *const u8,
) {
    let bytes = size_of::<Block<N>>() / GROUPS;
    let (first, lines, times) = (next.wrapping_add(quarter * bytes), bytes.div_ceil(LINE), 1 + planes(F));
    let ask = |time: usize| {
        for line in lines * time / times..lines * (time + 1) / times {
            ask_second(first.wrapping_add(line * LINE));
        }
    };
    let plane = &panel.planes[quarter % 2 * planes(F)..][..planes(F)];
    let codes = &group.codes[(GROUPS * b + quarter) * group.each..][..group.tokens];
    ask(0);
    // SAFETY: a row for each token is read, and whole tiles.
    unsafe {
        tiles.load::<A, 64>(codes.as_ptr().cast());
        tiles.load::<6, 64>(plane[0].as_ptr().cast());
        product::<F, 0, A, 6>(tiles);
        ask(1);
        if planes(F) > 1 {
            tiles.load::<7, 64>(plane[1].as_ptr().cast());
            product::<F, 1, A, 7>(tiles);
            ask(2);
        }
        if planes(F) > 2 {
            tiles.load::<6, 64>(plane[2].as_ptr().cast());
            product::<F, 2, A, 6>(tiles);
            ask(3);
        }
    }
}

/// Multiplies the minima of superblock `b`, and writes its sums.
#[inline(always)]
fn write<const F: u8>(
    tiles: &Tiles,
    panel: &Panel,
    group: &Group,
    b: usize,
    Written { planes: to, low }: &mut Written,
) {
    if has_min(F) {
        let sums = &group.sums[b * group.each..][..group.tokens];
        // SAFETY: a row for each token is read, and a whole tile.
        unsafe {
            tiles.load::<4, 64>(sums.as_ptr().cast());
            tiles.load::<6, 64>(panel.mins[0].as_ptr().cast());
        }
        tiles.bf16::<3, 4, 6>();
    }
    let [a0, a1, a2] = &mut to[0];
    tiles.store::<0, _>(a0);
    if planes(F) > 1 {
        tiles.store::<1, _>(a1);
    }
    if planes(F) > 2 {
        tiles.store::<2, _>(a2);
    }
    if has_min(F) {
        tiles.store::<3, _>(&mut low[0]);
    }
}
