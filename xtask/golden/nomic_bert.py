"""Nomic's BERT, written from the formulas of its paper (https://arxiv.org/abs/2402.01613) and the settings and names of the
published checkpoints.

transformers has it only from version 5 on, and the other models are made with 4.57. What is computed here was compared
once with transformers 5.23's own class on the weights that `make.py` draws.
"""

import torch
from torch import nn
from torch.nn.functional import silu, softmax
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput


class NomicBertConfig(PretrainedConfig):
    """The keys of nomic-embed-text's config.json that say what is computed."""

    model_type = "nomic_bert"

    def __init__(self, **settings):
        defaults = dict(
            activation_function="swiglu", causal=False, mlp_fc1_bias=False, mlp_fc2_bias=False, parallel_block=False,
            prenorm=False, qkv_proj_bias=False, rotary_emb_fraction=1.0, rotary_emb_interleaved=False,
            rotary_emb_scale_base=None, rotary_scaling_factor=None, use_rms_norm=False,
        )
        for key, value in {**defaults, **settings}.items():
            setattr(self, key, value)
        super().__init__(pad_token_id=settings.get("pad_token_id", 0))


def rotate(x, base):
    """Turns element i of each head with element i + half by the row's position over base^(i / half). [heads, rows, dim]"""
    rows, half = x.shape[1], x.shape[2] // 2
    angle = torch.outer(torch.arange(rows).float(), base ** -(torch.arange(half).float() / half))
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.base = c.n_head, float(c.rotary_emb_base)
        self.Wqkv = nn.Linear(c.n_embd, 3 * c.n_embd, bias=False)
        self.out_proj = nn.Linear(c.n_embd, c.n_embd, bias=False)

    def forward(self, x):
        rows, dim = x.shape
        q, k, v = (part.view(rows, self.heads, -1).transpose(0, 1) for part in self.Wqkv(x).split(dim, dim=-1))
        q, k = rotate(q, self.base), rotate(k, self.base)
        weights = softmax(q @ k.transpose(1, 2) * q.shape[-1] ** -0.5, dim=-1)
        return self.out_proj((weights @ v).transpose(0, 1).reshape(rows, dim))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.fc11 = nn.Linear(c.n_embd, c.n_inner, bias=False)
        self.fc12 = nn.Linear(c.n_embd, c.n_inner, bias=False)
        self.fc2 = nn.Linear(c.n_inner, c.n_embd, bias=False)

    def forward(self, x):
        return self.fc2(self.fc11(x) * silu(self.fc12(x)))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.attn, self.mlp = Attention(c), Mlp(c)
        self.norm1 = nn.LayerNorm(c.n_embd, eps=c.layer_norm_epsilon)
        self.norm2 = nn.LayerNorm(c.n_embd, eps=c.layer_norm_epsilon)

    def forward(self, x):
        x = self.norm1(x + self.attn(x))
        return self.norm2(x + self.mlp(x))


class NomicBertModel(PreTrainedModel):
    """One text at a time: `[1, rows]` ids in, `[1, rows, dim]` out."""

    config_class = NomicBertConfig

    def __init__(self, c):
        super().__init__(c)
        self.embeddings = nn.ModuleDict(dict(
            word_embeddings=nn.Embedding(c.vocab_size, c.n_embd),
            token_type_embeddings=nn.Embedding(c.type_vocab_size, c.n_embd),
        ))
        self.emb_ln = nn.LayerNorm(c.n_embd, eps=c.layer_norm_epsilon)
        self.encoder = nn.ModuleDict(dict(layers=nn.ModuleList(Layer(c) for _ in range(c.n_layer))))

    def forward(self, ids, output_hidden_states=True, use_cache=False):
        first = self.embeddings["token_type_embeddings"](torch.zeros_like(ids[0]))
        states = [self.emb_ln(self.embeddings["word_embeddings"](ids[0]) + first)]
        for layer in self.encoder["layers"]:
            states.append(layer(states[-1]))
        states = tuple(s[None] for s in states)
        return BaseModelOutput(last_hidden_state=states[-1], hidden_states=states)
