//! From the syntax tree to steps.
//!
//! Whatever can be decided once is decided here: registers become rows, symbols addresses, labels step numbers, calls are inlined, constants get
//! rows of their own, copies are left out, registers share rows. What is not understood is an error with the line and the text; nothing is skipped.

mod allocate;
mod alu;
mod calls;
mod control;
mod copies;
mod families;
pub(crate) mod finish;
mod function;
mod live;
mod memory;
mod mentions;
mod names;
mod operands;
#[cfg(test)]
mod tests;

pub(crate) use operands::Operands;

use crate::program::Program;
use crate::ptx::ast;

/// Why a kernel could not be lowered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The module has no such kernel.
    #[error("the module has no kernel {name}")]
    NoEntry {
        /// The name asked for.
        name: String,
    },
    /// An instruction or a declaration that is not understood.
    #[error("PTX line {line}: {text}: {what}")]
    Line {
        /// Line in the PTX.
        line: u32,
        /// The instruction.
        text: String,
        /// What is wrong with it.
        what: String,
    },
}

/// Makes a kernel of a module ready to run. `symbols` gives the addresses of the module's variables in global and constant memory.
///
/// # Errors
/// The first thing that is not understood.
pub fn lower(
    module: &ast::Module,
    entry: &str,
    symbols: &dyn Fn(&str) -> Option<u64>,
) -> Result<Program, Error> {
    function::kernel(module, entry, symbols)
}

/// The parameters of a kernel within its parameter block, and its size. A driver needs them before (and even if never) it is lowered.
#[must_use]
pub fn parameters(function: &ast::Function) -> (Vec<crate::program::ParamSlot>, u32) {
    let mut end = 0u64;
    let slots = function.params.iter().map(|param| {
        let size = param.ty.size().saturating_mul(param.len);
        end = end.next_multiple_of(param.align.max(1));
        let offset = end;
        end = end.saturating_add(size);
        crate::program::ParamSlot { offset: offset as u32, size: size as u32 }
    });
    let slots = slots.collect();
    (slots, u32::try_from(end).unwrap_or(u32::MAX))
}
