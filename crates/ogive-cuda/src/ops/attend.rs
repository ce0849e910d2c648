//! Attention: over rows laid end to end, and over the paged cache. What differs is where a token's row lies.
//!
//! Two kernels give the same bits: one takes a row's context chunk after chunk, the other a block for each chunk. So which of them
//! a row meets may hang on the rest of the step (`split` says how), and its result does not.

use crate::builder::Compute;
use crate::cache;
use crate::cuda::Products;
use crate::device::Device;
use crate::driver::Address;
use crate::launch::Call;
use crate::memory::Pool;
use crate::ops::split::{PARTS, Split};
use crate::ops::{attend_tiles, codes};
use crate::plan::{self, CudaPlan};
use ogive_backend::{Attended, AttnOption, AttnSpec, Cache, LayerCache, Plan};
use ogive_kernels::{ATTEND, ATTEND_SPLIT};
use ogive_tensor::{Error, Result, Tensor};
use std::sync::Arc;

/// Bytes of shared memory that a kernel may declare.
const SHARED: usize = 48 << 10;
/// Heads of a block times elements of a value, at most: what a warp keeps. Of a key there may be four times as many.
const KEPT: usize = 1024;
/// Options that change a score, at most.
const EDITS: usize = 3;

/// Keys and values: where they begin, bytes of a row, and elements of a key row.
pub(super) struct Rows {
    pub(super) k: Address,
    pub(super) k_bytes: usize,
    pub(super) k_cols: usize,
    pub(super) v: Address,
    pub(super) v_bytes: usize,
    /// The cache's block length, group and element type.
    pub(super) paged: Option<(usize, usize, &'static str)>,
    /// Elements of a value row.
    pub(super) v_cols: usize,
}

/// The options as the kernel takes them.
pub(super) struct Options {
    pub(super) causal: bool,
    /// Whether rows of the step see each other to both sides.
    pub(super) mutual: bool,
    /// Tokens of a window, or of a chunk where sequences are cut into such.
    pub(super) window: u32,
    pub(super) chunked: bool,
    /// Tokens behind its own place that a row sees, if they are bounded.
    pub(super) ahead: Option<usize>,
    pub(super) edits: [(u32, f32, Address); EDITS],
    pub(super) sinks: Address,
    pub(super) mask_width: usize,
    /// Keeps what the host sent up until the kernel is queued.
    _held: Vec<Arc<crate::memory::Buffer>>,
}

fn options(device: &Device, at: &str, spec: &AttnSpec, n: usize, step: &CudaPlan) -> Result<Options> {
    let mut o = Options {
        causal: false,
        mutual: false,
        window: u32::MAX,
        chunked: spec.chunk().is_some(),
        // A kernel adds it to a position, in 32 bits; none is as far ahead as half of these count.
        ahead: spec.ahead().filter(|n| i32::try_from(*n).is_ok()),
        edits: [(0, 0.0, 0); EDITS],
        sinks: 0,
        mask_width: 0,
        _held: Vec::new(),
    };
    let per_head = |what: &str, len: usize| {
        let why = format!("{len} {what} for {} heads", spec.heads);
        if len == spec.heads { Ok(()) } else { Err(Error::invalid(at, why)) }
    };
    let mut edits = Vec::new();
    for option in &spec.options {
        match option {
            AttnOption::Causal => o.causal = true,
            AttnOption::Mutual => o.mutual = step.mutual,
            AttnOption::Window(_) | AttnOption::Ahead(_) | AttnOption::Chunk(_) => {}
            AttnOption::SoftCap(cap) => edits.push((1, *cap, 0)),
            AttnOption::Alibi(slopes) => {
                per_head("slopes", slopes.len())?;
                let buffer = device.constant(at, slopes)?;
                edits.push((2, 0.0, buffer.address()));
                o._held.push(buffer);
            }
            AttnOption::Mask(mask) => {
                // As wide as the longest context.
                device.outside("a mask")?;
                if mask.shape().dims() != [n, step.longest] {
                    return Err(Error::shape(at, mask.shape(), [n, step.longest].into()).within("mask"));
                }
                edits.push((3, 0.0, device.read(at, mask)?));
                o.mask_width = step.longest;
            }
            AttnOption::Sinks(scores) => {
                o.sinks = device.read(at, scores)?;
                per_head("sinks", scores.shape().len())?;
            }
            AttnOption::Other(name) => {
                return Err(Error::unsupported(at, format!("CUDA does not know the option `{name}`")));
            }
            other => return Err(Error::unsupported(at, format!("CUDA does not know the option {other:?}"))),
        }
    }
    if edits.len() > EDITS {
        let why = format!("{} options change the scores; at most {EDITS} may", edits.len());
        return Err(Error::unsupported(at, why));
    }
    o.edits.iter_mut().zip(edits).for_each(|(to, edit)| *to = edit);
    if o.chunked && spec.window().is_some() {
        return Err(Error::unsupported(at, "CUDA knows windows, and it knows chunks, but not both at once"));
    }
    o.window = window(spec);
    Ok(o)
}

/// Checks heads and queries.
fn check(device: &Device, at: &str, q: &Tensor, spec: &AttnSpec, n: usize) -> Result<Address> {
    let AttnSpec { heads, kv_heads, k_dim, .. } = *spec;
    if heads == 0 || kv_heads == 0 || heads % kv_heads != 0 {
        return Err(Error::invalid(at, format!("{heads} heads do not share {kv_heads} evenly")));
    }
    fits(device, at, q, [n, heads, k_dim])
}

/// Where `x` lies, if it is `rows` times `heads` times `dim`, whether heads are an extent or not.
fn fits(device: &Device, at: &str, x: &Tensor, [rows, heads, dim]: [usize; 3]) -> Result<Address> {
    let address = device.read(at, x)?;
    let len = rows.checked_mul(heads).and_then(|n| n.checked_mul(dim));
    if x.shape().first() != rows || Some(x.shape().len()) != len {
        return Err(Error::shape(at, x.shape(), [rows, heads, dim].into()));
    }
    Ok(address)
}

/// `[n, heads * k_dim] -> [n, heads * v_dim]`
pub(crate) fn attend(
    device: &Device,
    compute: Compute,
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    spec: &AttnSpec,
    plan: &Plan,
) -> Result<Tensor> {
    let at = "attend";
    // Rows of all contexts: their number is the step's own.
    device.outside(at)?;
    let (step, n) = (plan::device(at, device, plan)?, plan.batch().tokens.len());
    let from = check(device, at, q, spec, n)?;
    let rows = Rows {
        k: fits(device, at, k, [step.contexts, spec.kv_heads, spec.k_dim])?,
        k_bytes: 4 * spec.kv_heads * spec.k_dim,
        k_cols: spec.kv_heads * spec.k_dim,
        v: fits(device, at, v, [step.contexts, spec.kv_heads, spec.v_dim])?,
        v_bytes: 4 * spec.kv_heads * spec.v_dim,
        v_cols: spec.kv_heads * spec.v_dim,
        paged: None,
    };
    // What sees all is an encoder's or a tower's: long, and what a cache would hold in half precision.
    let compute = if spec.looks_back() { Compute::F32 } else { compute.over(&device.info, "f16") };
    launch(device, compute, at, from, &rows, spec, plan, step, PARTS)
}

/// Attention over what the layer holds; `latent` where values are the beginning of the keys. Parts of chunks take no more than `parts`
/// bytes, which bits do not hang on.
pub(crate) fn attend_cache(
    device: &Device,
    compute: Compute,
    layer: usize,
    q: &Tensor,
    cache: &Cache,
    spec: &AttnSpec,
    plan: &Plan,
    latent: bool,
    parts: usize,
) -> Result<Tensor> {
    let at = if latent { "attend_latent" } else { "attend_cache" };
    let (step, n) = (plan::device(at, device, plan)?, plan.batch().tokens.len());
    let from = check(device, at, q, spec, n)?;
    let pages = cache::pages(device, at, cache, layer)?;
    pages.check(device, at, step, plan.batch(), true)?;
    let v = match (latent, pages.v) {
        (false, Some(v)) => v,
        (false, None) => return Err(Error::unsupported(at, "the layer keeps no values")),
        (true, _) if spec.v_dim > pages.k.dim || spec.kv_heads != 1 => {
            return Err(Error::invalid(
                at,
                format!("{} values of {} in rows of {}", spec.kv_heads, spec.v_dim, pages.k.dim),
            ));
        }
        (true, _) => pages.k,
    };
    let wide = |dim: usize| spec.kv_heads.checked_mul(dim);
    if wide(spec.k_dim) != Some(pages.k.dim) || (!latent && wide(spec.v_dim) != Some(v.dim)) {
        let why =
            format!("heads of {} and {} over rows of {} and {}", spec.k_dim, spec.v_dim, pages.k.dim, v.dim);
        return Err(Error::invalid(at, why));
    }
    let rows = Rows {
        k: pages.k.address,
        k_bytes: pages.k.row_bytes,
        k_cols: pages.k.dim,
        v: v.address,
        v_bytes: v.row_bytes,
        v_cols: v.dim,
        paged: Some((pages.block_len, pages.group, pages.element)),
    };
    let compute = compute.over(&device.info, pages.element);
    launch(device, compute, at, from, &rows, spec, plan, step, parts)
}

/// Queries of a block that share a key head: no more than there are, and no more than a thread's registers hold results of.
fn heads_of_block(spec: &AttnSpec) -> usize {
    let group = spec.heads / spec.kv_heads;
    let fits =
        |h: usize| h < 2 * group && spec.v_dim.max(spec.k_dim / 4).checked_mul(h).is_some_and(|n| n <= KEPT);
    [8, 4, 2].into_iter().find(|h| fits(*h)).unwrap_or(1)
}

/// Tiles of so many heads that a row has.
fn tiles(spec: &AttnSpec, heads: usize) -> usize {
    spec.kv_heads * (spec.heads / spec.kv_heads).div_ceil(heads)
}

/// Tokens of a window or of a chunk.
fn window(spec: &AttnSpec) -> u32 {
    spec.reach().and_then(|w| u32::try_from(w).ok()).unwrap_or(u32::MAX)
}

/// Tokens that a row sees, at most.
fn seen(spec: &AttnSpec) -> u32 {
    let mutual = spec.options.iter().any(|option| matches!(option, AttnOption::Mutual));
    if spec.looks_back() && !mutual { window(spec) } else { u32::MAX }
}

/// Bytes that attention over a cache takes beside its result: for parts of chunks, and for the result rounded.
pub(crate) fn scratch(products: &Products, attended: &Attended<'_>) -> u64 {
    let (spec, n) = (attended.spec, attended.batch.tokens.len());
    let rounded = match spec.heads.checked_mul(spec.v_dim) {
        Some(width) if is_whole(spec) => codes::left_in_rows(products, [n, width].into()),
        _ => 0,
    };
    parts_of(products, attended).saturating_add(rounded)
}

/// Whether a head's result is whole groups of elements that are rounded together.
fn is_whole(spec: &AttnSpec) -> bool {
    spec.v_dim.is_multiple_of(32)
}

/// Bytes for parts of chunks.
fn parts_of(products: &Products, attended: &Attended<'_>) -> u64 {
    let Attended { spec, batch, layer, element, .. } = attended;
    let LayerCache::Paged { k_dim, v_dim, .. } = *layer else { return 0 };
    let masked = spec.options.iter().any(|option| matches!(option, AttnOption::Mask(_)));
    if spec.heads.checked_div(spec.kv_heads).is_none() || masked {
        return 0;
    }
    let (n, compute) = (batch.tokens.len(), products.compute.over(&products.info, element.name));
    let cols = [k_dim, if v_dim == 0 { k_dim } else { v_dim }];
    if attend_tiles::long_rows(batch) == n && attend_tiles::can(&products.info, compute, spec, cols) {
        return 0;
    }
    let (heads, longest) = (heads_of_block(spec), batch.spans.iter().map(|s| s.context()).max().unwrap_or(0));
    let split = Split::of(spec, seen(spec), [tiles(spec, heads), heads], n, longest, PARTS);
    let bytes = split.and_then(|split| split.parts(heads).checked_mul(4 * (spec.v_dim + 2)));
    bytes.and_then(Pool::size).map_or(0, |bytes| bytes as u64)
}

/// Devices whose blocks have half the registers that others' have, 32,768: Tegra X1 and X2.
const HALF_THE_REGISTERS: [(u32, u32); 2] = [(5, 3), (6, 2)];

/// Warps of a block: eight, one for each 32 tokens of a chunk, where there are registers for them and what they make of it fits shared memory
/// beside the queries; else four.
fn warps(spec: &AttnSpec, heads: usize, capability: (u32, u32)) -> usize {
    let bytes = |warps: usize| Some(4 * heads.checked_mul(warps.checked_mul(spec.v_dim + 2)? + spec.k_dim)?);
    let registers = !HALF_THE_REGISTERS.contains(&capability);
    if registers && bytes(8).is_some_and(|n| n < SHARED) { 8 } else { 4 }
}

fn launch(
    device: &Device,
    compute: Compute,
    at: &str,
    q: Address,
    rows: &Rows,
    spec: &AttnSpec,
    plan: &Plan,
    step: &CudaPlan,
    parts: usize,
) -> Result<Tensor> {
    let n = plan.batch().tokens.len();
    let options = options(device, at, spec, n, step)?;
    let width = spec.heads.checked_mul(spec.v_dim);
    let width = width.ok_or_else(|| Error::invalid(at, "the result is more elements than can be counted"))?;
    // Products in integers will read it: rounded while it is at hand.
    let out = match is_whole(spec) {
        true => codes::attended(device, at, [n, width].into())?,
        false => device.tensor(at, [n, width])?,
    };
    let [codes, groups] = codes::places(&out);
    if width == 0 {
        return Ok(out);
    }
    // Prompts may go to tensor cores; what is left is for the kernels below.
    let mut less = u32::MAX;
    if attend_tiles::launch(device, compute, at, q, rows, &options, spec, plan, step, device.read(at, &out)?)?
    {
        less = attend_tiles::LONG;
        if attend_tiles::long_rows(plan.batch()) == n {
            return Ok(out);
        }
    }
    let heads = heads_of_block(spec);
    let warps = warps(spec, heads, device.info.capability);
    let tiles = tiles(spec, heads);
    // A mask is as wide as the longest context, which a recorded step does not know.
    let paged = rows.paged.is_some() && options.mask_width == 0;
    let split = Split::of(spec, seen(spec), [tiles, heads], n, step.longest, parts).filter(|_| paged);
    let (source, kernel) = match split {
        Some(_) => (&ATTEND_SPLIT, "attend_split"),
        None => (&ATTEND, "attend"),
    };
    let (block_len, group, element) = rows.paged.unwrap_or((1, 0, "f32"));
    let to = device.read(at, &out)?;
    // With where parts go, and the first row and tile of heads.
    let queue = |parts: Option<(Address, [usize; 2])>, grid: [usize; 3]| {
        let mut call = Call::new(device, at, source, kernel)
            .define("K_DIM", spec.k_dim)
            .define("V_DIM", spec.v_dim)
            .define("VECTOR", rows.k_cols.is_multiple_of(8).into())
            .word("ELEMENT", element)
            .define("HEADS", heads)
            .define("WARPS", warps)
            .define("KIND1", options.edits[0].0 as usize)
            .define("KIND2", options.edits[1].0 as usize)
            .define("KIND3", options.edits[2].0 as usize)
            .flag("PAGED", rows.paged.is_some())
            .flag("CAUSAL", options.causal)
            .flag("MUTUAL", options.mutual)
            .flag("CHUNKED", options.chunked)
            .given("AFTER", options.ahead)
            .at(q)
            .at(rows.k)
            .long(rows.k_bytes)
            .count("elements of a key row", rows.k_cols)
            .at(rows.v)
            .long(rows.v_bytes)
            .count("tokens in a block", block_len)
            .count("groups", group);
        if let Some((parts, [row, tile])) = parts {
            call = call.at(parts).count("rows", row).count("tiles of heads", tile);
        }
        call = call
            .at(to)
            .at(codes)
            .at(groups)
            .count("heads", spec.heads)
            .count("key heads", spec.kv_heads)
            .float(spec.scale)
            .number(options.window);
        for (kind, value, data) in options.edits {
            call = call.edit(kind, value, data);
        }
        if parts.is_none() {
            call = call.count("columns of the mask", options.mask_width);
        }
        call.at(options.sinks).number(less).at(step.address()).run(grid, [32 * warps as u32, 1, 1])
    };
    let Some(split) = split else {
        // Rows first: there may be more than the other dimensions count.
        queue(None, [n, tiles, 1])?;
        return Ok(out);
    };
    // One place for the parts of all launches, as one begins to write when the one before is done.
    let parts = device.tensor(at, [split.parts(heads), spec.v_dim + 2])?;
    let place = device.read(at, &parts)?;
    for [first, [rows, tiles]] in split.slices(n, tiles) {
        queue(Some((place, first)), [tiles, split.chunks, rows])?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warps_have_registers_and_shared_memory() {
        let of = |k_dim, v_dim, capability| {
            let spec = AttnSpec::new(32, 8, k_dim, v_dim);
            warps(&spec, heads_of_block(&spec), capability)
        };
        assert_eq!([of(64, 64, (6, 1)), of(128, 128, (9, 0)), of(4096, 1024, (9, 0))], [8, 8, 4]);
        assert_eq!(HALF_THE_REGISTERS.map(|capability| of(64, 64, capability)), [4, 4]);
    }
}
