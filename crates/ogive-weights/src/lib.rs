//! Weight files under one naming scheme: GGUF, safetensors, config.json.
