//! A process that runs one engine: it reads commands from stdin, a line each, and answers with seconds.

use crate::Result;
use crate::engines::{self, Running, Start};
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::time::Instant;

/// Serves until stdin ends.
pub(crate) fn run(engine: &str, model: &Path, how: &Start) -> Result<()> {
    let start = Instant::now();
    let mut running = engines::open(engine, model, how)?;
    answer(&format!("{}\t{}", start.elapsed().as_secs_f64(), running.about()))?;
    let mut last = 0;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split(' ');
        let what = words.next().unwrap_or_default();
        let numbers = words.map(str::parse).collect::<Result<Vec<usize>, _>>()?;
        let &[past, sequences, n] = &numbers[..] else {
            return Err("a command is a word and three numbers".into());
        };
        let vocabulary = running.vocabulary();
        let seconds = match what {
            "prefill" => running.prefill(&tokens(past, 1, vocabulary), &mut last)?,
            "decode" => running.decode(n, &mut last)?,
            "together" => {
                running.clear()?;
                let prompts: Vec<_> = (1..=sequences).map(|s| tokens(past, s, vocabulary)).collect();
                running.together(&prompts, n)?
            }
            _ => return Err(format!("the command `{what}` is not known").into()),
        };
        answer(&format!("{seconds}\t{last}"))?;
    }
    Ok(())
}

fn answer(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// The same tokens for every engine.
fn tokens(n: usize, seed: usize, vocabulary: usize) -> Vec<u32> {
    // Knuth's multiplier spreads them over the vocabulary.
    (1..=n as u64).map(|i| ((i * seed as u64 * 2_654_435_761) % vocabulary.max(1) as u64) as u32).collect()
}

/// What the engines have in common is here, so that they are measured alike.
impl dyn Running {
    /// Seconds to read a prompt and have the logits of its last token; the best token is `last`.
    fn prefill(&mut self, ids: &[u32], last: &mut u32) -> Result<f64> {
        self.clear()?;
        let start = Instant::now();
        *last = self.forward(ids)?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Seconds to draw `n` more tokens one after the other, always the best; the first comes after `last`.
    fn decode(&mut self, n: usize, last: &mut u32) -> Result<f64> {
        let start = Instant::now();
        for _ in 0..n {
            *last = self.forward(&[*last])?;
        }
        Ok(start.elapsed().as_secs_f64())
    }
}
