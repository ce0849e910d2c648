//! The work itself: choose a type for each tensor, then stream them through.
//!
//! All choices are made and checked before the first byte is written, so that what cannot be done is said at once and not
//! after an hour. One tensor is in work at a time: of a GGUF file its bytes are the mapped file's, and what is made of them
//! goes out in chunks.

use crate::encode::pack;
use crate::format::{FileFormat, decoder, encoder, is_integer};
use crate::input::{Input, Tensor};
use crate::mix::{Facts, Mix, Rule, Shape};
use crate::{Error, Result};
use gguf_file::{DataWriter, GgmlType, GgufWriter};
use ogive_tensor::Format;
use ogive_weights::is_of_model;
use std::io::Write;
use std::path::Path;

/// How to pack a model.
#[derive(Clone, Debug)]
pub struct Quantize {
    mix: Mix,
    allow_requantize: bool,
    overwrite: bool,
    threads: usize,
}

/// A tensor that is written, or will be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Packed {
    /// Its name in the file.
    pub name: String,
    /// Its dimensions, fastest first.
    pub dims: Vec<u64>,
    /// What its elements were.
    pub from: GgmlType,
    /// What they are in the file.
    pub to: GgmlType,
}

impl Packed {
    /// Elements.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Bytes in the file.
    pub fn bytes(&self) -> u64 {
        self.to.bytes_for(self.elements()).unwrap_or(0)
    }
}

/// How far it has come.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Progress<'a> {
    /// The tensor in work.
    pub tensor: &'a Packed,
    /// Which tensor it is, from 0.
    pub index: usize,
    /// How many there are.
    pub count: usize,
    /// Bytes of tensors that are written.
    pub written: u64,
    /// Bytes of tensors there will be.
    pub total: u64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// Every tensor, in the order of the file.
    pub tensors: Vec<Packed>,
    /// Bytes of the input.
    pub bytes_before: u64,
    /// Bytes of tensors in the output.
    pub bytes_after: u64,
}

impl Summary {
    /// Bits that a weight takes, all tensors together.
    pub fn bits_per_weight(&self) -> f64 {
        let elements: u64 = self.tensors.iter().map(Packed::elements).sum();
        self.bytes_after as f64 * 8.0 / elements.max(1) as f64
    }
}

impl Quantize {
    /// Packs as `format`, on all cores.
    pub fn new(format: &'static FileFormat) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { mix: Mix::new(format), allow_requantize: false, overwrite: false, threads }
    }

    /// The same type for every matrix.
    #[must_use]
    pub fn pure(mut self, pure: bool) -> Self {
        self.mix.pure = pure;
        self
    }

    /// The type of `output.weight`, or of the embedding where that is the head too.
    #[must_use]
    pub fn output_type(mut self, ty: Option<GgmlType>) -> Self {
        self.mix.output = ty;
        self
    }

    /// The type of `token_embd.weight` and `per_layer_token_embd.weight`.
    #[must_use]
    pub fn embedding_type(mut self, ty: Option<GgmlType>) -> Self {
        self.mix.embedding = ty;
        self
    }

    /// Types by name; the first rule that matches counts.
    #[must_use]
    pub fn rules(mut self, rules: Vec<Rule>) -> Self {
        self.mix.rules = rules;
        self
    }

    /// Whether tensors that are packed already may be packed again.
    #[must_use]
    pub fn allow_requantize(self, allow_requantize: bool) -> Self {
        Self { allow_requantize, ..self }
    }

    /// Whether a file of the output's name is replaced.
    #[must_use]
    pub fn overwrite(self, overwrite: bool) -> Self {
        Self { overwrite, ..self }
    }

