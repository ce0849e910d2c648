//! Weights as a file has them: packed bytes with a name, and what else some files keep beside the elements.

use crate::{Bytes, Error, F32, Format, Result, Scale};
use ndarray::Array3;
use std::{ops::Range, sync::Arc};

/// Which part of a larger weight this is: `index` of `count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which part.
    pub index: usize,
    /// Of how many.
    pub count: usize,
}

/// Of a weight that is kept in single precision and that its file has in less: what was lost by that, and why.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Unpacked {
    /// Bits that the file has for an element, its share of scales included.
    pub bits: f32,
    /// Why it could not stay so, in one clause that fits several weights.
    pub why: Arc<str>,
}

impl Unpacked {
    /// From so many bits an element, for this reason.
    pub fn new(bits: f32, why: impl Into<Arc<str>>) -> Self {
        Self { bits, why: why.into() }
    }
}

/// A weight as the file has it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HostWeight {
    /// What it is called, in Hugging Face's names.
    pub name: String,
    /// `[experts, out, in]`; a plain matrix has one expert, a vector one row.
    pub shape: [usize; 3],
    /// How the bytes are packed.
    pub format: &'static Format,
    /// Row-major blocks.
    pub bytes: Bytes,
    /// Factors beside the elements.
    pub scale: Option<Scale>,
    /// Column `i` of the bytes multiplies input `input_perm[i]` (act-order).
    pub input_perm: Option<Arc<[u32]>>,
    /// Which part of a larger weight.
    pub shard: Option<Shard>,
    /// What the file has instead, where this was decoded on its way here.
    pub unpacked: Option<Unpacked>,
    /// Whether rows of it are looked up and nothing is multiplied by it, so that there is no use in laying it anew for products. These are
    /// right all the same.
    pub by_rows: bool,
}

impl HostWeight {
    /// A weight without scale, permutation or shard.
    ///
    /// # Errors
    /// Unless the bytes fill the shape exactly, each row in whole blocks.
    pub fn new(
        name: impl Into<String>,
        shape: [usize; 3],
        format: &'static Format,
        bytes: Bytes,
    ) -> Result<Self> {
        let name = name.into();
        let [experts, rows, cols] = shape;
        let want = (format.has_blocks() && cols.is_multiple_of(format.block_len))
            .then(|| {
                experts
                    .checked_mul(rows)?
                    .checked_mul((cols / format.block_len).checked_mul(format.block_bytes)?)
            })
            .flatten();
        if want != Some(bytes.len()) {
            let why = format!(
                "{} bytes do not fill the shape {shape:?} of {} (blocks of {} elements in {} bytes)",
                bytes.len(),
                format.name,
                format.block_len,
                format.block_bytes
            );
            return Err(Error::invalid(&name, why));
        }
        let plain = Self {
            name,
            shape,
            format,
            bytes,
            scale: None,
            input_perm: None,
            shard: None,
            unpacked: None,
            by_rows: false,
        };
        Ok(plain)
    }

