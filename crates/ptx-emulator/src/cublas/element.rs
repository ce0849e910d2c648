//! Element types of matrices, and matrices in memory.
#![allow(unsafe_code)]

use half::{bf16, f16};

use super::status::{NOT_SUPPORTED, Status};
use crate::fault::{Fault, Kind};
use crate::runtime::copy::locate;
use crate::runtime::work::Reach;

/// `cudaDataType_t`, as far as real matrices go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    F32,
    F64,
    F16,
    Bf16,
    I8,
    I32,
}

impl Element {
    /// The type a number of the interface means.
    pub(crate) fn from_number(number: i32) -> Result<Self, Status> {
        Ok(match number {
            0 => Self::F32,
            1 => Self::F64,
            2 => Self::F16,
            3 => Self::I8,
            10 => Self::I32,
            14 => Self::Bf16,
            _ => return Err(NOT_SUPPORTED),
        })
    }

    /// Bytes of one.
    pub(crate) fn size(self) -> u64 {
        match self {
            Self::I8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 => 8,
        }
    }
}

/// What is computed with.
pub(crate) trait Number: Copy + Default + Send + Sync + PartialEq + 'static {
    fn from_bytes(element: Element, bytes: &[u8]) -> Self;
    fn put(self, element: Element, bytes: &mut [u8]);
    fn mul(self, other: Self) -> Self;
    /// `self * a + b`.
    fn fma(self, a: Self, b: Self) -> Self;
}

fn word<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut word = [0; N];
    for (to, from) in word.iter_mut().zip(bytes) {
        *to = *from;
    }
    word
}

impl Number for f32 {
    #[inline(always)]
    fn from_bytes(element: Element, bytes: &[u8]) -> Self {
        match element {
            Element::F32 => Self::from_le_bytes(word(bytes)),
            Element::F64 => f64::from_le_bytes(word(bytes)) as Self,
            Element::F16 => f16::from_le_bytes(word(bytes)).to_f32(),
            Element::Bf16 => bf16::from_le_bytes(word(bytes)).to_f32(),
            Element::I8 => Self::from(i8::from_le_bytes(word(bytes))),
            Element::I32 => i32::from_le_bytes(word(bytes)) as Self,
        }
    }

    #[inline(always)]
    fn put(self, element: Element, bytes: &mut [u8]) {
        match element {
            Element::F32 => bytes.copy_from_slice(&self.to_le_bytes()),
            Element::F64 => bytes.copy_from_slice(&f64::from(self).to_le_bytes()),
            Element::F16 => bytes.copy_from_slice(&f16::from_f32(self).to_le_bytes()),
            Element::Bf16 => bytes.copy_from_slice(&bf16::from_f32(self).to_le_bytes()),
            Element::I8 => bytes.copy_from_slice(&(self.round() as i8).to_le_bytes()),
            Element::I32 => bytes.copy_from_slice(&(self.round() as i32).to_le_bytes()),
        }
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self * other
    }

    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        self.mul_add(a, b)
    }
}

impl Number for f64 {
    #[inline(always)]
    fn from_bytes(element: Element, bytes: &[u8]) -> Self {
        match element {
            Element::F64 => Self::from_le_bytes(word(bytes)),
            _ => Self::from(f32::from_bytes(element, bytes)),
        }
    }

    #[inline(always)]
    fn put(self, element: Element, bytes: &mut [u8]) {
        match element {
            Element::F64 => bytes.copy_from_slice(&self.to_le_bytes()),
            _ => (self as f32).put(element, bytes),
        }
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self * other
    }

    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        self.mul_add(a, b)
    }
}

impl Number for i32 {
    #[inline(always)]
    fn from_bytes(element: Element, bytes: &[u8]) -> Self {
        match element {
            Element::I8 => Self::from(i8::from_le_bytes(word(bytes))),
            _ => Self::from_le_bytes(word(bytes)),
        }
    }

    #[inline(always)]
    fn put(self, element: Element, bytes: &mut [u8]) {
        match element {
            Element::I8 => bytes.copy_from_slice(&(self.clamp(-128, 127) as i8).to_le_bytes()),
            _ => bytes.copy_from_slice(&self.to_le_bytes()),
        }
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }

    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        self.wrapping_mul(a).wrapping_add(b)
    }
}

