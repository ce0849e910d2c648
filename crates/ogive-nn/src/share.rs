//! How much of a weight a token meets.

use crate::Config;
use ogive_backend::tensor::{Result, WeightInfo};

/// Which part of its experts a mixture gives a token to. What a step of a mixture reads is told from a file with it, before anything runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(f64);

impl Share {
    /// Of the model of these settings, of its text where it also sees; all where they say nothing of experts.
    ///
    /// # Errors
    /// If one of them is no number.
    pub fn of(config: &Config) -> Result<Self> {
        let config = &if config.has("text_config") { config.at("text_config") } else { config.clone() };
        let mut experts = None;
        for key in ["num_local_experts", "num_experts", "n_routed_experts"] {
            experts = experts.or(config.opt_usize(key)?);
        }
        let experts = experts.unwrap_or(1).max(1);
        let used = config.opt_usize("num_experts_per_tok")?.or(config.opt_usize("top_k_experts")?);
        let used = used.unwrap_or(experts).min(experts);
        Ok(Self(used as f64 / experts as f64))
    }

    /// Which part of a weight a token is multiplied with. Experts are a tensor each, or all in one, which some models give a name without
    /// the word; attention has stacks, too, of heads and channels, and a convolution has a row for each channel.
    pub fn of_token(&self, w: &WeightInfo) -> f64 {
        let is_stack = w.shape[0] > 1 && w.shape[1] > 1 && !w.name.contains("_attn.");
        let is_of_experts = w.name.contains(".experts.") || is_stack;
        if is_of_experts { self.0 } else { 1.0 }
    }
}

/// Whether a weight of this name is a decoder's table of tokens, as the architectures here call it. A step reads a row of it for each token,
/// and all of it where it is the head too. What stands for tokens of images and sounds beside the text's (Gemma 3n's) is none.
pub fn is_token_table(name: &str) -> bool {
    let of_senses = name.split('.').any(|part| ["embed_vision", "embed_audio"].contains(&part));
    !of_senses
        && ["embed_tokens.weight", "embed_in.weight", "wte.weight", ".embeddings.weight", ".embedding.weight"]
            .iter()
            .any(|end| name.ends_with(end))
}

/// Whether a weight of this name is a decoder's output head.
pub fn is_head(name: &str) -> bool {
    // GPT-NeoX calls its own after the table of tokens.
    ["lm_head.weight", "embed_out.weight"].iter().any(|end| name.ends_with(end))
}

/// Whether a weight of this name is the table of layers' inputs (Gemma 4's), of which a step reads a row for each token and nothing else.
pub fn is_layer_table(name: &str) -> bool {
    name.ends_with("embed_tokens_per_layer.weight")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_backend::tensor::{F32, serde_json::json};

    #[test]
    fn tables_of_tokens_are_known_by_name() {
        for name in [
            "model.embed_tokens.weight",
            "transformer.wte.weight",
            "gpt_neox.embed_in.weight",
            "backbone.embeddings.weight",
            "backbone.embedding.weight",
        ] {
            assert!(is_token_table(name), "{name}");
        }
        for name in [
            "transformer.wpe.weight",
            "embeddings.position_embeddings.weight",
            "lm_head.weight",
            "model.embed_vision.embedding.weight",
            "model.embed_audio.embedding.weight",
        ] {
            assert!(!is_token_table(name), "{name}");
        }
        let of_layers = "model.language_model.embed_tokens_per_layer.weight";
        assert!(is_layer_table(of_layers) && !is_token_table(of_layers));
        assert!(!is_layer_table("model.embed_tokens.weight"));
        for (name, head) in
            [("lm_head.weight", true), ("embed_out.weight", true), ("model.norm.weight", false)]
        {
            assert_eq!((is_head(name), is_token_table(name)), (head, false), "{name}");
        }
    }

    #[test]
    fn experts_count_as_far_as_tokens_choose_them() {
        let w = |name: &str, n| WeightInfo::new(name, [n, 10, 10], &F32);
        let of = |settings| Share::of(&Config(settings)).unwrap();
        let mixture = of(json!({"num_local_experts": 8, "num_experts_per_tok": 2}));
        let stack = w("model.layers.0.block_sparse_moe.output_linear.weight", 8);
        for w in [&stack, &w("model.layers.0.block_sparse_moe.experts.3.w1.weight", 1)] {
            assert_eq!(mixture.of_token(w), 0.25);
        }
        let beside = ["self_attn.k_b_proj", "linear_attn.conv1d"]
            .map(|name| w(&format!("model.layers.0.{name}.weight"), 8));
        let taps = WeightInfo::new("model.layers.0.conv.conv.weight", [8, 1, 3], &F32);
        for w in beside.into_iter().chain([w("lm_head.weight", 1), taps]) {
            assert_eq!(mixture.of_token(&w), 1.0);
        }
        assert_eq!(of(json!({"n_routed_experts": 4, "num_experts_per_tok": 1})), Share(0.25));
        assert_eq!(of(json!({"num_experts": 4, "top_k_experts": 1})), Share(0.25));
        let seeing = json!({"text_config": {"num_experts": 4, "num_experts_per_tok": 1}});
        assert_eq!(of(seeing), Share(0.25));
        assert_eq!(of(json!({"num_experts": 0, "num_experts_per_tok": 3})).of_token(&stack), 1.0);
        assert_eq!(of(json!({})).of_token(&stack), 1.0);
        assert!(Share::of(&Config(json!({"num_experts": "many"}))).is_err());
    }
}
