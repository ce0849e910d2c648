//! Resizing with antialiasing, as torchvision does it: every new pixel is a weighted mean of those that its filter covers, along the rows
//! first, then along the columns.
//!
//! For 8-bit images torchvision has weights in 16-bit integers and rounds to 8 bits between the passes ([`Rounding::EachPass`]): integers, so what
//! comes out here is the same to the bit (`tests/golden.rs` compares all values). Its older functions, which some processors still call, compute in
//! single precision and round once, at the end ([`Rounding::AtTheEnd`]); sums are added in another order here, and where one falls beside a
//! half, the value may differ by one level.
//!
//! Both passes run the same loop: sums for [`LANES`] values that lie side by side, over all taps. Columns lie so by themselves; rows are turned
//! first, sixteen at a time, so that what lies side by side is the same column of sixteen rows. A loop of fixed length over integers is what compilers
//! vectorise without being told, and nothing here needs `unsafe`.

mod lanes;
mod taps;

use crate::Image;
use lanes::{Element, LANES, ROWS};
use ogive_tensor::{Error, Result};
use std::ops::Range;
use taps::Taps;

/// How near pixels weigh in a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Filter {
    /// A triangle over two pixels.
    Bilinear,
    /// Keys' cubic over four pixels, with a = -1/2, as Pillow and antialiasing torchvision have it.
    Bicubic,
}

/// Where values are rounded to 8 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// Behind the rows and behind the columns, with weights in 16-bit integers: torchvision's `transforms.v2`.
    EachPass,
    /// Once, half to even, with sums in single precision: torchvision's `transforms.functional`.
    AtTheEnd,
}

/// A rectangle of an image, in pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) left: usize,
    pub(crate) top: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

impl Part {
    /// Whether it lies within `width` x `height`.
    pub(crate) fn check(self, width: usize, height: usize) -> Result<()> {
        let fits = |from: usize, len: usize, all: usize| from.checked_add(len).is_some_and(|end| end <= all);
        if fits(self.left, self.width, width) && fits(self.top, self.height, height) {
            return Ok(());
        }
        Err(Error::invalid("image", format!("{self:?} does not lie in {width} x {height} pixels")))
    }
}

/// Most pixels along a side of what an image is resized to if only a part of it is wanted: all of them are looked at for their weights.
const MAX_STRETCH: usize = 1 << 24;

/// The pixels in `part` of `image` resized to `to`, width and height: `[part.height, part.width, 3]`.
pub(crate) fn resize(
    image: &Image,
    to: [usize; 2],
    part: Part,
    filter: Filter,
    rounding: Rounding,
) -> Result<Vec<u8>> {
    let [width, height] = to;
    if width > MAX_STRETCH || height > MAX_STRETCH {
        let (w, h) = (image.width(), image.height());
        let why =
            format!("{w} x {h} pixels become {width} x {height}, which are too many; cut a part out of it");
        return Err(Error::invalid("image", why));
    }
    part.check(width, height)?;
    let across = Taps::new(image.width(), width, part.left..part.left + part.width, filter);
    let down = Taps::new(image.height(), height, part.top..part.top + part.height, filter);
    Ok(match rounding {
        Rounding::EachPass => both_passes::<u8>(image, &across, &down),
        Rounding::AtTheEnd => both_passes::<f32>(image, &across, &down),
    })
}

/// Most bytes of what lies between the passes, unless a few columns take more. Few enough that they stay in a cache, and an image that is as high as
/// may be and becomes wide does not take gigabytes.
const BETWEEN: usize = 4 << 20;

fn both_passes<E: Element>(image: &Image, across: &Taps, down: &Taps) -> Vec<u8> {
    let width = across.len();
    let read = down.reads();
    let block = (BETWEEN / (read.len() * 3 * size_of::<E>()).max(1)).max(LANES);
    let weights = E::weights(down);
    let mut rgb = vec![0; down.len() * width * 3];
    for left in (0..width).step_by(block) {
        let columns = left..width.min(left + block);
        // A row is as many lanes as hold it, so that no loop has a rest.
        let chunks = (columns.len() * 3).div_ceil(LANES);
        let rows = rows_pass::<E>(image, across, columns.clone(), read.clone(), chunks); // [rows, chunks, LANES]
        for (tap, line) in down.each(0..down.len()).zip(rgb.chunks_exact_mut(width * 3)) {
            let first = &rows[(tap.first - read.start) * chunks..];
            let line = &mut line[columns.start * 3..columns.end * 3];
            for (chunk, values) in line.chunks_mut(LANES).enumerate() {
                let column = first[chunk..].iter().step_by(chunks);
                let sums = E::weigh(column.zip(weights.of(tap)), weights.shift).map(E::level);
                values.copy_from_slice(&sums[..values.len()]);
            }
        }
    }
    rgb
}

