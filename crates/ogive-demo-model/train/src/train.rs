//! The run: batches, steps, rates, and a checkpoint to go on from.
//!
//! A step's texts are cut in a fixed number of shards, whose gradients are summed in their order. So threads change the time and
//! not the weights.

use crate::corpus::Corpus;
use crate::model::{Batch, Model};
use crate::optimizer::{Rates, State};
use crate::rng::Rng;
use ogive::tokenizer::Tokenizer;
use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{fs, io, thread};

/// Parts of a step that may run at once.
const SHARDS: usize = 2;
/// A name or a thing that stands again in a story counts so much. Most words of a story are easy and say little about that;
/// without it, a model that writes well long goes on changing names.
const REPEATS: f32 = 4.0;
/// Streams of random numbers: the vocabulary's texts have 0.
const WEIGHTS: u64 = 1;
const TEXTS: u64 = 2;
/// Texts nobody has trained on.
pub(crate) const HELD_OUT: u64 = 3;

/// What decides the weights, and where the run keeps its checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) steps: u64,
    /// Steps at full rates.
    pub(crate) level: u64,
    /// Tokens in a step, about.
    pub(crate) tokens: usize,
    pub(crate) rates: Rates,
    pub(crate) threads: usize,
    pub(crate) checkpoint: PathBuf,
}

impl Plan {
    /// Up in fifty steps, level until `level`, then evenly down to nothing. A step has few tokens, so high rates learn fast and
    /// soon learn no more for noise: what is fine, such as one name throughout a story, comes with the low ones.
    fn rates(&self, step: u64) -> Rates {
        let left = (self.steps - step) as f32 / self.steps.saturating_sub(self.level).max(1) as f32;
        let part = if step < self.level { ((step + 1) as f32 / 50.0).min(1.0) } else { left };
        Rates { adam: self.rates.adam * part, muon: self.rates.muon * part }
    }
}

fn initial(model: &Model, seed: u64) -> Vec<f32> {
    let mut w = vec![0.0; model.layout.len];
    for (i, t) in (0..).zip(&model.layout.tensors) {
        let mut rng = Rng::of(seed, WEIGHTS, i);
        // What adds to the residual stream begins at nothing, norms at one.
        let adds = t.name.ends_with("attn_output.weight") || t.name.ends_with("ffn_down.weight");
        let std = if adds {
            0.0
        } else if t.is_hidden_matrix() {
            1.0 / (t.cols as f32).sqrt()
        } else {
            0.05
        };
        for w in &mut w[t.range()] {
            *w = if t.rows == 1 { 1.0 } else { std * rng.normal() };
        }
    }
    w
}

/// Loss and gradients of one step's shards, on as many threads as there may be.
fn gradients(model: &Model, w: &[f32], shards: &[Batch], threads: usize) -> (f64, Vec<f32>) {
    let counted: f32 = shards.iter().flat_map(|b| &b.weights).sum();
    let one = |batch: &Batch| {
        let mut g = vec![0.0; w.len()];
        let loss = model.loss(w, batch, 1.0 / counted, Some(&mut g));
        (loss, g)
    };
    let parts: Vec<(f64, Vec<f32>)> = if threads < 2 {
        shards.iter().map(one).collect()
    } else {
        thread::scope(|s| {
            let running: Vec<_> = shards.iter().map(|b| s.spawn(|| one(b))).collect();
            running.into_iter().map(|r| r.join().expect("a shard was computed")).collect()
        })
    };
    let mut parts = parts.into_iter();
    let (mut loss, mut sum) = parts.next().expect("there is a shard");
    for (l, g) in parts {
        loss += l;
        sum.iter_mut().zip(&g).for_each(|(s, g)| *s += g);
    }
    (loss / f64::from(counted), sum)
}

/// Trains to the end of the plan, from the checkpoint if there is one; gives the weights. `look` is shown them now and then.
pub(crate) fn run(
    model: &Model,
    corpus: &Corpus,
    tokenizer: &Tokenizer,
    plan: &Plan,
    mut look: impl FnMut(u64, &[f32]) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<Vec<f32>, Box<dyn std::error::Error>> {
    let mut w = initial(model, plan.seed);
    let mut state = State::new(w.len());
    if plan.checkpoint.exists() {
        read(&plan.checkpoint, &mut w, &mut state)?;
        eprintln!("going on after step {}", state.step);
    }
    let (mut seen, mut losses, mut start) = (0, Vec::new(), Instant::now());
    while state.step < plan.steps {
        let step = state.step;
        let size = (plan.tokens / SHARDS, model.shape.context);
        let shards = (0..SHARDS as u64)
            .map(|i| {
                let mut rng = Rng::of(plan.seed, TEXTS, step * SHARDS as u64 + i);
                corpus.batch(tokenizer, size, REPEATS, &mut rng)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let (loss, mut g) = gradients(model, &w, &shards, plan.threads);
        state.step(&model.layout, &mut w, &mut g, plan.rates(step));
        seen += shards.iter().map(|b| b.tokens.len()).sum::<usize>();
        losses.push(loss);
        if state.step.is_multiple_of(10) || state.step == plan.steps {
            let mean = losses.iter().sum::<f64>() / losses.len() as f64;
            let rate = seen as f64 / start.elapsed().as_secs_f64();
            eprintln!("step {:5}  loss {mean:.4}  {rate:.0} tokens/s", state.step);
            (seen, start) = (0, Instant::now());
            losses.clear();
        }
        if state.step.is_multiple_of(50) || state.step == plan.steps {
            write(&plan.checkpoint, &w, &state)?;
            look(state.step, &w)?;
        }
    }
    Ok(w)
}

fn write(path: &Path, w: &[f32], state: &State) -> io::Result<()> {
    let mut bytes = state.step.to_le_bytes().to_vec();
    for values in [w, &state.first, &state.second] {
        bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    }
    let new = path.with_extension("new");
    fs::write(&new, bytes)?;
    fs::rename(new, path)
}

fn read(path: &Path, w: &mut [f32], state: &mut State) -> io::Result<()> {
    let wrong =
        || io::Error::other(format!("{}: this is no checkpoint of this model; remove it", path.display()));
    let bytes = fs::read(path)?;
    let (step, values) = bytes.split_first_chunk().ok_or_else(wrong)?;
    if values.len() != w.len() * 12 {
        return Err(wrong());
    }
    state.step = u64::from_le_bytes(*step);
    let mut values = values.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    for part in [w, &mut state.first, &mut state.second] {
        part.iter_mut().zip(&mut values).for_each(|(p, v)| *p = v);
    }
    Ok(())
}
