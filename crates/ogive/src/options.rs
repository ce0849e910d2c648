//! How to open a model, where [`open`](crate::open) does not say enough.

use crate::engine::backend::Backend;
use crate::nn::Registry;
use crate::tensor::{F16, F32, Format};
use crate::weights::{Checkpoint, OpenOptions};
use crate::{Device, GpuLayers, Memory, Model, Result, demo, device, memory};
use std::path::{Path, PathBuf};
use std::{fmt, sync::Arc};

/// Who hears how far a model is read.
#[derive(Clone)]
pub(crate) struct Listener(Arc<dyn Fn(u64, u64) + Send + Sync>);

impl Listener {
    pub(crate) fn hear(&self, done: u64, total: u64) {
        (self.0)(done, total);
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// Which device, how much context, what precision, and what else is known besides what Ogive brings.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) device: Device,
    pub(crate) gpu_layers: Option<GpuLayers>,
    #[cfg_attr(not(feature = "cpu"), expect(dead_code, reason = "only the CPU backend has threads"))]
    pub(crate) threads: Option<usize>,
    pub(crate) exact: bool,
    #[cfg_attr(
        not(any(feature = "cpu", feature = "cuda")),
        expect(dead_code, reason = "other backends were told before")
    )]
    pub(crate) bf16: bool,
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only the CUDA backend has the choice"))]
    pub(crate) int8: bool,
    #[cfg_attr(not(feature = "cpu"), expect(dead_code, reason = "only the CPU backend lays weights anew"))]
    pub(crate) repack: bool,
    #[cfg_attr(not(feature = "cpu"), expect(dead_code, reason = "only the CPU backend lays weights anew"))]
    pub(crate) background: bool,
    pub(crate) context: Option<usize>,
    pub(crate) sequences: usize,
    pub(crate) step_tokens: usize,
    pub(crate) cache_element: Option<&'static Format>,
    pub(crate) registry: Registry,
    pub(crate) files: OpenOptions,
    pub(crate) adapters: Vec<(PathBuf, f32)>,
    #[cfg(feature = "vision")]
    pub(crate) vision: Option<Option<PathBuf>>,
    pub(crate) backend: Option<Arc<dyn Backend>>,
    pub(crate) listener: Option<Listener>,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// The best device, all its threads, mapped files, and up to 4096 tokens of the context the model was made for.
    pub fn new() -> Self {
        Self {
            device: Device::Auto,
            gpu_layers: None,
            threads: None,
            exact: false,
            bf16: false,
            int8: true,
            repack: true,
            background: true,
            context: None,
            sequences: 1,
            step_tokens: 512,
            cache_element: None,
            registry: ogive_models::registry(),
            files: OpenOptions::new(),
            adapters: Vec::new(),
            #[cfg(feature = "vision")]
            vision: None,
            backend: None,
            listener: None,
        }
    }

    /// Another device than the best.
    #[must_use]
    pub fn device(self, device: Device) -> Self {
        Self { device, ..self }
    }

    /// How many of the model's layers GPUs get, the others staying on the CPU. Unless said otherwise, as many as fit where the device is
    /// chosen ([`Device::Auto`], which takes as few GPUs as hold them), and all where it was named. A number of them is an error where no GPU
    /// can be used.
    #[must_use]
    pub fn gpu_layers(self, layers: GpuLayers) -> Self {
        Self { gpu_layers: Some(layers), ..self }
    }

    /// So many threads on the CPU instead of one for each logical CPU that this process may use: two of a core, where it has two.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self { threads: Some(threads), ..self }
    }

    /// Decodes packed weights and computes everything in single precision, with a cache in single precision: slower, and
    /// as near to the reference as single precision gets. Otherwise activations are rounded to what their weight is worth: on the CPU to 8
    /// bits where it is packed and to bfloat16 where it is BF16, on a GPU, if a step has several tokens, to bfloat16 for both and to half
    /// precision for F16, or to 8 bits as [`int8`](Self::int8) says.
    #[must_use]
    pub fn exact(self, exact: bool) -> Self {
        Self { exact, ..self }
    }

    /// Computes with F32 and F16 weights in bf16 too, with a relative error of 2^-8 in weights and activations each: on processors that
    /// multiply pairs of bf16, and on GPUs where a step has several tokens. Other processors round as well, and gain nothing.
    /// The CPU takes such weights as a rounded copy, two bytes an element, made when the model is opened, whatever
    /// [`repack`](Self::repack) and [`background`](Self::background) say. `exact` has precedence.
    #[must_use]
    pub fn bf16(self, bf16: bool) -> Self {
        Self { bf16, ..self }
    }

    /// Whether a GPU may round activations to 8 bits where up to 64 tokens of a step meet packed weights, as is the default, with an
    /// error of at most 1/253 of the largest of 32 neighbours each. The CPU rounds them to 8 bits unless it is to be `exact`, which has
    /// precedence here too.
    #[must_use]
    pub fn int8(self, int8: bool) -> Self {
        Self { int8, ..self }
    }

    /// Whether weights may be laid in memory in the order that the CPU's kernels read them, as is the default: faster, for
    /// a copy that is made of them. Without, they are read where they are, in a mapped file: memory that programs share and the system
    /// may take back; all but those that [`bf16`](Self::bf16) rounds. The results are the same to the bit.
    #[must_use]
    pub fn repack(self, repack: bool) -> Self {
        Self { repack, ..self }
    }

    /// Whether that copy is made in the background while the model is in use already, as is the default: the first token comes as soon as
    /// without a copy, and speed grows weight by weight until all are done. `false` makes it before the model is there: for
    /// measurements, and for programs that load long before they are asked. The results are the same to the bit.
    #[must_use]
    pub fn background(self, background: bool) -> Self {
        Self { background, ..self }
    }

    /// Sessions of up to so many tokens, prompt and answer together.
    #[must_use]
    pub fn context(self, tokens: usize) -> Self {
        Self { context: Some(tokens), ..self }
    }

    /// Room for so many sequences of such a context at a time, instead of one: for an [engine](crate::Model::engine). Estimates count their
    /// cache and their steps, and where layers are placed by what fits ([`GpuLayers::Auto`]), so does that. Sessions stay of one sequence, and
    /// an engine gets its own [`Limits`](crate::engine::Limits).
    #[must_use]
    pub fn sequences(self, sequences: usize) -> Self {
        Self { sequences, ..self }
    }

    /// Prompts are read so many tokens at a time (512).
    #[must_use]
    pub fn step_tokens(self, step_tokens: usize) -> Self {
        Self { step_tokens, ..self }
    }

    /// What keys and values are kept in: `F16` unless said otherwise, `F32` where `exact` is.
    #[must_use]
    pub fn cache_element(self, element: &'static Format) -> Self {
        Self { cache_element: Some(element), ..self }
    }

    /// The architectures to choose from, instead of [`models::registry`](crate::models::registry).
    #[must_use]
    pub fn registry(self, registry: Registry) -> Self {
        Self { registry, ..self }
    }

    /// How files are read: mapped or not, and which formats and GGUF architectures are known besides Ogive's own.
    #[must_use]
    pub fn files(self, files: OpenOptions) -> Self {
        Self { files, ..self }
    }

    /// An adapter (LoRA) over the model, whose updates count `strength` times; 1 is as it was trained. `path` is a folder that PEFT saved, or an
    /// adapter's GGUF file; which of the two the model's weights came as makes no difference. They stay packed: the updates are
    /// computed beside them. Several adapters lie over each other. All sessions of the model have them; for texts with others, open it once more.
    ///
    /// ```no_run
    /// # fn main() -> ogive::Result<()> {
    /// let model = ogive::Options::new().adapter("my-lora", 1.0).open("model.gguf")?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn adapter(mut self, path: impl Into<PathBuf>, strength: f32) -> Self {
        self.adapters.push((path.into(), strength));
        self
    }

    /// Has the model see: reads, beside what it knows text by, what turns images into what it reads. Of a checkpoint that has none of that it is an
    /// error.
    ///
    /// ```no_run
    /// # fn main() -> ogive::Result<()> {
    /// let model = ogive::Options::new().vision().open("gemma-3-4b-it")?;
    /// let mut chat = model.chat()?;
    /// chat.show(ogive::Image::open("photo.jpg")?);
    /// print!("{}", chat.send("What is this?", &ogive::Generate::new())?.text()?);
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "vision")]
    #[must_use]
    pub fn vision(self) -> Self {
        Self { vision: Some(None), ..self }
    }

    /// The same by what another checkpoint has of it: a GGUF file of its own (`mmproj-….gguf`), or a Hugging Face folder of the same model.
    #[cfg(feature = "vision")]
    #[must_use]
    pub fn vision_from(self, path: impl Into<PathBuf>) -> Self {
        Self { vision: Some(Some(path.into())), ..self }
    }

    /// A backend of one's own, or one that several models share (the CPU's, with its threads). `device`, `gpu_layers`, `threads`, `bf16`,
    /// `int8`, `repack` and `background` say nothing then, and of `exact` only the element of the cache is left.
    #[must_use]
    pub fn backend(self, backend: Arc<dyn Backend>) -> Self {
        Self { backend: Some(backend), ..self }
    }

    /// `hear(done, total)` is called while a model is opened, on the thread that opens it: how many bytes of its weights the backend has
    /// taken, of how many, before each tensor and once at the end, when the two are equal. What is laid anew in the
    /// [`background`](Self::background) counts as taken.
    ///
    /// ```
    /// # fn main() -> ogive::Result<()> {
    /// let options = ogive::Options::new().progress(|done, total| println!("{} %", 100 * done / total.max(1)));
    /// # let options = options.device(ogive::Device::Cpu);
    /// # if cfg!(feature = "demo-model") {
    /// let model = options.open(ogive::DEMO)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn progress(self, hear: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        Self { listener: Some(Listener(Arc::new(hear))), ..self }
    }

    /// Opens the model at `path`: a GGUF file (of a split, the first part), a Hugging Face folder or
    /// [`DEMO`](crate::DEMO).
    ///
    /// # Errors
    /// If nothing is there or it is no model, if its architecture, one of its settings or a format is not known, if an
    /// [adapter](Self::adapter) is not one of this model ([`Checkpoint::adapted`]) or changes what the architecture does not read as a matrix by
    /// itself, if the device that was asked for cannot be used, or if memory is short: the message says how much is missing, and what would fit.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Model> {
        let path = path.as_ref();
        Model::load(self.checkpoint(path)?, Some(path), self)
    }

    /// Opens a model that is at no path: one whose bytes the program has, or that it made.
    ///
    /// ```no_run
    /// use ogive::weights::{OpenOptions, gguf_file::Gguf};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let bytes = std::fs::read("model.gguf")?; // or from a network, or by `include_bytes!`
    /// let checkpoint = OpenOptions::new().of_gguf(Gguf::from_bytes(bytes)?.into())?;
    /// let model = ogive::Options::new().open_checkpoint(checkpoint)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`open`](Self::open), but for those of files.
    pub fn open_checkpoint(&self, checkpoint: Checkpoint) -> Result<Model> {
        Model::load(self.adapted(checkpoint)?, None, self)
    }

    /// Every device as [`devices`](crate::devices) lists it, the CPU with as many [threads](Self::threads) as these options give it.
    pub fn devices(&self) -> Vec<(Device, String)> {
        device::listed(self)
    }

    /// What is at `path` before it is a model: settings, and weights as they are stored, with those of adapters, none of them read.
    ///
    /// # Errors
    /// If nothing is there or it is no model, if it is a GGUF file of an architecture that has no translation, and as
    /// [`Checkpoint::adapted`].
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<Checkpoint> {
        let path = path.as_ref();
        if demo::is_demo(path) {
            return self.adapted(self.files.of_gguf(Arc::new(demo::open_gguf(path)?))?);
        }
        self.adapted(self.files.open(path)?)
    }

    fn adapted(&self, checkpoint: Checkpoint) -> Result<Checkpoint> {
        let over = |under: Checkpoint, (path, strength): &(PathBuf, f32)| under.adapted(path, *strength);
        Ok(self.adapters.iter().try_fold(checkpoint, over)?)
    }

    /// What the model at `path` would take, without loading it: on all machines that share its layers together. Where those are shared out
    /// by what is free ([`GpuLayers::Auto`]), as if all went to the first GPU that can be used.
    ///
    /// # Errors
    /// As [`open`](Self::open), but that neither the device need be there nor the memory.
    pub fn estimate_memory(&self, path: impl AsRef<Path>) -> Result<Memory> {
        memory::estimate(path.as_ref(), self)
    }

    /// The same of each machine that gets some of the layers, in the order in which a step goes over them: the CPU is the first, if it gets
    /// any. One, where one gets all.
    ///
    /// # Errors
    /// As [`estimate_memory`](Self::estimate_memory).
    pub fn estimate_parts(&self, path: impl AsRef<Path>) -> Result<Vec<Memory>> {
        memory::parts(path.as_ref(), self)
    }

    /// The notes ([`Model::notes`](crate::Model::notes)) that the model at `path` will have, without loading it.
    ///
    /// # Errors
    /// As [`estimate_memory`](Self::estimate_memory).
    pub fn estimate_notes(&self, path: impl AsRef<Path>) -> Result<Vec<String>> {
        memory::notes(path.as_ref(), self)
    }

    pub(crate) fn element(&self) -> &'static Format {
        self.cache_element.unwrap_or(if self.exact { &F32 } else { &F16 })
    }
}

