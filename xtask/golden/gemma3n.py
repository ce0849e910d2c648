"""Gemma 3n's text by transformers' own class, as it is saved in checkpoints that also see and hear.

The class shares keys between layers only where it has a cache, so it is always given one. Its table of layers' inputs ends before that of tokens; ids and
logits are of those that both have.
"""

import torch
from torch import nn
from transformers import Gemma3nTextConfig, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput
from transformers.models.gemma3n.modeling_gemma3n import Gemma3nForCausalLM

FULL, SLIDING = "full_attention", "sliding_attention"


class SeeingConfig(PretrainedConfig):
    model_type = "gemma3n"

    def __init__(self, text=None, **more):
        self.text_config = text.to_dict() if text else {}
        super().__init__(tie_word_embeddings=True, **more)


class Gemma3nForConditionalGeneration(PreTrainedModel):
    """The text's part, with weights beside it that stand for those that see and hear."""

    config_class = SeeingConfig
    _tied_weights_keys = ["lm_head.weight"]

    def __init__(self, text):
        super().__init__(SeeingConfig(text))
        whole = Gemma3nForCausalLM(text)
        whole.tie_weights()
        # The logits are computed by the whole, whose parts are the same as these.
        other = dict(vision_tower=nn.Linear(6, 4), embed_vision=nn.Linear(4, 8), audio_tower=nn.Linear(5, 3), embed_audio=nn.Linear(3, 8))
        self.model = nn.ModuleDict(dict(language_model=whole.model, **other))
        self.lm_head = whole.lm_head
        self.whole = [whole]
        self.tokens = text.vocab_size_per_layer_input

    def forward(self, ids, **_):
        x = self.whole[0].model(ids, use_cache=True).last_hidden_state
        logits, cap = self.lm_head(x), self.whole[0].config.final_logit_softcapping
        return CausalLMOutput(logits=(torch.tanh(logits / cap) * cap)[..., : self.tokens], hidden_states=(x,))


def settings(base, **more):
    """Five layers, the last two of which share; MLPs that cut off much, about half, little and nothing; streams of which the middle one computes."""
    whole = dict(
        vocab_size_per_layer_input=base["vocab_size"] - 8, intermediate_size=[40, 32, 40, 32, 40], num_hidden_layers=5, head_dim=12, sliding_window=9,
        layer_types=[SLIDING, SLIDING, FULL, SLIDING, FULL], num_kv_shared_layers=2, final_logit_softcapping=5.0, hidden_size_per_layer_input=8,
        rope_theta=1e6, rope_local_base_freq=1e4, altup_num_inputs=3, altup_active_idx=1, laurel_rank=10, tie_word_embeddings=True,
        activation_sparsity_pattern=[0.9, 0.6, 0.0, 0.3, 0.0],
    )
    return dict(base, **whole) | more


def build(settings):
    """As one that also sees is saved."""
    return Gemma3nForConditionalGeneration(Gemma3nTextConfig(attn_implementation="eager", **settings)).eval()
