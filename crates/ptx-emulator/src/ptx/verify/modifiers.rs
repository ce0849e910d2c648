//! The modifiers of loads, stores and atomics, which exclude and need one another.
//!
//! The other instructions leave this to their lowering, whose tables know each modifier. Memory instructions have more
//! combinations than a lowering has reasons to tell apart: `ld.relaxed` without a scope would run well and not load.

use super::super::ast::{Instruction, Type};
use super::types;

/// What a modifier of a memory instruction is about; at most one of each may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Space,
    Order,
    Scope,
    Cache,
    Vector,
    Operation,
    Type,
}

const GROUPS: &[(Group, &[&str])] = &[
    (
        Group::Space,
        &[
            "global",
            "shared",
            "shared::cta",
            "shared::cluster",
            "local",
            "const",
            "param",
            "param::entry",
            "param::func",
        ],
    ),
    (Group::Order, &["weak", "relaxed", "acquire", "release", "acq_rel", "volatile"]),
    (Group::Scope, &["cta", "cluster", "gpu", "sys"]),
    (Group::Cache, &["ca", "cg", "cs", "lu", "cv", "wb", "wt"]),
    (Group::Vector, &["v2", "v4", "v8"]),
    (Group::Operation, &["add", "and", "cas", "dec", "exch", "inc", "max", "min", "or", "xor"]),
];

/// Opcode, group, the words of the group that it takes.
const TAKEN: &[(&str, Group, &[&str])] = &[
    ("ld", Group::Order, &["weak", "relaxed", "acquire", "volatile"]),
    ("ld", Group::Cache, &["ca", "cg", "cs", "lu", "cv"]),
    (
        "st",
        Group::Space,
        &["global", "shared", "shared::cta", "shared::cluster", "local", "param", "param::func"],
    ),
    ("st", Group::Order, &["weak", "relaxed", "release", "volatile"]),
    ("st", Group::Cache, &["wb", "cg", "cs", "wt"]),
    ("atom", Group::Space, &["global", "shared", "shared::cta", "shared::cluster"]),
    ("atom", Group::Order, &["relaxed", "acquire", "release", "acq_rel"]),
    ("atom", Group::Cache, &[]),
    ("red", Group::Space, &["global", "shared", "shared::cta", "shared::cluster"]),
    ("red", Group::Order, &["relaxed", "release"]),
    ("red", Group::Cache, &[]),
    ("red", Group::Operation, &["add", "and", "dec", "inc", "max", "min", "or", "xor"]),
];

/// The types of each atomic operation.
const OPERATIONS: &[(&[&str], &[Type])] = &[
    (&["and", "or", "xor"], &[Type::B32, Type::B64]),
    (&["exch"], &[Type::B32, Type::B64, Type::B128]),
    (&["cas"], &[Type::B16, Type::B32, Type::B64, Type::B128]),
    (&["inc", "dec"], &[Type::U32]),
    (
        &["add"],
        &[
            Type::U32,
            Type::S32,
            Type::U64,
            Type::F32,
            Type::F64,
            Type::F16,
            Type::F16x2,
            Type::Bf16,
            Type::Bf16x2,
        ],
    ),
    (
        &["min", "max"],
        &[
            Type::U32,
            Type::S32,
            Type::U64,
            Type::S64,
            Type::F16,
            Type::F16x2,
            Type::Bf16,
            Type::Bf16x2,
            Type::F32,
        ],
    ),
];