    /// A weight made of numbers.
    ///
    /// # Errors
    /// If there are more or fewer `values` than the shape has elements.
    pub fn from_f32(name: impl Into<String>, shape: [usize; 3], values: &[f32]) -> Result<Self> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self::new(name, shape, &F32, bytes.into())
    }

    /// The same weight with factors beside its elements.
    ///
    /// # Errors
    /// Unless there is one factor for each tile, and tiles are not empty.
    pub fn with_scale(self, scale: Scale) -> Result<Self> {
        if !scale.covers(self.shape) {
            let (count, tile) = (scale.values.len(), scale.tile);
            let why = format!("{count} scales for {tile:?} elements each do not cover {:?}", self.shape);
            return Err(Error::invalid(&self.name, why));
        }
        Ok(Self { scale: Some(scale), ..self })
    }

    /// The same weight with its inputs permuted.
    ///
    /// # Errors
    /// Unless `perm` names each input once.
    pub fn with_input_perm(self, perm: Arc<[u32]>) -> Result<Self> {
        let mut seen = vec![false; self.shape[2]];
        let fresh = |&i: &u32| seen.get_mut(i as usize).is_some_and(|s| !std::mem::replace(s, true));
        if perm.len() != self.shape[2] || !perm.iter().all(fresh) {
            return Err(Error::invalid(&self.name, "the input permutation does not name each input once"));
        }
        Ok(Self { input_perm: Some(perm), ..self })
    }

    /// The same weight, of which it is known that the file has it in less.
    #[must_use]
    pub fn with_unpacked(self, unpacked: Option<Unpacked>) -> Self {
        Self { unpacked, ..self }
    }

    /// The same weight, of which rows are looked up and nothing else is done.
    #[must_use]
    pub fn looked_up(self) -> Self {
        Self { by_rows: true, ..self }
    }

    /// The same weight under another name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Whether nothing stands beside the packed elements.
    pub fn is_plain(&self) -> bool {
        self.scale.is_none() && self.input_perm.is_none()
    }

    /// Whether it has the other's shape and packed elements, to the bit, and neither has anything beside them. Reads both as far as they
    /// are the same.
    pub fn is_copy_of(&self, other: &Self) -> bool {
        (self.shape, self.format) == (other.shape, other.format)
            && self.is_plain()
            && other.is_plain()
            && self.bytes[..] == other.bytes[..]
    }

    /// Bits that the file has for an element, its share of scales included.
    pub fn file_bits(&self) -> f32 {
        self.unpacked.as_ref().map_or_else(|| self.format.bits(), |unpacked| unpacked.bits)
    }

    /// What is to be said of it where it is decoded for this reason; the reason it was decoded for before, if it was.
    pub fn unpacked_for(&self, why: &str) -> Option<Unpacked> {
        let packed = self.format.bits() < F32.bits();
        self.unpacked.clone().or_else(|| packed.then(|| Unpacked::new(self.format.bits(), why)))
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.format.row_bytes(self.shape[2])
    }

    /// Row `row`, counted through all experts, to `out` of `cols` elements: the definition of every field.
    ///
    /// # Panics
    /// If there is no such row, or `out` is shorter than a row.
    pub fn decode_row(&self, row: usize, out: &mut [f32]) {
        let stride = self.row_bytes();
        self.decode_packed_row(&self.bytes[row * stride..][..stride], row, out);
    }

    /// The same of a row whose packed bytes are elsewhere: a backend's, that has them in an order of its own.
    ///
    /// # Panics
    /// If `out` is shorter than a row, or there is no such row.
    pub fn decode_packed_row(&self, packed: &[u8], row: usize, out: &mut [f32]) {
        let out = &mut out[..self.shape[2]];
        self.format.decode_row(packed, out);
        if let Some(scale) = &self.scale {
            let tiles = out.chunks_mut(scale.tile[1]).zip(scale.of_row(self.shape, row));
            tiles.for_each(|(tile, factor)| tile.iter_mut().for_each(|v| *v *= factor));
        }
        if let Some(perm) = &self.input_perm {
            let packed = out.to_vec();
            perm.iter().zip(packed).for_each(|(&to, v)| out[to as usize] = v);
        }
    }

    /// All elements. `[experts, rows, cols]`
    pub fn to_array(&self) -> Array3<f32> {
        let [e, r, c] = self.shape;
        let mut values = vec![0.0; e * r * c];
        if c > 0 {
            values.chunks_mut(c).enumerate().for_each(|(i, row)| self.decode_row(i, row));
        }
        // The vector was made with as many elements as the shape has.
        Array3::from_shape_vec((e, r, c), values).unwrap_or_default()
    }

    /// All elements, row-major.
    pub fn to_vec(&self) -> Vec<f32> {
        self.to_array().into_raw_vec_and_offset().0
    }

    /// The same weight in plain single precision, for a backend (or a transformation) that knows neither the format
    /// nor the other fields.
    ///
    /// # Errors
    /// If it is more bytes than can be counted then.
    pub fn decoded(&self) -> Result<Self> {
        let unpacked = self.unpacked_for("what reads it knows single precision only");
        let decoded = Self::from_f32(self.name.clone(), self.shape, &self.to_vec())?;
        Ok(Self { shard: self.shard, unpacked, ..decoded })
    }

    /// Rows `range` of a weight with one expert, sharing its bytes.
    ///
    /// # Errors
    /// If it has more than one expert, or `range` is not within its rows.
    pub fn rows(&self, range: Range<usize>) -> Result<Self> {
        if self.shape[0] != 1 || range.start > range.end || range.end > self.shape[1] {
            return Err(Error::invalid(
                &self.name,
                format!("rows {range:?} are not within {:?}", self.shape),
            ));
        }
        let stride = self.row_bytes();
        let bytes = self.bytes.part(range.start * stride..range.end * stride)?;
        let scale = self.scale.as_ref().map(|scale| scale.rows(self.shape, range.clone()));
        Ok(Self { shape: [1, range.len(), self.shape[2]], bytes, scale, ..self.clone() })
    }

    /// Rows in another order: row `i` of the result is row `order[i]`. Copies packed rows; nothing is decoded.
    ///
    /// # Errors
    /// If it has more than one expert, or `order` has more or fewer rows than it, or one that there is not.
    pub fn reordered(&self, order: &[usize]) -> Result<Self> {
        if self.shape[0] != 1 || order.len() != self.shape[1] || order.iter().any(|&r| r >= self.shape[1]) {
            return Err(Error::invalid(&self.name, "the order of rows does not fit the weight"));
        }
        let stride = self.row_bytes();
        let mut bytes = Vec::with_capacity(self.bytes.len());
        order.iter().for_each(|&r| bytes.extend_from_slice(&self.bytes[r * stride..][..stride]));
        let scale = self.scale.as_ref().map(|scale| scale.reordered(self.shape, order));
        Ok(Self { bytes: bytes.into(), scale, ..self.clone() })
    }

    /// The same rows, in their order, as those of so many experts: of one, to take them together, or of several again.
    ///
    /// # Errors
    /// If there are not as many rows for each.
    pub fn regrouped(&self, experts: usize) -> Result<Self> {
        let [before, rows, cols] = self.shape;
        let all = before.checked_mul(rows).filter(|all| all.is_multiple_of(experts.max(1)) && experts > 0);
        let Some(all) = all else {
            let why = format!("{:?} is not {experts} experts of as many rows each", self.shape);
            return Err(Error::invalid(&self.name, why));
        };
        let scale = self.scale.as_ref().map(|scale| scale.regrouped(self.shape, all / experts));
        Ok(Self { shape: [experts, all / experts, cols], scale, ..self.clone() })
    }

    /// The same elements, in their order, in another shape; decoded where something stands beside them.
    ///
    /// # Errors
    /// Unless the shape has as many elements, each row in whole blocks.
    pub fn reshaped(&self, shape: [usize; 3]) -> Result<Self> {
        let of = if self.is_plain() { self.clone() } else { self.decoded()? };
        let reshaped = Self::new(of.name, shape, of.format, of.bytes)?;
        Ok(reshaped.with_unpacked(of.unpacked))
    }

    /// Rows become columns (GPT-2 keeps `[in, out]`). Blocks of several elements run along the input, and are decoded; others stay what
    /// they are.
    ///
    /// # Errors
    /// If it is more bytes than can be counted then.
    pub fn transposed(&self) -> Result<Self> {
        let [e, r, c] = self.shape;
        if self.format.block_len == 1 && self.input_perm.is_none() {
            let bytes = self.turned_bytes(self.format.block_bytes).into();
            let scale = self.scale.as_ref().map(|scale| scale.transposed(self.shape));
            return Ok(Self { shape: [e, c, r], bytes, scale, ..self.clone() });
        }
        let values: Vec<f32> = self.to_array().permuted_axes([0, 2, 1]).iter().copied().collect();
        let unpacked = self.unpacked_for("the file has them transposed");
        let turned = Self::from_f32(self.name.clone(), [e, c, r], &values)?;
        Ok(Self { shard: self.shard, unpacked, ..turned })
    }

    /// Elements of `size` bytes, with columns for rows. Some columns at a time, so that neither what is read nor what is written is
    /// spread over more lines than a cache has.
    fn turned_bytes(&self, size: usize) -> Vec<u8> {
        const COLUMNS: usize = 32;
        let ([_, r, c], mut turned) = (self.shape, vec![0; self.bytes.len()]);
        let matrix = (r * c * size).max(1);
        for (to, from) in turned.chunks_exact_mut(matrix).zip(self.bytes.chunks_exact(matrix)) {
            for (first, to) in to.chunks_mut(COLUMNS * r * size).enumerate() {
                for (row, from) in from.chunks_exact(c * size).enumerate() {
                    let elements = from[first * COLUMNS * size..].chunks_exact(size);
                    for (to, from) in to.chunks_exact_mut(r * size).zip(elements) {
                        to[row * size..][..size].copy_from_slice(from);
                    }
                }
            }
        }
        turned
    }

    /// Matrices of one shape as one weight with an expert each. Copies the packed bytes, when they are first read. A weight has one format,
    /// one order of columns (act-order) and one size of tiles with factors, so experts that have several are decoded then.
    ///
    /// # Errors
    /// If there are no `parts`, if they have several shapes, or if together they are more bytes than can be counted.
    pub fn stack(name: impl Into<String>, parts: &[Self]) -> Result<Self> {
        let name = name.into();
        let first = parts.first().ok_or_else(|| Error::missing(&name))?;
        if let Some(odd) = parts.iter().find(|p| p.shape != first.shape) {
            let (a, b) = (odd.shape, first.shape);
            let why = format!(
                "`{}` has the shape {a:?} and `{}` {b:?}, where all are to be one weight",
                odd.name, first.name
            );
            return Err(Error::invalid(&name, why));
        }
        if parts.iter().any(|p| p.format != first.format) {
            return Self::stack_decoded(name, parts, "experts are packed in different formats");
        }
        let tile = |p: &Self| p.scale.as_ref().map(|scale| scale.tile);
        if parts.iter().any(|p| tile(p) != tile(first)) {
            return Self::stack_decoded(name, parts, "experts have factors for tiles of different sizes");
        }
        if parts.iter().any(|p| p.input_perm != first.input_perm) {
            return Self::stack_decoded(name, parts, "experts have their columns in orders of their own");
        }
        let bits = parts.iter().map(Self::file_bits).sum::<f32>() / parts.len() as f32;
        let unpacked = parts.iter().find_map(|p| Some(Unpacked::new(bits, p.unpacked.clone()?.why)));
        let part_len = first.bytes.len();
        let all: Vec<Bytes> = parts.iter().map(|p| p.bytes.clone()).collect();
        let bytes = Bytes::lazy(parts.len() * part_len, move |bytes| {
            bytes.chunks_exact_mut(part_len.max(1)).zip(&all).for_each(|(to, part)| to.copy_from_slice(part));
        });
        let shape = [parts.len() * first.shape[0], first.shape[1], first.shape[2]];
        let whole = Self::new(name, shape, first.format, bytes)?.with_unpacked(unpacked);
        let factors = parts.iter().filter_map(|p| p.scale.as_ref()).flat_map(|scale| scale.values.iter());
        let scale = tile(first).map(|tile| Scale { values: factors.copied().collect(), tile });
        let whole = scale.map_or(Ok(whole.clone()), |scale| whole.with_scale(scale))?;
        Ok(Self { input_perm: first.input_perm.clone(), ..whole })
    }

    /// The same in single precision, of parts of one shape, for this reason.
    fn stack_decoded(name: String, parts: &[Self], why: &str) -> Result<Self> {
        let bits = parts.iter().map(Self::file_bits).sum::<f32>() / parts.len() as f32;
        let unpacked = parts.iter().find_map(|p| Some(Unpacked::new(bits, p.unpacked_for(why)?.why)));
        let [experts, rows, cols] = parts.first().map_or([0; 3], |p| p.shape);
        let shape = [experts.saturating_mul(parts.len()), rows, cols];
        let len = shape.into_iter().try_fold(F32.block_bytes, usize::checked_mul);
        let len =
            len.ok_or_else(|| Error::invalid(&name, format!("{shape:?} is more than memory can hold")))?;
        let all = parts.to_vec();
        let bytes = Bytes::lazy(len, move |bytes| {
            let mut row = vec![0.0; cols];
            let places = all.iter().flat_map(|p| (0..experts * rows).map(move |i| (p, i)));
            for (to, (part, i)) in bytes.chunks_exact_mut((cols * F32.block_bytes).max(1)).zip(places) {
                part.decode_row(i, &mut row);
                to.chunks_exact_mut(F32.block_bytes)
                    .zip(&row)
                    .for_each(|(to, v)| to.copy_from_slice(&v.to_le_bytes()));
            }
        });
        Ok(Self::new(name, shape, &F32, bytes)?.with_unpacked(unpacked))
    }
}
