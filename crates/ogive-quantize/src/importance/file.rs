//! Importance matrices as files: llama.cpp's GGUF form, read and written, and the older one, read.
//!
//! Source: `save_imatrix` and `load_imatrix` of llama.cpp's `imatrix`. Of each tensor `NAME` there are `NAME.in_sum2` `[cols, matrices]`, fastest
//! first, and `NAME.counts` `[1, matrices]`, both F32. `NAME.in_sum`, which newer files have, is passed over: the sign of an activation does not weigh an
//! error. A count is written as F32 as there, though it is exact only to 2^24 tokens: of more than that, one is no longer seen.

use super::{Importance, Squares, dat};
use crate::{Error, Result};
use gguf_file::{Array, GgmlType, Gguf, GgufWriter, Metadata, StringArray, TensorInfo, map_file};
use ogive_weights::{is_gguf, is_piped, read_piped};
use std::path::Path;

const TYPE: &str = "general.type";
const IMATRIX: &str = "imatrix";
const DATASETS: &str = "imatrix.datasets";
const CHUNKS: &str = "imatrix.chunk_count";
const CHUNK_SIZE: &str = "imatrix.chunk_size";
const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";

impl Importance {
    /// Opens a file of either form.
    ///
    /// # Errors
    /// If there is no such file, or it is no importance matrix, is damaged, or has sums that are negative or no finite numbers.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let wrong =
            |why| Error::Importance { doing: format!("reading the importances {}", path.display()), why };
        let found = if is_piped(path) {
            Self::from_gguf(&read_piped(path)?)
        } else if is_gguf(path)? {
            Self::from_gguf(&Gguf::open(path)?)
        } else {
            let bytes = map_file(path).map_err(|e| wrong(e.to_string()))?;
            Self::from_dat(bytes.as_ref())
        };
        let found = found.map_err(|e| match e {
            Error::Importance { why, .. } => wrong(why),
            other => other,
        })?;
        Ok(Self { path: Some(path.to_owned()), ..found })
    }

    /// The GGUF form.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_gguf(gguf: &Gguf) -> Result<Self> {
        let wrong = |why: String| Error::Importance { doing: "reading importances".into(), why };
        let (metadata, mut all) = (gguf.metadata(), Self::new());
        let tensors = gguf.tensors();
        if !tensors.iter().any(|t| t.name().ends_with(SUMS)) {
            let kind = metadata.opt_str(TYPE)?.unwrap_or("model");
            let what = if kind == IMATRIX {
                "it is an importance matrix of nothing: there are no sums in it".into()
            } else {
                format!("it is a GGUF file of the type `{kind}`, and no importance matrix")
            };
            return Err(wrong(format!("{what}; make one with `ogive imatrix`")));
        }
        for sums in tensors {
            if let Some(name) = sums.name().strip_suffix(COUNTS)
                && gguf.tensor(&format!("{name}{SUMS}")).is_none()
            {
                return Err(wrong(format!("{name} has counts and no sums; is the download complete?")));
            }
            let Some(name) = sums.name().strip_suffix(SUMS) else { continue };
            let of = |why| wrong(format!("{name}: {why}"));
            let counts = gguf.tensor(&format!("{name}{COUNTS}"));
            let counts = counts.ok_or_else(|| of("it has sums and no counts".into()))?;
            let counts = numbers(gguf, counts)?.into_iter().map(count).collect::<Result<Vec<_>, _>>();
            let squares = Squares::new(numbers(gguf, sums)?, counts.map_err(of)?);
            all.insert(name, squares.map_err(of)?);
        }
        let datasets = metadata.opt_array_of_str(DATASETS)?;
        all.datasets = datasets
            .into_iter()
            .flat_map(StringArray::iter)
            .map(|s| String::from_utf8_lossy(s).into())
            .collect();
        all.chunks = metadata.opt_u32(CHUNKS)?.unwrap_or(0);
        all.chunk_size = metadata.opt_u32(CHUNK_SIZE)?.unwrap_or(0);
        Ok(all)
    }

    /// The older form, whose experts have one count, and where the length of a chunk is not known.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_dat(bytes: &[u8]) -> Result<Self> {
        dat::parse(bytes).map_err(|why| Error::Importance { doing: "reading importances".into(), why })
    }

    /// Writes a GGUF file, which gets its name when it is whole and replaces what has it.
    ///
    /// # Errors
    /// If there is nothing to write, or it cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.write(self.announced()?.create(path)?)
    }

    /// The same as bytes.
    ///
    /// # Errors
    /// If there is nothing to write.
    pub fn to_gguf(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.write(self.announced()?.write_to(&mut bytes)?)?;
        Ok(bytes)
    }

    fn announced(&self) -> Result<GgufWriter> {
        if self.is_empty() {
            return Err(self.wrong("there are none to write"));
        }
        let mut datasets = StringArray::new();
        self.datasets.iter().for_each(|name| datasets.push(name.as_bytes()));
        let mut writer = GgufWriter::with_metadata(Metadata::new());
        writer.set(TYPE, IMATRIX).set(DATASETS, Array::String(datasets));
        writer.set(CHUNKS, self.chunks).set(CHUNK_SIZE, self.chunk_size);
        for (name, squares) in self.iter() {
            let (sums, counts) = (squares.sums().len() as u64, squares.counts().len() as u64);
            writer.tensor(&format!("{name}{SUMS}"), &[sums / counts.max(1), counts], GgmlType::F32)?;
            writer.tensor(&format!("{name}{COUNTS}"), &[1, counts], GgmlType::F32)?;
        }
        Ok(writer)
    }

    fn write(&self, mut data: gguf_file::DataWriter<'_>) -> Result<()> {
        let bytes = |values: &[f32]| -> Vec<u8> { values.iter().flat_map(|v| v.to_le_bytes()).collect() };
        for (name, squares) in self.iter() {
            let counts: Vec<f32> = squares.counts().iter().map(|n| *n as f32).collect();
            data.write_data(&format!("{name}{SUMS}"), &bytes(squares.sums()))?;
            data.write_data(&format!("{name}{COUNTS}"), &bytes(&counts))?;
        }
        Ok(data.finish()?)
    }
}

/// A tensor's elements, which must be F32.
fn numbers(gguf: &Gguf, tensor: &TensorInfo) -> Result<Vec<f32>> {
    let ty = tensor.known_type()?;
    if ty != GgmlType::F32 {
        let why = format!("{} is of the type {} and not of F32", tensor.name(), ty.name());
        return Err(Error::Importance { doing: "reading importances".into(), why });
    }
    let data = gguf.data(tensor)?;
    Ok(data.bytes().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
}

/// A number of rows, which is written as a number with a fraction.
fn count(value: f32) -> Result<u64, String> {
    // Above it no sum was ever counted, and whole numbers would be lost in single precision long before.
    const MOST: f32 = (1_u64 << 53) as f32;
    if (0.0..=MOST).contains(&value) {
        return Ok(value.round() as u64);
    }
    Err(format!("a count is {value}, where a whole number of at least 0 is needed"))
}
