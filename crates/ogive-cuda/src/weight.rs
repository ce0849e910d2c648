//! A weight on the device: the packed bytes as they came, and how kernels read them.
//!
//! Nothing is decoded that a kernel can decode: the formats of ogive-tensor stay as the file has them. FP8 and NVFP4 keep their bytes, too, and the factors of
//! tiles are laid among them, one for each 32 or 64 columns, so that what reads a weight reads these where it reads elements. Where the columns of a packed
//! weight are in another order than its inputs (act-order), that order lies behind the rows, four bytes a column. A stranger's format,
//! weights with factors beside their elements, and stacks of experts in an order (no file has one for all experts) are decoded row by
//! row on their way up.

use crate::device::Device;
use crate::driver::Address;
use crate::memory::{Buffer, Pool};
use ogive_backend::{Multiplied, Weight};
use ogive_kernels::{F8_BLOCKS, NVFP4_BLOCKS, WEIGHT_FORMATS};
use ogive_tensor::{Error, F8_E4M3, FORMATS, Format, HostWeight, NVFP4, Result, Unpacked};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// How a weight is kept, without the weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    /// The format, by its name in the kernels.
    pub(crate) format: &'static str,
    /// `[experts, out, in]`
    pub(crate) shape: [usize; 3],
    /// Whether its columns are in another order than its inputs.
    pub(crate) ordered: bool,
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
    /// Which input each column multiplies, where it is not its own, and where that lies behind the rows. Equal orders on one device are
    /// one allocation.
    order: Option<(Arc<[u32]>, usize)>,
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

/// Where an order begins: at a multiple of this.
const ALIGNED: usize = 16;

/// Bytes of blocks with factors that are laid before they are sent.
const AT_A_TIME: usize = 1 << 20;
/// Formats that are laid in blocks with a factor first, what kernels call those, and their elements.
static LAID: [(&Format, &str, usize); 2] = [(&F8_E4M3, F8_BLOCKS, 32), (&NVFP4, NVFP4_BLOCKS, 64)];

/// What a format is laid as, and the elements of a block of that.
fn laid(format: &Format) -> Option<(&'static str, usize)> {
    LAID.iter().find(|(of, ..)| std::ptr::eq(*of, format)).map(|(_, name, len)| (*name, *len))
}

/// Whether a weight has factors beside its elements that kernels do not read, or columns in an order. Factors of FP8 and NVFP4 are read where they are for
/// whole blocks; `columns` are those of a tile.
fn beside(format: &Format, columns: Option<usize>, ordered: bool, [.., cols]: [usize; 3]) -> [bool; 2] {
    let is_read = |n: usize| laid(format).is_some_and(|(_, len)| n.is_multiple_of(len) || n >= cols);
    [columns.is_some_and(|n| !is_read(n)), ordered]
}

/// The same of a host's weight.
fn beside_of(w: &HostWeight) -> [bool; 2] {
    beside(w.format, w.scale.as_ref().map(|scale| scale.tile[1]), w.input_perm.is_some(), w.shape)
}

/// The kernels' name of the format, if they read the bytes as they come, or as blocks with a factor: of a weight that has factors beside its elements
/// which they do not read, or whose columns are in an order. Plain numbers are put in order once and for all.
fn named(format: &Format, [scaled, ordered]: [bool; 2], shape: [usize; 3]) -> Option<&'static str> {
    if let Some((name, len)) = laid(format) {
        let readable = !scaled && !ordered && shape[2].is_multiple_of(len);
        return readable.then_some(name);
    }
    let known = FORMATS.iter().any(|f| std::ptr::eq(*f, format));
    let readable = !scaled && (!ordered || (format.block_len > 1 && shape[0] == 1));
    WEIGHT_FORMATS.into_iter().find(|name| known && readable && *name == format.name)
}

/// How many bytes a weight takes, and where.
struct Layout {
    /// As it comes, or decoded.
    packed: bool,
    kept: Kept,
    row_bytes: usize,
    /// Where its order begins.
    rows: usize,
    /// All of it.
    bytes: usize,
}

