//! `ogive bench`: tokens per second.
//!
//! Prompts are random tokens and every draw takes the best, so that nothing but the model is measured. One unmeasured
//! run of each kind goes first; what is told is the median of the others, for a machine that does something else for a
//! moment makes a mean worthless.

mod guesses;
mod measure;
mod trace;
mod traffic;

use crate::args::Context;
use crate::error::{Error, Result};
use crate::figures::{Bytes, Spread};
use crate::options::{Machine, ModelPath, check_plain, progress};
use crate::output;
use measure::{Bench, Load, Window};
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use trace::Traced;
use traffic::Traffic;

/// Arguments of `ogive bench`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelPath,
    #[command(flatten)]
    machine: Machine,
    /// Tokens of the prompt that is read; 0 measures no prefill
    #[arg(short, long, value_name = "N", default_value_t = 512)]
    prompt: usize,
    /// Tokens that are drawn for each sequence; 0 measures no decode
    #[arg(short = 'n', long, value_name = "N", default_value_t = 128)]
    tokens: usize,
    /// Tokens that each sequence has before
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    depth: usize,
    /// Sequences that decode together
    #[arg(short = 'b', long, value_name = "N", default_value = "1")]
    sequences: NonZeroUsize,
    /// Also decodes with up to N guessed tokens in a step, for all sequences together, all of them right or all wrong: the most and the least that
    /// --model-draft and --lookup of `ogive run` bring
    #[arg(long, value_name = "N")]
    guesses: Option<NonZeroUsize>,
    /// Measurements of each kind
    #[arg(short, long, value_name = "N", default_value = "5")]
    repetitions: NonZeroUsize,
    /// Also says where the time goes: each operator of a step, and how near it is to what the machine can do
    #[arg(long)]
    trace: bool,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let path = args.model.get(context);
    if args.prompt == 0 && args.tokens == 0 {
        return Err(Error::Usage("there is nothing to measure: -p and -n are both 0".into()));
    }
    if let Some(guesses) = args.guesses.filter(|n| *n < args.sequences) {
        let why = format!("--guesses {guesses} is less than one for each of {} sequences", args.sequences);
        return Err(Error::Usage(why));
    }
    check_plain(path, "measured")?;
    let load = Load {
        prompt: args.prompt,
        tokens: args.tokens,
        depth: args.depth,
        sequences: args.sequences.get(),
        element: args.machine.element(),
    };
    let limit = load
        .context()
        .ok_or_else(|| Error::Usage("so many tokens cannot be counted; ask for fewer".into()))?;
    // What is measured is how fast it stays.
    let options = args.machine.options_to_measure(limit)?.sequences(args.sequences.get());
    let model = Machine::open_with(&options, path, context)?;
    if let Some(trained) = model.config().opt_usize("max_position_embeddings")?.filter(|t| limit > *t) {
        let what = format_args!("sequences of {limit} tokens, {trained} of which the model was made for");
        context.note(format_args!("measuring {what}: times hold for such a length, answers would not"));
    }
    if args.trace {
        trace::cpu(&model)?;
    }
    let traffic = Traffic::of(path, &model, &load)?;
    let mut bench = Bench::new(&model, load)?;
    let Rates { prefill, decode, right, wrong } = measure(&mut bench, args, context)?;
    drop(bench);
    let traced = args.trace.then(|| Traced::measure(&model, load, args)).transpose()?;
    let reads = decode.map(|d| traffic.gigabytes_per_second(d.median, args.sequences.get()));
    if args.json {
        let mut all = json!({
            "model": path.to_string_lossy(),
            "architecture": model.architecture(),
            "device": model.backend().facts().name,
            "about": model.backend().facts().description,
            "prompt": args.prompt,
            "tokens": args.tokens,
            "depth": args.depth,
            "sequences": args.sequences,
            "repetitions": args.repetitions,
            "prefill_tokens_per_second": spread(prefill),
            "decode_tokens_per_second": spread(decode),
            "weight_bytes_per_step": traffic.weights,
            "cache_bytes_per_token": traffic.cache,
            "bytes_per_token": traffic.per_token(args.sequences),
            "decode_gigabytes_per_second": reads,
        });
        if let Some(guesses) = args.guesses {
            all["guesses"] = json!(guesses);
            for (kind, guessed) in [("right", &right), ("wrong", &wrong)] {
                let [drafted, accepted] = guessed.guesses;
                all[format!("decode_guessed_{kind}_tokens_per_second")] = spread(guessed.rate);
                all[format!("guessed_{kind}")] = json!({ "drafted": drafted, "accepted": accepted });
            }
        }
        if let Some(traced) = &traced {
            all["trace"] = traced.json();
        }
        return output::line(all);
    }
    output::line(format_args!(
        "{:<8} {:>7} {:>7} {:>9} {:>12} {:>10} {:>10}",
        "", "tokens", "depth", "sequences", "tokens/s", "min", "max"
    ))?;
    let sequences = args.sequences.get();
    for (name, tokens, sequences, spread) in [
        ("prefill", args.prompt, 1, prefill),
        ("decode", args.tokens, sequences, decode),
        ("..right", args.tokens, sequences, right.rate),
        ("..wrong", args.tokens, sequences, wrong.rate),
    ] {
        let Some(Spread { median, min, max }) = spread else { continue };
        let depth = args.depth;
        output::line(format_args!(
            "{name:<8} {tokens:>7} {depth:>7} {sequences:>9} {median:>12.2} {min:>10.2} {max:>10.2}"
        ))?;
    }
    if right.rate.is_some() {
        let [of_right, of_wrong] =
            [right, wrong].map(|Guessed { guesses: [all, right], .. }| format!("{right} of {all}"));
        output::line(format_args!(
            "of guesses {of_right} were right where all should be, {of_wrong} where none should be"
        ))?;
    }
    if let Some(reads) = reads {
        let all = Bytes(traffic.per_token(args.sequences));
        let (weights, cache) = (Bytes(traffic.weights), Bytes(traffic.cache));
        let share = match args.sequences.get() {
            1 => String::new(),
            n => format!(" for {n} tokens"),
        };
        output::line(format_args!(
            "decode reads {all} a token (weights {weights}{share}, cache {cache}): {reads:.2} GB/s"
        ))?;
    }
    match traced {
        Some(traced) => output::line(format_args!("\n{}", traced.table())),
        None => Ok(()),
    }
}

