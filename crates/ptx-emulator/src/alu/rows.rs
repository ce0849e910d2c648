//! From a function of one lane to a function of a row.
//!
//! Closures and macros and not a trait for each instruction: the definition of an instruction then is one line. The loops have a
//! fixed length and no branches of their own, so that the compiler turns them into vector code; `op!` compiles each twice, once for any
//! processor and once for one with AVX2, FMA and F16C.

use crate::exec::registers::{Class, Mask, Registers, Slot};
use crate::program::{NONE, Step};

/// What a lane of a register row is read as.
pub(super) trait Lane: Copy {
    /// The kind of row.
    const CLASS: Class;
    /// One lane of that row.
    type Bits: Copy + Default;
    fn of(bits: Self::Bits) -> Self;
    fn bits(self) -> Self::Bits;
    fn row(registers: &Registers, slot: Slot) -> [Self::Bits; 32];
    fn put(registers: &mut Registers, slot: Slot, row: &[Self::Bits; 32], mask: Mask);
}

macro_rules! lane {
    ($($ty:ty: $class:ident, $bits:ty, $row:ident, $set:ident, |$raw:ident| $of:expr, |$value:ident| $to:expr;)*) => {$(
        impl Lane for $ty {
            const CLASS: Class = Class::$class;
            type Bits = $bits;
            #[inline(always)]
            fn of($raw: $bits) -> Self {
                $of
            }
            #[inline(always)]
            fn bits(self) -> $bits {
                let $value = self;
                $to
            }
            #[inline(always)]
            fn row(registers: &Registers, slot: Slot) -> [$bits; 32] {
                registers.$row(slot)
            }
            #[inline(always)]
            fn put(registers: &mut Registers, slot: Slot, row: &[$bits; 32], mask: Mask) {
                registers.$set(slot, row, mask);
            }
        }
    )*};
}

// Narrow results are extended to the whole word: `cvt` promises it and for the others it costs nothing.
lane! {
    u8: Word, u32, word, set_word, |x| x as Self, |x| u32::from(x);
    i8: Word, u32, word, set_word, |x| x as Self, |x| i32::from(x) as u32;
    u16: Word, u32, word, set_word, |x| x as Self, |x| u32::from(x);
    i16: Word, u32, word, set_word, |x| x as Self, |x| i32::from(x) as u32;
    u32: Word, u32, word, set_word, |x| x, |x| x;
    i32: Word, u32, word, set_word, |x| x as Self, |x| x as u32;
    f32: Word, u32, word, set_word, |x| Self::from_bits(x), |x| x.to_bits();
    u64: Long, u64, long, set_long, |x| x, |x| x;
    i64: Long, u64, long, set_long, |x| x as Self, |x| x as u64;
    f64: Long, u64, long, set_long, |x| Self::from_bits(x), |x| x.to_bits();
}

#[cfg(test)]
thread_local! {
    /// Makes [`wide`] say no, so that tests see both versions.
    pub(super) static PLAIN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Whether the second version of each function may run.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "there is no second version"))]
