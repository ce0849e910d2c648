//! One way in, for whatever the user has.
//!
//! What a path is, its first bytes say and not its ending: downloads are called anything.

use crate::formats::Formats;
use crate::gguf::{GgufSource, Translation, find_translation, translations};
use crate::huggingface;
use gguf_file::Gguf;
use ogive_tensor::{Config, Error, Format, Result, Source};
use std::{
    fs::File,
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

/// An opened model: its settings and its weights, under Hugging Face's names.
#[derive(Debug)]
#[non_exhaustive]
pub struct Checkpoint {
    /// The settings, under the keys of `config.json`.
    pub config: Config,
    /// The name of the architecture, `LlamaForCausalLM` say: the first of `architectures`.
    pub architecture: String,
    /// The weights.
    pub source: Box<dyn Source>,
    /// The GGUF file, if it is one: its vocabulary and chat template are there.
    pub gguf: Option<Arc<Gguf>>,
    /// The folder, if it is one: `tokenizer.json` and the like are there.
    pub folder: Option<PathBuf>,
}

/// Opens a GGUF file (of a split, the first part) or a Hugging Face folder (or its `config.json`, or an index or safetensors file in it,
/// whose weights are then the model's; a file that `model.safetensors.index.json` lists stands for all of them). Files are mapped: they
/// must not change while anything of them is in use. A GGUF file may also come out of a pipe, into memory, and may be of what a model sees with
/// (llama.cpp's `mmproj`): then the architecture is the class whose tower it is, and nothing is there of its text.
///
/// # Errors
/// If the file is none of these, contradicts itself, or is of a GGUF architecture that has no translation. What is wrong with a weight is
/// said when it is asked for.
pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
    OpenOptions::new().open(path)
}

/// How to open a model, where [`open`] does not say enough.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    mmap: bool,
    formats: Formats,
    translations: Vec<Translation>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenOptions {
    /// Mapped, with this crate's formats and translations.
    pub fn new() -> Self {
        Self { mmap: true, formats: Formats::default(), translations: translations() }
    }

    /// Whether to map files (the default) or to read them, after which they may change.
    #[must_use]
    pub fn mmap(mut self, mmap: bool) -> Self {
        self.mmap = mmap;
        self
    }

    /// Adds a weight format, for tensors whose type has its name in any case: ggml's name in a GGUF file, the `dtype` in
    /// safetensors. It replaces a format of the same name.
    #[must_use]
    pub fn format(mut self, format: &'static Format) -> Self {
        self.formats.add(format);
        self
    }

    /// Adds the translation of a GGUF architecture, or replaces that of the same name.
    #[must_use]
    pub fn translation(mut self, translation: Translation) -> Self {
        self.translations.push(translation);
        self
    }

    /// Opens `path`, as [`open`] does.
    ///
    /// # Errors
    /// As [`open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Checkpoint> {
        let path = path.as_ref();
        if is_piped(path) {
            let gguf = Arc::new(read_piped(path)?);
            return self.of_gguf(gguf).map_err(|e| e.within(&path.display().to_string()));
        }
        if is_gguf(path)? {
            return self.open_gguf(path);
        }
        let load = if self.mmap { gguf_file::map_file } else { gguf_file::read_file };
        let known = path.is_dir() || path.extension().is_some_and(|e| e == "json" || e == "safetensors");
        if !known {
            let why = "this is neither a GGUF file nor a folder with config.json and safetensors";
            return Err(Error::unsupported(&path.display().to_string(), why));
        }
        let (config, source, folder) = huggingface::open(path, load, self.formats.clone())?;
        let architecture = architecture(&config).map_err(|e| e.within(&folder.display().to_string()))?;
        Ok(Checkpoint { config, architecture, source, gguf: None, folder: Some(folder) })
    }

    fn open_gguf(&self, path: &Path) -> Result<Checkpoint> {
        let at = path.display().to_string();
        let gguf = if self.mmap { Gguf::open(path) } else { Gguf::open_in_memory(path) };
        let gguf = Arc::new(gguf.map_err(|e| Error::other("opening a model", e))?);
        self.of_gguf(gguf).map_err(|e| e.within(&at))
    }

    /// Takes a GGUF file that is open already.
    ///
    /// # Errors
    /// If its architecture has no translation, and as [`Translation::config`] and [`GgufSource::new`].
    pub fn of_gguf(&self, gguf: Arc<Gguf>) -> Result<Checkpoint> {
        let translation = find_translation(&self.translations, &gguf)?;
        let config = translation.config(&gguf)?;
        let architecture = architecture(&config)?;
        let source = GgufSource::with_formats(Arc::clone(&gguf), translation, &config, self.formats.clone())?;
        Ok(Checkpoint { config, architecture, source: Box::new(source), gguf: Some(gguf), folder: None })
    }
}

/// The first name under `architectures`.
fn architecture(config: &Config) -> Result<String> {
    let names = config.opt_strs("architectures")?.unwrap_or_default();
    names.into_iter().next().ok_or_else(|| Error::missing("config `architectures`"))
}

const MAGIC: &[u8] = b"GGUF";

/// Whether the file at `path` says of itself that it is GGUF, in either byte order; a folder does not. What is
/// [piped](is_piped) is not asked, as that would take its first bytes.
///
/// # Errors
/// If there is nothing at `path`, or it cannot be read.
pub fn is_gguf(path: impl AsRef<Path>) -> Result<bool> {
    let path = path.as_ref();
    if path.is_dir() || is_piped(path) {
        return Ok(false);
    }
    let mut file = File::open(path).map_err(|e| failed(path, e))?;
    Ok(first_bytes(&mut file).map_err(|e| failed(path, e))? == MAGIC)
}

/// Whether `path` is neither a plain file nor a folder: a pipe, which can be read only once, as in `--model <(zstdcat m.gguf.zst)`.
pub fn is_piped(path: impl AsRef<Path>) -> bool {
    std::fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir())
}

/// Reads the GGUF file that comes out of a [pipe](is_piped). No more than its first bytes, if those are not GGUF's; else memory grows
/// with what really comes.
///
/// # Errors
/// If it cannot be read, is no GGUF file or not all of one, or is one part of several.
pub fn read_piped(path: impl AsRef<Path>) -> Result<Gguf> {
    let path = path.as_ref();
    let mut file = File::open(path).map_err(|e| failed(path, e))?;
    let mut bytes = first_bytes(&mut file).map_err(|e| failed(path, e))?;
    if bytes != MAGIC {
        let why = "what comes out of it is no GGUF file, and nothing else is read from what is no plain file";
        return Err(Error::unsupported(&path.display().to_string(), why));
    }
    file.read_to_end(&mut bytes).map_err(|e| failed(path, e))?;
    Gguf::from_bytes(bytes)
        .map_err(|e| Error::other("opening a model", e).within(&path.display().to_string()))
}

fn first_bytes(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut first = Vec::with_capacity(MAGIC.len());
    file.take(MAGIC.len() as u64).read_to_end(&mut first)?;
    Ok(first)
}

fn failed(path: &Path, e: std::io::Error) -> Error {
    // The whole name may be one of a model elsewhere.
    let e = if e.kind() == ErrorKind::NotFound { std::io::Error::new(e.kind(), NOWHERE) } else { e };
    Error::new(path.display().to_string(), e.into())
}

const NOWHERE: &str = "no such file or folder; a model is a GGUF file or a Hugging Face folder on this machine, and nothing is downloaded";
