//! `cohere2`: Command R7B, with one norm for attention and MLP, which stand beside each other. Neighbours turn together in Hugging Face's
//! files as well, so nothing is reordered; each fourth layer has no window and turns nothing.

use crate::gguf::Translation;
use crate::gguf::settings::{copy, layer_types};

pub(super) fn cohere2() -> Translation {
    Translation::decoder("cohere2", "Cohere2ForCausalLM").settings(|header, settings| {
        layer_types(header, settings, 4096, 4)?;
        let keys = [("logit_scale", "logit_scale"), ("attention.layer_norm_epsilon", "layer_norm_eps")];
        copy(header, settings, &keys)
    })
}
