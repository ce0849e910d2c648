//! `dots1`: dots.llm1, Qwen3's names before DeepSeek's mixtures. Nothing is reordered, and no layer has a window.

use super::deepseek::with_experts;
use crate::gguf::Translation;
use crate::gguf::settings::only_sigmoids;
use ogive_tensor::Error;

pub(super) fn dots1() -> Translation {
    with_experts(Translation::decoder("dots1", "Dots1ForCausalLM")).settings(|header, settings| {
        only_sigmoids(header)?;
        // 0 is none.
        if settings.get("routed_scaling_factor").is_some_and(|scale| scale.as_f64() == Some(0.0)) {
            settings.remove("routed_scaling_factor");
        }
        if settings.contains_key("sliding_window") {
            let why = "the file has a window, which is not known of this architecture";
            return Err(Error::unsupported("attention.sliding_window", why));
        }
        Ok(())
    })
}
