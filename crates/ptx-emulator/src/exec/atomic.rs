//! Atomics: `atom` and `red`.
//!
//! Lanes go one after the other, in order. Global memory is changed by a loop of compare-exchange whatever the operation: other blocks run on other
//! cores. Shared memory has one worker at a time, and needs none.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::SeqCst};

use half::{bf16, f16};

use super::access::{self, space};
use super::registers::{Mask, lanes};
use super::{Cx, Target};
use crate::check::Access;
use crate::fault::{Fault, Kind};
use crate::program::{ExecFn, NONE, Outcome, Step};

/// One operation on one type.
trait Operation {
    /// Bytes in memory.
    const BYTES: usize;
    /// What memory holds next; `c` is only for `cas`.
    fn apply(old: u64, b: u64, c: u64) -> u64;
    /// The same of global memory, for the one operation that differs there.
    #[inline(always)]
    fn apply_global(old: u64, b: u64, c: u64) -> u64 {
        Self::apply(old, b, c)
    }
}

/// `add.f32`. In global memory, and only there, subnormal numbers are zero: the operands and the sum.
struct AddSingle;
impl Operation for AddSingle {
    const BYTES: usize = 4;
    #[inline(always)]
    fn apply(old: u64, b: u64, _c: u64) -> u64 {
        u64::from((f32::from_bits(old as u32) + f32::from_bits(b as u32)).to_bits())
    }
    #[inline(always)]
    fn apply_global(old: u64, b: u64, c: u64) -> u64 {
        flush(Self::apply(flush(old), flush(b), c))
    }
}

fn flush(bits: u64) -> u64 {
    if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits }
}

macro_rules! bits {
    (f64, $x:expr) => {
        f64::from_bits($x)
    };
    ($type:ty, $x:expr) => {
        $x as $type
    };
}
macro_rules! back {
    (f64, $x:expr) => {
        f64::to_bits($x)
    };
    ($type:ty, $x:expr) => {
        $x as u64
    };
}
/// The step function of an operation, given as a closure on the type's values.
macro_rules! op {
    ($type:tt, |$old:ident, $b:ident, $c:ident| $new:expr) => {{
        struct This;
        impl Operation for This {
            const BYTES: usize = size_of::<$type>();
            #[inline(always)]
            fn apply(old: u64, b: u64, c: u64) -> u64 {
                let ($old, $b, $c) = (bits!($type, old), bits!($type, b), bits!($type, c));
                let _ = $c;
                let new: $type = $new;
                back!($type, new) & (u64::MAX >> (64 - 8 * Self::BYTES))
            }
        }
        step_of::<This> as ExecFn
    }};
}

fn half2(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}
fn f16_add(a: u16, b: u16) -> u16 {
    f16::from_f32(f16::from_bits(a).to_f32() + f16::from_bits(b).to_f32()).to_bits()
}
fn bf16_add(a: u16, b: u16) -> u16 {
    bf16::from_f32(bf16::from_bits(a).to_f32() + bf16::from_bits(b).to_f32()).to_bits()
}
fn f16_min(a: u16, b: u16) -> u16 {
    f16::from_f32(f16::from_bits(a).to_f32().min(f16::from_bits(b).to_f32())).to_bits()
}
fn f16_max(a: u16, b: u16) -> u16 {
    f16::from_f32(f16::from_bits(a).to_f32().max(f16::from_bits(b).to_f32())).to_bits()
}
fn bf16_min(a: u16, b: u16) -> u16 {
    bf16::from_f32(bf16::from_bits(a).to_f32().min(bf16::from_bits(b).to_f32())).to_bits()
}
fn bf16_max(a: u16, b: u16) -> u16 {
    bf16::from_f32(bf16::from_bits(a).to_f32().max(bf16::from_bits(b).to_f32())).to_bits()
}

