"""Gemma 4's text, made of torch and of transformers' Llama and Gemma 3: two kinds of heads, values that are keys, layers that attend to
earlier ones' keys, inputs of each layer, and a mixture beside an MLP.

transformers has it only from version 5 on, and the other models are made with 4.57. What is computed here was compared once with
transformers 5.24's own classes on the weights that `make.py` draws: no logit was off by more than 6e-6 at once and 1.3e-5 token by token.
"""

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.modeling_outputs import CausalLMOutput
from transformers.models.gemma3.modeling_gemma3 import Gemma3MLP
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb, repeat_kv

FULL, SLIDING = "full_attention", "sliding_attention"


class TextConfig(PretrainedConfig):
    """Settings under the keys of the released checkpoints, or, with `by_layer`, as transformers 5.24 saves them."""

    model_type = "gemma4_text"

    def __init__(self, by_layer=False, **settings):
        usual = dict(
            attention_bias=False, attention_k_eq_v=False, enable_moe_block=False, final_logit_softcapping=None,
            hidden_activation="gelu_pytorch_tanh", hidden_size_per_layer_input=0, moe_intermediate_size=None,
            num_experts=None, num_global_key_value_heads=None, num_kv_shared_layers=0, top_k_experts=None,
            use_bidirectional_attention=None, use_double_wide_mlp=False, vocab_size_per_layer_input=settings.get("vocab_size"),
            rope_parameters={
                FULL: dict(rope_type="proportional", partial_rotary_factor=0.25, rope_theta=1e6),
                SLIDING: dict(rope_type="default", rope_theta=1e4),
            },
        )
        self._by_layer = by_layer
        super().__init__(**usual | settings)

    def kinds(self):
        """Of each layer what it is, how long its heads are, how many of keys it has, and the layer whose keys it attends to."""
        first = self.num_hidden_layers - self.num_kv_shared_layers
        for i, kind in enumerate(self.layer_types):
            keys = self.num_key_value_heads
            if kind == FULL and self.attention_k_eq_v and self.num_global_key_value_heads:
                keys = self.num_global_key_value_heads
            owner = max(j for j in range(min(i + 1, first)) if self.layer_types[j] == kind)
            yield kind, self.global_head_dim if kind == FULL else self.head_dim, keys, owner

    def to_dict(self):
        settings = super().to_dict()
        if self._by_layer:
            dim, keys = settings.pop("global_head_dim"), settings.pop("num_global_key_value_heads")
            own = dict(head_dim=dim) | (dict(num_key_value_heads=keys) if keys and self.attention_k_eq_v else {})
            full = [i for i, kind in enumerate(self.layer_types) if kind == FULL]
            settings["per_layer_config"] = {str(i): own for i in full}
        return settings


def normed(x, eps):
    """Without factors."""
    return x * torch.pow(x.pow(2).mean(-1, keepdim=True) + eps, -0.5)


