//! candle: its quantised Llama and Qwen2, used as its own examples use them.

use super::{Running, Start};
use crate::Result;
use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};
use candle_transformers::models::{quantized_llama, quantized_qwen2};
use std::fs::File;
use std::path::Path;

enum Model {
    Llama(quantized_llama::ModelWeights),
    Qwen2(quantized_qwen2::ModelWeights),
}

struct Candle {
    model: Model,
    vocabulary: usize,
    /// Tokens in the cache.
    past: usize,
}

/// Threads are told by the environment.
pub(super) fn open(path: &Path, _: &Start) -> Result<Box<dyn Running>> {
    let mut file = File::open(path)?;
    let content = Content::read(&mut file)?;
    let architecture =
        content.metadata.get("general.architecture").ok_or("no architecture")?.to_string()?.clone();
    let vocabulary = content.tensor_infos.get("token_embd.weight").ok_or("no embedding")?.shape.dims()[0];
    let model = match architecture.as_str() {
        "llama" => Model::Llama(quantized_llama::ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?),
        "qwen2" => Model::Qwen2(quantized_qwen2::ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?),
        other => return Err(format!("this program runs llama and qwen2 in candle, not {other}").into()),
    };
    Ok(Box::new(Candle { model, vocabulary, past: 0 }))
}

impl Running for Candle {
    fn about(&self) -> String {
        "candle 0.11.1".into()
    }

    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn clear(&mut self) -> Result<()> {
        self.past = 0;
        match &mut self.model {
            Model::Llama(m) => m.clear_kv_cache(),
            Model::Qwen2(m) => m.clear_kv_cache(),
        }
        Ok(())
    }

    fn forward(&mut self, ids: &[u32]) -> Result<u32> {
        let x = Tensor::new(ids, &Device::Cpu)?.unsqueeze(0)?;
        // Both give the logits of the last token alone.
        let logits = match &mut self.model {
            Model::Llama(m) => m.forward(&x, self.past)?,
            Model::Qwen2(m) => m.forward(&x, self.past)?,
        };
        self.past += ids.len();
        let logits: Vec<f32> = logits.squeeze(0)?.to_vec1()?;
        super::best(&logits)
    }
}
