//! What crosses the border between host and device in a step, and what could be replayed.

mod common;

use common::*;
use ogive_engine::Limits;
use ogive_nn::backend::Backend;
use recorder::Recorder;
use std::sync::Arc;

#[test]
fn one_plan_one_download_and_no_upload_a_step() {
    for (arch, r) in zoo() {
        let b = Arc::new(Recorder::padding_to(4));
        let limits = Limits::new(64).sequences(8).step_tokens(64).block_len(4);
        let mut e = engine(Arc::clone(&b) as Arc<dyn Backend>, arch, &r, limits);
        for n in 0..5 {
            e.add(request(&[n, n + 1], 4, None)).unwrap();
        }
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
