//! What crosses the border between host and device in a step, and what could be replayed.

mod common;

use common::*;
use ogive_engine::{Engine, Limits, Lookup};
use ogive_nn::backend::Backend;
use recorder::Recorder;
use std::sync::Arc;

/// A recorder, and an engine on it with five requests of four tokens.
fn five(arch: &str, r: &random::Random) -> (Arc<Recorder>, Engine) {
    let b = Arc::new(Recorder::padding_to(4));
    let limits = Limits::new(64).sequences(8).step_tokens(64).block_len(4);
    let mut e = engine(Arc::clone(&b) as Arc<dyn Backend>, arch, r, limits);
    for n in 0..5 {
        e.add(request(&[n, n + 1], 4, None)).unwrap();
    }
    (b, e)
}

#[test]
fn one_plan_one_download_and_no_upload_a_step() {
    for (arch, r) in zoo() {
        let (b, mut e) = five(arch, &r);
        e.step().unwrap();
        assert!(b.log().keys.is_empty(), "{arch}: a prompt is not replayed");
        b.log().calls.clear();
        e.step().unwrap();
        e.step().unwrap();
        let log = b.log();
        let n = |name| log.calls.get(name).copied().unwrap_or(0);
        assert_eq!((n("plan"), n("download"), n("upload"), n("upload_weight")), (2, 2, 0, 0), "{arch}");
        assert_eq!(log.keys.values().copied().collect::<Vec<_>>(), [2], "{arch}: two steps, one recording");
    }
}

/// What a step asks for of these, in order: `bucket` when one is made, `plan` when it goes up, `replay` when it starts, and `download`, which
/// waits for it.
fn order(b: &Recorder, e: &mut Engine) -> Vec<&'static str> {
    b.log().order.clear();
    e.step().unwrap();
    let mut order = b.log().order.clone();
    order.retain(|name| ["bucket", "plan", "replay", "download"].contains(name));
    order
}

#[test]
fn the_next_step_is_made_while_one_runs() {
    const PREPARED: [&str; 4] = ["plan", "replay", "bucket", "download"];
    for (arch, r) in zoo() {
        let (b, mut e) = five(arch, &r);
        // Prompts are no step that comes again.
        assert_eq!(order(&b, &mut e), ["bucket", "plan", "bucket", "download"], "{arch}");
        assert_eq!(order(&b, &mut e), PREPARED, "{arch}");
        assert_eq!(order(&b, &mut e), PREPARED, "{arch}");
        // All end with this token, so nothing comes after.
        assert_eq!(order(&b, &mut e), ["plan", "replay", "download"], "{arch}");
        // Some end and the others go on.
        let ids: Vec<_> = (0..3).map(|n| e.add(request(&[n], 3 + 5 * n as usize, None)).unwrap()).collect();
        assert_eq!(order(&b, &mut e), ["bucket", "plan", "replay", "bucket", "download"], "{arch}");
        assert_eq!([order(&b, &mut e), order(&b, &mut e), order(&b, &mut e)], [PREPARED; 3], "{arch}");
        // Who comes or goes between two steps makes it another one.
        e.add(request(&[7, 8], 9, None)).unwrap();
        assert_eq!(order(&b, &mut e), ["bucket", "plan", "bucket", "download"], "{arch}");
        assert_eq!(order(&b, &mut e), PREPARED, "{arch}");
        assert!(e.cancel(ids[1]));
        assert_eq!(order(&b, &mut e), ["bucket", "plan", "replay", "bucket", "download"], "{arch}");
        // So does an error: the step is made again.
        b.log().fail_after = Some(0);
        assert!(e.step().is_err());
        b.log().fail_after = None;
        assert_eq!(order(&b, &mut e), ["bucket", "plan", "replay", "bucket", "download"], "{arch}");
        assert_eq!(order(&b, &mut e), PREPARED, "{arch}");
    }
}

#[test]
fn the_next_step_waits_for_guesses_only() {
    let (arch, r) = &zoo()[0];
    for (most, prepared) in [(4, true), (5, false)] {
        let (b, mut e) = five(arch, r);
        e.speculate(Some(Box::new(Lookup::new())), most);
        e.step().unwrap();
        let order = order(&b, &mut e);
        let ahead = order.ends_with(&["bucket", "download"]);
        assert_eq!(ahead, prepared, "{most} guesses for five sequences: {order:?}");
    }
}
