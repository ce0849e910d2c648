//! The oracle passes its own suite: with every bit equal, as nothing is compared with anything else.

use ogive_backend::tensor::{F32, Q4_0, Q6_K, Q8_0};
use ogive_backend::{Backend, Plain};
use ogive_conformance::{Options, Oracle, assert_conforms, cases, run};
use std::sync::Arc;

#[test]
fn the_oracle_conforms_bit_for_bit() {
    let oracle: Arc<dyn Backend> = Arc::new(Oracle);
    let report = run(&oracle, &Options::new());
    assert!(report.passed(), "{report}");
    for o in &report.outcomes {
        assert_eq!(o.worst, 0.0, "{}: {}", o.name, o.worst_at);
    }
    let unpromised = report.skipped().filter(|o| !o.name.starts_with("bits/")).count();
    assert_eq!(unpromised, 0, "{report}");
}

#[test]
fn the_oracle_keeps_the_promise_of_equal_bits() {
    let oracle: Arc<dyn Backend> = Arc::new(Oracle);
    let few = Options::new().formats(vec![&F32, &Q4_0, &Q6_K]).elements(vec![&F32, &Q8_0]);
    let options = few.bit_exact_batching().filter("bits/");
    assert_conforms(&oracle, &options);
    assert_eq!(run(&oracle, &options).skipped().count(), 0);
}

#[test]
fn the_plain_oracle_conforms() {
    let plain: Arc<dyn Backend> = Arc::new(Plain(Oracle));
    assert_conforms(&plain, &Options::new().formats(vec![&F32, &Q8_0]).seed(2));
}

#[test]
fn names_of_cases_are_unique() {
    let mut names: Vec<String> = cases(&Options::new()).iter().map(|c| c.name().to_owned()).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
#[should_panic(expected = "does not conform")]
fn a_filter_that_leaves_nothing_is_no_success() {
    let oracle: Arc<dyn Backend> = Arc::new(Oracle);
    assert_conforms(&oracle, &Options::new().filter("no such case"));
}
