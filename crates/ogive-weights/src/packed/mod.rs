//! Weights that were packed for PyTorch: AutoGPTQ's, AutoAWQ's, compressed-tensors', ModelOpt's and gpt-oss's safetensors files, and those of FP8 ([`float8`]).
//!
//! A file of the former has two to four tensors in place of a weight. They are given as one, under the weight's own name and in one of ggml's
//! formats, so that every backend has kernels for it: the values are those of the file, to the bit ([`matrix`]). What the
//! files have as it is (norms, embeddings, biases, whatever was not to be packed) is given as it is: the tensors that are there
//! say which weights were packed, and not the settings' lists of names. What is in FP8 beside packed weights has its factors, too.
//!
//! A weight is packed anew when its bytes are first read. Whoever only counts memory pays for its zero points, or scales of four bits.

mod awq;
mod codes;
mod compressed;
mod float8;
mod fp4;
mod gptq;
mod matrix;
mod method;
mod mxfp4;
mod parts;

use crate::safetensors::Safetensors;
use float8::{Float8, Scaled};
use fp4::Fp4;
pub(crate) use method::AT as QUANTIZATION;
use method::{KNOWN, Method, Packing};
use ogive_tensor::{Config, Error, HostWeight, Result, Source, WeightInfo};
use parts::Parts;
use std::collections::{HashMap, HashSet};

/// How the tensors of a weight are called.
struct Leaves {
    /// What stands before the words below: all but this one's last is the weight's name without `.weight`.
    joint: char,
    /// The tensor that says that a weight is packed.
    first: &'static str,
    /// Those beside it.
    beside: &'static [&'static str],
}

const GPTQ: Leaves = Leaves { joint: '.', first: "qweight", beside: &["qzeros", "scales", "g_idx"] };
const COMPRESSED: Leaves = Leaves {
    joint: '.',
    first: "weight_packed",
    beside: &["weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx"],
};
const FP4: Leaves = Leaves {
    joint: '.',
    first: "weight_packed",
    beside: &[
        "weight_scale",
        "weight_global_scale",
        "input_global_scale",
        "weight_zero_point",
        "weight_g_idx",
    ],
};
/// The codes have the weight's own name.
const MODELOPT: Leaves =
    Leaves { joint: '.', first: "weight_scale_2", beside: &["weight", "weight_scale", "input_scale"] };
const MXFP4: Leaves = Leaves { joint: '_', first: "blocks", beside: &["scales"] };

impl Leaves {
    /// A tensor's stem, its joint included, and its last word.
    fn cut<'a>(&self, tensor: &'a str) -> (&'a str, &'a str) {
        tensor.split_at(tensor.rfind(self.joint).map_or(0, |at| at + self.joint.len_utf8()))
    }

    /// The name of the weight that has this stem.
    fn name(&self, stem: &str) -> String {
        match stem.strip_suffix(self.joint) {
            Some(stem) => format!("{stem}.weight"),
            None => "weight".into(),
        }
    }
}

/// Files of packed weights.
#[derive(Debug)]
pub(crate) struct Packed {
    /// What is not packed may be in FP8.
    files: Scaled,
    packing: Packing,
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
                    "the weight is packed, and nothing says how: config.json has no `{QUANTIZATION}`, and neither AutoGPTQ's \
                     quantize_config.json nor ModelOpt's hf_quant_config.json is beside it. Add what the weights came with; {KNOWN}"
                );
                return Err(Error::invalid(name, why));
            }
        },
        Some(Method::Float8(how)) => Box::new(Scaled::new(files, how)),
        Some(Method::Packed(packing)) => Box::new(Packed::new(files, packing)?),
    })
}

/// Whether `quantization_config` of a model's settings says that its weights are FP8: numbers with factors, which can be packed otherwise as any can,
/// and not codes that were searched for.
pub fn is_float8(config: &Config) -> bool {
    matches!(Method::of(config), Ok(Some(Method::Float8(_))))
}

/// A tensor of packed weights, of which settings have to say what it means.
pub(crate) fn unsettled(files: &Safetensors) -> Option<&str> {
    let is_packed =
        |name: &&str| [GPTQ, COMPRESSED, MODELOPT, MXFP4].iter().any(|l| l.cut(name).1 == l.first);
    files.names().find(is_packed).or_else(|| float8::unsettled(files))
}

