//! Language model architectures, a file each.
//!
//! An architecture is a function from a configuration and a weight file to a [`Model`](ogive_nn::Model); a crate outside
//! this one adds its own with [`Registry::with`](ogive_nn::Registry::with).

pub mod gemma2;
pub mod llama;
pub mod mixtral;

/// Every architecture in this crate, under the names that `config.json` has for them.
pub fn registry() -> ogive_nn::Registry {
    ogive_nn::Registry::new()
        .with("Gemma2ForCausalLM", gemma2::load)
        .with("LlamaForCausalLM", llama::load)
        .with("MistralForCausalLM", llama::load)
        .with("MixtralForCausalLM", mixtral::load)
        .with("Qwen2ForCausalLM", llama::load_qwen)
        .with("Qwen3ForCausalLM", llama::load_qwen)
}
