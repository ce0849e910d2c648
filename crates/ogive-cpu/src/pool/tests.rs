//! Runs, panics, turns, pieces, and the end of a pool.

use super::*;
use std::sync::Barrier;

fn sum_of(pool: &Pool, items: usize) -> usize {
    let sum = AtomicUsize::new(0);
    pool.run(items, &|i| {
        sum.fetch_add(i + 1, Ordering::Relaxed);
    });
    sum.into_inner()
}

#[test]
fn every_item_once_on_any_number_of_threads() {
    for threads in [0, 1, 2, 5] {
        let pool = Pool::new(threads);
        assert_eq!(pool.threads(), threads.max(1));
        for items in [0, 1, 2, 3, 100, 1001] {
            assert_eq!(sum_of(&pool, items), items * (items + 1) / 2);
        }
    }
}

#[test]
fn each_thread_begins_with_a_range_of_its_own() {
    let pool = Pool::new(2);
    let (meet, done, before) = (Barrier::new(2), AtomicUsize::new(0), AtomicUsize::new(0));
    pool.run(65, &|i| {
        // The first of the first thread's range and of the second's: neither goes on before the other is there.
        if i == 0 || i == 33 {
            before.fetch_add(done.load(Ordering::SeqCst), Ordering::SeqCst);
            meet.wait();
        }
        done.fetch_add(1, Ordering::SeqCst);
    });
    assert_eq!((before.into_inner(), done.into_inner()), (0, 65));
}

#[test]
fn many_small_runs() {
    let pool = Pool::new(2);
    (0..20_000).for_each(|_| assert_eq!(sum_of(&pool, 2), 3));
}

#[test]
fn sleeping_workers_wake_up() {
    let pool = Pool::new(3);
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(1));
        let seen = Mutex::new(std::collections::HashSet::new());
        pool.run(64, &|_| {
            lock(&seen).insert(thread::current().id());
            thread::sleep(Duration::from_micros(200));
        });
        assert!(lock(&seen).len() > 1);
    }
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
    for threads in [1, 2, 5] {
        let pool = Pool::new(threads);
        for bad in [0, 7, 63] {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                pool.run(64, &|i| assert!(i != bad, "item {i} is bad"));
            }));
            let message = caught.unwrap_err().downcast::<String>().unwrap();
            assert_eq!(*message, format!("item {bad} is bad"));
            assert_eq!(sum_of(&pool, 10), 55);
        }
    }
}

#[test]
fn callers_take_turns() {
    let pool = Pool::new(2);
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| (0..500).for_each(|n| assert_eq!(sum_of(&pool, n % 50), (n % 50) * (n % 50 + 1) / 2)));
        }
    });
}

#[test]
fn a_run_inside_a_run_is_done_on_the_spot() {
    let pool = Pool::new(2);
    let sum = AtomicUsize::new(0);
    pool.run(8, &|_| {
        sum.fetch_add(sum_of(&pool, 4), Ordering::Relaxed);
    });
    assert_eq!(sum.into_inner(), 80);
}

#[test]
fn chunks_and_stripes_cover_everything_once() {
    let pool = Pool::new(3);
    let mut v = vec![0_usize; 103];
    pool.chunks(&mut v, 10, &|i, part| part.iter_mut().enumerate().for_each(|(j, x)| *x += i * 10 + j + 1));
    assert!(v.iter().enumerate().all(|(i, &x)| x == i + 1));

    let (mut a, mut b) = (vec![0_usize; 4 * 21], vec![0_usize; 4 * 5]);
    let mut outs = [
        Matrix { values: &mut a, cols: 21 },
        Matrix { values: &mut [], cols: 0 },
        Matrix { values: &mut b, cols: 5 },
    ];
    pool.stripes(&mut outs, 8, &|which, col, stripe| {
        for r in 0..stripe.rows() {
            stripe
                .row(r)
                .iter_mut()
                .enumerate()
                .for_each(|(c, x)| *x += 1000 * which + 100 * r + col + c + 1);
        }
    });
    assert!(a.iter().enumerate().all(|(i, &x)| x == 100 * (i / 21) + i % 21 + 1));
    assert!(b.iter().enumerate().all(|(i, &x)| x == 2000 + 100 * (i / 5) + i % 5 + 1));
}

#[test]
fn dropping_ends_the_threads() {
    for _ in 0..50 {
        let pool = Pool::new(4);
        assert_eq!(sum_of(&pool, 4), 10);
    }
}
