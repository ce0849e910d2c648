//! The GGUF architectures that are known, a family to a file.
//!
//! A list that is made anew for each caller and not a global table: who adds to it adds to his own.

mod apertus;
mod arcee;
mod bert;
mod cohere;
mod deepseek;
mod dots1;
mod ernie;
mod exaone4;
mod falcon_h1;
mod gemma;
mod gemma3n;
mod gemma4;
mod glm;
mod gpt2;
mod gpt_oss;
mod gptneox;
mod granite;
mod hunyuan;
mod jamba;
mod lfm2;
mod llama;
mod llama4;
mod mamba;
mod mamba2;
mod minimax;
mod nemotron_h;
mod olmo;
mod phi2;
mod phi3;
mod qwen;
mod qwen_hybrid;
mod qwen_vl;
mod seed_oss;
mod smollm3;
mod stablelm;
mod starcoder2;

use super::{Translation, mmproj};

/// The translations this crate has: of architectures, and of what models see with.
pub fn translations() -> Vec<Translation> {
    let mut all = texts();
    all.extend(mmproj::translations());
    all
}

fn texts() -> Vec<Translation> {
    vec![
        llama::llama(),
        llama::mistral3(),
        llama4::llama4(),
        qwen::qwen2(),
        qwen::qwen3(),
        qwen::qwen2_moe(),
        qwen::qwen3_moe(),
        qwen_vl::qwen2_vl(),
        qwen_vl::qwen3_vl(),
        qwen_vl::qwen3_vl_moe(),
        qwen_hybrid::qwen3_next(),
        qwen_hybrid::qwen3_5(),
        qwen_hybrid::qwen3_5_moe(),
        gemma::gemma(),
        gemma::gemma2(),
        gemma::gemma3(),
        gemma::gemma_embedding(),
        gemma3n::gemma3n(),
        gemma4::gemma4(),
        phi2::phi2(),
        phi3::phi3(),
        phi3::phimoe(),
        stablelm::stablelm(),
        olmo::olmo2(),
        olmo::olmoe(),
        granite::granite(),
        granite::granite_moe(),
        granite::granite_hybrid(),
        falcon_h1::falcon_h1(),
        lfm2::lfm2(),
        lfm2::lfm2_moe(),
        mamba::mamba(),
        mamba2::mamba2(),
        nemotron_h::nemotron_h(),
        nemotron_h::nemotron_h_moe(),
        smollm3::smollm3(),
        glm::chatglm(),
        glm::glm4(),
        glm::glm4_moe(),
        minimax::minimax_m2(),
        seed_oss::seed_oss(),
        ernie::ernie(),
        ernie::ernie_moe(),
        exaone4::exaone4(),
        cohere::command_r(),
        cohere::cohere2(),
        starcoder2::starcoder2(),
        apertus::apertus(),
        arcee::arcee(),
        hunyuan::dense(),
        hunyuan::moe(),
        gpt2::gpt2(),
        gptneox::gptneox(),
        jamba::jamba(),
        dots1::dots1(),
        gpt_oss::gpt_oss(),
        bert::bert(),
        bert::nomic_bert(),
        bert::modern_bert(),
        deepseek::deepseek2(),
    ]
}
