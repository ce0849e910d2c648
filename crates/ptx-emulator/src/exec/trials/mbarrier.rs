//! Mbarriers, the copies tied to them, and what goes wrong with them.

use super::{Trial, noise, store_word};
use crate::fault::Kind;

/// The mbarrier stands at `shared`, data from `shared + 128` on (`%r90` is this thread's word of it). Thread 0 makes it for `count` arrivals.
fn begin(count: u32) -> String {
    format!(
        "    mov.u32 %r80, shared;\n    add.u32 %r81, %r80, 128;\n    mad.lo.u32 %r90, %tid, 4, %r81;\n    setp.eq.u32 %q9, %tid, 0;\n    @%q9 \
         mbarrier.init.shared::cta.b64 [%r80], {count};\n    fence.mbarrier_init.release.cluster;\n    bar.sync 0;\n"
    )
}

/// Waits for the phase with a parity, with a label of its own.
fn wait(parity: &str, label: &str) -> String {
    format!(
        "{label}:\n    mbarrier.try_wait.parity.shared::cta.b64 %q8, [%r80], {parity};\n    @!%q8 bra {label};\n"
    )
}

/// Reads the word of the thread opposite into `%r1`, and stores it.
fn opposite(threads: u32) -> String {
    format!(
        "    xor.b32 %r2, %tid, {};\n    mad.lo.u32 %r3, %r2, 4, %r81;\n    ld.shared.b32 %r1, [%r3];\n",
        threads - 1
    ) + &store_word("%r1", 0, 0)
}

const WRITE: &str = "    st.shared.b32 [%r90], %tid;\n";
const ARRIVE: &str = "    mbarrier.arrive.shared::cta.b64 %l9, [%r80];\n";

#[test]
fn a_barrier_of_two_warps() {
    let by_state = "again:\n    mbarrier.test_wait.shared::cta.b64 %q8, [%r80], %l9;\n    @!%q8 bra again;\n";
    for waiting in [by_state.to_owned(), wait("0", "again"), by_state.replace("test_wait", "try_wait")] {
        let body = begin(64) + WRITE + ARRIVE + &waiting + &opposite(64);
        let given = Trial::new(64, &body).with_room(256).result(0);
        for (thread, given) in given.iter().enumerate() {
            assert_eq!(*given, thread as u32 ^ 63);
        }
        let without = begin(64) + WRITE + ARRIVE + &opposite(64) + &waiting;
        Trial::new(64, &without).with_room(256).run().expect_err("no wait");
        let relaxed = body.replace("arrive.shared", "arrive.relaxed.cta.shared");
        Trial::new(64, &relaxed).with_room(256).fails(Kind::SharedRace, "read after write");
    }
}

#[test]
fn generic_addresses_and_counts() {
    let body = begin(96)
        .replace("shared::cta.b64 [%r80]", "b64 [%l1]")
        .replace("    setp.eq", "    cvt.u64.u32 %l2, %r80;\n    cvta.shared.u64 %l1, %l2;\n    setp.eq")
        + WRITE
        + "    shr.u32 %r5, %tid, 5;\n    add.u32 %r5, %r5, 1;\n    mbarrier.arrive.b64 %l9, [%l1], %r5;\n    mbarrier.pending_count.b64 %r6, \
           %l9;\nagain:\n    mbarrier.test_wait.b64 %q8, [%l1], %l9;\n    @!%q8 bra again;\n"
        + &opposite(64)
        + &store_word("%r6", 1, 0);
    let trial = Trial::new(64, &body).with_room(256).with_room(256);
    assert_eq!(trial.result(0)[3], 60);
    let pending = trial.words(1);
    let highest = *pending.iter().max().unwrap();
    assert_eq!(highest, 96, "the first to arrive saw all pending");
}

