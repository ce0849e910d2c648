//! Instructions written out again, for messages.

use super::ast::{Instruction, Operand};
use std::fmt;

fn join(f: &mut fmt::Formatter<'_>, operands: &[Operand]) -> fmt::Result {
    for (index, operand) in operands.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        write!(f, "{operand}")?;
    }
    Ok(())
}

/// `+8`, `-8` or nothing.
fn offset(f: &mut fmt::Formatter<'_>, offset: i64) -> fmt::Result {
    if offset == 0 { Ok(()) } else { write!(f, "{offset:+}") }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::NameOffset(name, bytes) => write!(f, "{name}{bytes:+}"),
            Self::Integer(value) => write!(f, "{}", value.cast_signed()),
            Self::Float32(bits) => write!(f, "0f{bits:08X}"),
            Self::Float64(bits) => write!(f, "0d{bits:016X}"),
            Self::Address { base, offset: bytes, extra } => {
                write!(f, "[{base}")?;
                offset(f, *bytes)?;
                if !extra.is_empty() {
                    f.write_str(", ")?;
                    join(f, extra)?;
                }
                f.write_str("]")
            }
            Self::Vector(operands) => {
                f.write_str("{")?;
                join(f, operands)?;
                f.write_str("}")
            }
            Self::List(operands) => {
                f.write_str("(")?;
                join(f, operands)?;
                f.write_str(")")
            }
            Self::Pair(first, second) => write!(f, "{first}|{second}"),
            Self::Not(operand) => write!(f, "!{operand}"),
            Self::Negative(operand) => write!(f, "-{operand}"),
            Self::Sink => f.write_str("_"),
        }
    }
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(guard) = &self.guard {
            write!(f, "@{}{} ", if guard.negated { "!" } else { "" }, guard.register)?;
        }
        f.write_str(&self.opcode)?;
        for modifier in &self.modifiers {
            write!(f, ".{modifier}")?;
        }
        if !self.operands.is_empty() {
            f.write_str(" ")?;
        }
        join(f, &self.operands)?;
        f.write_str(";")
    }
}
