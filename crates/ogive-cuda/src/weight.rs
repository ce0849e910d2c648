//! A weight on the device: the packed bytes as they came, and how kernels read them.
//!
//! Nothing is decoded that a kernel can decode: the sixteen formats of ogive-tensor stay as the file has them. A stranger's format, and
//! weights with factors or a permutation beside their elements, are decoded row by row on their way up.

use crate::device::Device;
use crate::driver::Address;
use crate::memory::{Buffer, Pool};
use ogive_backend::Weight;
use ogive_kernels::WEIGHT_FORMATS;
use ogive_tensor::{Error, FORMATS, Format, HostWeight, Result};
use std::sync::Arc;

/// How a weight is kept, without the weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    /// The format, by its name in the kernels.
    pub(crate) format: &'static str,
    /// `[experts, out, in]`
    pub(crate) shape: [usize; 3],
}

/// What [`Weight::data`] is here.
#[derive(Debug)]
pub(crate) struct CudaWeight {
    buffer: Buffer,
    device: u64,
    /// The format it is kept in, by its name in the kernels.
    pub(crate) format: &'static str,
    /// `[experts, out, in]`
    pub(crate) shape: [usize; 3],
    /// Bytes of a row.
    pub(crate) row_bytes: usize,
}

/// Checks what kernels lean on, because a weight's fields can be set one by one.
fn check(w: &HostWeight) -> Result<()> {
    let mut whole = HostWeight::new(w.name.as_str(), w.shape, w.format, w.bytes.clone())?;
    if let Some(scale) = &w.scale {
        whole = whole.with_scale(scale.clone())?;
    }
    if let Some(perm) = &w.input_perm {
        whole.with_input_perm(Arc::clone(perm))?;
    }
    Ok(())
}

/// The kernels' name of a format, if they read it as it is.
fn named(format: &Format, plain: bool) -> Option<&'static str> {
    let known = FORMATS.iter().any(|f| std::ptr::eq(*f, format));
    WEIGHT_FORMATS.into_iter().find(|name| known && plain && *name == format.name)
}

/// That of the weight's.
fn kept(w: &HostWeight) -> Option<&'static str> {
    named(w.format, w.is_plain())
}

/// Its name in the kernels, and bytes of a row, as it is kept.
fn kept_as(w: &HostWeight) -> (&'static str, usize) {
    kept(w).map_or(("f32", w.shape[2].saturating_mul(4)), |name| (name, w.row_bytes()))
}

/// Bytes of device memory it would take.
pub(crate) fn size(w: &HostWeight) -> u64 {
    let rows = w.shape[0].saturating_mul(w.shape[1]);
    Pool::size(rows.saturating_mul(kept_as(w).1)).map_or(u64::MAX, |n| n as u64)
}

/// Takes a weight in.
pub(crate) fn upload(device: &Device, w: &HostWeight) -> Result<Weight> {
    device.outside("upload_weight")?;
    check(w)?;
    let [experts, rows, cols] = w.shape;
    let (format, row_bytes) = kept_as(w);
    let count = experts.checked_mul(rows);
    let bytes = count.and_then(|n| n.checked_mul(row_bytes));
    let (Some(count), Some(bytes)) = (count, bytes) else {
        return Err(Error::invalid(&w.name, "the decoded weight has more bytes than can be counted"));
    };
    let at = || format!("upload_weight `{}`", w.name);
    let buffer = device.take(&at(), bytes)?;
    let (stream, transfer) = (device.stream(), &device.transfer);
    if kept(w).is_some() {
        transfer.send(stream, buffer.address(), &w.bytes)?;
    } else {
        let mut decoded = vec![0.0; cols];
        for row in 0..count {
            w.decode_row(row, &mut decoded);
            transfer.send_values(stream, buffer.address() + (row * row_bytes) as u64, &decoded)?;
        }
    }
    w.bytes.release();
    Ok(Weight::new(w, CudaWeight { buffer, device: device.id(), format, shape: w.shape, row_bytes }))
}

/// The weight as it was taken in by this device.
pub(crate) fn read<'a>(device: &Device, at: &str, w: &'a Weight) -> Result<&'a CudaWeight> {
    let own = w.data::<CudaWeight>().map_err(|e| e.within(at))?;
    device.own("weight", own.device).map_err(|e| e.within(at))?;
    Ok(own)
}

impl CudaWeight {
    /// Where it lies.
    pub(crate) fn address(&self) -> Address {
        self.buffer.address()
    }

    /// How it is kept.
    pub(crate) fn kept(&self) -> Kept {
        Kept { format: self.format, shape: self.shape }
    }

    /// Whether rows are whole eights, so that plain numbers can be read in wide loads.
    pub(crate) fn is_wide(&self) -> bool {
        self.kept().is_wide()
    }
}

impl Kept {
    /// How a weight of this format and shape would be kept; one that is not `plain` has more beside its elements.
    pub(crate) fn of(format: &Format, plain: bool, shape: [usize; 3]) -> Self {
        Self { format: named(format, plain).unwrap_or("f32"), shape }
    }

    /// Elements and bytes of a block of its format.
    pub(crate) fn block(&self) -> (usize, usize) {
        let format = FORMATS.iter().find(|f| f.name == self.format);
        format.map_or((1, 4), |f| (f.block_len, f.block_bytes))
    }

    /// As [`CudaWeight::is_wide`].
    pub(crate) fn is_wide(&self) -> bool {
        self.shape[2].is_multiple_of(8)
    }
}
