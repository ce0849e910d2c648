//! Safetensors files, one or several: packed tensors under the names they have, which are Hugging Face's.
//!
//! The format is parsed here and not by the crate of its name, because this crate must list tensors of types that are not
//! known yet, keep the mapped file alive from each weight, and refuse names that stand there twice.

mod header;
mod index;

use crate::{
    bytes::bytes_of,
    formats::{Formats, fold_shape},
    packed,
};
use header::Entry;
use ogive_tensor::{Bytes, Config, Error, Format, HostWeight, Result, Source, WeightInfo};
use std::{collections::HashMap, fmt, path::Path, sync::Arc};

/// Reads or maps a file.
pub(crate) type Load = fn(&Path) -> gguf_file::Result<gguf_file::Bytes>;

/// A tensor as the file has it. If `dtype` is one of the format's own, the bytes fill the shape.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) dtype: String,
    /// Slowest first.
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: Bytes,
}

/// The tensors of a safetensors file, or of all files of a sharded checkpoint.
pub struct Safetensors {
    shards: Vec<gguf_file::Bytes>,
    /// Shard and entry, in the order of the files.
    tensors: Vec<(usize, Entry)>,
    by_name: HashMap<Arc<str>, usize>,
    formats: Formats,
}

impl Safetensors {
    /// Takes a file's bytes, or anything that holds them.
    ///
    /// # Errors
    /// If they have no header, or one that contradicts itself or their length.
    pub fn from_bytes(bytes: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Result<Self> {
        Self::of([(String::new(), bytes.into())], Formats::default())
    }

    /// The weights of these files as `quantization_config` of a model's settings says that they are packed: AutoGPTQ's, AutoAWQ's
    /// and compressed-tensors' become ggml's formats, without losing a bit; FP8 keeps its bytes and has its factors beside them. The files as they are
    /// if it says nothing.
    ///
    /// # Errors
    /// If the settings name a way of packing that is not known, or none and there are packed weights. What is wrong with a weight is said
    /// when it is asked for.
    pub fn with_config(self, config: &Config) -> Result<Box<dyn Source>> {
        packed::open(config, self)
    }

    /// Opens one file.
    pub(crate) fn open_file(path: &Path, load: Load, formats: Formats) -> Result<Self> {
        let at = path.display().to_string();
        let bytes = load(path).map_err(|e| Error::other(&at, e))?;
        Self::of([(at, bytes)], formats)
    }

    /// Opens the files that an index names. Each tensor must be in the file the index says.
    pub(crate) fn open_index(path: &Path, load: Load, formats: Formats) -> Result<Self> {
        let index = index::read(path)?;
        let at = path.display().to_string();
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut shards = Vec::with_capacity(index.files.len());
        for file in &index.files {
            let file = folder.join(file);
            let name = file.display().to_string();
            let bytes = load(&file).map_err(|e| Error::other(&name, e).within(&at))?;
            shards.push((name, bytes));
        }
        let all = Self::of(shards, formats)?;
        for (tensor, file) in &index.tensors {
            let found = all.entry(tensor).map(|(shard, _)| *shard);
            if found != Some(*file) {
                let should = index.files.get(*file).map_or("", String::as_str);
                let is = found
                    .and_then(|f| index.files.get(f))
                    .map_or("nowhere".to_owned(), |f| format!("in `{f}`"));
                let why = format!(
                    "`{tensor}` should be in `{should}` and is {is}; a file is damaged or of another model"
                );
                return Err(Error::invalid(&at, why));
            }
        }
        Ok(all)
    }

    /// Whether the index at `path` has tensors in the file called `name`.
    pub(crate) fn index_names(path: &Path, name: &str) -> Result<bool> {
        Ok(index::read(path)?.files.iter().any(|file| file == name))
    }

    fn of(files: impl IntoIterator<Item = (String, gguf_file::Bytes)>, formats: Formats) -> Result<Self> {
        let mut all = Self { shards: Vec::new(), tensors: Vec::new(), by_name: HashMap::new(), formats };
        for (at, bytes) in files {
            let wrong = |why| Error::invalid(if at.is_empty() { "safetensors" } else { &at }, why);
            for entry in header::parse(bytes.as_ref()).map_err(wrong)? {
                if all.by_name.insert(Arc::clone(&entry.name), all.tensors.len()).is_some() {
                    return Err(wrong(format!("the tensor `{}` stands in another file too", entry.name)));
                }
                all.tensors.push((all.shards.len(), entry));
            }
            all.shards.push(bytes);
        }
        // The header is checked by safetensors' own types; the formats known here may be others, or differ in case.
        for (shard, entry) in &all.tensors {
            if let (Ok(format), Ok(shape)) = (all.format(entry), fold_shape(&entry.name, &entry.shape)) {
                all.weight(*shard, entry, shape, format)?;
            }
        }
        Ok(all)
    }

    fn weight(
        &self,
        shard: usize,
        entry: &Entry,
        shape: [usize; 3],
        format: &'static Format,
    ) -> Result<HostWeight> {
        let owner = self.shards.get(shard).ok_or_else(|| Error::missing(&entry.name))?;
        let bytes = bytes_of(owner, entry.range.clone()).map_err(|e| e.within(&entry.name))?;
        HostWeight::new(&*entry.name, shape, format, bytes)
    }

    fn entry(&self, name: &str) -> Option<&(usize, Entry)> {
        self.tensors.get(*self.by_name.get(name)?)
    }

    /// The names of all tensors, in the order of the files.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().map(|(_, entry)| &*entry.name)
    }

    /// What the file calls the type of the tensor's elements.
    pub(crate) fn dtype(&self, name: &str) -> Option<&str> {
        self.entry(name).map(|(_, entry)| &*entry.dtype)
    }

    /// The tensor called `name`, whatever its elements are; `None` if there is none.
    pub(crate) fn raw(&self, name: &str) -> Result<Option<Raw>> {
        let Some((shard, entry)) = self.entry(name) else { return Ok(None) };
        let owner = self.shards.get(*shard).ok_or_else(|| Error::missing(name))?;
        let bytes = bytes_of(owner, entry.range.clone()).map_err(|e| e.within(name))?;
        Ok(Some(Raw { dtype: entry.dtype.clone(), shape: entry.shape.clone(), bytes }))
    }

    fn format(&self, entry: &Entry) -> Result<&'static Format> {
        self.formats.find(&entry.dtype).ok_or_else(|| self.formats.unknown(&entry.name, &entry.dtype))
    }

    fn info(&self, entry: &Entry) -> Result<WeightInfo> {
        Ok(WeightInfo::new(&*entry.name, fold_shape(&entry.name, &entry.shape)?, self.format(entry)?))
    }
}

impl Source for Safetensors {
    fn get(&self, name: &str) -> Result<HostWeight> {
        let (shard, entry) = self.entry(name).ok_or_else(|| Error::missing(name))?;
        self.weight(*shard, entry, fold_shape(name, &entry.shape)?, self.format(entry)?)
    }

    fn tensors(&self) -> Vec<WeightInfo> {
        self.tensors.iter().filter_map(|(_, entry)| self.info(entry).ok()).collect()
    }

    fn left_out(&self) -> Vec<String> {
        let unread = self.tensors.iter().filter(|(_, entry)| self.info(entry).is_err());
        unread.map(|(_, entry)| entry.name.to_string()).collect()
    }
}

impl fmt::Debug for Safetensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (files, tensors) = (self.shards.len(), self.tensors.len());
        f.debug_struct("Safetensors")
            .field("files", &files)
            .field("tensors", &tensors)
            .finish_non_exhaustive()
    }
}