/// Warp 0 produces and warp 1 consumes through two slots with a full and an empty mbarrier each, as kernels for sm_90 have it.
fn ring(change: impl Fn(String) -> String) -> Trial {
    let init =
        |at: usize, count: u32| format!("    @%q9 mbarrier.init.shared::cta.b64 [%r80+{at}], {count};\n");
    let mut body =
        "    mov.u32 %r80, shared;\n    add.u32 %r81, %r80, 128;\n    setp.eq.u32 %q9, %tid, 0;\n".to_owned();
    for slot in 0..2 {
        body += &(init(slot * 8, 32) + &init(16 + slot * 8, 32));
    }
    body += "    bar.sync 0;\n    mov.u32 %r10, 0;\n    mov.u32 %r1, 0;\n    setp.ge.u32 %q1, %tid, 32;\n    @%q1 bra consume;\n";
    // %r11: slot; %r12: parity of the round; %r13: the full mbarrier, the empty one at + 16; %r14: the word.
    let slot = "    and.b32 %r11, %r10, 1;\n    shr.u32 %r12, %r10, 1;\n    and.b32 %r12, %r12, 1;\n    mad.lo.u32 %r13, %r11, 8, %r80;\n    \
                mad.lo.u32 %r14, %r11, 128, %r81;\n    mad.lo.u32 %r14, %lane, 4, %r14;\n";
    body += &format!(
        "produce:\n{slot}    xor.b32 %r15, %r12, 1;\nroom:\n    mbarrier.try_wait.parity.shared::cta.b64 %q2, [%r13+16], %r15;\n    @!%q2 bra \
         room;\n    mad.lo.u32 %r16, %r10, 100, %lane;\n    st.shared.b32 [%r14], %r16;\n    mbarrier.arrive.shared::cta.b64 _, [%r13];\n    \
         add.u32 %r10, %r10, 1;\n    setp.lt.u32 %q3, %r10, 9;\n    @%q3 bra produce;\n    bra done;\n"
    );
    body += &format!(
        "consume:\n{slot}full:\n    mbarrier.try_wait.parity.shared::cta.b64 %q2, [%r13], %r12;\n    @!%q2 bra full;\n    xor.b32 %r15, %lane, \
         31;\n    sub.u32 %r15, %r15, %lane;\n    mad.lo.u32 %r14, %r15, 4, %r14;\n    ld.shared.b32 %r16, [%r14];\n    add.u32 %r1, %r1, \
         %r16;\n    mbarrier.arrive.shared::cta.b64 _, [%r13+16];\n    add.u32 %r10, %r10, 1;\n    setp.lt.u32 %q3, %r10, 9;\n    @%q3 bra \
         consume;\ndone:\n"
    );
    body += &store_word("%r1", 0, 0);
    Trial::new(64, &change(body)).with_room(256)
}

#[test]
fn a_ring_between_two_warps() {
    let given = ring(|body| body).result(0);
    for lane in 0..32 {
        assert_eq!(given[32 + lane], 36 * 100 + 9 * (lane as u32 ^ 31));
    }
    // The producer does not wait for room: it writes what is still read.
    ring(|body| body.replace("@!%q2 bra room;", "")).fails(Kind::SharedRace, "");
    // The consumer waits for the other parity: it passes at once in round 0.
    ring(|body| {
        body.replace("[%r13], %r12", "[%r13], %r15")
            .replace("consume:\n", "consume:\n    xor.b32 %r15, %r12, 1;\n")
    })
    .run()
    .expect_err("waiting for the wrong parity");
    // The consumer never says that there is room.
    ring(|body| body.replace("mbarrier.arrive.shared::cta.b64 _, [%r13+16];", ""))
        .fails(Kind::Deadlock, "the mbarrier at");
}

/// Thread 0 announces `announced` bytes and copies 256 from buffer 1; all wait.
fn bulk(announced: u32, change: impl Fn(String) -> String) -> Trial {
    let body = begin(1)
        + &format!(
            "    @!%q9 bra wait;\n    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r80], {announced};\n    \
             cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r81], [%p1], 256, [%r80];\n"
        )
        + &wait("0", "wait")
        + &opposite(64);
    Trial::new(64, &change(body)).with_room(256).with_words(&noise(6, 64))
}

