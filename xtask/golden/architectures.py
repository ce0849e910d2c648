"""The tiny models: what is switched on in each, and why.

Sizes are odd on purpose: heads * head_dim is not hidden_size, three query heads share a key head, the vocabulary is no
multiple of 32, windows and trained contexts are shorter than the longer prompt. Whatever a class does only under some
setting, some model here sets.
"""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification
from transformers.modeling_utils import no_init_weights

import gemma3n
import gemma4
import lfm2_moe
import mamba2
import minimax_m2
import nemotron_h
import pieces
import qwen3_5
import vision
from nomic_bert import NomicBertConfig, NomicBertModel

VOCAB = 131
# Long enough to leave every window and every trained context behind; short enough to stay within.
LENGTHS = {"long": 40, "short": 7}

BASE = dict(
    vocab_size=VOCAB, hidden_size=48, intermediate_size=56, num_hidden_layers=2, num_attention_heads=6,
    num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=False,
    bos_token_id=1, eos_token_id=2, pad_token_id=0,
)
TRAINED = 16
LAYER_NORMED = {key: value for key, value in BASE.items() if key != "rms_norm_eps"}
# As many key heads as query heads, whatever anybody says.
NEOX = {key: value for key, value in LAYER_NORMED.items() if key != "num_key_value_heads"} | dict(layer_norm_eps=1e-4)
# LFM2 calls its epsilon otherwise.
LFM2 = {key: value for key, value in BASE.items() if key != "rms_norm_eps"} | dict(norm_eps=1e-5, tie_word_embeddings=True)


def scaled(**scaling):
    """Llama with wide heads, so that its frequencies fall on every side of a scaling's limits."""
    trained = dict(max_position_embeddings=TRAINED) if scaling["rope_type"] == "dynamic" else {}
    return "llama", dict(BASE, head_dim=32, num_attention_heads=3, num_key_value_heads=1, rope_scaling=scaling) | trained


def nemotron(pattern, **settings):
    """Nemotron-H whose state spaces are wider than their model, and not twice as wide."""
    base = {key: value for key, value in BASE.items() if key not in ["rms_norm_eps", "num_hidden_layers"]}
    whole = dict(
        hybrid_override_pattern=pattern, layer_norm_epsilon=1e-4, head_dim=12, mamba_num_heads=6, mamba_head_dim=12,
        ssm_state_size=10, n_groups=3,
    )
    return dict(base, **whole) | settings


def granite_hybrid(**settings):
    """Granite 4 whose states are wider than long."""
    whole = dict(
        num_hidden_layers=3, layer_types=["mamba", "attention", "mamba"], shared_intermediate_size=40,
        embedding_multiplier=7.0, attention_multiplier=0.11, residual_multiplier=0.35, logits_scaling=3.0,
        mamba_n_heads=6, mamba_d_head=16, mamba_d_state=8, mamba_n_groups=1, mamba_d_conv=4, mamba_expand=2,
        mamba_chunk_size=8,
    )
    return dict(BASE, **whole) | settings


def bamba(**settings):
    """Bamba whose heads turn in part, and whose states are wider than long."""
    whole = dict(
        num_hidden_layers=3, head_dim=12, mamba_n_heads=6, mamba_d_head=16, mamba_d_state=8, mamba_d_conv=4, mamba_expand=2,
        mamba_chunk_size=8,
    )
    return dict(BASE, **whole) | settings


def jamba(**settings):
    """Jamba whose layers attend, and have experts, by turns that do not fall together."""
    whole = dict(mamba_d_state=10, mamba_d_conv=4, mamba_expand=2, use_mamba_kernels=False)
    return dict(BASE, **whole) | settings


def falcon_h1(**settings):
    """Falcon-H1, every factor of which is another. What takes from a branch nearly all would hide it, so none is as small as trained ones."""
    whole = dict(
        head_dim=12, mamba_d_ssm=72, mamba_n_heads=6, mamba_d_head=12, mamba_d_state=10, mamba_n_groups=2, mamba_d_conv=4,
        mamba_chunk_size=8, mamba_norm_before_gate=False, rope_theta=1e4, embedding_multiplier=2.5, lm_head_multiplier=0.7,
        attention_in_multiplier=1.3, attention_out_multiplier=0.8, key_multiplier=0.6, ssm_in_multiplier=1.2,
        ssm_out_multiplier=0.9, ssm_multipliers=[0.75, 1.4, 0.85, 1.25, 0.65], mlp_multipliers=[1.15, 0.55],
    )
    return dict(BASE, **whole) | settings


def mamba(**settings):
    """The first Mamba's settings of all models', and sizes that are no multiples."""
    known = ["vocab_size", "hidden_size", "num_hidden_layers", "tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id"]
    return {key: BASE[key] for key in known} | dict(state_size=10, layer_norm_epsilon=1e-4) | settings