    /// Threads; at least one. The bytes do not depend on it.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self { threads: threads.max(1), ..self }
    }

    /// What every tensor would become.
    ///
    /// # Errors
    /// If a tensor cannot have its type, or may not be packed again.
    pub fn plan(&self, input: &Input) -> Result<Vec<Packed>> {
        let facts = Facts::of(&input.metadata);
        let shapes: Vec<Shape<'_>> = input.tensors.iter().map(|t| (&*t.name, &*t.dims)).collect();
        let types = self.mix.choose(&facts, &shapes)?;
        // llama.cpp has the factor of a head in NVFP4, and knows of none beside another.
        let has_factor = input.tensors.iter().any(|t| t.name == "output.scale");
        let is_bound = |t: &Tensor| has_factor && t.name == "output.weight" && t.ty == GgmlType::NVFP4;
        let to = |(t, ty): (&Tensor, Option<GgmlType>)| match ty {
            Some(_) if is_bound(t) && !self.mix.names(&t.name) => t.ty,
            // Whole numbers stay without a word, unless somebody asks for something else by name.
            Some(ty) if !is_integer(t.ty) || self.mix.names(&t.name) => ty,
            None if input.widens() && !self.mix.keeps(&facts, &t.name, &t.dims) => GgmlType::F32,
            _ => t.ty,
        };
        input.tensors.iter().zip(types).map(|(t, ty)| self.packed(t, to((t, ty)))).collect()
    }

    fn packed(&self, tensor: &Tensor, to: GgmlType) -> Result<Packed> {
        let from = tensor.ty;
        if from != to {
            let (tensor, ty) = (tensor.name.clone(), from.name());
            if decoder(from).is_none() {
                return Err(Error::NotDecoded { tensor, ty });
            }
            if !from.is_plain() && !self.allow_requantize {
                return Err(Error::Requantize { tensor, from: ty, to: to.name() });
            }
        }
        Ok(Packed { name: tensor.name.clone(), dims: tensor.dims.clone(), from, to })
    }

    /// Packs the model at `input` into a file at `output`, which gets its name when it is whole. `progress` says whether to
    /// go on.
    ///
    /// # Errors
    /// As [`Input::open`] and [`plan`](Self::plan); if there is a file of the output's name and it may not be replaced; if a
    /// weight is no finite number; if reading or writing fails; if `progress` stops it. What was there under the name is
    /// then untouched, and nothing else is left.
    pub fn run(
        &self,
        input: impl AsRef<Path>,
        output: impl AsRef<Path>,
        progress: impl FnMut(&Progress<'_>) -> bool,
    ) -> Result<Summary> {
        // Before a vocabulary is read, which takes its time.
        self.check_kind(output.as_ref())?;
        self.save(&Input::open(input)?, output, progress)
    }

    /// The same of an input that is open.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn save(
        &self,
        input: &Input,
        output: impl AsRef<Path>,
        progress: impl FnMut(&Progress<'_>) -> bool,
    ) -> Result<Summary> {
        let output = output.as_ref();
        self.check_kind(output)?;
        self.check_same(input, output)?;
        let (writer, tensors) = self.announce(input)?;
        self.write(input, tensors, writer.create(output)?, progress)
    }

    /// Packs `input` into any writer.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn write_to(
        &self,
        input: &Input,
        writer: impl Write,
        progress: impl FnMut(&Progress<'_>) -> bool,
    ) -> Result<Summary> {
        let (announced, tensors) = self.announce(input)?;
        self.write(input, tensors, announced.write_to(writer)?, progress)
    }

    /// That the output's name is free, or may be taken.
    fn check_kind(&self, output: &Path) -> Result<()> {
        let Ok(there) = std::fs::metadata(output) else { return Ok(()) };
        let wrong = |why| Err(Error::Output { path: output.to_owned(), why });
        if there.is_dir() {
            return wrong("this is a folder; name a file");
        }
        if !there.is_file() {
            return wrong("this is no plain file, and a model would replace it");
        }
        if !self.overwrite { Err(Error::Exists { path: output.to_owned() }) } else { Ok(()) }
    }

    fn check_same(&self, input: &Input, output: &Path) -> Result<()> {
        if is_of_model(output, &input.path) {
            let why = "this is the model that is to be packed; write to another name";
            return Err(Error::Output { path: output.to_owned(), why });
        }
        Ok(())
    }

    fn announce(&self, input: &Input) -> Result<(GgufWriter, Vec<Packed>)> {
        let tensors = self.plan(input)?;
        let mut writer = GgufWriter::with_metadata(input.metadata.clone());
        writer.set("general.quantization_version", 2_u32).set("general.file_type", self.mix.format.file_type);
        for t in &tensors {
            writer.tensor(&t.name, &t.dims, t.to)?;
        }
        Ok((writer, tensors))
    }

    fn write(
        &self,
        input: &Input,
        tensors: Vec<Packed>,
        mut data: DataWriter<'_>,
        mut progress: impl FnMut(&Progress<'_>) -> bool,
    ) -> Result<Summary> {
        let (total, count) = (tensors.iter().map(Packed::bytes).sum(), tensors.len());
        let mut written = 0;
        for (index, (tensor, from)) in tensors.iter().zip(&input.tensors).enumerate() {
            let mut take = |bytes: &[u8]| {
                data.append(bytes)?;
                written += bytes.len() as u64;
                let now = Progress { tensor, index, count, written, total };
                if progress(&now) { Ok(()) } else { Err(Error::Stopped) }
            };
            match (decoder(tensor.from), encoder(tensor.to)) {
                (Some(_), Some(to)) => self.pack(input, from, to, &mut take)?,
                // Integers, and types that nobody here can read.
                _ => input.raw(from)?.into_iter().try_for_each(|d| {
                    take(d.bytes())?;
                    d.owner.release(d.range);
                    Ok::<_, Error>(())
                })?,
            }
        }
        data.finish()?;
        Ok(Summary { tensors, bytes_before: input.bytes, bytes_after: total })
    }

    fn pack(
        &self,
        input: &Input,
        tensor: &Tensor,
        to: &'static Format,
        take: &mut impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        for piece in &tensor.pieces {
            let weight = input.weight(tensor, piece)?;
            pack(&weight, to, self.threads, &mut *take)?;
            weight.bytes.release();
        }
        Ok(())
    }
}
