//! Activations in the forms that kernels read, each made once for all weights that meet on one input.

use super::{
    columns::{Columns, Side},
    dense::{self, Dense},
    group::{GROUP, Group},
    lines::Lines,
    quantise::Quantised,
    tile::{SLICE, Tile},
};
use crate::{
    pool::Pool,
    simd::Path,
    weight::{CpuWeight, Kernel},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Tokens that one thread rounds at a time, at most.
const CHUNK: usize = 8;
/// At most so many pieces of each form are kept for what comes next.
const KEPT: usize = 4096;

/// Pieces that wait to be used again: there are thousands in a prompt's product, and asking the system's allocator for their buffers takes
/// a fiftieth of it.
static SPARE: Mutex<Spare> = Mutex::new(Spare::NONE);

struct Spare {
    rows: Vec<Quantised>,
    tiles: Vec<Tile>,
    groups: Vec<Group>,
    lines: Vec<Lines>,
    columns: Vec<Columns>,
}

impl Spare {
    const NONE: Self = Self {
        rows: Vec::new(),
        tiles: Vec::new(),
        groups: Vec::new(),
        lines: Vec::new(),
        columns: Vec::new(),
    };

    /// Every list is whole between two of its calls, so a panic elsewhere has harmed none.
    fn lock() -> MutexGuard<'static, Self> {
        SPARE.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `n` pieces, used ones as far as there are any.
fn pieces<T: Default>(spare: impl FnOnce(&mut Spare) -> &mut Vec<T>, n: usize) -> Vec<T> {
    let mut all = Spare::lock();
    let spare = spare(&mut all);
    let mut pieces = spare.split_off(spare.len().saturating_sub(n));
    drop(all);
    pieces.resize_with(n, T::default);
    pieces
}

/// How a packed product wants its activations.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "others read rows"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Row by row.
    Rows,
    /// A few tokens side by side.
    Tiles,
    /// The same, slice by slice of the columns.
    Slices,
    /// Thirty-two tokens together.
    Groups,
}

/// `n` rows of activations. They are its own: a thread may read them after the product that they were made for.
#[derive(Debug)]
pub(crate) struct Input {
    n: usize,
    f32: Option<Vec<f32>>,
    bf16: Option<Vec<f32>>,
    quantised: Vec<Quantised>,
    tiles: Vec<Tile>,
    slices: Vec<Tile>,
    groups: Vec<Group>,
    lines: Vec<Lines>,
    /// For each [`Side`].
    columns: [Vec<Columns>; 3],
}

impl Input {
    /// The forms of `x`, `[n, k]`, that the weights `ws` need.
    pub(crate) fn new(pool: &Pool, x: &[f32], n: usize, ws: &[&Arc<CpuWeight>]) -> Self {
        let k = x.len() / n.max(1);
        let mut input = Self {
            n,
            f32: None,
            bf16: None,
            quantised: Vec::new(),
            tiles: Vec::new(),
            slices: Vec::new(),
            groups: Vec::new(),
            lines: Vec::new(),
            columns: Default::default(),
        };
        for w in ws.iter().flat_map(|w| w.forms()) {
            match w.kernel() {
                Kernel::Packed(_) | Kernel::Coded(_) => {
                    if input.quantised.is_empty() {
                        input.quantised = quantise(pool, x, n, k, w.path());
                    }
                    match w.wants(n) {
                        Form::Rows => {}
                        Form::Tiles if input.tiles.is_empty() => {
                            input.tiles = tiles(pool, &input.quantised, k, k, false);
                        }
                        Form::Slices if input.slices.is_empty() => {
                            input.slices = tiles(pool, &input.quantised, k, SLICE, true);
                        }
                        Form::Groups if input.groups.is_empty() => {
                            input.groups = groups(pool, &input.quantised, k);
                        }
                        Form::Tiles | Form::Slices | Form::Groups => {}
                    }
                }
                Kernel::Tiled if input.lines.is_empty() => input.lines = lines(pool, w.path(), x, n, k),
                Kernel::Dense(_) if w.side().is_some() => {
                    let Some(side) = w.side() else { continue };
                    let columns = &mut input.columns[side as usize];
                    if columns.is_empty() {
                        *columns = lay_columns(pool, w.path(), side, x, n, k);
                    }
                }
                Kernel::Dense(Dense::Bf16) if input.bf16.is_none() => {
                    input.bf16 = Some(dense::prepare(Dense::Bf16, x, k).into_owned());
                }
                Kernel::Decoded | Kernel::Float8 | Kernel::Dense(Dense::F32 | Dense::F16)
                    if input.f32.is_none() =>
                {
                    input.f32 = Some(dense::prepare(Dense::F32, x, k).into_owned());
                }
                _ => {}
            }
        }
        input
    }

    /// Rows.
    pub(crate) fn n(&self) -> usize {
        self.n
    }

    /// Rows as dense kernels of `kind` take them, and how long they are.
    pub(crate) fn dense(&self, kind: Dense) -> (&[f32], usize) {
        let form = if kind == Dense::Bf16 { &self.bf16 } else { &self.f32 };
        let rows = form.as_deref().unwrap_or_default();
        (rows, rows.len() / self.n.max(1))
    }

    /// The same as dense strips meet them.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn columns(&self, side: Side) -> &[Columns] {
        &self.columns[side as usize]
    }

    /// Rows as packed kernels take them.
    pub(crate) fn quantised(&self) -> &[Quantised] {
        &self.quantised
    }

    /// The same rows side by side, where a weight wants them so.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn tiles(&self) -> &[Tile] {
        &self.tiles
    }

    /// The same cut into slices of [`SLICE`] columns: the tiles of each, or none if there is no such slice.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn slice(&self, i: usize) -> &[Tile] {
        let count = Tile::count(self.n);
        self.slices.get(i * count..(i + 1) * count).unwrap_or_default()
    }

    /// The same rows in groups, where a weight wants them so.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The same rows in bf16, where a weight is multiplied in tiles of them.
    pub(crate) fn lines(&self) -> &[Lines] {
        &self.lines
    }

    /// Keeps its pieces for the next, if nobody else reads it any more.
    pub(crate) fn recycle(input: Arc<Self>) {
        let Some(mut input) = Arc::into_inner(input) else { return };
        fn keep<T>(spare: &mut Vec<T>, pieces: &mut Vec<T>) {
            spare.append(pieces);
            spare.truncate(KEPT);
        }
        let spare = &mut *Spare::lock();
        keep(&mut spare.rows, &mut input.quantised);
        keep(&mut spare.tiles, &mut input.tiles);
        keep(&mut spare.tiles, &mut input.slices);
        keep(&mut spare.groups, &mut input.groups);
        keep(&mut spare.lines, &mut input.lines);
        input.columns.iter_mut().for_each(|columns| keep(&mut spare.columns, columns));
    }
}