ARCHITECTURES = {
    "llama": ("llama", dict(BASE, head_dim=12, attention_bias=True, mlp_bias=True)),
    "llama-linear": scaled(rope_type="linear", factor=4.0),
    "llama-dynamic": scaled(rope_type="dynamic", factor=3.0),
    "llama-yarn": scaled(rope_type="yarn", factor=4.0, original_max_position_embeddings=TRAINED, beta_fast=4.0),
    "llama-yarn-mscale": scaled(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=TRAINED, beta_fast=6.0, beta_slow=0.5,
        mscale=0.8, mscale_all_dim=1.3, truncate=False,
    ),
    "llama3-rope": scaled(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=TRAINED,
    ),
    # One that GGUF can say, with experts in each second layer; and one with what it cannot: chunks within the prompt, in other layers than those that
    # turn, queries that grow, two experts for a token, whose shares are of its input, and no norms.
    "llama4": (
        "llama4_text",
        dict(
            BASE, num_hidden_layers=5, head_dim=12, intermediate_size=16, intermediate_size_mlp=40, num_local_experts=5,
            interleave_moe_layer_step=2, rope_theta=1e4,
            rope_scaling=dict(
                rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                original_max_position_embeddings=TRAINED,
            ),
        ),
    ),
    "llama4-chunks": (
        "llama4_text",
        dict(
            BASE, num_hidden_layers=4, head_dim=16, intermediate_size=20, intermediate_size_mlp=40, num_local_experts=5,
            num_experts_per_tok=2, moe_layers=[0, 3], no_rope_layers=[1, 0, 1, 0], attention_chunk_size=9, use_qk_norm=False,
            layer_types=["chunked_attention", "full_attention", "full_attention", "chunked_attention"], floor_scale=4,
            attn_scale=0.4, tie_word_embeddings=True,
        ),
    ),
    "mistral": ("mistral", dict(BASE, head_dim=12, sliding_window=9)),
    "mixtral": (
        "mixtral",
        dict(BASE, head_dim=8, intermediate_size=24, sliding_window=11, num_local_experts=5, num_experts_per_tok=2),
    ),
    "qwen2": (
        "qwen2",
        dict(
            BASE, num_hidden_layers=3, use_sliding_window=True, sliding_window=9, max_window_layers=1,
            tie_word_embeddings=True,
        ),
    ),
    "qwen3": (
        "qwen3",
        dict(
            BASE, num_hidden_layers=3, head_dim=12, use_sliding_window=True, sliding_window=10, max_window_layers=2,
            attention_bias=True,
        ),
    ),
    # Of each of Qwen's mixtures one that GGUF can say, with so many experts that some get no token of the shorter prompt, and one
    # with what it cannot: dense layers, windows, the other kind of shares.
    "qwen2-moe": (
        "qwen2_moe",
        dict(
            BASE, num_experts=7, num_experts_per_tok=2, moe_intermediate_size=24,
            shared_expert_intermediate_size=40,
        ),
    ),
    "qwen2-moe-normed": (
        "qwen2_moe",
        dict(
            BASE, num_hidden_layers=3, num_experts=5, num_experts_per_tok=3, moe_intermediate_size=16,
            shared_expert_intermediate_size=20, mlp_only_layers=[1], norm_topk_prob=True, tie_word_embeddings=True,
        ),
    ),
    "qwen3-moe": (
        "qwen3_moe",
        dict(
            BASE, head_dim=12, num_experts=17, num_experts_per_tok=4, moe_intermediate_size=12, norm_topk_prob=True,
        ),
    ),
    "qwen3-moe-window": (
        "qwen3_moe",
        dict(
            BASE, num_hidden_layers=4, head_dim=12, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=16,
            decoder_sparse_step=2, use_sliding_window=True, sliding_window=10, attention_bias=True,
            tie_word_embeddings=True,
        ),
    ),
    # Keys and values of other lengths, three heads for each of keys, and of attention's heads the first quarter turns.
    "qwen3-next": (
        "qwen3_next",
        dict(
            BASE, num_hidden_layers=3, head_dim=16, full_attention_interval=2, partial_rotary_factor=0.25,
            linear_conv_kernel_dim=3, linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=8,
            linear_value_head_dim=12, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=16,
            shared_expert_intermediate_size=20, norm_topk_prob=True,
        ),
    ),
    "qwen3-5": (
        "qwen3_5_text",
        dict(
            BASE, num_hidden_layers=3, head_dim=24, full_attention_interval=2, partial_rotary_factor=0.25,
            linear_num_key_heads=3, linear_num_value_heads=6, linear_key_head_dim=8, linear_value_head_dim=8,
            tie_word_embeddings=True,
        ),
    ),
    "qwen3-5-moe": (
        "qwen3_5_moe",
        dict(
            BASE, num_hidden_layers=3, head_dim=16, full_attention_interval=2, partial_rotary_factor=0.25,
            linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=8, linear_value_head_dim=8,
            num_experts=7, num_experts_per_tok=2, moe_intermediate_size=12, shared_expert_intermediate_size=20,
        ),
    ),
    # Dense, with MLPs as wide as three settings make them; and mixtures, of which GGUF can say one. The other has biases on convolutions,
    # which look at two inputs only, none on experts, shares as they are but scaled, and heads of their own size.
    "lfm2": (
        "lfm2",
        dict(
            LFM2, num_hidden_layers=4, intermediate_size=71, block_multiple_of=12, block_ffn_dim_multiplier=1.3,
            layer_types=["conv", "conv", "full_attention", "conv"],
        ),
    ),
    "lfm2-moe": (
        "lfm2_moe",
        dict(
            LFM2, num_hidden_layers=3, conv_L_cache=4, num_experts=7, num_experts_per_tok=3, moe_intermediate_size=20,
            num_dense_layers=1, layer_types=["conv", "full_attention", "conv"],
        ),
    ),
    "lfm2-moe-bias": (
        "lfm2_moe",
        dict(
            LFM2, num_hidden_layers=3, head_dim=12, conv_bias=True, conv_L_cache=2, num_experts=5, num_experts_per_tok=2,
            moe_intermediate_size=16, num_dense_layers=1, use_expert_bias=False, norm_topk_prob=False,
            routed_scaling_factor=1.4, layer_types=["full_attention", "conv", "full_attention"], tie_word_embeddings=False,
        ),
    ),
    # Of latent attention no size is another's multiple, and a head's queries are longer than its values in one model and shorter in the
    # other. V2 chooses by groups, with queries in two steps; V3 with a bias, with queries in one, and stretched rotary positions.
    "deepseek-v2": (
        "deepseek_v2",
        dict(
            BASE, num_attention_heads=3, num_key_value_heads=3, q_lora_rank=28, kv_lora_rank=20, qk_nope_head_dim=10,
            qk_rope_head_dim=6, v_head_dim=14, first_k_dense_replace=1, n_routed_experts=12, n_shared_experts=2,
            moe_intermediate_size=12, num_experts_per_tok=3, topk_method="group_limited_greedy", n_group=4,
            topk_group=2, routed_scaling_factor=1.7,
        ),
    ),
    # Eight pairs, on either side of YaRN's limits and between them.
    "deepseek-v3": (
        "deepseek_v3",
        dict(
            BASE, num_attention_heads=5, num_key_value_heads=5, q_lora_rank=None, kv_lora_rank=24, qk_nope_head_dim=12,
            qk_rope_head_dim=16, v_head_dim=10, first_k_dense_replace=1, n_routed_experts=9, n_shared_experts=1,
            moe_intermediate_size=20, num_experts_per_tok=4, n_group=3, topk_group=2, routed_scaling_factor=2.5,
            norm_topk_prob=True, attention_bias=True, rope_theta=50.0,
            rope_scaling=dict(
                rope_type="yarn", factor=4.0, original_max_position_embeddings=TRAINED, beta_fast=2.0, beta_slow=0.25,
                mscale=0.8, mscale_all_dim=0.8,
            ),
        ),
    ),
    "gemma": ("gemma", dict(BASE, head_dim=12, tie_word_embeddings=True)),
    "gemma2": (
        "gemma2",
        dict(
            BASE, head_dim=12, sliding_window=9, query_pre_attn_scalar=20, attn_logit_softcapping=3.0,
            final_logit_softcapping=5.0, tie_word_embeddings=True,
        ),
    ),
    "gemma3": (
        "gemma3_text",
        dict(
            BASE, num_hidden_layers=4, head_dim=12, intermediate_size=40, sliding_window=9, query_pre_attn_scalar=20,
            layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
            rope_theta=1e6, rope_local_base_freq=1e4, rope_scaling=dict(rope_type="linear", factor=8.0),
            tie_word_embeddings=True,
        ),
    ),
    "gemma3n": ("gemma3n", gemma3n.settings(BASE)),
    # As 31B has it, whose values are keys where all is seen; as E2B, which also sees, with inputs of layers, keys of earlier layers and MLPs twice as
    # wide there; as 26B-A4B, with experts; and what no released model and no GGUF file has, all at once.
    "gemma4": ("gemma4_text", gemma4.settings(BASE, attention_k_eq_v=True, num_global_key_value_heads=1)),
    "gemma4-shared": (
        "gemma4",
        gemma4.settings(
            BASE, num_hidden_layers=6, layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
            intermediate_size=24, num_kv_shared_layers=3, use_double_wide_mlp=True, hidden_size_per_layer_input=8,
            num_key_value_heads=1,
        ),
    ),
    "gemma4-moe": (
        "gemma4_text",
        gemma4.settings(
            BASE, num_hidden_layers=3, layer_types=["sliding_attention", "sliding_attention", "full_attention"],
            attention_k_eq_v=True, num_global_key_value_heads=3, enable_moe_block=True, num_experts=7, top_k_experts=3,
            moe_intermediate_size=20, by_layer=True,
        ),
    ),
    "gemma4-all": (
        "gemma4_text",
        gemma4.settings(
            BASE, attention_bias=True, num_kv_shared_layers=2, hidden_size_per_layer_input=6, enable_moe_block=True,
            num_experts=5, top_k_experts=2, moe_intermediate_size=16, hidden_activation="silu", final_logit_softcapping=None,
            intermediate_size=24, attention_k_eq_v=True, tie_word_embeddings=False, use_bidirectional_attention="vision",
            rope_parameters=dict(
                full_attention=dict(rope_type="proportional", partial_rotary_factor=0.5, rope_theta=1e5, factor=2.0),
                sliding_attention=dict(rope_type="default", rope_theta=5e3),
            ),
        ),
    ),
    # Heads of 16, half of which turn; LongRoPE's lists for 4 pairs.
    "phi3": (
        "phi3",
        dict(
            BASE, num_attention_heads=3, num_key_value_heads=1, partial_rotary_factor=0.5, sliding_window=19,
            original_max_position_embeddings=TRAINED,
            rope_scaling=dict(
                type="longrope", short_factor=[1.0, 1.1, 1.3, 1.7], long_factor=[1.2, 1.9, 3.1, 4.0],
            ),
        ),
    ),
    # Experts that are near each other are rare as its models have it, and common in the other, which has what GGUF cannot say: no biases, and
    # magnitudes by the length of a text.
    "phimoe": (
        "phimoe",
        dict(
            BASE, num_attention_heads=3, num_key_value_heads=1, intermediate_size=24, num_local_experts=6, num_experts_per_tok=2,
            attention_bias=True, lm_head_bias=True, sliding_window=19, rope_theta=1e4,
            rope_scaling=dict(
                type="longrope", short_factor=[1.0, 1.1, 1.3, 1.7, 1.8, 2.0, 2.1, 2.5], short_mscale=1.2, long_mscale=1.2,
                long_factor=[1.2, 1.9, 3.1, 4.0, 4.2, 4.4, 5.0, 6.0], original_max_position_embeddings=TRAINED,
            ),
        ),
    ),
    "phimoe-near": (
        "phimoe",
        dict(
            BASE, intermediate_size=20, num_local_experts=7, num_experts_per_tok=2, router_jitter_noise=0.3, tie_word_embeddings=True,
            rope_scaling=dict(
                type="longrope", short_factor=[1.0, 1.1, 1.3, 1.7], long_factor=[1.2, 1.9, 3.1, 4.0], short_mscale=1.1,
                long_mscale=1.3, original_max_position_embeddings=TRAINED,
            ),
        ),
    ),
    "olmo2": ("olmo2", dict(BASE, head_dim=12, attention_bias=True)),
    "olmo3": (
        "olmo3",
        dict(
            BASE, num_hidden_layers=3, head_dim=32, num_attention_heads=3, num_key_value_heads=1, sliding_window=9,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            rope_scaling=dict(
                rope_type="yarn", factor=4.0, original_max_position_embeddings=TRAINED, beta_fast=4.0,
            ),
        ),
    ),
    # As many key heads as query heads, as readers of GGUF want them.
    "olmoe": (
        "olmoe",
        dict(BASE, intermediate_size=20, num_key_value_heads=6, num_experts=7, num_experts_per_tok=2),
    ),
    "granite": (
        "granite",
        dict(
            BASE, head_dim=12, attention_bias=True, mlp_bias=True, embedding_multiplier=7.0, attention_multiplier=0.11,
            residual_multiplier=0.35, logits_scaling=3.0, tie_word_embeddings=True,
        ),
    ),
    "granite-moe": (
        "granitemoe",
        dict(
            BASE, intermediate_size=24, num_local_experts=5, num_experts_per_tok=2, embedding_multiplier=7.0,
            attention_multiplier=0.11, residual_multiplier=0.35, logits_scaling=3.0,
        ),
    ),
    "granite-moe-shared": (
        "granitemoeshared",
        dict(
            BASE, intermediate_size=24, shared_intermediate_size=40, num_local_experts=5, num_experts_per_tok=2,
            embedding_multiplier=7.0, attention_multiplier=0.11, residual_multiplier=0.35, logits_scaling=3.0,
        ),
    ),
    # Two that GGUF can say, and one with what it cannot: positions that turn, groups of states that are normed together, biases.
    "granite-hybrid": ("granitemoehybrid", granite_hybrid(num_local_experts=0, tie_word_embeddings=True)),
    "granite-hybrid-moe": (
        "granitemoehybrid",
        granite_hybrid(num_local_experts=5, num_experts_per_tok=2, intermediate_size=24),
    ),
    "granite-hybrid-rope": (
        "granitemoehybrid",
        granite_hybrid(
            num_local_experts=0, position_embedding_type="rope", mamba_n_groups=3, mamba_proj_bias=True,
            mamba_conv_bias=False,
            layer_types=["mamba", "mamba", "attention"],
        ),
    ),
    # Dense, with biases that GGUF has; and mixtures, of which GGUF can say one. The other has MLPs besides, biases on projections, none on
    # convolutions, which look at three inputs, and experts in groups, whose shares are taken as they are.
    "nemotron-h": ("nemotron_h", nemotron("M-*M-", mlp_bias=True)),
    "nemotron-h-moe": (
        "nemotron_h",
        nemotron(
            "ME*M", n_routed_experts=7, num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=20,
            moe_shared_expert_intermediate_size=40, n_group=1, topk_group=1, norm_topk_prob=True,
            routed_scaling_factor=2.5,
        ),
    ),
    "nemotron-h-moe-bias": (
        "nemotron_h",
        nemotron(
            "M-*E", use_bias=True, mlp_bias=True, use_conv_bias=False, conv_kernel=3, n_routed_experts=6,
            num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=16, moe_shared_expert_intermediate_size=24,
            n_group=3, topk_group=2, norm_topk_prob=False, routed_scaling_factor=1.4, tie_word_embeddings=True,
        ),
    ),
    # Two that GGUF can say, and one with what it cannot: another width within, biases on projections, none on convolutions, another activation.
    "mamba": ("mamba", mamba(time_step_rank=5)),
    "mamba-bias": (
        "mamba",
        mamba(expand=1.5, use_bias=True, use_conv_bias=False, conv_kernel=3, hidden_act="gelu", tie_word_embeddings=True),
    ),
    "falcon-mamba": ("falcon_mamba", mamba(time_step_rank=6, mixer_rms_eps=1e-4)),
    # One that GGUF can say, and one with what it cannot: biases on projections, none on convolutions.
    "mamba2": ("mamba2", mamba2.settings(BASE, n_groups=3)),
    "mamba2-bias": (
        "mamba2", mamba2.settings(BASE, n_groups=1, use_bias=True, use_conv_bias=False, tie_word_embeddings=True),
    ),
    # Two that GGUF can say, without a norm of what states give and with one, and one with what it cannot: a norm before the gate, biases on
    # what attends and on the projections of states, none on convolutions.
    "falcon-h1": ("falcon_h1", falcon_h1()),
    "falcon-h1-norm": (
        "falcon_h1",
        falcon_h1(mamba_rms_norm=True, mamba_n_groups=3, mlp_bias=True, tie_word_embeddings=True, num_key_value_heads=1),
    ),
    "falcon-h1-bias": (
        "falcon_h1",
        falcon_h1(
            mamba_rms_norm=True, mamba_norm_before_gate=True, mamba_n_groups=3, mamba_d_ssm=None, mamba_expand=1.5,
            attention_bias=True, mlp_bias=True, mamba_proj_bias=True, projectors_bias=True, mamba_conv_bias=False,
        ),
    ),
    # One that GGUF can say, and one with what it cannot: windows, and other layers than each fourth whose positions stay.
    "smollm3": ("smollm3", dict(BASE, num_hidden_layers=5, head_dim=12, intermediate_size=40, tie_word_embeddings=True)),
    "smollm3-window": (
        "smollm3",
        dict(
            BASE, head_dim=12, attention_bias=True, mlp_bias=True, no_rope_layers=[0, 1], use_sliding_window=True,
            sliding_window=9,
        ),
    ),
    # Heads of 20, of which 14 elements turn.
    "glm": ("glm", dict(BASE, head_dim=20, partial_rotary_factor=0.7, rms_norm_eps=1.5625e-7)),
    "glm4": ("glm4", dict(BASE, head_dim=16, partial_rotary_factor=0.5, rms_norm_eps=1.5625e-7)),
    # Heads of 20, of which 14 elements turn, in groups of which some are chosen, and biases; and what GGUF can say besides: norms on heads, one
    # group, shares as they are.
    "glm4-moe": (
        "glm4_moe",
        dict(
            BASE, head_dim=20, partial_rotary_factor=0.7, attention_bias=True, n_routed_experts=12,
            n_shared_experts=2, num_experts_per_tok=3, moe_intermediate_size=12, n_group=4, topk_group=2,
            first_k_dense_replace=1, routed_scaling_factor=1.7,
        ),
    ),
    "glm4-moe-norm": (
        "glm4_moe",
        dict(
            BASE, head_dim=16, partial_rotary_factor=0.5, use_qk_norm=True, attention_bias=True, n_routed_experts=7,
            n_shared_experts=1, num_experts_per_tok=3, moe_intermediate_size=20, first_k_dense_replace=0,
            norm_topk_prob=False, tie_word_embeddings=True,
        ),
    ),
    "minimax-m2": (
        "minimax_m2",
        dict(
            BASE, head_dim=20, rotary_dim=14, intermediate_size=20, num_local_experts=7, num_experts_per_tok=3,
            rope_theta=5e3,
        ),
    ),
    # One that GGUF can say, and one with what it cannot: biases on all other matrices.
    "seed-oss": ("seed_oss", dict(BASE, head_dim=12, attention_bias=True)),
    "seed-oss-bias": (
        "seed_oss",
        dict(BASE, head_dim=12, attention_bias=True, attention_out_bias=True, mlp_bias=True, tie_word_embeddings=True),
    ),
    # So too of ERNIE, whose mixtures have biases even on heads: those that end with layers without experts, and have some in between.
    "ernie4-5": ("ernie4_5", dict(BASE, head_dim=12, tie_word_embeddings=True)),
    "ernie4-5-bias": ("ernie4_5", dict(BASE, head_dim=16, use_bias=True)),
    "ernie4-5-moe": (
        "ernie4_5_moe",
        dict(
            BASE, moe_num_experts=7, moe_k=3, moe_num_shared_experts=2, moe_intermediate_size=12,
            moe_layer_start_index=1,
        ),
    ),
    "ernie4-5-moe-bias": (
        "ernie4_5_moe",
        dict(
            BASE, num_hidden_layers=4, intermediate_size=40, use_bias=True, moe_num_experts=5, moe_k=2,
            moe_num_shared_experts=0, moe_intermediate_size=16, moe_layer_start_index=0, moe_layer_end_index=2,
            moe_layer_interval=2,
        ),
    ),
    # With windows, where the last layer's positions are not turned, and without any.
    "exaone4": ("exaone4", dict(BASE, head_dim=8, sliding_window=None, layer_types=["full_attention"] * 2)),
    "exaone4-window": (
        "exaone4",
        dict(BASE, num_hidden_layers=3, head_dim=12, sliding_window=9, sliding_window_pattern=3, tie_word_embeddings=True),
    ),
    "cohere2": (
        "cohere2",
        dict(
            BASE, num_hidden_layers=5, intermediate_size=40, sliding_window=9, layer_norm_eps=1e-4, logit_scale=0.3,
            tie_word_embeddings=True,
        ),
    ),
    # One that GGUF can say, and one with what it has for models of 64 layers and more alone: norms on heads, each by factors of its own.
    "command-r": (
        "cohere", dict(BASE, layer_norm_eps=1e-4, logit_scale=0.3, num_hidden_layers=3, tie_word_embeddings=True),
    ),
    "command-r-norm": (
        "cohere",
        dict(
            BASE, head_dim=12, layer_norm_eps=1e-4, logit_scale=0.2, use_qk_norm=True, attention_bias=True,
            rope_scaling=dict(rope_type="linear", factor=4.0),
        ),
    ),
    "starcoder2": (
        "starcoder2", dict(LAYER_NORMED, num_hidden_layers=3, norm_epsilon=1e-4, use_bias=True, tie_word_embeddings=True),
    ),
    "starcoder2-window": (
        "starcoder2", dict(LAYER_NORMED, head_dim=12, norm_epsilon=1e-4, use_bias=False, sliding_window=9),
    ),
    # Heads of 16, of which 6 elements turn and 4; and what GGUF cannot say, or is not converted.
    "phi2": (
        "phi",
        dict(LAYER_NORMED, num_attention_heads=3, num_key_value_heads=1, partial_rotary_factor=0.375, layer_norm_eps=1e-4),
    ),
    "phi2-norm": ("phi", dict(LAYER_NORMED, partial_rotary_factor=0.5, layer_norm_eps=1e-4, qk_layernorm=True)),
    "stablelm": (
        "stablelm",
        dict(LAYER_NORMED, num_attention_heads=3, num_key_value_heads=1, layer_norm_eps=1e-4, use_qkv_bias=True),
    ),
    "stablelm-parallel": (
        "stablelm",
        dict(LAYER_NORMED, layer_norm_eps=1e-4, partial_rotary_factor=0.5, qk_layernorm=True, use_parallel_residual=True),
    ),
    # With Llama 3's frequencies, as its models have them, on every side of the limits.
    "apertus": (
        "apertus",
        dict(
            BASE, head_dim=32, num_attention_heads=3, num_key_value_heads=1, attention_bias=True, rope_theta=1e4,
            rope_scaling=dict(
                rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                original_max_position_embeddings=TRAINED,
            ),
        ),
    ),
    # With one of YaRN's two magnitudes, which counts for nothing without the other.
    "arcee": (
        "arcee",
        dict(BASE, head_dim=12, rope_scaling=dict(rope_type="yarn", factor=4.0, beta_fast=4.0, mscale=0.8, original_max_position_embeddings=16)),
    ),
    # With a larger base for longer contexts.
    "hunyuan-dense": (
        "hunyuan_v1_dense",
        dict(BASE, head_dim=12, rope_scaling=dict(type="dynamic", alpha=50.0, factor=1.0), tie_word_embeddings=True),
    ),
    "hunyuan-moe": (
        "hunyuan_v1_moe",
        dict(
            BASE, head_dim=8, intermediate_size=24, num_experts=7, moe_topk=[3, 3],
            rope_scaling=dict(type="dynamic", alpha=50.0, factor=1.0),
        ),
    ),
    "gpt2": (
        "gpt2",
        dict(
            vocab_size=VOCAB, n_embd=48, n_head=3, n_layer=2, n_positions=43, n_inner=80,
            scale_attn_by_inverse_layer_idx=True, bos_token_id=1, eos_token_id=2,
        ),
    ),
    # Its class has the bound of gates as a constant; `build` puts the setting in its place, so low that a third of them meet it.
    "gpt-oss": (
        "gpt_oss",
        dict(
            BASE, num_hidden_layers=3, head_dim=12, intermediate_size=40, num_local_experts=5, num_experts_per_tok=2,
            sliding_window=9, swiglu_limit=0.75,
            rope_scaling=dict(
                rope_type="yarn", factor=4.0, beta_fast=4.0, beta_slow=1.0, truncate=False,
                original_max_position_embeddings=TRAINED,
            ),
        ),
    ),
    # Heads of 16, of which 6 elements turn; the MLP behind attention, and all of a head, stretched; and what GGUF has not: no biases.
    "gptneox": ("gpt_neox", dict(NEOX, num_attention_heads=3, rotary_pct=0.375)),
    "gptneox-serial": (
        "gpt_neox",
        dict(
            NEOX, rotary_pct=1.0, rotary_emb_base=5000, use_parallel_residual=False, tie_word_embeddings=True,
            rope_scaling=dict(rope_type="linear", factor=2.0),
        ),
    ),
    "gptneox-bare": ("gpt_neox", dict(NEOX, rotary_pct=0.5, attention_bias=False, hidden_act="gelu_new")),
    # Mixtures, of which a layer attends; without experts; and what GGUF cannot say: biases and another width.
    "jamba": (
        "jamba",
        jamba(
            num_hidden_layers=3, intermediate_size=24, attn_layer_period=3, attn_layer_offset=1, expert_layer_period=2,
            expert_layer_offset=0, num_experts=5, num_experts_per_tok=2, mamba_dt_rank=5,
        ),
    ),
    "jamba-dense": (
        "jamba",
        jamba(attn_layer_period=2, attn_layer_offset=0, num_experts=1, mamba_d_conv=3, tie_word_embeddings=True),
    ),
    "jamba-bias": (
        "jamba",
        jamba(
            attn_layer_period=2, attn_layer_offset=0, expert_layer_period=1, expert_layer_offset=0, num_experts=4, num_experts_per_tok=3,
            intermediate_size=16, mamba_expand=1, mamba_conv_bias=False, mamba_proj_bias=True, hidden_act="gelu",
        ),
    ),
    # As its models are; and what GGUF cannot say: biases, and groups that are normed at once.
    "bamba": ("bamba", bamba(attn_layer_indices=[1], rope_theta=5e3)),
    "bamba-groups": (
        "bamba",
        bamba(
            attn_layer_indices=[0, 2], mamba_d_head="auto", mamba_n_groups=2, mamba_d_conv=3, mamba_conv_bias=False,
            mamba_proj_bias=True, attention_bias=True, mlp_bias=True, partial_rotary_factor=0.34, tie_word_embeddings=True,
            rope_scaling=dict(rope_type="linear", factor=2.0),
        ),
    ),
    # As many key heads as query heads and one group, as readers of GGUF want them; and with groups, key heads that are shared, and a window.
    "dots1": (
        "dots1",
        dict(
            BASE, num_key_value_heads=6, head_dim=12, n_routed_experts=7, n_shared_experts=2, num_experts_per_tok=3,
            moe_intermediate_size=12, first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=1.7, sliding_window=None,
        ),
    ),
    "dots1-window": (
        "dots1",
        dict(
            BASE, num_hidden_layers=3, head_dim=12, attention_bias=True, n_routed_experts=12, n_shared_experts=1,
            num_experts_per_tok=3, moe_intermediate_size=16, n_group=4, topk_group=2, first_k_dense_replace=1, sliding_window=9,
            max_window_layers=1, rope_theta=5e3, tie_word_embeddings=True,
        ),
    ),
    "gpt-neox": (
        "gpt_neox",
        dict(
            vocab_size=VOCAB, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=3,
            rotary_pct=0.25, max_position_embeddings=64, use_parallel_residual=True, bos_token_id=1, eos_token_id=2,
        ),
    ),
}

