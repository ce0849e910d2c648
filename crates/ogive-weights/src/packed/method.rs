//! `quantization_config` of config.json: who packed the weights, and how.
//!
//! A way of packing that is not known is an error at once and not when a weight is asked for: its weights have other names or
//! other types, and "there is nothing of this name" would be the answer.

use super::{awq::Awq, float8::Float8, gptq::Gptq};
use ogive_tensor::{Config, Error, Result, serde_json::Value};

/// How weights are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// In whole numbers, or in four bits.
    Packed(Packing),
    /// In eight bits of floating point.
    Float8(Float8),
}

/// How codes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Gptq(Gptq),
    Awq(Awq),
    Compressed,
    Mxfp4,
}

/// Where the settings are.
pub(crate) const AT: &str = "quantization_config";

impl Method {
    /// What the settings of a model say; `None` if they say nothing.
    pub(super) fn of(config: &Config) -> Result<Option<Self>> {
        if !config.has(AT) {
            return Ok(None);
        }
        Self::read(&config.at(AT)).map(Some).map_err(|e| e.within(AT))
    }

    fn read(settings: &Config) -> Result<Self> {
        let method = settings.opt_str("quant_method")?;
        let method =
            method.ok_or_else(|| Error::invalid("quant_method", format!("nothing is said; {KNOWN}")))?;
        match method {
            "gptq" => Ok(Self::Packed(Packing::Gptq(gptq(settings)?))),
            "awq" => Ok(Self::Packed(Packing::Awq(awq(settings)?))),
            "compressed-tensors" => compressed(settings),
            "mxfp4" => Ok(Self::Packed(Packing::Mxfp4)),
            "fp8" => fine_grained(settings).map(Self::Float8),
            "fbgemm_fp8" => Ok(Self::Float8(Float8 { block: None })),
            "modelopt" => modelopt(settings).map(Self::Float8),
            other => Err(Error::unsupported("quant_method", format!("`{other}` is not read; {KNOWN}"))),
        }
    }
}

pub(super) const KNOWN: &str = "known are gptq, awq (version gemm), compressed-tensors (pack-quantized, float-quantized), fp8, fbgemm_fp8, \
    modelopt (FP8) and mxfp4; take one of those, the \
    model as it was before it was packed, or a GGUF of it";

fn gptq(settings: &Config) -> Result<Gptq> {
    let bits = settings.usize("bits")?;
    if ![2, 3, 4, 8].contains(&bits) {
        return Err(Error::unsupported(
            "bits",
            format!("{bits} bits of gptq are not read; known are 2, 3, 4 and 8"),
        ));
    }
    let less_one = match settings.opt_str("checkpoint_format")? {
        None | Some("gptq") => true,
        Some("gptq_v2") => false,
        Some(other) => {
            let why = format!("`{other}` is not read; known are gptq and gptq_v2");
            return Err(Error::unsupported("checkpoint_format", why));
        }
    };
    if settings.bool_or("is_marlin_format", false)? {
        return Err(Error::unsupported(
            "is_marlin_format",
            "weights that lie as marlin's kernels want them are not read",
        ));
    }
    match settings.opt_str("pack_dtype")? {
        None | Some("int32") => {}
        Some(other) => {
            return Err(Error::unsupported(
                "pack_dtype",
                format!("words of {other} are not read; known is int32"),
            ));
        }
    }
    let symmetric = settings.bool_or("sym", false)?;
    Ok(Gptq { bits, group: group_size(settings)?, less_one, symmetric })
}

fn awq(settings: &Config) -> Result<Awq> {
    let (bits, version) = (settings.usize("bits")?, settings.opt_str("version")?.unwrap_or("gemm"));
    if bits != 4 {
        return Err(Error::unsupported("bits", format!("{bits} bits of awq are not read; known is 4")));
    }
    if !version.eq_ignore_ascii_case("gemm") {
        return Err(Error::unsupported("version", format!("`{version}` of awq is not read; known is gemm")));
    }
    Ok(Awq { group: group_size(settings)? })
}

fn compressed(settings: &Config) -> Result<Method> {
    let transforms = settings.0.get("transform_config").filter(|v| !v.is_null());
    if transforms.is_some_and(|v| !v.as_object().is_some_and(|v| v.is_empty())) {
        let why =
            "rotations that activations would go through as well are not computed; take a checkpoint without";
        return Err(Error::unsupported("transform_config", why));
    }
    match settings.opt_str("format")?.unwrap_or("none") {
        "pack-quantized" => Ok(Method::Packed(Packing::Compressed)),
        "float-quantized" => floats(settings).map(Method::Float8),
        other => {
            let why = format!(
                "`{other}` of compressed-tensors is not read; known are pack-quantized and float-quantized"
            );
            Err(Error::unsupported("format", why))
        }
    }
}

