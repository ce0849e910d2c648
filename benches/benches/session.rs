//! What it takes to keep a session of 2,048 tokens in a file, and to take it up again.
//! `OGIVE_BENCH_MODEL=llama-3.2-1b-q4_k_m.gguf cargo bench -p ogive-benches --bench session`
//!
//! The model is any; `ogive synth --shape llama-3.2-1b --format q4_k_m FILE` makes that one. Both times are told by the clock and by this
//! thread's own time, for what one is without the other is the disk.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use ogive::{Generate, Options};
use ogive_benches::own_time;
use std::time::{Duration, Instant};

const TOKENS: usize = 2048;
const RUNS: usize = 5;

fn main() {
    let Some(path) = std::env::var_os("OGIVE_BENCH_MODEL") else {
        println!("skipped: OGIVE_BENCH_MODEL names no model");
        return;
    };
    let model = Options::new().context(TOKENS + 2).open(path).unwrap();
    let prompt: Vec<u32> = (0..TOKENS as u32).map(|i| i % 1000 + 100).collect();
    let mut session = model.session().unwrap();
    session.generate(prompt, &Generate::new().max_tokens(1)).unwrap().text().unwrap();
    let file = std::env::temp_dir().join(format!("ogive-bench-{}.session", std::process::id()));
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..RUNS {
        times[0].push(timed(|| session.save(&file).unwrap()));
        times[1].push(timed(|| assert_eq!(model.load_session(&file).unwrap().tokens().len(), TOKENS + 1)));
    }
    let bytes = std::fs::metadata(&file).unwrap().len();
    std::fs::remove_file(&file).unwrap();
    println!("a session of {TOKENS} tokens: {:.1} MB", bytes as f64 / 1e6);
    for (name, times) in ["save", "load"].iter().zip(&mut times) {
        let [clock, own] = [0, 1].map(|of| {
            times.sort_by_key(|t| t[of]);
            let ms = |t: &[Duration; 2]| 1e3 * t[of].as_secs_f64();
            format!("{:.1} ms ({:.1} to {:.1})", ms(&times[RUNS / 2]), ms(&times[0]), ms(&times[RUNS - 1]))
        });
        println!("{name}: {clock} by the clock, {own} of this thread's own time");
    }
}

/// By the clock, and of this thread's own time.
fn timed(f: impl FnOnce()) -> [Duration; 2] {
    let (clock, own) = (Instant::now(), own_time());
    f();
    let own = own_time().zip(own).map_or(Duration::ZERO, |(now, then)| now.saturating_sub(then));
    [clock.elapsed(), own]
}
