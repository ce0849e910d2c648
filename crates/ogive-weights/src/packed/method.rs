//! `quantization_config` of config.json: who packed the weights, and how.
//!
//! A way of packing that is not known is an error at once and not when a weight is asked for: its weights have other names or
//! other types, and "there is nothing of this name" would be the answer.

use super::{awq::Awq, gptq::Gptq};
use ogive_tensor::{Config, Error, Result};

/// How weights are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
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
            "gptq" => Ok(Self::Gptq(gptq(settings)?)),
            "awq" => Ok(Self::Awq(awq(settings)?)),
            "compressed-tensors" => compressed(settings),
            "mxfp4" => Ok(Self::Mxfp4),
            other => Err(Error::unsupported("quant_method", format!("`{other}` is not read; {KNOWN}"))),
        }
    }
}

pub(super) const KNOWN: &str = "known are gptq, awq (version gemm), compressed-tensors (pack-quantized) and mxfp4; take one of those, the \
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
    let format = settings.opt_str("format")?.unwrap_or("none");
    if format != "pack-quantized" {
        let why = format!("`{format}` of compressed-tensors is not read; known is pack-quantized");
        return Err(Error::unsupported("format", why));
    }
    let transforms = settings.0.get("transform_config").filter(|v| !v.is_null());
    if transforms.is_some_and(|v| !v.as_object().is_some_and(|v| v.is_empty())) {
        let why =
            "rotations that activations would go through as well are not computed; take a checkpoint without";
        return Err(Error::unsupported("transform_config", why));
    }
    Ok(Method::Compressed)
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
