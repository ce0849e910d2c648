//! From levels of pixels, 0 to 255, to what a tower reads.
//!
//! There are 256 levels, so all values are computed once, in the reference's order: mean and deviation are scaled to levels, and a
//! level is made less by the one and divided by the other, in single precision.

use ogive_tensor::{Error, Result};
use std::fmt;

/// What each level of red, green and blue becomes.
#[derive(Clone, PartialEq)]
pub struct Normalize {
    /// `[3, 256]`
    values: [[f32; 256]; 3],
}

impl fmt::Debug for Normalize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ends = self.values.map(|channel| [channel[0], channel[255]]);
        write!(f, "Normalize({ends:?})")
    }
}

impl Normalize {
    /// Levels are divided by 255, then made less by `mean` and divided by `std`, each for red, green and blue.
    ///
    /// # Errors
    /// If a number is not finite, or a deviation not above 0.
    pub fn new(mean: [f32; 3], std: [f32; 3]) -> Result<Self> {
        Self::scaled(mean, std, 255.0)
    }

    /// With levels divided by `one` in place of 255.
    pub(crate) fn scaled(mean: [f32; 3], std: [f32; 3], one: f32) -> Result<Self> {
        let (mean, std) = (mean.map(|m| m * one), std.map(|s| s * one));
        if !mean.iter().all(|m| m.is_finite()) || !std.iter().all(|s| s.is_finite() && *s > 0.0) {
            let why = format!(
                "image_mean and image_std are {mean:?} and {std:?} in levels; deviations should be above 0"
            );
            return Err(Error::invalid("image settings", why));
        }
        let value = |channel: usize, level: usize| (level as f32 - mean[channel]) / std[channel];
        Ok(Self { values: [0, 1, 2].map(|channel| std::array::from_fn(|level| value(channel, level))) })
    }

    /// What `level` of channel 0 (red), 1 (green) or 2 (blue) becomes.
    pub(crate) fn channel(&self, channel: usize) -> &[f32; 256] {
        &self.values[channel]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_become_values() {
        let halves = Normalize::new([0.5; 3], [0.5, 0.25, 0.5]).unwrap();
        assert_eq!((halves.channel(0)[0], halves.channel(0)[255], halves.channel(1)[255]), (-1.0, 1.0, 2.0));
        assert!(Normalize::new([0.5; 3], [0.5, 0.0, 0.5]).is_err());
        assert!(Normalize::new([f32::NAN, 0.0, 0.0], [1.0; 3]).is_err());
    }
}
