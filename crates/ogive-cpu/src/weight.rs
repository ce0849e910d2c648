//! A weight on the CPU: the bytes the file has, and how they are multiplied.
//!
//! A packed weight is laid in [`Strips`] where the machine has kernels for them, and else stays where it is: in a mapped file.

use crate::{
    linear::{Book, Dense, Form, Of, Packed, Side, Strips, is_float8},
    pool::Pool,
    simd::Path,
};
use half::bf16;
use ogive_tensor::{BF16, Bytes, Error, F16, F32, HostWeight, Result};
use std::{iter, ops::Range, sync::Arc};

/// What products are computed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Precision {
    /// F32 and F16 weights exactly in single precision; BF16 weights with activations rounded to bf16; packed weights
    /// with activations rounded to 8 bits, one scale for up to 256 of them.
    #[default]
    Default,
    /// The same, with F32 and F16 weights rounded to bf16 when they are taken in, and then multiplied as those: a relative error
    /// of 2^-8 each in weights and activations. For F16 nearly twice as fast at prompts where the processor multiplies pairs
    /// of bf16 (AMD's since Zen 4), and some five times where it has AMX; elsewhere it gains nothing. F32 weights take half the memory.
    Bf16,
    /// Every weight is decoded on the fly and multiplied in single precision.
    Exact,
}

/// How a weight is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Row by row in single precision, whatever the format and what stands beside its elements.
    Decoded,
    /// Dense elements as they are.
    Dense(Dense),
    /// Dense elements in bf16, in the order of AMX's tiles.
    Tiled,
    /// Bytes that are numbers, with factors for tiles beside them, in single precision: the same product as [`Self::Decoded`].
    Float8,
    /// Packed codes times 8-bit activations.
    Packed(Packed),
    /// The same of rows that are unpacked to such codes before. Factors for rows, of either, multiply their results.
    Coded(Book),
}

/// A weight taken in.
#[derive(Debug)]
pub(crate) struct CpuWeight {
    host: HostWeight,
    kernel: Kernel,
    path: Path,
    /// In place of the host's bytes.
    strips: Option<Strips>,
    /// The weight as it was, where `strips` has only its first rows.
    rest: Option<Arc<Self>>,
}

/// Whoever read the bytes last gives their pages back.
impl Drop for CpuWeight {
    fn drop(&mut self) {
        self.host.bytes.release();
    }
}

impl CpuWeight {
    /// Takes a weight in; its bytes stay where they are. Fails on a path that this machine cannot take.
    pub(crate) fn new(w: &HostWeight, precision: Precision, path: Path) -> Result<Self> {
        if !path.is_supported() {
            return Err(Error::unsupported(&w.name, format!("this machine cannot take the path {path}")));
        }
        Ok(Self { host: w.clone(), kernel: kernel(w, precision, path), path, strips: None, rest: None })
    }

    /// The same weight as the scalar twin of `path` has it.
    #[cfg(test)]
    pub(crate) fn twin(w: &HostWeight, precision: Precision, path: Path) -> Self {
        let kernel = kernel(w, precision, path);
        Self { host: w.clone(), kernel, path: Path::Scalar, strips: None, rest: None }
    }

    /// Strips for this weight, without any row so far, where it has kernels that read them and is not in strips yet.
    pub(crate) fn no_strips(&self) -> Option<Strips> {
        let of = match self.kernel {
            _ if self.strips.is_some() => return None,
            Kernel::Packed(format) if self.path.has_strips() => Of::Packed(format),
            Kernel::Coded(book) if self.path.has_coded_strips() => Of::Coded(book),
            Kernel::Dense(kind) if self.path.has_dense_strips() => Of::Dense(kind),
            Kernel::Tiled => Of::Dense(Dense::Bf16),
            Kernel::Float8 if self.path.has_dense_strips() => Of::Words,
            _ => return None,
        };
        let [experts, rows, _] = self.host.shape;
        Strips::new(of, [experts, rows, self.host.row_bytes()])
    }

    /// The same weight with these rows in strips; `rest` is the weight as it was, if those are not all.
    pub(crate) fn with_strips(&self, strips: Strips, rest: Option<Arc<Self>>) -> Self {
        let mut host = self.host.clone();
        host.bytes = Bytes::from(Vec::new());
        Self { host, kernel: self.kernel, path: self.path, strips: Some(strips), rest }
    }

    /// The same weight in strips, where it has kernels that read them.
    #[cfg(test)]
    pub(crate) fn in_strips(&self, pool: &Pool) -> Option<Self> {
        let mut strips = self.no_strips()?;
        while !strips.are_all() {
            strips = strips.more(pool, &crate::room::Rooms::default(), &self.host.bytes)?;
        }
        Some(self.with_strips(strips, None))
    }

    /// What its rows are multiplied as: one weight, or two while it is laid in strips.
    pub(crate) fn forms(&self) -> impl Iterator<Item = &Self> {
        iter::once(self).chain(self.rest.as_deref())
    }

