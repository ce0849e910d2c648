"""Small images, and what transformers' processors make of them: what `crates/ogive-vision` is tested with.

Run by hand, from the repository's root, with the versions of `requirements.txt` and these besides:

    pillow==13.0.0 torch==2.11.0 torchvision==0.26.0

    python xtask/golden/images.py          # writes crates/ogive-vision/tests/data
    python xtask/golden/images.py FOLDER   # and all levels of every tile, a byte each, into a folder that is there

Processors are the ones on torchvision ("fast"). torch's kernels for 8-bit images are taken where there is AVX2, and only those round as they are said to.
Of values there are, for each tile, a sum and a checksum over all levels, some levels (what a pixel had before it was normalised) and some
values, at places that the test computes itself. Texts are written as pieces and how often they stand there. The seed is fixed, so the same versions give the
same files.
"""

import json
import os
import re
import struct
import sys
import zlib

import numpy as np
import PIL.Image as Pillow
import torch
import torchvision
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.image_utils import load_image

OUT = "crates/ogive-vision/tests/data"
rng = np.random.default_rng(7)


# Images ---------------------------------------------------------------------------------------------------------------


def smooth(width, height):
    """Slopes, one in each channel. [height, width, 3]"""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([x * 255 // max(width - 1, 1), y * 255 // max(height - 1, 1), (x + y) * 3 % 256], -1).astype(np.uint8)


def edges(width, height):
    """Stripes and boxes at full contrast, where filters overshoot. [height, width, 3]"""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([x // 3 % 2, (x // 8 + y // 5) % 2, y // 2 % 2], -1).astype(np.uint8) * 255


def noise(*shape):
    return rng.integers(0, 256, shape).astype(np.uint8)


def png(width, height, depth, colour, lines):
    """A PNG file of lines of bytes, for what Pillow does not write."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + line for line in lines), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def write_images():
    def save(name, image, **how):
        image.save(f"{OUT}/{name}", **how)

    for name, pixels in [
        ("smooth", smooth(200, 133)),
        ("noise", noise(47, 61, 3)),
        ("large", edges(1203, 801)),
        ("wide", edges(900, 23)),
        ("tall", edges(19, 700)),
        ("dot", noise(1, 1, 3)),
    ]:
        save(f"{name}.png", Pillow.fromarray(pixels), optimize=True)
    save("alpha.png", Pillow.fromarray(noise(15, 20, 4)))
    save("grey.png", Pillow.fromarray(noise(15, 20)))
    save("grey-alpha.png", Pillow.fromarray(noise(15, 20, 2)))
    save("bits.png", Pillow.fromarray(noise(15, 20) > 127))
    palette = Pillow.fromarray(smooth(40, 30)).quantize(30)
    save("palette.png", palette, transparency=3)
    deep = rng.integers(0, 65536, (15, 20, 3)).astype(">u2")
    with open(f"{OUT}/deep.png", "wb") as file:
        file.write(png(20, 15, 16, 2, [line.tobytes() for line in deep]))
    photo = Pillow.fromarray(smooth(96, 64))
    turned = Pillow.Exif()
    turned[0x0112] = 6
    save("turned.jpg", photo, quality=90, exif=turned)
    save("grey.jpg", photo.convert("L"), quality=85)
    save("full.jpg", photo, quality=95, subsampling=0, progressive=True)
    save("lossy.webp", photo, quality=80)
    save("lossless.webp", Pillow.fromarray(noise(15, 20, 3)), lossless=True)


def decoded(name):
    pixels = np.asarray(load_image(f"{OUT}/{name}"))
    flat = pixels.reshape(-1)
    return dict(file=name, width=pixels.shape[1], height=pixels.shape[0], **summary(flat, 100))


# What is kept of many values ------------------------------------------------------------------------------------------


def places(count, length):
    return [i * 2654435761 % length for i in range(count)]


def summary(levels, count):
    """Of all levels the sum and a sum with odd weights, modulo 2^64; of some the levels themselves."""
    levels = levels.astype(np.uint64)
    odd = np.arange(len(levels), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) | np.uint64(1)
    check = int(((levels + np.uint64(1)) * odd).sum(dtype=np.uint64))
    return dict(sum=int(levels.sum()), check=f"{check:016x}", levels=[int(levels[i]) for i in places(count, len(levels))])


# Processors -----------------------------------------------------------------------------------------------------------


class Reader(PreTrainedTokenizerFast):
    """A vocabulary of single bytes and a family's special tokens, which keeps the text that a processor made."""

    def __call__(self, text, **how):
        self.made = text[0]
        return super().__call__(text, **how)


def reader(tokens):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    vocabulary.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made = Reader(tokenizer_object=vocabulary, extra_special_tokens=tokens)
    made.add_special_tokens(dict(additional_special_tokens=list(tokens.values())))
    return made


def planes(pixels, patch):
    """Patches of [tiles, 3, height, width] as a convolution's weight has them: a list of grid, [patches, 3, patch * patch]."""
    tiles, _, height, width = pixels.shape
    rows, columns = height // patch, width // patch
    cut = pixels[:, :, : rows * patch, : columns * patch].reshape(tiles, 3, rows, patch, columns, patch)
    cut = cut.permute(0, 2, 4, 1, 3, 5).reshape(tiles, rows * columns, 3, patch * patch)
    return [([rows, columns], tile) for tile in cut]


class Family:
    """How a family's processor is made and called, and its outcome as tiles: grids, and patches as [patches, 3, pixels of all frames]."""

    def __init__(self, image_class, processor_class, tokens, marker, patches, video=None):
        self.image_class, self.processor_class, self.tokens, self.marker = image_class, processor_class, tokens, marker
        self.patches, self.video = patches, video

    def run(self, settings, processor, patch, image, more):
        image_processor = getattr(transformers, self.image_class)(**settings)
        tokenizer = reader(self.tokens)
        parts = dict(image_processor=image_processor, tokenizer=tokenizer)
        if self.video:
            parts["video_processor"] = object()
        cls = getattr(transformers, self.processor_class)
        cls.check_argument_for_proper_class = lambda self, name, part: type(part)
        made = cls(**parts, **processor)(images=[[image]] if self.video is None else [image], text=[self.marker], return_tensors="pt", **more)
        mean, std = image_processor.image_mean, image_processor.image_std
        return tokenizer.made, self.patches(made, patch), mean, std


def squares(made, patch):
    return planes(made["pixel_values"].reshape(-1, 3, *made["pixel_values"].shape[-2:]), patch)


def qwen(made, _):
    _, rows, columns = made["image_grid_thw"][0].tolist()
    return [([rows, columns], made["pixel_values"].reshape(rows * columns, 3, -1))]


def lfm2(made, _):
    tiles = zip(made["pixel_values"], made["spatial_shapes"].tolist())
    return [(shape, tile[: shape[0] * shape[1]].reshape(shape[0] * shape[1], -1, 3).transpose(1, 2)) for tile, shape in tiles]


GEMMA3 = Family(
    "Gemma3ImageProcessorFast", "Gemma3Processor",
    dict(boi_token="<start_of_image>", eoi_token="<end_of_image>", image_token="<image_soft_token>"), "<start_of_image>", squares,
)
QWEN = Family("Qwen2VLImageProcessorFast", "Qwen2VLProcessor", dict(image_token="<|image_pad|>", video_token="<|video_pad|>"), "<|image_pad|>", qwen, video=True)
PIXTRAL = Family(
    "PixtralImageProcessorFast", "PixtralProcessor", dict(image_token="[IMG]", image_break_token="[IMG_BREAK]", image_end_token="[IMG_END]"), "[IMG]", squares,
)
IDEFICS3 = Family(
    "Idefics3ImageProcessorFast", "Idefics3Processor",
    dict(image_token="<image>", fake_image_token="<fake_token_around_image>", global_image_token="<global-img>"), "<image>", squares,
)
# Both have the same source, and the text of one is the other's; SmolVLM's own processor wants a package for numbers in words, of videos.
SMOLVLM = Family("SmolVLMImageProcessorFast", "Idefics3Processor", IDEFICS3.tokens, IDEFICS3.marker, squares)
INTERNVL = Family(
    "GotOcr2ImageProcessorFast", "InternVLProcessor",
    dict(start_image_token="<img>", end_image_token="</img>", context_image_token="<IMG_CONTEXT>", video_token="<video>"), "<IMG_CONTEXT>", squares, video=True,
)
LFM2 = Family(
    "Lfm2VlImageProcessorFast", "Lfm2VlProcessor",
    dict(image_token="<image>", image_start_token="<|image_start|>", image_end_token="<|image_end|>", image_thumbnail="<|img_thumbnail|>"), "<image>", lfm2,
)
LLAVA = Family("CLIPImageProcessorFast", "LlavaProcessor", dict(image_token="<image>"), "<image>", squares)
SIGLIP = Family("SiglipImageProcessorFast", "LlavaProcessor", dict(image_token="<image>"), "<image>", squares)


def rows_first(processor):
    """This version takes the grid's columns for its rows, and tells of tiles that are not there; transformers 5 puts it right."""
    crop = processor.crop_image_to_patches

    def right(*args, **how):
        tiles, columns, rows = crop(*args, **how)
        return tiles, rows, columns

    processor.crop_image_to_patches = right


rows_first(transformers.Lfm2VlImageProcessorFast)

CLIP = dict(image_mean=[0.48145466, 0.4578275, 0.40821073], image_std=[0.26862954, 0.26130258, 0.27577711])
IMAGENET = dict(image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225])
HALVES = dict(image_mean=[0.5, 0.5, 0.5], image_std=[0.5, 0.5, 0.5])
SIX = ["smooth", "noise", "large", "wide", "tall", "dot"]


def vision(model_type, patch, tower=None, **more):
    tower = dict(model_type=tower) if tower else {}
    return dict(model_type=model_type, vision_config=dict(patch_size=patch, **tower, **more))


# Name, family, config.json, preprocessor_config.json, processor_config.json, images, what the caller asks for.
CASES = [
    ("gemma3", GEMMA3, vision("gemma3", 14, image_size=224), dict(size=dict(height=224, width=224), resample=2, **HALVES), dict(image_seq_length=256), SIX, {}),
    (
        "gemma3-pan-and-scan", GEMMA3, vision("gemma3", 14), dict(
            size=dict(height=112, width=112), resample=2, do_pan_and_scan=True, pan_and_scan_min_crop_size=18, pan_and_scan_max_num_crops=4,
            pan_and_scan_min_ratio_to_activate=1.2, **HALVES,
        ), dict(image_seq_length=16), ["smooth", "noise", "wide", "tall"], "settings",
    ),
    ("qwen2", QWEN, vision("qwen2_vl", 14), dict(min_pixels=3136, max_pixels=301056, patch_size=14, merge_size=2, temporal_patch_size=2, **CLIP), {}, SIX, {}),
    ("qwen3", QWEN, vision("qwen3_vl", 16), dict(size=dict(shortest_edge=65536, longest_edge=16777216), patch_size=16, merge_size=2, **HALVES), {}, SIX, {}),
    ("mistral3", PIXTRAL, dict(vision("mistral3", 14), spatial_merge_size=2), dict(size=dict(longest_edge=560), patch_size=14, **CLIP), dict(patch_size=14, spatial_merge_size=2), SIX, {}),
    (
        "pixtral", PIXTRAL, vision("llava", 16, "pixtral"), dict(size=dict(longest_edge=320), patch_size=dict(height=16, width=16), **CLIP),
        dict(patch_size=16), ["smooth", "noise", "large", "dot"], {},
    ),
    ("smolvlm", SMOLVLM, dict(vision("smolvlm", 16), scale_factor=4), dict(size=dict(longest_edge=2048), max_image_size=dict(longest_edge=512), resample=1, **HALVES), dict(image_seq_len=64), ["smooth", "large"], {}),
    ("idefics3", IDEFICS3, dict(vision("idefics3", 14), scale_factor=2), dict(size=dict(longest_edge=336), max_image_size=dict(longest_edge=112), resample=1, **HALVES), dict(image_seq_len=16), SIX, {}),
    (
        "idefics3-whole", IDEFICS3, dict(vision("idefics3", 14), scale_factor=2), dict(
            size=dict(longest_edge=336), max_image_size=dict(longest_edge=112), resample=2, do_image_splitting=False, **HALVES,
        ), dict(image_seq_len=16), ["smooth", "noise"], {},
    ),
    ("internvl", INTERNVL, dict(vision("internvl", [14, 14]), downsample_ratio=0.5), dict(size=dict(height=112, width=112), max_patches=12, min_patches=1, resample=3, **IMAGENET), dict(image_seq_length=16), SIX, {}),
    ("lfm2", LFM2, vision("lfm2_vl", 16), dict(HALVES, resample=2), {}, SIX, {}),
    ("lfm2-few", LFM2, vision("lfm2_vl", 16), dict(
        HALVES, resample=2, min_image_tokens=16, max_image_tokens=64, tile_size=128, max_tiles=5, use_thumbnail=False,
    ), {}, ["large"], {}),
    ("llava", LLAVA, vision("llava", 14, "clip_vision_model"), dict(size=dict(shortest_edge=336), crop_size=dict(height=336, width=336), do_center_crop=True, **CLIP), dict(patch_size=14, vision_feature_select_strategy="default", num_additional_image_tokens=1), SIX, {}),
    ("llava-border", LLAVA, vision("llava", 14, "clip_vision_model"), dict(size=dict(shortest_edge=100), crop_size=dict(height=140, width=126), do_center_crop=True, **CLIP), dict(patch_size=14, vision_feature_select_strategy="full", num_additional_image_tokens=1), ["smooth", "noise"], {}),
    ("llava-siglip", SIGLIP, vision("llava", 14, "siglip_vision_model"), dict(size=dict(height=384, width=384), resample=3, **HALVES), dict(patch_size=14, vision_feature_select_strategy="full"), ["smooth"], {}),
]


def case(name, family, config, settings, processor, image, more):
    patch = config["vision_config"]["patch_size"]
    patch = patch[0] if isinstance(patch, list) else patch
    if more == "settings":
        more = {key: value for key, value in settings.items() if "pan_and_scan" in key}
    text, tiles, mean, std = family.run(dict(settings), processor, patch, load_image(f"{OUT}/{image}.png"), more)
    mean, std = (torch.tensor(v).reshape(1, 3, 1) * 255 for v in (mean, std))
    out = []
    for grid, patches in tiles:  # [patches, 3, pixels]
        levels = (patches * std + mean).round()
        assert ((levels - mean) / std - patches).abs().max() < 1e-5
        if family is LFM2:
            patches, levels = patches.transpose(1, 2), levels.transpose(1, 2)
        flat = patches.reshape(-1)
        values = [float(f"{flat[i].item():.9g}") for i in places(4, len(flat))]
        count = max(16, 320 // len(tiles))
        out.append(dict(grid=grid, patch_len=patches[0].numel(), values=values, **summary(levels.reshape(-1).numpy(), count)))
        if len(sys.argv) > 1:
            levels.reshape(-1).numpy().astype(np.uint8).tofile(f"{sys.argv[1]}/{name}-{image}-{len(out) - 1}")
    row = re.escape({"<start_of_image>": "<image_soft_token>"}.get(family.marker, family.marker))
    pieces = [piece for piece in re.split(f"((?:{row})+)", text) if piece]
    text = [[row_of(piece, row), len(piece) // len(row_of(piece, row))] for piece in pieces]
    return dict(name=name, image=f"{image}.png", config=config, settings=settings, processor=processor, text=text, tiles=out)


def row_of(piece, row):
    """The row token, if a piece is some of it; else the piece."""
    found = re.match(row, piece)
    return found.group(0) if found else piece


def main():
    os.makedirs(OUT, exist_ok=True)
    write_images()
    files = sorted(name for name in os.listdir(OUT) if not name.endswith(".json"))
    cases = [case(*known[:5], image, known[6]) for known in CASES for image in known[5]]
    versions = dict(transformers=transformers.__version__, torchvision=torchvision.__version__, pillow=Pillow.__version__)
    parts = [f'"versions":{json.dumps(versions)}']
    for key, entries in [("files", map(decoded, files)), ("cases", cases)]:
        lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries)
        parts.append(f'"{key}":[\n{lines}\n]')
    with open(f"{OUT}/reference.json", "w") as file:
        file.write("{" + ",\n".join(parts) + "}\n")


main()
