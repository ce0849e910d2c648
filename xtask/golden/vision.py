"""Models that also see: what is switched on in each, the images they are shown, and prompts with these in them.

An image is what an image processor leaves of one: patches of random numbers. The families whose tower is given whole pictures get them put together of those. For
each image a model's folder has the patches and the rows that its tower makes of them (and, for DeepStack, what is added behind the
first blocks), and for each prompt the logits of the whole.
"""

import types

import numpy
import torch
from torch.nn import functional
from transformers import AutoConfig, AutoModelForImageTextToText

import qwen3_5

VOCAB = 131
# Tokens that no text has: what stands for an image, a film, and what stands before and behind images.
IMAGE, FILM, BEFORE, BEHIND = 130, 129, 128, 127
TEXTS = 120

TEXT = dict(
    vocab_size=VOCAB, hidden_size=48, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-5, tie_word_embeddings=False,
    bos_token_id=1, eos_token_id=2, pad_token_id=0,
)
SIGLIP = dict(hidden_size=36, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3, patch_size=4)
QWEN = dict(depth=3, num_heads=2, patch_size=2, temporal_patch_size=2, spatial_merge_size=2)
PIXTRAL = dict(
    model_type="pixtral", hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2, patch_size=4,
)
QWEN_TOKENS = dict(image_token_id=IMAGE, video_token_id=FILM, vision_start_token_id=BEFORE, vision_end_token_id=BEHIND)

