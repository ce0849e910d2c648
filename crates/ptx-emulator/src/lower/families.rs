//! Which file lowers which opcode.
//!
//! To add a family: write `pub(crate) fn lower(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String>` beside the instructions' code
//! and name it here by its opcode. It looks at `i.modifiers` (every word is understood or refused: `Err` with one sentence), asks `o` for the
//! rows of its operands, and returns a [`Step`] with its action. Guard, place and line are filled in by the caller. Longer operand
//! lists go to [`Operands::list`]; steps that must come before go to [`Operands::emit`].
//!
//! Warp-wide instructions return [`Action::Together`](crate::program::Action): the member mask is the row in `src[3]`, or all 32 lanes where that is
//! `NONE`; the function is called once for all lanes of the mask that are alive, together.

use super::operands::Operands;
use crate::program::Step;
use crate::ptx::ast::Instruction;

/// Lowers the instructions of one opcode.
pub(crate) type Family = fn(&Instruction, &mut Operands<'_>) -> Result<Step, String>;

/// The family of an opcode that is not register-to-register.
pub(crate) fn family(opcode: &str) -> Option<Family> {
    use super::memory;
    use crate::exec::{cluster, copies, matrix, mbarrier, shuffle, vote};
    Some(match opcode {
        "ld" | "ldu" => memory::lower_load,
        "st" => memory::lower_store,
        "atom" | "red" => memory::lower_atomic,
        "fence" | "membar" => memory::lower_fence,
        "cvta" => memory::lower_cvta,
        "isspacep" => memory::lower_isspacep,
        "prefetch" | "prefetchu" | "applypriority" | "discard" => memory::lower_hint,
        "createpolicy" => memory::lower_policy,
        "activemask" => vote::lower_activemask,
        "cp" => copies::lower,
        "elect" => vote::lower_elect,
        "getctarank" => cluster::lower_getctarank,
        "ldmatrix" => matrix::lower_ldmatrix,
        "mapa" => cluster::lower_mapa,
        "match" => vote::lower_match,
        "mbarrier" => mbarrier::lower,
        "mma" => matrix::lower_mma,
        "movmatrix" => matrix::lower_movmatrix,
        "redux" => vote::lower_redux,
        "shfl" => shuffle::lower,
        "stmatrix" => matrix::lower_stmatrix,
        "wmma" => matrix::lower_wmma,
        "vote" => vote::lower_vote,
        _ => return None,
    })
}
