//! `wmma`: matrices whose fragments are the machine's own affair.
//!
//! The ISA leaves open which lane holds what, so fragments of `a` and `b` are simply the matrix in order. Those of `c` and `d` lie as `mma` has
//! them, which is what GPUs do since sm_80 and what some programs rely on. A matrix is read line by line, each line in the name of one lane.

use super::{registers, whole_warp, wmma_product};
use crate::check::Access;
use crate::exec::registers::{ALL, Class, Mask, Slot};
use crate::exec::words::Words;
use crate::exec::{Cx, Target, address, raw};
use crate::fault::{Fault, Kind};
use crate::lower::Operands;
use crate::program::{Action, Outcome, Results, Step};
use crate::ptx::ast::Instruction;

/// The largest matrix, in elements: 32 by 16.
pub(super) const ELEMENTS: usize = 512;

/// Which matrix of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    A,
    B,
    C,
}

/// A matrix as `wmma.load` and `wmma.store` see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    part: Part,
    m: usize,
    n: usize,
    k: usize,
    /// Bits of what is moved as one: an element, or a word of those smaller than a byte (`k` counts these, then).
    bits: usize,
    /// Bits of an element, which strides are counted in.
    element: usize,
    /// Elements in each lane's fragment; those of f16 have 16 whatever the shape, so that several lanes may hold the same.
    held: usize,
    /// Lines in memory are rows of the matrix.
    row: bool,
}

/// The three numbers of a shape.
fn sizes(shape: &str) -> Option<[usize; 3]> {
    let (m, rest) = shape.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k')?;
    Some([m.parse().ok()?, n.parse().ok()?, k.parse().ok()?])
}

impl Layout {
    pub(super) fn new(part: Part, shape: &str, ty: &str, row: bool) -> Result<Self, String> {
        let known: &[&str] = match (part, ty) {
            (Part::A | Part::B, "f16" | "bf16" | "s8" | "u8") | (Part::C, "f16") => {
                &["m16n16k16", "m32n8k16", "m8n32k16"]
            }
            (Part::A | Part::B, "tf32") => &["m16n16k8"],
            (Part::A | Part::B, "s4" | "u4") => &["m8n8k32"],
            (Part::A | Part::B, "b1") => &["m8n8k128"],
            (_, "f64") => &["m8n8k4"],
            (Part::C, "f32") => &["m16n16k16", "m32n8k16", "m8n32k16", "m16n16k8"],
            (Part::C, "s32") => &["m16n16k16", "m32n8k16", "m8n32k16", "m8n8k32", "m8n8k128"],
            _ => &[],
        };
        let (true, Some([m, n, mut k])) = (known.contains(&shape), sizes(shape)) else {
            return Err(format!("no fragment of {ty} for {shape}"));
        };
        let packed = matches!(ty, "s4" | "u4" | "b1");
        if packed {
            // Only `a` by rows and `b` by columns exist, so that a word is always along `k`.
            if row != (part == Part::A) {
                return Err(format!("{ty} has .row for a and .col for b only"));
            }
            k = 4;
        }
        let bits = match ty {
            "f16" | "bf16" => 16,
            "s8" | "u8" => 8,
            "f64" => 64,
            _ => 32,
        };
        let element = match ty {
            "s4" | "u4" => 4,
            "b1" => 1,
            _ => bits,
        };
        Ok(Self::build(part, (m, n, k), bits, element, ty == "f16" && part != Part::C, row))
    }

    /// A matrix of a shape that is known to exist; `halves` are multiplicands of f16.
    pub(super) fn build(
        part: Part,
        (m, n, k): (usize, usize, usize),
        bits: usize,
        element: usize,
        halves: bool,
        row: bool,
    ) -> Self {
        let mut out = Self { part, m, n, k, bits, element, held: 16, row };
        if !halves {
            let (rows, columns) = out.shape();
            out.held = rows * columns / 32;
        }
        out
    }

    pub(super) fn shape(&self) -> (usize, usize) {
        match self.part {
            Part::A => (self.m, self.k),
            Part::B => (self.k, self.n),
            Part::C => (self.m, self.n),
        }
    }

    pub(super) fn class(&self) -> Class {
        if self.bits == 64 { Class::Long } else { Class::Word }
    }

    /// Registers of the fragment.
    pub(super) fn registers(&self) -> usize {
        self.held * self.bits / self.bits.max(32)
    }

    /// Row and column of element `e` of a lane.
    pub(super) fn at(&self, lane: usize, e: usize) -> (usize, usize) {
        if self.part == Part::C {
            return accumulator_at(self.m, self.n, lane, e);
        }
        let linear = lane * self.held + e;
        match self.part {
            Part::A => (linear / self.k % self.m, linear % self.k),
            _ => (linear % self.k, linear / self.k % self.n),
        }
    }
}

