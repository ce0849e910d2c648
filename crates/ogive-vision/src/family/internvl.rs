//! InternVL 2.5 and later, as Hugging Face has them: one to twelve squares that fill the image's proportions, and behind several the whole in one.
//!
//! The settings of published checkpoints say that images are not cut (`crop_to_patches`), and the reference's processor cuts them all the
//! same; so does this one.
//!
//! Source: transformers' `processing_internvl.py` and `image_processing_got_ocr2_fast.py`.

use super::tiles::{MOST_TILES, grid, split};
use crate::processor::check;
use crate::settings::{IMAGENET, MERGES, Settings, agreed, number, size, whole, within};
use crate::{Cut, Family, Filter, Image, MAX_ROWS, Normalize, Picture};
use ogive_tensor::{Error, Result};

const ROW: &str = "<IMG_CONTEXT>";

#[derive(Debug)]
pub(super) struct InternVl {
    /// Height and width of a tile.
    size: [usize; 2],
    /// Least and most tiles.
    tiles: [usize; 2],
    filter: Filter,
    normalize: Normalize,
    cut: Cut,
    /// Rows of a tile.
    rows: usize,
}

impl InternVl {
    pub(super) fn load(s: &Settings) -> Result<Self> {
        s.always(&["do_resize"])?;
        s.never(&["do_center_crop"])?;
        let size = size(&s.image, "size", [s.image_size(448)?; 2])?;
        let cut = Cut::new(s.patch(14)?);
        // A row is made of a square of patches: of two by two at the usual ratio of 1/2.
        let merge = (1.0 / number(&s.config, "downsample_ratio", 0.5, 1e-3..=1.0)?).round() as usize;
        let merge = within("1 / downsample_ratio", merge, MERGES)?;
        let [lines, columns] = cut.grid(size[1], size[0])?;
        let made = Some(lines * columns / (merge * merge));
        let rows =
            agreed("image_seq_length", [made, s.processor.opt_usize("image_seq_length")?], 0, 1..=MAX_ROWS)?;
        let most = whole(&s.image, "max_patches", 12, 1..=MOST_TILES)?;
        let least = whole(&s.image, "min_patches", 1, 1..=MOST_TILES)?;
        if least > most {
            return Err(Error::invalid("min_patches", format!("it is {least}, and max_patches {most}")));
        }
        Ok(Self {
            size,
            tiles: [least, most],
            filter: s.filter(Filter::Bicubic)?,
            normalize: s.normalize(IMAGENET)?,
            cut,
            rows,
        })
    }
}

impl Family for InternVl {
    fn marker(&self) -> &str {
        ROW
    }

    fn row_token(&self) -> &str {
        ROW
    }

    fn prepare(&self, image: &Image) -> Result<Picture> {
        let [least, most] = self.tiles;
        let grid = grid(image, self.size, least, most);
        let [height, width] = self.size;
        let [lines, columns] = self.cut.grid(width, height)?;
        let tiles = grid[0] * grid[1] + 1;
        check(tiles, tiles * self.rows, tiles * lines * columns * self.cut.patch_len())?;

        let mut images = split(image, grid, self.size, self.filter)?;
        if images.len() > 1 {
            images.push(image.resized(width, height, self.filter)?);
        }
        let tiles = images.iter().map(|image| self.cut.tile(image, &self.normalize, self.rows));
        let tiles = tiles.collect::<Result<Vec<_>>>()?;
        let text = format!("<img>{}</img>", ROW.repeat(self.rows * tiles.len()));
        Picture::new(text, tiles)
    }
}
