//! Attention of prompts by tensor cores: which rows, on which devices, and the call.
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
/// Queries of a block: `ROWS` in the kernel.
const QUERIES: usize = 64;
/// Elements of a head that a lane's registers hold results of.
const WIDEST: usize = 256;

/// Rows of long spans.
pub(super) fn long_rows(batch: &Batch) -> usize {
    batch.spans.iter().map(|s| s.len).filter(|&len| len >= LONG as usize).sum()
}

/// Tokens of a tile of keys. By the size of heads alone, as bits hang on it.
fn keys(spec: &AttnSpec) -> usize {
    if spec.k_dim.max(spec.v_dim) <= 80 { 64 } else { 32 }
}

/// Bytes of shared memory of a block: queries, and two tiles of keys and values.
fn shared(spec: &AttnSpec) -> usize {
    let (k, v) = (2 * spec.k_dim.next_multiple_of(32), 2 * spec.v_dim.next_multiple_of(16) + 16);
    QUERIES * k + 2 * keys(spec) * (k + v)
}

/// Whether the kernel can, with key and value rows of so many elements in the cache.
pub(super) fn can(info: &DeviceInfo, compute: Compute, spec: &AttnSpec, cols: [usize; 2]) -> bool {
    let whole = [spec.k_dim, spec.v_dim].iter().chain(&cols).all(|d| d.is_multiple_of(8));
    info.capability >= oldest(compute)
        && whole
        && spec.k_dim.max(spec.v_dim) <= WIDEST
        && spec.heads.checked_div(spec.kv_heads).is_some_and(|of_group| of_group <= QUERIES)
        && shared(spec) <= info.shared_memory as usize
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
    let (n, of_group) = (plan.batch().tokens.len(), spec.heads / spec.kv_heads);
    let able = can(&device.info, compute, spec, [rows.k_cols, rows.v_cols]);
    let Some((block_len, group, element)) = rows.paged.filter(|_| able && o.mask_width == 0) else {
        return Ok(false);
    };
    if long_rows(plan.batch()) == 0 {
        return Ok(false);
    }
    let mut call = Call::new(device, at, &ATTEND_MMA, "attend_mma")
        .word("HALF", compute.name())
        .word("ELEMENT", element)
        .define("K_DIM", spec.k_dim)
        .define("V_DIM", spec.v_dim)
        .define("VECTOR", 1)
        .define("GROUP", of_group)
        .define("KEYS", keys(spec))
        .define("PAGED", 1)
        .define("KIND1", o.edits[0].0 as usize)
        .define("KIND2", o.edits[1].0 as usize)
        .define("KIND3", o.edits[2].0 as usize)
        .flag("CAUSAL", o.causal)
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
        [n.div_ceil(QUERIES / of_group), spec.kv_heads, 1],
        [THREADS, 1, 1],
        shared(spec),
    )?;
    Ok(true)
}
