//! Runs, panics, turns, pieces, and the end of a pool.

use super::{run::Compute, *};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Barrier,
};

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
fn who_must_not_wait_works_alone_where_another_has_the_pool() {
    let pool = Pool::new(2);
    let (begun, over) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|s| {
        s.spawn(|| {
            pool.run(2, &|i| {
                if i == 0 {
                    begun.wait();
                    // Until the other has done its own work, which would be for ever if it waited for this.
                    over.wait();
                }
            });
        });
        begun.wait();
        let here = thread::current().id();
        let mut v = vec![0_usize; 100];
        pool.chunks_unless_busy(&mut v, 7, &|i, part| {
            assert_eq!(thread::current().id(), here);
            part.fill(i + 1);
        });
        assert!(v.iter().enumerate().all(|(i, x)| *x == i / 7 + 1));
        over.wait();
    });
    let sum = AtomicUsize::new(0);
    pool.run_unless_busy(100, &|i| {
        sum.fetch_add(i, Ordering::Relaxed);
    });
    assert_eq!(sum.into_inner(), 4950);
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
}

#[test]
fn stripes_cover_every_matrix_once() {
    for threads in [1, 3] {
        let pool = Pool::new(threads);
        let (mut a, mut b) = (vec![0.0; 4 * 21], vec![0.0; 4 * 5]);
        let mut outs = [
            Matrix { values: &mut a, cols: 21 },
            Matrix { values: &mut [], cols: 0 },
            Matrix { values: &mut b, cols: 5 },
        ];
        let fill = |which: usize, col: usize, stripe: &mut Stripe<'_>| {
            for r in 0..4 {
                let value = |c| (1000 * which + 100 * r + col + c + 1) as f32;
                stripe.row(r).iter_mut().enumerate().for_each(|(c, x)| *x = value(c));
            }
        };
        pool.stripes(&mut outs, 8, fill);
        assert!(a.iter().enumerate().all(|(i, &x)| x == (100 * (i / 21) + i % 21 + 1) as f32));
        assert!(b.iter().enumerate().all(|(i, &x)| x == (2000 + 100 * (i / 5) + i % 5 + 1) as f32));
    }
}

/// A door that opens once.
#[derive(Default)]
struct Door(Mutex<bool>, Condvar);

impl Door {
    fn open(&self) {
        *lock(&self.0) = true;
        self.1.notify_all();
    }

    fn wait(&self) {
        let mut open = lock(&self.0);
        while !*open {
            open = self.1.wait(open).unwrap();
        }
    }
}

/// Squares, of which thread `held`'s first waits for the door.
fn squares(door: &Arc<Door>, held: &'static str) -> Arc<Compute> {
    let (door, computed) = (Arc::clone(door), AtomicUsize::new(0));
    Arc::new(move |i, result| {
        if thread::current().name() == Some(held) && computed.fetch_add(1, Ordering::SeqCst) == 0 {
            door.wait();
        }
        result.clear();
        result.push((i * i) as f32);
    })
}

/// What is put down of `items`, and how often.
fn put_down(pool: &Pool, items: usize, compute: Arc<Compute>) -> (Vec<f32>, usize) {
    let (values, count) = (Mutex::new(vec![-1.0; items]), AtomicUsize::new(0));
    pool.compute(items, compute, &|i, result| {
        lock(&values)[i] = result[0];
        count.fetch_add(1, Ordering::SeqCst);
    });
    (values.into_inner().unwrap(), count.into_inner())
}

#[test]
fn nobody_waits_for_a_thread_that_is_held_up_in_what_others_can_compute() {
    for threads in [2, 4] {
        let pool = Pool::new(threads);
        let want = |items: usize| (0..items).map(|i| (i * i) as f32).collect::<Vec<_>>();
        for round in 0..20 {
            let (items, door) = (2 + round * 13, Arc::new(Door::default()));
            let compute = squares(&door, "ogive-cpu-1");
            let alive = Arc::downgrade(&compute);
            assert_eq!(put_down(&pool, items, compute), (want(items), items));
            // Runs of either kind go on without that thread, if it was there at all.
            for n in 0..50 {
                assert_eq!(sum_of(&pool, n), n * (n + 1) / 2);
                let free = squares(&Arc::default(), "nobody");
                assert_eq!(put_down(&pool, n, free), (want(n), n));
            }
            door.open();
            // It drops what it had when it is through, and takes part again.
            while alive.strong_count() > 0 {
                thread::yield_now();
            }
        }
    }
}