/// `None`: more bytes than can be counted.
fn layout(w: &HostWeight) -> Option<Layout> {
    let beside = beside_of(w);
    let (kept, packed) = (Kept::of(w.format, beside, w.shape), named(w.format, beside, w.shape).is_some());
    let row_bytes = match kept.block() {
        (len, bytes) if kept.is_laid() => (w.shape[2] / len).checked_mul(bytes)?,
        _ if packed => w.row_bytes(),
        _ => w.shape[2].checked_mul(4)?,
    };
    let rows = w.shape[0].checked_mul(w.shape[1])?.checked_mul(row_bytes)?;
    if !kept.ordered {
        return Some(Layout { packed, kept, row_bytes, rows, bytes: rows });
    }
    let rows = rows.checked_next_multiple_of(ALIGNED)?;
    let bytes = w.shape[2].checked_mul(4)?.checked_add(rows)?;
    Some(Layout { packed, kept, row_bytes, rows, bytes })
}

/// Bytes it is kept in; [`taken`] says what that takes.
pub(crate) fn size(w: &HostWeight) -> u64 {
    layout(w).map_or(u64::MAX, |l| l.bytes as u64)
}

/// Bytes of device memory that weights kept in so many take, which come in this order; they share pages.
pub(crate) fn taken(sizes: &[u64]) -> u64 {
    Pool::lasting_size(sizes.iter().copied()).unwrap_or(u64::MAX)
}

/// Takes a weight in.
pub(crate) fn upload(device: &Device, w: &HostWeight) -> Result<Weight> {
    device.outside("upload_weight")?;
    check(w)?;
    let Some(Layout { packed, kept, row_bytes, rows, bytes }) = layout(w) else {
        return Err(Error::invalid(&w.name, "the weight has more bytes than can be counted"));
    };
    let at = || format!("upload_weight `{}`", w.name);
    let buffer = device.take_lasting(&at(), bytes)?;
    let (stream, transfer) = (device.stream(), &device.transfer);
    if kept.is_laid() {
        let (all, each) = (w.shape[0] * w.shape[1], (AT_A_TIME / row_bytes.max(1)).max(1));
        let mut blocks = vec![0; each.min(all) * row_bytes];
        for first in (0..all).step_by(each) {
            let blocks = &mut blocks[..each.min(all - first) * row_bytes];
            blocks
                .chunks_exact_mut(row_bytes.max(1))
                .zip(first..)
                .for_each(|(to, row)| lay_blocks(w, kept.block(), row, to));
            transfer.send(stream, buffer.address() + (first * row_bytes) as u64, blocks)?;
        }
    } else if packed {
        transfer.send(stream, buffer.address(), &w.bytes)?;
    } else {
        let mut decoded = vec![0.0; w.shape[2]];
        for row in 0..w.shape[0] * w.shape[1] {
            w.decode_row(row, &mut decoded);
            transfer.send_values(stream, buffer.address() + (row * row_bytes) as u64, &decoded)?;
        }
    }
    let order = match w.input_perm.as_ref().filter(|_| kept.ordered) {
        Some(order) => {
            transfer.send_words(stream, buffer.address() + rows as u64, order)?;
            Some((device.order(order), rows))
        }
        None => None,
    };
    w.bytes.release();
    if w.shape[0] > 1 {
        device.has_experts.store(true, Relaxed);
    }
    let Kept { format, shape, .. } = kept;
    let weight = Weight::new(w, CudaWeight { buffer, device: device.id(), format, shape, row_bytes, order });
    Ok(weight.with_unpacked(unpacked(w)))
}

/// A row as kernels read it that have blocks of so many elements and bytes, their factor first.
fn lay_blocks(w: &HostWeight, (len, bytes): (usize, usize), row: usize, to: &mut [u8]) {
    let (stride, own) = (w.row_bytes(), w.format.row_bytes(len));
    let factors = w.scale.as_ref().map(|scale| (scale.of_row(w.shape, row), scale.tile[1]));
    let blocks = w.bytes[row * stride..][..stride].chunks_exact(own);
    for (i, (to, from)) in to.chunks_exact_mut(bytes).zip(blocks).enumerate() {
        let factor = factors.map_or(1.0, |(of_row, columns)| of_row[i * len / columns]);
        let (first, elements) = to.split_at_mut(bytes - own);
        first.copy_from_slice(&factor.to_le_bytes());
        elements.copy_from_slice(from);
    }
}