/// compressed-tensors' FP8: its groups of weights have to be of FP8, and those that have tiles tiles of one size. Whether others have factors for
/// rows or for all, these say themselves.
fn floats(settings: &Config) -> Result<Float8> {
    const GROUPS: &str = "config_groups";
    let groups = settings.0.get(GROUPS).and_then(|v| v.as_object());
    let mut block = None;
    for (name, group) in groups.into_iter().flatten() {
        let Some(weights) = group.get("weights").filter(|v| !v.is_null()) else { continue };
        let (kind, bits) = (weights.get("type").and_then(|v| v.as_str()), weights.get("num_bits"));
        if kind != Some("float") || bits.and_then(|v| v.as_u64()) != Some(8) {
            let why = format!(
                "`{name}` has weights that are no floating point of 8 bits, which alone is read here"
            );
            return Err(Error::unsupported(GROUPS, why));
        }
        let structure = weights.get("block_structure").filter(|v| !v.is_null());
        let Some(found) =
            structure.map(|v| tile(v).map_err(|e| e.within(name).within(GROUPS))).transpose()?
        else {
            continue;
        };
        if block.is_some_and(|block| block != found) {
            return Err(Error::unsupported(GROUPS, "tiles of several sizes are not read"));
        }
        block = Some(found);
    }
    Ok(Float8 { block })
}

/// transformers' and DeepSeek's.
fn fine_grained(settings: &Config) -> Result<Float8> {
    match settings.opt_str("fmt")? {
        None | Some("e4m3" | "float8_e4m3fn") => {}
        Some(other) => {
            return Err(Error::unsupported("fmt", format!("`{other}` of fp8 is not read; known is e4m3")));
        }
    }
    let block = settings.0.get("weight_block_size").filter(|v| !v.is_null());
    Ok(Float8 { block: block.map(tile).transpose().map_err(|e| e.within("weight_block_size"))? })
}

/// Rows and columns of a tile.
fn tile(value: &Value) -> Result<[usize; 2]> {
    let sizes = value.as_array().map(|sizes| {
        sizes.iter().filter_map(|v| usize::try_from(v.as_u64()?).ok()).filter(|n| *n > 0).collect::<Vec<_>>()
    });
    match sizes.as_deref() {
        Some(&[rows, cols]) if value.as_array().is_some_and(|v| v.len() == 2) => Ok([rows, cols]),
        _ => {
            let why = format!("it is {value}, where the rows and the columns of a tile are needed");
            Err(Error::invalid("tiles", why))
        }
    }
}

/// NVIDIA's. Factors for rows and for tiles say themselves which they are; tiles are of 128 by 128.
fn modelopt(settings: &Config) -> Result<Float8> {
    // In config.json, some versions write it as in a file of its own.
    const INNER: &str = "quantization";
    let (inner, nested) = (settings.at(INNER), settings.has(INNER) && !settings.has("quant_algo"));
    match if nested { &inner } else { settings }.opt_str("quant_algo")? {
        Some("FP8" | "FP8_PER_CHANNEL_PER_TOKEN") => Ok(Float8 { block: None }),
        Some("FP8_PB_WO" | "FP8_PB_REAL_QUANT" | "FP8_BLOCK_SCALES") => Ok(Float8 { block: Some([128; 2]) }),
        Some(other) => {
            let why = format!(
                "`{other}` of modelopt is not read; known is FP8, for all, for rows or for tiles of a weight"
            );
            Err(Error::unsupported("quant_algo", why))
        }
        None => Err(Error::invalid("quant_algo", "nothing is said; known is FP8")),
    }
}

/// Columns of a group; `None` for -1, which is all of them.
fn group_size(settings: &Config) -> Result<Option<usize>> {
    let wrong = |what: &str| {
        Error::invalid(
            "group_size",
            format!("{what}, where a number of columns is needed, or -1 for all of them"),
        )
    };
    match settings.0.get("group_size") {
        None => Err(wrong("nothing is said")),
        Some(v) if v.as_i64() == Some(-1) => Ok(None),
        Some(v) => match v.as_u64().and_then(|n| usize::try_from(n).ok()) {
            Some(n) if n > 0 => Ok(Some(n)),
            _ => Err(wrong(&format!("it is `{v}`"))),
        },
    }
}
