//! Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5: the whole image in its own proportions, in as many pixels as it has or may have.
//!
//! A patch is repeated, as the tower reads two frames of a moving picture at a time, and patches that the tower makes one row of follow each other.
//!
//! Source: transformers' `processing_qwen2_vl.py` and `image_processing_qwen2_vl_fast.py`.

use super::within;
use crate::settings::{CLIP, Colours, HALVES, MERGES, PATCHES, Settings, agreed, whole};
use crate::{Cut, Family, Filter, Image, MAX_PIXELS, Normalize, Picture};
use ogive_tensor::{Error, Result};

const ROW: &str = "<|image_pad|>";
/// The longer side by the shorter: what is longer and narrower is refused, as in the reference.
const MOST_RATIO: f64 = 200.0;

/// What holds where a checkpoint does not say.
#[derive(Debug)]
pub(super) struct Defaults {
    patch: usize,
    colours: Colours,
    /// Least and most pixels.
    pixels: [usize; 2],
}

pub(super) const QWEN2: Defaults = Defaults { patch: 14, colours: CLIP, pixels: [56 * 56, 28 * 28 * 1280] };
pub(super) const QWEN3: Defaults = Defaults { patch: 16, colours: HALVES, pixels: [1 << 16, 1 << 24] };

#[derive(Debug)]
pub(super) struct QwenVl {
    filter: Filter,
    normalize: Normalize,
    cut: Cut,
    /// Least and most pixels of a resized image.
    pixels: [usize; 2],
}

impl QwenVl {
    pub(super) fn load(s: &Settings, defaults: &Defaults) -> Result<Self> {
        s.always(&["do_resize"])?;
        // Older settings say it in plain words, beside `size` or in it.
        let size = s.image.at("size");
        let pixels = |i: usize, plain: &str, edge: &str| {
            let (place, key) = match (s.image.has(plain), size.has(edge)) {
                (true, _) => (&s.image, plain),
                (false, true) => (&size, edge),
                (false, false) => (&size, plain),
            };
            whole(place, key, defaults.pixels[i], 1..=MAX_PIXELS)
        };
        let pixels @ [least, most] =
            [pixels(0, "min_pixels", "shortest_edge")?, pixels(1, "max_pixels", "longest_edge")?];
        if least > most {
            let why =
                format!("an image should have at least {least} and at most {most} pixels, which none has");
            return Err(Error::invalid("size", why));
        }
        let both = |tower: &str, image: &str, default, range| {
            agreed(tower, [s.vision.opt_usize(tower)?, s.image.opt_usize(image)?], default, range)
        };
        let cut = Cut {
            patch: both("patch_size", "patch_size", defaults.patch, PATCHES)?,
            frames: both("temporal_patch_size", "temporal_patch_size", 2, 1..=16)?,
            block: both("spatial_merge_size", "merge_size", 2, MERGES)?,
            channels_last: false,
        };
        Ok(Self {
            filter: s.filter(Filter::Bicubic)?,
            normalize: s.normalize(defaults.colours)?,
            cut,
            pixels,
        })
    }

    /// Height and width of an image that has so many: multiples of a block's side, close to its proportions, within the bounds.
    fn size(&self, height: usize, width: usize) -> Result<[usize; 2]> {
        let sides = [height as f64, width as f64];
        let ratio = sides[0].max(sides[1]) / sides[0].min(sides[1]);
        if ratio > MOST_RATIO {
            let why = format!(
                "it is {ratio:.0} times as long as it is wide, and this model reads up to {MOST_RATIO}; cut it"
            );
            return Err(Error::invalid("image", why));
        }
        let factor = (self.cut.patch * self.cut.block) as f64;
        let near = sides.map(|side| (side / factor).round_ties_even() * factor);
        Ok(within(sides, near, factor, self.pixels.map(|pixels| pixels as f64)))
    }
}

impl Family for QwenVl {
    fn marker(&self) -> &str {
        ROW
    }

    fn row_token(&self) -> &str {
        ROW
    }

    fn prepare(&self, image: &Image) -> Result<Picture> {
        let [height, width] = self.size(image.height(), image.width())?;
        let [rows, columns] = self.cut.grid(width, height)?;
        let rows = rows * columns / (self.cut.block * self.cut.block);
        let tile = self.cut.tile(&image.resized(width, height, self.filter)?, &self.normalize, rows)?;
        Picture::new(ROW.repeat(rows), vec![tile])
    }
}
