//! Comparisons: `setp`, `set`, `testp`.
//!
//! What is compared is a [`View`] of the lanes and the relation a constant, so that one generic body serves all types; of the 14
//! relations, seven are compared and the others are their opposites: NaN then comes out right by itself.

use std::marker::PhantomData;
use std::num::FpCategory;

use super::Alu;
use super::half::{Bf16, F16, Half, flush, halves};
#[cfg(target_arch = "x86_64")]
use super::rows::wide;
use super::rows::{Lane, once, pred, put_pred};
use super::words::Words;
use crate::exec::registers::{Class, Mask, Registers};
use crate::program::{AluFn, NONE, Step};
use crate::ptx::ast::Type;

/// A relation; the last eight are true for NaN too, but for `num`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

const RELATIONS: [(&str, Relation); 14] = [
    ("eq", Relation::Eq),
    ("ne", Relation::Ne),
    ("lt", Relation::Lt),
    ("le", Relation::Le),
    ("gt", Relation::Gt),
    ("ge", Relation::Ge),
    ("equ", Relation::Equ),
    ("neu", Relation::Neu),
    ("ltu", Relation::Ltu),
    ("leu", Relation::Leu),
    ("gtu", Relation::Gtu),
    ("geu", Relation::Geu),
    ("num", Relation::Num),
    ("nan", Relation::Nan),
];

/// `lt` and its like by their names for unsigned numbers.
const UNSIGNED: [(&str, Relation); 4] =
    [("lo", Relation::Lt), ("ls", Relation::Le), ("hi", Relation::Gt), ("hs", Relation::Ge)];

/// Flag: the opposite of what was compared.
const INVERT: u32 = 1 << 8;
/// Flags: how the third source goes in.
const BOOLEAN: [(&str, u32); 3] = [("and", 1 << 9), ("or", 2 << 9), ("xor", 3 << 9)];

pub(super) fn lookup(words: &mut Words<'_>) -> Result<Option<Alu>, String> {
    match words.opcode {
        "setp" => setp(words).map(Some),
        "set" => set(words).map(Some),
        "testp" => testp(words).map(Some),
        _ => Ok(None),
    }
}

/// The relation, the flags of the Boolean operator, and the type that is compared.
fn relation(words: &mut Words<'_>) -> Result<(Relation, u32, Type), String> {
    let boolean = words.one_of(&BOOLEAN).unwrap_or(0);
    let unsigned = words.one_of(&UNSIGNED);
    let relation = match unsigned {
        Some(relation) => relation,
        None => words.choose("a relation", &RELATIONS)?,
    };
    let ty = words.ty()?;
    let float = matches!(ty, Type::F32 | Type::F64 | Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2);
    let fits = match ty {
        Type::B16 | Type::B32 | Type::B64 => {
            unsigned.is_none() && matches!(relation, Relation::Eq | Relation::Ne)
        }
        Type::U16 | Type::U32 | Type::U64 => matches!(
            relation,
            Relation::Eq | Relation::Ne | Relation::Lt | Relation::Le | Relation::Gt | Relation::Ge
        ),
        Type::S16 | Type::S32 | Type::S64 => {
            unsigned.is_none()
                && matches!(
                    relation,
                    Relation::Eq | Relation::Ne | Relation::Lt | Relation::Le | Relation::Gt | Relation::Ge
                )
        }
        _ => float && unsigned.is_none(),
    };
    if !fits {
        return Err(
            format!("{}: the relation does not go with the type .{ty:?}", words.opcode).to_lowercase()
        );
    }
    Ok((relation, boolean, ty))
}

/// How a lane is seen by a comparison.
trait View {
    type Row: Lane;
    type Value: PartialOrd;
    fn see(lane: Self::Row) -> Self::Value;
}

macro_rules! plain_view {
    ($($ty:ty)*) => {$(
        impl View for $ty {
            type Row = Self;
            type Value = Self;
            #[inline(always)]
            fn see(lane: Self) -> Self {
                lane
            }
        }
    )*};
}

