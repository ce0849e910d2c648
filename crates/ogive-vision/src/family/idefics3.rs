//! Idefics 3 and SmolVLM: the image is made large, cut into squares, and followed by the whole in one square; the text tells which is which.
//!
//! It is resized up to three times, as in the reference: to its longest side, to multiples of a square, and to the one square.
//!
//! Source: transformers' `processing_idefics3.py` and `image_processing_idefics3_fast.py`, and SmolVLM's, which are alike.

use super::tiles::cut;
use crate::processor::check;
use crate::resize::Rounding;
use crate::settings::{HALVES, MERGES, Settings, agreed, edge, size, whole};
use crate::{Cut, Family, Filter, Image, MAX_ROWS, Normalize, Picture};
use ogive_tensor::{Error, Result};

const ROW: &str = "<image>";
const BORDER: &str = "<fake_token_around_image>";
const WHOLE: &str = "<global-img>";
/// The longest side that the reference makes an image's first.
const LONGEST: usize = 4096;

#[derive(Debug)]
enum Size {
    Longest(usize),
    /// Height and width.
    Fixed([usize; 2]),
}

#[derive(Debug)]
pub(super) struct Idefics3 {
    /// What an image is resized to first.
    first: Size,
    /// A square's side.
    side: usize,
    /// Whether it is cut into squares.
    splits: bool,
    filter: Filter,
    normalize: Normalize,
    cut: Cut,
    /// Rows of a square.
    rows: usize,
}

impl Idefics3 {
    pub(super) fn load(s: &Settings) -> Result<Self> {
        s.always(&["do_resize"])?;
        let side = edge(&s.image, "max_image_size", "longest_edge", s.image_size(224)?)?;
        let first = match s.image.at("size").has("height") {
            true => Size::Fixed(size(&s.image, "size", [side; 2])?),
            false => Size::Longest(edge(&s.image, "size", "longest_edge", side.saturating_mul(4))?),
        };
        let cut = Cut::new(s.patch(32)?);
        let scale = whole(&s.config, "scale_factor", 2, MERGES)?;
        let [patches, _] = cut.grid(side, side)?;
        if patches % scale != 0 {
            let why = format!(
                "it is {scale}, and a tile of {side} x {side} pixels has {patches} x {patches} patches"
            );
            return Err(Error::invalid("scale_factor", why));
        }
        let made = Some((patches / scale) * (patches / scale));
        Ok(Self {
            first,
            side,
            splits: s.image.bool_or("do_image_splitting", true)?,
            filter: s.filter(Filter::Bicubic)?,
            normalize: s.normalize(HALVES)?,
            cut,
            rows: agreed("image_seq_len", [made, s.processor.opt_usize("image_seq_len")?], 0, 1..=MAX_ROWS)?,
        })
    }

    /// Width and height that an image is resized to first.
    fn first_size(&self, image: &Image) -> [usize; 2] {
        let (width, height) = (image.width(), image.height());
        let longest = match self.first {
            Size::Fixed([height, width]) => return [width, height],
            Size::Longest(longest) => longest,
        };
        let ratio = width as f64 / height as f64;
        // The longer side becomes `longest`, the shorter an even number.
        let even = |side: f64| (side as usize).next_multiple_of(2).max(1);
        let [width, height] = match width >= height {
            true => [longest, even(longest as f64 / ratio)],
            false => [even(longest as f64 * ratio), longest],
        };
        // And again, where that is too long.
        let ratio = width as f64 / height as f64;
        match width >= height {
            true if width > LONGEST => [LONGEST, ((LONGEST as f64 / ratio) as usize).max(1)],
            false if height > LONGEST => [((LONGEST as f64 * ratio) as usize).max(1), LONGEST],
            _ => [width, height],
        }
    }

    /// Columns and rows of squares that such an image is made to fill.
    fn squares(&self, [width, height]: [usize; 2]) -> [usize; 2] {
        let ratio = width as f64 / height as f64;
        let up = |side: usize| side.div_ceil(self.side);
        match width >= height {
            true => [up(width), up(((up(width) * self.side) as f64 / ratio) as usize)],
            false => [up(((up(height) * self.side) as f64 * ratio) as usize), up(height)],
        }
    }

    fn resized(&self, image: &Image, [width, height]: [usize; 2]) -> Result<Image> {
        image.resized_by(width, height, self.filter, Rounding::AtTheEnd)
    }

    /// What stands for the squares, `grid` columns and rows of them (none where it is the whole alone).
    fn text(&self, grid: [usize; 2]) -> String {
        let rows = ROW.repeat(self.rows);
        let mut text = String::new();
        for row in 1..=grid[1] {
            for column in 1..=grid[0] {
                text += &format!("{BORDER}<row_{row}_col_{column}>{rows}");
            }
            text.push('\n');
        }
        if grid != [0, 0] {
            text.push('\n');
        }
        text + &format!("{BORDER}{WHOLE}{rows}{BORDER}")
    }
}

impl Family for Idefics3 {
    fn marker(&self) -> &str {
        ROW
    }

    fn row_token(&self) -> &str {
        ROW
    }

    fn prepare(&self, image: &Image) -> Result<Picture> {
        let first = self.first_size(image);
        let square = [self.side; 2];
        let grid = if self.splits { self.squares(first) } else { [1, 1] };
        let [lines, columns] = self.cut.grid(self.side, self.side)?;
        let tiles = grid[0].saturating_mul(grid[1]).saturating_add(1);
        check(
            tiles,
            tiles.saturating_mul(self.rows),
            tiles.saturating_mul(lines * columns * self.cut.patch_len()),
        )?;

        let resized = self.resized(image, first)?;
        let resized = self.resized(&resized, [grid[0] * self.side, grid[1] * self.side])?;
        let (images, grid) = match grid {
            [1, 1] => (vec![resized], [0, 0]),
            grid => {
                let mut images = cut(&resized, square)?;
                images.push(self.resized(&resized, square)?);
                (images, grid)
            }
        };
        let tiles = images.iter().map(|image| self.cut.tile(image, &self.normalize, self.rows));
        Picture::new(self.text(grid), tiles.collect::<Result<_>>()?)
    }
}