# Added to a seed, the best of 150: the last expert that is chosen is 0.013 ahead of the first that is not, and more, for every token, so
# that rounding to bfloat16 chooses the same. Without it the logits of the two were 0.003 and 0.004 apart. DeepSeek's are the best of 400
# whose tokens choose every pair of groups, and other experts than they would without groups: V2's shares are 0.004 apart, 0.1 as logits.
# LFM2's are the best of 150 and of 500, 0.013 and 0.012 ahead, OLMoE's of 300, by shares 0.005, Nemotron 3's among the best of 400, 0.014
# and 0.016 ahead, the latter of those that choose every pair of groups. Qwen's hybrids' are the ones of 150 whose logits rounding to bfloat16
# moves least, 1.5e-4 of their square, of those that the delta rule in chunks and token by token gives within 7e-6. GLM-4.5's are of 800 and
# 1000, 0.011 and 0.012 ahead, the former of those that choose every pair of groups, MiniMax's the best of 1200, 0.011, ERNIE's of 800, by
# shares 0.006 and 0.021, of those whose tokens choose every expert.
# HunYuan's is the best of 300, 0.031 ahead by what its shares are made of.
# Llama 4's are of 150, 0.059 and 0.031 ahead, of those whose tokens choose every expert.
# Jamba's are of 150 and of 40, and move least of those that choose 0.012 ahead, by 1.5e-4 and less of their square. dots.llm1's are the
# best of 400, by scores 0.014 and 0.006 ahead, of those whose tokens choose every expert, and all but one of these and of the pairs of groups.
# Phi-3.5-MoE's are of 400, of those that move least, whose logits are 0.006 and 0.009 apart and as much from being near: two experts
# are so in the one, and 212 in the other.
# Gemma 4's, which choose in every layer, are the best of 2000, 0.003 and 0.005 ahead, with inputs of all products rounded the same experts
# and 4e-5 of their square; the one without experts moves least of 150, as much. Gemma 3n's moves least, 9e-5, of those of 30 that double and single
# precision have within 8e-6.
SALT = {
    "qwen2-moe": 120, "qwen3-moe": 21, "deepseek-v2": 128, "deepseek-v3": 132,
    "qwen3-next": 119, "qwen3-5": 53, "qwen3-5-moe": 108, "lfm2-moe": 146, "lfm2-moe-bias": 293,
    "olmoe": 50, "nemotron-h-moe": 41, "nemotron-h-moe-bias": 312,
    "glm4-moe": 163, "glm4-moe-norm": 469, "minimax-m2": 919, "ernie4-5-moe": 172, "ernie4-5-moe-bias": 253,
    "gemma3n": 15, "llama4": 80, "llama4-chunks": 1, "gemma4-shared": 92, "gemma4-moe": 1825, "gemma4-all": 404, "hunyuan-moe": 58,
    "jamba": 109, "jamba-dense": 31, "jamba-bias": 3, "dots1": 118, "phimoe": 330, "phimoe-near": 381, "dots1-window": 193,
}