/// A matrix in device memory, column after column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    pub(crate) address: u64,
    pub(crate) element: Element,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Elements from column to column.
    pub(crate) ld: i64,
    /// What a report calls it.
    pub(crate) name: &'static str,
}

/// Bytes of device memory that were found.
struct Piece {
    allocation: std::sync::Arc<crate::memory::Allocation>,
    offset: u64,
}

impl Matrix {
    fn column_bytes(&self) -> u64 {
        self.rows as u64 * self.element.size()
    }

    /// The whole of it, from the first byte to behind the last.
    fn find(&self, memory: &Reach<'_>) -> Result<Piece, Fault> {
        let stride = u64::try_from(self.ld).unwrap_or(0) * self.element.size();
        let span = stride * (self.columns as u64).saturating_sub(1) + self.column_bytes();
        let doing = format!(
            "{} ({} x {}, {} elements from column to column)",
            self.name, self.rows, self.columns, self.ld
        );
        let (allocation, offset) = locate(memory.memory, self.address, span, &doing)?;
        if !self.address.is_multiple_of(self.element.size()) {
            let message =
                format!("{doing}: at {:#x}, which its elements' size does not divide", self.address);
            return Err(Fault { kind: Kind::Misaligned, message, site: None, other: None });
        }
        Ok(Piece { allocation, offset })
    }

    /// Reads it: `rows` elements, then the next column.
    pub(crate) fn read<T: Number>(&self, memory: &Reach<'_>) -> Result<Vec<T>, Fault> {
        if self.rows == 0 || self.columns == 0 {
            return Ok(Vec::new());
        }
        let piece = self.find(memory)?;
        let bytes = self.column_bytes();
        let stride = u64::try_from(self.ld).unwrap_or(0) * self.element.size();
        let mut all = Vec::with_capacity(self.rows * self.columns);
        for column in 0..self.columns as u64 {
            let at = piece.offset + column * stride;
            (memory.told)(self.address + column * stride, bytes, false)?;
            if let Some(hole) =
                piece.allocation.written().and_then(|written| written.first_unwritten(at, bytes))
            {
                let message = format!(
                    "{} reads byte {hole} of the {}-byte allocation #{}, which nothing wrote",
                    self.name, piece.allocation.len, piece.allocation.serial
                );
                return Err(Fault { kind: Kind::Unwritten, message, site: None, other: None });
            }
            // SAFETY: the column lies in the allocation, which `piece` keeps alive; no kernel or copy runs meanwhile, since the
            // machine runs one task at a time.
            let data = unsafe {
                std::slice::from_raw_parts(piece.allocation.host().wrapping_add(at as usize), bytes as usize)
            };
            convert(self.element, data, &mut all);
        }
        Ok(all)
    }

    /// Writes it back.
    pub(crate) fn write<T: Number>(&self, memory: &Reach<'_>, values: &[T]) -> Result<(), Fault> {
        if self.rows == 0 || self.columns == 0 {
            return Ok(());
        }
        let piece = self.find(memory)?;
        let bytes = self.column_bytes();
        let stride = u64::try_from(self.ld).unwrap_or(0) * self.element.size();
        for (column, values) in values.chunks(self.rows).take(self.columns).enumerate() {
            let at = piece.offset + column as u64 * stride;
            (memory.told)(self.address + column as u64 * stride, bytes, true)?;
            // SAFETY: as in `read`, and nothing else refers to this memory meanwhile.
            let data = unsafe {
                std::slice::from_raw_parts_mut(
                    piece.allocation.host().wrapping_add(at as usize),
                    bytes as usize,
                )
            };
            for (to, value) in data.chunks_exact_mut(self.element.size() as usize).zip(values) {
                value.put(self.element, to);
            }
            if let Some(written) = piece.allocation.written() {
                written.mark(at, bytes);
            }
        }
        Ok(())
    }
}

/// One loop for each type, so that the compiler sees which.
fn convert<T: Number>(element: Element, data: &[u8], to: &mut Vec<T>) {
    macro_rules! each {
        ($($variant:ident $size:literal),*) => {
            match element {
                $(Element::$variant => to.extend(data.chunks_exact($size).map(|bytes| T::from_bytes(Element::$variant, bytes))),)*
            }
        };
    }
    each!(F32 4, F64 8, F16 2, Bf16 2, I8 1, I32 4);
}