# transformers' name, settings, and the grids of two images.
MODELS = {
    # The window is as long as an image.
    "gemma3": (
        "gemma3",
        dict(
            text_config=dict(
                TEXT, num_hidden_layers=3, num_attention_heads=6, head_dim=12, query_pre_attn_scalar=20, sliding_window=9,
                layer_types=["sliding_attention", "full_attention", "sliding_attention"], rope_theta=1e6,
                rope_local_base_freq=1e4, tie_word_embeddings=True,
            ),
            vision_config=dict(SIGLIP, image_size=24, layer_norm_eps=1e-4, vision_use_head=False),
            mm_tokens_per_image=9, image_token_index=IMAGE, boi_token_index=BEFORE, eoi_token_index=BEHIND,
        ),
        [[6, 6], [6, 6]],
    ),
    "qwen2-vl": (
        "qwen2_vl",
        dict(
            text_config=dict(TEXT, rope_scaling=dict(type="mrope", mrope_section=[1, 2, 3])),
            vision_config=dict(QWEN, embed_dim=24, hidden_size=48, mlp_ratio=2), **QWEN_TOKENS,
        ),
        [[4, 6], [2, 2]],
    ),
    # Two windows across and two down, of which the last ones have less; one layer looks everywhere.
    "qwen2.5-vl": (
        "qwen2_5_vl",
        dict(
            text_config=dict(TEXT, rope_scaling=dict(type="mrope", mrope_section=[1, 3, 2]), tie_word_embeddings=True),
            vision_config=dict(
                QWEN, hidden_size=32, intermediate_size=52, out_hidden_size=48, window_size=8, fullatt_block_indexes=[1],
            ),
            **QWEN_TOKENS,
        ),
        [[6, 8], [4, 2]],
    ),
    # More places than were learned down, fewer across.
    "qwen3-vl": (
        "qwen3_vl",
        dict(
            text_config=dict(
                TEXT, num_hidden_layers=3, head_dim=16,
                rope_scaling=dict(rope_type="default", mrope_section=[4, 2, 2], mrope_interleaved=True),
            ),
            vision_config=dict(
                QWEN, hidden_size=24, intermediate_size=44, out_hidden_size=48, num_position_embeddings=25,
                deepstack_visual_indexes=[0, 1],
            ),
            **QWEN_TOKENS,
        ),
        [[6, 4], [2, 4]],
    ),
    # A layer without experts behind one that has some.
    "qwen3-vl-moe": (
        "qwen3_vl_moe",
        dict(
            text_config=dict(
                TEXT, head_dim=12, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=20, mlp_only_layers=[1],
                rope_scaling=dict(rope_type="default", mrope_section=[2, 2, 2]),
            ),
            vision_config=dict(
                QWEN, depth=2, hidden_size=24, intermediate_size=44, out_hidden_size=48, num_position_embeddings=9,
                deepstack_visual_indexes=[1],
            ),
            **QWEN_TOKENS,
        ),
        [[2, 6]],
    ),
    # Layers with states, and one whose heads turn in part by places.
    "qwen3.5": (
        "qwen3_5",
        dict(
            text_config=dict(
                TEXT, num_hidden_layers=3, head_dim=24, full_attention_interval=2, partial_rotary_factor=0.5,
                linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
                rope_scaling=dict(rope_type="default", mrope_section=[2, 2, 2]), attn_implementation="eager",
            ),
            vision_config=dict(
                QWEN, depth=2, hidden_size=24, intermediate_size=44, out_hidden_size=48, num_position_embeddings=16,
                attn_implementation="eager",
            ),
            **QWEN_TOKENS,
        ),
        [[2, 4], [4, 4]],
    ),
    "mistral3": (
        "mistral3",
        dict(
            text_config=dict(TEXT, model_type="mistral", head_dim=16, sliding_window=None),
            vision_config=dict(PIXTRAL, image_size=32), spatial_merge_size=2, image_token_index=IMAGE,
        ),
        [[4, 6], [6, 2]],
    ),
    # Heads of seven pairs, of which four turn by row.
    "pixtral": (
        "llava",
        dict(
            text_config=dict(TEXT, model_type="mistral", sliding_window=9),
            vision_config=dict(PIXTRAL, hidden_size=28, image_size=20, rope_theta=500.0), image_token_index=IMAGE,
            vision_feature_layer=-1, vision_feature_select_strategy="full",
        ),
        [[2, 5], [3, 1]],
    ),
    # More patches than places.
    "smolvlm": (
        "smolvlm",
        dict(
            text_config=dict(TEXT, model_type="llama"), vision_config=dict(SIGLIP, image_size=16), scale_factor=2,
            image_token_id=IMAGE,
        ),
        [[6, 6], [6, 6]],
    ),
    "idefics3": (
        "idefics3",
        dict(
            text_config=dict(TEXT, model_type="llama", tie_word_embeddings=True),
            vision_config=dict(SIGLIP, image_size=36, layer_norm_eps=1e-4), scale_factor=3, image_token_id=IMAGE,
            tie_word_embeddings=True,
        ),
        [[9, 9]],
    ),
    "llava": (
        "llava",
        dict(
            text_config=dict(TEXT, model_type="llama"),
            vision_config=dict(SIGLIP, model_type="clip_vision_model", image_size=12, num_hidden_layers=3, layer_norm_eps=1e-4),
            image_token_index=IMAGE,
        ),
        [[3, 3], [3, 3]],
    ),
    "internvl": (
        "internvl",
        dict(
            text_config=dict(TEXT, model_type="qwen2"),
            vision_config=dict(SIGLIP, image_size=[16, 16], patch_size=[4, 4], attention_bias=True, layer_norm_eps=1e-4),
            image_token_id=IMAGE,
        ),
        [[4, 4], [4, 4]],
    ),
    # All that the largest one has on.
    "internvl-norms": (
        "internvl",
        dict(
            text_config=dict(TEXT, model_type="qwen3", head_dim=16),
            vision_config=dict(
                SIGLIP, hidden_size=24, image_size=[16, 16], patch_size=[4, 4], norm_type="rms_norm", use_qk_norm=True,
                use_mean_pooling=False,
            ),
            image_token_id=IMAGE, downsample_ratio=0.25, projector_hidden_act="gelu_pytorch_tanh",
        ),
        [[4, 4]],
    ),
}


def build(name):
    """The model of that name, its weights still transformers' own."""
    model_type, settings, _ = MODELS[name]
    if model_type == "qwen3_5":
        return qwen3_5.Qwen3_5ForConditionalGeneration(qwen3_5.Qwen3_5Config(**settings)).eval()
    config = AutoConfig.for_model(model_type, **settings)
    model = AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval()
    if model_type in ["smolvlm", "idefics3"]:
        embeddings = model.model.vision_model.embeddings
        embeddings.forward = types.MethodType(stretched, embeddings)
    return model


def stretched(self, pixel_values, patch_attention_mask):
    """What SmolVLM's and Idefics3's towers begin with, as transformers has it from version 5 on. In 4.57 the first two patches of a row and of a column
    have one place, which those have not whom the models were trained with. What is computed so was compared once with 5.24's own classes."""
    x = self.patch_embedding(pixel_values)
    n, side = x.shape[-1], self.num_patches_per_side
    bucket = torch.arange(n) * side // n
    return x.flatten(2).transpose(1, 2) + self.position_embedding((bucket[:, None] * side + bucket).flatten())


def patch_len(config):
    """How many numbers a patch is."""
    c = config.vision_config
    channels = getattr(c, "in_channels", None) or c.num_channels
    size = c.patch_size if isinstance(c.patch_size, int) else c.patch_size[0]
    return channels * getattr(c, "temporal_patch_size", 1) * size * size


