//! An opened GGUF file: metadata, tensors by name, and their data.
//!
//! A split file looks like a whole one: its metadata are those of the first part, its tensors those of all parts, in
//! order. Data come as little-endian numbers whatever the file's byte order, because everything that reads them expects
//! that and a forgotten swap is a silent error; [`Gguf::raw_data`] gives the bytes as they are.

use std::collections::HashMap;
use std::fmt;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use crate::cursor::ByteOrder;
use crate::error::{Error, Result};
use crate::map::{self, Bytes};
use crate::metadata::Metadata;
use crate::parse::{Parsed, parse};
use crate::split::{self, Split};
use crate::swap::swapped;
use crate::tensor::{TensorData, TensorInfo};

/// One file's bytes.
struct Part {
    bytes: Bytes,
    data_start: u64,
    order: ByteOrder,
}

/// A GGUF file, or all parts of a split one.
///
/// It can be shared between threads, and its data outlive it.
pub struct Gguf {
    version: u32,
    order: ByteOrder,
    alignment: u64,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<Arc<str>, usize>,
    parts: Vec<Part>,
}

impl Gguf {
    /// Opens a file by mapping it into memory; of a split file, give the first part. A path that is no regular file,
    /// such as a pipe, is read instead: all of it, or no more than its first bytes, if those are not GGUF's.
    ///
    /// While the value or any of its data lives, **the file must not be changed or truncated** by anyone: the numbers
    /// would change under the reader, and touching a page that is gone ends the process on most systems. Replacing the
    /// file by a new one under the same name is fine. Where that cannot be promised, use
    /// [`open_in_memory`](Self::open_in_memory).
    ///
    /// # Errors
    /// If a file cannot be opened, is no GGUF file, or contradicts itself. The error names the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_by(path.as_ref(), map::map_gguf_file)
    }

    /// As [`open`](Self::open), but reads the file into memory, so that it may change afterwards.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_in_memory(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_by(path.as_ref(), map::read_gguf_file)
    }

    /// Takes a file's bytes, or anything that holds them.
    ///
    /// # Errors
    /// If they are no GGUF file, contradict themselves, or are one part of several.
    pub fn from_bytes(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self> {
        Self::from_parts([bytes])
    }

    /// Takes the bytes of all parts of a split file, in order.
    ///
    /// # Errors
    /// As [`from_bytes`](Self::from_bytes), and if the parts are not all parts of one file in their order.
    pub fn from_parts<B>(parts: impl IntoIterator<Item = B>) -> Result<Self>
    where
        B: AsRef<[u8]> + Send + Sync + 'static,
    {
        let mut parts = parts.into_iter();
        let first = parts.next().ok_or_else(|| split::problem("no parts were given".to_owned()))?;
        let (mut file, split) = Self::first(Bytes::new(first), None)?;
        let count = split.map_or(1, |s| s.count);
        for bytes in parts {
            let no = file.parts.len() as u64;
            let split = split.filter(|s| no < s.count).ok_or_else(|| {
                split::problem(format!("more parts were given than the {count} that the first announces"))
            })?;
            file.add(Bytes::new(bytes), split, no)?;
        }
        if (file.parts.len() as u64) < count {
            return Err(split::problem(format!(
                "the file has {count} parts but {} were given; open it by path or use `from_parts`",
                file.parts.len()
            )));
        }
        file.finish(split)
    }

    /// Reads a file that is no file on disk, to its end; what does not begin as GGUF does, no further than that.
    ///
    /// # Errors
    /// If reading fails, and as [`from_bytes`](Self::from_bytes).
    pub fn read(mut reader: impl Read) -> Result<Self> {
        let bytes = map::read_gguf(&mut reader)?;
        let (file, split) = Self::first(bytes, None)?;
        match split {
            Some(s) => Err(split::problem(format!("the file has {} parts; open it by path", s.count))),
            None => file.finish(None),
        }
    }

    fn open_by(path: &Path, load: fn(&Path) -> Result<Bytes>) -> Result<Self> {
        let here = |e: Error| e.in_file(path);
        let (mut file, split) = load(path).and_then(|bytes| Self::first(bytes, Some(path))).map_err(here)?;
        if let Some(split) = split {
            for no in 1..split.count {
                let next = split.path(path, no).map_err(here)?;
                load(&next).and_then(|bytes| file.add(bytes, split, no)).map_err(|e| e.in_file(&next))?;
            }
        }
        file.finish(split).map_err(here)
    }

    /// The file, or the first part of one.
    fn first(bytes: Bytes, path: Option<&Path>) -> Result<(Self, Option<Split>)> {
        let Parsed { version, order, alignment, metadata, tensors, data_start } = parse(bytes.as_ref(), 0)?;
        let split = Split::of(&metadata)?;
        if let Some(split) = split {
            split.expect_first(path)?;
        }
        let parts = vec![Part { bytes, data_start, order }];
        Ok((Self { version, order, alignment, metadata, tensors, index: HashMap::new(), parts }, split))
    }

    /// Adds part `no`, from 0.
    fn add(&mut self, bytes: Bytes, split: Split, no: u64) -> Result<()> {
        let Parsed { order, metadata, tensors, data_start, .. } = parse(bytes.as_ref(), self.parts.len())?;
        split.expect_part(no, &metadata)?;
        self.tensors.extend(tensors);
        self.parts.push(Part { bytes, data_start, order });
        Ok(())
    }

    fn finish(mut self, split: Option<Split>) -> Result<Self> {
        if let Some(split) = split {
            split.expect_tensors(self.tensors.len())?;
        }
        self.index.reserve(self.tensors.len());
        for (i, t) in self.tensors.iter().enumerate() {
            if self.index.insert(t.name.clone(), i).is_some() {
                return Err(Error::Duplicate { what: "tensor", name: t.name().to_owned() });
            }
        }
        Ok(self)
    }

    /// The format's version: 1, 2 or 3.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// The byte order of the file; of the first part, if it is split.
    #[must_use]
    pub const fn byte_order(&self) -> ByteOrder {
        self.order
    }

    /// What offsets of data are multiples of, in bytes; in the first part, if the file is split.
    #[must_use]
    pub const fn alignment(&self) -> u64 {
        self.alignment
    }

    /// How many parts the file has: 1 if it is not split.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The size in bytes, of all parts together.
    #[must_use]
    pub fn byte_len(&self) -> u64 {
        self.parts.iter().map(|p| p.bytes.as_ref().len() as u64).sum()
    }

    /// The metadata; of the first part, if the file is split.
    #[must_use]
    pub const fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors, in file order.
    #[must_use]
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of that name.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(*self.index.get(name)?)
    }

    /// The data of one of this file's tensors, in little-endian order: without copying, but for those of a big-endian file, which are
    /// swapped into a vector.
    ///
    /// # Errors
    /// If the element type is not known, if it is one of the rarer block formats in big-endian order, or if the tensor is of another
    /// file and lies outside this one.
    pub fn data(&self, info: &TensorInfo) -> Result<TensorData> {
        let data = self.raw_data(info)?;
        let ty = info.known_type()?;
        let order = self.parts.get(info.part).map_or(ByteOrder::Little, |p| p.order);
        let unknown = || Error::BigEndianBlocks { name: info.name().to_owned(), type_name: ty.name() };
        match order {
            ByteOrder::Little => Ok(data),
            ByteOrder::Big if ty.block_bytes() == 1 => Ok(data),
            ByteOrder::Big => swapped(ty, data.bytes()).map(TensorData::from_vec).ok_or_else(unknown),
        }
    }

    /// The data of the tensor of that name; see [`data`](Self::data).
    ///
    /// # Errors
    /// If there is no such tensor, and as [`data`](Self::data).
    pub fn data_of(&self, name: &str) -> Result<TensorData> {
        self.data(self.tensor(name).ok_or_else(|| Error::NoSuchTensor { name: name.to_owned() })?)
    }

    /// The bytes of one of this file's tensors as they are in the file, in its byte order. Never copies.
    ///
    /// # Errors
    /// If the element type is not known, or if the tensor is of another file and lies outside this one.
    pub fn raw_data(&self, info: &TensorInfo) -> Result<TensorData> {
        let no_such = || Error::NoSuchTensor { name: info.name().to_owned() };
        info.known_type()?;
        let len = info.byte_len().ok_or_else(no_such)?;
        let part = self.parts.get(info.part).ok_or_else(no_such)?;
        if len == 0 {
            return Ok(TensorData { owner: part.bytes.clone(), range: 0..0 });
        }
        let start = part.data_start.checked_add(info.offset).and_then(|n| usize::try_from(n).ok());
        let end = start.and_then(|n| n.checked_add(usize::try_from(len).ok()?));
        match (start, end) {
            (Some(start), Some(end)) if end <= part.bytes.as_ref().len() => {
                Ok(TensorData { owner: part.bytes.clone(), range: start..end })
            }
            _ => Err(no_such()),
        }
    }
}

impl fmt::Debug for Gguf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gguf")
            .field("version", &self.version)
            .field("byte_order", &self.order)
            .field("parts", &self.parts.len())
            .field("metadata", &self.metadata.len())
            .field("tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}
