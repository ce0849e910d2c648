//! Barriers, locks, grids that wait for themselves, preemption.

use super::basics::{THREAD, kernel};
use super::{Bench, words};
use crate::exec::{Progress, Until};
use crate::fault::Kind;

#[test]
fn a_barrier_separates_writing_from_reading() {
    let mut bench = kernel(
        ".shared .align 4 .b32 tile[128]; .reg .u32 %a, %r;
         mov.u32 %a, tile; mad.lo.u32 %a, %t, 4, %a; st.shared.u32 [%a], %i;
         bar.sync 0;
         sub.u32 %r, 127, %t; mov.u32 %a, tile; mad.lo.u32 %a, %r, 4, %a; ld.shared.u32 %r, [%a];
         st.global.u32 [%out], %r;",
    );
    let out = bench.fresh(256);
    bench.succeeds(2, 128);
    assert!(words(&out).into_iter().eq((0..256).map(|i| i / 128 * 128 + 127 - i % 128)));
}

#[test]
fn barriers_reduce_and_count() {
    let mut bench = kernel(
        ".reg .pred %p, %q, %all; .reg .u32 %c, %r;
         setp.lt.u32 %p, %t, 50;
         bar.red.popc.u32 %c, 1, %p;
         bar.red.or.pred %q, 1, %p;
         bar.red.and.pred %all, 1, 96, !%p;
         selp.u32 %r, 100, 0, %q; add.u32 %c, %c, %r;
         selp.u32 %r, 1000, 0, %all; add.u32 %c, %c, %r;
         st.global.u32 [%out], %c;",
    );
    let out = bench.fresh(96);
    bench.succeeds(1, 96);
    assert_eq!(words(&out), vec![150; 96]);
}

#[test]
fn producers_arrive_and_consumers_wait() {
    let mut bench = kernel(
        ".shared .align 4 .b32 tile[32]; .reg .u32 %a, %r; .reg .pred %p;
         and.b32 %r, %t, 31; mov.u32 %a, tile; mad.lo.u32 %a, %r, 4, %a;
         setp.lt.u32 %p, %t, 32;
         @%p bra PRODUCE;
         bar.sync 3, 64; ld.shared.u32 %r, [%a]; bra END;
     PRODUCE: add.u32 %r, %t, 500; st.shared.u32 [%a], %r; bar.arrive 3, 64; mov.u32 %r, 1;
     END: st.global.u32 [%out], %r;",
    );
    let out = bench.fresh(64);
    bench.succeeds(1, 64);
    assert!(words(&out).into_iter().eq((0..64).map(|i| if i < 32 { 1 } else { 500 + i - 32 })));
}

#[test]
fn a_lock_within_a_warp_is_handed_round() {
    // Every lane takes the lock in a loop that leaves only with it: lanes that spin must let the holder go on.
    let mut bench = kernel(
        ".shared .align 4 .u32 lock; .shared .align 4 .u32 sum; .reg .u32 %o, %s; .reg .pred %p;
         setp.ne.u32 %p, %t, 0;
         @%p bra READY;
         st.shared.u32 [lock], 0; st.shared.u32 [sum], 0;
     READY: bar.sync 0;
     SPIN: atom.shared.cas.b32 %o, [lock], 0, 1;
         setp.ne.u32 %p, %o, 0;
         @%p bra SPIN;
         membar.cta;
         ld.volatile.shared.u32 %s, [sum]; add.u32 %s, %s, %t; st.volatile.shared.u32 [sum], %s;
         membar.cta;
         atom.shared.exch.b32 %o, [lock], 0;
         bar.sync 0;
         ld.shared.u32 %s, [sum]; st.global.u32 [%out], %s;",
    );
    let out = bench.fresh(64);
    bench.succeeds(1, 64);
    assert_eq!(words(&out), vec![64 * 63 / 2; 64]);
}

/// Blocks that wait for all others at a counter, three times.
const GRID_BARRIER: &str =
    ".reg .u32 %k, %goal, %o; .reg .pred %p, %first; .reg .u32 %blocks; .reg .u64 %counter;
     mov.u32 %blocks, %nctaid.x; ld.param.u64 %counter, [counter];
     setp.eq.u32 %first, %t, 0; mov.u32 %k, 0; mov.u32 %goal, 0;
 ROUND: add.u32 %goal, %goal, %blocks;
     bar.sync 0;
     @!%first bra WAITED;
     membar.gl;
     atom.global.add.u32 %o, [%counter], 1;
 SPIN: ld.volatile.global.u32 %o, [%counter];
     setp.lt.u32 %p, %o, %goal;
     @%p bra SPIN;
     membar.gl;
 WAITED: bar.sync 0;
     add.u32 %k, %k, 1; setp.lt.u32 %p, %k, 3; @%p bra ROUND;
     st.global.u32 [%out], %o;";

#[test]
fn blocks_wait_for_each_other_at_a_grid_barrier() {
    for (workers, cooperative) in [(1, true), (2, true), (2, false)] {
        let mut bench =
            Bench::new(".param .u64 out, .param .u64 counter", &format!("{THREAD}\n{GRID_BARRIER}\nret;"));
        (bench.environment.workers, bench.cooperative) = (workers, cooperative);
        bench.fresh(32 * 24);
        let counter = bench.buffer(&[0]);
        bench.succeeds(24, 32);
        assert_eq!(words(&counter), [72]);
    }
}