/// What the file has instead, where a weight is not kept as packed as there.
pub(crate) fn unpacked(w: &HostWeight) -> Option<Unpacked> {
    match named(w.format, beside_of(w), w.shape) {
        Some(_) => w.unpacked.clone(),
        None => w.unpacked_for(&why_decoded(w)),
    }
}

/// Why the kernels do not read a weight's bytes as they come.
fn why_decoded(w: &HostWeight) -> String {
    let name = w.format.name;
    let experts = if w.shape[0] > 1 { "stacks of experts" } else { "plain numbers" };
    match (laid(w.format), &w.input_perm) {
        (Some((_, len)), None) => {
            format!("CUDA has kernels for {name} in whole blocks of {len} columns, and for factors of such")
        }
        (Some(_), Some(_)) => format!("CUDA has no kernels for {name} whose columns are in an order"),
        _ if w.scale.is_some() => "CUDA has no kernels for factors beside the elements".into(),
        _ if named(w.format, [false; 2], w.shape).is_none() => {
            format!("CUDA has no kernels for the format {name}")
        }
        _ => format!("CUDA has no kernels for {experts} whose columns are in an order"),
    }
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
        Kept { format: self.format, shape: self.shape, ordered: self.order.is_some() }
    }

    /// Where the number of the input that each column multiplies lies; 0 if that is its own.
    pub(crate) fn order(&self) -> Address {
        self.order.as_ref().map_or(0, |(_, from)| self.address() + *from as u64)
    }

    /// The order of its columns, if it has one.
    pub(crate) fn columns(&self) -> Option<&Arc<[u32]>> {
        self.order.as_ref().map(|(order, _)| order)
    }

    /// Whether both want their inputs in the same order.
    pub(crate) fn is_ordered_as(&self, other: Option<&Arc<[u32]>>) -> bool {
        match (self.columns(), other) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        }
    }

    /// Whether rows are whole eights, so that plain numbers can be read in wide loads.
    pub(crate) fn is_wide(&self) -> bool {
        self.kept().is_wide()
    }
}

impl Kept {
    /// How a weight of this format and shape would be kept that has factors beside its elements, or whose columns are in an order.
    pub(crate) fn of(format: &Format, beside: [bool; 2], shape: [usize; 3]) -> Self {
        let name = named(format, beside, shape);
        Self { format: name.unwrap_or("f32"), shape, ordered: beside[1] && name.is_some() }
    }

    /// How the weight of a product that is to be counted would be kept.
    pub(crate) fn of_product(p: &Multiplied) -> Self {
        Self::of(p.format, beside(p.format, p.factors, p.ordered, p.shape), p.shape)
    }

    /// Elements and bytes of a block of its format.
    pub(crate) fn block(&self) -> (usize, usize) {
        // A factor in single precision and the file's bytes.
        if let Some((format, _, len)) = LAID.iter().find(|(_, name, _)| *name == self.format) {
            return (*len, 4 + format.row_bytes(*len));
        }
        let format = FORMATS.iter().find(|f| f.name == self.format);
        format.map_or((1, 4), |f| (f.block_len, f.block_bytes))
    }

    /// Whether it is packed in codes that products of integers are made of.
    pub(crate) fn has_codes(&self) -> bool {
        self.block().0 > 1 && self.format != F8_BLOCKS
    }

    /// Whether it is in blocks with a factor.
    fn is_laid(&self) -> bool {
        LAID.iter().any(|(_, name, _)| *name == self.format)
    }

