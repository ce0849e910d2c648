//! An image cut into patches, in the order and layout that a tower's first matrix takes.
//!
//! Patches and not pixels are what a tower is given, because a convolution whose stride is its size is a product of a matrix with patches: a
//! tower then needs no convolution, and a patch is a row like any other.

use crate::{Image, Normalize};
use ogive_tensor::{Error, Result};

/// Most values of an image, in patches: half a gibibyte. The largest that is in use, Qwen3-VL's 16 million pixels in two frames, has 100 million.
pub const MAX_VALUES: usize = 1 << 27;

/// One image, or one part of it, cut into patches.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Tile {
    /// `[grid[0] * grid[1], patch_len]`, row by row; what a row holds in which order, and which patch it is, is said by [`Cut`].
    pub patches: Vec<f32>,
    /// Values of a patch.
    pub patch_len: usize,
    /// Rows and columns of patches.
    pub grid: [usize; 2],
    /// How many rows the tower makes of it, each for one [row token](crate::Processor::row_token) of the prompt.
    pub rows: usize,
}

/// How an image is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Pixels along a side of a patch.
    pub patch: usize,
    /// How often a patch is repeated, where a tower reads moving pictures in groups of frames.
    pub frames: usize,
    /// Patches along a side of a block. The blocks follow each other row by row, and in each its patches do. 1 where there are none.
    pub block: usize,
    /// Whether a patch is flattened to `[y, x, channel]`, as a linear layer's weight may be, in place of a convolution's
    /// `[channel, frame, y, x]`.
    pub channels_last: bool,
}

impl Cut {
    /// Patches of `patch` x `patch` pixels, row by row, each flattened to `[channel, y, x]`.
    pub fn new(patch: usize) -> Self {
        Self { patch, frames: 1, block: 1, channels_last: false }
    }

    /// Values of a patch.
    pub fn patch_len(&self) -> usize {
        self.patch.saturating_mul(self.patch).saturating_mul(3).saturating_mul(self.frames)
    }

    /// Rows and columns of patches in `width` x `height` pixels; what is over at the right and at the bottom is not read.
    ///
    /// # Errors
    /// If there is no whole patch, if the blocks leave a rest, or if there are more values than [`MAX_VALUES`].
    pub fn grid(&self, width: usize, height: usize) -> Result<[usize; 2]> {
        let Self { patch, frames, block, .. } = *self;
        let wrong = |why: &str| {
            let what = format!(
                "{width} x {height} pixels cut into patches of {patch} x {patch}, in blocks of {block} x {block}"
            );
            Err(Error::invalid("image", format!("{what}, {why}")))
        };
        if patch == 0 || frames == 0 || block == 0 {
            return wrong("make none; look at the settings of the processor");
        }
        let grid @ [rows, columns] = [height / patch, width / patch];
        if rows == 0 || columns == 0 || rows % block != 0 || columns % block != 0 {
            return wrong("leave a rest; look at the settings of the processor");
        }
        if rows.saturating_mul(columns).saturating_mul(self.patch_len()) > MAX_VALUES {
            return wrong("have too many values; make the image smaller");
        }
        Ok(grid)
    }

    /// Cuts `image`; the tower makes `rows` rows of it.
    ///
    /// # Errors
    /// As [`grid`](Self::grid).
    pub fn tile(&self, image: &Image, normalize: &Normalize, rows: usize) -> Result<Tile> {
        let grid = self.grid(image.width(), image.height())?;
        let mut patches = Vec::with_capacity(grid[0] * grid[1] * self.patch_len());
        for top in (0..grid[0]).step_by(self.block) {
            for left in (0..grid[1]).step_by(self.block) {
                for row in top..top + self.block {
                    for column in left..left + self.block {
                        self.flatten(image, normalize, [row, column], &mut patches);
                    }
                }
            }
        }
        Ok(Tile { patches, patch_len: self.patch_len(), grid, rows })
    }

