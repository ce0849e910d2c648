//! AMX: packed products of many tokens, some eight times as many a cycle as AVX-512 has.
//!
//! Packed sums are the same integers as everywhere, so the bits are too. BF16 weights are multiplied in tiles from the first token
//! on, in the tiles' own order ([`dot_in_tiles`](crate::linear)). Everything else is as on AVX-512.
#![allow(unsafe_code)]

mod blocks;
pub(super) mod dense;
mod few;
mod panel;
mod sums;
mod superblocks;
pub(super) mod tile;

use super::{
    avx2::{codes, panel::Lanes},
    avx512::{self, panel::put_strip},
};
use crate::{
    linear::{Form, GROUP, Group, Job, Packed, STRIP, block_len},
    pool::Stripe,
    weight::Kernel,
};
use panel::{Panel, Way, strips};
use std::cell::RefCell;
use sums::{Out, Written};
use tile::{Shape, Tiles};

/// Columns that are unpacked at a time: a superblock, and a block of activations.
const SLICE: usize = 256;

/// From how many tokens on packed products are computed in tiles, by measurement.
pub(super) fn from(kernel: Kernel, strips: bool) -> usize {
    match kernel {
        Kernel::Packed(Packed::Q2K | Packed::Q3K) if strips => 5,
        Kernel::Packed(Packed::Q4K | Packed::Q5K) if strips => 8,
        Kernel::Packed(Packed::Q6K) if strips => 12,
        // Scales of 16 elements, and too large for planes.
        Kernel::Coded(_) | Kernel::Packed(Packed::Nvfp4 | Packed::Tq2) => usize::MAX,
        _ => 20,
    }
}

