//! What a file says of a tensor, and the bytes it has of it.
//!
//! Bytes come as an owner and a range rather than as a borrowed slice: a consumer that keeps weights for as long as
//! the model lives can then keep the mapped file alive too, without copying and without a lifetime in its types.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::ggml_type::GgmlType;
use crate::map::Bytes;

/// The most dimensions a tensor may have, as in ggml.
pub const MAX_DIMS: usize = 4;

/// The description of a tensor: name, dimensions, element type and place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    pub(crate) name: Arc<str>,
    dims: [u64; MAX_DIMS],
    n_dims: usize,
    type_id: u32,
    elements: u64,
    /// Bytes of data; `None` if the type is not known.
    bytes: Option<u64>,
    /// From the beginning of its part's data section.
    pub(crate) offset: u64,
    /// The part of a split file it is in.
    pub(crate) part: usize,
}

impl TensorInfo {
    /// Checks that dimensions and type make sense together and that the size can be counted.
    pub(crate) fn new(name: &str, dims: &[u64], type_id: u32) -> Result<Self> {
        let bad = |problem: String| Error::BadTensor { name: name.to_owned(), problem };
        let mut stored = [1; MAX_DIMS];
        match stored.get_mut(..dims.len()) {
            Some(place) => place.copy_from_slice(dims),
            None => {
                return Err(bad(format!("it has {} dimensions; at most {MAX_DIMS} are allowed", dims.len())));
            }
        }
        let count = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        let Some(elements) = count.filter(|&n| i64::try_from(n).is_ok()) else {
            return Err(bad(format!(
                "its dimensions {dims:?} multiply to more elements than can be counted"
            )));
        };
        let bytes = match GgmlType::from_id(type_id) {
            Some(t) if !stored[0].is_multiple_of(t.block_len()) => {
                let len = t.block_len();
                return Err(bad(format!(
                    "its rows of {} elements are no whole number of {t} blocks of {len}",
                    stored[0]
                )));
            }
            Some(t) => match t.bytes_for(elements) {
                Some(bytes) => Some(bytes),
                None => {
                    return Err(bad(format!(
                        "{elements} elements of {t} take more bytes than can be counted"
                    )));
                }
            },
            None => None,
        };
        Ok(Self {
            name: name.into(),
            dims: stored,
            n_dims: dims.len(),
            type_id,
            elements,
            bytes,
            offset: 0,
            part: 0,
        })
    }

    /// The tensor's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The dimensions as in the file, **fastest first**: a matrix of `rows` rows and `cols` columns, stored row by row,
    /// is `[cols, rows]`.
    #[must_use]
    pub fn dims(&self) -> &[u64] {
        self.dims.get(..self.n_dims).unwrap_or_default()
    }

    /// The dimensions slowest first, as most libraries write shapes: `[rows, cols]`.
    #[must_use]
    pub fn shape(&self) -> Vec<u64> {
        self.dims().iter().rev().copied().collect()
    }

    /// How many elements.
    #[must_use]
    pub const fn elements(&self) -> u64 {
        self.elements
    }

    /// The element type's number in the file, known or not.
    #[must_use]
    pub const fn type_id(&self) -> u32 {
        self.type_id
    }

    /// The element type, if this crate knows it.
    #[must_use]
    pub const fn ggml_type(&self) -> Option<GgmlType> {
        GgmlType::from_id(self.type_id)
    }

    /// The element type, or an error that names the tensor, its type's number and what is known.
    ///
    /// # Errors
    /// If the type is not known.
    pub fn known_type(&self) -> Result<GgmlType> {
        self.ggml_type().ok_or_else(|| Error::UnknownType {
            name: self.name.to_string(),
            type_id: self.type_id,
            hint: GgmlType::hint(self.type_id).to_owned(),
            known: GgmlType::known(),
        })
    }

    /// Bytes of data, or `None` if the element type is not known.
    #[must_use]
    pub const fn byte_len(&self) -> Option<u64> {
        self.bytes
    }

    /// Where the data begins, in bytes from the beginning of the data section of its part.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Which part of a split file holds the data, from 0; 0 if the file is not split.
    #[must_use]
    pub const fn part(&self) -> usize {
        self.part
    }
}

/// The bytes of a tensor, and what keeps them alive.
///
/// The address is that of the bytes in the file or vector: in a mapped file it is aligned as the file says
/// (32 bytes usually), elsewhere it may not be aligned at all.
#[derive(Clone)]
#[non_exhaustive]
pub struct TensorData {
    /// The mapped file, or the vector, that holds the bytes.
    pub owner: Bytes,
    /// Where in the owner they are.
    pub range: Range<usize>,
}

impl TensorData {
    pub(crate) fn from_vec(bytes: Vec<u8>) -> Self {
        Self { range: 0..bytes.len(), owner: Bytes::new(bytes) }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.owner.as_ref().get(self.range.clone()).unwrap_or_default()
    }
}

impl AsRef<[u8]> for TensorData {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl fmt::Debug for TensorData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorData").field("range", &self.range).finish_non_exhaustive()
    }
}
