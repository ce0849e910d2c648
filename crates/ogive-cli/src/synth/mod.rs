//! Random weights under a real model's shapes, with a working vocabulary: for measuring, and for first steps without a
//! download.
//!
//! The file is one that a converter and a quantiser could have written, so every program that reads GGUF can be measured
//! on it. The same shape, format and seed give the same bytes, on any number of threads. Weights are made in chunks of
//! about a megabyte, in parallel, and written in order, so memory stays small whatever the model's size.

mod blocks;
mod family;
mod gemma4;
mod metadata;
mod plan;
mod rng;
mod shapes;
#[cfg(test)]
mod tests;
mod text;
mod vocabulary;

use ogive::weights::gguf_file::{GgmlType, GgufWriter};
use ogive_quantize::FileFormat;
use plan::{Fill, TensorPlan, plan};
use rng::Rng;
use shapes::{SHAPES, Shape};
use std::{ops::Range, path::Path, sync::mpsc, thread};

/// Bytes that are made at once, about. Part of what a seed means: another number, other weights.
const CHUNK: u64 = 1 << 20;

/// Why a model was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// No shape of that name.
    #[error("making a model: the shape `{name}` is not known; known are {known}")]
    Shape {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// No format of that name.
    #[error("making a model: the format `{name}` is not known; known are {known}")]
    Format {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The file could not be written.
    #[error("making a model: {0}")]
    Write(#[from] ogive::weights::gguf_file::Error),
    /// The caller wanted no more of it.
    #[error("making a model: stopped before it was whole; nothing was left")]
    Stopped,
    /// A thread ended before its work was done.
    #[error("making a model: a thread ended early; this is a bug, please report it")]
    Thread,
}

/// The formats whose blocks can be drawn at random, mixed as `ogive quantize` mixes them.
const FORMATS: [&str; 10] =
    ["f32", "f16", "bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_0", "nvfp4", "mxfp4_moe"];

/// Those of few bits. Files of these names mix several of them; here every matrix has the one, but for the embedding and the head, so that what
/// is measured is the one format.
static PURE: [FileFormat; 9] = [
    pure("iq3_s", GgmlType::IQ3_S, 26),
    pure("iq3_xxs", GgmlType::IQ3_XXS, 23),
    pure("iq2_s", GgmlType::IQ2_S, 28),
    pure("iq2_xs", GgmlType::IQ2_XS, 20),
    pure("iq2_xxs", GgmlType::IQ2_XXS, 19),
    pure("tq2_0", GgmlType::TQ2_0, 37),
    pure("iq1_m", GgmlType::IQ1_M, 31),
    pure("tq1_0", GgmlType::TQ1_0, 36),
    pure("iq1_s", GgmlType::IQ1_S, 24),
];

const fn pure(name: &'static str, base: GgmlType, file_type: u32) -> FileFormat {
    FileFormat { name, base, file_type }
}

/// All of both, the largest first.
fn formats() -> impl Iterator<Item = &'static FileFormat> {
    FORMATS.iter().filter_map(|name| FileFormat::find(name).ok()).chain(&PURE)
}

/// Names of all shapes, for messages.
pub(crate) fn shape_names() -> String {
    SHAPES.iter().map(|s| s.name).collect::<Vec<_>>().join(", ")
}

/// Names of all formats, for messages.
pub(crate) fn format_names() -> String {
    formats().map(|f| f.name).collect::<Vec<_>>().join(", ")
}

/// A model that can be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Synth {
    shape: &'static Shape,
    format: &'static FileFormat,
    seed: u64,
    threads: usize,
}

