//! `command-r` and `cohere2`: Command R and Command R7B, with one norm for attention and MLP, which stand beside each other. Neighbours turn
//! together in Hugging Face's files as well, so nothing is reordered; of `cohere2` each fourth layer has no window and turns nothing.

use crate::gguf::settings::{copy, layer_types};
use crate::gguf::{Header, Settings, Translation};
use ogive_tensor::Result;

/// Norms on heads are in the files of the largest model alone.
pub(super) fn command_r() -> Translation {
    Translation::decoder("command-r", "CohereForCausalLM").settings(own)
}

pub(super) fn cohere2() -> Translation {
    Translation::decoder("cohere2", "Cohere2ForCausalLM").settings(|header, settings| {
        layer_types(header, settings, 4096, 4)?;
        own(header, settings)
    })
}

fn own(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    let keys = [("logit_scale", "logit_scale"), ("attention.layer_norm_epsilon", "layer_norm_eps")];
    copy(header, settings, &keys)
}
