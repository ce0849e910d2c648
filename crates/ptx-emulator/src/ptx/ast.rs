//! PTX as it was written: names unresolved, opcodes as words.
//!
//! Opcodes stay text and not an enum of every variant: there are thousands of combinations of modifiers, and the one table that
//! knows them is the one that runs them (`lower` and `alu`). What the parser owes the rest is structure and places.

use std::collections::BTreeMap;

/// One file of PTX.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Module {
    /// `.version`, major and minor.
    pub version: (u32, u32),
    /// `.target`: the architecture first (`sm_80`, `sm_90a`), options after it.
    pub target: Vec<String>,
    /// `.address_size` in bits; 64 in everything that is accepted.
    pub address_size: u32,
    /// `.file`: the source files that [`SourceLine::file`] counts in.
    pub files: BTreeMap<u32, String>,
    /// Variables of the module, in the order of their declaration.
    pub variables: Vec<Variable>,
    /// Kernels and functions, declarations and definitions.
    pub functions: Vec<Function>,
    /// `.alias name, function`: a second name for a function.
    pub aliases: Vec<(String, String)>,
}

/// A state space: where a variable lives or an instruction goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// `.global`.
    Global,
    /// `.const`.
    Const,
    /// `.shared`.
    Shared,
    /// `.local`.
    Local,
    /// `.param`.
    Param,
}

/// A fundamental type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Type {
    Pred,
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F64,
}

/// Who else may see a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Linkage {
    #[default]
    Internal,
    Visible,
    Extern,
    Weak,
    Common,
}

/// A variable of the module or of a function (never a register).
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Where it lives.
    pub space: Space,
    /// Who else may see it.
    pub linkage: Linkage,
    /// Alignment in bytes: `.align`, or the type's own.
    pub align: u64,
    /// Type of one element.
    pub ty: Type,
    /// Number of elements over all dimensions (a `.v4` counts four); `None` for `extern .shared name[]`.
    pub len: Option<u64>,
    /// Initial bytes; shorter than the variable where the rest is zero.
    pub init: Vec<u8>,
    /// Addresses within `init` that are known only when the module is loaded.
    pub relocations: Vec<Relocation>,
    /// `.attribute(.managed)`: unified memory.
    pub managed: bool,
    /// Line of the declaration.
    pub line: u32,
}

/// An address inside an initialiser.
#[derive(Clone, Debug, PartialEq)]
pub struct Relocation {
    /// Byte offset in the initialiser.
    pub at: u64,
    /// Bytes replaced: 8 for a whole address, 1 for `0xFF00(symbol)` in an array of `.u8`.
    pub size: u32,
    /// Bits the address is shifted right by before its low `size` bytes are taken: 8 for `0xFF00(symbol)`.
    pub shift: u32,
    /// The variable or function whose address goes there.
    pub symbol: String,
    /// Added to the address.
    pub addend: i64,
    /// `generic(symbol)`: the generic address is meant.
    pub generic: bool,
}

/// A parameter of a kernel or a function, or what a function returns.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// `.reg` parameters of functions are registers, the others memory.
    pub register: bool,
    /// Alignment in bytes.
    pub align: u64,
    /// Type of one element.
    pub ty: Type,
    /// Elements: 1 for a scalar.
    pub len: u64,
    /// `name[n]` and not a scalar.
    pub array: bool,
    /// `.ptr`: what the compiler promised about the address in it.
    pub pointer: Option<Pointer>,
}

/// `.ptr .global .align 16` of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// Where it points; `None` is generic.
    pub space: Option<Space>,
    /// Alignment in bytes of what it points to.
    pub align: u64,
}

/// A `.entry` or a `.func`.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// `.entry`: it can be launched.
    pub entry: bool,
    /// Who else may see it.
    pub linkage: Linkage,
    /// Parameters in order.
    pub params: Vec<Param>,
    /// What it returns (PTX allows several, compilers emit at most one).
    pub returns: Vec<Param>,
    /// `.maxntid`, `.reqntid` and their like.
    pub limits: Limits,
    /// `.noreturn`: a call of it does not come back.
    pub noreturn: bool,
    /// `None` for a declaration.
    pub body: Option<Vec<Statement>>,
    /// Line of the declaration.
    pub line: u32,
}

/// The performance and launch directives of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `.maxntid`: the product bounds the threads of a block.
    pub max_threads: Option<[u32; 3]>,
    /// `.reqntid`: a block has exactly this shape.
    pub required_threads: Option<[u32; 3]>,
    /// `.minnctapersm`.
    pub min_blocks: Option<u32>,
    /// `.maxnreg`.
    pub max_registers: Option<u32>,
    /// `.reqnctapercluster` (`.explicitcluster` alone gives 1, 1, 1).
    pub required_cluster: Option<[u32; 3]>,
    /// `.maxclusterrank`.
    pub max_cluster: Option<u32>,
}