/// The function for an operation (`add`) on a type (`f16x2`); `None` if there is no such one.
pub(crate) fn function(operation: &str, ty: &str) -> Option<ExecFn> {
    Some(match (operation, ty) {
        ("add", "u32" | "s32") => op!(u32, |old, b, _c| old.wrapping_add(b)),
        ("add", "u64" | "s64") => op!(u64, |old, b, _c| old.wrapping_add(b)),
        ("add", "f32") => step_of::<AddSingle>,
        ("add", "f64") => op!(f64, |old, b, _c| old + b),
        ("add", "f16") => op!(u16, |old, b, _c| f16_add(old, b)),
        ("add", "bf16") => op!(u16, |old, b, _c| bf16_add(old, b)),
        ("add", "f16x2") => op!(u32, |old, b, _c| half2(old, b, f16_add)),
        ("add", "bf16x2") => op!(u32, |old, b, _c| half2(old, b, bf16_add)),
        ("min", "f16") => op!(u16, |old, b, _c| f16_min(old, b)),
        ("max", "f16") => op!(u16, |old, b, _c| f16_max(old, b)),
        ("min", "bf16") => op!(u16, |old, b, _c| bf16_min(old, b)),
        ("max", "bf16") => op!(u16, |old, b, _c| bf16_max(old, b)),
        ("min", "f16x2") => op!(u32, |old, b, _c| half2(old, b, f16_min)),
        ("max", "f16x2") => op!(u32, |old, b, _c| half2(old, b, f16_max)),
        ("min", "bf16x2") => op!(u32, |old, b, _c| half2(old, b, bf16_min)),
        ("max", "bf16x2") => op!(u32, |old, b, _c| half2(old, b, bf16_max)),
        ("min", "s32") => op!(i32, |old, b, _c| old.min(b)),
        ("min", "u32") => op!(u32, |old, b, _c| old.min(b)),
        ("min", "s64") => op!(i64, |old, b, _c| old.min(b)),
        ("min", "u64") => op!(u64, |old, b, _c| old.min(b)),
        ("max", "s32") => op!(i32, |old, b, _c| old.max(b)),
        ("max", "u32") => op!(u32, |old, b, _c| old.max(b)),
        ("max", "s64") => op!(i64, |old, b, _c| old.max(b)),
        ("max", "u64") => op!(u64, |old, b, _c| old.max(b)),
        ("inc", "u32") => op!(u32, |old, b, _c| if old >= b { 0 } else { old + 1 }),
        ("dec", "u32") => op!(u32, |old, b, _c| if old == 0 || old > b { b } else { old - 1 }),
        ("and", "b32") => op!(u32, |old, b, _c| old & b),
        ("and", "b64") => op!(u64, |old, b, _c| old & b),
        ("or", "b32") => op!(u32, |old, b, _c| old | b),
        ("or", "b64") => op!(u64, |old, b, _c| old | b),
        ("xor", "b32") => op!(u32, |old, b, _c| old ^ b),
        ("xor", "b64") => op!(u64, |old, b, _c| old ^ b),
        ("exch", "b32" | "u32" | "s32" | "f32") => op!(u32, |_old, b, _c| b),
        ("exch", "b64" | "u64" | "s64" | "f64") => op!(u64, |_old, b, _c| b),
        ("cas", "b16") => op!(u16, |old, b, c| if old == b { c } else { old }),
        ("cas", "b32" | "u32" | "s32") => op!(u32, |old, b, c| if old == b { c } else { old }),
        ("cas", "b64" | "u64" | "s64") => op!(u64, |old, b, c| if old == b { c } else { old }),
        _ => return None,
    })
}

/// Runs the operation for all lanes; elements of a vector one after the other, each atomic by itself.
fn step_of<O: Operation>(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let addresses = access::row(cx, step);
    let count = step.list.1.max(2) as usize / 2;
    let mut changed = false;
    let mut seen = 0u64;
    for lane in lanes(mask) {
        let address = addresses[lane];
        let target = reach(cx, step, lane, address, O::BYTES * count)?;
        cx.synchronise(address, step);
        for k in 0..count {
            let (dst, from) = if step.list.1 == 0 {
                (step.dst, step.src[1])
            } else {
                let slots = &cx.grid.launch.program.slots;
                let at = step.list.0 as usize + k;
                (slots.get(at).copied().unwrap_or(NONE), slots.get(at + count).copied().unwrap_or(NONE))
            };
            let value = |slot| match (slot, O::BYTES) {
                (NONE, _) => 0,
                (slot, 8) => cx.registers.long_lane(slot, lane),
                (slot, _) => {
                    u64::from(cx.registers.word_lane(slot, lane)) & (u64::MAX >> (64 - 8 * O::BYTES))
                }
            };
            let (b, c) = (value(from), value(step.src[2]));
            let (old, new) = match target {
                Target::Global(host) => global::<O>(host.wrapping_add(k * O::BYTES), b, c),
                Target::Shared(at) => shared::<O>(&mut cx.block.shared, at + k * O::BYTES, b, c),
                Target::Local(_) | Target::Param(_) => (0, 0),
            };
            changed |= old != new;
            seen = seen.rotate_left(7) ^ old;
            match (dst, O::BYTES) {
                (NONE, _) => {}
                (dst, 8) => cx.registers.set_long_lane(dst, lane, old),
                (dst, _) => cx.registers.set_word_lane(dst, lane, old as u32),
            }
        }
        cx.told(step.place, lane, target, address, strong(step));
    }
    if !changed {
        cx.polled(step.place, seen);
    }
    Ok(())
}

