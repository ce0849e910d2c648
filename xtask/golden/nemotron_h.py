"""Nemotron-H and its mixtures, made of parts that transformers has: Granite 4's state space with Zamba 2's norm, which is of
groups, Llama's attention, turned by nothing, Nemotron's MLP, and DeepSeek-V3's router. A block is one of them.

transformers has its class only from version 5 on, and the other models are made with 4.57. What is computed here was compared once with
transformers 5.24's own class on the weights that `make.py` draws: no logit was off by more than 5e-6, at once and token by token.
"""

import torch
from torch import nn
from transformers import GraniteMoeHybridConfig, LlamaConfig, NemotronConfig, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter
from transformers.models.granitemoehybrid.modeling_granitemoehybrid import GraniteMoeHybridMambaLayer
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRMSNorm
from transformers.models.nemotron.modeling_nemotron import NemotronMLP
from transformers.models.zamba2.modeling_zamba2 import Zamba2RMSNormGated


class NemotronHConfig(PretrainedConfig):
    """Settings under the keys that NVIDIA's files have."""

    model_type = "nemotron_h"

    def __init__(self, hybrid_override_pattern="M", **settings):
        usual = dict(
            attention_bias=False, chunk_size=8, conv_kernel=4, expand=2, layer_norm_epsilon=1e-5, mamba_hidden_act="silu",
            mamba_proj_bias=False, mlp_bias=False, mlp_hidden_act="relu2", rescale_prenorm_residual=True,
            residual_in_fp32=False, sliding_window=None, time_step_floor=1e-4, time_step_max=0.1, time_step_min=0.001,
            # As transformers 5 writes what JSON has no number for.
            time_step_limit=[0.0, {"__float__": "Infinity"}], use_bias=False, use_conv_bias=True, use_mamba_kernels=True,
        )
        self.hybrid_override_pattern = hybrid_override_pattern
        self.num_hidden_layers = len(hybrid_override_pattern)
        super().__init__(**usual | settings)


class StateSpace(GraniteMoeHybridMambaLayer):
    """As wide as its heads, whatever `expand` says."""

    def __init__(self, c, layer):
        inner = c.mamba_num_heads * c.mamba_head_dim
        sizes = GraniteMoeHybridConfig(
            hidden_size=c.hidden_size, hidden_act=c.mamba_hidden_act, rms_norm_eps=c.layer_norm_epsilon,
            mamba_expand=inner / c.hidden_size, mamba_n_heads=c.mamba_num_heads, mamba_d_head=c.mamba_head_dim,
            mamba_d_state=c.ssm_state_size, mamba_n_groups=c.n_groups, mamba_d_conv=c.conv_kernel,
            mamba_chunk_size=c.chunk_size, mamba_conv_bias=c.use_conv_bias, mamba_proj_bias=c.use_bias,
        )
        super().__init__(sizes, layer)
        self.norm = Zamba2RMSNormGated(inner, inner // c.n_groups, c.layer_norm_epsilon)


class Attention(LlamaAttention):
    def __init__(self, c, layer):
        sizes = ["hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "attention_bias"]
        super().__init__(LlamaConfig(**{key: getattr(c, key) for key in sizes}, attn_implementation="eager"), layer)

    def forward(self, x):
        rows = x.shape[1]
        still = x.new_ones(1, rows, self.head_dim), x.new_zeros(1, rows, self.head_dim)
        later = x.new_full((rows, rows), float("-inf")).triu(1)
        return super().forward(x, position_embeddings=still, attention_mask=later[None, None])[0]


def mlp(c, width, bias):
    return NemotronMLP(
        NemotronConfig(hidden_size=c.hidden_size, intermediate_size=width, hidden_act=c.mlp_hidden_act, mlp_bias=bias)
    )


class Mixture(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate = DeepseekV3TopkRouter(c)
        self.experts = nn.ModuleList(mlp(c, c.moe_intermediate_size, False) for _ in range(c.n_routed_experts))
        self.shared_experts = mlp(c, c.moe_shared_expert_intermediate_size, c.mlp_bias)

    def forward(self, x):
        chosen, shares = self.gate(x)
        shares = x.new_zeros(len(chosen), len(self.experts)).scatter(-1, chosen, shares).view(*x.shape[:2], 1, -1)
        each = torch.stack([expert(x) for expert in self.experts], dim=-1)
        return (each * shares).sum(dim=-1) + self.shared_experts(x)


KINDS = {"M": StateSpace, "*": Attention, "-": lambda c, _: mlp(c, c.intermediate_size, c.mlp_bias), "E": lambda c, _: Mixture(c)}


class Block(nn.Module):
    def __init__(self, c, layer):
        super().__init__()
        self.norm = LlamaRMSNorm(c.hidden_size, c.layer_norm_epsilon)
        self.mixer = KINDS[c.hybrid_override_pattern[layer]](c, layer)

    def forward(self, x):
        return x + self.mixer(self.norm(x))


class Backbone(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embeddings = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Block(c, i) for i in range(c.num_hidden_layers))
        self.norm_f = LlamaRMSNorm(c.hidden_size, c.layer_norm_epsilon)


class NemotronHForCausalLM(PreTrainedModel):
    config_class = NemotronHConfig
    _tied_weights_keys = ["lm_head.weight"]

    def __init__(self, c):
        super().__init__(c)
        self.backbone = Backbone(c)
        self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)

    def get_input_embeddings(self):
        return self.backbone.embeddings

    def get_output_embeddings(self):
        return self.lm_head

    def forward(self, ids, **_):
        x = self.backbone.embeddings(ids)
        for block in self.backbone.layers:
            x = block(x)
        x = self.backbone.norm_f(x)
        return CausalLMOutput(logits=self.lm_head(x), hidden_states=(x,))


def build(settings):
    return NemotronHForCausalLM(NemotronHConfig(**settings)).eval()