# Models whose tokens see all of a text: no logits, but hidden states, a vocabulary, and vectors of whole texts.
ENCODERS = {
    "bert": (
        "bert",
        dict(
            vocab_size=VOCAB, hidden_size=48, intermediate_size=56, num_hidden_layers=2, num_attention_heads=3,
            max_position_embeddings=43, type_vocab_size=2, layer_norm_eps=1e-3, pad_token_id=0,
        ),
    ),
    "nomic-bert": (
        "nomic_bert",
        dict(
            vocab_size=VOCAB, n_embd=48, n_inner=56, n_layer=2, n_head=3, n_positions=256, max_trained_positions=64,
            type_vocab_size=2, layer_norm_epsilon=1e-3, rotary_emb_base=1000, pad_token_id=0,
        ),
    ),
    "xlm-roberta": (
        "xlm-roberta",
        dict(
            vocab_size=VOCAB, hidden_size=48, intermediate_size=56, num_hidden_layers=2, num_attention_heads=3,
            max_position_embeddings=45, type_vocab_size=1, layer_norm_eps=1e-3, pad_token_id=1,
        ),
    ),
    # A neighbourhood that is smaller than the shorter prompt.
    "modern-bert": (
        "modernbert",
        dict(
            vocab_size=270, hidden_size=48, intermediate_size=56, num_hidden_layers=4, num_attention_heads=3,
            max_position_embeddings=64, norm_eps=1e-3, local_attention=5, global_rope_theta=3000.0, local_rope_theta=700.0,
            reference_compile=False, pad_token_id=1, bos_token_id=0, eos_token_id=2, cls_token_id=0, sep_token_id=2,
        ),
    ),
    # Its windows reach half as far as their number, to both sides: here less far than the shorter prompt is long.
    "embedding-gemma": (
        "gemma3_text",
        dict(
            BASE, vocab_size=pieces.GEMMA_SIZE, num_hidden_layers=4, head_dim=12, intermediate_size=40, sliding_window=9,
            query_pre_attn_scalar=12, layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
            rope_theta=1e6, rope_local_base_freq=1e4, tie_word_embeddings=True, use_bidirectional_attention=True,
            pad_token_id=0, eos_token_id=1, bos_token_id=2,
        ),
    ),
    # These rank texts.
    "modern-bert-reranker": (
        "modernbert",
        dict(
            vocab_size=270, hidden_size=48, intermediate_size=56, num_hidden_layers=2, num_attention_heads=3,
            max_position_embeddings=64, norm_eps=1e-3, local_attention=8, classifier_pooling="mean", num_labels=1,
            reference_compile=False, pad_token_id=1, bos_token_id=0, eos_token_id=2, cls_token_id=0, sep_token_id=2,
        ),
    ),
    "bert-reranker": (
        "bert",
        dict(
            vocab_size=VOCAB, hidden_size=48, intermediate_size=56, num_hidden_layers=1, num_attention_heads=3,
            max_position_embeddings=52, type_vocab_size=2, layer_norm_eps=1e-3, pad_token_id=0, num_labels=1,
        ),
    ),
    "roberta-reranker": (
        "roberta",
        dict(
            vocab_size=270, hidden_size=48, intermediate_size=56, num_hidden_layers=1, num_attention_heads=3,
            max_position_embeddings=64, type_vocab_size=1, layer_norm_eps=1e-3, pad_token_id=1, num_labels=1,
        ),
    ),
}
RERANKERS = ["modern-bert-reranker", "bert-reranker", "roberta-reranker"]
# A language model that is asked, and says yes or no: Qwen3-Reranker.
ASKED = {
    "qwen3-reranker": (
        "qwen3",
        dict(BASE, vocab_size=pieces.QWEN_SIZE, head_dim=12, max_position_embeddings=512, tie_word_embeddings=True, bos_token_id=None, eos_token_id=0),
    ),
}
# How sentence-transformers is told to pool.
POOLING = {
    "bert": "cls_token", "nomic-bert": "mean_tokens", "xlm-roberta": "cls_token", "modern-bert": "mean_tokens",
    "embedding-gemma": "mean_tokens",
}
# Sizes of the layers that vectors go through, without biases and activations.
DENSE = {"embedding-gemma": [(48, 72), (72, 48)]}