impl Synth {
    /// A model of the shape and format of these names, in any case.
    ///
    /// # Errors
    /// If one of the names is not known; the message lists those that are.
    pub(crate) fn new(shape: &str, format: &str, seed: u64) -> Result<Self, Error> {
        let known = || Error::Shape { name: shape.to_owned(), known: shape_names() };
        let shape = Shape::find(shape).ok_or_else(known)?;
        let known = || Error::Format { name: format.to_owned(), known: format_names() };
        // As the quantiser understands it, shorter names included.
        let name = FileFormat::find(format).map_or(format, |f| f.name);
        let format = formats().find(|f| f.name.eq_ignore_ascii_case(name)).ok_or_else(known)?;
        let threads = thread::available_parallelism().map_or(1, usize::from);
        Ok(Self { shape, format, seed, threads })
    }

    /// Writes the model to `path`, which gets its name when all is written. `progress` hears how many bytes of weights are
    /// written, of how many, and says whether to go on.
    ///
    /// # Errors
    /// If the file cannot be created or written, or if `progress` stops it. What was there under the name is then
    /// untouched.
    pub(crate) fn write(&self, path: &Path, mut progress: impl FnMut(u64, u64) -> bool) -> Result<(), Error> {
        let tensors = plan(self.shape, self.format);
        let mut writer = GgufWriter::new();
        metadata::set(&mut writer, self.shape, self.format, self.seed);
        for t in &tensors {
            writer.tensor(&t.name, &t.dims, t.ty)?;
        }
        let mut data = writer.create(path)?;
        let total = tensors.iter().map(|t| t.blocks() * t.ty.block_bytes()).sum();
        let chunks: Vec<Chunk<'_>> = tensors.iter().flat_map(chunks).collect();
        let mut done = 0;
        self.in_order(&chunks, |bytes| {
            data.append(&bytes)?;
            done += bytes.len() as u64;
            if progress(done, total) { Ok(()) } else { Err(Error::Stopped) }
        })?;
        Ok(data.finish()?)
    }

    /// Makes the chunks on all threads and gives them to `take` one after the other.
    fn in_order(
        &self,
        chunks: &[Chunk<'_>],
        mut take: impl FnMut(Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (threads, seed) = (self.threads.max(1), self.seed);
        thread::scope(|scope| {
            let queues: Vec<mpsc::Receiver<Vec<u8>>> = (0..threads)
                .map(|first| {
                    let (send, receive) = mpsc::sync_channel(2);
                    scope.spawn(move || {
                        // Nobody takes any more after a failed write: the thread ends.
                        chunks.iter().skip(first).step_by(threads).all(|c| send.send(c.make(seed)).is_ok())
                    });
                    receive
                })
                .collect();
            for (_, queue) in chunks.iter().zip(queues.iter().cycle()) {
                take(queue.recv().map_err(|_| Error::Thread)?)?;
            }
            Ok(())
        })
    }
}

/// Some blocks of a tensor.
#[derive(Debug)]
struct Chunk<'a> {
    tensor: &'a TensorPlan,
    index: u64,
    blocks: Range<u64>,
}

fn chunks(tensor: &TensorPlan) -> impl Iterator<Item = Chunk<'_>> {
    let (all, each) = (tensor.blocks(), CHUNK / tensor.ty.block_bytes());
    (0..all.div_ceil(each)).map(move |index| {
        let blocks = index * each..all.min((index + 1) * each);
        Chunk { tensor, index, blocks }
    })
}

impl Chunk<'_> {
    fn make(&self, seed: u64) -> Vec<u8> {
        let TensorPlan { name, ty, fill, .. } = self.tensor;
        let mut rng = Rng::new(seed, name, self.index);
        let blocks = self.blocks.start as usize..self.blocks.end as usize;
        match fill {
            Fill::Random(std) => {
                let mut bytes = vec![0; blocks.len() * ty.block_bytes() as usize];
                blocks::fill(*ty, *std, &mut rng, &mut bytes);
                bytes
            }
            // Vectors, which are single precision.
            Fill::Near(mean) => {
                blocks.flat_map(|_| (mean * (1.0 + 0.05 * rng.normal())).to_le_bytes()).collect()
            }
            Fill::Values(values) => values[blocks].iter().flat_map(|v| v.to_le_bytes()).collect(),
        }
    }
}
