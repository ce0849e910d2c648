//! The products as steps: one type for each form of `mma`, compiled once for any processor and once for one with AVX2 and FMA.
//!
//! A type and not a closure over the shape: sizes known to the compiler are what makes the loops in `product` vectors.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use super::elements::Element;
use super::product::{self, Carrier, Operands};
use crate::exec::Cx;
use crate::exec::registers::{Class, Mask, Registers};
use crate::program::{ExecFn, Outcome, Step};

/// Flag of a step: the sum saturates.
pub(super) const SATURATE: u32 = 1 << 8;

/// One form of `mma`.
pub(super) trait Kernel: 'static {
    /// Registers of `d`, `a`, `b` and `c`.
    const COUNTS: [usize; 4];
    /// What kind of registers they are.
    const CLASS: Class;
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
    #[cfg(target_arch = "x86_64")]
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    Form {
        #[cfg(target_arch = "x86_64")]
        run: if avx2 { fast::<X> } else { plain::<X> },
        #[cfg(not(target_arch = "x86_64"))]
        run: plain::<X>,
        counts: X::COUNTS,
        class: X::CLASS,
        flags: 0,
        #[cfg(all(test, target_arch = "x86_64"))]
        computes: if avx2 { vec![X::run, compute_fast::<X>] } else { vec![X::run] },
        #[cfg(all(test, not(target_arch = "x86_64")))]
        computes: vec![X::run],
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fast<X: Kernel>(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    run::<X>(cx, step, mask)
}

fn plain<X: Kernel>(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    run::<X>(cx, step, mask)
}

#[cfg(all(test, target_arch = "x86_64"))]
#[target_feature(enable = "avx2,fma")]
fn compute_fast<X: Kernel>(registers: &mut Registers, at: Operands<'_>, flags: u32) {
    X::run(registers, at, flags);
}

#[inline(always)]
fn run<X: Kernel>(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    super::whole_warp(cx, step, mask)?;
    let grid = cx.grid;
    let [d, a, b, _] = X::COUNTS;
    // Lowering made the list from the same counts.
    let (d, rest) = grid.launch.program.list(step).split_at(d);
    let (a, rest) = rest.split_at(a);
    let (b, c) = rest.split_at(b);
    X::run(cx.registers, Operands { d, a, b, c }, step.flags);
    Ok(())
}
