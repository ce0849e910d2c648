//! The operands of each instruction, as a table of patterns.
//!
//! A pattern has one word for each operand:
//!
//! | word | the operand is |
//! |---|---|
//! | `T`, `U` | of the last, the first type in the opcode |
//! | `W` | of twice the width of `T` |
//! | `t`, `u` | of `T`, `U` or wider: loads, stores, conversions |
//! | `P` | a predicate, perhaps negated |
//! | `32`, `64` | an integer or bits of that width |
//! | `A` | an address in brackets |
//! | `L`, `N` | a label, a list of labels |
//! | `|P` after a word | a second result may follow after a bar |
//! | `?` after a word | the operand may be missing |
//!
//! A pattern is chosen by the opcode and the modifiers that must be there, first match first. What is not here (`mma`,
//! `cp.async`, `mbarrier` …) has operands that its own lowering counts.

use super::super::ast::Instruction;

/// Opcode, modifiers that must all be there, pattern.
const FORMS: &[(&str, &[&str], &str)] = &[
    ("abs", &[], "T T"),
    ("activemask", &[], "32"),
    ("add", &[], "T T T"),
    ("addc", &[], "T T T"),
    ("and", &[], "T T T"),
    ("atom", &["cas"], "T A T T 64?"),
    ("atom", &[], "T A T 64?"),
    ("bar", &["arrive"], "32 32"),
    ("bar", &["red"], "T 32 32 P"),
    ("bar", &["warp"], "32"),
    ("bar", &["sync"], "32 32?"),
    ("barrier", &["cluster"], ""),
    ("barrier", &["arrive"], "32 32"),
    ("barrier", &["red"], "T 32 32 P"),
    ("barrier", &["sync"], "32 32?"),
    ("bfe", &[], "T T 32 32"),
    ("bfi", &[], "T T T 32 32"),
    ("bfind", &[], "32 T"),
    ("bmsk", &[], "32 32 32"),
    ("bra", &[], "L"),
    ("brev", &[], "T T"),
    ("brkpt", &[], ""),
    ("brx", &[], "32 N"),
    ("clz", &[], "32 T"),
    ("cnot", &[], "T T"),
    ("copysign", &[], "T T T"),
    ("cos", &[], "T T"),
    ("cvt", &["f16x2"], "u t t 32?"),
    ("cvt", &["bf16x2"], "u t t 32?"),
    ("cvt", &[], "u t"),
    ("div", &[], "T T T"),
    ("dp2a", &[], "32 32 32 32"),
    ("dp4a", &[], "32 32 32 32"),
    ("elect", &[], "32|P 32"),
    ("ex2", &[], "T T"),
    ("exit", &[], ""),
    ("fma", &[], "T T T T"),
    ("griddepcontrol", &[], ""),
    ("isspacep", &[], "P 64"),
    ("ld", &[], "t A 64?"),
    ("ldu", &[], "t A"),
    ("lg2", &[], "T T"),
    ("lop3", &["or"], "T|P T T T 32 P"),
    ("lop3", &["and"], "T|P T T T 32 P"),
    ("lop3", &[], "T T T T 32"),
    ("mad", &["wide"], "W T T W"),
    ("mad", &[], "T T T T"),
    ("mad24", &[], "T T T T"),
    ("madc", &[], "T T T T"),
    ("match", &["all"], "32|P T 32"),
    ("match", &[], "32 T 32"),
    ("max", &[], "T T T T?"),
    ("membar", &[], ""),
    ("min", &[], "T T T T?"),
    ("mul", &["wide"], "W T T"),
    ("mul", &[], "T T T"),
    ("mul24", &[], "T T T"),
    ("nanosleep", &[], "32"),
    ("neg", &[], "T T"),
    ("not", &[], "T T"),
    ("or", &[], "T T T"),
    ("popc", &[], "32 T"),
    ("prmt", &[], "T T T T"),
    ("rcp", &[], "T T"),
    ("red", &["async"], "A T A"),
    ("red", &[], "A T 64?"),
    ("redux", &[], "T T 32"),
    ("rem", &[], "T T T"),
    ("ret", &[], ""),
    ("rsqrt", &[], "T T"),
    ("sad", &[], "T T T T"),
    ("selp", &[], "T T T P"),
    ("set", &[], "U T T P?"),
    ("setp", &[], "P|P T T P?"),
    ("shf", &[], "T T T 32"),
    ("shfl", &["sync"], "T|P T 32 32 32"),
    ("shfl", &[], "T|P T 32 32"),
    ("shl", &[], "T T 32"),
    ("shr", &[], "T T 32"),
    ("sin", &[], "T T"),
    ("slct", &[], "U U U T"),
    ("sqrt", &[], "T T"),
    ("st", &["async"], "A t A"),
    ("st", &[], "A t 64?"),
    ("sub", &[], "T T T"),
    ("subc", &[], "T T T"),
    ("szext", &[], "T T 32"),
    ("tanh", &[], "T T"),
    ("testp", &[], "P T"),
    ("trap", &[], ""),
    ("vote", &["sync", "ballot"], "T P 32"),
    ("vote", &["sync"], "T P 32"),
    ("vote", &[], "T P"),
    ("xor", &[], "T T T"),
];

/// The pattern of an instruction's operands.
pub(super) fn pattern(instruction: &Instruction) -> Option<&'static str> {
    let has = |modifier: &&str| instruction.modifiers.iter().any(|m| m == modifier);
    let start = FORMS.partition_point(|(opcode, ..)| *opcode < instruction.opcode.as_str());
    // The number of threads may be left out in the middle.
    if instruction.opcode.starts_with("bar") && has(&"red") && instruction.operands.len() == 3 {
        return Some("T 32 P");
    }
    let candidates = FORMS.iter().skip(start).take_while(|(opcode, ..)| *opcode == instruction.opcode);
    candidates.filter(|(_, needed, _)| needed.iter().all(has)).map(|&(_, _, pattern)| pattern).next()
}

#[cfg(test)]
mod tests {
    use super::FORMS;

    #[test]
    fn table_is_sorted() {
        assert!(FORMS.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    }
}
