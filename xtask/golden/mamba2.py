"""Mamba-2 by transformers' own class, with the norm that it has from version 5 on: in groups, as what was trained has it. The other models are
made with 4.57, which norms all of a token at once.
"""

from transformers import Mamba2Config, Mamba2ForCausalLM
from transformers.models.zamba2.modeling_zamba2 import Zamba2RMSNormGated


def settings(base, **more):
    """Of all models' settings what this class has, and sizes that are no multiples."""
    known = ["vocab_size", "hidden_size", "num_hidden_layers", "tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id"]
    sizes = dict(num_heads=6, head_dim=16, state_size=10, chunk_size=8, layer_norm_epsilon=1e-4)
    return {key: base[key] for key in known} | sizes | more


def build(settings):
    model = Mamba2ForCausalLM(Mamba2Config(**settings)).eval()
    for block in model.backbone.layers:
        mixer = block.mixer
        inner = mixer.intermediate_size
        mixer.norm = Zamba2RMSNormGated(inner, inner // mixer.n_groups, mixer.layer_norm_epsilon)
    # As transformers 5 writes what JSON has no number for.
    model.config.time_step_limit = [0.0, {"__float__": "Infinity"}]
    return model
