//! LFM2-VL: a small image in its own proportions; a large one in two to ten squares, followed by the whole in its own proportions.
//!
//! The reference fills up the patches of each tile to one number and masks what it has filled; here a tile has what it has.
//!
//! Source: transformers' `processing_lfm2_vl.py` and `image_processing_lfm2_vl_fast.py`. Version 4.57.6 takes columns of squares for rows in the text;
//! this is as 5.24 has it, where that was put right. Both write no rows for an image that is not cut where there is to be no whole beside squares; here it
//! has those that the tower makes.

use super::tiles::{MOST_TILES, grid, split};
use super::within;
use crate::processor::check;
use crate::settings::{HALVES, MERGES, PATCHES, SIDES, Settings, agreed, number, whole};
use crate::{Cut, Family, Filter, Image, Normalize, Picture};
use ogive_tensor::{Error, Result};

const ROW: &str = "<image>";

#[derive(Debug)]
pub(super) struct Lfm2Vl {
    filter: Filter,
    normalize: Normalize,
    cut: Cut,
    /// Patches along a side of what the tower makes one row of.
    merge: usize,
    /// Least and most rows of a whole image.
    rows: [usize; 2],
    /// A square's side.
    side: usize,
    /// Least and most squares; `[1, 1]` where no image is cut.
    tiles: [usize; 2],
    /// How many times the most rows an image may have before it is cut.
    tolerance: f64,
    thumbnail: bool,
}

impl Lfm2Vl {
    pub(super) fn load(s: &Settings) -> Result<Self> {
        let patch = [s.vision.opt_usize("patch_size")?, s.image.opt_usize("encoder_patch_size")?];
        let key = "downsample_factor";
        let merge = agreed(key, [s.config.opt_usize(key)?, s.image.opt_usize(key)?], 2, MERGES)?;
        let pair = |least: &str, most: &str, default: [usize; 2], limit: usize| -> Result<[usize; 2]> {
            let pair @ [a, b] = [
                whole(&s.image, least, default[0], 1..=limit)?,
                whole(&s.image, most, default[1], 1..=limit)?,
            ];
            if a > b {
                return Err(Error::invalid(least, format!("it is {a}, and {most} {b}")));
            }
            Ok(pair)
        };
        let tiles = match s.image.bool_or("do_image_splitting", true)? {
            true => pair("min_tiles", "max_tiles", [2, 10], MOST_TILES)?,
            false => [1, 1],
        };
        Ok(Self {
            filter: s.filter(Filter::Bilinear)?,
            normalize: s.normalize(HALVES)?,
            cut: Cut { channels_last: true, ..Cut::new(agreed("encoder_patch_size", patch, 16, PATCHES)?) },
            merge,
            rows: pair("min_image_tokens", "max_image_tokens", [64, 256], 1 << 16)?,
            side: whole(&s.image, "tile_size", 512, SIDES)?,
            tiles,
            tolerance: number(&s.image, "max_pixels_tolerance", 2.0, 0.0..=1e6)?,
            thumbnail: s.image.bool_or("use_thumbnail", true)?,
        })
    }

    /// A side of what the tower makes one row of, in pixels.
    fn factor(&self) -> f64 {
        (self.cut.patch * self.merge) as f64
    }

    /// Pixels of so many rows.
    fn pixels(&self, rows: usize) -> f64 {
        rows as f64 * self.factor() * self.factor()
    }

    /// Width and height of a whole image, in its own proportions.
    fn whole(&self, image: &Image) -> [usize; 2] {
        let factor = self.factor();
        let sides = [image.width() as f64, image.height() as f64];
        let near = sides.map(|side| ((side / factor).round_ties_even() * factor).max(factor));
        within(sides, near, factor, self.rows.map(|rows| self.pixels(rows)))
    }

    /// Whether an image is cut.
    fn is_large(&self, image: &Image) -> bool {
        let [width, height] = [image.width(), image.height()].map(|side| {
            let near = (side as f64 / self.factor()).round_ties_even() * self.factor();
            near.max(self.cut.patch as f64)
        });
        self.tiles != [1, 1] && width * height > self.pixels(self.rows[1]) * self.tolerance
    }

    /// Rows that the tower makes of a tile with so many patches.
    fn rows_of(&self, width: usize, height: usize) -> Result<usize> {
        let [lines, columns] = self.cut.grid(width, height)?;
        Ok(lines.div_ceil(self.merge) * columns.div_ceil(self.merge))
    }
}

impl Family for Lfm2Vl {
    fn marker(&self) -> &str {
        ROW
    }

    fn row_token(&self) -> &str {
        ROW
    }

    fn prepare(&self, image: &Image) -> Result<Picture> {
        let [width, height] = self.whole(image);
        let rows = self.rows_of(width, height)?;
        let mut text = String::from("<|image_start|>");
        let mut tiles = Vec::new();
        let [columns, lines] = match self.is_large(image) {
            true => grid(image, [self.side; 2], self.tiles[0], self.tiles[1]),
            false => [1, 1],
        };
        let squares = if columns * lines > 1 { columns * lines } else { 0 };
        if squares > 0 {
            let of_square = self.rows_of(self.side, self.side)?;
            let values = (squares + 1) * self.cut.patch_len() * (self.side / self.cut.patch).pow(2);
            check(squares + 1, squares * of_square + rows, values)?;
            for (i, square) in split(image, [columns, lines], [self.side; 2], self.filter)?.iter().enumerate()
            {
                let (row, column) = (i / columns + 1, i % columns + 1);
                text += &format!("<|img_row_{row}_col_{column}|>{}", ROW.repeat(of_square));
                tiles.push(self.cut.tile(square, &self.normalize, of_square)?);
            }
        }
        if squares == 0 || self.thumbnail {
            if squares > 0 {
                text += "<|img_thumbnail|>";
            }
            text += &ROW.repeat(rows);
            let whole = image.resized(width, height, self.filter)?;
            tiles.push(self.cut.tile(&whole, &self.normalize, rows)?);
        }
        Picture::new(text + "<|image_end|>", tiles)
    }
}