#[test]
fn a_caller_that_made_one_item_makes_the_other_too() {
    let pool = Pool::new(2);
    let [begun, held] = [(); 2].map(|()| Arc::new(Door::default()));
    let (opens, waits) = (Arc::clone(&begun), Arc::clone(&held));
    let compute = move |i: usize, result: &mut Vec<f32>| {
        if thread::current().name() == Some("ogive-cpu-1") {
            opens.open();
            waits.wait();
        } else if i == 0 {
            begun.wait();
        }
        result.clear();
        result.push((i * i) as f32);
    };
    assert_eq!(put_down(&pool, 2, Arc::new(compute)), (vec![0.0, 1.0], 2));
    held.open();
}

#[test]
fn a_panic_in_what_is_computed_reaches_the_caller_too() {
    for threads in [1, 2, 5] {
        let pool = Pool::new(threads);
        for bad in [0, 7, 63] {
            let compute = move |i: usize, result: &mut Vec<f32>| {
                assert!(i != bad, "item {i} is bad");
                result.clear();
                result.push(0.0);
            };
            let caught = catch_unwind(AssertUnwindSafe(|| put_down(&pool, 64, Arc::new(compute))));
            assert_eq!(*caught.unwrap_err().downcast::<String>().unwrap(), format!("item {bad} is bad"));
            let put = |i: usize, _: &[f32]| assert!(i != bad, "item {i} cannot be put down");
            let ok = squares(&Arc::default(), "nobody");
            let caught = catch_unwind(AssertUnwindSafe(|| pool.compute(64, ok, &put)));
            let message = caught.unwrap_err().downcast::<String>().unwrap();
            assert_eq!(*message, format!("item {bad} cannot be put down"));
            assert_eq!(sum_of(&pool, 10), 55);
        }
    }
}

#[test]
fn nothing_is_kept_of_a_run_that_is_over() {
    let pool = Pool::new(2);
    for items in [0, 1, 2, 100] {
        let compute = squares(&Arc::default(), "nobody");
        let alive = Arc::downgrade(&compute);
        put_down(&pool, items, compute);
        // A thread of a machine that is busy may have been left behind.
        while alive.strong_count() > 0 {
            thread::yield_now();
        }
    }
}

#[test]
fn dropping_ends_the_threads() {
    for _ in 0..50 {
        let pool = Pool::new(4);
        assert_eq!(sum_of(&pool, 4), 10);
    }
}

/// Prints what a fork and its join cost beside the same work on one thread, medians of forty times two thousand.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stdout, reason = "a measurement")]
fn fork_speed() {
    const WIDTH: usize = 64;
    let pool = Pool::new(2);
    let w: Arc<Vec<f32>> = Arc::new((0..4096).map(|i| i as f32).collect());
    let sum = |w: &[f32]| {
        let sums = w
            .as_chunks::<16>()
            .0
            .iter()
            .fold([0.0; 16], |s: [f32; 16], c| std::array::from_fn(|i| s[i] + c[i]));
        sums.iter().sum::<f32>()
    };
    let measure = |f: &mut dyn FnMut()| {
        let mut times: Vec<_> = (0..40)
            .map(|_| {
                let began = Instant::now();
                (0..2000).for_each(|_| f());
                began.elapsed().as_nanos() / 2000
            })
            .collect();
        times.sort_unstable();
        times[20]
    };
    for (items, len) in [(8, 0), (8, 1024), (16, 1024), (8, 4096), (16, 4096), (40, 4096)] {
        let mut out = vec![0.0; items * WIDTH];
        let alone = measure(&mut || {
            out.chunks_mut(WIDTH).for_each(|out| out.fill(sum(&w[..len])));
            std::hint::black_box(&mut out);
        });
        let run = measure(&mut || pool.chunks(&mut out, WIDTH, &|_, out| out.fill(sum(&w[..len]))));
        let stripes = measure(&mut || {
            let w = Arc::clone(&w);
            let fill = move |_, _, stripe: &mut Stripe<'_>| stripe.values().fill(sum(&w[..len]));
            pool.stripes(&mut [Matrix { values: &mut out, cols: items * WIDTH }], WIDTH, fill);
        });
        println!("{items} items of {len}: alone {alone} ns, run {run} ns, stripes {stripes} ns");
    }
}