fn quantise(pool: &Pool, x: &[f32], n: usize, k: usize, path: Path) -> Vec<Quantised> {
    let mut rows = pieces(|spare| &mut spare.rows, n);
    let chunk = n.div_ceil(pool.threads()).clamp(1, CHUNK);
    pool.chunks(&mut rows, chunk, &|i, rows| {
        for (j, row) in rows.iter_mut().enumerate() {
            row.set_len(k);
            path.quantise(&x[(i * chunk + j) * k..][..k], row);
        }
    });
    rows
}

fn lay_columns(pool: &Pool, path: Path, side: Side, x: &[f32], n: usize, k: usize) -> Vec<Columns> {
    let few = path.few_columns(side);
    let mut pieces = pieces(|spare| &mut spare.columns, Columns::count(n, few));
    pool.chunks(&mut pieces, 1, &|i, pieces| {
        let tokens = Columns::tokens(n, few, i);
        let x = &x[tokens.start * k..tokens.end * k];
        pieces.iter_mut().for_each(|piece| path.lay(side, x, k, piece));
    });
    pieces
}

fn lines(pool: &Pool, path: Path, x: &[f32], n: usize, k: usize) -> Vec<Lines> {
    let mut lines = pieces(|spare| &mut spare.lines, n.div_ceil(GROUP));
    pool.chunks(&mut lines, 1, &|i, lines| {
        let x = &x[i * GROUP * k..n.min((i + 1) * GROUP) * k];
        lines.iter_mut().for_each(|lines| path.lay_lines(x, k, n <= GROUP, lines));
    });
    lines
}

/// Tiles of the first `slice` columns of `rows` of `k`, then those of the next; `raised` or not.
fn tiles(pool: &Pool, rows: &[Quantised], k: usize, slice: usize, raised: bool) -> Vec<Tile> {
    let count = Tile::count(rows.len());
    let mut tiles = pieces(|spare| &mut spare.tiles, count * k.div_ceil(slice));
    pool.chunks(&mut tiles, 1, &|i, tiles| {
        let first = i / count * slice;
        let rows = &rows[Tile::tokens(rows.len(), i % count)];
        tiles.iter_mut().for_each(|tile| tile.fill(rows, k, first..k.min(first + slice), raised));
    });
    tiles
}

fn groups(pool: &Pool, rows: &[Quantised], k: usize) -> Vec<Group> {
    let n = rows.len();
    let mut groups = pieces(|spare| &mut spare.groups, Group::count(n));
    pool.chunks(&mut groups, 1, &|i, groups| {
        let rows = &rows[i * GROUP..n.min((i + 1) * GROUP)];
        groups.iter_mut().for_each(|group| group.fill(rows, k, rows.len() == n));
    });
    groups
}