plain_view! { u16 i16 u32 i32 u64 i64 f32 f64 }

/// Subnormals count as zero.
struct Flushed<T>(PhantomData<T>);

impl View for Flushed<f32> {
    type Row = f32;
    type Value = f32;
    #[inline(always)]
    fn see(lane: f32) -> f32 {
        if lane.abs() < f32::MIN_POSITIVE { 0.0 } else { lane }
    }
}

impl<H: Half> View for H {
    type Row = u16;
    type Value = f32;
    #[inline(always)]
    fn see(lane: u16) -> f32 {
        H::widen(lane)
    }
}

impl<H: Half> View for Flushed<H> {
    type Row = u16;
    type Value = f32;
    #[inline(always)]
    fn see(lane: u16) -> f32 {
        H::widen(flush::<H>(lane))
    }
}

/// The relation is in the step: [`Step::imm`] from bit 32 on.
const LATE: u8 = u8::MAX;

/// The relations that are compared; `Gt` and `Ge` stand beside `Lt` and `Le` because operands cannot change places.
#[allow(clippy::double_comparisons)] // of NaN neither holds
#[inline(always)]
fn holds<T: PartialOrd, const RELATION: u8>(s: &Step, a: T, b: T) -> bool {
    let relation = if RELATION == LATE { (s.imm >> 32) as u8 } else { RELATION };
    match relation {
        0 => a == b,
        1 => a < b || a > b,
        2 => a < b,
        3 => a <= b,
        4 => a > b,
        5 => a >= b,
        _ => a.partial_cmp(&b).is_some(),
    }
}

/// One comparison for each lane, or two where halves are packed.
trait Compare {
    const CLASS: Class;
    fn compare<const RELATION: u8>(r: &Registers, s: &Step) -> (Mask, Mask);
    const PACKED: bool;
}

struct Single<V>(PhantomData<V>);
struct Packed<V>(PhantomData<V>);

impl<V: View> Compare for Single<V> {
    const CLASS: Class = V::Row::CLASS;
    const PACKED: bool = false;
    #[inline(always)]
    fn compare<const RELATION: u8>(r: &Registers, s: &Step) -> (Mask, Mask) {
        let (a, b) = (V::Row::row(r, s.src[0]), V::Row::row(r, s.src[1]));
        let mut mask = 0;
        for lane in 0..32 {
            let (a, b) = (V::see(V::Row::of(a[lane])), V::see(V::Row::of(b[lane])));
            mask |= u32::from(holds::<_, RELATION>(s, a, b)) << lane;
        }
        (mask, !mask)
    }
}

impl<V: View<Row = u16>> Compare for Packed<V> {
    const CLASS: Class = Class::Word;
    const PACKED: bool = true;
    #[inline(always)]
    fn compare<const RELATION: u8>(r: &Registers, s: &Step) -> (Mask, Mask) {
        let (a, b) = (r.word(s.src[0]), r.word(s.src[1]));
        let (mut low, mut high) = (0, 0);
        for lane in 0..32 {
            let ((a0, a1), (b0, b1)) = (halves(a[lane]), halves(b[lane]));
            low |= u32::from(holds::<_, RELATION>(s, V::see(a0), V::see(b0))) << lane;
            high |= u32::from(holds::<_, RELATION>(s, V::see(a1), V::see(b1))) << lane;
        }
        (low, high)
    }
}

/// The comparison with the flags applied: what goes to the first and the second destination.
#[inline(always)]
fn outcome<C: Compare, const RELATION: u8>(r: &Registers, s: &Step) -> (Mask, Mask) {
    let (mut p, mut q) = C::compare::<RELATION>(r, s);
    if s.flags & INVERT != 0 {
        (p, q) = (!p, !q);
    }
    match s.flags >> 9 & 3 {
        0 => (p, q),
        1 => (p & pred(r, s, 2), q & pred(r, s, 2)),
        2 => (p | pred(r, s, 2), q | pred(r, s, 2)),
        _ => (p ^ pred(r, s, 2), q ^ pred(r, s, 2)),
    }
}