/// Checks the modifiers of an instruction.
pub(super) fn check(instruction: &Instruction) -> Result<(), String> {
    let opcode = instruction.opcode.as_str();
    repeated(instruction)?;
    if opcode == "cvt" {
        return rounding(instruction);
    }
    let atomic = matches!(opcode, "atom" | "red");
    let elsewhere = instruction.modifiers.iter().any(|m| m == "async" || m == "bulk");
    if !(atomic || matches!(opcode, "ld" | "st")) || elsewhere {
        return Ok(());
    }
    let mut found: [Option<&str>; 7] = [None; 7];
    for word in &instruction.modifiers {
        let group = GROUPS.iter().find(|(_, words)| words.contains(&word.as_str())).map(|&(group, _)| group);
        let Some(group) = group.or_else(|| Type::from_word(word).map(|_| Group::Type)) else { continue };
        let taken = TAKEN.iter().find(|(name, of, _)| *name == opcode && *of == group);
        if taken.is_some_and(|(.., words)| !words.contains(&word.as_str())) {
            return Err(format!("{opcode} does not take .{word}"));
        }
        if let Some(slot) = found.get_mut(group as usize)
            && let Some(other) = slot.replace(word)
        {
            return Err(format!(".{other} and .{word} exclude each other"));
        }
    }
    let get = |group: Group| found.get(group as usize).copied().flatten();
    let ty = get(Group::Type).and_then(Type::from_word);
    if atomic {
        return operation(instruction, get(Group::Operation), ty);
    }
    if matches!(ty, Some(Type::Pred | Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2)) {
        return Err(format!("{opcode} moves bits: write .b16 or .b32"));
    }
    let order = get(Group::Order).filter(|&order| order != "weak");
    let scoped = order.filter(|&order| order != "volatile");
    match (scoped, get(Group::Scope)) {
        (Some(order), None) => return Err(format!(".{order} needs a scope: .cta, .cluster, .gpu or .sys")),
        (None, Some(scope)) => return Err(format!(".{scope} needs an order such as .relaxed")),
        _ => {}
    }
    let space = get(Group::Space);
    if let Some(order) = order {
        if let Some(cache) = get(Group::Cache) {
            return Err(format!(".{order} and .{cache} exclude each other"));
        }
        if let Some(space) = space.filter(|s| !s.starts_with("global") && !s.starts_with("shared")) {
            return Err(format!(
                ".{space} memory belongs to one thread or is constant; it takes no .{order}"
            ));
        }
    }
    if instruction.modifiers.iter().any(|m| m == "nc") && space != Some("global") {
        return Err(".nc needs .global".to_owned());
    }
    Ok(())
}

/// A modifier twice, which only types and the layouts of matrices may be.
fn repeated(instruction: &Instruction) -> Result<(), String> {
    let matrices = ["mma", "wmma", "wgmma", "tcgen05"].contains(&instruction.opcode.as_str());
    for (index, word) in instruction.modifiers.iter().enumerate() {
        let before = instruction.modifiers.iter().take(index);
        if !matrices && Type::from_word(word).is_none() && before.clone().any(|other| other == word) {
            return Err(format!(".{word} stands twice"));
        }
    }
    Ok(())
}

/// A conversion that cannot be exact says how it rounds.
fn rounding(instruction: &Instruction) -> Result<(), String> {
    let types: Vec<Type> = instruction.modifiers.iter().filter_map(|m| Type::from_word(m)).collect();
    let [to, from] = types.as_slice() else { return Ok(()) };
    let float = |ty: Type| matches!(ty, Type::F16 | Type::Bf16 | Type::F32 | Type::F64);
    let has = |words: &[&str]| instruction.modifiers.iter().any(|m| words.contains(&m.as_str()));
    let narrower = float(*from) && to.size() < from.size();
    if float(*to) && (narrower || !float(*from)) && !has(&["rn", "rz", "rm", "rp", "rs"]) {
        return Err("this conversion needs .rn, .rz, .rm or .rp".to_owned());
    }
    if float(*from) && !float(*to) && types::integer(*to) && !has(&["rni", "rzi", "rmi", "rpi"]) {
        return Err("this conversion needs .rni, .rzi, .rmi or .rpi".to_owned());
    }
    Ok(())
}

fn operation(instruction: &Instruction, operation: Option<&str>, ty: Option<Type>) -> Result<(), String> {
    let opcode = &instruction.opcode;
    let operation = operation.ok_or_else(|| format!("{opcode} needs an operation such as .add"))?;
    let types =
        OPERATIONS.iter().find(|(names, _)| names.contains(&operation)).map_or(&[][..], |(_, types)| types);
    let Some(ty) = ty.filter(|ty| types.contains(ty)) else {
        let names: Vec<_> = types.iter().map(|ty| format!(".{}", super::operands::word(*ty))).collect();
        return Err(format!("{opcode}.{operation} needs one of {}", names.join(", ")));
    };
    let half = matches!(ty, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2);
    if half && !instruction.modifiers.iter().any(|m| m == "noftz") {
        return Err(format!("{opcode} of halves needs .noftz"));
    }
    if matches!(operation, "min" | "max")
        && ty == Type::F32
        && !instruction.modifiers.iter().any(|m| m.starts_with('v'))
    {
        return Err(format!("{opcode}.{operation} of .f32 exists for vectors only"));
    }
    Ok(())
}
