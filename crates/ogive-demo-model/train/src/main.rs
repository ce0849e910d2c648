//! Makes Ogive's own model: text, vocabulary, training, file, report.
//!
//! `cargo run --release` does all of it and writes `../model.gguf`; the options change the recipe, and with it the model.

mod attention;
mod corpus;
mod math;
mod model;
mod optimizer;
mod pack;
mod report;
mod rng;
mod shape;
mod train;
mod vocabulary;

use corpus::Corpus;
use model::Model;
use ogive::tokenizer::Tokenizer;
use optimizer::Rates;
use rng::Rng;
use shape::SHAPE;
use std::error::Error;
use std::path::{Path, PathBuf};
use train::Plan;

const USAGE: &str = "options, with what the committed model was made with:
  --steps 4000       steps in all
  --level 1000       of these, at full rates
  --seed 1           of texts and first weights
  --tokens 3072      tokens in a step, about
  --adam 0.002       rate of embeddings and norms
  --muon 0.008       rate of matrices
  --threads 1        1 or 2; the weights do not depend on it
  --work work        folder of the checkpoint; a run goes on from it
  --out ../model.gguf
  --report FILE      trains nothing and says what FILE can do
  --texts N          prints N of the texts to learn from, and nothing else";

fn main() -> Result<(), Box<dyn Error>> {
    let (mut work, mut out) = (PathBuf::from("work"), PathBuf::from("../model.gguf"));
    let mut plan = Plan {
        seed: 1,
        steps: 4000,
        level: 1000,
        tokens: 3072,
        rates: Rates { adam: 0.002, muon: 0.008 },
        threads: 1,
        checkpoint: PathBuf::new(),
    };
    let corpus = Corpus::new();
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args.next().ok_or(USAGE)?;
        match &*name {
            "--steps" => plan.steps = value.parse()?,
            "--level" => plan.level = value.parse()?,
            "--seed" => plan.seed = value.parse()?,
            "--tokens" => plan.tokens = value.parse()?,
            "--adam" => plan.rates.adam = value.parse()?,
            "--muon" => plan.rates.muon = value.parse()?,
            "--threads" => plan.threads = value.parse()?,
            "--work" => work = value.into(),
            "--out" => out = value.into(),
            "--report" => return report::print(Path::new(&value), &corpus, plan.seed),
            "--texts" => {
                (0..value.parse()?)
                    .for_each(|i| println!("{}\n", corpus.plain(&mut Rng::of(plan.seed, 0, i))));
                return Ok(());
            }
            _ => return Err(USAGE.into()),
        }
    }
    std::fs::create_dir_all(&work)?;
    plan.checkpoint = work.join("checkpoint");
    let model = Model::new(SHAPE);
    let vocabulary = vocabulary::metadata(&corpus, plan.seed, SHAPE.vocab);
    let tokenizer = Tokenizer::from_gguf(&vocabulary)?;
    eprintln!("{} weights, {} tokens", model.layout.len, tokenizer.vocab_size());
    let latest = work.join("latest.gguf");
    let weights = train::run(&model, &corpus, &tokenizer, &plan, |step, w| {
        if step.is_multiple_of(200) { pack::write(&latest, &model, &vocabulary, w) } else { Ok(()) }
    })?;
    pack::write(&out, &model, &vocabulary, &weights)?;
    println!("{}: {} bytes", out.display(), out.metadata()?.len());
    report::print(&out, &corpus, plan.seed)
}
