//! What is to be packed: tensors under GGUF's names, and the metadata that go with them.
//!
//! A GGUF file is taken as it is, without a look at its architecture, so that models this workspace cannot run can be
//! packed all the same. A Hugging Face folder is converted first (see `convert`); both end as a list of tensors whose
//! bytes are fetched one by one, when their turn comes.

use crate::format::decoder;
use crate::{Error, Result, convert};
use gguf_file::{GgmlType, Gguf, Metadata, TensorInfo};
use ogive_tensor::{Config, HostWeight, Source};
use ogive_weights::{Change, Checkpoint, OpenOptions, bytes_of, is_gguf, is_piped, read_piped};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A model that can be packed.
#[derive(Debug)]
pub struct Input {
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<Tensor>,
    /// The file, or the folder.
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) origin: Origin,
    notes: Vec<String>,
}

#[derive(Debug)]
pub(crate) enum Origin {
    Gguf(Arc<Gguf>),
    Folder { source: Box<dyn Source>, config: Config },
}

/// A tensor of the file that will be.
#[derive(Debug)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    /// Fastest first.
    pub(crate) dims: Vec<u64>,
    /// What its elements are now.
    pub(crate) ty: GgmlType,
    /// Its parts, expert after expert.
    pub(crate) pieces: Vec<Piece>,
}

/// Where a part of a tensor comes from.
#[derive(Debug)]
pub(crate) enum Piece {
    /// This tensor of the GGUF file.
    Gguf(usize),
    /// The weight of this name, changed.
    Named(String, Option<Change>),
    /// Numbers that the conversion made.
    Made(HostWeight),
}

impl Piece {
    /// The weight of a folder that it is made of.
    fn of(&self) -> Option<&str> {
        match self {
            Self::Named(name, _) => Some(name),
            Self::Gguf(_) | Self::Made(_) => None,
        }
    }
}