/// Where an accumulator's element lies: tiles of 16 or 8 rows and 8 columns, each as in `mma`.
fn accumulator_at(m: usize, n: usize, lane: usize, e: usize) -> (usize, usize) {
    let (g, t) = (lane / 4, lane % 4);
    match (m, n) {
        (16, 16) => (g + e % 4 / 2 * 8, e / 4 * 8 + t * 2 + e % 2),
        (32, _) => (e / 4 * 16 + g + e % 4 / 2 * 8, t * 2 + e % 2),
        (_, _) => (g, e / 2 * 8 + t * 2 + e % 2),
    }
}

/// In the order of the ISA's words: `wmma.load.a`, `wmma.store.d`, `wmma.mma`.
pub(crate) fn lower_wmma(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    match i.modifiers.first().map(String::as_str) {
        Some("load") => lower_move(i, o, true),
        Some("store") => lower_move(i, o, false),
        Some("mma") => wmma_product::lower(i, o),
        _ => Err("it is .load, .store or .mma".into()),
    }
}

/// The address is in global memory.
const GLOBAL: u32 = 1 << 8;
/// The address is in shared memory.
const SHARED: u32 = 1 << 9;

fn lower_move(i: &Instruction, o: &mut Operands<'_>, load: bool) -> Result<Step, String> {
    let mut words = Words::new(i);
    words.first();
    let part = match words.first() {
        Some("a") if load => Part::A,
        Some("b") if load => Part::B,
        Some("c") if load => Part::C,
        Some("d") if !load => Part::C,
        _ => return Err("it says which matrix: .load.a, .load.b, .load.c or .store.d".into()),
    };
    if !(words.take("sync") & words.take("aligned")) {
        return Err("only .sync.aligned is known".into());
    }
    let row = words.take_one(&["row", "col"]).ok_or("it says .row or .col")? == "row";
    let mut step = Step::new(Action::Together(if load { self::load } else { store }));
    match words.take_one(&["global", "shared", "shared::cta"]) {
        None => {}
        Some("global") => step.flags |= GLOBAL,
        Some(_) => step.flags |= SHARED,
    }
    let (Some(shape), Some(ty)) = (words.first(), words.first()) else {
        return Err("it says a shape and a type".into());
    };
    words.end()?;
    let layout = Layout::new(part, shape, ty, row)?;
    let (fragment, at, stride) = match (&i.operands[..], load) {
        ([fragment, at, rest @ ..], true) | ([at, fragment, rest @ ..], false) if rest.len() <= 1 => {
            (fragment, at, rest.first())
        }
        _ => return Err("it takes a fragment, an address and a stride".into()),
    };
    let mut list = Vec::new();
    address::push(&mut list, o, at)?;
    list.push(match stride {
        Some(stride) => o.word(stride)?,
        None => o.constant(Class::Word, (layout.line_len() * layout.bits / layout.element) as u64),
    });
    registers(&mut list, o, fragment, layout.registers(), layout.class(), load)?;
    let results = if load { layout.registers() } else { 0 };
    (step.list, step.results) = (o.list(&list), Results::At(address::PLACES as u8 + 1, results as u8));
    step.imm = layout.pack();
    Ok(step)
}

impl Layout {
    pub(super) fn pack(&self) -> i64 {
        let part = self.part as i64;
        let numbers = [self.m, self.n, self.k, self.bits, self.element, self.held, usize::from(self.row)];
        numbers.iter().rev().fold(0, |out, number| out << 8 | *number as i64) << 8 | part
    }

    pub(super) fn unpack(packed: i64) -> Self {
        let byte = |n: usize| (packed >> (8 * n)) as usize & 0xff;
        let part = match byte(0) {
            0 => Part::A,
            1 => Part::B,
            _ => Part::C,
        };
        let [m, n, k, bits, element, held, row] = [1, 2, 3, 4, 5, 6, 7].map(byte);
        Self { part, m, n, k, bits, element, held, row: row != 0 }
    }

    /// The three numbers of the shape.
    pub(super) fn mnk(&self) -> (usize, usize, usize) {
        (self.m, self.n, self.k)
    }

    pub(super) fn bits(&self) -> usize {
        self.bits
    }

    fn lines(&self) -> usize {
        let (rows, columns) = self.shape();
        if self.row { rows } else { columns }
    }

    fn line_len(&self) -> usize {
        let (rows, columns) = self.shape();
        if self.row { columns } else { rows }
    }

    /// Where an element stands among the lines.
    fn index(&self, (row, column): (usize, usize)) -> usize {
        if self.row { row * self.line_len() + column } else { column * self.line_len() + row }
    }
}