#[inline(always)]
fn setp_row<C: Compare, const RELATION: u8>(r: &mut Registers, s: &Step, mask: Mask) {
    let (p, q) = outcome::<C, RELATION>(r, s);
    put_pred(r, s.dst, p, mask);
    put_pred(r, s.dst2, q, mask);
}

fn setp_plain<C: Compare>(r: &mut Registers, s: &Step, mask: Mask) {
    setp_row::<C, LATE>(r, s, mask);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn setp_vector<C: Compare, const RELATION: u8>(r: &mut Registers, s: &Step, mask: Mask) {
    setp_row::<C, RELATION>(r, s, mask);
}

/// `set`: [`Step::imm`] is what is written where the relation holds.
fn set_row<C: Compare>(r: &mut Registers, s: &Step, mask: Mask) {
    let (low, high) = outcome::<C, LATE>(r, s);
    let value = s.imm as u32;
    let d = std::array::from_fn(|lane| {
        let (low, high) = (low >> lane & 1, high >> lane & 1);
        if C::PACKED { (value * low) | (value * high) << 16 } else { value * low }
    });
    r.set_word(s.dst, &d, mask);
}

/// A version for each relation only where it is fast: the others look the relation up.
fn pick<C: Compare, const RELATION: u8>(set: bool) -> AluFn {
    if set {
        return set_row::<C>;
    }
    #[cfg(target_arch = "x86_64")]
    if wide() {
        return setp_vector::<C, RELATION>;
    }
    setp_plain::<C>
}

/// What a type and a relation need: the function, flags, the relation for [`LATE`], the kind of row.
struct Chosen {
    run: AluFn,
    flags: u32,
    imm: i64,
    class: Class,
}

fn function<C: Compare>(relation: Relation, set: bool) -> Chosen {
    let (run, flags, compared) = match relation {
        Relation::Eq => (pick::<C, 0>(set), 0, 0),
        Relation::Neu => (pick::<C, 0>(set), INVERT, 0),
        Relation::Ne => (pick::<C, 1>(set), 0, 1),
        Relation::Equ => (pick::<C, 1>(set), INVERT, 1),
        Relation::Lt => (pick::<C, 2>(set), 0, 2),
        Relation::Geu => (pick::<C, 2>(set), INVERT, 2),
        Relation::Le => (pick::<C, 3>(set), 0, 3),
        Relation::Gtu => (pick::<C, 3>(set), INVERT, 3),
        Relation::Gt => (pick::<C, 4>(set), 0, 4),
        Relation::Leu => (pick::<C, 4>(set), INVERT, 4),
        Relation::Ge => (pick::<C, 5>(set), 0, 5),
        Relation::Ltu => (pick::<C, 5>(set), INVERT, 5),
        Relation::Num => (pick::<C, 6>(set), 0, 6),
        Relation::Nan => (pick::<C, 6>(set), INVERT, 6),
    };
    Chosen { run, flags, imm: compared << 32, class: C::CLASS }
}

fn by_type(words: &mut Words<'_>, ty: Type, relation: Relation, set: bool) -> Result<Chosen, String> {
    use Type::{B16, B32, B64, S16, S32, S64, U16, U32, U64};
    let ftz = matches!(ty, Type::F32 | Type::F16 | Type::F16x2) && words.flag("ftz");
    // Of integers only equality is the same for both signs; it is compared unsigned.
    Ok(match (ty, ftz) {
        (U16 | B16, _) => function::<Single<u16>>(relation, set),
        (S16, _) => function::<Single<i16>>(relation, set),
        (U32 | B32, _) => function::<Single<u32>>(relation, set),
        (S32, _) => function::<Single<i32>>(relation, set),
        (U64 | B64, _) => function::<Single<u64>>(relation, set),
        (S64, _) => function::<Single<i64>>(relation, set),
        (Type::F32, false) => function::<Single<f32>>(relation, set),
        (Type::F32, true) => function::<Single<Flushed<f32>>>(relation, set),
        (Type::F64, _) => function::<Single<f64>>(relation, set),
        (Type::F16, false) => function::<Single<F16>>(relation, set),
        (Type::F16, true) => function::<Single<Flushed<F16>>>(relation, set),
        (Type::Bf16, _) => function::<Single<Bf16>>(relation, set),
        (Type::F16x2, false) => function::<Packed<F16>>(relation, set),
        (Type::F16x2, true) => function::<Packed<Flushed<F16>>>(relation, set),
        (Type::Bf16x2, _) => function::<Packed<Bf16>>(relation, set),
        (other, _) => return words.refuse(other),
    })
}

fn sources(class: Class, boolean: u32) -> Vec<Class> {
    let mut sources = vec![class, class];
    if boolean != 0 {
        sources.push(Class::Pred);
    }
    sources
}

fn setp(words: &mut Words<'_>) -> Result<Alu, String> {
    let (relation, boolean, ty) = relation(words)?;
    let Chosen { run, flags, imm, class } = by_type(words, ty, relation, false)?;
    let alu = Alu::new(run, Class::Pred, &sources(class, boolean));
    Ok(Alu { flags: flags | boolean, imm, dst2: Some(Class::Pred), ..alu })
}

fn set(words: &mut Words<'_>) -> Result<Alu, String> {
    let (relation, boolean, ty) = relation(words)?;
    let to = words.ty()?;
    let half = matches!(ty, Type::F16 | Type::Bf16);
    let imm = match (ty, to) {
        (Type::F16x2, Type::F16x2) => i64::from(F16::ONE),
        (Type::Bf16x2, Type::Bf16x2) => i64::from(Bf16::ONE),
        (Type::F16x2 | Type::Bf16x2, Type::U32 | Type::S32) => 0xffff,
        (Type::F16x2 | Type::Bf16x2, _) => return words.refuse(to),
        (_, Type::U32 | Type::S32) => 0xffff_ffff,
        (_, Type::F32) if !half => i64::from(1f32.to_bits()),
        (_, Type::U16 | Type::S16) if half => 0xffff,
        (_, Type::F16) => i64::from(F16::ONE),
        (_, Type::Bf16) => i64::from(Bf16::ONE),
        _ => return words.refuse(to),
    };
    let chosen = by_type(words, ty, relation, true)?;
    let (flags, imm) = (chosen.flags | boolean, chosen.imm | imm);
    Ok(Alu { flags, imm, ..Alu::new(chosen.run, Class::Word, &sources(chosen.class, boolean)) })
}

fn testp(words: &mut Words<'_>) -> Result<Alu, String> {
    let kinds =
        [("finite", 0), ("infinite", 1), ("number", 2), ("notanumber", 3), ("normal", 4), ("subnormal", 5)];
    let imm = words.choose("a property", &kinds)?;
    let (run, class) = match words.ty()? {
        Type::F32 => (once!(|r, s, m| testp_row::<f32>(r, s, m, f32::classify)), Class::Word),
        Type::F64 => (once!(|r, s, m| testp_row::<f64>(r, s, m, f64::classify)), Class::Long),
        other => return words.refuse(other),
    };
    Ok(Alu { imm, ..Alu::new(run, Class::Pred, &[class]) })
}

/// Zero counts as normal.
fn testp_row<T: Lane>(r: &mut Registers, s: &Step, mask: Mask, classify: fn(T) -> FpCategory) {
    let a = T::row(r, s.src[0]);
    let mut holds = 0;
    for (lane, bits) in a.iter().enumerate() {
        let category = classify(T::of(*bits));
        let has = match s.imm {
            0 => !matches!(category, FpCategory::Nan | FpCategory::Infinite),
            1 => category == FpCategory::Infinite,
            2 => category != FpCategory::Nan,
            3 => category == FpCategory::Nan,
            4 => matches!(category, FpCategory::Normal | FpCategory::Zero),
            _ => category == FpCategory::Subnormal,
        };
        holds |= u32::from(has) << lane;
    }
    if s.dst != NONE {
        r.set_pred(s.dst, holds, mask);
    }
}