/// What a thread keeps from run to run.
#[derive(Default)]
struct Scratch {
    panel: Panel,
    /// `[panels, groups, strips]`
    sums: Vec<Out>,
    written: [Written; 4],
    /// The strips of a panel of a weight that does not lie so.
    laid: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Fills a stripe of the result.
///
/// # Safety
/// The machine has what is enabled here, and tiles.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn stripe(job: &Job<'_>, out: &mut Stripe<'_>) {
    if job.kernel() == Kernel::Tiled {
        // SAFETY: the caller says that there are tiles.
        return unsafe { dense::stripe(job, out) };
    }
    // There may be groups for another weight with the same input.
    let groups = if job.w.wants(job.input.n()) == Form::Groups { job.input.groups() } else { &[] };
    let (Kernel::Packed(format), groups @ [_, ..]) = (job.kernel(), groups) else {
        return avx512::stripe(job, out);
    };
    if let [alone] = groups
        && alone.tokens <= few::MOST
    {
        // SAFETY: the caller says that there are tiles.
        return SCRATCH.with_borrow_mut(|Scratch { panel, written: [written, ..], .. }| unsafe {
            match format {
                Packed::Q2K => few::stripe::<{ codes::Q2_K }, 84>(job, alone, panel, written, out),
                Packed::Q3K => few::stripe::<{ codes::Q3_K }, 110>(job, alone, panel, written, out),
                Packed::Q4K => few::stripe::<{ codes::Q4_K }, 144>(job, alone, panel, written, out),
                Packed::Q5K => few::stripe::<{ codes::Q5_K }, 176>(job, alone, panel, written, out),
                Packed::Q6K => few::stripe::<{ codes::Q6_K }, 210>(job, alone, panel, written, out),
                _ => unreachable!("blocks are multiplied in tiles for more tokens"),
            }
        });
    }
    let shape = if panel::way(format as u8) == Way::Blocks { Shape::Half } else { Shape::Full };
    // SAFETY: the caller says that there are tiles.
    let tiles = unsafe { Tiles::cut(shape) };
    match format {
        Packed::Q4_0 => packed::<{ codes::Q4_0 }, 18>(&tiles, job, groups, format, out),
        Packed::Q4_1 => packed::<{ codes::Q4_1 }, 20>(&tiles, job, groups, format, out),
        Packed::Q5_0 => packed::<{ codes::Q5_0 }, 22>(&tiles, job, groups, format, out),
        Packed::Q5_1 => packed::<{ codes::Q5_1 }, 24>(&tiles, job, groups, format, out),
        Packed::Q8_0 => packed::<{ codes::Q8_0 }, 34>(&tiles, job, groups, format, out),
        Packed::Iq4Nl => packed::<{ codes::IQ4_NL }, 18>(&tiles, job, groups, format, out),
        Packed::Mxfp4 => packed::<{ codes::MXFP4 }, 17>(&tiles, job, groups, format, out),
        Packed::Q2K => packed::<{ codes::Q2_K }, 84>(&tiles, job, groups, format, out),
        Packed::Q3K => packed::<{ codes::Q3_K }, 110>(&tiles, job, groups, format, out),
        Packed::Q4K => packed::<{ codes::Q4_K }, 144>(&tiles, job, groups, format, out),
        Packed::Q5K => packed::<{ codes::Q5_K }, 176>(&tiles, job, groups, format, out),
        Packed::Q6K => packed::<{ codes::Q6_K }, 210>(&tiles, job, groups, format, out),
        Packed::Iq4Xs => packed::<{ codes::IQ4_XS }, 136>(&tiles, job, groups, format, out),
        Packed::Coded | Packed::Tq2 | Packed::Nvfp4 => {
            unreachable!("sub-scales of 16 are no planes and no blocks of 32")
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn packed<const F: u8, const N: usize>(
    tiles: &Tiles,
    job: &Job<'_>,
    groups: &[Group],
    format: Packed,
    out: &mut Stripe<'_>,
) {
    SCRATCH.with_borrow_mut(|scratch| match strips(F) {
        2 => panels::<F, N, 2>(scratch, tiles, job, groups, format, out),
        _ => panels::<F, N, 4>(scratch, tiles, job, groups, format, out),
    });
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn panels<const F: u8, const N: usize, const STRIPS: usize>(
    Scratch { panel, sums, written, laid, .. }: &mut Scratch,
    tiles: &Tiles,
    job: &Job<'_>,
    groups: &[Group],
    format: Packed,
    out: &mut Stripe<'_>,
) {
    let panels = (0..out.width()).step_by(STRIPS * STRIP);
    // What they hold does not matter: the first slice begins them.
    let each = groups.len() * STRIPS;
    sums.resize(panels.len() * each, [Lanes([0.0; 16]); GROUP]);
    let elements = if codes::super_block(F) { 256 } else { 32 };
    let row_bytes = job.w.host().row_bytes();
    let block = block_len(row_bytes / N * elements);
    let slice = SLICE / elements * N;
    // All panels pass a slice of the activations, which stays in the second cache meanwhile.
    for (i, start) in (0..row_bytes).step_by(slice).enumerate() {
        for (first, sums) in panels.clone().zip(sums.chunks_exact_mut(each)) {
            let rows = avx512::Rows::<STRIPS>::new(job, first, out.width());
            let part = rows.part(format, start..row_bytes.min(start + slice), laid);
            let part = &part[..STRIPS.min((out.width() - first).div_ceil(STRIP))];
            match panel::way(F) {
                Way::Planes(..) => {
                    panel.superblock::<F, N>(part);
                    superblocks::superblock::<F>(tiles, panel, groups, i, sums, written);
                }
                Way::Blocks => {
                    panel.blocks::<F, N>(part);
                    blocks::blocks::<F>(tiles, panel, groups, block, i * SLICE, sums, written);
                }
            }
        }
    }
    // A row of the result is a page of its own: all panels' results for one come together.
    for t in 0..job.input.n() {
        let row = out.row(t).chunks_mut(STRIPS * STRIP);
        for (to, sums) in row.zip(sums.chunks_exact(each)) {
            let count = to.len().div_ceil(STRIP);
            let strips = to.chunks_mut(STRIP).zip(&sums[t / GROUP * count..][..count]);
            strips.for_each(|(to, sums)| put_strip(to, &sums[t % GROUP].0));
        }
    }
}

const _: () = assert!(STRIP == 16 && GROUP == 32);
