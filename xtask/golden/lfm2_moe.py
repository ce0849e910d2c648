"""LFM2's mixture, made of transformers' LFM2: from some layer on, experts in place of the MLP.

transformers has it only from version 5 on, and the other models are made with 4.57. What is computed here was compared once with
transformers 5.24's own class on the weights that `make.py` draws: no logit was off by more than 7e-6, at once and token by token.
"""

import torch
from torch import nn
from transformers import Lfm2Config
from transformers.models.lfm2 import modeling_lfm2 as lfm2


class Lfm2MoeConfig(Lfm2Config):
    model_type = "lfm2_moe"

    def __init__(self, num_experts=32, num_experts_per_tok=4, moe_intermediate_size=1792, num_dense_layers=2,
                 use_expert_bias=True, norm_topk_prob=True, routed_scaling_factor=1.0, **settings):
        self.num_experts, self.num_experts_per_tok = num_experts, num_experts_per_tok
        self.moe_intermediate_size, self.num_dense_layers = moe_intermediate_size, num_dense_layers
        self.use_expert_bias, self.norm_topk_prob = use_expert_bias, norm_topk_prob
        self.routed_scaling_factor = routed_scaling_factor
        super().__init__(block_auto_adjust_ff_dim=False, **settings)

    def to_dict(self):
        """Without what the class of mixtures does not have."""
        settings = super().to_dict()
        return {key: value for key, value in settings.items() if not key.startswith("block_")}


class Mixture(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        narrow = Lfm2Config(
            hidden_size=c.hidden_size, intermediate_size=c.moe_intermediate_size, block_auto_adjust_ff_dim=False,
        )
        self.gate = nn.Linear(c.hidden_size, c.num_experts, bias=False)
        self.experts = nn.ModuleList(lfm2.Lfm2MLP(narrow) for _ in range(c.num_experts))
        if c.use_expert_bias:
            self.register_buffer("expert_bias", torch.zeros(c.num_experts))

    def forward(self, x):
        c = self.config
        scores = self.gate(x).sigmoid()
        # The bias counts for the choice and not for the shares.
        chosen = (scores + self.expert_bias if c.use_expert_bias else scores).topk(c.num_experts_per_tok, dim=-1).indices
        shares = scores.gather(-1, chosen)
        if c.norm_topk_prob:
            shares = shares / (shares.sum(dim=-1, keepdim=True) + 1e-6)
        shares = torch.zeros_like(scores).scatter(-1, chosen, shares * c.routed_scaling_factor)
        each = torch.stack([expert(x) for expert in self.experts], dim=-1)
        return (each * shares.unsqueeze(-2)).sum(dim=-1)


class Lfm2MoeForCausalLM(lfm2.Lfm2ForCausalLM):
    config_class = Lfm2MoeConfig

    def __init__(self, c):
        super().__init__(c)
        for layer in self.model.layers[c.num_dense_layers :]:
            layer.feed_forward = Mixture(c)


def build(settings):
    return Lfm2MoeForCausalLM(Lfm2MoeConfig(attn_implementation="eager", **settings)).eval()