    /// Appends the patch at `at`, row and column.
    fn flatten(&self, image: &Image, normalize: &Normalize, at: [usize; 2], patches: &mut Vec<f32>) {
        let [top, left] = at.map(|i| i * self.patch);
        let lines = (top..top + self.patch).map(|y| &image.row(y)[left * 3..(left + self.patch) * 3]);
        if self.channels_last {
            for pixel in lines.flat_map(|line| line.as_chunks::<3>().0) {
                patches.extend([0, 1, 2].map(|c| normalize.channel(c)[usize::from(pixel[c])]));
            }
            return;
        }
        for channel in 0..3 {
            let values = normalize.channel(channel);
            let from = patches.len();
            for line in lines.clone() {
                patches
                    .extend(line.as_chunks::<3>().0.iter().map(|pixel| values[usize::from(pixel[channel])]));
            }
            let frame = from..patches.len();
            (1..self.frames).for_each(|_| patches.extend_from_within(frame.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image whose red is 16 y + x, green 0 and blue 255, and values that are levels.
    fn image(width: usize, height: usize) -> (Image, Normalize) {
        let pixels = (0..height).flat_map(|y| (0..width).flat_map(move |x| [(16 * y + x) as u8, 0, 255]));
        let image = Image::new(width, height, pixels.collect()).unwrap();
        (image, Normalize::scaled([0.0; 3], [1.0; 3], 1.0).unwrap())
    }

    #[test]
    fn patches_row_by_row_and_what_is_over() {
        let (image, levels) = image(5, 4);
        let tile = Cut::new(2).tile(&image, &levels, 4).unwrap();
        assert_eq!((tile.grid, tile.patch_len, tile.rows, tile.patches.len()), ([2, 2], 12, 4, 48));
        let [green, blue] = [[0.0; 4], [255.0; 4]];
        assert_eq!(tile.patches[..12], [[0.0, 1.0, 16.0, 17.0], green, blue].concat());
        assert_eq!(tile.patches[12..16], [2.0, 3.0, 18.0, 19.0]);
        assert_eq!(tile.patches[24..28], [32.0, 33.0, 48.0, 49.0]);
    }

    #[test]
    fn blocks_frames_and_channels() {
        let (image, levels) = image(4, 2);
        let reds = |cut: Cut| -> Vec<f32> {
            let tile = cut.tile(&image, &levels, 1).unwrap();
            tile.patches.chunks(tile.patch_len).map(|patch| patch[0]).collect()
        };
        assert_eq!(reds(Cut::new(1)), [0.0, 1.0, 2.0, 3.0, 16.0, 17.0, 18.0, 19.0]);
        let blocks = Cut { block: 2, ..Cut::new(1) };
        assert_eq!(reds(blocks), [0.0, 1.0, 16.0, 17.0, 2.0, 3.0, 18.0, 19.0]);
        let frames = Cut { frames: 2, ..Cut::new(2) }.tile(&image, &levels, 1).unwrap();
        assert_eq!(frames.patches[..8], [0.0, 1.0, 16.0, 17.0, 0.0, 1.0, 16.0, 17.0]);
        assert_eq!((frames.patch_len, frames.patches[23]), (24, 255.0));
        let last = Cut { channels_last: true, ..Cut::new(2) }.tile(&image, &levels, 1).unwrap();
        assert_eq!(last.patches[..6], [0.0, 0.0, 255.0, 1.0, 0.0, 255.0]);
    }

    #[test]
    fn what_cannot_be_cut() {
        let (image, levels) = image(4, 2);
        for cut in
            [Cut::new(0), Cut::new(3), Cut { block: 2, ..Cut::new(2) }, Cut { frames: 0, ..Cut::new(1) }]
        {
            assert!(cut.tile(&image, &levels, 1).is_err(), "{cut:?}");
        }
        let many = Cut { frames: 1 << 40, ..Cut::new(1) }.tile(&image, &levels, 1).unwrap_err();
        assert!(many.to_string().contains("too many values"), "{many}");
    }
}
