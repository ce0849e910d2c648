//! `ogive quantize`: a model packed, or converted from a Hugging Face folder, or both.
//!
//! An existing file is not replaced unless told so: packing may take minutes, and what it would replace may be the only
//! copy of a model.

use crate::args::Context;
use crate::error::{Error, Result};
use crate::figures::{Bytes, Count};
use crate::options::{megabytes, progress, threads};
use crate::{files, output};
use ogive_quantize::{
    Facts, FileFormat, GgmlType, Importance, Input, Mix, Packed, Progress, Quantize, Rule, Shape, Summary,
    tensor_type,
};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Arguments of `ogive quantize`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// A GGUF file (of a split, the first part) or a Hugging Face folder; `ogive:demo` is Ogive's own model
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The GGUF file to write
    #[arg(value_name = "OUT", required_unless_present = "plan")]
    out: Option<PathBuf>,
    /// What to pack it as: llama.cpp's names, as in q4_k_m, q8_0 or f16; a wrong name lists all [default with --mmproj: f16]
    #[arg(short, long, value_name = "FORMAT", value_parser = FileFormat::find, required_unless_present = "mmproj")]
    format: Option<&'static FileFormat>,
    /// Packs what the model of a folder sees with, which is a file of its own beside the model's
    #[arg(long)]
    mmproj: bool,
    /// The format's own type for every matrix, with no better ones where it matters most
    #[arg(long)]
    pure: bool,
    /// The type of the head, as in q8_0
    #[arg(long, value_name = "TYPE", value_parser = tensor_type)]
    output_tensor_type: Option<GgmlType>,
    /// The type of the token embedding, and of the layers' own where there are such
    #[arg(long, value_name = "TYPE", value_parser = tensor_type)]
    token_embedding_type: Option<GgmlType>,
    /// The type of all tensors whose name the regular expression matches, as in 'attn_v=q8_0', or `keep`, which leaves them
    /// as they are; may be repeated, the first that matches counts
    #[arg(long, value_name = "PATTERN=TYPE", value_parser = written)]
    tensor_type: Vec<Written>,
    /// Packs by what columns count: an importance matrix of the model, as `ogive imatrix` and llama.cpp's llama-imatrix write them (GGUF, or
    /// the older .dat)
    #[arg(long, value_name = "FILE", conflicts_with = "mmproj")]
    imatrix: Option<PathBuf>,
    /// Packs what is packed already, which loses more than packing the original
    #[arg(long)]
    allow_requantize: bool,
    /// Replaces OUT if it is there
    #[arg(long)]
    force: bool,
    /// Threads [default: one for each logical CPU that this process may use]
    #[arg(short, long, value_name = "N", value_parser = threads())]
    threads: Option<usize>,
    /// Prints what every tensor would become and writes nothing
    #[arg(long)]
    plan: bool,
}

/// A rule and its text, to name it by.
#[derive(Clone, Debug)]
struct Written {
    text: String,
    rule: Rule,
}

fn written(text: &str) -> ogive_quantize::Result<Written> {
    Ok(Written { text: text.to_owned(), rule: text.parse()? })
}

impl Args {
    /// What is to be packed. Ogive's own model has a name and no path.
    fn open(&self) -> Result<Input> {
        Ok(match ogive::is_demo(&self.input) {
            _ if self.mmproj => Input::open_mmproj(&self.input)?,
            true => Input::from_gguf(ogive::open_gguf(&self.input)?, &self.input)?,
            false => Input::open(&self.input)?,
        })
    }

