//! The products as steps: compiled once for any processor and once for one with AVX2 and FMA.
//!
//! Only the forms of floats that whole models are made of have a type of their own, whose sizes the compiler knows and turns into straight vector code. The
//! others take their sizes from the step: each form written out made this the largest part of the crate's code, and the slowest to
//! compile.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use super::elements::Element;
use super::product::{self, Operands, Size};
use crate::exec::Cx;
use crate::exec::registers::{Class, Mask, Registers};
use crate::fault::Fault;
use crate::program::{ExecFn, Outcome, Step};

/// The sum saturates.
pub(super) const SATURATE: u32 = 1 << 8;
/// `c` is f16, two in a register.
const PACKED_C: u32 = 1 << 9;
/// `d` is.
const PACKED_D: u32 = 1 << 10;
/// Bits are combined by `and`, not by `xor`.
pub(super) const AND: u32 = 1 << 11;
/// Where the size stands: `m` in 5 bits, `k` in those above.
const SIZE: u32 = 12;

/// A family of products.
pub(super) trait Kernel: 'static {
    /// Bits of an element of `a` and `b`.
    const BITS: usize;
    /// The size, where it is the same for all steps.
    const FIXED: Option<Size> = None;
    /// Computes `d`.
    ///
    /// `FAST` promises AVX2, FMA and F16C.
    fn run<const FAST: bool>(registers: &mut Registers, at: Operands<'_>, size: Size, flags: u32);
}

/// A kernel chosen for this processor, with the registers it takes.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    pub(crate) run: ExecFn,
    /// Registers of `d`, `a`, `b` and `c`.
    pub(crate) counts: [usize; 4],
    /// Their class, the same for all.
    pub(crate) class: Class,
    /// Flags for the step.
    pub(crate) flags: u32,
    /// The product alone, for any processor and for one with AVX2.
    #[cfg(test)]
    pub(super) computes: Vec<Compute>,
}