class Attention(nn.Module):
    def __init__(self, c, kind, dim, keys, has_keys):
        super().__init__()
        self.c, self.kind, self.dim = c, kind, dim
        linear = lambda a, b: nn.Linear(a, b, bias=c.attention_bias)
        self.q_proj = linear(c.hidden_size, c.num_attention_heads * dim)
        self.q_norm = LlamaRMSNorm(dim, c.rms_norm_eps)
        if has_keys:
            self.k_proj, self.k_norm = linear(c.hidden_size, keys * dim), LlamaRMSNorm(dim, c.rms_norm_eps)
            self.v_proj = None if c.attention_k_eq_v and kind == FULL else linear(c.hidden_size, keys * dim)
        self.o_proj = linear(c.num_attention_heads * dim, c.hidden_size)

    def turned(self, rows):
        rope = self.c.rope_parameters[self.kind]
        still = rope["rope_type"] == "proportional"
        angles = int(rope["partial_rotary_factor"] * self.dim // 2) if still else self.dim // 2
        freq = 1.0 / rope["rope_theta"] ** (torch.arange(0, 2 * angles, 2).float() / self.dim)
        freq = torch.cat([freq, freq.new_zeros(self.dim // 2 - angles)]) / rope.get("factor", 1.0)
        at = torch.arange(rows).float()[:, None] * torch.cat([freq, freq])
        return at.cos()[None], at.sin()[None]

    def forward(self, x, shared):
        rows, c = x.shape[1], self.c
        heads = lambda y: y.view(*x.shape[:2], -1, self.dim)
        turned = lambda y: apply_rotary_pos_emb(y, y, *self.turned(rows), unsqueeze_dim=2)[0].transpose(1, 2)
        q = turned(self.q_norm(heads(self.q_proj(x))))
        if hasattr(self, "k_proj"):
            k = heads(self.k_proj(x))
            v = k if self.v_proj is None else heads(self.v_proj(x))
            shared = turned(self.k_norm(k)), normed(v, c.rms_norm_eps).transpose(1, 2)
        k, v = (repeat_kv(y, q.shape[1] // y.shape[1]) for y in shared)
        at = torch.arange(rows)
        seen = at[:, None] >= at
        if self.kind == SLIDING:
            seen &= at[:, None] - at < c.sliding_window
        scores = (q @ k.transpose(2, 3)).masked_fill(~seen, torch.finfo(x.dtype).min)
        out = scores.softmax(dim=-1) @ v
        return self.o_proj(out.transpose(1, 2).reshape(*x.shape[:2], -1)), shared


class Router(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.proj = nn.Linear(c.hidden_size, c.num_experts, bias=False)
        self.scale = nn.Parameter(torch.ones(c.hidden_size))
        self.per_expert_scale = nn.Parameter(torch.ones(c.num_experts))

    def forward(self, x):
        scores = self.proj(normed(x, self.c.rms_norm_eps) * self.scale * self.c.hidden_size**-0.5).softmax(dim=-1)
        shares, chosen = scores.topk(self.c.top_k_experts, dim=-1)
        shares = shares / shares.sum(dim=-1, keepdim=True) * self.per_expert_scale[chosen]
        return torch.zeros_like(scores).scatter(-1, chosen, shares)


class Experts(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.act = ACT2FN[c.hidden_activation]
        self.gate_up_proj = nn.Parameter(torch.empty(c.num_experts, 2 * c.moe_intermediate_size, c.hidden_size))
        self.down_proj = nn.Parameter(torch.empty(c.num_experts, c.hidden_size, c.moe_intermediate_size))

    def forward(self, x, shares):
        gate, up = torch.einsum("bnd,efd->bnef", x, self.gate_up_proj).chunk(2, dim=-1)
        return torch.einsum("bnef,edf,bne->bnd", self.act(gate) * up, self.down_proj, shares)


class Block(nn.Module):
    def __init__(self, c, layer, kind, dim, keys, owner):
        super().__init__()
        norm = lambda: LlamaRMSNorm(c.hidden_size, c.rms_norm_eps)
        self.owner, has_keys = owner, owner == layer
        self.self_attn = Attention(c, kind, dim, keys, has_keys)
        wide = 2 if c.use_double_wide_mlp and not has_keys else 1
        narrow = dict(hidden_size=c.hidden_size, hidden_activation=c.hidden_activation)
        self.mlp = Gemma3MLP(PretrainedConfig(intermediate_size=wide * c.intermediate_size, **narrow))
        self.input_layernorm, self.post_attention_layernorm = norm(), norm()
        self.pre_feedforward_layernorm, self.post_feedforward_layernorm = norm(), norm()
        self.register_buffer("layer_scalar", torch.ones(1))
        if c.hidden_size_per_layer_input:
            self.act = ACT2FN[c.hidden_activation]
            self.per_layer_input_gate = nn.Linear(c.hidden_size, c.hidden_size_per_layer_input, bias=False)
            self.per_layer_projection = nn.Linear(c.hidden_size_per_layer_input, c.hidden_size, bias=False)
            self.post_per_layer_input_norm = norm()
        if c.enable_moe_block:
            self.router, self.experts = Router(c), Experts(c)
            self.pre_feedforward_layernorm_2 = norm()
            self.post_feedforward_layernorm_1, self.post_feedforward_layernorm_2 = norm(), norm()

    def forward(self, x, keys, own_input):
        attended, keys[self.owner] = self.self_attn(self.input_layernorm(x), keys.get(self.owner))
        x = x + self.post_attention_layernorm(attended)
        y = self.mlp(self.pre_feedforward_layernorm(x))
        if hasattr(self, "router"):
            given = self.experts(self.pre_feedforward_layernorm_2(x), self.router(x))
            y = self.post_feedforward_layernorm_1(y) + self.post_feedforward_layernorm_2(given)
        x = x + self.post_feedforward_layernorm(y)
        if own_input is not None:
            given = self.per_layer_projection(self.act(self.per_layer_input_gate(x)) * own_input)
            x = x + self.post_per_layer_input_norm(given)
        return x * self.layer_scalar


class TextModel(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Block(c, i, *kind) for i, kind in enumerate(c.kinds()))
        self.norm = LlamaRMSNorm(c.hidden_size, c.rms_norm_eps)
        if own := c.hidden_size_per_layer_input:
            all_layers = c.num_hidden_layers * own
            self.embed_tokens_per_layer = nn.Embedding(c.vocab_size_per_layer_input, all_layers)
            self.per_layer_model_projection = nn.Linear(c.hidden_size, all_layers, bias=False)
            self.per_layer_projection_norm = LlamaRMSNorm(own, c.rms_norm_eps)

    def inputs(self, ids, x):
        own = self.c.hidden_size_per_layer_input
        if not own:
            return [None] * len(self.layers)
        apart = lambda y: y.view(*ids.shape, len(self.layers), own)
        of_x = self.per_layer_projection_norm(apart(self.per_layer_model_projection(x) * self.c.hidden_size**-0.5))
        both = (of_x + apart(self.embed_tokens_per_layer(ids) * own**0.5)) * 2**-0.5
        return both.unbind(dim=2)

    def forward(self, ids):
        x, keys = self.embed_tokens(ids) * self.c.hidden_size**0.5, {}
        for block, own in zip(self.layers, self.inputs(ids, x)):
            x = block(x, keys, own)
        return self.norm(x)


class Gemma4ForCausalLM(PreTrainedModel):
    config_class = TextConfig
    _tied_weights_keys = ["lm_head.weight"]

    def __init__(self, c):
        super().__init__(c)
        self.model = TextModel(c)
        self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)

    def get_input_embeddings(self):
        return self.model.embed_tokens

    def get_output_embeddings(self):
        return self.lm_head

    def forward(self, ids, **_):
        x = self.model(ids)
        logits, cap = self.lm_head(x), self.config.final_logit_softcapping
        return CausalLMOutput(logits=torch.tanh(logits / cap) * cap if cap else logits, hidden_states=(x,))


class SeeingConfig(PretrainedConfig):
    model_type = "gemma4"

    def __init__(self, text=None, **more):
        self.text_config = text.to_dict() if text else {}
        super().__init__(tie_word_embeddings=bool(text) and text.tie_word_embeddings, **more)


class Gemma4ForConditionalGeneration(PreTrainedModel):
    """The text's part, with weights beside it that stand for those that see and hear, and the keys and values of layers that have none,
    which the released checkpoints keep."""

    config_class = SeeingConfig
    _tied_weights_keys = ["lm_head.weight"]

    def __init__(self, text):
        super().__init__(SeeingConfig(text))
        whole = Gemma4ForCausalLM(text)
        whole.tie_weights()
        # The logits are computed by the whole, whose parts are the same as these.
        other = dict(vision_tower=nn.Linear(6, 4), embed_vision=nn.Linear(4, 8), audio_tower=nn.Linear(5, 3))
        self.model = nn.ModuleDict(dict(language_model=whole.model, **other))
        self.lm_head = whole.lm_head
        self.whole = [whole]

    def forward(self, *args, **settings):
        return self.whole[0](*args, **settings)

    def state_dict(self):
        kept = super().state_dict()
        for i, block in enumerate(self.whole[0].model.layers):
            for name, size in [("k_proj", (4, 4)), ("v_proj", (4, 4)), ("k_norm", (4,))]:
                if not hasattr(block.self_attn, name):
                    kept[f"model.language_model.layers.{i}.self_attn.{name}.weight"] = torch.ones(size)
        return kept


def settings(base, **more):
    """Heads of layers that see all are twice as long as the others', and turn three of their twelve pairs."""
    whole = dict(
        intermediate_size=40, num_hidden_layers=4, head_dim=12, global_head_dim=24, sliding_window=9,
        layer_types=[SLIDING, FULL, SLIDING, FULL], final_logit_softcapping=5.0, tie_word_embeddings=True,
    )
    return dict(base, **whole) | more


def build(model_type, settings):
    """As the text alone is saved, or as one that also sees."""
    text = TextConfig(attn_implementation="eager", **settings)
    return (Gemma4ForConditionalGeneration if model_type == "gemma4" else Gemma4ForCausalLM)(text).eval()
