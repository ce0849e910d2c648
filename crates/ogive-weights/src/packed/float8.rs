//! Files of FP8: matrices in [`F8_E4M3`] under the names they always have, and beside each the factors of its tiles.
//!
//! DeepSeek's and transformers' (`weight_scale_inv`, which multiplies all the same, one for each 128 by 128), FBGEMM's (`weight_scale` of a row), compressed-tensors' and
//! ModelOpt's (`weight_scale` of all, of a row or of a tile); stacks of experts have `gate_up_proj_scale_inv` beside `gate_up_proj`. The elements stay where they are
//! in the file, and the factors become the weight's own ([`Scale`]).
//!
//! What such files say of activations and of the cache (`input_scale`, `activation_scale`, `k_scale`, `v_scale`) is left out: it says how their packer
//! rounded those to FP8, which loses something and is not done here. Zero points of a weight and an order of its columns, which compressed-tensors can write, are not read:
//! a weight that has some is refused.

use crate::safetensors::{Raw, Safetensors};
use ogive_tensor::{BF16, Error, F8_E4M3, F16, F32, Format, HostWeight, Result, Scale, Source, WeightInfo};
use std::collections::{HashMap, HashSet};

/// How factors lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Float8 {
    /// Rows and columns of a tile, where the settings say that there are some. A last tile may be smaller.
    pub(super) block: Option<[usize; 2]>,
}

/// What ends the name of a tensor with factors. With `weight` or a stack's name before it, the rest is the weight's.
const FACTORS: [&str; 2] = ["_scale_inv", "_scale"];
/// Tensors of other factors and zero points, which are not read: of activations and of the cache.
const IGNORED: [&str; 16] = [
    "input_scale",
    "activation_scale",
    "gate_up_proj_activation_scale",
    "down_proj_activation_scale",
    "input_scale_ub",
    "output_scale",
    "kv_scale",
    "k_scale",
    "v_scale",
    "q_scale",
    "prob_output_scale",
    "input_zero_point",
    "output_zero_point",
    "k_zero_point",
    "v_zero_point",
    "q_zero_point",
];
/// What ends the names of tensors that change a weight, what has no effect in them, and what they are. With all of that they are as good as not there:
/// zero points of zeros are written for symmetric weights, and an order of -1 was never filled in.
const CHANGES: [(&str, u8, &str); 2] =
    [("_zero_point", 0, "zero points"), ("_g_idx", 0xff, "an order of its columns")];

/// Files of FP8.
#[derive(Debug)]
pub(super) struct Scaled {
    files: Safetensors,
    how: Float8,
    /// By the weight's name: what its factors are called.
    factors: HashMap<String, String>,
}

/// The name of the FP8 weight that this tensor has the factors of.
fn weight_of<'a>(files: &Safetensors, tensor: &'a str) -> Option<&'a str> {
    let weight = FACTORS.iter().find_map(|end| tensor.strip_suffix(end))?;
    files.dtype(weight).is_some_and(is_float8).then_some(weight)
}

/// Whether this tensor is one of those that would change an FP8 weight.
fn changes_one(files: &Safetensors, tensor: &str) -> bool {
    let weight = CHANGES.iter().find_map(|(end, ..)| tensor.strip_suffix(end));
    weight.and_then(|weight| files.dtype(weight)).is_some_and(is_float8)
}

fn is_float8(dtype: &str) -> bool {
    dtype.eq_ignore_ascii_case(F8_E4M3.name)
}

/// A weight in FP8 with factors beside it, whose settings have to say how those lie; else a matrix in it, which has factors under a name that is not known, or has lost
/// them: nobody publishes bare ones. A stranger's format of the same name is nobody's business but its own.
pub(super) fn unsettled(files: &Safetensors) -> Option<&str> {
    let is_matrix = |name: &&str| {
        let info = files.dtype(name).filter(|dtype| is_float8(dtype)).and_then(|_| files.get(name).ok());
        info.is_some_and(|w| std::ptr::eq(w.format, &F8_E4M3) && w.shape[0] * w.shape[1] > 1)
    };
    files.names().find_map(|name| weight_of(files, name)).or_else(|| files.names().find(is_matrix))
}

impl Scaled {
    pub(super) fn new(files: Safetensors, how: Float8) -> Self {
        let factors =
            files.names().filter_map(|name| Some((weight_of(&files, name)?.to_owned(), name.to_owned())));
        Self { factors: factors.collect(), files, how }
    }

    /// The tensors as the files have them.
    pub(super) fn files(&self) -> &Safetensors {
        &self.files
    }

    /// Whether a tensor is part of another, or of nothing that is computed.
    fn is_beside(&self, name: &str) -> bool {
        let leaf = name.rsplit('.').next().unwrap_or(name);
        weight_of(&self.files, name).is_some() || changes_one(&self.files, name) || IGNORED.contains(&leaf)
    }

    /// An error if something else than factors is to be done with an FP8 weight.
    fn unchanged(&self, name: &str) -> Result<()> {
        for (end, nothing, what) in CHANGES {
            let raw = self.files.raw(&format!("{name}{end}"))?;
            if raw.is_some_and(|raw| raw.bytes.iter().any(|b| *b != nothing)) {
                let why = format!(
                    "it is in FP8 and has {what} beside it (`{name}{end}`), which are not read there; take a checkpoint without"
                );
                return Err(Error::unsupported(name, why));
            }
        }
        Ok(())
    }

