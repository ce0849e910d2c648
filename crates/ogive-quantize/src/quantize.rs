//! The work itself: choose a type for each tensor, then stream them through.
//!
//! All choices are made and checked before the first byte is written, so that what cannot be done is said at once and not
//! after an hour. One tensor is in work at a time: of a GGUF file its bytes are the mapped file's, and what is made of them
//! goes out in chunks.

use crate::encode::pack;
use crate::format::{FileFormat, decoder, encoder, is_integer, wants_importance};
use crate::importance::Importance;
use crate::input::{Input, Tensor};
use crate::mix::{Facts, Mix, Rule, Shape};
use crate::{Error, Result};
use gguf_file::{DataWriter, GgmlType, GgufWriter};
use ogive_tensor::Format;
use ogive_weights::is_of_model;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// How to pack a model.
#[derive(Clone, Debug)]
pub struct Quantize {
    mix: Mix,
    importance: Option<Arc<Importance>>,
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
    /// The tensors that were packed without importances, though there were some for others; none where there were none at all.
    pub without_importance: Vec<String>,
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
        Self { mix: Mix::new(format), importance: None, allow_requantize: false, overwrite: false, threads }
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

    /// Packs by what columns count, as collected by `ogive imatrix` or by llama.cpp's `llama-imatrix`. A tensor of which nothing is known is packed
    /// as without ([`Summary::without_importance`]); mostly these are the embedding and the head. The file says by what it was packed, under
    /// llama.cpp's keys (`quantize.imatrix.file` and the like).
    #[must_use]
    pub fn importance(mut self, importance: Importance) -> Self {
        self.mix.has_importance = true;
        self.importance = Some(Arc::new(importance));
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
    /// If a tensor cannot have its type, or may not be packed again; if importances are of a tensor of another shape, or of no tensor of
    /// the model.
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
        if let Some(importance) = &self.importance {
            check(importance, input)?;
        }
        input.tensors.iter().zip(types).map(|(t, ty)| self.packed(t, to((t, ty)))).collect()
    }

    /// The tensors of a plan that get so few bits that llama.cpp refuses to pack them without importances, and of which none are known. They can be
    /// packed, and the model will be poor: for a model that answers well, collect importances first, or choose more bits.
    pub fn wants_importance<'p>(&self, plan: &'p [Packed]) -> Vec<&'p str> {
        let known = |name: &str| self.importance.as_ref().is_some_and(|all| all.get(name).is_some());
        let wants =
            |t: &&Packed| weighs(t) && wants_importance(self.mix.format, t.to, &t.name) && !known(&t.name);
        plan.iter().filter(wants).map(|t| &*t.name).collect()
    }

    fn packed(&self, tensor: &Tensor, to: GgmlType) -> Result<Packed> {
        let from = tensor.ty;
        if from != to {
            let (tensor, ty) = (tensor.name.clone(), from.name());
            if decoder(from).is_none() {
                return Err(Error::NotDecoded { tensor, ty });
            }
            if encoder(to).is_none() {
                return Err(Error::NotEncoded { tensor, ty: to.name() });
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
        let mut metadata = input.metadata.clone();
        // What the input was packed by does not tell what the output is.
        if tensors.iter().any(weighs) {
            IMATRIX.iter().for_each(|key| _ = metadata.remove(key));
        }
        let mut writer = GgufWriter::with_metadata(metadata);
        writer.set("general.quantization_version", 2_u32).set("general.file_type", self.mix.format.file_type);
        if let Some(importance) = &self.importance {
            tell(importance, &mut writer);
        }
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
        let mut without = Vec::new();
        for (index, (tensor, from)) in tensors.iter().zip(&input.tensors).enumerate() {
            let mut take = |bytes: &[u8]| {
                data.append(bytes)?;
                written += bytes.len() as u64;
                let now = Progress { tensor, index, count, written, total };
                if progress(&now) { Ok(()) } else { Err(Error::Stopped) }
            };
            match (decoder(tensor.from), encoder(tensor.to)) {
                (Some(_), Some(to)) => {
                    let counts = self.counts(tensor)?;
                    if counts.is_empty() && self.importance.is_some() && weighs(tensor) {
                        without.push(tensor.name.clone());
                    }
                    self.pack(input, from, &counts, to, &mut take)?;
                }
                // Integers, and types that nobody here can read.
                _ => input.raw(from)?.into_iter().try_for_each(|d| {
                    take(d.bytes())?;
                    d.owner.release(d.range);
                    Ok::<_, Error>(())
                })?,
            }
        }
        data.finish()?;
        Ok(Summary { tensors, bytes_before: input.bytes, bytes_after: total, without_importance: without })
    }

    /// What columns of a tensor that is packed in blocks count; nothing where all count alike.
    fn counts(&self, tensor: &Packed) -> Result<Vec<f32>> {
        let Some(importance) = self.importance.as_ref().filter(|_| weighs(tensor)) else {
            return Ok(Vec::new());
        };
        let [matrices, cols] = sides(&tensor.dims);
        Ok(importance.of(&tensor.name, matrices, cols)?.unwrap_or_default())
    }

    fn pack(
        &self,
        input: &Input,
        tensor: &Tensor,
        mut counts: &[f32],
        to: &'static Format,
        take: &mut impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        for piece in &tensor.pieces {
            let weight = input.weight(tensor, piece)?;
            // Parts are experts, one or more.
            let [experts, _, cols] = weight.shape;
            let (own, rest) = counts.split_at_checked(experts.saturating_mul(cols)).unwrap_or_default();
            counts = rest;
            pack(&weight, own, to, self.threads, &mut *take)?;
            weight.bytes.release();
        }
        Ok(())
    }
}

/// Whether errors of the tensor's elements are weighed against each other.
fn weighs(tensor: &Packed) -> bool {
    tensor.from != tensor.to && !tensor.to.is_plain()
}

/// `[matrices, cols]` of dimensions fastest first.
fn sides(dims: &[u64]) -> [usize; 2] {
    let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let matrices = dims.iter().skip(2).fold(1, |n: usize, d| n.saturating_mul(size(*d)));
    [matrices, dims.first().map_or(0, |n| size(*n))]
}

/// That importances are of this model's tensors, as far as their names and shapes tell.
fn check(importance: &Importance, input: &Input) -> Result<()> {
    let mut found = 0;
    for t in &input.tensors {
        let [matrices, cols] = sides(&t.dims);
        found += usize::from(importance.of(&t.name, matrices, cols)?.is_some());
    }
    if found > 0 {
        return Ok(());
    }
    let first = importance.iter().next().map_or("nothing", |(name, _)| name);
    Err(importance.wrong(format!(
        "none of its {} tensors ({first} is the first) is one of this model",
        importance.len()
    )))
}

/// The keys of [`tell`].
const IMATRIX: [&str; 4] = [
    "quantize.imatrix.file",
    "quantize.imatrix.dataset",
    "quantize.imatrix.entries_count",
    "quantize.imatrix.chunks_count",
];

/// What llama.cpp's quantiser says of importances in a file that was packed by them (`prepare_imatrix` and `main` of its `quantize`).
fn tell(importance: &Importance, writer: &mut GgufWriter) {
    if let Some(path) = &importance.path {
        writer.set(IMATRIX[0], path.to_string_lossy().into_owned());
    }
    if let Some(dataset) = importance.datasets.first() {
        writer.set(IMATRIX[1], dataset.clone());
    }
    writer.set(IMATRIX[2], u32::try_from(importance.len()).unwrap_or(u32::MAX));
    if importance.chunks > 0 {
        writer.set(IMATRIX[3], importance.chunks);
    }
}
