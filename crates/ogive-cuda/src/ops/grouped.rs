//! Mixtures of many rows: choices are put in the experts' order on the device, and each expert multiplies its rows in tiles.
//!
//! The host never learns how many rows an expert has: it launches as many tiles as there can be, and those of nothing end at once. So
//! a step needs no wait and can be recorded. Which tile is taken hangs on the rows an expert has on average, which the host knows; what an
//! uneven choice costs is tiles that are not full, of which eights of rows that are not there cost nothing.

use crate::builder::Compute;
use crate::driver::DeviceInfo;
use crate::launch::Call;
use crate::memory::{Buffer, Pool};
use crate::ops::matrix::{self, Tile};
use crate::ops::moe::{Mixture, Part};
use crate::values::count;
use crate::weight::{CudaWeight, Kept};
use ogive_kernels::{EXPERTS_DOWN_MMA, EXPERTS_MANY, EXPERTS_UP_MMA, GROUP};
use ogive_tensor::{Error, Result, Tensor};

/// Choices that an expert must have on average for rows to be grouped.
///
/// By arithmetic: chosen at random, experts that have a row at all then have 2.3 on average, so computing each choice by itself decodes
/// every weight that often. Decoding costs some 8 operations a weight and choice, and as many bytes; a tile decodes once, and multiplies 8
/// rows for each eight that it has a row of. With one choice an expert, 1.6 on average, there is not enough to save for what sorting and
/// summing add: three launches, and 8 bytes an element of the result and choice. Not measured.
pub(crate) const CHOICES: usize = 2;

/// Rows and outputs of a tile in single precision, and its threads.
const SINGLE: usize = 64;
const THREADS: u32 = 256;
/// Threads of a block that sorts.
const SORTING: u32 = 256;
/// Bytes of a tile in the list.
const ENTRY: usize = 16;

/// Tiles of rows by tensor cores: for devices of this capability and newer, and for groups of this many rows on average. `up` has both gate
/// and up, half of its outputs each, or up alone; both tiles have as many rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiles {
    from: (u32, u32),
    rows: [usize; 2],
    up: Tile,
    down: Tile,
}

const fn entry(from: (u32, u32), rows: [usize; 2], up: [usize; 5], down: [usize; 5]) -> Tiles {
    Tiles { from, rows, up: Tile::of(up), down: Tile::of(down) }
}

const ANY: usize = usize::MAX;

/// The first that fits is taken. By arithmetic as the table of `matrix`, whose tiles they are, with both weights of the first product side by
/// side: 16 rows where an expert has twelve on average, so that few have more; 128 where it has more than 64.
pub(super) const TABLE: [Tiles; 4] = [
    entry((8, 0), [0, 12], [1, 4, 2, 2, 128], [2, 4, 1, 2, 128]),
    entry((8, 0), [65, ANY], [4, 1, 2, 16, 64], [4, 1, 2, 16, 64]),
    entry((8, 0), [0, ANY], [4, 1, 2, 8, 64], [4, 2, 1, 8, 64]),
    entry((7, 5), [0, ANY], [2, 1, 2, 8, 64], [4, 1, 1, 8, 64]),
];

/// How rows that are grouped are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// In single precision.
    Single,
    /// In this half, by tensor cores.
    Halves(Compute, Tiles),
}

/// How `n` rows of `k` choices are multiplied if they are grouped, with weights of which the last is down; `None` where an expert has less than
/// `from` on average.
pub(super) fn way(
    info: &DeviceInfo,
    compute: Compute,
    from: usize,
    [n, k]: [usize; 2],
    weights: &[Kept],
) -> Option<Way> {
    let (experts, choices) = (weights.first()?.shape[0], n.saturating_mul(k));
    if choices < experts.saturating_mul(from) || choices == 0 || experts == 0 {
        return None;
    }
    let compute = compute.with(info, &weights.iter().map(|w| w.format).collect::<Vec<_>>());
    let able = info.capability >= matrix::oldest(compute);
    let found = TABLE.iter().filter(|_| able).find(|t| t.is_for(info, choices / experts, weights));
    Some(found.map_or(Way::Single, |tiles| Way::Halves(compute, *tiles)))
}

impl Tiles {
    /// For devices of this kind, groups of so many rows, and weights that its shared memory holds.
    fn is_for(&self, info: &DeviceInfo, rows: usize, weights: &[Kept]) -> bool {
        let Some((down, first)) = weights.split_last() else { return false };
        let most = self.shared_up(first).max(self.down.shared(&[*down]));
        info.capability >= self.from
            && (self.rows[0]..=self.rows[1]).contains(&rows)
            && down.shape.iter().all(|size| *size > 0)
            && most <= info.shared_memory as usize
    }

