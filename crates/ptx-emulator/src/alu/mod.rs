//! Instructions that compute on registers alone: from opcode and modifiers to a function over rows.
//!
//! [`lookup`] answers with a function for the exact combination of modifiers and not with an enum that is interpreted again for
//! each warp: what could be decided when a kernel was lowered costs nothing when it runs. What is seldom used (directed rounding,
//! conversions nobody counts) shares one slow function and carries its settings in the step's flags.
//!
//! What lowering has to know:
//! - Operands are taken in order: destination, `dst2` (`p|q`, the second half of `{lo, hi}`), sources. A destination that is not
//!   wanted (`_`) may be [`NONE`] where there is a `dst2`, and `dst2` may be [`NONE`] always.
//! - [`Alu::immediate`] names the source that must be a constant; it goes to [`Step::imm`] and takes no place in [`Step::src`].
//! - Bit `k` of the flags negates predicate source `k`; [`Alu::flags`] is to be or-ed with those bits.
//! - The carry flag of `.cc` is the predicate row [`CARRY`]; lowering numbers its own predicates from 1.
//! - `cvt` may have registers wider than its types. A source that is a long row where a word is asked for is read by `cvt.u32.u64` first;
//!   a destination that is a long row is widened afterwards by `cvt.s64.s32` (signed type) or `cvt.u64.u32`: words are
//!   always written sign- or zero-extended to 32 bits by `cvt`.
//! - `mov` with a vector is [`pack`] and [`unpack`].
//! - `min` and `max` of three sources are looked up as `min3` and `max3`.

// A closure shows the sources of an instruction, where a path would not.
#![allow(clippy::redundant_closure)]

mod approx;
mod bits;
mod compare;
mod convert;
mod directed;
mod float;
mod half;
mod int;
mod packed;
mod rounding;
mod rows;
mod select;
mod simd;
mod soften;
mod video;
mod wide;
mod words;

#[cfg(test)]
pub(crate) mod tests;

use crate::exec::registers::{Class, Slot};
use crate::program::AluFn;
#[cfg(doc)]
use crate::program::{NONE, Step};
pub(crate) use select::{pack, unpack};
use words::Words;

/// The predicate row that holds the carry flag.
pub(crate) const CARRY: Slot = 0;

/// An instruction found: its function and what the step needs.
#[derive(Clone, Debug)]
pub(crate) struct Alu {
    /// The function.
    pub(crate) run: AluFn,
    /// Class of the destination.
    pub(crate) dst: Class,
    /// Class of the second destination, where the instruction may have one.
    pub(crate) dst2: Option<Class>,
    /// Classes of the sources that take a place in the step.
    pub(crate) src: Vec<Class>,
    /// Which source, counted from 0, is a constant that goes to the step's `imm`.
    pub(crate) immediate: Option<usize>,
    /// Preset of the step's flags.
    pub(crate) flags: u32,
    /// Preset of the step's `imm`.
    pub(crate) imm: i64,
}

impl Alu {
    fn new(run: AluFn, dst: Class, src: &[Class]) -> Self {
        Self { run, dst, dst2: None, src: src.to_vec(), immediate: None, flags: 0, imm: 0 }
    }
}

/// The lookup of one file; `None` leaves the words as they were.
type Theme = fn(&mut Words<'_>) -> Result<Option<Alu>, String>;

/// The function for an opcode (`fma`) and its modifiers (`rn`, `f32`); `None` if it is not an instruction on registers.
///
/// # Errors
/// One sentence, where the opcode is known and the combination of modifiers is not.
pub(crate) fn lookup(opcode: &str, modifiers: &[&str]) -> Result<Option<Alu>, String> {
    let mut words = Words::new(opcode, modifiers);
    let themes: [Theme; 11] = [
        int::lookup,
        float::lookup,
        packed::lookup,
        select::lookup,
        compare::lookup,
        bits::lookup,
        convert::lookup,
        wide::lookup,
        simd::lookup,
        approx::lookup,
        video::lookup,
    ];
    for theme in themes {
        if let Some(alu) = theme(&mut words)? {
            words.end()?;
            return Ok(Some(alu));
        }
    }
    Ok(None)
}
