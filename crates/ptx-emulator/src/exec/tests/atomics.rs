//! Atomic operations, on all kinds of memory, by all threads at once.

use super::basics::{THREAD, kernel};
use super::{Bench, words};
use crate::fault::Kind;

fn totals(operation: &str, start: u32) -> u32 {
    let mut bench = Bench::new(
        ".param .u64 out, .param .u64 sum",
        &format!(
            "{THREAD} .reg .u64 %s; .reg .f32 %f; ld.param.u64 %s, [sum]; cvt.rn.f32.u32 %f, %t; {operation} ret;"
        ),
    );
    bench.fresh(1);
    let sum = bench.buffer(&[start, 0]);
    bench.succeeds(20, 64);
    words(&sum)[0]
}

#[test]
fn all_threads_count() {
    assert_eq!(totals("red.global.add.u32 [%s], %t;", 5), 5 + 20 * (63 * 64 / 2));
    assert_eq!(totals("atom.global.add.u32 %n, [%s], 1;", 0), 1280);
    assert_eq!(totals("red.relaxed.gpu.global.max.s32 [%s], %t;", 7), 63);
    assert_eq!(totals("red.global.min.u32 [%s], %t;", 7), 0);
    assert_eq!(totals("red.global.or.b32 [%s], %t;", 0), 63);
    assert_eq!(totals("red.global.and.b32 [%s], %t;", !0), 0);
    assert_eq!(totals("red.global.xor.b32 [%s], %i;", 9), 9 ^ (0..1280).fold(0, |a, b| a ^ b));
    assert_eq!(totals("atom.global.inc.u32 %n, [%s], 99;", 0), 1280 % 100);
    assert_eq!(totals("atom.global.dec.u32 %n, [%s], 99;", 0), 99 - 1279 % 100);
    assert_eq!(totals("red.global.add.f32 [%s], %f;", 0), (20.0f32 * 63.0 * 32.0).to_bits());
    assert_eq!(totals("red.global.add.noftz.f16x2 [%s], 0x3c004000;", 0), 0x6500_6900);
    assert_eq!(totals("red.add.release.gpu.u32 [%s], 2;", 0), 2560);
    assert_eq!(totals("red.global.add.u64 [%s], 4294967296;", 3), 3);
}

#[test]
fn the_old_value_comes_back_and_is_given_once() {
    let mut bench = Bench::new(
        ".param .u64 out, .param .u64 next",
        &format!(
            "{THREAD} .reg .u64 %s, %o; .reg .u32 %r; ld.param.u64 %s, [next];
             atom.global.add.u32 %r, [%s], 1; mad.wide.u32 %o, %r, 4, %base; st.global.u32 [%o], 1; ret;"
        ),
    );
    let out = bench.fresh(640);
    bench.buffer(&[0]);
    bench.succeeds(10, 64);
    assert_eq!(words(&out), vec![1; 640]);
}

#[test]
fn compare_and_swap_of_every_width() {
    for (kind, registers, value) in [("b16", ".b16", 2), ("b32", ".b32", 4), ("b64", ".b64", 8)] {
        let mut bench = Bench::new(
            ".param .u64 out, .param .u64 cell",
            &format!(
                "{THREAD} .reg .u64 %s; .reg {registers} %o, %w, %x; .reg .pred %p; ld.param.u64 %s, [cell];
                 ld.volatile.global.{kind} %o, [%s];
             AGAIN: mov.{kind} %w, %o; add.{} %x, %w, 1; atom.global.cas.{kind} %o, [%s], %w, %x;
                 setp.ne.{kind} %p, %o, %w; @%p bra AGAIN; ret;",
                kind.replace('b', "u")
            ),
        );
        bench.fresh(1);
        let cell = bench.buffer(&[0, 0]);
        bench.succeeds(4, 64);
        assert_eq!(words(&cell), [256, 0], "{kind} of {value} bytes");
    }
}

