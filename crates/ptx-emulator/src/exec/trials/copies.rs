//! `cp.async`: what lands when, and what is said where a wait is missing.

use super::{Trial, noise, store_word};
use crate::fault::Kind;

/// Each thread's source in buffer 0 (`%l1`) and target in shared memory (`%r90`), `bytes` apart.
fn places(bytes: u32) -> String {
    format!(
        "    mov.u32 %r80, shared;\n    mad.lo.u32 %r90, %tid, {bytes}, %r80;\n    mad.wide.u32 %l1, %tid, {bytes}, %p0;\n"
    )
}

const COMMIT: &str = "    cp.async.commit_group;\n";
const WAIT: &str = "    cp.async.wait_group 0;\n";
const COPY: &str = "    cp.async.ca.shared.global [%r90], [%l1], 4;\n";
const READ: &str = "    ld.shared.b32 %r1, [%r90];\n";

fn four() -> Trial {
    Trial::new(32, "").with_words(&noise(1, 32)).with_room(128)
}

/// The kernel of these parts, that stores `%r1`.
fn kernel(parts: &[&str]) -> Trial {
    let mut trial = four();
    trial.body = places(4) + &parts.concat() + &store_word("%r1", 1, 0);
    trial
}

#[test]
fn each_width_lands_with_the_wait() {
    let content = noise(7, 128);
    for (bytes, operation) in [(4, "ca"), (8, "ca"), (16, "ca"), (16, "cg")] {
        for hint in ["", ".L2::128B"] {
            // Read by another thread, after a barrier.
            let body = places(bytes)
                + &format!("    cp.async.{operation}.shared.global{hint} [%r90], [%l1], {bytes};\n")
                + COMMIT
                + WAIT
                + "    bar.sync 0;\n    xor.b32 %r2, %tid, 31;\n"
                + &format!(
                    "    mad.lo.u32 %r3, %r2, {bytes}, %r80;\n    ld.shared.b32 %r1, [%r3+{}];\n",
                    bytes - 4
                )
                + &store_word("%r1", 1, 0);
            let given = Trial::new(32, &body).with_words(&content).with_room(128).result(1);
            for (lane, given) in given.iter().enumerate() {
                assert_eq!(*given, content[((lane ^ 31) + 1) * bytes as usize / 4 - 1]);
            }
        }
    }
}

#[test]
fn nothing_lands_before_the_wait() {
    let before = "    mov.u32 %r1, 42;\n    st.shared.b32 [%r90], %r1;\n";
    let trial = kernel(&[before, COPY, COMMIT, READ, WAIT]).unchecked();
    assert!(trial.result(1).iter().all(|word| *word == 42));
    kernel(&[before, COPY, COMMIT, READ, WAIT]).fails(Kind::SharedRace, "while an asynchronous copy");
    kernel(&[COPY, COMMIT, "    st.shared.b32 [%r90], %tid;\n", WAIT]).fails(Kind::SharedRace, "under way");
}

#[test]
fn a_group_that_was_never_committed_is_not_waited_for() {
    kernel(&[COPY, WAIT, READ]).fails(Kind::SharedRace, "under way");
    kernel(&[COPY, COMMIT, COPY.replace("%r90]", "%r90+128]").as_str(), WAIT, READ])
        .fails(Kind::Misuse, "never committed nor waited for");
    let given = kernel(&[COPY, "    cp.async.wait_all;\n", READ]).result(1);
    assert_eq!(given, noise(1, 32), "wait_all takes what was not committed too");
}

#[test]
fn a_thread_must_wait_before_it_ends() {
    kernel(&[COPY, COMMIT, "    mov.u32 %r1, 0;\n"]).fails(Kind::Misuse, "was never waited for");
}

#[test]
fn groups_are_counted_from_the_newest() {
    let second = COPY.replace("%r90]", "%r90+128]");
    let read_second = READ.replace("%r90]", "%r90+128]");
    let one = "    cp.async.wait_group 1;\n";
    let given = kernel(&[COPY, COMMIT, &second, COMMIT, one, READ, WAIT]).result(1);
    assert_eq!(given, noise(1, 32));
    kernel(&[COPY, COMMIT, &second, COMMIT, one, &read_second, WAIT]).fails(Kind::SharedRace, "under way");
    // An empty group is one too.
    let given = kernel(&[COPY, COMMIT, COMMIT, one, READ]).result(1);
    assert_eq!(given, noise(1, 32));
}

