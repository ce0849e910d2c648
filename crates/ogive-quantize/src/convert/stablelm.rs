//! StableLM as GGUF has it: whether MLP and attention stand beside each other is no setting there, but a norm that is not there.
//!
//! A norm that is left over is refused and not left out: without it the file would be right, but nobody can say that it is left over and not the
//! setting false.

use super::{Model, refuse};
use crate::Result;
use crate::input::Tensor;

/// GGUF's name of the architecture.
pub(super) const ARCHITECTURE: &str = "stablelm";

const BESIDE: &str = "use_parallel_residual";

/// Refuses a setting that is another than the norms in front of MLPs mean.
pub(super) fn check(model: &Model<'_>, tensors: &[Tensor]) -> Result<()> {
    if model.architecture != ARCHITECTURE {
        return Ok(());
    }
    let norms = tensors.iter().any(|t| t.name.contains(".ffn_norm."));
    match (model.config.bool_or(BESIDE, false)?, norms) {
        (true, true) => {
            let why = "it is true, and readers of GGUF take the `post_attention_layernorm` among the weights for false";
            refuse(BESIDE, why)
        }
        (false, false) => {
            let why = "it is false, and readers of GGUF take weights without `post_attention_layernorm` for true; is the download \
                complete?";
            refuse(BESIDE, why)
        }
        _ => Ok(()),
    }
}