impl Input {
    /// Opens a GGUF file (of a split, the first part) or a Hugging Face folder (or one of its files). Nothing but headers
    /// and the vocabulary is read, unless a GGUF file comes out of a pipe.
    ///
    /// # Errors
    /// If there is no such file, if it is none of these or contradicts itself, if it has no tensors; of a folder, if
    /// something in it has no place in a GGUF file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if is_piped(path) {
            return Self::from_gguf(read_piped(path)?, path);
        }
        if is_gguf(path)? { Self::from_gguf(Gguf::open(path)?, path) } else { Self::from_folder(path) }
    }

    /// A GGUF file that is open already, or is in memory and no file at all; `name` is for messages, and is the path if there
    /// is one.
    ///
    /// # Errors
    /// If a tensor's type is not known, or there are no tensors.
    pub fn from_gguf(gguf: Gguf, name: impl AsRef<Path>) -> Result<Self> {
        let path = name.as_ref();
        let tensor = |(i, t): (usize, &TensorInfo)| {
            let ty = t.known_type()?;
            Ok(Tensor { name: t.name().into(), dims: t.dims().into(), ty, pieces: vec![Piece::Gguf(i)] })
        };
        let tensors = gguf.tensors().iter().enumerate().map(tensor).collect::<Result<_>>()?;
        let mut metadata = gguf.metadata().clone();
        for key in ["split.no", "split.count", "split.tensors.count"] {
            metadata.remove(key);
        }
        let bytes = gguf.byte_len();
        Self {
            metadata,
            tensors,
            path: path.to_owned(),
            bytes,
            origin: Origin::Gguf(Arc::new(gguf)),
            notes: Vec::new(),
        }
        .with_tensors()
    }

    fn from_folder(path: &Path) -> Result<Self> {
        let mut checkpoint = OpenOptions::new().open(path)?;
        let folder = checkpoint.folder.clone().unwrap_or_default();
        let (metadata, tensors, notes) = convert::convert(&mut checkpoint, &folder)?;
        Ok(Self { notes, ..Self::of_folder(path, checkpoint, metadata, tensors)? })
    }

    /// Opens what the model of a Hugging Face folder sees with (llama.cpp's `mmproj`, which is a file of its own); [`open`](Self::open) of
    /// the same folder gives its text's part.
    ///
    /// # Errors
    /// If it is no folder, if its model does not see, or by a tower that is not converted; if something of the tower has no place in a GGUF file.
    pub fn open_mmproj(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if is_piped(path) || is_gguf(path)? {
            let why = "a GGUF file has one part of a model; what it sees with is read from the folder that both were made of";
            return Err(Error::convert(path.display().to_string(), why));
        }
        let checkpoint = OpenOptions::new().open(path)?;
        let folder = checkpoint.folder.clone().unwrap_or_default();
        let (metadata, tensors) = convert::mmproj::convert(&checkpoint, &folder)?;
        Self::of_folder(path, checkpoint, metadata, tensors)
    }

    fn of_folder(
        path: &Path,
        checkpoint: Checkpoint,
        metadata: Metadata,
        tensors: Vec<Tensor>,
    ) -> Result<Self> {
        let read: HashSet<&str> = tensors.iter().flat_map(|t| &t.pieces).filter_map(Piece::of).collect();
        let own = checkpoint.source.tensors().into_iter().filter(|t| read.contains(&*t.name));
        let bytes = own.map(|t| t.bytes() as u64).sum();
        let origin = Origin::Folder { source: checkpoint.source, config: checkpoint.config };
        Self { metadata, tensors, path: path.to_owned(), bytes, origin, notes: Vec::new() }.with_tensors()
    }

    /// Itself, if there is something in it.
    fn with_tensors(self) -> Result<Self> {
        if self.tensors.is_empty() { Err(Error::Empty { path: self.path }) } else { Ok(self) }
    }

    /// The metadata as they will be, but for the format.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// What a file that is made of this folder does otherwise, and was converted all the same: lines for whoever packs it, mostly none.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Bytes of the input: of a file, all of it; of a folder, the weights that are read.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether tensors that are not packed become single precision, as converters write them. A GGUF file's stay as they
    /// are.
    pub(crate) fn widens(&self) -> bool {
        matches!(self.origin, Origin::Folder { .. })
    }

    /// A tensor's bytes as they are in the file, for those that are copied without a look.
    pub(crate) fn raw(&self, tensor: &Tensor) -> Result<Vec<gguf_file::TensorData>> {
        let Origin::Gguf(gguf) = &self.origin else { return Ok(Vec::new()) };
        let info = |piece: &Piece| match piece {
            Piece::Gguf(i) => gguf.tensors().get(*i),
            _ => None,
        };
        tensor.pieces.iter().filter_map(info).map(|t| Ok(gguf.data(t)?)).collect()
    }

    /// A part of a tensor, under the tensor's name.
    pub(crate) fn weight(&self, tensor: &Tensor, piece: &Piece) -> Result<HostWeight> {
        let weight = match (piece, &self.origin) {
            (Piece::Made(weight), _) => weight.clone(),
            (Piece::Named(name, change), Origin::Folder { source, config }) => {
                let weight = source.get(name)?;
                match change {
                    Some(change) => {
                        change.apply(std::slice::from_ref(&weight), config).map_err(|e| e.within(name))?
                    }
                    None => weight,
                }
            }
            (Piece::Gguf(i), Origin::Gguf(gguf)) => {
                let missing = || ogive_tensor::Error::missing(&tensor.name);
                let info = gguf.tensors().get(*i).ok_or_else(missing)?;
                let data = gguf.data(info)?;
                let ty = tensor.ty.name();
                let format =
                    decoder(tensor.ty).ok_or(Error::NotDecoded { tensor: tensor.name.clone(), ty })?;
                let bytes = bytes_of(&data.owner, data.range)?;
                HostWeight::new(&*tensor.name, folded(&tensor.dims)?, format, bytes)?
            }
            _ => return Err(ogive_tensor::Error::missing(&tensor.name).into()),
        };
        Ok(weight.named(&*tensor.name))
    }
}

/// `[experts, rows, cols]` of dimensions fastest first.
pub(crate) fn folded(dims: &[u64]) -> Result<[usize; 3]> {
    let mut shape = [1_usize; 3];
    for (i, d) in dims.iter().enumerate() {
        let d = usize::try_from(*d).ok();
        let place = &mut shape[2 - i.min(2)];
        let product = d.and_then(|d| place.checked_mul(d));
        *place =
            product.ok_or_else(|| ogive_tensor::Error::invalid("a tensor", "its size cannot be counted"))?;
    }
    Ok(shape)
}