#[test]
fn swaps_of_128_bits() {
    let mut bench = Bench::new(
        ".param .u64 out, .param .u64 cell",
        &format!(
            "{THREAD} .reg .u64 %s, %lo, %hi; .reg .b128 %a, %b, %o; .reg .pred %p; ld.param.u64 %s, [cell];
             mov.u64 %lo, 1; mov.u64 %hi, 2; mov.b128 %a, {{%lo, %hi}}; mov.u64 %lo, 3; mov.b128 %b, {{%lo, %hi}};
             atom.global.cas.b128 %o, [%s], %a, %b; mov.b128 {{%lo, %hi}}, %o; cvt.u32.u64 %n, %lo;
             st.global.u32 [%out], %n; ret;"
        ),
    );
    let out = bench.fresh(32);
    let cell = bench.buffer(&[1, 0, 2, 0, 0, 0]);
    bench.succeeds(1, 32);
    assert_eq!(words(&cell)[..4], [3, 0, 2, 0]);
    assert!(words(&out).into_iter().eq((0..32).map(|i| if i == 0 { 1 } else { 3 })));
}

#[test]
fn vectors_are_reduced_by_element() {
    let mut bench = Bench::new(
        ".param .u64 out, .param .u64 sum",
        &format!(
            "{THREAD} .reg .u64 %s; .reg .f32 %f; ld.param.u64 %s, [sum]; mov.f32 %f, 0f3F800000;
             red.global.v2.f32.add [%s], {{%f, 0f40000000}}; ret;"
        ),
    );
    bench.fresh(1);
    let sum = bench.buffer(&[0, 0]);
    bench.succeeds(2, 32);
    assert_eq!(words(&sum), [64f32.to_bits(), 128f32.to_bits()]);
}

#[test]
fn subnormal_sums_are_zero_in_global_memory_alone() {
    // 2⁻¹³³ plus nothing, nothing plus that, both below zero, 1.5 · 2⁻¹²⁶ less 2⁻¹²⁶, and two at once.
    let mut bench = Bench::new(
        ".param .u64 out, .param .u64 cells",
        &format!(
            "{THREAD} .shared .align 4 .u32 cell; .reg .u64 %s, %g; .reg .f32 %f; .reg .u32 %r; ld.param.u64 %s, [cells];
             atom.global.add.f32 %f, [%s], 0f00000000; mov.b32 %r, %f; st.global.u32 [%out], %r;
             red.add.f32 [%s+4], 0f00010000; red.global.add.f32 [%s+8], 0f80010000; red.global.add.f32 [%s+12], 0f80800000;
             red.global.v2.f32.add [%s+16], {{0f00000000, 0f00010000}};
             st.shared.u32 [cell], 0x10000; red.shared.add.f32 [cell], 0f00000000;
             mov.u64 %g, cell; cvta.shared.u64 %g, %g; red.add.f32 [%g], 0f00010000;
             ld.shared.u32 %r, [cell]; st.global.u32 [%out+4], %r; ret;"
        ),
    );
    let out = bench.fresh(2);
    let cells = bench.buffer(&[0x10000, 0, 0x8001_0000, 0x00c0_0000, 0x10000, 0x10000]);
    bench.succeeds(1, 1);
    assert_eq!(words(&cells), [0, 0, 0x8000_0000, 0, 0, 0]);
    assert_eq!(words(&out), [0x10000, 0x20000], "what was there, and shared memory");
}

#[test]
fn shared_and_generic_addresses() {
    let mut bench = kernel(
        ".shared .align 4 .u32 sum; .reg .u64 %s; .reg .u32 %r; .reg .pred %p;
         setp.eq.u32 %p, %t, 0; @%p st.shared.u32 [sum], 0; bar.sync 0;
         mov.u64 %s, sum; cvta.shared.u64 %s, %s; atom.add.u32 %r, [%s], 1; atom.shared.add.u32 %r, [sum], 1;
         bar.sync 0; ld.shared.u32 %r, [sum]; st.global.u32 [%out], %r;",
    );
    let out = bench.fresh(64);
    bench.succeeds(1, 64);
    assert_eq!(words(&out), vec![128; 64]);
}

#[test]
fn atomics_have_bounds_too() {
    let mut bench = kernel(".reg .u32 %r; atom.global.add.u32 %r, [%base+4096], 1;");
    bench.fresh(32);
    bench.fails(1, 32, Kind::OutOfBounds);
    let mut bench = kernel(".reg .u32 %r; atom.global.add.u32 %r, [%base+2], 1;");
    bench.fresh(32);
    bench.fails(1, 32, Kind::Misaligned);
}
