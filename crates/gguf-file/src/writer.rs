//! Writing a file: first what is in it, then the data, tensor by tensor.
//!
//! Two types for two phases. [`GgufWriter`] collects metadata and descriptions; once they are written they cannot
//! change, because they tell where the data lie, and so [`DataWriter`] has no methods that could try. Data stream
//! through: no more than a tensor (or less: [`DataWriter::append`]) need be in memory.

use std::collections::HashSet;
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use crate::encode;
use crate::error::{Error, Result};
use crate::ggml_type::GgmlType;
use crate::metadata::Metadata;
use crate::output::{Output, TempFile};
use crate::parse::{ALIGNMENT_KEY, alignment};
use crate::tensor::TensorInfo;
use crate::value::Value;

/// Zeros to pad with.
const ZEROS: [u8; 4096] = [0; 4096];

/// Collects what a file is to contain: GGUF version 3, little-endian.
#[derive(Debug, Clone, Default)]
pub struct GgufWriter {
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    names: HashSet<Arc<str>>,
}

impl GgufWriter {
    /// An empty file.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A file with these metadata, such as another file's.
    #[must_use]
    pub fn with_metadata(metadata: Metadata) -> Self {
        Self { metadata, ..Self::default() }
    }

    /// Sets a metadata key: in its old place if it is there, else at the end.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) -> &mut Self {
        self.metadata.set(key, value);
        self
    }

    /// Sets what the offsets of data are multiples of, in bytes: a power of two. Without this it is
    /// [`DEFAULT_ALIGNMENT`](crate::DEFAULT_ALIGNMENT).
    pub fn alignment(&mut self, bytes: u32) -> &mut Self {
        self.set(ALIGNMENT_KEY, bytes)
    }

    /// Announces a tensor; `dims` are **fastest first**, `[cols, rows]` for a matrix stored row by row.
    ///
    /// # Errors
    /// If the name was announced before, if there are more than [`MAX_DIMS`](crate::MAX_DIMS) dimensions, if a row is
    /// no whole number of blocks, or if the size cannot be counted.
    pub fn tensor(&mut self, name: &str, dims: &[u64], ty: GgmlType) -> Result<&mut Self> {
        let info = TensorInfo::new(name, dims, ty.id())?;
        if !self.names.insert(info.name.clone()) {
            return Err(Error::Duplicate { what: "tensor", name: name.to_owned() });
        }
        self.tensors.push(info);
        Ok(self)
    }

    /// Creates the file, under a temporary name until [`DataWriter::finish`], and writes all but the data.
    ///
    /// # Errors
    /// If the file cannot be created or written, if the alignment is no power of two, if arrays nest too deeply, or if
    /// the file would be too large to count.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<DataWriter<'static>> {
        let path = path.as_ref();
        // The file is created last, so that a mistake leaves none.
        self.begin(|| TempFile::create(path).map(Output::File)).map_err(|e| e.in_file(path))
    }

    /// Writes to anything, such as `&mut Vec<u8>`: all but the data now, the data through what is returned.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn write_to<'w>(&self, writer: impl Write + 'w) -> Result<DataWriter<'w>> {
        self.begin(|| Ok(Output::Stream(Box::new(writer))))
    }

    fn begin<'w>(&self, output: impl FnOnce() -> Result<Output<'w>>) -> Result<DataWriter<'w>> {
        let alignment = alignment(&self.metadata)?;
        let mut tensors = self.tensors.clone();
        let mut offset = 0u64;
        for t in &mut tensors {
            t.offset = offset;
            offset = t
                .byte_len()
                .and_then(|len| offset.checked_add(len)?.checked_next_multiple_of(alignment))
                .filter(|&end| i64::try_from(end).is_ok())
                .ok_or_else(|| Error::BadTensor {
                    name: t.name().to_owned(),
                    problem: "with it the file is larger than can be counted".to_owned(),
                })?;
        }
        let header = encode::header(&self.metadata, &tensors)?;
        let mut writer =
            DataWriter { output: Some(output()?), tensors, next: 0, written: 0, position: 0, alignment };
        writer.put(&header)?;
        if !writer.tensors.is_empty() {
            writer.pad()?;
        }
        writer.skip_empty();
        Ok(writer)
    }
}

