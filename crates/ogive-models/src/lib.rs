//! Language model architectures, a file each.
//!
//! An architecture is a function from a configuration and a weight file to a [`Model`](ogive_nn::Model); a crate outside
//! this one adds its own with [`Registry::with`](ogive_nn::Registry::with).
//!
//! ```
//! use ogive_models::registry;
//! use ogive_nn::Loader;
//! # use ogive_conformance::Oracle;
//!
//! # fn main() -> ogive_nn::tensor::Result<()> {
//! let file = ogive_weights::open("tests/golden/llama")?; // a folder with `config.json` and weights
//! assert_eq!(file.architecture, "LlamaForCausalLM");
//! let model = registry().build(&file.architecture, &file.config, &Loader::new(&*file.source, &Oracle))?;
//! assert_eq!(model.cache_layout().len(), file.config.usize("num_hidden_layers")?);
//!
//! // Who brings an architecture adds it, or puts it in the place of one of these.
//! let registry = registry().with("MyForCausalLM", ogive_models::llama::load);
//! assert!(registry.names().any(|name| name == "MyForCausalLM"));
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//! Every `load` fails if a setting is missing, of a wrong type, or asks for what the architecture does not know; if a weight is missing or
//! has another shape than the settings say; and if the backend cannot take one. The message names the setting or the weight.

pub mod apertus;
pub mod arcee;
pub mod bamba;
pub mod bert;
mod block;
mod class;
pub mod classified;
pub mod cohere;
mod decoder;
pub mod deepseek;
pub mod dots1;
pub mod ernie;
pub mod exaone4;
pub mod falcon_h1;
pub mod gemma;
pub mod gemma2;
pub mod gemma3;
pub mod gemma3n;
mod gemma3n_block;
mod gemma3n_settings;
mod gemma3n_vocab;
pub mod gemma4;
mod gemma4_layers;
pub mod glm;
pub mod gpt2;
pub mod gpt_neox;
pub mod gpt_oss;
pub mod granite;
pub mod granite_hybrid;
mod head;
pub mod hunyuan;
mod hybrid;
pub mod jamba;
mod layer_inputs;
mod layer_normed;
pub mod lfm2;
pub mod llama;
pub mod llama4;
pub mod mamba;
pub mod mamba2;
pub mod minimax;
mod mixer;
pub mod mixtral;
pub mod modern_bert;
pub mod nemotron_h;
pub mod nested;
pub mod nomic_bert;
pub mod olmo;
pub mod phi;
pub mod phi3;
pub mod phimoe;
pub mod qwen3_next;
pub mod qwen_moe;
mod routers;
pub mod seed_oss;
pub mod smollm3;
pub mod stablelm;
pub mod starcoder2;
pub mod vision;
mod windows;