impl Packing {
    fn leaves(self) -> Leaves {
        match self {
            Self::Gptq(_) | Self::Awq(_) => GPTQ,
            Self::Compressed => COMPRESSED,
            Self::Fp4(Fp4::ModelOpt, _) => MODELOPT,
            Self::Fp4(Fp4::Nvfp4 | Fp4::Mxfp4, _) => FP4,
            Self::Mxfp4 => MXFP4,
        }
    }
}

impl Packed {
    fn new(files: Safetensors, packing: Packing) -> Result<Self> {
        let leaves = packing.leaves();
        let stem = |name: &str| {
            let (stem, leaf) = leaves.cut(name);
            (leaf == leaves.first).then(|| (leaves.name(stem), stem.to_owned()))
        };
        let stems: HashMap<_, _> = files.names().filter_map(stem).collect();
        let is_part = leaves.beside.contains(&"weight");
        if let Some(name) = files.names().find(|name| !is_part && stems.contains_key(*name)) {
            return Err(Error::invalid(name, "the weight is in the files twice, packed and as it was"));
        }
        let eights = match packing {
            Packing::Fp4(_, eights) => eights,
            // Their settings say nothing of tiles.
            _ => Float8 { block: None },
        };
        Ok(Self { files: Scaled::new(files, eights), packing, stems })
    }

    fn weight(&self, name: &str, stem: &str) -> Result<HostWeight> {
        let parts = Parts { files: self.files.files(), stem };
        let matrix = match self.packing {
            Packing::Gptq(gptq) => gptq.matrix(name, &parts)?,
            Packing::Awq(awq) => awq.matrix(name, &parts)?,
            Packing::Compressed => compressed::matrix(name, &parts)?,
            Packing::Fp4(fp4, _) => return fp4.weight(name, &parts),
            Packing::Mxfp4 => return mxfp4::weight(name, &parts),
        };
        matrix.weight()
    }

    /// What a weight is; nothing that would read all of it.
    fn info(&self, name: &str, stem: &str) -> Result<WeightInfo> {
        if let Packing::Fp4(fp4, _) = self.packing {
            return fp4.info(name, &Parts { files: self.files.files(), stem });
        }
        self.weight(name, stem).map(|weight| WeightInfo::new(name, weight.shape, weight.format))
    }

    /// The name of the weight whose part or parts this tensor is, and whether it is the first of them.
    fn whole(&self, tensor: &str) -> Option<(String, bool)> {
        let leaves = self.packing.leaves();
        let (stem, leaf) = leaves.cut(tensor);
        let (name, is_first) = (leaves.name(stem), leaf == leaves.first);
        let is_part = is_first || leaves.beside.contains(&leaf);
        (is_part && self.stems.contains_key(&name)).then_some((name, is_first))
    }
}

impl Source for Packed {
    fn get(&self, name: &str) -> Result<HostWeight> {
        match self.stems.get(name) {
            Some(stem) => self.weight(name, stem),
            None if self.files.files().dtype(&format!("{name}_weight_scale_2")).is_some() => {
                let why = "it is a stack of experts in NVFP4, which is not read; take a checkpoint that has experts one by one, or a GGUF";
                Err(Error::unsupported(name, why))
            }
            None => self.files.get(name),
        }
    }

    fn tensors(&self) -> Vec<WeightInfo> {
        let mut all: HashMap<String, WeightInfo> =
            self.files.tensors().into_iter().map(|info| (info.name.clone(), info)).collect();
        let of = |tensor: &str| match self.whole(tensor) {
            None => all.remove(tensor),
            Some((_, false)) => None,
            Some((name, true)) => self.info(&name, self.stems.get(&name)?).ok(),
        };
        self.files.files().names().filter_map(of).collect()
    }

    fn left_out(&self) -> Vec<String> {
        let unread: HashSet<String> = self.files.left_out().into_iter().collect();
        let of = |tensor: &str| match self.whole(tensor) {
            None => unread.contains(tensor).then(|| tensor.to_owned()),
            Some((_, false)) => None,
            Some((name, true)) => self.info(&name, self.stems.get(&name)?).is_err().then_some(name),
        };
        self.files.files().names().filter_map(of).collect()
    }
}
