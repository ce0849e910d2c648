//! `exaone4`: EXAONE 4.0, with norms after attention and after the MLP. Nothing is reordered.

use crate::gguf::settings::{layer_types, whole, without_foretelling};
use crate::gguf::{Header, Settings, Translation};
use ogive_tensor::{Error, Result};

/// The number of layers by which llama.cpp tells the larger model, which alone has windows.
const OF_THE_LARGER: u64 = 64;

pub(super) fn exaone4() -> Translation {
    Translation::decoder("exaone4", "Exaone4ForCausalLM")
        .without("blk.{}.attn_norm")
        .without("blk.{}.ffn_norm")
        .rename("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm")
        .rename("blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm")
        .settings(windows)
}

fn windows(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    const LOCAL: &str = "rope.freq_base_swa";
    without_foretelling(header, settings)?;
    if whole(settings, "num_hidden_layers") == Some(OF_THE_LARGER) {
        layer_types(header, settings, 4096, 4)?;
    } else {
        settings.remove("sliding_window");
    }
    let local = header.f32(LOCAL)?;
    if local.is_some() && local != header.f32("rope.freq_base")? {
        let why = "layers with a window have a base of their own, which is not known of this architecture";
        return Err(Error::unsupported(LOCAL, why));
    }
    Ok(())
}