#[test]
fn bulk_copies_into_shared_memory() {
    let given = bulk(256, |body| body).result(0);
    for (thread, given) in given.iter().enumerate() {
        assert_eq!(*given, noise(6, 64)[thread ^ 63]);
    }
    bulk(128, |body| body).fails(Kind::Misuse, "more than expect_tx announced");
    bulk(512, |body| body).fails(Kind::Deadlock, "for 512 bytes");
    let no_wait = |body: String| {
        body.replace("    mbarrier.try_wait", "    // mbarrier.try_wait").replace("    @!%q8 bra wait;\n", "")
    };
    bulk(256, no_wait).fails(Kind::SharedRace, "while an asynchronous copy");
    let mut one_try = bulk(256, |body| body.replace("    @!%q8 bra wait;\n", ""));
    one_try.threads = 32;
    one_try.fails(Kind::SharedRace, "while an asynchronous copy");
    bulk(256, |body| body.replace("[%r80], 0;", "[%r80], 1;"))
        .fails(Kind::SharedRace, "while an asynchronous copy");
    bulk(256, |body| body.replace("256, [%r80]", "250, [%r80]"))
        .fails(Kind::Misuse, "which 16 does not divide");
    bulk(256, |body| body.replace("[%r81], [%p1]", "[%r81+8], [%p1]")).fails(Kind::Misaligned, "16");
    bulk(256, |body| body.replace("[%p1], 256", "[%p1+16], 256")).fails(Kind::OutOfBounds, "past the end");
    let nobody = |body: String| {
        body.replace("wait:", "over:\n    bra end;\nwait:").replace("bra wait;\n    mb", "bra end;\n    mb")
            + "end:\n"
    };
    bulk(256, nobody).fails(Kind::Misuse, "the block ended while copies");
}

#[test]
fn bulk_copies_within_shared_memory() {
    let body = begin(1)
        + "    add.u32 %r4, %r90, 1024;\n    st.shared.b32 [%r4], %tid;\n    fence.proxy.async.shared::cta;\n    bar.sync 0;\n    @!%q9 bra \
           wait;\n    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r80], 256;\n    \
           cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r81], [%r81+1024], 256, [%r80];\n"
        + &wait("0", "wait")
        + &opposite(64);
    let given = Trial::new(64, &body).with_room(256).result(0);
    assert_eq!(given[9], 54);
}

/// All write shared memory, thread 0 copies it to buffer 0.
fn stored(change: impl Fn(String) -> String) -> Trial {
    let body = begin(1)
        + WRITE
        + "    fence.proxy.async.shared::cta;\n    bar.sync 0;\n    @!%q9 bra after;\n    cp.async.bulk.global.shared::cta.bulk_group [%p0], \
           [%r81], 256;\n    cp.async.bulk.commit_group;\n    cp.async.bulk.wait_group.read 0;\nafter:\n    bar.sync 0;\n    st.shared.b32 \
           [%r90], 7;\n";
    Trial::new(64, &change(body)).with_room(256)
}

#[test]
fn bulk_copies_to_global_memory() {
    let expected: Vec<u32> = (0..64).collect();
    assert_eq!(stored(|body| body).result(0), expected);
    assert_eq!(stored(|body| body.replace("wait_group.read", "wait_group")).result(0), expected);
    let without = |body: String| body.replace("    cp.async.bulk.wait_group.read 0;\n", "");
    stored(without).fails(Kind::SharedRace, "while an asynchronous copy");
    let late = |body: String| without(body).replace("st.shared.b32 [%r90], 7;", "");
    stored(late).fails(Kind::Misuse, "reading its shared memory");
    assert_eq!(stored(without).unchecked().result(0), [7; 64], "read as late as may be");
    stored(|body| body.replace("cp.async.bulk.commit_group;\n", "\n")).fails(Kind::SharedRace, "under way");
}