#[cfg(all(test, feature = "demo-model", feature = "cpu"))]
mod tests {
    use super::*;
    use crate::tensor::Q8_0;
    use crate::weights::gguf_file::Gguf;
    use crate::{DEMO, Generate, Session};

    fn tale(mut session: Session) -> Result<String> {
        session.generate("Once upon a time", &Generate::new().seed(7).max_tokens(40))?.text()
    }

    #[test]
    fn a_model_in_memory_tells_what_its_file_tells() -> Result<()> {
        let gguf = Gguf::from_bytes(ogive_demo_model::GGUF.to_vec()).expect("our own model");
        let options = Options::new().device(Device::Cpu).threads(2);
        let checkpoint = OpenOptions::new().of_gguf(Arc::new(gguf))?;
        let in_memory = tale(options.open_checkpoint(checkpoint)?.session()?)?;
        assert_eq!(in_memory, tale(options.open(DEMO)?.session()?)?);
        Ok(())
    }

    #[test]
    fn an_engine_can_begin_with_what_the_options_said() -> Result<()> {
        let options = Options::new().device(Device::Cpu).context(64).step_tokens(16).cache_element(&Q8_0);
        let model = options.open(DEMO)?;
        let engine = model.engine(model.limits().clone().sequences(3))?;
        let limits = engine.limits();
        assert_eq!((limits.context, limits.step_tokens, limits.sequences), (64, 16, 3));
        assert_eq!(limits.element, &Q8_0);
        Ok(())
    }
}