/// Every architecture in this crate, under the names that `config.json` has for them. `LlamaModel` and the like are what was
/// saved without a head, for vectors of texts.
pub fn registry() -> ogive_nn::Registry {
    ogive_nn::Registry::new()
        .with("ApertusForCausalLM", apertus::load)
        .with("ArceeForCausalLM", arcee::load)
        .with("BambaForCausalLM", bamba::load)
        .with("BambaModel", bamba::load)
        .with("BertModel", bert::load)
        .with("BertForMaskedLM", bert::load)
        .with("BertForPreTraining", bert::load)
        .with("BertForSequenceClassification", classified::load_bert)
        .with("CamembertModel", bert::load_roberta)
        .with("CamembertForMaskedLM", bert::load_roberta)
        .with("CamembertForSequenceClassification", classified::load_roberta)
        .with("CohereForCausalLM", cohere::load)
        .with("Cohere2ForCausalLM", cohere::load_cohere2)
        .with("DeepseekV2ForCausalLM", deepseek::load_v2)
        .with("DeepseekV2Model", deepseek::load_v2)
        .with("DeepseekV3ForCausalLM", deepseek::load_v3)
        .with("DeepseekV3Model", deepseek::load_v3)
        .with("Dots1ForCausalLM", dots1::load)
        .with("Dots1Model", dots1::load)
        .with("Ernie4_5ForCausalLM", ernie::load)
        .with("Ernie4_5_MoeForCausalLM", ernie::load_moe)
        .with("Exaone4ForCausalLM", exaone4::load)
        .with("FalconH1ForCausalLM", falcon_h1::load)
        .with("FalconH1Model", falcon_h1::load)
        .with("FalconMambaForCausalLM", mamba::load_falcon)
        .with("FalconMambaModel", mamba::load_falcon)
        .with("GemmaForCausalLM", gemma::load)
        .with("GemmaModel", gemma::load)
        .with("Gemma2ForCausalLM", gemma2::load)
        .with("Gemma2Model", gemma2::load)
        .with("GlmForCausalLM", glm::load_glm)
        .with("Glm4ForCausalLM", glm::load_glm4)
        .with("Glm4MoeForCausalLM", glm::load_glm4_moe)
        .with("GPT2LMHeadModel", gpt2::load)
        .with("GPTNeoXForCausalLM", gpt_neox::load)
        .with("GPTNeoXModel", gpt_neox::load)
        .with("GptOssForCausalLM", gpt_oss::load)
        .with("GraniteForCausalLM", granite::load)
        .with("GraniteMoeForCausalLM", granite::load_moe)
        .with("GraniteMoeSharedForCausalLM", granite_hybrid::load_shared)
        .with("GraniteMoeHybridForCausalLM", granite_hybrid::load)
        .with("Gemma3ForCausalLM", gemma3::load)
        .with("Gemma3TextModel", gemma3::load)
        .with("Gemma3ForConditionalGeneration", gemma3::load_nested)
        .with("Gemma3nForCausalLM", gemma3n::load)
        .with("Gemma3nTextModel", gemma3n::load)
        .with("Gemma3nForConditionalGeneration", gemma3n::load_nested)
        .with("Gemma4ForCausalLM", gemma4::load)
        .with("Gemma4TextModel", gemma4::load)
        .with("Gemma4ForConditionalGeneration", gemma4::load_nested)
        .with("HunYuanDenseV1ForCausalLM", hunyuan::load)
        .with("HunYuanMoEV1ForCausalLM", hunyuan::load_moe)
        .with("Idefics3ForConditionalGeneration", nested::load)
        .with("InternVLForConditionalGeneration", nested::load)
        .with("JambaForCausalLM", jamba::load)
        .with("JambaModel", jamba::load)
        .with("Lfm2ForCausalLM", lfm2::load)
        .with("Lfm2Model", lfm2::load)
        .with("Lfm2MoeForCausalLM", lfm2::load_moe)
        .with("Lfm2MoeModel", lfm2::load_moe)
        .with("LlamaForCausalLM", llama::load)
        .with("LlamaModel", llama::load)
        .with("Llama4ForCausalLM", llama4::load)
        .with("Llama4ForConditionalGeneration", llama4::load_nested)
        .with("LlavaForConditionalGeneration", nested::load)
        .with("MambaForCausalLM", mamba::load)
        .with("MambaModel", mamba::load)
        .with("Mamba2ForCausalLM", mamba2::load)
        .with("Mamba2Model", mamba2::load)
        .with("MiniMaxM2ForCausalLM", minimax::load)
        .with("MistralForCausalLM", llama::load_mistral)
        .with("MistralModel", llama::load_mistral)
        .with("Mistral3ForConditionalGeneration", nested::load)
        .with("MixtralForCausalLM", mixtral::load)
        .with("ModernBertModel", modern_bert::load)
        .with("ModernBertForMaskedLM", modern_bert::load)
        .with("ModernBertForSequenceClassification", modern_bert::load_classifier)
        .with("NemotronHForCausalLM", nemotron_h::load)
        .with("NomicBertModel", nomic_bert::load)
        .with("Olmo2ForCausalLM", olmo::load_olmo2)
        .with("Olmo3ForCausalLM", olmo::load_olmo3)
        .with("OlmoeForCausalLM", olmo::load_olmoe)
        .with("PhiForCausalLM", phi::load)
        .with("Phi3ForCausalLM", phi3::load)
        .with("PhimoeForCausalLM", phimoe::load)
        .with("PhiMoEForCausalLM", phimoe::load)
        .with("Qwen2ForCausalLM", llama::load_qwen)
        .with("Qwen2Model", llama::load_qwen)
        .with("Qwen2MoeForCausalLM", qwen_moe::load_qwen2)
        .with("Qwen2MoeModel", qwen_moe::load_qwen2)
        .with("Qwen2VLForConditionalGeneration", nested::load_qwen2_vl)
        .with("Qwen2_5_VLForConditionalGeneration", nested::load_qwen2_vl)
        .with("Qwen3ForCausalLM", llama::load_qwen)
        .with("Qwen3Model", llama::load_qwen)
        .with("Qwen3ForSequenceClassification", classified::load_qwen)
        .with("Qwen3MoeForCausalLM", qwen_moe::load_qwen3)
        .with("Qwen3MoeModel", qwen_moe::load_qwen3)
        .with("Qwen3NextForCausalLM", qwen3_next::load)
        .with("Qwen3NextModel", qwen3_next::load)
        .with("Qwen3VLForConditionalGeneration", nested::load_qwen3_vl)
        .with("Qwen3VLMoeForConditionalGeneration", nested::load_qwen3_vl_moe)
        .with("Qwen3_5ForCausalLM", qwen3_next::load_qwen3_5)
        .with("Qwen3_5TextModel", qwen3_next::load_qwen3_5)
        .with("Qwen3_5ForConditionalGeneration", qwen3_next::load_nested)
        .with("Qwen3_5MoeForCausalLM", qwen3_next::load_qwen3_5)
        .with("Qwen3_5MoeTextModel", qwen3_next::load_qwen3_5)
        .with("Qwen3_5MoeForConditionalGeneration", qwen3_next::load_nested)
        .with("RobertaModel", bert::load_roberta)
        .with("RobertaForMaskedLM", bert::load_roberta)
        .with("RobertaForSequenceClassification", classified::load_roberta)
        .with("SeedOssForCausalLM", seed_oss::load)
        .with("SmolLM3ForCausalLM", smollm3::load)
        .with("SmolVLMForConditionalGeneration", nested::load)
        .with("StableLmForCausalLM", stablelm::load)
        .with("Starcoder2ForCausalLM", starcoder2::load)
        .with("XLMRobertaModel", bert::load_roberta)
        .with("XLMRobertaForMaskedLM", bert::load_roberta)
        .with("XLMRobertaForSequenceClassification", classified::load_roberta)
        .with_tower("Gemma3ForConditionalGeneration", vision::gemma3::load)
        .with_tower("Idefics3ForConditionalGeneration", vision::idefics3::load)
        .with_tower("InternVLForConditionalGeneration", vision::internvl::load)
        .with_tower("LlavaForConditionalGeneration", vision::llava::load)
        .with_tower("Mistral3ForConditionalGeneration", vision::pixtral::load)
        .with_tower("Qwen2VLForConditionalGeneration", vision::qwen2_vl::load)
        .with_tower("Qwen2_5_VLForConditionalGeneration", vision::qwen2_vl::load_qwen2_5)
        .with_tower("Qwen3VLForConditionalGeneration", vision::qwen3_vl::load)
        .with_tower("Qwen3VLMoeForConditionalGeneration", vision::qwen3_vl::load)
        .with_tower("Qwen3_5ForConditionalGeneration", vision::qwen3_vl::load)
        .with_tower("Qwen3_5MoeForConditionalGeneration", vision::qwen3_vl::load)
        .with_tower("SmolVLMForConditionalGeneration", vision::idefics3::load)
}
