//! LLaVA 1.5: the image is resized by its shorter side, and the square in its middle is read. With SigLIP's tower the whole is, in a square.
//!
//! Only the middle is computed, so that an image a thousand times as long as it is wide costs no more than another.
//!
//! Source: transformers' `processing_llava.py`, `image_processing_clip_fast.py` and `image_processing_siglip_fast.py`.

use crate::processor::check;
use crate::resize::{Part, Rounding};
use crate::settings::{CLIP, HALVES, SIDES, Settings, edge, size, whole};
use crate::{Cut, Family, Filter, Image, Normalize, Picture};
use ogive_tensor::{Error, Result};

const ROW: &str = "<image>";

#[derive(Debug)]
enum Size {
    Shortest(usize),
    /// Height and width.
    Fixed([usize; 2]),
}

#[derive(Debug)]
pub(super) struct Llava {
    size: Size,
    /// Height and width of what is read in the middle.
    crop: Option<[usize; 2]>,
    filter: Filter,
    normalize: Normalize,
    cut: Cut,
    /// Rows of the tower besides one for each patch, and those of them that the model leaves out.
    more: usize,
    fewer: usize,
    row: String,
}

impl Llava {
    /// `clip`: whether the tower is CLIP's, which has a row more than patches.
    pub(super) fn load(s: &Settings, clip: bool) -> Result<Self> {
        s.always(&["do_resize"])?;
        s.never(&["do_pad"])?;
        let side = s.image_size(224)?;
        let given = s.image.at("size");
        let size = match given.has("height") || !clip && !given.has("shortest_edge") {
            true => Size::Fixed(size(&s.image, "size", [side; 2])?),
            false if given.0.is_number() => Size::Shortest(whole(&s.image, "size", side, SIDES)?),
            false => Size::Shortest(edge(&s.image, "size", "shortest_edge", side)?),
        };
        let crop = match (s.image.bool_or("do_center_crop", clip)?, &size) {
            (true, _) => Some(crate::settings::size(&s.image, "crop_size", [side; 2])?),
            (false, Size::Fixed(_)) => None,
            (false, Size::Shortest(_)) => {
                let why = "it is false, and then images have sizes that this tower does not read";
                return Err(Error::unsupported("do_center_crop", why));
            }
        };
        let key = "vision_feature_select_strategy";
        let fewer = match s.processor.opt_str(key)?.or(s.config.opt_str(key)?).unwrap_or("default") {
            "default" => 1,
            "full" => 0,
            other => {
                let why = format!("it is `{other}`, and `default` and `full` are known");
                return Err(Error::unsupported(key, why));
            }
        };
        Ok(Self {
            size,
            crop,
            filter: s.filter(Filter::Bicubic)?,
            normalize: s.normalize(if clip { CLIP } else { HALVES })?,
            cut: Cut::new(s.patch(if clip { 32 } else { 16 })?),
            more: whole(&s.processor, "num_additional_image_tokens", usize::from(clip), 0..=16)?,
            fewer,
            row: s.processor.opt_str("image_token")?.unwrap_or(ROW).into(),
        })
    }

    /// Width and height that an image is resized to.
    fn resized(&self, image: &Image) -> [usize; 2] {
        let (width, height) = (image.width(), image.height());
        let long = |shortest: usize| (shortest * width.max(height)) as f64 / width.min(height) as f64;
        match self.size {
            Size::Fixed([height, width]) => [width, height],
            Size::Shortest(shortest) if width <= height => [shortest, long(shortest) as usize],
            Size::Shortest(shortest) => [long(shortest) as usize, shortest],
        }
    }
}

impl Family for Llava {
    fn marker(&self) -> &str {
        &self.row
    }

    fn row_token(&self) -> &str {
        &self.row
    }

    fn prepare(&self, image: &Image) -> Result<Picture> {
        let [width, height] = self.resized(image);
        let crop = self.crop.unwrap_or([height, width]);
        let [lines, columns] = self.cut.grid(crop[1], crop[0])?;
        let rows = (lines * columns + self.more).saturating_sub(self.fewer);
        check(1, rows, lines * columns * self.cut.patch_len())?;

        let part = Part {
            left: width.saturating_sub(crop[1]) / 2,
            top: height.saturating_sub(crop[0]) / 2,
            width: width.min(crop[1]),
            height: height.min(crop[0]),
        };
        let middle = image.part_of_resized(width, height, part, self.filter, Rounding::EachPass)?;
        let middle = middle.padded(crop[1], crop[0])?;
        let tile = self.cut.tile(&middle, &self.normalize, rows)?;
        Picture::new(self.row.repeat(rows), vec![tile])
    }
}
