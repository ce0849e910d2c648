//! What the checker finds, each mistake with its correct twin.

use super::Bench;
use super::basics::{THREAD, kernel};
use crate::fault::Kind;

const TILE: &str = ".shared .align 4 .b32 tile[64]; .reg .u32 %a, %c, %r; .reg .pred %p;
     mov.u32 %a, tile; mad.lo.u32 %a, %t, 4, %a; xor.b32 %r, %t, 33; mov.u32 %c, tile; mad.lo.u32 %c, %r, 4, %c;";

fn tile(body: &str) -> Bench {
    let mut bench = kernel(&format!("{TILE}\n{body}\nst.global.u32 [%out], %r;"));
    bench.fresh(64);
    bench
}

#[test]
fn a_missing_barrier_is_a_race() {
    tile("st.shared.u32 [%a], %t; bar.sync 0; ld.shared.u32 %r, [%c];").succeeds(1, 64);
    // With the barrier before it only for initialisation: reads find old values, not unwritten ones.
    let fault = tile("st.shared.u32 [%a], 0; bar.sync 0; st.shared.u32 [%a], %t; ld.shared.u32 %r, [%c];")
        .fails(1, 64, Kind::SharedRace);
    assert!(fault.other.is_some(), "{fault}");
}

#[test]
fn writing_what_others_still_read_is_a_race() {
    let read = "st.shared.u32 [%a], %t; bar.sync 0; ld.shared.u32 %r, [%c];";
    tile(&format!("{read} bar.sync 0; st.shared.u32 [%a], 1;")).succeeds(1, 64);
    let fault = tile(&format!("{read} st.shared.u32 [%a], 1;")).fails(1, 64, Kind::SharedRace);
    assert!(fault.message.contains("after"), "{fault}");
}

#[test]
fn within_a_warp_too() {
    let exchange = |between: &str| {
        tile(&format!(
            "xor.b32 %r, %t, 1; mov.u32 %c, tile; mad.lo.u32 %c, %r, 4, %c;
             st.shared.u32 [%a], %t; {between} ld.shared.u32 %r, [%c];"
        ))
    };
    exchange("bar.warp.sync 0xffffffff;").succeeds(1, 64);
    exchange("").fails(1, 64, Kind::SharedRace);
}

#[test]
fn two_writers_race_unless_they_write_the_same() {
    tile("st.shared.u32 [tile], 7; bar.sync 0; ld.shared.u32 %r, [tile];").succeeds(1, 64);
    tile("st.shared.u32 [tile], %t; bar.sync 0; ld.shared.u32 %r, [tile];").fails(1, 64, Kind::SharedRace);
}

#[test]
fn neighbouring_bytes_are_no_race() {
    tile(
        "mov.u32 %a, tile; add.u32 %a, %a, %t; st.shared.u8 [%a], %t; bar.sync 0;
         mov.u32 %a, tile; xor.b32 %r, %t, 63; add.u32 %a, %a, %r; ld.shared.u8 %r, [%a];",
    )
    .succeeds(1, 64);
}

#[test]
fn atomics_do_not_race_with_each_other() {
    let atomics = |between: &str| {
        tile(&format!(
            "setp.eq.u32 %p, %t, 0; @%p st.shared.u32 [tile], 0; bar.sync 0;
             atom.shared.add.u32 %r, [tile], 1; {between} ld.shared.u32 %r, [tile];"
        ))
    };
    atomics("bar.sync 0;").succeeds(1, 64);
    atomics("").fails(1, 64, Kind::SharedRace);
}

#[test]
fn shared_memory_nothing_wrote() {
    tile("ld.shared.u32 %r, [%c];").fails(1, 64, Kind::Unwritten);
    // The block before wrote it; this one did not.
    tile("setp.eq.u32 %p, %b, 0; @%p st.shared.u32 [%a], 1; bar.sync 0; ld.shared.u32 %r, [%c];").fails(
        2,
        32,
        Kind::Unwritten,
    );
}

#[test]
fn local_memory_nothing_wrote() {
    // Neither zero nor what the block before left.
    let mut bench = kernel(
        ".local .align 4 .b8 l[8]; .reg .u32 %r; ld.local.u32 %r, [l+4]; st.local.u32 [l+4], 7; st.global.u32 [%out], %r;",
    );
    let out = bench.fresh(320);
    bench.succeeds(10, 32);
    assert_eq!(super::words(&out), vec![!0; 320]);
}