fn strong(step: &Step) -> Access {
    let (order, scope) = access::ordering(step);
    Access::Strong { reads: true, writes: true, order, scope }
}

/// Finds what an atomic works on.
fn reach(
    cx: &mut Cx<'_>,
    step: &Step,
    lane: usize,
    address: u64,
    bytes: usize,
) -> Result<Target, Box<Fault>> {
    let space = if step.flags & SHARED != 0 { space::SHARED } else { space::GENERIC };
    let target = cx.target(step, lane, space, address, bytes, strong(step))?;
    if matches!(target, Target::Local(_) | Target::Param(_)) {
        let what = format!("atomic operation at {address:#x}, which is neither global nor shared memory");
        return Err(cx.fault(step.place, lane, Kind::OutOfBounds, what));
    }
    Ok(target)
}

/// The address is one of shared memory.
pub(crate) const SHARED: u32 = 1 << 20;

fn global<O: Operation>(host: *mut u8, b: u64, c: u64) -> (u64, u64) {
    macro_rules! exchange {
        ($atomic:ty, $value:ty) => {{
            // SAFETY: `Cx::target` checked that these bytes lie in an allocation that the window keeps alive, and are aligned.
            let place = unsafe { <$atomic>::from_ptr(host.cast()) };
            let mut old = place.load(SeqCst);
            loop {
                let new = O::apply_global(u64::from(old), b, c) as $value;
                match place.compare_exchange_weak(old, new, SeqCst, SeqCst) {
                    Ok(_) => return (u64::from(old), u64::from(new)),
                    Err(now) => old = now,
                }
            }
        }};
    }
    match O::BYTES {
        2 => exchange!(AtomicU16, u16),
        4 => exchange!(AtomicU32, u32),
        _ => exchange!(AtomicU64, u64),
    }
}

fn shared<O: Operation>(memory: &mut [u8], at: usize, b: u64, c: u64) -> (u64, u64) {
    let Some(bytes) = memory.get_mut(at..at + O::BYTES) else { return (0, 0) };
    let mut old = [0; 8];
    old[..O::BYTES].copy_from_slice(bytes);
    let old = u64::from_le_bytes(old);
    let new = O::apply(old, b, c);
    bytes.copy_from_slice(&new.to_le_bytes()[..O::BYTES]);
    (old, new)
}

/// `cas` and `exch` of 128 bits: the list has the rows of the result, of `b` and, for `cas`, of `c`, low half first. One lock for all of them: there
/// is no such operation on every host, and hardly a kernel that uses it.
pub(crate) fn wide(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let addresses = access::row(cx, step);
    let (start, len) = (step.list.0 as usize, step.list.1 as usize);
    let program = std::sync::Arc::clone(&cx.grid.launch.program);
    let rows = program.slots.get(start..start + len).unwrap_or_default();
    let &[low, high, b_low, b_high, ref c @ ..] = rows else { return Ok(()) };
    let mut changed = false;
    for lane in lanes(mask) {
        let target = reach(cx, step, lane, addresses[lane], 16)?;
        cx.synchronise(addresses[lane], step);
        let guard = LOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let old = [cx.element(target, lane, 0, 8), cx.element(target, lane, 8, 8)];
        let value = |low, high| [cx.registers.long_lane(low, lane), cx.registers.long_lane(high, lane)];
        let b = value(b_low, b_high);
        let new = match *c {
            [c_low, c_high] if old == b => value(c_low, c_high),
            [_, _] => old,
            _ => b,
        };
        for (half, new) in new.into_iter().enumerate() {
            match target {
                Target::Global(host) => super::raw::store64(host.wrapping_add(8 * half), new),
                Target::Shared(at) => {
                    if let Some(to) = cx.block.shared.get_mut(at + 8 * half..at + 8 * half + 8) {
                        to.copy_from_slice(&new.to_le_bytes());
                    }
                }
                Target::Local(_) | Target::Param(_) => {}
            }
        }
        drop(guard);
        changed |= new != old;
        cx.told(step.place, lane, target, addresses[lane], strong(step));
        for (row, old) in [low, high].into_iter().zip(old) {
            if row != NONE {
                cx.registers.set_long_lane(row, lane, old);
            }
        }
    }
    if !changed {
        cx.polled(step.place, 0);
    }
    Ok(())
}
