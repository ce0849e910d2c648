//! `quantization_config` of config.json: who packed the weights, and how.
//!
//! A way of packing that is not known is an error at once and not when a weight is asked for: its weights have other names or
//! other types, and "there is nothing of this name" would be the answer.

use super::{awq::Awq, float8::Float8, fp4::Fp4, gptq::Gptq};
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
    /// And how factors of FP8 lie that stand beside it.
    Fp4(Fp4, Float8),
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
            // Some say there what they pack in, too.
            _ if method.starts_with("modelopt") => modelopt(settings),
            other => Err(Error::unsupported("quant_method", format!("`{other}` is not read; {KNOWN}"))),
        }
    }
}

pub(super) const KNOWN: &str = "known are gptq, awq (version gemm), compressed-tensors (pack-quantized, float-quantized, nvfp4- and mxfp4-pack-quantized), \
    fp8, fbgemm_fp8, modelopt (FP8, NVFP4) and mxfp4; take one of those, the \
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
        "nvfp4-pack-quantized" => fours(settings, 16, false).map(|eights| packed(Fp4::Nvfp4, eights)),
        "mxfp4-pack-quantized" => fours(settings, 32, false).map(|eights| packed(Fp4::Mxfp4, eights)),
        "mixed-precision" => fours(settings, 16, true).map(|eights| packed(Fp4::Nvfp4, eights)),
        other => {
            let why = format!(
                "`{other}` of compressed-tensors is not read; known are pack-quantized, float-quantized, \
                 nvfp4-pack-quantized, mxfp4-pack-quantized, and mixed-precision of NVFP4 and FP8"
            );
            Err(Error::unsupported("format", why))
        }
    }
}

fn packed(fp4: Fp4, eights: Float8) -> Method {
    Method::Packed(Packing::Fp4(fp4, eights))
}

/// Where groups of weights are told of.
const GROUPS: &str = "config_groups";

/// The groups of weights there are, each with its name.
fn groups(settings: &Config) -> impl Iterator<Item = (&String, &Value)> {
    let groups = settings.0.get(GROUPS).and_then(|v| v.as_object());
    groups.into_iter().flatten().filter_map(|(name, group)| {
        let weights = group.get("weights").filter(|v| !v.is_null())?;
        Some((name, weights))
    })
}

/// Whether a group's weights are floating point of so many bits.
fn is_float(weights: &Value, bits: u64) -> bool {
    let (kind, found) = (weights.get("type").and_then(|v| v.as_str()), weights.get("num_bits"));
    kind == Some("float") && found.and_then(|v| v.as_u64()) == Some(bits)
}

/// Refuses groups of weights that are no four bits of floating point with a scale for so many columns, nor FP8 where that may stand beside them, whose
/// tiles it gives.
fn fours(settings: &Config, group: u64, with_eights: bool) -> Result<Float8> {
    let (eights, others): (Vec<_>, Vec<_>) =
        groups(settings).partition(|(_, weights)| with_eights && is_float(weights, 8));
    for (name, weights) in others {
        let size = weights.get("group_size").filter(|v| !v.is_null());
        let asymmetric = weights.get("symmetric").and_then(Value::as_bool) == Some(false);
        if !is_float(weights, 4) || asymmetric || size.is_some_and(|v| v.as_u64() != Some(group)) {
            let also = if with_eights { ", or of 8 bits" } else { "" };
            let why = format!(
                "`{name}` has weights that are no symmetric floating point of 4 bits with a scale for {group} columns{also}, which alone is read here"
            );
            return Err(Error::unsupported(GROUPS, why));
        }
    }
    eights_of(eights.into_iter())
}

/// compressed-tensors' FP8: its groups of weights have to be of FP8, and those that have tiles tiles of one size. Whether others have factors for
/// rows or for all, these say themselves.
fn floats(settings: &Config) -> Result<Float8> {
    if let Some((name, _)) = groups(settings).find(|(_, weights)| !is_float(weights, 8)) {
        let why =
            format!("`{name}` has weights that are no floating point of 8 bits, which alone is read here");
        return Err(Error::unsupported(GROUPS, why));
    }
    eights_of(groups(settings))
}

/// How factors lie in groups of FP8.
fn eights_of<'s>(groups: impl Iterator<Item = (&'s String, &'s Value)>) -> Result<Float8> {
    let mut block = None;
    for (name, weights) in groups {
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
fn modelopt(settings: &Config) -> Result<Method> {
    // In config.json, some versions write it as in a file of its own.
    const INNER: &str = "quantization";
    let (inner, nested) = (settings.at(INNER), settings.has(INNER) && !settings.has("quant_algo"));
    let said = if nested { &inner } else { settings };
    match said.opt_str("quant_algo")? {
        Some("FP8" | "FP8_PER_CHANNEL_PER_TOKEN") => Ok(Method::Float8(Float8 { block: None })),
        Some(algo) if IN_TILES.contains(&algo) => Ok(Method::Float8(Float8 { block: Some([128; 2]) })),
        Some(algo) if IN_FOUR.contains(&algo) || algo == "MIXED_PRECISION" => {
            sixteens(said)?;
            fours(settings, 16, algo == "MIXED_PRECISION")?;
            Ok(packed(Fp4::ModelOpt, mixed(said)?))
        }
        Some(other) => {
            let why = format!(
                "`{other}` of modelopt is not read; known are FP8, for all, for rows or for tiles of a weight, NVFP4, and MIXED_PRECISION of both"
            );
            Err(Error::unsupported("quant_algo", why))
        }
        None => Err(Error::invalid("quant_algo", "nothing is said; known are FP8 and NVFP4")),
    }
}

/// FP8 with factors for tiles, and NVFP4, which is the same where activations stay as they are (`W4A16`).
const IN_TILES: [&str; 3] = ["FP8_PB_WO", "FP8_PB_REAL_QUANT", "FP8_BLOCK_SCALES"];
const IN_FOUR: [&str; 2] = ["NVFP4", "W4A16_NVFP4"];

/// Refuses scales for other than sixteen columns.
fn sixteens(settings: &Config) -> Result<()> {
    if let Some(size) = settings.opt_usize("group_size")?.filter(|size| *size != 16) {
        let why = format!("groups of {size} columns of NVFP4 are not read; known is 16");
        return Err(Error::unsupported("group_size", why));
    }
    Ok(())
}

/// Refuses what layers are packed in beside NVFP4 if it is not FP8, whose tiles it gives.
fn mixed(settings: &Config) -> Result<Float8> {
    const LAYERS: &str = "quantized_layers";
    let layers = settings.0.get(LAYERS).and_then(|v| v.as_object());
    let mut block = None;
    for (name, layer) in layers.into_iter().flatten() {
        match layer.get("quant_algo").and_then(|v| v.as_str()).unwrap_or("nothing") {
            algo if IN_FOUR.contains(&algo) => {
                sixteens(&Config(layer.clone())).map_err(|e| e.within(name).within(LAYERS))?;
            }
            algo if IN_TILES.contains(&algo) => block = Some([128; 2]),
            "FP8" | "FP8_PER_CHANNEL_PER_TOKEN" => {}
            algo => {
                let why = format!("`{name}` is packed as `{algo}`; known are NVFP4 and FP8");
                return Err(Error::unsupported(LAYERS, why));
            }
        }
    }
    Ok(Float8 { block })
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