/// `cp.async` by each thread of 64, completed through an mbarrier.
fn tied(noinc: &str, count: u32, change: impl Fn(String) -> String) -> Trial {
    let body = begin(count)
        + "    mad.wide.u32 %l1, %tid, 4, %p1;\n    cp.async.ca.shared.global [%r90], [%l1], 4;\n"
        + &format!("    cp.async.mbarrier.arrive{noinc}.shared::cta.b64 [%r80];\n")
        + if noinc.is_empty() { ARRIVE } else { "" }
        + &wait("0", "wait")
        + &opposite(64);
    Trial::new(64, &change(body)).with_room(256).with_words(&noise(6, 64))
}

#[test]
fn async_copies_tied_to_an_mbarrier() {
    for noinc in ["", ".noinc"] {
        let given = tied(noinc, 64, |body| body).result(0);
        for (thread, given) in given.iter().enumerate() {
            assert_eq!(*given, noise(6, 64)[thread ^ 63]);
        }
        // A wait of the thread's own takes nothing from those who wait for the mbarrier.
        tied(noinc, 64, |body| body.replace("wait:\n", "    cp.async.wait_all;\nwait:\n")).result(0);
        tied(noinc, 64, |body| body.replace("@!%q8 bra wait;", "")).fails(Kind::SharedRace, "");
        let without = |body: String| {
            body.replace("    @!%q8 bra wait;\n", "").replace("mbarrier.try_wait", "// mbarrier.try_wait")
        };
        tied(noinc, 64, without).run().expect_err("no wait");
    }
    tied(".noinc", 63, |body| body).fails(Kind::SharedRace, "under way");
    tied(".noinc", 65, |body| body).fails(Kind::Deadlock, "bring 64 arrivals and 0 bytes");
}

#[test]
fn misuse() {
    let run = |body: &str| Trial::new(64, body).with_room(256);
    let none = begin(64).replace("@%q9 mbarrier.init.shared::cta.b64 [%r80], 64;", "") + ARRIVE;
    run(&none).fails(Kind::Misuse, "there is no mbarrier");
    run(&(begin(0) + ARRIVE)).fails(Kind::Misuse, "a count of 0");
    run(&(begin(64) + &ARRIVE.replace("[%r80]", "[%r80], 3"))).fails(Kind::Misuse, "waits for 1 more of 64");
    let twice = begin(64) + "    @%q9 mbarrier.init.shared::cta.b64 [%r80], 64;\n";
    run(&twice).fails(Kind::Misuse, "an mbarrier already");
    let again = begin(64)
        + "    @%q9 mbarrier.inval.shared::cta.b64 [%r80];\n    @%q9 mbarrier.init.shared::cta.b64 [%r80], 64;\n    bar.sync 0;\n"
        + ARRIVE;
    assert!(run(&again).run().is_ok());
    let gone = begin(64) + "    @%q9 mbarrier.inval.shared::cta.b64 [%r80];\n    bar.sync 0;\n" + ARRIVE;
    run(&gone).fails(Kind::Misuse, "there is no mbarrier");
    let over = begin(64) + "    @%q9 st.shared.b32 [%r80+4], 5;\n    bar.sync 0;\n" + ARRIVE;
    run(&over).fails(Kind::Misuse, "was written over");
    let unordered = begin(64).replace("    bar.sync 0;\n", "") + ARRIVE;
    let fault = run(&unordered).run().expect_err("no barrier after mbarrier.init");
    assert!(matches!(fault.kind, Kind::SharedRace | Kind::Misuse), "{fault}");
    run(&(begin(64) + &wait("2", "again"))).fails(Kind::Misuse, "parity of 2");
    run(&(begin(64)
        + "    mov.u64 %l9, 0x900000;\n    mbarrier.test_wait.shared::cta.b64 %q8, [%r80], %l9;\n"))
    .fails(Kind::Misuse, "a state from phase 9");
    run(&begin(64).replace("[%r80], 64", "[%r80+4], 64")).fails(Kind::Misaligned, "8");
    run(&(begin(65) + ARRIVE + &wait("0", "again"))).fails(Kind::Deadlock, "waits for 1 of 65 arrivals");
    run(&(begin(64) + "    mbarrier.arrive.noComplete.shared::cta.b64 %l9, [%r80], 1;\n"))
        .fails(Kind::Misuse, "last arrival");
}