/// Tokens a second, of what is asked for.
struct Rates {
    prefill: Option<Spread>,
    decode: Option<Spread>,
    /// Decoding where every guess is right.
    right: Guessed,
    /// Where every guess is wrong.
    wrong: Guessed,
}

/// Tokens a second with guesses.
struct Guessed {
    rate: Option<Spread>,
    /// Guesses of one run, and how many of them were right: on a GPU a step of several tokens may round otherwise than one of one.
    guesses: [u64; 2],
}

fn measure(bench: &mut Bench, args: &Args, context: &Context) -> Result<Rates> {
    let each = args.repetitions.get();
    let guesses = args.guesses.filter(|_| args.tokens > 0).map_or(0, NonZeroUsize::get);
    let kinds = u64::from(args.prompt > 0) + u64::from(args.tokens > 0) + 2 * u64::from(guesses > 0);
    let bar = progress(context, "measuring", kinds * (each as u64 + 1), " runs");
    let series = |wanted: bool, run: &mut dyn FnMut() -> Result<Window>| {
        let mut rates = Vec::new();
        for i in 0..if wanted { each + 1 } else { 0 } {
            let rate = run()?.rate();
            bar.inc(1);
            if i > 0 {
                rates.push(rate);
            }
        }
        Ok::<_, Error>(Spread::of(rates))
    };
    let prefill = series(args.prompt > 0, &mut || bench.prefill())?;
    let decode = series(args.tokens > 0, &mut || bench.decode())?;
    let mut guessed = |right| {
        let rate = series(guesses > 0, &mut || bench.decode_guessed(guesses, right))?;
        Ok::<_, Error>(Guessed { rate, guesses: bench.guesses })
    };
    let (right, wrong) = (guessed(true)?, guessed(false)?);
    bar.finish_and_clear();
    Ok(Rates { prefill, decode, right, wrong })
}

fn spread(spread: Option<Spread>) -> Value {
    spread.map_or(Value::Null, |s| json!({ "median": s.median, "min": s.min, "max": s.max }))
}