/// One statement of a body, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `NAME:`
    Label(Label),
    /// An instruction.
    Instruction(Instruction),
    /// `.reg .TYPE names;`
    Registers(Registers),
    /// `.shared`, `.local`, `.param` and other variables of this scope.
    Variable(Variable),
    /// `{ … }`: a scope of names of its own.
    Block(Vec<Self>),
    /// `NAME: .branchtargets a, b, …;`
    BranchTargets(Label, Vec<String>),
    /// `NAME: .callprototype …;` or `.calltargets`; indirect calls are refused when lowered.
    CallPrototype(Label),
}

/// A name before a colon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The name.
    pub name: String,
    /// Line in the PTX text.
    pub line: u32,
}

/// Registers of one type declared together.
#[derive(Clone, Debug, PartialEq)]
pub struct Registers {
    /// Their type.
    pub ty: Type,
    /// 1, or 2 or 4 for a vector register (`.v2`, `.v4`).
    pub vector: u32,
    /// Name, and for `%r<10>` the count: that declares `%r0` to `%r9`.
    pub names: Vec<(String, Option<u32>)>,
    /// Line of the declaration.
    pub line: u32,
}

/// Where the source that PTX was compiled from has an instruction (`.loc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceLine {
    /// Index into [`Module::files`].
    pub file: u32,
    /// Line, from 1.
    pub line: u32,
    /// File and line of the call, where the code was inlined: the nearest one.
    pub caller: Option<(u32, u32)>,
}

/// `@!%p1` before an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The predicate register.
    pub register: String,
    /// Runs where the predicate is false.
    pub negated: bool,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// Its predicate.
    pub guard: Option<Guard>,
    /// `ld` of `ld.global.v4.f32`.
    pub opcode: String,
    /// `global`, `v4`, `f32` of `ld.global.v4.f32`; `shared::cta` and `L2::128B` are one word each.
    pub modifiers: Vec<String>,
    /// Operands in order.
    pub operands: Vec<Operand>,
    /// Line in the PTX text, from 1.
    pub line: u32,
    /// Line in the source, from the `.loc` in force: of inlined code the line itself, and beside it that of the call.
    pub source: Option<SourceLine>,
}

/// One operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A register, a special register (`%tid.x` is one name), a component (`%v.x`), a variable, a label, a function, `WARP_SZ`.
    Name(String),
    /// `name+8` outside brackets: the address of a variable and an offset.
    NameOffset(String, i64),
    /// An integer constant (constant expressions are folded), as 64 bits of two's complement.
    Integer(u64),
    /// `0f3F800000`: the bits.
    Float32(u32),
    /// `0d3FF0000000000000` or a decimal literal: the bits.
    Float64(u64),
    /// `[base+offset]`; an absolute address has `base` = an integer. `[a, {x, y}]` of tensors and textures has the rest in `extra`.
    Address {
        /// A name or an integer.
        base: Box<Self>,
        /// Bytes.
        offset: i64,
        /// What follows a comma inside the brackets.
        extra: Vec<Self>,
    },
    /// `{a, b, c, d}`.
    Vector(Vec<Self>),
    /// `(a, b)` of a call.
    List(Vec<Self>),
    /// `p|q`.
    Pair(Box<Self>, Box<Self>),
    /// `!p`.
    Not(Box<Self>),
    /// `-%r1`: only constants are folded.
    Negative(Box<Self>),
    /// `_`: the result is not wanted.
    Sink,
}

impl Type {
    /// Bytes of one value in memory; a predicate has none and counts as 1.
    #[must_use]
    pub fn size(self) -> u64 {
        match self {
            Self::Pred | Self::B8 | Self::U8 | Self::S8 => 1,
            Self::B16 | Self::U16 | Self::S16 | Self::F16 | Self::Bf16 => 2,
            Self::B32 | Self::U32 | Self::S32 | Self::F32 | Self::F16x2 | Self::Bf16x2 => 4,
            Self::B64 | Self::U64 | Self::S64 | Self::F64 => 8,
            Self::B128 => 16,
        }
    }

    /// The type named by a word such as `s32` (no dot); `None` if it is none.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "pred" => Self::Pred,
            "b8" => Self::B8,
            "b16" => Self::B16,
            "b32" => Self::B32,
            "b64" => Self::B64,
            "b128" => Self::B128,
            "u8" => Self::U8,
            "u16" => Self::U16,
            "u32" => Self::U32,
            "u64" => Self::U64,
            "s8" => Self::S8,
            "s16" => Self::S16,
            "s32" => Self::S32,
            "s64" => Self::S64,
            "f16" => Self::F16,
            "f16x2" => Self::F16x2,
            "bf16" => Self::Bf16,
            "bf16x2" => Self::Bf16x2,
            "f32" => Self::F32,
            "f64" => Self::F64,
            _ => return None,
        })
    }
}