/// The new pixels `wanted` of each of the rows `read` of `image`: `[rows, chunks, LANES]`.
fn rows_pass<E: Element>(
    image: &Image,
    across: &Taps,
    wanted: Range<usize>,
    read: Range<usize>,
    chunks: usize,
) -> Vec<[E; LANES]> {
    let weights = E::weights(across);
    let columns = across.reads_of(wanted.clone());
    let mut out = vec![[E::default(); LANES]; read.len() * chunks];
    let mut turned = vec![[E::default(); LANES]; columns.len()]; // [columns, ROWS * 3]
    for (block, top) in read.clone().step_by(ROWS).enumerate() {
        let rows = ROWS.min(read.end - top);
        for row in 0..rows {
            let pixels = &image.row(top + row)[columns.start * 3..columns.end * 3];
            for (lanes, pixel) in turned.iter_mut().zip(pixels.as_chunks::<3>().0) {
                lanes[row * 3..row * 3 + 3].copy_from_slice(&pixel.map(E::of));
            }
        }
        let flat = out[block * ROWS * chunks..].as_flattened_mut();
        for (x, tap) in across.each(wanted.clone()).enumerate() {
            let column = turned[tap.first - columns.start..].iter();
            let sums = E::weigh(column.zip(weights.of(tap)), weights.shift);
            for (row, pixel) in sums.as_chunks::<3>().0.iter().enumerate().take(rows) {
                flat[row * chunks * LANES + x * 3..][..3].copy_from_slice(pixel);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Rounding; 2] = [Rounding::EachPass, Rounding::AtTheEnd];

    fn noise(width: usize, height: usize) -> Image {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        Image::new(width, height, (0..width * height * 3).map(|_| next()).collect()).unwrap()
    }

    #[test]
    fn one_colour_stays_that_colour() {
        for rounding in BOTH {
            for filter in [Filter::Bilinear, Filter::Bicubic] {
                // The last in several blocks of columns.
                let sizes =
                    [([1, 1], [7, 5]), ([300, 3], [20, 31]), ([50, 40], [49, 40]), ([2, 9000], [500, 3])];
                for (from, to) in sizes {
                    let image = Image::new(from[0], from[1], [9, 255, 0].repeat(from[0] * from[1])).unwrap();
                    let resized = image.resized_by(to[0], to[1], filter, rounding).unwrap();
                    assert_eq!(resized.pixels(), [9, 255, 0].repeat(to[0] * to[1]), "{from:?} {to:?}");
                }
            }
        }
    }

    #[test]
    fn a_part_is_cut_out_of_the_whole() {
        let image = noise(67, 41);
        for rounding in BOTH {
            for [width, height] in [[30, 90], [67, 12], [200, 41]] {
                let whole = image.resized_by(width, height, Filter::Bicubic, rounding).unwrap();
                let part = Part { left: 7, top: 5, width: 20, height: 6 };
                let got = image.part_of_resized(width, height, part, Filter::Bicubic, rounding).unwrap();
                assert!(got == whole.cropped(part).unwrap(), "{width} x {height}");
            }
        }
    }

    #[test]
    fn halves_are_means() {
        // Bilinear to half: weights 1/8, 3/8, 3/8, 1/8.
        let image = Image::new(6, 1, [0, 8, 16, 100, 36, 80].iter().flat_map(|&v| [v; 3]).collect()).unwrap();
        let half = image.resized(3, 1, Filter::Bilinear).unwrap();
        let middle = (8 + 3 * 16 + 3 * 100 + 36) / 8;
        assert_eq!(half.row(0)[3..6], [middle as u8; 3]);
    }

    #[test]
    fn what_grows_without_end_is_refused() {
        let image = noise(1, 60_000);
        let part = Part { left: 0, top: 0, width: 4, height: 4 };
        let e =
            image.part_of_resized(336, 336 * 60_000, part, Filter::Bicubic, Rounding::EachPass).unwrap_err();
        assert!(e.to_string().contains("cut a part out of it"), "{e}");
        // And where only the part is in memory, a stretch is no harm.
        let image = noise(1, 20_000);
        let part = Part { left: 0, top: 3_359_832, width: 336, height: 336 };
        let cut =
            image.part_of_resized(336, 336 * 20_000, part, Filter::Bicubic, Rounding::EachPass).unwrap();
        assert_eq!((cut.width(), cut.height()), (336, 336));
        assert!(image.resized(336, 336 * 20_000, Filter::Bicubic).is_err());
    }
}