    /// As [`CudaWeight::is_wide`].
    pub(crate) fn is_wide(&self) -> bool {
        self.shape[2].is_multiple_of(8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CudaBackend;
    use crate::launch::tests::on;
    use ogive_backend::Backend;
    use ogive_tensor::{F16, F32, MXFP4, Q4_0, Scale};
    use ptx_emulator_launcher::{Nvrtc, test_name};

    #[test]
    fn what_is_decoded_is_known_before() {
        let kept = |format, beside, experts| {
            let kept = Kept::of(format, beside, [experts, 8, 64]);
            (kept.format, kept.ordered)
        };
        for format in [&F32, &F16, &Q4_0, &MXFP4] {
            assert_eq!(kept(format, [false, false], 3), (format.name, false));
            for beside in [[true, false], [true, true]] {
                assert_eq!(kept(format, beside, 1), ("f32", false), "{} {beside:?}", format.name);
            }
        }
        assert_eq!(kept(&Q4_0, [false, true], 1), ("q4_0", true));
        // Decoded, columns are where inputs are.
        for (format, experts) in [(&Q4_0, 2), (&F16, 1), (&F32, 1)] {
            assert_eq!(kept(format, [false, true], experts), ("f32", false), "{} {experts}", format.name);
        }
        // FP8 is kept in blocks with a factor, if it has such.
        for (columns, name) in [
            (None, F8_BLOCKS),
            (Some(128), F8_BLOCKS),
            (Some(64), F8_BLOCKS),
            (Some(16), "f32"),
            (Some(48), "f32"),
        ] {
            let beside = beside(&F8_E4M3, columns, false, [3, 8, 64]);
            assert_eq!(kept(&F8_E4M3, beside, 3), (name, false), "{columns:?}");
        }
        for (columns, name) in [(None, NVFP4_BLOCKS), (Some(128), NVFP4_BLOCKS), (Some(32), "f32")] {
            let beside = beside(&NVFP4, columns, false, [3, 8, 64]);
            assert_eq!(kept(&NVFP4, beside, 3), (name, false), "{columns:?}");
        }
        assert_eq!(Kept::of(&F8_E4M3, [false; 2], [1, 8, 40]).format, "f32");
        for format in [&F8_E4M3, &NVFP4] {
            assert_eq!(kept(format, [false, true], 1), ("f32", false));
        }
        let other = Format { name: "q4_0", ..Q4_0 };
        assert_eq!(kept(&other, [false, true], 1), ("f32", false));
    }

    #[test]
    fn what_is_decoded_says_so() {
        on(test_name!(), Nvrtc::V12, "sm_80", || {
            let b = CudaBackend::new().unwrap();
            let host = |format: &'static Format, experts| {
                let bytes = vec![0; experts * 2 * format.row_bytes(64)];
                HostWeight::new("w", [experts, 2, 64], format, bytes.into()).unwrap()
            };
            let said = |w: HostWeight| {
                let unpacked = b.upload_weight(&w).unwrap().unpacked().cloned();
                unpacked.map(|u| (u.bits, u.why.trim_start_matches("CUDA has no kernels for ").to_owned()))
            };
            let turned = |w: HostWeight| w.with_input_perm((0..64).rev().collect()).unwrap();
            let scaled =
                |w: HostWeight| w.with_scale(Scale { values: Arc::from([2.0]), tile: [64, 64] }).unwrap();
            for kept in [host(&Q4_0, 1), host(&F32, 1), host(&F16, 3), turned(host(&Q4_0, 1))] {
                assert_eq!(said(kept), None);
            }
            // In single precision nothing is lost.
            assert_eq!(said(turned(host(&F32, 1))), None);
            let is = |bits, what: &str| Some((bits, what.to_owned()));
            let ordered = "whose columns are in an order";
            assert_eq!(said(turned(host(&F16, 1))), is(16.0, &format!("plain numbers {ordered}")));
            assert_eq!(said(turned(host(&Q4_0, 2))), is(4.5, &format!("stacks of experts {ordered}")));
            assert_eq!(said(turned(scaled(host(&NVFP4, 1)))), is(4.5, &format!("nvfp4 {ordered}")));
            assert_eq!(said(scaled(host(&Q4_0, 1))), is(4.5, "factors beside the elements"));
            static OTHER: Format = Format { name: "other", ..Q4_0 };
            assert_eq!(said(host(&OTHER, 1)), is(4.5, "the format other"));
            // What was known before is not forgotten.
            let before = Unpacked::new(4.25, "so");
            assert_eq!(said(host(&F32, 1).with_unpacked(Some(before))), is(4.25, "so"));
        });
    }

    /// By each kernel: of one row, a few and many, and of rows that are looked up; an element in nine is of another byte, so that all are there.
    fn small_floats(format: &'static Format) {
        let (b, [experts, rows, cols]) = (CudaBackend::new().unwrap(), [2, 70, 192]);
        let (len, block) = (laid(format).unwrap().1, format.row_bytes(laid(format).unwrap().1) + 4);
        let bytes: Vec<u8> =
            (0..experts * rows * format.row_bytes(cols)).map(|i| (i * 9 / 8) as u8).collect();
        let bytes: Vec<u8> = bytes.into_iter().map(|b| if b & 0x7f == 0x7f { 0x80 } else { b }).collect();
        let plain = HostWeight::new("w", [experts, rows, cols], format, bytes.into()).unwrap();
        let mut all = vec![plain.clone()];
        for tile @ [tr, tc] in [[16, 64], [1, cols], [rows, 1000], [33, 96], [5, 20]] {
            let count = experts * rows.div_ceil(tr) * cols.div_ceil(tc);
            let values = (0..count).map(|i| 0.01 + i as f32 / 997.0).collect();
            all.push(plain.clone().with_scale(Scale { values, tile }).unwrap());
        }
        for (i, w) in all.iter().enumerate() {
            let one = w.regrouped(1).unwrap();
            let uploaded = b.upload_weight(&one).unwrap();
            // Tiles of 96 columns are whole blocks of 32 alone.
            let is_packed = i < if len == 32 { 5 } else { 4 };
            assert_eq!(uploaded.unpacked().is_none(), is_packed, "{i}");
            let all_rows = one.shape[1];
            let bytes = if is_packed { all_rows * cols / len * block } else { all_rows * cols * 4 };
            assert_eq!(size(&one), bytes as u64, "{i}");
            let values = one.to_vec();
            for n in [1, 3, 20, 70] {
                let x: Vec<f32> = (0..n * cols).map(|i| ((i * 7919) % 1009) as f32 / 1009.0 - 0.5).collect();
                let y = b.linear(&b.upload(&x, [n, cols].into()).unwrap(), &uploaded).unwrap();
                for (j, got) in b.download(&y).unwrap().iter().enumerate() {
                    let (x, w) = (&x[j / all_rows * cols..][..cols], &values[j % all_rows * cols..][..cols]);
                    let terms = || x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w));
                    let (want, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
                    assert!(
                        (f64::from(*got) - want).abs() <= 1e-6 * size,
                        "{i}, {n} rows, element {j}: {got} and {want}"
                    );
                }
            }
        }
    }

