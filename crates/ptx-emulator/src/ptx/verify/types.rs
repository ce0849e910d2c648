//! Which register can stand where a type is wanted.
//!
//! PTX knows three kinds of registers of each width, bits, integers and floats, and lets bits stand for both others. Loads, stores
//! and conversions also take integers and bits that are wider than the type. The table in the manual says so; `ptxas` agrees.

use super::super::ast::Type;

/// How a register is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Predicate,
    Bits,
    Integer,
    Float,
    /// Packed halves, which `ptxas` takes for bits and integers too.
    Packed,
}

fn kind(ty: Type) -> Kind {
    match ty {
        Type::Pred => Kind::Predicate,
        Type::B8 | Type::B16 | Type::B32 | Type::B64 | Type::B128 => Kind::Bits,
        Type::U8 | Type::U16 | Type::U32 | Type::U64 | Type::S8 | Type::S16 | Type::S32 | Type::S64 => {
            Kind::Integer
        }
        Type::F16 | Type::Bf16 | Type::F32 | Type::F64 => Kind::Float,
        Type::F16x2 | Type::Bf16x2 => Kind::Packed,
    }
}

/// Whether a register can be an operand of an instruction of type `wanted`; `wide` allows wider ones.
pub(super) fn fits(register: Type, wanted: Type, wide: bool) -> bool {
    let size = if wide { register.size() >= wanted.size() } else { register.size() == wanted.size() };
    let same = register.size() == wanted.size();
    match (kind(register), kind(wanted)) {
        (Kind::Predicate, Kind::Predicate) => true,
        (Kind::Predicate, _) | (_, Kind::Predicate) => false,
        (Kind::Bits, _) | (_, Kind::Bits) => size,
        (Kind::Integer | Kind::Packed, Kind::Integer) => size,
        (Kind::Float, Kind::Float) => register == wanted,
        (Kind::Packed, Kind::Packed) => same,
        (Kind::Float | Kind::Packed, _) | (_, Kind::Float | Kind::Packed) => false,
    }
}

/// `.u8` to `.s64`.
pub(super) fn integer(ty: Type) -> bool {
    kind(ty) == Kind::Integer
}

/// Whether an integer constant can stand there.
pub(super) fn takes_integer(wanted: Type) -> bool {
    matches!(kind(wanted), Kind::Bits | Kind::Integer | Kind::Predicate)
}

/// Whether a floating-point constant can: exact single ones are bits as well.
pub(super) fn takes_float(wanted: Type, single: bool) -> bool {
    match wanted {
        Type::F32 | Type::F64 => true,
        Type::B32 => single,
        Type::B64 => !single,
        _ => false,
    }
}

/// The type of twice the width, for `mul.wide` and `mad.wide`.
pub(super) fn doubled(ty: Type) -> Option<Type> {
    Some(match ty {
        Type::U16 => Type::U32,
        Type::S16 => Type::S32,
        Type::U32 => Type::U64,
        Type::S32 => Type::S64,
        _ => return None,
    })
}

/// The type of `bytes` bits.
pub(super) fn bits(bytes: u64) -> Option<Type> {
    Some(match bytes {
        1 => Type::B8,
        2 => Type::B16,
        4 => Type::B32,
        8 => Type::B64,
        16 => Type::B128,
        _ => return None,
    })
}