/// The product alone.
#[cfg(test)]
pub(super) type Compute = unsafe fn(&mut Registers, Operands<'_>, u32);

/// Floats with up to `K` products in a sum.
#[derive(Debug)]
pub(super) struct Floats<A, B, const K: usize>(PhantomData<(A, B)>);

/// Floats of 16 rows and exactly `K` products.
#[derive(Debug)]
pub(super) struct FixedFloats<A, B, const K: usize>(PhantomData<(A, B)>);

/// Integers of 4 and 8 bits.
#[derive(Debug)]
pub(super) struct Integers<A, B, const K: usize>(PhantomData<(A, B)>);

/// Doubles.
#[derive(Debug)]
pub(super) struct Doubles;

/// Single bits.
#[derive(Debug)]
pub(super) struct Bits;

impl<A: Element<Sum = f32>, B: Element<Sum = f32>, const K: usize> Kernel for Floats<A, B, K> {
    const BITS: usize = A::BITS;
    #[inline(always)]
    fn run<const FAST: bool>(registers: &mut Registers, at: Operands<'_>, size: Size, flags: u32) {
        product::floats::<A, B, K, FAST>(
            registers,
            at,
            size,
            [PACKED_C, PACKED_D].map(|flag| flags & flag != 0),
        );
    }
}

impl<A: Element<Sum = f32>, B: Element<Sum = f32>, const K: usize> Kernel for FixedFloats<A, B, K> {
    const BITS: usize = A::BITS;
    const FIXED: Option<Size> = Some(Size { m: 16, k: K });
    #[inline(always)]
    fn run<const FAST: bool>(registers: &mut Registers, at: Operands<'_>, size: Size, flags: u32) {
        Floats::<A, B, K>::run::<FAST>(registers, at, size, flags);
    }
}

impl<A: Element<Sum = i32>, B: Element<Sum = i32>, const K: usize> Kernel for Integers<A, B, K> {
    const BITS: usize = A::BITS;
    #[inline(always)]
    fn run<const FAST: bool>(registers: &mut Registers, at: Operands<'_>, size: Size, flags: u32) {
        product::integers::<A, B, K, FAST>(registers, at, size, flags & SATURATE != 0);
    }
}

impl Kernel for Doubles {
    const BITS: usize = 64;
    #[inline(always)]
    fn run<const FAST: bool>(registers: &mut Registers, at: Operands<'_>, size: Size, _: u32) {
        product::doubles(registers, at, size);
    }
}

impl Kernel for Bits {
    const BITS: usize = 1;
    #[inline(always)]
    fn run<const FAST: bool>(registers: &mut Registers, at: Operands<'_>, size: Size, flags: u32) {
        product::bits(registers, at, size, flags & AND != 0);
    }
}

/// Registers of `d`, `a`, `b` and `c`.
#[inline(always)]
fn counts(bits: usize, size: Size, flags: u32) -> [usize; 4] {
    let group = if bits == 64 { size.k / 4 } else { size.k * bits / 128 };
    let sums = |packed: u32| if flags & packed != 0 { size.m / 8 } else { size.m / 4 };
    [sums(PACKED_D), size.m / 8 * group, group, sums(PACKED_C)]
}

/// The form of a kernel with the code that suits this processor, for the types of `d` and `c`.
pub(super) fn form<X: Kernel>(m: usize, k: usize, [d, c]: [&str; 2]) -> Form {
    #[cfg(target_arch = "x86_64")]
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    let mut flags = ((m | k << 5) as u32) << SIZE;
    for (is, flag) in [(c == "f16", PACKED_C), (d == "f16", PACKED_D)] {
        flags |= if is { flag } else { 0 };
    }
    Form {
        #[cfg(target_arch = "x86_64")]
        run: if avx2 { fast::<X> } else { plain::<X> },
        #[cfg(not(target_arch = "x86_64"))]
        run: plain::<X>,
        counts: counts(X::BITS, Size { m, k }, flags),
        class: if X::BITS == 64 { Class::Long } else { Class::Word },
        flags,
        #[cfg(all(test, target_arch = "x86_64"))]
        computes: if avx2 { vec![compute::<X>, compute_fast::<X>] } else { vec![compute::<X>] },
        #[cfg(all(test, not(target_arch = "x86_64")))]
        computes: vec![compute::<X>],
    }
}

/// The product alone. Not inlined, so that each is compiled once and not once more for the tests.
#[inline(never)]
fn compute<X: Kernel>(registers: &mut Registers, at: Operands<'_>, flags: u32) {
    X::run::<false>(registers, at, size::<X>(flags), flags);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
#[inline(never)]
fn compute_fast<X: Kernel>(registers: &mut Registers, at: Operands<'_>, flags: u32) {
    X::run::<true>(registers, at, size::<X>(flags), flags);
}

fn plain<X: Kernel>(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let at = operands(cx, step, mask, counts(X::BITS, size::<X>(step.flags), step.flags))?;
    compute::<X>(cx.registers, at, step.flags);
    Ok(())
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn fast<X: Kernel>(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let at = operands(cx, step, mask, counts(X::BITS, size::<X>(step.flags), step.flags))?;
    compute_fast::<X>(cx.registers, at, step.flags);
    Ok(())
}

/// The size of a product.
#[inline(always)]
fn size<X: Kernel>(flags: u32) -> Size {
    let given = Size { m: (flags >> SIZE & 31) as usize, k: (flags >> SIZE >> 5) as usize };
    X::FIXED.unwrap_or(given)
}

/// The registers of a product, cut from the step's list; lowering made it from the same counts.
fn operands<'a>(
    cx: &Cx<'a>,
    step: &Step,
    mask: Mask,
    [d, a, b, _]: [usize; 4],
) -> Result<Operands<'a>, Box<Fault>> {
    super::whole_warp(cx, step, mask)?;
    let (d, rest) = cx.grid.launch.program.list(step).split_at(d);
    let (a, rest) = rest.split_at(a);
    let (b, c) = rest.split_at(b);
    Ok(Operands { d, a, b, c })
}