/// Writes the data of the announced tensors, in the order in which they were announced.
///
/// Dropped before [`finish`](Self::finish), it removes the file it was writing.
pub struct DataWriter<'w> {
    /// `None` after a write has failed: what has been written is then unknown.
    output: Option<Output<'w>>,
    tensors: Vec<TensorInfo>,
    /// The tensor whose data come next.
    next: usize,
    /// Bytes of it that are written.
    written: u64,
    /// Bytes of the file that are written.
    position: u64,
    alignment: u64,
}

impl DataWriter<'_> {
    /// The tensor whose data come next, or `None` if all are written.
    #[must_use]
    pub fn next_tensor(&self) -> Option<&TensorInfo> {
        self.tensors.get(self.next)
    }

    /// Writes all data of a tensor, which must be the next. `bytes` are little-endian, as the element type lays them
    /// out.
    ///
    /// # Errors
    /// If it is not this tensor's turn, if there are too few or too many bytes, or if writing fails.
    pub fn write_data(&mut self, name: &str, bytes: &[u8]) -> Result<&mut Self> {
        let due = self.due()?;
        if due.name() != name {
            return Err(wrong(format!(
                "the data of `{name}` are given where those of `{}` are due",
                due.name()
            )));
        }
        if self.written > 0 {
            return Err(wrong(format!(
                "{} bytes of `{name}` are written already; append the rest",
                self.written
            )));
        }
        let needed = due.byte_len().unwrap_or(0);
        if bytes.len() as u64 != needed {
            return Err(wrong(format!("`{name}` takes {needed} bytes, but {} are given", bytes.len())));
        }
        self.append(bytes)
    }

    /// Writes some more data of the next tensor; when it has all its bytes, the one after it is next.
    ///
    /// # Errors
    /// If all tensors are written, if these are more bytes than the tensor still takes, or if writing fails.
    pub fn append(&mut self, bytes: &[u8]) -> Result<&mut Self> {
        let due = self.due()?;
        let (needed, given) = (due.byte_len().unwrap_or(0), bytes.len() as u64);
        // Never negative: the comparison below keeps `written` within.
        let left = needed - self.written;
        if given > left {
            return Err(wrong(format!("`{}` takes {left} more bytes, but {given} are given", due.name())));
        }
        self.put(bytes)?;
        self.written += given;
        if self.written == needed {
            self.pad()?;
            self.written = 0;
            self.next += 1;
            self.skip_empty();
        }
        Ok(self)
    }

    /// Ends the file; only now does it get its name.
    ///
    /// # Errors
    /// If data are missing, or if writing or renaming fails. The file is then removed.
    pub fn finish(mut self) -> Result<()> {
        if let Some(due) = self.tensors.get(self.next) {
            let needed = due.byte_len().unwrap_or(0);
            return Err(wrong(format!("of `{}` {} of {needed} bytes are written", due.name(), self.written)));
        }
        self.output.take().ok_or_else(failed)?.commit()
    }

    fn due(&self) -> Result<&TensorInfo> {
        self.next_tensor().ok_or_else(|| wrong("more data are given, but all tensors are written".to_owned()))
    }

    /// Tensors without elements have no data to wait for.
    fn skip_empty(&mut self) {
        while self.next_tensor().is_some_and(|t| t.byte_len() == Some(0)) {
            self.next += 1;
        }
    }

    fn pad(&mut self) -> Result<()> {
        // Positions stay below the file's size, which `begin` has counted; the alignment is 32 bits.
        let mut left = self.position.next_multiple_of(self.alignment) - self.position;
        while left > 0 {
            let some = usize::try_from(left).map_or(ZEROS.len(), |n| n.min(ZEROS.len()));
            self.put(ZEROS.get(..some).unwrap_or(&ZEROS))?;
            left -= some as u64;
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let mut output = self.output.take().ok_or_else(failed)?;
        output.write(bytes)?;
        self.output = Some(output);
        self.position += bytes.len() as u64;
        Ok(())
    }
}

fn wrong(problem: String) -> Error {
    Error::Write { problem }
}

fn failed() -> Error {
    wrong("an earlier write failed, so the file cannot be finished".to_owned())
}

impl fmt::Debug for DataWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataWriter")
            .field("next_tensor", &self.next_tensor().map(TensorInfo::name))
            .field("written", &self.written)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}