#[test]
fn each_thread_counts_its_own_groups() {
    // Odd threads commit once more, so that one open group is the empty one for them, and the copy for the others.
    let odd = "    and.b32 %r5, %tid, 1;\n    setp.ne.u32 %q1, %r5, 0;\n    @%q1 cp.async.commit_group;\n";
    let one = "    cp.async.wait_group 1;\n";
    let before = "    mov.u32 %r1, 42;\n    st.shared.b32 [%r90], %r1;\n";
    let given = kernel(&[before, COPY, COMMIT, odd, one, READ, WAIT]).unchecked().result(1);
    for (lane, (given, value)) in given.iter().zip(noise(1, 32)).enumerate() {
        assert_eq!(*given, if lane % 2 == 1 { value } else { 42 });
    }
}

#[test]
fn a_wait_is_no_barrier() {
    let neighbour =
        "    xor.b32 %r2, %tid, 1;\n    mad.lo.u32 %r3, %r2, 4, %r80;\n    ld.shared.b32 %r1, [%r3];\n";
    kernel(&[COPY, COMMIT, WAIT, neighbour]).fails(Kind::SharedRace, "read after write");
    // A barrier before it does not order what only the wait brings.
    kernel(&[COPY, COMMIT, "    bar.warp.sync -1;\n", WAIT, neighbour])
        .fails(Kind::SharedRace, "read after write");
    kernel(&[COPY, "    bar.sync 0;\n    cp.async.wait_all;\n", neighbour])
        .fails(Kind::SharedRace, "read after write");
    let given = kernel(&[COPY, COMMIT, WAIT, "    bar.warp.sync -1;\n", neighbour]).result(1);
    assert_eq!(given[0], noise(1, 32)[1]);
}

#[test]
fn a_copy_over_what_others_still_read() {
    // Warp 1 reads what warp 0 copies anew; only a barrier between makes that right.
    let kernel = |barrier: &str| {
        let body = places(4)
            + "    st.shared.b32 [%r90], %tid;\n    bar.sync 0;\n    xor.b32 %r2, %tid, 32;\n    mad.lo.u32 %r3, %r2, 4, %r80;\n    \
               ld.shared.b32 %r1, [%r3];\n"
            + barrier
            + COPY
            + COMMIT
            + WAIT
            + &store_word("%r1", 1, 0);
        Trial::new(64, &body).with_words(&noise(1, 64)).with_room(256)
    };
    kernel("").fails(Kind::SharedRace, "and no barrier between");
    assert_eq!(kernel("    bar.sync 0;\n").result(1)[5], 37);
}

#[test]
fn what_is_not_read_is_zero() {
    let content = noise(2, 128);
    // Sizes 0, 3 and 12 of 16; nothing is read where the size is 0, wherever the source may be, as long as it is aligned.
    for size in [0u32, 3, 12, 16] {
        let wild = if size == 0 { "    mov.u64 %l1, 4096;\n" } else { "" };
        let body = places(16)
            + wild
            + &format!("    mov.u32 %r5, {size};\n    cp.async.cg.shared.global [%r90], [%l1], 16, %r5;\n")
            + COMMIT
            + WAIT
            + "    ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%r90];\n    mad.wide.u32 %l2, %tid, 16, %p1;\n    st.global.v4.b32 [%l2], {%r1, \
               %r2, %r3, %r4};\n";
        let trial = Trial::new(32, &body).with_words(&content).with_room(512);
        trial.run().unwrap_or_else(|fault| panic!("{fault}"));
        let source: Vec<u8> = content.iter().flat_map(|word| word.to_le_bytes()).collect();
        for (at, byte) in trial.bytes(1).iter().enumerate() {
            assert_eq!(*byte, if at % 16 < size as usize { source[at] } else { 0 });
        }
    }
    let ignoring = "    setp.lt.u32 %q1, %tid, 7;\n    cp.async.ca.shared.global [%r90], [%l1], 4, %q1;\n";
    let given = kernel(&[ignoring, COMMIT, WAIT, READ]).result(1);
    for (lane, (given, value)) in given.iter().zip(noise(1, 32)).enumerate() {
        assert_eq!(*given, if lane < 7 { 0 } else { value });
    }
}

