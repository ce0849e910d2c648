//! An image in memory: 8 bits for each of red, green and blue.
//!
//! Nothing else is kept, neither alpha nor colour profiles nor 16 bits, because no vision tower was trained on more: the
//! reference's processors drop them before anything else.

use crate::resize::{Filter, Part, Rounding, resize};
use ogive_tensor::{Error, Result};
use std::fmt;

/// Most pixels along a side: what a JPEG file can have.
pub const MAX_SIDE: usize = 65_535;
/// Most pixels of an image, 67 million. A file may claim any number of them, and they take three bytes each here, and up to eight
/// while they are decoded.
pub const MAX_PIXELS: usize = 1 << 26;

/// An image, 8-bit RGB, row by row from the top.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    width: usize,
    height: usize,
    /// `[height, width, 3]`
    rgb: Vec<u8>,
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({} x {})", self.width, self.height)
    }
}

/// Whether an image may be as large as this.
pub(crate) fn check_size(width: usize, height: usize) -> Result<()> {
    let wrong = |why: String| Err(Error::invalid("image", why));
    if width == 0 || height == 0 {
        return wrong(format!("it has {width} x {height} pixels, so there is nothing to see"));
    }
    if width > MAX_SIDE || height > MAX_SIDE || width.saturating_mul(height) > MAX_PIXELS {
        return wrong(format!(
            "{width} x {height} pixels are too many: at most {MAX_SIDE} along a side and {MAX_PIXELS} in all are read; make it smaller"
        ));
    }
    Ok(())
}

impl Image {
    /// An image of `width` x `height` pixels, whose `rgb` has red, green and blue of each, row by row: `[height, width, 3]`.
    ///
    /// # Errors
    /// If there are no pixels, more than [`MAX_PIXELS`] or more than [`MAX_SIDE`] along a side, or if `rgb` has another length.
    pub fn new(width: usize, height: usize, rgb: Vec<u8>) -> Result<Self> {
        check_size(width, height)?;
        let needed = width * height * 3;
        if rgb.len() != needed {
            let given = rgb.len();
            let why = format!("{width} x {height} pixels in RGB take {needed} bytes, and {given} are given");
            return Err(Error::invalid("image", why));
        }
        Ok(Self { width, height, rgb })
    }

    /// Pixels in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Red, green and blue of every pixel, `[height, width, 3]`.
    pub fn pixels(&self) -> &[u8] {
        &self.rgb
    }

    /// The bytes of row `y`, `[width, 3]`.
    pub(crate) fn row(&self, y: usize) -> &[u8] {
        &self.rgb[y * self.width * 3..][..self.width * 3]
    }

    /// The same image in `width` x `height` pixels, as torchvision's `resize` of 8-bit images with antialiasing makes it, to the bit: the rows
    /// first, rounded to 8 bits, then the columns.
    ///
    /// # Errors
    /// If `width` or `height` is 0, or the new image were larger than an image [may be](Self::new).
    pub fn resized(&self, width: usize, height: usize, filter: Filter) -> Result<Self> {
        self.resized_by(width, height, filter, Rounding::EachPass)
    }

    pub(crate) fn resized_by(
        &self,
        width: usize,
        height: usize,
        filter: Filter,
        rounding: Rounding,
    ) -> Result<Self> {
        let whole = Part { left: 0, top: 0, width, height };
        self.part_of_resized(width, height, whole, filter, rounding)
    }

    /// What lies in `part` of the image that [`resized`](Self::resized) would give. No more than that is computed, so the whole may be larger
    /// than an image may be.
    pub(crate) fn part_of_resized(
        &self,
        width: usize,
        height: usize,
        part: Part,
        filter: Filter,
        rounding: Rounding,
    ) -> Result<Self> {
        check_size(part.width, part.height)?;
        if (width, height) == (self.width, self.height) {
            return self.cropped(part);
        }
        let rgb = resize(self, [width, height], part, filter, rounding)?;
        Self::new(part.width, part.height, rgb)
    }

    /// The pixels of `part`, which lies in the image.
    pub(crate) fn cropped(&self, part: Part) -> Result<Self> {
        part.check(self.width, self.height)?;
        let rows =
            (part.top..part.top + part.height).map(|y| &self.row(y)[part.left * 3..][..part.width * 3]);
        Self::new(part.width, part.height, rows.collect::<Vec<_>>().concat())
    }

    /// The image in the middle of `width` x `height` pixels (where it has more, of its own middle), the others black.
    pub(crate) fn padded(&self, width: usize, height: usize) -> Result<Self> {
        let (width, height) = (width.max(self.width), height.max(self.height));
        check_size(width, height)?;
        let (left, top) = ((width - self.width) / 2, (height - self.height) / 2);
        let mut rgb = vec![0; width * height * 3];
        for y in 0..self.height {
            rgb[((top + y) * width + left) * 3..][..self.width * 3].copy_from_slice(self.row(y));
        }
        Self::new(width, height, rgb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_checked() {
        let told = |width, height, bytes| Image::new(width, height, vec![0; bytes]).unwrap_err().to_string();
        assert!(told(0, 3, 0).contains("nothing to see"));
        assert!(told(2, 3, 17).contains("take 18 bytes, and 17 are given"));
        assert!(told(MAX_SIDE + 1, 1, 0).contains("too many"));
        assert!(told(1 << 14, 1 << 13, 0).contains("too many"));
        assert!(told(usize::MAX, usize::MAX, 0).contains("too many"));
    }

    #[test]
    fn parts_and_borders() {
        let image = Image::new(3, 2, (0..18).collect()).unwrap();
        let part = image.cropped(Part { left: 1, top: 1, width: 2, height: 1 }).unwrap();
        assert_eq!(part.pixels(), [12, 13, 14, 15, 16, 17]);
        assert!(image.cropped(Part { left: 2, top: 0, width: 2, height: 1 }).is_err());
        let padded = image.padded(5, 1).unwrap();
        assert_eq!((padded.width(), padded.height()), (5, 2));
        assert_eq!(padded.row(0), [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0]);
    }
}
