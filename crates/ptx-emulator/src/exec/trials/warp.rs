//! `shfl`, `vote`, `match`, `redux`, `elect`, `activemask`, in whole and in divided warps.

use super::{Trial, load_word, noise, store_word};
use crate::fault::Kind;

/// The manual's definition of where `shfl` reads.
fn source(mode: &str, lane: i32, b: u32, c: u32) -> (usize, bool) {
    let (b, clamp, segment) = ((b & 31) as i32, (c & 31) as i32, ((c >> 8) & 31) as i32);
    let highest = (lane & segment) | (clamp & !segment);
    let (j, inside) = match mode {
        "up" => (lane - b, lane - b >= highest),
        "down" => (lane + b, lane + b <= highest),
        "bfly" => (lane ^ b, lane ^ b <= highest),
        _ => {
            let j = (lane & segment) | (b & !segment);
            (j, j <= highest)
        }
    };
    (if inside { j } else { lane } as usize, inside)
}

#[test]
fn shuffles_of_a_whole_warp() {
    let values = noise(3, 32);
    let b = noise(4, 32);
    for mode in ["up", "down", "bfly", "idx"] {
        for c in [0, 31, 0x1f00, 0x181f, 0x1800, 0x101f, 0x1c1f, 0x1e00, 0x0307] {
            let body = load_word("%r1", 0, 0)
                + &load_word("%r2", 1, 0)
                + &format!(
                    "    shfl.sync.{mode}.b32 %r3|%q1, %r1, %r2, {c}, -1;\n    selp.u32 %r4, 1, 0, %q1;\n"
                )
                + &store_word("%r3", 2, 0)
                + &store_word("%r4", 2, 32);
            let given = Trial::new(32, &body).with_words(&values).with_words(&b).with_room(256).result(2);
            for lane in 0..32 {
                let (from, inside) = source(mode, lane as i32, b[lane], c);
                assert_eq!(given[lane], values[from], "{mode} {c:#x} lane {lane}");
                assert_eq!(given[32 + lane], u32::from(inside), "{mode} {c:#x} lane {lane}");
            }
        }
    }
}

#[test]
fn shuffles_within_half_a_warp() {
    // Even lanes exchange among themselves; the odd ones went elsewhere.
    let body = "    mov.u32 %r3, 77;\n    and.b32 %r1, %tid, 1;\n    setp.ne.u32 %q1, %r1, 0;\n    @%q1 bra over;\n    \
                shfl.sync.bfly.b32 %r3, %tid, 2, 31, 0x55555555;\nover:\n"
        .to_owned()
        + &store_word("%r3", 0, 0);
    let given = Trial::new(32, &body).with_room(128).result(0);
    for lane in 0..32 {
        assert_eq!(given[lane as usize], if lane % 2 == 1 { 77 } else { lane ^ 2 });
    }
}

#[test]
fn a_shuffle_from_a_lane_that_takes_no_part() {
    let body = "    setp.ge.u32 %q1, %tid, 16;\n    @%q1 bra over;\n    shfl.sync.bfly.b32 %r3, %tid, 16, 31, 0xffff;\nover:\n"
        .to_owned()
        + "    bar.sync 0;\n";
    Trial::new(32, &body).fails(Kind::WrongMask, "lane 0 reads lane 16");
    assert!(Trial::new(32, &body).unchecked().run().is_ok());
}

#[test]
fn votes() {
    let body = load_word("%r1", 0, 0)
        + "    setp.ne.u32 %q1, %r1, 0;\n    vote.sync.ballot.b32 %r2, %q1, -1;\n    vote.sync.all.pred %q2, %q1, -1;\n    \
           vote.sync.any.pred %q3, %q1, -1;\n    vote.sync.uni.pred %q4, %q1, -1;\n    vote.sync.any.pred %q5, !%q1, -1;\n    selp.u32 \
           %r3, 1, 0, %q2;\n    selp.u32 %r4, 2, 0, %q3;\n    selp.u32 %r5, 4, 0, %q4;\n    selp.u32 %r6, 8, 0, %q5;\n    or.b32 %r3, %r3, \
           %r4;\n    or.b32 %r3, %r3, %r5;\n    or.b32 %r3, %r3, %r6;\n"
        + &store_word("%r2", 1, 0)
        + &store_word("%r3", 1, 32);
    for (bits, flags) in [(0, 4 | 8), (!0, 1 | 2 | 4), (0x8000_0001, 2 | 8), (0x7fff_ffff, 2 | 8)] {
        let values: Vec<u32> = (0..32).map(|lane| (bits >> lane) & 1).collect();
        let given = Trial::new(32, &body).with_words(&values).with_room(256).result(1);
        assert!(given[..32].iter().all(|ballot| *ballot == bits));
        assert!(given[32..].iter().all(|given| *given == flags), "{bits:#x}: {:#x}", given[32]);
    }
}

#[test]
fn the_last_warp_votes_with_the_lanes_it_has() {
    let body = "    vote.sync.ballot.b32 %r2, 1, 0xff;\n    activemask.b32 %r3;\n".to_owned()
        + &store_word("%r2", 0, 0)
        + &store_word("%r3", 0, 8);
    let given = Trial::new(8, &body).with_room(64).result(0);
    assert!(given.iter().all(|word| *word == 0xff), "{given:x?}");
}

