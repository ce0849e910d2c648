//! The products as steps: one type for each form of `mma`, compiled for any processor and, where it pays, for one with AVX2 and FMA.
//!
//! A type and not a closure over the shape: sizes known to the compiler are what makes the loops in `product` vectors.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use super::elements::Element;
use super::product::{self, Carrier, Operands};
use crate::exec::Cx;
use crate::exec::registers::{Class, Mask, Registers};
use crate::fault::Fault;
use crate::program::{ExecFn, Outcome, Step};

/// Flag of a step: the sum saturates.
pub(super) const SATURATE: u32 = 1 << 8;

/// One form of `mma`.
pub(super) trait Kernel: 'static {
    /// Registers of `d`, `a`, `b` and `c`.
    const COUNTS: [usize; 4];
    /// What kind of registers they are.
    const CLASS: Class;
    /// Worth the second compilation: the forms that kernels of language models spend their time in.
    const HOT: bool = false;
    /// Computes `d`.
    fn run(registers: &mut Registers, at: Operands<'_>, flags: u32);
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

/// Floats: types of `a` and `b`, carriers of `c` and `d`, rows, depth.
#[derive(Debug)]
pub(super) struct Floats<A, B, C, D, const M: usize, const K: usize>(PhantomData<(A, B, C, D)>);

/// Integers of 4 and 8 bits.
#[derive(Debug)]
pub(super) struct Integers<A, B, const M: usize, const K: usize>(PhantomData<(A, B)>);

/// Doubles.
#[derive(Debug)]
pub(super) struct Doubles<const M: usize, const K: usize>;

/// Single bits.
#[derive(Debug)]
pub(super) struct Bits<const M: usize, const K: usize, const AND: bool>;

impl<A, B, C, D, const M: usize, const K: usize> Kernel for Floats<A, B, C, D, M, K>
where
    A: Element<Sum = f32>,
    B: Element<Sum = f32>,
    C: Carrier<f32> + 'static,
    D: Carrier<f32> + 'static,
{
    const COUNTS: [usize; 4] =
        [M / 8 * D::REGISTERS, M / 8 * K * A::BITS / 128, K * B::BITS / 128, M / 8 * C::REGISTERS];
    const CLASS: Class = Class::Word;
    const HOT: bool = M == 16 && K >= 8;
    #[inline(always)]
    fn run(registers: &mut Registers, at: Operands<'_>, _: u32) {
        product::floats::<A, B, C, D, M, K>(registers, at);
    }
}

impl<A, B, const M: usize, const K: usize> Kernel for Integers<A, B, M, K>
where
    A: Element<Sum = i32>,
    B: Element<Sum = i32>,
{
    const COUNTS: [usize; 4] = [M / 4, M / 8 * K * A::BITS / 128, K * B::BITS / 128, M / 4];
    const CLASS: Class = Class::Word;
    const HOT: bool = M == 16 && A::BITS == 8;
    #[inline(always)]
    fn run(registers: &mut Registers, at: Operands<'_>, flags: u32) {
        product::integers::<A, B, M, K>(registers, at, flags & SATURATE != 0);
    }
}

impl<const M: usize, const K: usize> Kernel for Doubles<M, K> {
    const COUNTS: [usize; 4] = [M / 4, M / 8 * K / 4, K / 4, M / 4];
    const CLASS: Class = Class::Long;
    #[inline(always)]
    fn run(registers: &mut Registers, at: Operands<'_>, _: u32) {
        product::doubles::<M, K>(registers, at);
    }
}

impl<const M: usize, const K: usize, const AND: bool> Kernel for Bits<M, K, AND> {
    const COUNTS: [usize; 4] = [M / 4, M / 8 * K / 128, K / 128, M / 4];
    const CLASS: Class = Class::Word;
    #[inline(always)]
    fn run(registers: &mut Registers, at: Operands<'_>, _: u32) {
        product::bits::<M, AND>(registers, at);
    }
}

/// The form of a kernel, with the code that suits this processor.
pub(super) fn form<X: Kernel>() -> Form {
    let form = Form {
        run: plain::<X>,
        counts: X::COUNTS,
        class: X::CLASS,
        flags: 0,
        #[cfg(test)]
        computes: vec![compute::<X>],
    };
    #[cfg(target_arch = "x86_64")]
    if X::HOT && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        return Form {
            run: fast::<X>,
            #[cfg(test)]
            computes: vec![compute::<X>, compute_fast::<X>],
            ..form
        };
    }
    form
}

/// The product alone. Not inlined, so that each is compiled once and not once more for the tests.
#[inline(never)]
fn compute<X: Kernel>(registers: &mut Registers, at: Operands<'_>, flags: u32) {
    X::run(registers, at, flags);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
#[inline(never)]
fn compute_fast<X: Kernel>(registers: &mut Registers, at: Operands<'_>, flags: u32) {
    X::run(registers, at, flags);
}

fn plain<X: Kernel>(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let at = operands(cx, step, mask, X::COUNTS)?;
    compute::<X>(cx.registers, at, step.flags);
    Ok(())
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fast<X: Kernel>(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let at = operands(cx, step, mask, X::COUNTS)?;
    compute_fast::<X>(cx.registers, at, step.flags);
    Ok(())
}

/// The registers of a product, cut from the step's list; lowering made it from the same counts.
fn operands<'a>(
    cx: &Cx<'a>,
    step: &Step,
    mask: Mask,
    counts: [usize; 4],
) -> Result<Operands<'a>, Box<Fault>> {
    super::whole_warp(cx, step, mask)?;
    let grid = cx.grid;
    let (d, rest) = grid.launch.program.list(step).split_at(counts[0]);
    let (a, rest) = rest.split_at(counts[1]);
    let (b, c) = rest.split_at(counts[2]);
    Ok(Operands { d, a, b, c })
}
