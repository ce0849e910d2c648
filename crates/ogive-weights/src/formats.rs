//! Which formats a file's type names mean, and how a file's dimensions become `[experts, rows, cols]`.

use ogive_tensor::{Error, FORMATS, Format, Result};

/// Formats by name: this workspace's, and those that were added. A later one wins, so that a format can be replaced.
#[derive(Clone, Debug)]
pub(crate) struct Formats(Vec<&'static Format>);

impl Default for Formats {
    fn default() -> Self {
        Self(FORMATS.to_vec())
    }
}

impl Formats {
    pub(crate) fn add(&mut self, format: &'static Format) {
        self.0.push(format);
    }

    /// The format of that name, in any case.
    pub(crate) fn find(&self, name: &str) -> Option<&'static Format> {
        self.0.iter().rev().copied().find(|f| f.name.eq_ignore_ascii_case(name))
    }

    /// The error for `tensor`, whose format is not known.
    pub(crate) fn unknown(&self, tensor: &str, format: &str) -> Error {
        let known: Vec<&str> = self.0.iter().map(|f| f.name).collect();
        let why =
            format!("its elements are of type {format}, which is not read; known are {}", known.join(", "));
        Error::unsupported(tensor, why)
    }
}

/// `[experts, rows, cols]` of a tensor with the given dimensions, slowest first: a number is one row of one, a vector one
/// row. Of more than three dimensions the slowest are taken together.
pub(crate) fn fold_shape(tensor: &str, dims: &[u64]) -> Result<[usize; 3]> {
    let too_large =
        || Error::invalid(tensor, format!("its dimensions {dims:?} cannot be counted on this machine"));
    let mut shape = [1_usize; 3];
    for (i, &d) in dims.iter().rev().enumerate() {
        let d = usize::try_from(d).map_err(|_| too_large())?;
        let place = &mut shape[2 - i.min(2)];
        *place = place.checked_mul(d).ok_or_else(too_large)?;
    }
    // Without its zeros, so that no later product over some of the dimensions can overflow, bytes included.
    let most = shape.iter().try_fold(1_usize, |n, &d| n.checked_mul(d.max(1)));
    most.filter(|n| *n <= isize::MAX as usize / 16).ok_or_else(too_large)?;
    Ok(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_fold_from_the_slowest() {
        let fold = |d: &[u64]| fold_shape("w", d).unwrap();
        assert_eq!((fold(&[]), fold(&[5]), fold(&[2, 3])), ([1, 1, 1], [1, 1, 5], [1, 2, 3]));
        assert_eq!((fold(&[4, 2, 3]), fold(&[7, 4, 2, 3])), ([4, 2, 3], [28, 2, 3]));
        assert!(fold_shape("w", &[u64::MAX, 2]).is_err());
        assert!(fold_shape("w", &[1 << 40, 1 << 40, 0]).is_err());
        assert!(fold_shape("w", &[0, 1 << 62]).is_err());
        assert_eq!(fold(&[0, 5]), [1, 0, 5]);
    }

    #[test]
    fn a_format_can_be_added_and_the_error_names_what_is_known() {
        static F8: Format = Format {
            name: "f8_e5m2",
            block_len: 1,
            block_bytes: 1,
            decode: |b, o| o[0] = f32::from(b[0]),
            encode: None,
        };
        let mut formats = Formats::default();
        assert_eq!(formats.find("F8_E5M2"), None);
        let e = formats.unknown("model.norm.weight", "F8_E5M2").to_string();
        assert!(
            e.starts_with("model.norm.weight: its elements are of type F8_E5M2") && e.contains("q4_k"),
            "{e}"
        );
        formats.add(&F8);
        assert_eq!(formats.find("F8_E5M2"), Some(&F8));
    }
}
