//! Run language models: GGUF or safetensors in, tokens out.