    /// Bytes of shared memory with gate and up, or up alone: a list of rows stands before the tile.
    fn shared_up(&self, weights: &[Kept]) -> usize {
        4 * self.up.rows() + self.up.shared(weights)
    }
}

impl Way {
    fn rows(self) -> usize {
        match self {
            Self::Single => SINGLE,
            Self::Halves(_, tiles) => tiles.up.rows(),
        }
    }
}

/// The choices in order and the list of tiles: how many there can be, from which byte on, and bytes of both.
///
/// Of `c` choices, an expert has at most (c + rows - 1) / rows tiles, and those without a choice none.
fn list(choices: usize, experts: usize, rows: usize) -> Option<[usize; 3]> {
    let most = experts.min(choices).checked_mul(rows - 1)?.checked_add(choices)? / rows;
    let from = choices.checked_mul(4)?.checked_next_multiple_of(ENTRY)?;
    Some([most, from, most.checked_mul(ENTRY)?.checked_add(from)?])
}

/// Bytes that it takes beside the result, as the pool has them, of parts of so many rows, with experts of these sizes.
pub(super) fn scratch(way: Way, [n, part, k]: [usize; 3], [experts, hidden, dim]: [usize; 3]) -> u64 {
    let size = |bytes: Option<usize>| bytes.and_then(Pool::size).map_or(u64::MAX, |n| n as u64);
    let Some(choices) = part.checked_mul(k) else { return u64::MAX };
    let single = |cols: usize| size(choices.checked_mul(cols).and_then(|n| n.checked_mul(4)));
    let between = match way {
        Way::Single => [single(hidden), 0],
        Way::Halves(..) => [matrix::size_of_halves([choices, hidden]), matrix::size_of_halves([n, dim])],
    };
    let list = size(list(choices, experts, way.rows()).map(|[.., bytes]| bytes));
    [list, single(dim), between[0], between[1]].iter().fold(0, |sum, n| sum.saturating_add(*n))
}

/// A part's choices, grouped.
struct Groups {
    buffer: Buffer,
    /// Where the list of tiles begins.
    from: usize,
    /// How many tiles there can be.
    most: usize,
}

/// All rows of a mixture, in parts.
pub(super) fn experts(m: &Mixture<'_>, way: Way, x: &Tensor, y: &Tensor) -> Result<()> {
    let halves = match way {
        Way::Single => None,
        Way::Halves(compute, _) => Some(matrix::halves(m.device, m.at, compute, x, 0)?),
    };
    for part in m.parts() {
        let groups = group(m, &part, way.rows())?;
        let choices = part.rows * m.k;
        let results = m.device.tensor(m.at, [choices, m.dim()])?;
        match (way, &halves) {
            (Way::Halves(compute, tiles), Some(x)) => {
                let (filled, bytes) = matrix::filled_up([choices, m.hidden()])
                    .ok_or_else(|| Error::invalid(m.at, "rows are more elements than can be counted"))?;
                let h = m.device.take(m.at, bytes)?;
                let from = x.buffer.address() + 2 * (part.first * x.padded) as u64;
                up(m, compute, tiles, &groups, [from, h.address()], [x.padded, filled])?;
                down(m, compute, tiles, &groups, [h.address(), m.device.read(m.at, &results)?], filled)?;
            }
            _ => single(m, &part, &groups, x, &results)?,
        }
        Call::new(m.device, m.at, &GROUP, "combine")
            .at(m.device.read(m.at, &results)?)
            .at(m.shares + 4 * (part.first * m.k) as u64)
            .at(m.device.read(m.at, y)? + 4 * (part.first * m.dim()) as u64)
            .count("experts of a row", m.k)
            .count("outputs", m.dim())
            .by_rows(part.rows, m.dim())?;
    }
    Ok(())
}

fn group(m: &Mixture<'_>, part: &Part, rows: usize) -> Result<Groups> {
    let (choices, experts) = (part.rows * m.k, m.gate.shape[0]);
    let [most, from, bytes] = list(choices, experts, rows)
        .ok_or_else(|| Error::invalid(m.at, "there are more choices than can be counted"))?;
    let buffer = m.device.take(m.at, bytes)?;
    count(m.at, "rows of a tile and choices", choices.saturating_add(rows))?;
    Call::new(m.device, m.at, &GROUP, "group")
        .at(m.ids + 4 * (part.first * m.k) as u64)
        .at(buffer.address())
        .at(buffer.address() + from as u64)
        .count("choices", choices)
        .count("experts", experts)
        .count("rows of a tile", rows)
        .count("tiles", most)
        .run_shared([experts, 1, 1], [SORTING, 1, 1], 4 * experts)?;
    Ok(Groups { buffer, from, most })
}

