//! Attention of few rows over long contexts: chunks of the context side by side, then put together.
//!
//! Whether a step is split is decided by what its key says, its rows and the power of two of its longest context, so a recorded
//! step is split as it would be without a record. Where the line is drawn has not been measured on a GPU.

use super::attend::{Options, Rows, THREADS};
use crate::device::Device;
use crate::driver::Address;
use crate::launch::Call;
use crate::plan::CudaPlan;
use ogive_backend::AttnSpec;
use ogive_kernels::ATTEND_SPLIT;
use ogive_tensor::Result;

/// Tokens of a chunk: `CHUNK` in the kernel.
const CHUNK: usize = 256;
/// Blocks a chunk, at most: with more, rows and heads alone fill a device.
const BLOCKS: usize = 256;
/// Bytes between the two kernels, at most.
const BETWEEN: usize = 64 << 20;
/// Heads of a block times elements of a value, at most: what a warp keeps. Of a key there may be four times as many.
const KEPT: usize = 1024;

/// How a step is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    /// Queries of a block.
    heads: usize,
    /// Blocks for all heads of a row.
    tiles: usize,
    /// Chunks that a row may see.
    chunks: usize,
}

impl Split {
    /// How `n` rows over contexts of at most `longest` are shared out, if they are.
    pub(super) fn of(rows: &Rows, o: &Options, spec: &AttnSpec, n: usize, longest: usize) -> Option<Self> {
        let bucket = longest.checked_next_power_of_two()?;
        if rows.paged.is_none() || o.mask_width > 0 || bucket <= CHUNK {
            return None;
        }
        let of_group = spec.heads / spec.kv_heads;
        let fits = |h: usize| {
            h < 2 * of_group && spec.v_dim.max(spec.k_dim / 4).checked_mul(h).is_some_and(|n| n <= KEPT)
        };
        let heads = [8, 4, 2].into_iter().find(|h| fits(*h)).unwrap_or(1);
        let tiles = spec.kv_heads * of_group.div_ceil(heads);
        // A window may begin and end within chunks; without causality it has no end.
        let window = if o.causal { o.window as usize } else { usize::MAX };
        let seen = window.div_ceil(CHUNK).saturating_add(1);
        let chunks = bucket.div_ceil(CHUNK).min(seen);
        let between = n.checked_mul(spec.heads)?.checked_mul(chunks)?.checked_mul(4 * (spec.v_dim + 2))?;
        (tiles.checked_mul(n)? <= BLOCKS && between <= BETWEEN).then_some(Self { heads, tiles, chunks })
    }
}

/// Attends; the result goes to `out`.
pub(super) fn launch(
    device: &Device,
    at: &str,
    q: Address,
    rows: &Rows,
    o: &Options,
    spec: &AttnSpec,
    n: usize,
    step: &CudaPlan,
    split: Split,
    out: Address,
) -> Result<()> {
    let (block_len, group, element) = rows.paged.unwrap_or((1, 0, "f32"));
    let parts = device.tensor(at, [n * spec.heads, split.chunks, spec.v_dim + 2])?;
    let between = device.read(at, &parts)?;
    let call = |kernel| {
        Call::new(device, at, &ATTEND_SPLIT, kernel)
            .define("K_DIM", spec.k_dim)
            .define("V_DIM", spec.v_dim)
            .define("VECTOR", rows.k_cols.is_multiple_of(8).into())
            .word("ELEMENT", element)
            .define("HEADS", split.heads)
            .flag("CAUSAL", o.causal)
    };
    let mut first = call("attend_part")
        .at(q)
        .at(rows.k)
        .long(rows.k_bytes)
        .count("elements of a key row", rows.k_cols)
        .at(rows.v)
        .long(rows.v_bytes)
        .count("tokens in a block", block_len)
        .count("groups", group)
        .at(between)
        .count("heads", spec.heads)
        .count("key heads", spec.kv_heads)
        .float(spec.scale)
        .number(o.window);
    for (kind, value, data) in o.edits {
        first = first.edit(kind, value, data);
    }
    first.at(step.address()).run([split.tiles, split.chunks, n], [THREADS, 1, 1])?;
    call("attend_join")
        .at(between)
        .at(out)
        .count("heads", spec.heads)
        .count("chunks", split.chunks)
        .number(o.window)
        .at(o.sinks)
        .at(step.address())
        .run([spec.heads, n, 1], [THREADS, 1, 1])?;
    Ok(())
}
