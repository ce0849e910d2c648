//! Pixtral and Mistral Small 3.1: the whole image in its own proportions, made smaller where its longer side is too long, and the text tells where its
//! lines end.
//!
//! Source: transformers' `processing_pixtral.py` and `image_processing_pixtral_fast.py`. There an image whose shorter side would become 0 fails; here it
//! gets a line of patches.

use crate::processor::check;
use crate::settings::{CLIP, MERGES, Settings, agreed, edge, size};
use crate::{Cut, Family, Filter, Image, Normalize, Picture};
use ogive_tensor::Result;

#[derive(Debug)]
pub(super) struct Pixtral {
    /// Most height and width.
    most: [usize; 2],
    filter: Filter,
    normalize: Normalize,
    cut: Cut,
    /// Patches along a side of what the tower makes one row of.
    merge: usize,
    row: String,
    line_end: String,
    end: String,
}

impl Pixtral {
    pub(super) fn load(s: &Settings) -> Result<Self> {
        s.always(&["do_resize"])?;
        s.never(&["do_center_crop"])?;
        let side = s.image_size(1024)?;
        let square = s.image.at("size").has("height");
        let most = match square {
            true => size(&s.image, "size", [side; 2])?,
            false => [edge(&s.image, "size", "longest_edge", side)?; 2],
        };
        let key = "spatial_merge_size";
        let merge = agreed(key, [s.config.opt_usize(key)?, s.processor.opt_usize(key)?], 1, MERGES)?;
        let token = |key: &str, default: &str| -> Result<String> {
            Ok(s.processor.opt_str(key)?.unwrap_or(default).into())
        };
        Ok(Self {
            most,
            filter: s.filter(Filter::Bicubic)?,
            normalize: s.normalize(CLIP)?,
            cut: Cut::new(s.patch(16)?),
            merge,
            row: token("image_token", "[IMG]")?,
            line_end: token("image_break_token", "[IMG_BREAK]")?,
            end: token("image_end_token", "[IMG_END]")?,
        })
    }

    /// Lines and columns of rows of an image that has so many pixels.
    fn lines(&self, height: usize, width: usize) -> [usize; 2] {
        let sides = [height as f64, width as f64];
        let ratio = (sides[0] / self.most[0] as f64).max(sides[1] / self.most[1] as f64).max(1.0);
        sides.map(|side| ((side / ratio) as usize).max(1).div_ceil(self.cut.patch * self.merge))
    }
}

impl Family for Pixtral {
    fn marker(&self) -> &str {
        &self.row
    }

    fn row_token(&self) -> &str {
        &self.row
    }

    fn prepare(&self, image: &Image) -> Result<Picture> {
        let [lines, columns] = self.lines(image.height(), image.width());
        let side = self.cut.patch * self.merge;
        let [height, width] = [lines * side, columns * side];
        let [patches, across] = self.cut.grid(width, height)?;
        check(1, lines * columns, patches * across * self.cut.patch_len())?;

        let resized = image.resized(width, height, self.filter)?;
        let tile = self.cut.tile(&resized, &self.normalize, lines * columns)?;
        let line = self.row.repeat(columns);
        let text = vec![line; lines].join(&self.line_end) + &self.end;
        Picture::new(text, vec![tile])
    }
}
