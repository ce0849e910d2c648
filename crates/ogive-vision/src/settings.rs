//! The settings of a checkpoint's processor, from the files that may have them.
//!
//! A setting that is not followed here is an error if it asks for something, and not passed over: a picture that is prepared in another
//! way than the model was trained with is answered, and answered wrongly.

use crate::{Filter, Normalize};
use ogive_tensor::{Config, Error, Result};
use std::ops::RangeInclusive;

/// Pixels along a side that an image may be resized to by settings.
pub(crate) const SIDES: RangeInclusive<usize> = 1..=8192;
/// Pixels along a side of a patch.
pub(crate) const PATCHES: RangeInclusive<usize> = 1..=256;
/// Patches, along a side, that a tower makes one row of.
pub(crate) const MERGES: RangeInclusive<usize> = 1..=64;

/// Means and deviations.
pub(crate) type Colours = ([f32; 3], [f32; 3]);
/// Those of many towers: every value between -1 and 1.
pub(crate) const HALVES: Colours = ([0.5; 3], [0.5; 3]);
/// Those of the pictures that OpenAI's CLIP was trained on.
pub(crate) const CLIP: Colours =
    ([0.481_454_66, 0.457_827_5, 0.408_210_73], [0.268_629_54, 0.261_302_6, 0.275_777_1]);
/// Those of ImageNet.
pub(crate) const IMAGENET: Colours = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);

/// What the files of a checkpoint say.
#[derive(Debug)]
pub(crate) struct Settings {
    /// `config.json`.
    pub(crate) config: Config,
    /// Its `vision_config`.
    pub(crate) vision: Config,
    /// The image processor's.
    pub(crate) image: Config,
    /// `processor_config.json`.
    pub(crate) processor: Config,
}

impl Settings {
    pub(crate) fn new(config: &Config, image: Option<&Config>, processor: Option<&Config>) -> Self {
        let processor = processor.cloned().unwrap_or_default();
        // As a GGUF file has it, where there are no files beside it.
        let own = || config.at("image_processor");
        let within =
            || if processor.has("image_processor") { processor.at("image_processor") } else { own() };
        let image = image.cloned().unwrap_or_else(within);
        Self { config: config.clone(), vision: config.at("vision_config"), image, processor }
    }

    /// What the image processor does in any case here; settings that say otherwise are refused.
    pub(crate) fn always(&self, keys: &[&str]) -> Result<()> {
        for key in keys {
            if !self.image.bool_or(key, true)? {
                return Err(Error::unsupported(key, "it is false, and images are prepared with it only"));
            }
        }
        Ok(())
    }

    /// What it never does.
    pub(crate) fn never(&self, keys: &[&str]) -> Result<()> {
        for key in keys {
            if self.image.bool_or(key, false)? {
                return Err(Error::unsupported(key, "it is true, and images are prepared without it only"));
            }
        }
        Ok(())
    }

    /// The filter that images are resized with.
    pub(crate) fn filter(&self, default: Filter) -> Result<Filter> {
        // Pillow's numbers. Lanczos' filter, 1, is the cubic one: see the crate's documentation.
        match self.image.opt_usize("resample")? {
            None => Ok(default),
            Some(1 | 3) => Ok(Filter::Bicubic),
            Some(2) => Ok(Filter::Bilinear),
            Some(other) => Err(Error::unsupported(
                "resample",
                format!("it is {other}, and 2 (bilinear), 3 (bicubic) and 1 (taken for 3) are known"),
            )),
        }
    }

    /// What levels become.
    pub(crate) fn normalize(&self, default: Colours) -> Result<Normalize> {
        let triple = |key: &str, default: [f32; 3]| match self.image.opt_f32s(key)? {
            None => Ok(default),
            Some(values) => <[f32; 3]>::try_from(values).map_err(|values| {
                Error::invalid(key, format!("it has {} numbers, and pixels have 3", values.len()))
            }),
        };
        let (mean, std) = match self.image.bool_or("do_normalize", true)? {
            true => (triple("image_mean", default.0)?, triple("image_std", default.1)?),
            false => ([0.0; 3], [1.0; 3]),
        };
        let one = match self.image.bool_or("do_rescale", true)? {
            true => 1.0 / number(&self.image, "rescale_factor", 1.0 / 255.0, 1e-6..=1.0)?,
            false => 1.0,
        };
        Normalize::scaled(mean, std, one as f32)
    }