    #[test]
    fn floats_of_eight_and_of_four_bits_are_multiplied_as_they_are() {
        on(test_name!(), Nvrtc::V12, "sm_80", || {
            small_floats(&F8_E4M3);
            small_floats(&NVFP4);
        });
    }

    #[test]
    fn equal_orders_are_one() {
        on(test_name!(), Nvrtc::V12, "sm_80", || {
            let b = CudaBackend::new().unwrap();
            let bytes = vec![0; 2 * Q4_0.row_bytes(64)];
            let plain = HostWeight::new("w", [1, 2, 64], &Q4_0, bytes.into()).unwrap();
            let own = |order: Option<Vec<u32>>| {
                let host = plain.clone();
                let host = order.map_or(host.clone(), |order| host.with_input_perm(order.into()).unwrap());
                b.upload_weight(&host).unwrap()
            };
            let (back, swapped) = ((0..64).rev().collect::<Vec<u32>>(), (0..64).map(|i| i ^ 1).collect());
            let all = [Some(back.clone()), Some(back), Some(swapped), None].map(own);
            let all = all.each_ref().map(|w| read(&b.device, "test", w).unwrap());
            for (i, w) in all.iter().enumerate() {
                for (j, other) in all.iter().enumerate() {
                    let alike = i == j || i + j == 1;
                    assert_eq!(w.is_ordered_as(other.columns()), alike, "{i} and {j}");
                }
                assert_eq!(w.order() != 0, i < 3);
            }
        });
    }
}
