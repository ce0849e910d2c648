//! Matrices of four bits of floating point, E2M1, that have a scale for a few columns: ModelOpt's and compressed-tensors' NVFP4, and the latter's MXFP4.
//!
//! | | codes, U8 `[…, out, in / 2]` | scales `[…, out, in / group]` | beside them |
//! |---|---|---|---|
//! | ModelOpt, NVFP4 | `weight` | `weight_scale`, E4M3 for 16 | `weight_scale_2`, F32, which multiplies |
//! | compressed-tensors, `nvfp4-pack-quantized` | `weight_packed` | `weight_scale`, E4M3 for 16 | `weight_global_scale`, F32, which divides |
//! | compressed-tensors, `mxfp4-pack-quantized` | `weight_packed` | `weight_scale`, U8 (E8M0) for 32 | |
//!
//! A byte has two neighbours, the first in its low half. The codes and scales become blocks of ggml's, to the bit, and what is for the whole matrix or
//! for each expert its [`Scale`]. E4M3 has a sign, which ggml's scale has not: where one is negative the codes change theirs.
//! What the files say of activations (`input_scale`, `input_global_scale`) is left out, as for FP8: here they are not rounded to four bits.

use super::{mxfp4::apart, parts::Parts};
use crate::formats::fold_shape;
use crate::safetensors::Raw;
use ogive_tensor::{
    Bytes, Error, F32, Format, HostWeight, MXFP4, NVFP4, Result, Scale, Unpacked, WeightInfo,
};

/// Whose files they are, and of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fp4 {
    ModelOpt,
    Nvfp4,
    Mxfp4,
}

/// Tensors beside a matrix that change it in ways that are not computed, and the byte that would change nothing, as in FP8.
const CHANGES: [(&str, Option<u8>); 3] =
    [("weight_zero_point", Some(0)), ("weight_g_idx", Some(0xff)), ("pre_quant_scale", None)];

/// The tensors of a matrix, held to each other.
struct Found {
    codes: Raw,
    scales: Raw,
    /// `[experts, rows, cols]`
    shape: [usize; 3],
}