#[test]
fn device_memory_nothing_wrote() {
    let mut bench = kernel(".reg .u32 %r; ld.global.u32 %r, [%out]; st.global.u32 [%out], %r;");
    bench.fresh(32);
    let fault = bench.fails(1, 32, Kind::Unwritten);
    assert!(fault.message.contains("128-byte allocation #1"), "{fault}");
    let mut bench = kernel(".reg .u32 %r; st.global.u32 [%out], %i; ld.global.u32 %r, [%out];");
    bench.fresh(32);
    bench.succeeds(1, 32);
    // Unchecked, nobody notices.
    let mut bench = kernel(".reg .u32 %r; ld.global.u32 %r, [%out];");
    bench.environment.checks.memory = false;
    bench.fresh(32);
    bench.succeeds(1, 32);
}

#[test]
fn addresses_outside() {
    let mut bench = kernel("st.global.u32 [%out], %i;");
    bench.fresh(40);
    let fault = bench.fails(2, 32, Kind::OutOfBounds);
    assert!(fault.message.contains("0 bytes past the end of the 160-byte allocation #1"), "{fault}");
    assert_eq!(fault.site.map(|s| (s.block, s.thread)), Some(([1, 0, 0], 8)));

    let mut bench = kernel("st.global.u32 [%out], %i;");
    let out = bench.fresh(64);
    bench.memory.free(out.start).expect("it lives");
    let fault = bench.fails(2, 32, Kind::UseAfterFree);
    assert!(fault.message.contains("freed 256-byte allocation #1"), "{fault}");

    let mut bench = kernel(".reg .u64 %z; mov.u64 %z, 0; st.global.u32 [%z], %i;");
    bench.fresh(1);
    assert!(bench.fails(1, 1, Kind::OutOfBounds).message.contains("null"));

    tile("st.shared.u32 [%a+256], 1;").fails(1, 64, Kind::OutOfBounds);
    tile("st.shared.u32 [%a+2], 1;").fails(1, 64, Kind::Misaligned);
    tile("st.global.u64 [%out+4], 1;").fails(1, 64, Kind::Misaligned);
    tile(".local .align 4 .b8 l[8]; ld.local.u32 %r, [l+8];").fails(1, 64, Kind::OutOfBounds);
}

#[test]
fn dynamic_shared_memory_has_the_size_of_the_launch() {
    let text = format!(
        ".extern .shared .align 16 .b8 pool[]; .visible .entry k(.param .u64 out) {{ {THREAD} {TILE}
         mov.u32 %a, pool; mad.lo.u32 %a, %t, 4, %a; st.shared.u32 [%a], %t; ld.shared.u32 %r, [%a];
         mov.u32 %c, %dynamic_smem_size; add.u32 %r, %r, %c; st.global.u32 [%out], %r; ret; }}"
    );
    let mut bench = Bench::module(&text);
    let out = bench.fresh(64);
    bench.dynamic = 256;
    bench.succeeds(1, 64);
    assert!(super::words(&out).into_iter().eq((0..64).map(|i| i + 256)));
    bench.dynamic = 252;
    bench.fails(1, 64, Kind::OutOfBounds);
}

#[test]
fn barriers_at_different_places() {
    let bench = |checked: bool| {
        let mut bench = kernel(
            ".reg .pred %p; setp.lt.u32 %p, %t, 32; @%p bra LOW; bar.sync 0; bra END; LOW: bar.sync 0; END:",
        );
        bench.environment.checks.memory = checked;
        bench.fresh(64);
        bench
    };
    bench(false).succeeds(1, 64);
    bench(true).fails(1, 64, Kind::DivergentBarrier);
}

#[test]
fn masks_that_name_the_wrong_lanes() {
    let mut bench = kernel(".reg .pred %p; setp.lt.u32 %p, %t, 8; @%p exit; bar.warp.sync 0xffffffff;");
    bench.fresh(1);
    bench.fails(1, 32, Kind::WrongMask);
    let mut bench = kernel(".reg .pred %p; setp.lt.u32 %p, %t, 8; @%p exit; bar.warp.sync 0xffffff00;");
    bench.fresh(1);
    bench.succeeds(1, 32);
    let mut bench = kernel("bar.warp.sync 0xffff;");
    bench.fresh(1);
    bench.fails(1, 32, Kind::WrongMask);
}

#[test]
fn the_fault_that_comes_first_is_the_one_reported() {
    for workers in [1, 2, 3] {
        let mut bench = kernel(".reg .pred %p; setp.gt.u32 %p, %b, 40; @%p trap; st.global.u32 [%out], %i;");
        (bench.environment.workers, bench.environment.seed) = (workers, 0);
        bench.fresh(3200);
        let fault = bench.fails(100, 32, Kind::Trap);
        assert_eq!(fault.site.map(|s| s.block), Some([41, 0, 0]));
    }
}
