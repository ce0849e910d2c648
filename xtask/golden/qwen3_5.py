"""Qwen3.5, made of transformers' Qwen3-Next: what it projects from is cut otherwise, and a checkpoint that also sees has the text's weights
deeper and its settings apart.

transformers has it only from version 5 on, and the other models are made with 4.57. What is computed here was compared once with
transformers 5.24's own classes on the weights that `make.py` draws: no logit was off by more than 2e-5, at once and token by token. One that really sees has
Qwen3-VL's tower, without what is added behind the text's first blocks, and Qwen3-VL's positions; it was compared in the same way.
"""

import torch
from torch import nn
from transformers import PreTrainedModel, PretrainedConfig, Qwen3NextConfig, Qwen3VLModel
from transformers.models.qwen3_next import modeling_qwen3_next as next_
from transformers.models.qwen3_vl import modeling_qwen3_vl as vl
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLVisionConfig


class TextConfig(Qwen3NextConfig):
    """Qwen3-Next's settings under the keys that transformers 5 saves."""

    def to_dict(self):
        settings = super().to_dict()
        part, theta = (settings.pop(key) for key in ("partial_rotary_factor", "rope_theta"))
        for key in ["rope_scaling", "decoder_sparse_step", "mlp_only_layers", "norm_topk_prob", "full_attention_interval"]:
            settings.pop(key, None)
        if not self.num_experts:
            of_mixtures = ("expert", "router_aux", "moe_")
            settings = {key: value for key, value in settings.items() if not any(p in key for p in of_mixtures)}
        pairs = int(self.head_dim * part) // 2
        sections = [pairs // 3 + (i < pairs % 3) for i in range(3)]
        settings["rope_parameters"] = dict(
            rope_type="default", rope_theta=theta, partial_rotary_factor=part, mrope_section=sections,
            mrope_interleaved=True,
        )
        return settings


class DenseConfig(TextConfig):
    model_type = "qwen3_5_text"


class MoeConfig(TextConfig):
    model_type = "qwen3_5_moe_text"


class GatedDeltaNet(next_.Qwen3NextGatedDeltaNet):
    """Projections that have all heads' queries, then all keys, then all values."""

    def __init__(self, c, layer):
        super().__init__(c, layer)
        del self.in_proj_qkvz, self.in_proj_ba
        self.in_proj_qkv = nn.Linear(c.hidden_size, 2 * self.key_dim + self.value_dim, bias=False)
        self.in_proj_z = nn.Linear(c.hidden_size, self.value_dim, bias=False)
        self.in_proj_b = nn.Linear(c.hidden_size, self.num_v_heads, bias=False)
        self.in_proj_a = nn.Linear(c.hidden_size, self.num_v_heads, bias=False)

    def in_proj_qkvz(self, x):
        return torch.cat([self.in_proj_qkv(x), self.in_proj_z(x)], dim=-1)

    def in_proj_ba(self, x):
        return torch.cat([self.in_proj_b(x), self.in_proj_a(x)], dim=-1)

    def fix_query_key_value_ordering(self, qkvz, ba):
        q, k, v, z = qkvz.split([self.key_dim, self.key_dim, self.value_dim, self.value_dim], dim=-1)
        heads = lambda x, dim: x.reshape(*x.shape[:2], -1, dim)
        keys = (heads(x, self.head_k_dim) for x in (q, k))
        return *keys, heads(v, self.head_v_dim), heads(z, self.head_v_dim), *ba.chunk(2, dim=-1)


class Qwen3_5ForCausalLM(next_.Qwen3NextForCausalLM):
    def __init__(self, c):
        super().__init__(c)
        for i, layer in enumerate(self.model.layers):
            if layer.layer_type == "linear_attention":
                layer.linear_attn = GatedDeltaNet(c, i)


class SeeingConfig(PretrainedConfig):
    model_type = "qwen3_5_moe"

    def __init__(self, text=None, **more):
        self.text_config = text.to_dict() if text else {}
        super().__init__(tie_word_embeddings=False, **more)


class Qwen3_5MoeForConditionalGeneration(PreTrainedModel):
    """The text's part, with weights of the others beside it that stand for them."""

    config_class = SeeingConfig
    _tied_weights_keys = None

    def __init__(self, text):
        super().__init__(SeeingConfig(text))
        whole = Qwen3_5ForCausalLM(text)
        # The logits are computed by the whole, whose parts are the same as these.
        self.model = nn.ModuleDict(dict(language_model=whole.model, visual=nn.Linear(6, 4)))
        self.lm_head, self.mtp = whole.lm_head, nn.ModuleDict(dict(fc=nn.Linear(8, 4, bias=False)))
        self.whole = [whole]

    def forward(self, *args, **settings):
        return self.whole[0](*args, **settings)

    def state_dict(self):
        """Experts in two tensors for each layer, gate and up in one."""
        kept = super().state_dict()
        for i, layer in enumerate(self.whole[0].model.layers):
            at = f"model.language_model.layers.{i}.mlp.experts."
            kept = {key: value for key, value in kept.items() if not key.startswith(at)}
            gate_up = [torch.cat([e.gate_proj.weight, e.up_proj.weight]) for e in layer.mlp.experts]
            kept[at + "gate_up_proj"] = torch.stack(gate_up)
            kept[at + "down_proj"] = torch.stack([e.down_proj.weight for e in layer.mlp.experts])
        return kept


class TowerConfig(Qwen3VLVisionConfig):
    """Qwen3-VL's settings under the keys that Qwen3.5's have."""

    model_type = "qwen3_5_vision"

    def to_dict(self):
        settings = super().to_dict()
        settings.pop("deepstack_visual_indexes", None)
        return settings


class Qwen3_5Config(PretrainedConfig):
    model_type = "qwen3_5"

    def __init__(self, text_config=None, vision_config=None, **more):
        self.text_config = DenseConfig(num_experts=0, **(text_config or {}))
        self.vision_config = TowerConfig(deepstack_visual_indexes=[], **(vision_config or {}))
        super().__init__(tie_word_embeddings=self.text_config.tie_word_embeddings, **more)


class Qwen3_5Model(nn.Module):
    """What sees and what reads, before the head."""

    get_rope_index = Qwen3VLModel.get_rope_index

    def __init__(self, config, language_model):
        super().__init__()
        self.config, self.language_model = config, language_model
        self.visual = vl.Qwen3VLVisionModel._from_config(config.vision_config)
        language_model.rotary_emb = vl.Qwen3VLTextRotaryEmbedding(config=config.text_config)

    def get_image_features(self, pixel_values, image_grid_thw):
        rows, _ = self.visual(pixel_values, grid_thw=image_grid_thw)
        return torch.split(rows, (image_grid_thw.prod(-1) // self.visual.spatial_merge_unit).tolist())


class Qwen3_5ForConditionalGeneration(PreTrainedModel):
    config_class = Qwen3_5Config
    _tied_weights_keys = None

    def __init__(self, config):
        super().__init__(config)
        text = Qwen3_5ForCausalLM(config.text_config)
        self.model, self.lm_head = Qwen3_5Model(config, text.model), text.lm_head
        self.text = [text]

    def forward(self, input_ids, attention_mask, use_cache, pixel_values=None, image_grid_thw=None):
        x = self.model.language_model.embed_tokens(input_ids)
        if pixel_values is not None:
            rows = torch.cat(self.model.get_image_features(pixel_values, image_grid_thw))
            x = x.masked_scatter((input_ids == self.config.image_token_id)[..., None].expand_as(x), rows)
        places, _ = self.model.get_rope_index(input_ids, image_grid_thw, attention_mask=attention_mask)
        return self.text[0](
            inputs_embeds=x, attention_mask=attention_mask, position_ids=places, use_cache=use_cache,
        )


def build(name, settings):
    """The dense one as the text alone is saved, the mixture as one that also sees."""
    if name == "qwen3_5_text":
        return Qwen3_5ForCausalLM(DenseConfig(num_experts=0, attn_implementation="eager", **settings)).eval()
    return Qwen3_5MoeForConditionalGeneration(MoeConfig(attn_implementation="eager", **settings)).eval()