    /// The one that `rows`, counted through all experts, are multiplied as.
    pub(crate) fn form(&self, rows: Range<usize>) -> &Self {
        match (&self.rest, &self.strips) {
            (Some(rest), Some(strips)) if rows.end > strips.laid() => rest,
            _ => self,
        }
    }

    /// How activations meet it, if it is dense and lies in strips.
    pub(crate) fn side(&self) -> Option<Side> {
        match (self.kernel, &self.strips) {
            (Kernel::Dense(Dense::F32 | Dense::F16), Some(_)) => Some(Side::Single),
            (Kernel::Dense(Dense::Bf16), Some(_)) if self.path.has_pairs() => Some(Side::Pairs),
            (Kernel::Dense(Dense::Bf16), Some(_)) => Some(Side::OddEven),
            _ => None,
        }
    }

    /// Its strips, if it lies so.
    pub(crate) fn strips(&self) -> Option<&Strips> {
        self.strips.as_ref()
    }

    /// How its packed kernels want the activations of `n` tokens.
    pub(crate) fn wants(&self, n: usize) -> Form {
        self.path.wants(n, self.kernel(), self.strips.is_some())
    }

    /// `[experts, rows, cols]`
    pub(crate) fn shape(&self) -> [usize; 3] {
        self.host.shape
    }

    /// What the file says of it, and its bytes unless it is in strips, be it in part.
    pub(crate) fn host(&self) -> &HostWeight {
        &self.host
    }

    /// How it is multiplied.
    pub(crate) fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// The column of the activations that each of its columns meets, if its kernel takes them as the columns are.
    pub(crate) fn order(&self) -> Option<&[u32]> {
        match self.kernel {
            Kernel::Packed(_) | Kernel::Coded(_) => self.host.input_perm.as_deref(),
            Kernel::Decoded | Kernel::Float8 | Kernel::Dense(_) | Kernel::Tiled => None,
        }
    }

    /// The instructions it is multiplied with; this machine has them.
    pub(crate) fn path(&self) -> Path {
        self.path
    }

    /// The packed bytes of row `row`, counted through all experts, of a weight that is not in strips.
    ///
    /// # Panics
    /// If there is no such row here.
    pub(crate) fn row(&self, row: usize) -> &[u8] {
        let stride = self.host.row_bytes();
        &self.host.bytes[row * stride..][..stride]
    }

    /// Row `row`, counted through all experts, in single precision.
    ///
    /// # Panics
    /// If there is no such row, or `out` is shorter than a row.
    pub(crate) fn decode_row(&self, row: usize, out: &mut [f32]) {
        match self.form(row..row + 1) {
            Self { host, strips: Some(strips), .. } => host.decode_packed_row(&strips.row(row), row, out),
            Self { host, .. } => host.decode_row(row, out),
        }
    }
}

/// The weight that [`Precision::Bf16`] makes of this one.
pub(crate) fn rounded(pool: &Pool, w: &HostWeight) -> Result<HostWeight> {
    let is = |f| std::ptr::eq(w.format, f);
    if !w.is_plain() || !is(&F32) && !is(&F16) {
        return Ok(w.clone());
    }
    let [_, _, cols] = w.shape;
    let mut bytes = vec![0; w.bytes.len() / w.format.block_bytes * BF16.block_bytes];
    pool.chunks(&mut bytes, (cols * BF16.block_bytes).max(1), &|row, bytes| {
        let mut values = vec![0.0; cols];
        w.decode_row(row, &mut values);
        for (to, v) in bytes.as_chunks_mut().0.iter_mut().zip(values) {
            *to = bf16::from_f32(v).to_le_bytes();
        }
    });
    w.bytes.release();
    HostWeight::new(w.name.clone(), w.shape, &BF16, bytes.into())
}

fn kernel(w: &HostWeight, precision: Precision, path: Path) -> Kernel {
    let is = |f| std::ptr::eq(w.format, f);
    // Factors that are for a row or more can wait for its sum.
    let waits = w.scale.as_ref().is_none_or(|scale| scale.tile[1] >= w.shape[2] && w.shape[2] > 0);
    let rounds = waits && precision != Precision::Exact;
    match (Packed::of(w.format), Book::of(w.format)) {
        (Some(packed), _) if rounds && packed.is_multiplied() => Kernel::Packed(packed),
        (_, Some(book)) if rounds => Kernel::Coded(book),
        _ if is_float8(w) => Kernel::Float8,
        _ if !w.is_plain() => Kernel::Decoded,
        _ if is(&F32) => Kernel::Dense(Dense::F32),
        _ if is(&F16) => Kernel::Dense(Dense::F16),
        _ if precision == Precision::Exact => Kernel::Decoded,
        _ if is(&BF16) && path == Path::Amx => Kernel::Tiled,
        _ if is(&BF16) => Kernel::Dense(Dense::Bf16),
        _ => Kernel::Decoded,
    }
}