#[test]
fn wrong_operands() {
    let beyond = "    mov.u32 %r5, 5;\n    cp.async.ca.shared.global [%r90], [%l1], 4, %r5;\n";
    kernel(&[beyond, COMMIT, WAIT, READ]).fails(Kind::Misuse, "is to read 5");
    kernel(&["    add.u64 %l1, %l1, 2;\n", COPY, COMMIT, WAIT, READ]).fails(Kind::Misaligned, "4");
    kernel(&["    add.u32 %r90, %r90, 2;\n", COPY, COMMIT, WAIT, READ]).fails(Kind::Misaligned, "4");
    let nothing = "    mov.u32 %r5, 0;\n    cp.async.ca.shared.global [%r90], [%l1], 4, %r5;\n";
    let ignoring = "    setp.lt.u32 %q1, %tid, 32;\n    cp.async.ca.shared.global [%r90], [%l1], 4, %q1;\n";
    for copy in [nothing, ignoring] {
        kernel(&["    add.u64 %l1, %l1, 2;\n", copy, COMMIT, WAIT, READ]).fails(Kind::Misaligned, "4");
    }
    kernel(&["    add.u64 %l1, %l1, 128;\n", COPY, COMMIT, WAIT, READ])
        .fails(Kind::OutOfBounds, "past the end");
    kernel(&["    add.u32 %r90, %r90, 65536;\n", COPY, COMMIT, WAIT, READ])
        .fails(Kind::OutOfBounds, "shared memory");
    let mut unwritten = kernel(&[COPY, COMMIT, WAIT, READ]);
    unwritten.buffers.clear();
    unwritten.with_room(128).with_room(128).fails(Kind::Unwritten, "global memory");
}

/// A ring of three stages, as tiled kernels have it: sums 12 tiles of 32 words.
#[test]
fn a_pipeline() {
    let kernel = |wait: u32, barrier: &str| {
        let stage = |n: &str| {
            format!(
                "    rem.u32 %r20, {n}, 3;\n    mad.lo.u32 %r21, %r20, 128, %r90;\n    mul.wide.u32 %l5, {n}, 128;\n    add.u64 %l5, %l5, \
                 %l1;\n"
            )
        };
        let issue = |n: &str| {
            stage(n)
                + &format!(
                    "    setp.lt.u32 %q2, {n}, 12;\n    @%q2 cp.async.ca.shared.global [%r21], [%l5], 4;\n    cp.async.commit_group;\n"
                )
        };
        let body = places(4)
            + "    mov.u32 %r1, 0;\n    mov.u32 %r10, 0;\n    mov.u32 %r11, 1;\n    mov.u32 %r12, 0;\n"
            + &issue("%r10")
            + &issue("%r11")
            + "loop:\n    add.u32 %r11, %r12, 2;\n"
            + &format!("    cp.async.wait_group {wait};\n    {barrier}\n")
            + &stage("%r12")
            // The word of the thread opposite.
            + "    xor.b32 %r22, %tid, 31;\n    sub.u32 %r23, %r22, %tid;\n    mad.lo.u32 %r21, %r23, 4, %r21;\n    ld.shared.b32 %r24, \
               [%r21];\n    add.u32 %r1, %r1, %r24;\n"
            + &issue("%r11")
            + "    add.u32 %r12, %r12, 1;\n    setp.lt.u32 %q1, %r12, 12;\n    @%q1 bra loop;\n"
            + WAIT
            + &store_word("%r1", 1, 0);
        Trial::new(32, &body).with_words(&noise(4, 384)).with_room(128)
    };
    let content = noise(4, 384);
    let given = kernel(1, "bar.sync 0;").result(1);
    for (lane, given) in given.iter().enumerate() {
        let sum = (0..12).fold(0u32, |sum, tile| sum.wrapping_add(content[tile * 32 + (lane ^ 31)]));
        assert_eq!(*given, sum);
    }
    kernel(2, "bar.sync 0;").fails(Kind::SharedRace, "under way");
    kernel(1, "").fails(Kind::SharedRace, "");
}