    /// Whether a tensor has what it needs beside it.
    fn is_whole(&self, name: &str) -> bool {
        !self.files.dtype(name).is_some_and(is_float8) || self.get(name).is_ok()
    }

    fn scale(&self, weight: &HostWeight, name: &str) -> Result<Scale> {
        let raw = self.files.raw(name)?.ok_or_else(|| Error::missing(name))?;
        let tile = self.tile(weight.shape, &raw.shape).map_err(|why| {
            let why = format!("its shape is {:?}, where {why}; do the files belong together?", raw.shape);
            Error::invalid(name, why)
        })?;
        let values = values(name, &raw)?;
        match values.iter().position(|v| !v.is_finite()) {
            None => Ok(Scale { values: values.into(), tile }),
            Some(i) => {
                let why = format!(
                    "factor {i} is {}, and all of a tile would be; is the download complete?",
                    values[i]
                );
                Err(Error::invalid(name, why))
            }
        }
    }

    /// Rows and columns that a factor is for, by how many there are; else what is needed.
    fn tile(
        &self,
        [experts, rows, cols]: [usize; 3],
        found: &[u64],
    ) -> std::result::Result<[usize; 2], String> {
        let [tr, tc] = self.how.block.unwrap_or([rows.max(1), cols.max(1)]);
        let (high, wide) = (rows.div_ceil(tr), cols.div_ceil(tc));
        // Columns of matrices that are the other way round.
        if let [.., 1, n] = found
            && (rows > 1 && cols > 1 && *n == cols as u64)
        {
            return Ok([rows, 1]);
        }
        // Without dimensions of one, which some write and others do not; those of the weight may be one, too.
        let sizes = |sizes: &[usize]| sizes.iter().map(|n| *n as u64).filter(|n| *n != 1).collect::<Vec<_>>();
        let found: Vec<u64> = found.iter().copied().filter(|n| *n != 1).collect();
        if found == sizes(&[experts, high, wide]) {
            return Ok([tr, tc]);
        }
        // What is no tile of the settings' is one factor for a row or for all, whatever they say: so are matrices that have no whole tiles.
        if found == sizes(&[experts, rows]) {
            return Ok([1, cols.max(1)]);
        }
        if found == sizes(&[experts]) {
            return Ok([rows.max(1), cols.max(1)]);
        }
        // Groups of columns of each row.
        if let Some(groups) = found.last().and_then(|n| usize::try_from(*n).ok())
            && found == sizes(&[experts, rows, groups])
            && groups > 0
            && cols.is_multiple_of(groups)
        {
            return Ok([1, cols / groups]);
        }
        let needed = match self.how.block {
            Some(_) => format!("[{high}, {wide}] for tiles of {tr} by {tc}, "),
            None => String::new(),
        };
        Err(format!(
            "a weight of [{experts}, {rows}, {cols}] needs {needed}[{rows}, 1] for rows or one for all of an expert"
        ))
    }
}

/// The factors of a tensor.
fn values(name: &str, raw: &Raw) -> Result<Vec<f32>> {
    let decoded = |format: &'static Format| {
        let mut values = vec![0.0; raw.bytes.len() / format.block_bytes];
        format.decode_row(&raw.bytes, &mut values);
        values
    };
    match &*raw.dtype {
        "F32" => Ok(decoded(&F32)),
        "BF16" => Ok(decoded(&BF16)),
        "F16" => Ok(decoded(&F16)),
        // Powers of two, of which 255 is none.
        "F8_E8M0" => Ok(raw.bytes.iter().map(|e| power(*e)).collect()),
        other => Err(Error::invalid(
            name,
            format!("factors in F32, BF16, F16 or F8_E8M0 are needed and these are {other}"),
        )),
    }
}

/// `2^(e - 127)`; OCP 2023, "Microscaling Formats (MX) Specification".
fn power(e: u8) -> f32 {
    match e {
        0 => f32::from_bits(0x0040_0000),
        255 => f32::NAN,
        e => f32::from_bits(u32::from(e) << 23),
    }
}

impl Source for Scaled {
    fn get(&self, name: &str) -> Result<HostWeight> {
        let weight = self.files.get(name)?;
        match self.factors.get(name) {
            Some(factors) => {
                self.unchanged(name)?;
                weight.clone().with_scale(self.scale(&weight, factors)?)
            }
            None if self.files.dtype(name).is_some_and(is_float8) => {
                let why = "its elements are in FP8, and no factors are beside it; are all files of the checkpoint here?";
                Err(Error::invalid(name, why))
            }
            None => Ok(weight),
        }
    }

    fn tensors(&self) -> Vec<WeightInfo> {
        let mut all = self.files.tensors();
        all.retain(|info| !self.is_beside(&info.name) && self.is_whole(&info.name));
        all
    }

    fn left_out(&self) -> Vec<String> {
        let unread: HashSet<String> = self.files.left_out().into_iter().collect();
        let is_lost = |name: &&str| !self.is_beside(name) && (unread.contains(*name) || !self.is_whole(name));
        self.files.names().filter(is_lost).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_are_what_they_should_be() {
        for e in 0..255 {
            assert_eq!(power(e), 2_f32.powi(i32::from(e) - 127), "{e}");
        }
        assert!(power(255).is_nan());
    }
}