#[test]
fn blocks_that_are_not_resident_cannot_be_waited_for() {
    // 4 multiprocessors hold 8 blocks of 1024 threads.
    let mut bench =
        Bench::new(".param .u64 out, .param .u64 counter", &format!("{THREAD}\n{GRID_BARRIER}\nret;"));
    bench.environment.limit = Some(1_000_000);
    bench.fresh(1024 * 9);
    bench.buffer(&[0]);
    bench.fails(9, 1024, Kind::TimedOut);
}

#[test]
fn a_kernel_without_end_is_given_up() {
    let mut bench = kernel("FOREVER: add.u32 %i, %i, 1; bra FOREVER;");
    bench.environment.limit = Some(100_000);
    bench.fresh(32);
    bench.fails(1, 32, Kind::TimedOut);
}

#[test]
fn threads_that_wait_for_ever_are_reported() {
    let mut bench = kernel(
        ".reg .pred %p; setp.lt.u32 %p, %t, 32; @%p bra OTHER; bar.sync 1, 64; bra END; OTHER: bar.sync 2, 64; END:",
    );
    bench.fresh(64);
    let fault = bench.fails(1, 64, Kind::Deadlock);
    assert!(fault.message.contains("barrier 1") && fault.message.contains("barrier 2"), "{fault}");
    assert!(fault.message.contains("32 of 64 threads came"), "{fault}");
}

#[test]
fn a_sync_operation_waits_for_its_mask() {
    // Lanes of one mask come from two branches.
    let mut bench = kernel(
        ".reg .pred %p; .reg .u32 %r; setp.lt.u32 %p, %t, 16; @%p bra LOW;
         bar.warp.sync 0xffffffff; mov.u32 %r, 2; bra END;
     LOW: bar.warp.sync 0xffffffff; mov.u32 %r, 1;
     END: st.global.u32 [%out], %r;",
    );
    let out = bench.fresh(32);
    bench.succeeds(1, 32);
    assert!(words(&out).into_iter().eq((0..32).map(|i| if i < 16 { 1 } else { 2 })));

    let mut bench = kernel(
        ".reg .pred %p; setp.lt.u32 %p, %t, 16; @%p bra LOW; bar.warp.sync 0xffffffff; bra END;
     LOW: bar.sync 0; END:",
    );
    bench.fresh(32);
    let fault = bench.fails(1, 32, Kind::Deadlock);
    assert!(fault.message.contains("0xffffffff"), "{fault}");
}

#[test]
fn groups_of_one_warp_synchronise_by_their_own_masks() {
    let mut bench = kernel(
        ".reg .u32 %m, %r, %h; shr.u32 %h, %t, 3; shl.b32 %h, %h, 3; mov.u32 %m, 255; shl.b32 %m, %m, %h;
         bar.warp.sync %m;
         shfl.sync.idx.b32 %r, %t, 0, 6175, %m;
         st.global.u32 [%out], %r;",
    );
    let out = bench.fresh(32);
    bench.succeeds(1, 32);
    assert!(words(&out).into_iter().eq((0..32).map(|i| i / 8 * 8)));
}

#[test]
fn a_dependent_grid_runs_up_to_its_wait() {
    let mut bench = Bench::new(
        ".param .u64 out, .param .u64 in",
        &format!(
            "{THREAD} .reg .u64 %a; .reg .u32 %v; ld.param.u64 %a, [in]; st.global.u32 [%out], 1;
             griddepcontrol.launch_dependents;
             griddepcontrol.wait;
             ld.global.u32 %v, [%a]; st.global.u32 [%out], %v; ret;"
        ),
    );
    let out = bench.fresh(96);
    let input = bench.buffer(&[5]);
    let mut grid = bench.grid(3, 32);
    assert!(!grid.release_dependents_reached());
    assert_eq!(grid.run(Until::Wait), Ok(Progress::Waiting));
    assert!(grid.release_dependents_reached());
    assert_eq!(words(&out), vec![1; 96]);
    crate::exec::raw::store32(input.host(), 77);
    assert_eq!(grid.run(Until::Budget(1000)), Ok(Progress::Waiting));
    assert_eq!(grid.run(Until::End), Ok(Progress::Finished));
    assert_eq!(words(&out), vec![77; 96]);
}

#[test]
fn a_budget_puts_a_grid_aside() {
    let mut bench = kernel(
        ".reg .u32 %k; .reg .pred %p; mov.u32 %k, 0;
     L: add.u32 %k, %k, 1; setp.lt.u32 %p, %k, 3000; @%p bra L;
         st.global.u32 [%out], %k;",
    );
    let out = bench.fresh(32 * 40);
    let mut grid = bench.grid(40, 32);
    let mut turns = 0;
    while grid.run(Until::Budget(10_000)).expect("no fault") == Progress::Running {
        turns += 1;
    }
    assert!(turns > 5, "{turns} turns");
    assert_eq!(words(&out), vec![3000; 32 * 40]);
}
