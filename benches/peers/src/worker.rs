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
    for line in io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split(' ');
        let what = words.next().unwrap_or_default();
        let numbers = words.map(str::parse).collect::<Result<Vec<usize>, _>>()?;
        let &[past, sequences, n] = &numbers[..] else {
            return Err("a command is a word and three numbers".into());
        };
        let vocabulary = running.vocabulary();
        let (seconds, first) = match what {
            "prefill" => running.prefill(&tokens(past, 1, vocabulary))?,
            "decode" => running.decode(&tokens(past, 1, vocabulary), n)?,
            "together" => {
                running.clear()?;
                let prompts: Vec<_> = (1..=sequences).map(|s| tokens(past, s, vocabulary)).collect();
                // The first token has been compared already.
                (running.together(&prompts, n)?, 0)
            }
            _ => return Err(format!("the command `{what}` is not known").into()),
        };
        answer(&format!("{seconds}\t{first}"))?;
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
    /// Seconds to read a prompt and have the logits of its last token, and the best token.
    fn prefill(&mut self, ids: &[u32]) -> Result<(f64, u32)> {
        self.clear()?;
        let start = Instant::now();
        let token = self.forward(ids)?;
        Ok((start.elapsed().as_secs_f64(), token))
    }

    /// Seconds to draw `n` tokens one after the other, always the best, once the prompt is read; and the
    /// token drawn before the first of them.
    fn decode(&mut self, prompt: &[u32], n: usize) -> Result<(f64, u32)> {
        self.clear()?;
        let first = self.forward(prompt)?;
        let mut token = first;
        let start = Instant::now();
        for _ in 0..n {
            token = self.forward(&[token])?;
        }
        Ok((start.elapsed().as_secs_f64(), first))
    }
}