impl Groups {
    /// What kernels that read them take.
    fn of<'a>(&self, call: Call<'a>) -> Call<'a> {
        call.at(self.buffer.address()).at(self.buffer.address() + self.from as u64)
    }
}

/// Both products in single precision.
fn single(m: &Mixture<'_>, part: &Part, groups: &Groups, x: &Tensor, results: &Tensor) -> Result<()> {
    let h = m.device.tensor(m.at, [part.rows * m.k, m.hidden()])?;
    let (from, h) = (m.device.read(m.at, x)? + 4 * (part.first * m.dim()) as u64, m.device.read(m.at, &h)?);
    let call = |kernel, from| {
        let call = Call::new(m.device, m.at, &EXPERTS_MANY, kernel)
            .formats(m)
            .word("DOWN", m.down.format)
            .define("VECTOR", (m.gate.is_wide() && m.down.is_wide()).into())
            .define("FUNCTION", m.function as usize)
            .at(from);
        groups.of(call)
    };
    call("experts_up_many", from)
        .count("experts of a row", m.k)
        .activated(m)
        .at(h)
        .count("inputs", m.dim())
        .count("hidden elements", m.hidden())
        .gating(m)
        .run([m.hidden().div_ceil(SINGLE), groups.most, 1], [THREADS, 1, 1])?;
    call("experts_down_many", h)
        .at(m.down.address())
        .long(m.down.row_bytes)
        .at(m.device.read(m.at, results)?)
        .count("outputs", m.dim())
        .count("hidden elements", m.hidden())
        .at(m.bias[2])
        .run([m.dim().div_ceil(SINGLE), groups.most, 1], [THREADS, 1, 1])?;
    Ok(())
}

/// `f(x · gateᵀ) * (x · upᵀ)`, or `f(x · upᵀ)`, by tensor cores, from halves to halves.
fn up(
    m: &Mixture<'_>,
    compute: Compute,
    tiles: Tiles,
    groups: &Groups,
    [x, h]: [u64; 2],
    [padded, filled]: [usize; 2],
) -> Result<()> {
    let kept: Vec<_> = [m.gate].into_iter().chain(m.up).map(CudaWeight::kept).collect();
    let call = Call::new(m.device, m.at, &EXPERTS_UP_MMA, "experts_up_mma").formats(m);
    let call = call.define("FUNCTION", m.function as usize);
    // Zeros behind the hidden elements are written as those are.
    let grid = [filled.div_ceil(tiles.up.outputs() / kept.len()), groups.most, 1];
    groups
        .of(tiles.up.defines(call, compute, &kept).at(x))
        .count("experts of a row", m.k)
        .activated(m)
        .at(h)
        .count("inputs", m.dim())
        .count("inputs, filled up", padded)
        .count("hidden elements", m.hidden())
        .count("hidden elements, filled up", filled)
        .gating(m)
        .run_shared(grid, [tiles.up.threads(), 1, 1], tiles.shared_up(&kept))?;
    Ok(())
}

/// From what lies between to the results of choices.
fn down(
    m: &Mixture<'_>,
    compute: Compute,
    tiles: Tiles,
    groups: &Groups,
    [h, results]: [u64; 2],
    filled: usize,
) -> Result<()> {
    let kept = [m.down.kept()];
    let call = Call::new(m.device, m.at, &EXPERTS_DOWN_MMA, "experts_down_mma").word("FORMAT", m.down.format);
    groups
        .of(tiles.down.defines(call, compute, &kept).at(h))
        .at(m.down.address())
        .long(m.down.row_bytes)
        .at(results)
        .count("outputs", m.dim())
        .count("hidden elements", m.hidden())
        .count("hidden elements, filled up", filled)
        .at(m.bias[2])
        .run_shared(
            [m.dim().div_ceil(tiles.down.outputs()), groups.most, 1],
            [tiles.down.threads(), 1, 1],
            tiles.down.shared(&kept),
        )?;
    Ok(())
}

#[cfg(test)]
#[path = "grouped_tests.rs"]
mod tests;