#[test]
fn matches() {
    let body = load_word("%r1", 0, 0)
        + "    cvt.u64.u32 %l1, %r1;\n    shl.b64 %l1, %l1, 33;\n    match.any.sync.b32 %r2, %r1, -1;\n    match.any.sync.b64 %r3, %l1, \
           -1;\n    match.all.sync.b32 %r4|%q1, %r1, -1;\n    match.all.sync.b64 %r5, %l1, -1;\n    selp.u32 %r6, 1, 0, %q1;\n"
        + &store_word("%r2", 1, 0)
        + &store_word("%r3", 1, 32)
        + &store_word("%r4", 1, 64)
        + &store_word("%r5", 1, 96)
        + &store_word("%r6", 1, 128);
    for modulus in [1, 2, 5, 32] {
        let values: Vec<u32> = (0..32).map(|lane| lane % modulus).collect();
        let given = Trial::new(32, &body).with_words(&values).with_room(640).result(1);
        for lane in 0..32 {
            let same = (0..32).filter(|o| values[*o] == values[lane]).fold(0u32, |all, o| all | 1 << o);
            assert_eq!((given[lane], given[32 + lane]), (same, same));
            let all = if modulus == 1 { !0 } else { 0 };
            assert_eq!((given[64 + lane], given[96 + lane], given[128 + lane]), (all, all, all & 1));
        }
    }
}

#[test]
fn reductions() {
    let values = noise(9, 32);
    type Combine = fn(u32, u32) -> u32;
    let forms: [(&str, Combine); 9] = [
        ("add.u32", u32::wrapping_add),
        ("add.s32", u32::wrapping_add),
        ("min.u32", u32::min),
        ("max.u32", u32::max),
        ("min.s32", |a, b| (a as i32).min(b as i32) as u32),
        ("max.s32", |a, b| (a as i32).max(b as i32) as u32),
        ("and.b32", |a, b| a & b),
        ("or.b32", |a, b| a | b),
        ("xor.b32", |a, b| a ^ b),
    ];
    for (form, combine) in forms {
        // Lanes below 20 reduce apart from the rest.
        let body = load_word("%r1", 0, 0)
            + &format!(
                "    setp.lt.u32 %q1, %tid, 20;\n    @%q1 bra low;\n    redux.sync.{form} %r2, %r1, 0xfff00000;\n    bra both;\nlow:\n    \
                 redux.sync.{form} %r2, %r1, 0x000fffff;\nboth:\n"
            )
            + &store_word("%r2", 1, 0);
        let given = Trial::new(32, &body).with_words(&values).with_room(128).result(1);
        let low = values[..20].iter().copied().reduce(combine).unwrap();
        let high = values[20..].iter().copied().reduce(combine).unwrap();
        for (lane, given) in given.iter().enumerate() {
            assert_eq!(*given, if lane < 20 { low } else { high }, "{form}");
        }
    }
}

#[test]
fn the_leader_is_the_lowest_lane() {
    let body = "    setp.lt.u32 %q1, %tid, 5;\n    mov.u32 %r1, 99;\n    mov.u32 %r2, 99;\n    @%q1 bra over;\n    elect.sync %r1|%q2, \
                0xffffffe0;\n    selp.u32 %r2, 1, 0, %q2;\nover:\n"
        .to_owned()
        + &store_word("%r1", 0, 0)
        + &store_word("%r2", 0, 32);
    let given = Trial::new(32, &body).with_room(256).result(0);
    for lane in 0..32 {
        let expected = if lane < 5 { (99, 99) } else { (5, u32::from(lane == 5)) };
        assert_eq!((given[lane], given[32 + lane]), expected);
    }
}

#[test]
fn old_forms_without_sync() {
    let body = "    shfl.down.b32 %r1|%q1, %tid, 1, 31;\n    setp.lt.u32 %q2, %tid, 3;\n    vote.ballot.b32 %r2, %q2;\n".to_owned()
        + &store_word("%r1", 0, 0)
        + &store_word("%r2", 0, 32);
    let given = Trial::new(32, &body).arch(60).with_room(256).result(0);
    assert_eq!(given[..3], [1, 2, 3]);
    assert_eq!(given[31], 31);
    assert!(given[32..].iter().all(|word| *word == 7));
}

#[test]
fn ranks_in_a_cluster_of_one() {
    let body = "    mov.u32 %r1, shared;\n    mapa.shared::cluster.u32 %r2, %r1, 0;\n    st.shared.u32 [%r1], 5;\n    ld.shared::cluster.u32 \
                %r3, [%r2];\n    getctarank.shared::cluster.u32 %r4, %r2;\n    add.u32 %r3, %r3, %r4;\n"
        .to_owned()
        + &store_word("%r3", 0, 0);
    assert_eq!(Trial::new(1, &body).with_room(4).result(0), [5]);
    Trial::new(1, "    mov.u32 %r1, shared;\n    mapa.shared::cluster.u32 %r2, %r1, 1;\n")
        .fails(Kind::Misuse, "mapa to block 1");
}
