"""MiniMax-M2, made of transformers' GLM-4.5: its attention, with norms over all heads at once in place of those on each, and a mixture of
experts without groups in each layer.

transformers has its class only from version 5 on, and the other models are made with 4.57. What is computed here was compared once with
transformers 5.24's own class on the weights that `make.py` draws: no logit was off by more than 5e-6, at once and token by token.
"""

import torch
from torch import nn
from transformers.models.glm4_moe import modeling_glm4_moe as glm
from transformers.models.glm4_moe.configuration_glm4_moe import Glm4MoeConfig

# What the class of GLM-4.5 has besides, and MiniMax's files have not.
OTHERS = {
    "attention_bias", "first_k_dense_replace", "moe_intermediate_size", "n_group", "n_routed_experts", "n_shared_experts",
    "norm_topk_prob", "partial_rotary_factor", "routed_scaling_factor", "topk_group",
}


class MiniMaxM2Config(Glm4MoeConfig):
    """Settings under the keys that MiniMax's files have."""

    model_type = "minimax_m2"

    def __init__(self, num_local_experts=256, rotary_dim=64, head_dim=128, num_hidden_layers=62, **settings):
        self.num_local_experts, self.rotary_dim, self.head_dim = num_local_experts, rotary_dim, head_dim
        usual = dict(
            attn_type_list=[1] * num_hidden_layers, scoring_func="sigmoid", qk_norm_type="per_layer", use_routing_bias=True,
            shared_intermediate_size=0, num_mtp_modules=3, layernorm_full_attention_beta=1.0,
            layernorm_linear_attention_beta=1.0, layernorm_mlp_beta=1.0, mlp_intermediate_size=8192,
        )
        super().__init__(
            num_hidden_layers=num_hidden_layers, first_k_dense_replace=num_hidden_layers,
            partial_rotary_factor=rotary_dim / head_dim, **usual | settings,
        )

    def to_dict(self):
        settings = {key: value for key, value in super().to_dict().items() if key not in OTHERS}
        return settings | dict(use_qk_norm=True)


class MiniMaxM2Attention(glm.Glm4MoeAttention):
    def __init__(self, c, layer):
        super().__init__(c, layer)
        self.q_norm = glm.Glm4MoeRMSNorm(self.q_proj.out_features, c.rms_norm_eps)
        self.k_norm = glm.Glm4MoeRMSNorm(self.k_proj.out_features, c.rms_norm_eps)
        # Before they are cut into heads.
        self.q_proj.register_forward_hook(lambda _module, _inputs, q: self.q_norm(q))
        self.k_proj.register_forward_hook(lambda _module, _inputs, k: self.k_norm(k))


class Expert(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.w1 = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.w2 = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)
        self.w3 = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)

    def forward(self, x):
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


class MiniMaxM2Mixture(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.chosen = c.num_experts_per_tok
        self.gate = nn.Linear(c.hidden_size, c.num_local_experts, bias=False)
        self.experts = nn.ModuleList(Expert(c) for _ in range(c.num_local_experts))
        self.register_buffer("e_score_correction_bias", torch.zeros(c.num_local_experts))

    def forward(self, x):
        scores = self.gate(x).sigmoid()
        # The bias counts for the choice and not for the shares.
        chosen = (scores + self.e_score_correction_bias).topk(self.chosen, dim=-1).indices
        shares = scores.gather(-1, chosen)
        shares = torch.zeros_like(scores).scatter(-1, chosen, shares / shares.sum(dim=-1, keepdim=True))
        each = torch.stack([expert(x) for expert in self.experts], dim=-1)
        return (each * shares.unsqueeze(-2)).sum(dim=-1)


class MiniMaxM2ForCausalLM(glm.Glm4MoeForCausalLM):
    config_class = MiniMaxM2Config

    def __init__(self, c):
        super().__init__(c)
        for i, layer in enumerate(self.model.layers):
            layer.self_attn, layer.mlp = MiniMaxM2Attention(c, i), MiniMaxM2Mixture(c)

    def state_dict(self, *args, **settings):
        """Under the names that MiniMax's files have."""
        kept = super().state_dict(*args, **settings)
        return {name.replace(".mlp.", ".block_sparse_moe."): value for name, value in kept.items()}


def build(settings):
    return MiniMaxM2ForCausalLM(MiniMaxM2Config(attn_implementation="eager", **settings)).eval()
