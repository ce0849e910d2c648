//! Attention of prompts by tensor cores: which rows, on which devices, and the call.
//!
//! Rows that were just computed, as towers and encoders have them, are decoded to the half on their way as those of a cache in single precision are.
//!
//! By spans and not by steps: a prompt's rows are computed in the chosen half whatever else is in the step, and a sequence that decodes
//! beside it is computed as it would be alone. So the bits of neither hang on its company.

use super::attend::{Options, Rows};
use crate::builder::Compute;
use crate::device::Device;
use crate::driver::{Address, DeviceInfo};
use crate::launch::Call;
use crate::ops::matrix::oldest;
use crate::plan::CudaPlan;
use ogive_backend::{AttnSpec, Batch, Plan};
use ogive_kernels::ATTEND_MMA;
use ogive_tensor::Result;

/// Spans with this many rows are long: sixteen queries of a head fill a warp's tile.
pub(super) const LONG: u32 = 16;
/// Threads of a block: `THREADS` in the kernel.
const THREADS: u32 = 128;
/// Queries of a block whose warps have sixteen each.
const QUERIES: usize = 64;
/// Elements of a head that a lane's registers hold results of.
const WIDEST: usize = 256;
/// The same with two sixteens of queries, where no option changes scores.
const TWICE: usize = 128;
/// Bytes of shared memory that the driver takes for itself with each block, from compute capability 8.0.
const RESERVED: usize = 1024;

/// Rows of long spans.
pub(super) fn long_rows(batch: &Batch) -> usize {
    batch.spans.iter().map(|s| s.len).filter(|&len| len >= LONG as usize).sum()
}

/// Tokens of a tile of keys. By the size of heads alone, as bits hang on it.
fn keys(spec: &AttnSpec) -> usize {
    if spec.k_dim.max(spec.v_dim) <= 80 { 64 } else { 32 }
}

/// Bytes of shared memory of a block with so many sixteens of queries a warp: queries, and two tiles of keys and values.
fn shared(spec: &AttnSpec, sixteens: usize) -> usize {
    let (k, v) = (2 * spec.k_dim.next_multiple_of(32), 2 * spec.v_dim.next_multiple_of(16) + 16);
    sixteens * QUERIES * k + 2 * keys(spec) * (k + v)
}

/// Rows of a block.
fn rows_of_block(spec: &AttnSpec, sixteens: usize) -> usize {
    (sixteens * QUERIES * spec.kv_heads / spec.heads).max(1)
}

/// Blocks for `n` rows.
fn blocks(spec: &AttnSpec, sixteens: usize, n: usize) -> usize {
    n.div_ceil(rows_of_block(spec, sixteens)) * spec.kv_heads
}

/// Sixteens of queries of a warp: two read keys and values from shared memory half as often. They want a device that has room for two such
/// blocks a multiprocessor, whose memory is a block's most and what the driver takes of it, and rows enough for a block each. A query's bits
/// do not hang on it.
fn sixteens(info: &DeviceInfo, spec: &AttnSpec, edited: bool, n: usize) -> usize {
    let registers = spec.k_dim.max(spec.v_dim) <= TWICE && !edited;
    let room = 2 * (shared(spec, 2) + RESERVED) <= info.shared_memory as usize + RESERVED;
    let busy = blocks(spec, 2, n) >= info.multiprocessors as usize;
    if info.capability >= (8, 0) && registers && room && busy { 2 } else { 1 }
}

/// Whether the kernel can, with key and value rows of so many elements in the cache.
pub(super) fn can(info: &DeviceInfo, compute: Compute, spec: &AttnSpec, cols: [usize; 2]) -> bool {
    let whole = [spec.k_dim, spec.v_dim].iter().chain(&cols).all(|d| d.is_multiple_of(8));
    info.capability >= oldest(compute)
        && whole
        && spec.k_dim.max(spec.v_dim) <= WIDEST
        && spec.heads.checked_div(spec.kv_heads).is_some_and(|of_group| of_group <= QUERIES)
        && shared(spec, 1) <= info.shared_memory as usize
}

/// Attends the rows of long spans, if there are any and the kernel can; whether it did.
pub(super) fn launch(
    device: &Device,
    compute: Compute,
    at: &str,
    q: Address,
    rows: &Rows,
    o: &Options,
    spec: &AttnSpec,
    plan: &Plan,
    step: &CudaPlan,
    out: Address,
) -> Result<bool> {
    let n = plan.batch().tokens.len();
    let able = can(&device.info, compute, spec, [rows.k_cols, rows.v_cols]);
    if !able || o.mask_width > 0 || long_rows(plan.batch()) == 0 {
        return Ok(false);
    }
    // Rows laid end to end are blocks of one.
    let (block_len, group, element) = rows.paged.unwrap_or((1, 0, "f32"));
    let sixteens = sixteens(&device.info, spec, o.edits[0].0 != 0, n);
    let mut call = Call::new(device, at, &ATTEND_MMA, "attend_mma")
        .word("HALF", compute.name())
        .word("ELEMENT", element)
        .define("K_DIM", spec.k_dim)
        .define("V_DIM", spec.v_dim)
        .define("VECTOR", 1)
        .define("GROUP", spec.heads / spec.kv_heads)
        .define("KEYS", keys(spec))
        .define("SIXTEENS", sixteens)
        .flag("PAGED", rows.paged.is_some())
        .define("KIND1", o.edits[0].0 as usize)
        .define("KIND2", o.edits[1].0 as usize)
        .define("KIND3", o.edits[2].0 as usize)
        .flag("CAUSAL", o.causal)
        .flag("MUTUAL", o.mutual)
        .flag("CHUNKED", o.chunked)
        .given("AFTER", o.ahead)
        .flag("SAME", element == compute.name())
        .at(q)
        .at(rows.k)
        .long(rows.k_bytes)
        .count("elements of a key row", rows.k_cols)
        .at(rows.v)
        .long(rows.v_bytes)
        .count("elements of a value row", rows.v_cols)
        .count("tokens in a block", block_len)
        .count("groups", group)
        .at(out)
        .count("heads", spec.heads)
        .float(spec.scale)
        .number(o.window);
    for (kind, value, data) in o.edits {
        call = call.edit(kind, value, data);
    }
    call.at(o.sinks).number(LONG).at(step.address()).run_shared(
        [blocks(spec, sixteens, n), 1, 1],
        [THREADS, 1, 1],
        shared(spec, sixteens),
    )?;
    Ok(true)
}