def picture(patches, grid, config):
    """The patches side by side. [n, patch_len] -> [channels, height, width]"""
    c = config.vision_config
    size = c.patch_size if isinstance(c.patch_size, int) else c.patch_size[0]
    x = torch.from_numpy(patches).reshape(*grid, c.num_channels, size, size)
    return x.permute(2, 0, 3, 1, 4).reshape(c.num_channels, grid[0] * size, grid[1] * size)


def shown(model, images, grids):
    """What transformers' model takes for images."""
    kind = model.config.model_type
    if kind.startswith("qwen"):
        grid = torch.tensor([[1, *grid] for grid in grids])
        return dict(pixel_values=torch.from_numpy(numpy.concatenate(images)), image_grid_thw=grid)
    pictures = [picture(*image, model.config) for image in zip(images, grids)]
    if model.config.vision_config.model_type == "pixtral":
        sizes = torch.tensor([of.shape[1:] for of in pictures])
        height, width = sizes.max(dim=0).values.tolist()
        padded = [functional.pad(of, (0, width - of.shape[2], 0, height - of.shape[1])) for of in pictures]
        return dict(pixel_values=torch.stack(padded), image_sizes=sizes)
    if kind in ["smolvlm", "idefics3"]:
        return dict(pixel_values=torch.stack(pictures)[None])
    return dict(pixel_values=torch.stack(pictures))


def rows_of(model, images, grids):
    """What the tower makes of each image: its rows, and what is added to them behind the first blocks."""
    given = shown(model, images, grids)
    rows = model.model.get_image_features(**given)
    rows, deeper = rows if isinstance(rows, tuple) and isinstance(rows[1], list) else (rows, [])
    ends = numpy.cumsum([len(of) for of in rows])[:-1].tolist()
    return list(rows), list(zip(*[numpy.split(of.numpy(), ends) for of in deeper])) or [()] * len(images)


def prompt(generator, rows, cols):
    """Ids of a text with all images in it, and what stands where: the first token, the image, its first row and the first that does not stand there.
    With `cols` a token stands behind each so many rows of an image, as Pixtral's prompts have it."""
    text = lambda n: generator.integers(3, TEXTS, size=n).tolist()
    ids, at = text(5), []
    for image, of in enumerate(rows):
        ids.append(BEFORE)
        each = cols[image] if cols else len(of)
        for first in range(0, len(of), each):
            at.append([len(ids), image, first, first + each])
            ids += [IMAGE] * each + [BEHIND]
        ids += text(3)
    return ids, at


def show(model, name, generator, out):
    """Saves images, rows and logits, and gives what `golden.json` says of them."""
    grids = MODELS[name][2]
    draw = lambda n: generator.integers(-32768, 32768, size=(n, patch_len(model.config)), dtype=numpy.int32)
    images = [(draw(h * w) / numpy.float32(32768)).astype(numpy.float32) for h, w in grids]
    with torch.no_grad():
        rows, deeper = rows_of(model, images, grids)
    golden = dict(images=[], cases=[])
    for i, (patches, grid) in enumerate(zip(images, grids)):
        entry = dict(grid=grid, patches=f"patches_{i}.npy", rows=f"rows_{i}.npy")
        numpy.save(out / entry["patches"], patches)
        numpy.save(out / entry["rows"], rows[i].numpy())
        entry["deeper"] = [f"deeper_{i}_{layer}.npy" for layer in range(len(deeper[i]))]
        for file, values in zip(entry["deeper"], deeper[i]):
            numpy.save(out / file, values)
        golden["images"].append(entry)
    pixtral = model.config.vision_config.model_type == "pixtral"
    size = getattr(model.config, "spatial_merge_size", 1)
    ids, at = prompt(generator, rows, [grid[1] // size for grid in grids] if pixtral else None)
    given = shown(model, images, grids)
    if model.config.model_type == "gemma3":
        given["token_type_ids"] = (torch.tensor([ids]) == IMAGE).int()
    text = generator.integers(3, TEXTS, size=14).tolist()
    for case, ids, at, given in [("images", ids, at, given), ("text", text, [], {})]:
        # Without a mask, a prompt whose positions do not count up would be taken for several texts.
        ids_of = torch.tensor([ids])
        with torch.no_grad():
            logits = model(input_ids=ids_of, attention_mask=torch.ones_like(ids_of), use_cache=False, **given).logits[0]
        golden["cases"].append(dict(name=case, ids=ids, images=at, logits=f"logits_{case}.npy"))
        numpy.save(out / f"logits_{case}.npy", logits.numpy())
    return golden