# Models that also see, `-vision` behind the names of what they are in `vision.py`.
SEEING = {f"{name}-vision": name for name in vision.MODELS}


def folder(name):
    """Where the tests look for it, from the repository's root."""
    if name in ASKED:
        return f"crates/ogive/tests/rerankers/{name.removesuffix('-reranker')}"
    if name in SEEING:
        return f"crates/ogive-models/tests/vision/{SEEING[name]}"
    return "examples/outside/golden" if name == "gpt-neox" else f"crates/ogive-models/tests/golden/{name}"


def build(name):
    """The model of that name, its weights still transformers' own."""
    if name in SEEING:
        return vision.build(SEEING[name])
    if name == "nomic-bert":
        return NomicBertModel(NomicBertConfig(**ENCODERS[name][1])).eval()
    if name in ENCODERS:
        model_type, settings = ENCODERS[name]
        config = AutoConfig.for_model(model_type, **settings)
        if name in RERANKERS:
            return AutoModelForSequenceClassification.from_config(config, attn_implementation="eager").eval()
        pooler = {} if name in ["modern-bert", "embedding-gemma"] else dict(add_pooling_layer=False)
        return AutoModel.from_config(config, **pooler, attn_implementation="eager").eval()
    model_type, settings = {**ARCHITECTURES, **ASKED}[name]
    if model_type.startswith("qwen3_5"):
        return qwen3_5.build(model_type, settings)
    if model_type == "gemma3n":
        return gemma3n.build(settings)
    if model_type.startswith("gemma4"):
        return gemma4.build(model_type, settings)
    if model_type == "lfm2_moe":
        return lfm2_moe.build(settings)
    if model_type == "mamba2":
        return mamba2.build(settings)
    if model_type == "minimax_m2":
        return minimax_m2.build(settings)
    if model_type == "nemotron_h":
        return nemotron_h.build(settings)
    config = AutoConfig.for_model(model_type, **settings)
    # All weights are put in later, and StableLM's own way to begin with fails where norms have no biases.
    with no_init_weights():
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for module in model.modules():
        if hasattr(module, "limit"):
            module.limit = config.swiglu_limit
    return model