impl Fp4 {
    const fn codes(self) -> &'static str {
        match self {
            Self::ModelOpt => "weight",
            Self::Nvfp4 | Self::Mxfp4 => "weight_packed",
        }
    }

    /// Columns that share a scale, and what a scale is.
    const fn scales(self) -> (usize, &'static str) {
        match self {
            Self::ModelOpt | Self::Nvfp4 => (16, "F8_E4M3"),
            Self::Mxfp4 => (32, "U8"),
        }
    }

    /// What the matrices become.
    const fn format(self) -> &'static Format {
        match self {
            Self::ModelOpt | Self::Nvfp4 => &NVFP4,
            Self::Mxfp4 => &MXFP4,
        }
    }

    /// The same where rows are whole blocks; decoded where they are not.
    fn format_of(self, cols: usize) -> &'static Format {
        if cols.is_multiple_of(self.format().block_len) { self.format() } else { &F32 }
    }

    fn find(self, parts: &Parts<'_>) -> Result<Found> {
        for (leaf, nothing) in CHANGES {
            let changes = |raw: Raw| nothing.is_none_or(|nothing| raw.bytes.iter().any(|b| *b != nothing));
            if parts.raw(leaf)?.is_some_and(changes) {
                let why = "a matrix in four bits has it beside it, and what it does is not computed; take a checkpoint without";
                return Err(Error::unsupported(&format!("{}{leaf}", parts.stem), why));
            }
        }
        let (group, of) = self.scales();
        let (codes, scales) = (parts.must(self.codes())?, parts.must("weight_scale")?);
        let (Some(shape), "U8") = (shape(&codes.shape, group), &*codes.dtype) else {
            let why = format!(
                "U8 of the shape [out, in / 2] are needed, with whole groups of {group} columns, and this is {:?} {}",
                codes.shape, codes.dtype
            );
            return Err(parts.wrong(self.codes(), why));
        };
        let mut want = codes.shape.clone();
        want.iter_mut().rev().take(1).for_each(|n| *n = *n * 2 / group as u64);
        if scales.shape != want || scales.dtype != of {
            let why = format!(
                "its shape is {:?} {}, where the codes need {want:?} {of}, one for {group} columns; do the files belong together?",
                scales.shape, scales.dtype
            );
            return Err(parts.wrong("weight_scale", why));
        }
        Ok(Found { codes, scales, shape })
    }

    /// What the weight is, without a look at its numbers.
    pub(super) fn info(self, name: &str, parts: &Parts<'_>) -> Result<WeightInfo> {
        let shape = self.find(parts)?.shape;
        self.factors(parts, shape[0])?;
        Ok(WeightInfo::new(name, shape, self.format_of(shape[2])))
    }

    /// The weight whose parts these are, with the file's numbers. Its bytes are made when they are read.
    pub(super) fn weight(self, name: &str, parts: &Parts<'_>) -> Result<HostWeight> {
        let Found { codes, scales, shape } = self.find(parts)?;
        let [experts, rows, cols] = shape;
        let (group, of) = self.scales();
        // In E4M3 with either sign, in E8M0 the last.
        let is_nan = |s: &u8| if of == "U8" { *s == 0xff } else { s & 0x7f == 0x7f };
        if let Some(at) = scales.bytes.iter().position(is_nan) {
            let why = format!("scale {at} is NaN, and {group} numbers would be; is the download complete?");
            return Err(parts.wrong("weight_scale", why));
        }
        let format = self.format_of(cols);
        let count = experts.checked_mul(rows).and_then(|n| n.checked_mul(format.row_bytes(cols)));
        let len = count.filter(|n| isize::try_from(*n).is_ok());
        let len = len.ok_or_else(|| Error::invalid(name, "it has more elements than can be counted"))?;
        let (codes, scales) = (codes.bytes, scales.bytes);
        let bytes = Bytes::lazy(len, move |to| {
            self.fill(&codes, &scales, cols, to);
            codes.release();
        });
        let decoded = !std::ptr::eq(format, self.format());
        let unpacked = decoded.then(|| {
            let why = format!("its rows are no whole blocks of {}", self.format().block_len);
            Unpacked::new(self.format().bits(), why)
        });
        let weight = HostWeight::new(name, shape, format, bytes)?.with_unpacked(unpacked);
        match self.factors(parts, experts)? {
            Some(values) => {
                weight.with_scale(Scale { values: values.into(), tile: [rows.max(1), cols.max(1)] })
            }
            None => Ok(weight),
        }
    }

    /// What multiplies each expert's matrix.
    fn factors(self, parts: &Parts<'_>, experts: usize) -> Result<Option<Vec<f32>>> {
        let leaf = match self {
            Self::ModelOpt => "weight_scale_2",
            Self::Nvfp4 => "weight_global_scale",
            Self::Mxfp4 => return Ok(None),
        };
        let raw = parts.must(leaf)?;
        let values: Vec<f32> = raw.bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        if raw.dtype != "F32" || values.len() != experts {
            let why = format!(
                "one F32 for each of {experts} matrices is needed and this is {:?} {}; do the files belong together?",
                raw.shape, raw.dtype
            );
            return Err(parts.wrong(leaf, why));
        }
        let factor = |v: f32| if self == Self::Nvfp4 { 1.0 / v } else { v };
        if let Some(v) = values.iter().find(|v| !v.is_finite() || !factor(**v).is_finite()) {
            let why =
                format!("a factor is {v}, and all of a matrix would be lost; is the download complete?");
            return Err(parts.wrong(leaf, why));
        }
        Ok(Some(values.into_iter().map(factor).collect()))
    }

    /// Blocks, or what they decode to where rows are no whole ones.
    fn fill(self, codes: &[u8], scales: &[u8], cols: usize, to: &mut [u8]) {
        // Rows that there are none of may be said to be of any length.
        if to.is_empty() {
            return;
        }
        if std::ptr::eq(self.format_of(cols), self.format()) {
            return self.lay(codes, scales, to);
        }
        let format = self.format();
        let (group, blocks) = (self.scales().0, cols.div_ceil(format.block_len));
        let mut row = vec![0; blocks * format.block_bytes];
        let mut values = vec![0.0; blocks * format.block_len];
        let rows = codes.chunks_exact((cols / 2).max(1)).zip(scales.chunks_exact((cols / group).max(1)));
        for ((codes, scales), to) in rows.zip(to.chunks_exact_mut((4 * cols).max(1))) {
            self.lay(codes, scales, &mut row);
            format.decode_row(&row, &mut values);
            to.as_chunks_mut().0.iter_mut().zip(&values).for_each(|(to, v)| *to = v.to_le_bytes());
        }
    }

    /// Groups one after the other, into blocks.
    fn lay(self, codes: &[u8], scales: &[u8], to: &mut [u8]) {
        match self {
            Self::Mxfp4 => {
                let groups = codes.as_chunks::<16>().0.iter().zip(scales);
                for (to, (codes, scale)) in to.as_chunks_mut::<17>().0.iter_mut().zip(groups) {
                    to[0] = *scale;
                    apart(codes, &mut to[1..]);
                }
            }
            Self::ModelOpt | Self::Nvfp4 => {
                let blocks = codes.chunks(32).zip(scales.chunks(4));
                for (to, (codes, scales)) in to.as_chunks_mut::<36>().0.iter_mut().zip(blocks) {
                    let (of, to) = to.split_at_mut(4);
                    let groups = codes.as_chunks::<8>().0.iter().zip(scales);
                    for ((of, to), (codes, scale)) in of.iter_mut().zip(to.as_chunks_mut::<8>().0).zip(groups)
                    {
                        *of = scale & 0x7f;
                        let signs = (scale >> 7) * 0x88;
                        apart(&codes.map(|c| c ^ signs), to);
                    }
                }
            }
        }
    }
}

/// Experts, rows and columns of codes of this shape.
fn shape(of: &[u64], group: usize) -> Option<[usize; 3]> {
    let mut of = matches!(of.len(), 2 | 3).then(|| of.to_vec())?;
    let halves = of.last_mut()?;
    *halves = halves.checked_mul(2)?;
    let shape = fold_shape("", &of).ok()?;
    shape[2].is_multiple_of(group).then_some(shape)
}
