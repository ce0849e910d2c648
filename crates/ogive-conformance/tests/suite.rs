//! The oracle passes its own suite: with every bit equal, as nothing is compared with anything else.

use ogive_backend::{Backend, Plain};
use ogive_conformance::{Options, Oracle, assert_conforms, run};
use std::sync::Arc;

#[test]
fn the_oracle_conforms_bit_for_bit() {
    let oracle: Arc<dyn Backend> = Arc::new(Oracle);
    let options = Options::new().bit_exact_batching();
    assert_conforms(&oracle, &options);
    let report = run(&oracle, &options);
    for o in &report.outcomes {
        assert_eq!(o.worst, 0.0, "{}: {}", o.name, o.worst_at);
    }
    assert_eq!(report.skipped().count(), 0, "{report}");
}

#[test]
fn the_plain_oracle_conforms() {
    let plain: Arc<dyn Backend> = Arc::new(Plain(Oracle));
    assert_conforms(&plain, &Options::new().seed(2));
}
