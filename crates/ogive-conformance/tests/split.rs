//! A backend made of two passes the suite wherever its weights are: all of one part, or one after the other of different ones.

use ogive_backend::tensor::{F32, Q4_K, Q8_0};
use ogive_backend::{Backend, HostWeight, Split};
use ogive_conformance::{Options, Oracle, Status, assert_conforms, cases};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

fn parts(n: usize) -> Vec<Arc<dyn Backend>> {
    (0..n).map(|_| Arc::new(Oracle) as Arc<dyn Backend>).collect()
}

#[test]
fn two_parts_in_turn_conform() {
    let options = Options::new().formats(vec![&F32, &Q4_K, &Q8_0]);
    for homes in [vec![0, 1], vec![1, 0, 1], vec![0]] {
        let turn = AtomicUsize::new(0);
        let scattered = move |_: &str| turn.fetch_add(1, Relaxed) % 2;
        let scattered: Arc<dyn Backend> = Arc::new(Split::new(parts(2), homes.clone(), scattered).unwrap());
        // The three weights of experts must be together; their rows and choices are elsewhere.
        let together: Arc<dyn Backend> = Arc::new(Split::new(parts(2), homes, |_| 1).unwrap());
        let (mut wrong, mut passed) = (Vec::new(), 0);
        for case in cases(&options) {
            let backend = if case.name().contains("moe") { &together } else { &scattered };
            let outcome = case.run(backend, &options);
            match outcome.status {
                Status::Passed => passed += 1,
                Status::Skipped(_) => {}
                other => wrong.push(format!("{}: {other:?}", outcome.name)),
            }
        }
        assert!(wrong.is_empty() && passed > 150, "{passed} passed\n{}", wrong.join("\n"));
    }
}

#[test]
fn one_part_conforms_and_what_is_wrong_is_said() {
    let split: Arc<dyn Backend> = Arc::new(Split::new(parts(1), vec![0; 3], |_| 0).unwrap());
    assert_conforms(&split, &Options::new().formats(vec![&F32]));
    assert!(Split::new(parts(2), vec![0, 2], |_| 0).is_err());
    assert!(Split::new(Vec::new(), Vec::new(), |_| 0).is_err());
    let nowhere = Split::new(parts(1), Vec::new(), |_| 7).unwrap();
    let w = HostWeight::from_f32("lm_head.weight", [1, 1, 1], &[1.0]).unwrap();
    let error = nowhere.upload_weight(&w).unwrap_err().to_string();
    assert!(error.contains("lm_head.weight") && error.contains("part 7 of 1"), "{error}");
}