    /// The pixels along a side of a patch, as tower and processor have it.
    pub(crate) fn patch(&self, default: usize) -> Result<usize> {
        let key = "patch_size";
        agreed(key, [side(&self.vision, key)?, self.processor.opt_usize(key)?], default, PATCHES)
    }

    /// The pixels along a side of an image, as the tower has it.
    pub(crate) fn image_size(&self, default: usize) -> Result<usize> {
        within("image_size", side(&self.vision, "image_size")?.unwrap_or(default), SIDES)
    }
}

/// A number, or a list of two that are alike.
fn side(config: &Config, key: &str) -> Result<Option<usize>> {
    if !config.0.get(key).is_some_and(|value| value.is_array()) {
        return config.opt_usize(key);
    }
    match config.opt_usizes(key)?.as_deref() {
        Some([a, b]) if a == b => Ok(Some(*a)),
        other => Err(Error::unsupported(key, format!("it is {other:?}, and sides are alike here"))),
    }
}

/// A setting that several files may have: they should agree.
pub(crate) fn agreed<const N: usize>(
    key: &str,
    said: [Option<usize>; N],
    default: usize,
    range: RangeInclusive<usize>,
) -> Result<usize> {
    let mut all = said.iter().flatten();
    let value = *all.next().unwrap_or(&default);
    if let Some(other) = all.find(|other| **other != value) {
        let why = format!("the checkpoint's files say {value} and {other}; are they of one model?");
        return Err(Error::invalid(key, why));
    }
    within(key, value, range)
}

/// A setting that has to be in a range.
pub(crate) fn within(key: &str, value: usize, range: RangeInclusive<usize>) -> Result<usize> {
    if !range.contains(&value) {
        let (least, most) = (range.start(), range.end());
        return Err(Error::invalid(key, format!("it is {value} and should be between {least} and {most}")));
    }
    Ok(value)
}

/// A whole number with a default, in a range.
pub(crate) fn whole(
    config: &Config,
    key: &str,
    default: usize,
    range: RangeInclusive<usize>,
) -> Result<usize> {
    within(key, config.usize_or(key, default)?, range)
}

/// A number with a default, in a range. In double precision, as limits that pictures are compared with fall on their very proportions.
pub(crate) fn number(config: &Config, key: &str, default: f64, range: RangeInclusive<f64>) -> Result<f64> {
    config.opt_f32(key)?; // is it a number?
    let value = config.0.get(key).and_then(|v| v.as_f64()).unwrap_or(default);
    if !range.contains(&value) {
        let (least, most) = (range.start(), range.end());
        return Err(Error::invalid(key, format!("it is {value} and should be between {least} and {most}")));
    }
    Ok(value)
}

/// Height and width below `key`, or one number for both.
pub(crate) fn size(config: &Config, key: &str, default: [usize; 2]) -> Result<[usize; 2]> {
    if !config.has(key) {
        return Ok(default);
    }
    if config.0.get(key).is_some_and(|v| v.is_number()) {
        return Ok([whole(config, key, 0, SIDES)?; 2]);
    }
    let size = config.at(key);
    let side = |side: &str| whole(&size, side, 0, SIDES).map_err(|e| e.within(key));
    Ok([side("height")?, side("width")?])
}

/// The number called `edge` below `key`.
pub(crate) fn edge(config: &Config, key: &str, edge: &str, default: usize) -> Result<usize> {
    let size = config.at(key);
    if config.has(key) && !size.has(edge) {
        let why = format!("there is no `{edge}` in it, which this family's images are resized by");
        return Err(Error::unsupported(key, why));
    }
    whole(&size, edge, default, SIDES).map_err(|e| e.within(key))
}