/// Address and stride, which must be the same in all lanes.
fn place(cx: &Cx<'_>, step: &Step, list: &[Slot]) -> Result<(u64, u64), Box<Fault>> {
    let (at, stride) = list.split_at(address::PLACES);
    let addresses = cx.addresses(at);
    let strides = cx.registers.word(stride[0]);
    if let Some(lane) = (1..32).find(|&lane| (addresses[lane], strides[lane]) != (addresses[0], strides[0])) {
        let message = format!(
            "wmma with address {:#x} and stride {} in lane 0, {:#x} and {} in lane {lane}; they must be the same",
            addresses[0], strides[0], addresses[lane], strides[lane]
        );
        return Err(cx.fault(step.place, lane, Kind::Misuse, message));
    }
    Ok((addresses[0], u64::from(strides[0])))
}

/// Goes through a matrix in memory, in pieces of up to 16 bytes; `buffer` is what is written, or what was read.
fn walk(
    cx: &mut Cx<'_>,
    step: &Step,
    layout: &Layout,
    (address, stride): (u64, u64),
    buffer: &mut [u8],
    access: Access,
) -> Outcome {
    let line_bytes = layout.line_len() * layout.bits / 8;
    let stride_bytes = stride * layout.element as u64 / 8;
    for (line, bytes) in buffer.chunks_mut(line_bytes).take(layout.lines()).enumerate() {
        let lane = line % 32;
        let start = address.wrapping_add(line as u64 * stride_bytes);
        for (index, piece) in bytes.chunks_mut(16).enumerate() {
            let at = start.wrapping_add(16 * index as u64);
            let target = if step.flags & GLOBAL != 0 {
                Target::Global(cx.global(step.place, lane, at, piece.len(), access)?)
            } else if step.flags & SHARED != 0 {
                Target::Shared(cx.shared(step.place, lane, at, piece.len(), access)?)
            } else {
                cx.generic(step.place, lane, at, piece.len(), access)?
            };
            match (target, access) {
                (Target::Global(host), Access::Write) => raw::write(host, piece),
                (Target::Global(host), _) => raw::read(host, piece),
                (Target::Shared(at), Access::Write) => {
                    cx.block.shared.get_mut(at..at + piece.len()).unwrap_or_default().copy_from_slice(piece);
                }
                (Target::Shared(at), _) => {
                    piece.copy_from_slice(cx.block.shared.get(at..at + piece.len()).unwrap_or_default());
                }
                (Target::Local(_) | Target::Param(_), _) => {
                    let message = format!("wmma on {at:#x}, which is neither global nor shared memory");
                    return Err(cx.fault(step.place, lane, Kind::Unsupported, message));
                }
            }
        }
    }
    Ok(())
}

fn load(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    whole_warp(cx, step, mask)?;
    let grid = cx.grid;
    let (at, slots) = grid.launch.program.list(step).split_at(address::PLACES + 1);
    let layout = Layout::unpack(step.imm);
    let mut buffer = [0; ELEMENTS * 4];
    let place = place(cx, step, at)?;
    walk(cx, step, &layout, place, &mut buffer, Access::Read)?;
    let bytes = layout.bits / 8;
    let element = |lane: usize, e: usize| {
        let start = layout.index(layout.at(lane, e)) * bytes;
        let mut value = [0; 8];
        value[..bytes].copy_from_slice(&buffer[start..start + bytes]);
        u64::from_le_bytes(value)
    };
    for (index, slot) in slots.iter().enumerate() {
        if layout.bits == 64 {
            let row = std::array::from_fn(|lane| element(lane, index));
            cx.registers.set_long(*slot, &row, ALL);
        } else {
            let per = 32 / layout.bits;
            let row = std::array::from_fn(|lane| {
                (0..per)
                    .fold(0, |word, e| word | (element(lane, index * per + e) as u32) << (e * layout.bits))
            });
            cx.registers.set_word(*slot, &row, ALL);
        }
    }
    Ok(())
}

fn store(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    whole_warp(cx, step, mask)?;
    let grid = cx.grid;
    let (at, slots) = grid.launch.program.list(step).split_at(address::PLACES + 1);
    let layout = Layout::unpack(step.imm);
    let mut buffer = [0; ELEMENTS * 4];
    let bytes = layout.bits / 8;
    for (index, slot) in slots.iter().enumerate() {
        for lane in 0..32 {
            let (word, per) = if layout.bits == 64 {
                (cx.registers.long_lane(*slot, lane), 1)
            } else {
                (u64::from(cx.registers.word_lane(*slot, lane)), 32 / layout.bits)
            };
            for e in 0..per {
                let start = layout.index(layout.at(lane, index * per + e)) * bytes;
                let value = (word >> (e * layout.bits)).to_le_bytes();
                buffer[start..start + bytes].copy_from_slice(&value[..bytes]);
            }
        }
    }
    let place = place(cx, step, at)?;
    walk(cx, step, &layout, place, &mut buffer, Access::Write)
}
