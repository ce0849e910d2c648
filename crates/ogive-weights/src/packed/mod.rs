//! Weights that were packed for PyTorch: AutoGPTQ's, AutoAWQ's and compressed-tensors' safetensors files.
//!
//! Such a file has three or four tensors in place of a weight. They are given as one, under the weight's own name and in one of ggml's
//! formats, so that every backend has kernels for it: the values are those of the file, to the bit ([`matrix`]). What the
//! files have as it is (norms, embeddings, biases, whatever was not to be packed) is given as it is: the tensors that are there
//! say which weights were packed, and not the settings' lists of names.
//!
//! A weight is packed anew when its bytes are first read. Whoever only counts memory pays for its zero points.

mod awq;
mod codes;
mod compressed;
mod gptq;
mod matrix;
mod method;
mod parts;

use crate::safetensors::Safetensors;
use matrix::Matrix;
pub(crate) use method::AT as QUANTIZATION;
use method::{KNOWN, Method};
use ogive_tensor::{Config, Error, HostWeight, Result, Source, WeightInfo};
use parts::Parts;
use std::collections::{HashMap, HashSet};

/// The tensor that says that a weight is packed, and those beside it.
type Leaves = (&'static str, &'static [&'static str]);

const GPTQ: Leaves = ("qweight", &["qzeros", "scales", "g_idx"]);
const COMPRESSED: Leaves =
    ("weight_packed", &["weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx"]);

/// Files of packed weights.
#[derive(Debug)]
pub(crate) struct Packed {
    files: Safetensors,
    method: Method,
    /// By the weight's name: what its tensors' names begin with.
    stems: HashMap<String, String>,
}

/// The weights of these files, as the settings say that they are packed.
pub(crate) fn open(config: &Config, files: Safetensors) -> Result<Box<dyn Source>> {
    Ok(match Method::of(config)? {
        None => match unsettled(&files) {
            None => Box::new(files),
            Some(name) => {
                let why = format!(
                    "the weight is packed, and nothing says how: config.json has no `{QUANTIZATION}`, and AutoGPTQ's \
                     quantize_config.json is not beside it. Add what the weights came with; {KNOWN}"
                );
                return Err(Error::invalid(name, why));
            }
        },
        Some(method) => Box::new(Packed::new(files, method)?),
    })
}

/// A tensor of packed weights, of which settings have to say what it means.
pub(crate) fn unsettled(files: &Safetensors) -> Option<&str> {
    let is_packed =
        |name: &&str| [GPTQ.0, COMPRESSED.0].contains(&name.rsplit('.').next().unwrap_or_default());
    files.names().find(is_packed)
}

impl Method {
    fn leaves(self) -> Leaves {
        match self {
            Self::Gptq(_) | Self::Awq(_) => GPTQ,
            Self::Compressed => COMPRESSED,
        }
    }
}

impl Packed {
    fn new(files: Safetensors, method: Method) -> Result<Self> {
        let stem = |name: &str| {
            let stem = name.strip_suffix(method.leaves().0)?;
            (stem.is_empty() || stem.ends_with('.')).then(|| (format!("{stem}weight"), stem.to_owned()))
        };
        let stems: HashMap<_, _> = files.names().filter_map(stem).collect();
        if let Some(name) = files.names().find(|name| stems.contains_key(*name)) {
            return Err(Error::invalid(name, "the weight is in the files twice, packed and as it was"));
        }
        Ok(Self { files, method, stems })
    }

    fn matrix(&self, name: &str, stem: &str) -> Result<Matrix> {
        let parts = Parts { files: &self.files, stem };
        match self.method {
            Method::Gptq(gptq) => gptq.matrix(name, &parts),
            Method::Awq(awq) => awq.matrix(name, &parts),
            Method::Compressed => compressed::matrix(name, &parts),
        }
    }

    /// The name of the weight whose part or parts this tensor is, and whether it is the first of them.
    fn whole(&self, tensor: &str) -> Option<(String, bool)> {
        let (first, beside) = self.method.leaves();
        let stem = tensor.rfind('.').map_or("", |dot| &tensor[..=dot]);
        let (name, leaf) = (format!("{stem}weight"), &tensor[stem.len()..]);
        let is_part = leaf == first || beside.contains(&leaf);
        (is_part && self.stems.contains_key(&name)).then_some((name, leaf == first))
    }
}

impl Source for Packed {
    fn get(&self, name: &str) -> Result<HostWeight> {
        match self.stems.get(name) {
            Some(stem) => self.matrix(name, stem)?.weight(),
            None => self.files.get(name),
        }
    }

    fn tensors(&self) -> Vec<WeightInfo> {
        let mut all: HashMap<String, WeightInfo> =
            self.files.tensors().into_iter().map(|info| (info.name.clone(), info)).collect();
        let of = |tensor: &str| match self.whole(tensor) {
            None => all.remove(tensor),
            Some((_, false)) => None,
            Some((name, true)) => {
                let weight = self.get(&name).ok()?;
                Some(WeightInfo::new(name, weight.shape, weight.format))
            }
        };
        self.files.names().filter_map(of).collect()
    }

    fn left_out(&self) -> Vec<String> {
        let unread: HashSet<String> = self.files.left_out().into_iter().collect();
        let of = |tensor: &str| match self.whole(tensor) {
            None => unread.contains(tensor).then(|| tensor.to_owned()),
            Some((_, false)) => None,
            Some((name, true)) => self.get(&name).is_err().then_some(name),
        };
        self.files.names().filter_map(of).collect()
    }
}