pub(super) fn wide() -> bool {
    #[cfg(test)]
    if PLAIN.get() {
        return false;
    }
    #[cfg(target_arch = "x86_64")]
    {
        std::is_x86_feature_detected!("avx2")
            && std::is_x86_feature_detected!("fma")
            && std::is_x86_feature_detected!("f16c")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

#[inline(always)]
pub(super) fn map1<A: Lane, D: Lane>(r: &mut Registers, s: &Step, mask: Mask, f: impl Fn(A) -> D) {
    let a = A::row(r, s.src[0]);
    let mut d = [D::Bits::default(); 32];
    for lane in 0..32 {
        d[lane] = f(A::of(a[lane])).bits();
    }
    D::put(r, s.dst, &d, mask);
}

#[inline(always)]
pub(super) fn map2<A: Lane, B: Lane, D: Lane>(
    r: &mut Registers,
    s: &Step,
    mask: Mask,
    f: impl Fn(A, B) -> D,
) {
    let (a, b) = (A::row(r, s.src[0]), B::row(r, s.src[1]));
    let mut d = [D::Bits::default(); 32];
    for lane in 0..32 {
        d[lane] = f(A::of(a[lane]), B::of(b[lane])).bits();
    }
    D::put(r, s.dst, &d, mask);
}

#[inline(always)]
pub(super) fn map3<A: Lane, B: Lane, C: Lane, D: Lane>(
    r: &mut Registers,
    s: &Step,
    mask: Mask,
    f: impl Fn(A, B, C) -> D,
) {
    let (a, b, c) = (A::row(r, s.src[0]), B::row(r, s.src[1]), C::row(r, s.src[2]));
    let mut d = [D::Bits::default(); 32];
    for lane in 0..32 {
        d[lane] = f(A::of(a[lane]), B::of(b[lane]), C::of(c[lane])).bits();
    }
    D::put(r, s.dst, &d, mask);
}

#[inline(always)]
pub(super) fn map4<A: Lane, B: Lane, C: Lane, E: Lane, D: Lane>(
    r: &mut Registers,
    s: &Step,
    mask: Mask,
    f: impl Fn(A, B, C, E) -> D,
) {
    let (a, b) = (A::row(r, s.src[0]), B::row(r, s.src[1]));
    let (c, e) = (C::row(r, s.src[2]), E::row(r, s.src[3]));
    let mut d = [D::Bits::default(); 32];
    for lane in 0..32 {
        d[lane] = f(A::of(a[lane]), B::of(b[lane]), C::of(c[lane]), E::of(e[lane])).bits();
    }
    D::put(r, s.dst, &d, mask);
}

/// A predicate source, negated where the flags say so.
#[inline(always)]
pub(super) fn pred(r: &Registers, s: &Step, source: usize) -> Mask {
    let negated = 0u32.wrapping_sub(s.flags >> source & 1);
    r.pred(s.src[source]) ^ negated
}

/// Writes a predicate unless it is not wanted.
#[inline(always)]
pub(super) fn put_pred(r: &mut Registers, slot: Slot, values: Mask, mask: Mask) {
    if slot != NONE {
        r.set_pred(slot, values, mask);
    }
}

/// Two versions of a row function: `both!(|registers, step, mask| …)` is the one this processor runs. `FAST` is true in the one
/// that may use AVX2, FMA and F16C.
macro_rules! both {
    (|$r:ident, $s:ident, $m:ident| $body:expr) => {{
        fn plain($r: &mut $crate::exec::registers::Registers, $s: &$crate::program::Step, $m: u32) {
            #[allow(dead_code)]
            const FAST: bool = false;
            $body
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c")]
        fn vector($r: &mut $crate::exec::registers::Registers, $s: &$crate::program::Step, $m: u32) {
            #[allow(dead_code)]
            const FAST: bool = true;
            $body
        }
        #[cfg(target_arch = "x86_64")]
        let run: $crate::program::AluFn = if $crate::alu::rows::wide() { vector } else { plain };
        #[cfg(not(target_arch = "x86_64"))]
        let run: $crate::program::AluFn = plain;
        run
    }};
}

/// One version of a row function, for what is seldom used or cannot be vectorised.
macro_rules! once {
    (|$r:ident, $s:ident, $m:ident| $body:expr) => {{
        fn plain($r: &mut $crate::exec::registers::Registers, $s: &$crate::program::Step, $m: u32) {
            $body
        }
        let run: $crate::program::AluFn = plain;
        run
    }};
}

/// An instruction from a closure over lanes: `op!(f32, f32 => f32, |a, b| a + b)`; `op!(once …)` compiles it once.
macro_rules! op {
    (@ $how:ident, $map:ident, [$($src:ty),+], $dst:ty, $f:expr) => {
        $crate::alu::Alu::new(
            $how!(|r, s, m| $crate::alu::rows::$map::<$($src,)+ $dst>(r, s, m, $f)),
            <$dst as $crate::alu::rows::Lane>::CLASS,
            &[$(<$src as $crate::alu::rows::Lane>::CLASS),+],
        )
    };
    (once $a:ty => $d:ty, $f:expr) => { op!(@ once, map1, [$a], $d, $f) };
    (once $a:ty, $b:ty => $d:ty, $f:expr) => { op!(@ once, map2, [$a, $b], $d, $f) };
    (once $a:ty, $b:ty, $c:ty => $d:ty, $f:expr) => { op!(@ once, map3, [$a, $b, $c], $d, $f) };
    (once $a:ty, $b:ty, $c:ty, $e:ty => $d:ty, $f:expr) => { op!(@ once, map4, [$a, $b, $c, $e], $d, $f) };
    ($a:ty => $d:ty, $f:expr) => { op!(@ both, map1, [$a], $d, $f) };
    ($a:ty, $b:ty => $d:ty, $f:expr) => { op!(@ both, map2, [$a, $b], $d, $f) };
    ($a:ty, $b:ty, $c:ty => $d:ty, $f:expr) => { op!(@ both, map3, [$a, $b, $c], $d, $f) };
    ($a:ty, $b:ty, $c:ty, $e:ty => $d:ty, $f:expr) => { op!(@ both, map4, [$a, $b, $c, $e], $d, $f) };
}

/// One function for both signs of an integer type of 16, 32 or 64 bits.
macro_rules! by_width {
    ($words:ident, |$t:ident| $op:expr) => {
        match $words.ty()? {
            U16 | S16 => {
                type $t = u16;
                $op
            }
            U32 | S32 => {
                type $t = u32;
                $op
            }
            U64 | S64 => {
                type $t = u64;
                $op
            }
            other => return $words.refuse(other),
        }
    };
}

/// A function for each integer type of 16, 32 or 64 bits.
macro_rules! by_sign {
    ($words:ident, |$t:ident| $op:expr) => {
        match $words.ty()? {
            U16 => {
                type $t = u16;
                $op
            }
            S16 => {
                type $t = i16;
                $op
            }
            U32 => {
                type $t = u32;
                $op
            }
            S32 => {
                type $t = i32;
                $op
            }
            U64 => {
                type $t = u64;
                $op
            }
            S64 => {
                type $t = i64;
                $op
            }
            other => return $words.refuse(other),
        }
    };
}

pub(super) use {both, by_sign, by_width, once, op};