    fn quantize(&self) -> Result<Quantize> {
        let format = self.format.map_or_else(|| FileFormat::find("f16"), Ok)?;
        let all = Quantize::new(format)
            .pure(self.pure)
            .output_type(self.output_tensor_type)
            .embedding_type(self.token_embedding_type)
            .rules(self.tensor_type.iter().map(|r| r.rule.clone()).collect())
            .allow_requantize(self.allow_requantize)
            .overwrite(self.force);
        let all = match &self.imatrix {
            Some(path) => all.importance(Importance::open(path)?),
            None => all,
        };
        Ok(self.threads.into_iter().fold(all, |all, n| all.threads(n)))
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let quantize = args.quantize()?;
    let out = match (&args.out, args.plan) {
        (Some(out), false) => out,
        _ => return plan(args, &quantize, &args.open()?, context),
    };
    if ogive::is_demo(out) {
        let why = "this is the name of Ogive's own model; name a file";
        return Err(Error::failed(format_args!("writing {}: {why}", out.display())));
    }
    files::check(out, &args.input)?;
    if let Some(imatrix) = &args.imatrix {
        files::check(out, imatrix)?;
    }
    let input = args.open()?;
    let tensors = planned(&quantize, &input)?;
    check_rules(&args.tensor_type, &input, &tensors)?;
    warn(&quantize.wants_importance(&tensors), context);
    input.notes().iter().for_each(|note| context.note(note));
    let (start, patience) = (Instant::now(), context.interrupt.patience());
    let bar = progress(context, "packing", 0, " MB");
    let mut shown = None;
    let packed = quantize.save(&input, out, |Progress { tensor, index, count, written, total, .. }| {
        if shown.replace(*index) != Some(*index) {
            bar.set_message(format!(
                "{}/{count} {} {} to {}",
                index + 1,
                tensor.name,
                tensor.from,
                tensor.to
            ));
        }
        megabytes(&bar, *written, *total);
        !patience.over()
    });
    bar.finish_and_clear();
    let packed = match packed {
        Err(ogive_quantize::Error::Stopped) => return Err(Error::Interrupted),
        packed => packed?,
    };
    context.note(summary(args, &packed, std::fs::metadata(out)?.len(), start.elapsed()));
    match &packed.without_importance[..] {
        [] => {}
        [one] => {
            context.note(format_args!("the matrix has no importances of {one}, which was packed without"))
        }
        [first, rest @ ..] => context.note(format_args!(
            "the matrix has no importances of {first} and {} others, which were packed without",
            rest.len()
        )),
    }
    Ok(())
}

/// What every tensor would become, whether or not it may be packed again.
fn planned(quantize: &Quantize, input: &Input) -> Result<Vec<Packed>> {
    Ok(quantize.clone().allow_requantize(true).plan(input)?)
}

/// That tensors get few bits, and nothing says where these count. llama.cpp refuses it; but some formats of its list do badly without
/// importances and some well enough, and who measures, or packs random weights, has no use for a text.
fn warn(poor: &[&str], context: &Context) {
    if let [first, ..] = poor {
        context.note(format_args!(
            "{} tensors ({first} is the first) get so few bits that the model will be poor without an importance matrix of them: make one with \
             `ogive imatrix`, and give it by --imatrix, or take a larger format",
            poor.len()
        ));
    }
}

/// Prints the plan.
fn plan(args: &Args, quantize: &Quantize, input: &Input, context: &Context) -> Result<()> {
    let tensors = planned(quantize, input)?;
    check_rules(&args.tensor_type, input, &tensors)?;
    warn(&quantize.wants_importance(&tensors), context);
    input.notes().iter().for_each(|note| context.note(note));
    tensors.iter().try_for_each(line)?;
    if !args.allow_requantize && tensors.iter().any(|t| t.from != t.to && !t.from.is_plain()) {
        context.note("some of it is packed already: packing it again takes --allow-requantize");
    }
    Ok(())
}

/// That each rule is for a tensor at least, also where another one before it counts.
fn check_rules(rules: &[Written], input: &Input, tensors: &[Packed]) -> Result<()> {
    let shapes: Vec<Shape<'_>> = tensors.iter().map(|t| (&*t.name, &*t.dims)).collect();
    let types = Mix::new(FileFormat::find("q8_0")?).choose(&Facts::of(input.metadata()), &shapes)?;
    let packed = shapes.iter().zip(types).filter(|(_, ty)| ty.is_some()).map(|((name, _), _)| *name);
    let packed: Vec<&str> = packed.collect();
    let Some(Written { text, .. }) = rules.iter().find(|r| !packed.iter().any(|name| r.rule.matches(name)))
    else {
        return Ok(());
    };
    Err(Error::failed(format_args!(
        "--tensor-type {text}: no tensor that is packed has a name that it matches; there are {} and others (--plan lists them)",
        packed.iter().take(3).copied().collect::<Vec<_>>().join(", ")
    )))
}

/// A tensor of the plan.
fn line(t: &Packed) -> Result<()> {
    let shape: Vec<String> = t.dims.iter().rev().map(u64::to_string).collect();
    let (from, to) = (t.from.name().to_lowercase(), t.to.name().to_lowercase());
    output::line(format_args!(
        "{:<40} {:>20} {from:>7} {to:>7} {:>11}",
        t.name,
        shape.join("x"),
        Bytes(t.bytes())
    ))
}

/// Sizes, bits, types and time.
fn summary(args: &Args, packed: &Summary, bytes: u64, time: Duration) -> String {
    let mut types: Vec<(GgmlType, usize)> = Vec::new();
    for t in &packed.tensors {
        match types.iter_mut().find(|(ty, _)| *ty == t.to) {
            Some((_, n)) => *n += 1,
            None => types.push((t.to, 1)),
        }
    }
    types.sort_by_key(|(ty, n)| (std::cmp::Reverse(*n), ty.id()));
    let types: Vec<String> =
        types.iter().map(|(ty, n)| format!("{n} {}", ty.name().to_lowercase())).collect();
    let elements = packed.tensors.iter().map(Packed::elements).sum();
    let seconds = time.as_secs_f64();
    format!(
        "{}: {} became {} ({:.2} bits a weight) in {seconds:.1} s; {} weights in {} tensors: {}",
        args.out.as_deref().unwrap_or(&args.input).display(),
        Bytes(packed.bytes_before),
        Bytes(bytes),
        packed.bits_per_weight(),
        Count(elements),
        packed.tensors.len(),
        types.join(", "),
    )
}
