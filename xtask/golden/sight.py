"""From an image file and a text to logits: what transformers' processors and models make of them, for `crates/ogive/tests/vision.rs`.

Run by hand, from the repository's root, with the versions of `requirements.txt` and these besides:

    jinja2==3.1.6 pillow==13.0.0 torch==2.11.0 torchvision==0.26.0

    python xtask/golden/sight.py              # every model below, or NAME...

The models are those that `vision.py` describes, with the weights that are in `crates/ogive-models/tests/vision`. Each gets a vocabulary of its size (ASCII,
a few merges, the family's special tokens where its settings have them), its family's processor at its own sizes and a chat template in the family's manner, and
`save_pretrained` writes them: what is read are files as transformers makes them. `cases.json` has texts and conversations, their ids, and
where the logits of their last tokens are.
"""

import os

# As in make.py, but with all instructions: torch's kernels for 8-bit images, by which processors are held to, want AVX2 (see images.py).
# So last bits of logits may be a machine's own.
os.environ["MKL_CBWR"] = "COMPATIBLE"

import json
import pathlib
import sys

if sys.platform == "linux":
    sys.setdlopenflags(os.RTLD_LAZY | os.RTLD_GLOBAL)

import numpy
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast
from transformers.image_utils import load_image
from transformers.models.smolvlm import processing_smolvlm

import vision
from vision import BEFORE, BEHIND, FILM, IMAGE, VOCAB

torch.set_num_threads(1)
torch.backends.mkldnn.enabled = False

WEIGHTS, OUT = pathlib.Path("crates/ogive-models/tests/vision"), pathlib.Path("crates/ogive/tests/vision")
IMAGES = pathlib.Path("crates/ogive-vision/tests/data")
# Tokens whose logits are kept, and the most that a text has.
LAST, MOST = 4, 200

# It asks for a package for numbers in words, which only texts about films have.
processing_smolvlm.num2words = True


# Vocabularies ---------------------------------------------------------------------------------------------------------

# Byte-level BPE writes a space and a line's end so.
MERGES = ["Ċ Ċ", "t h", "th e", "Ġ the", "i s"]
ASCII = ["Ċ", "Ġ", *map(chr, range(33, 127))]


def vocabulary(names, begins, special):
    """A tokenizer whose special tokens are `names`, by their ids. `begins`: texts begin with the token 1."""
    made = ASCII + [merge.replace(" ", "") for merge in MERGES]
    free = iter([i for i in range(VOCAB) if i not in names])
    vocab = {name: i for i, name in names.items()} | {text: next(free) for text in made}
    vocab |= {f"<unused{i}>": i for i in free}
    token = lambda i: dict(id=i, content=names[i], single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    bytes_of = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    text, first = dict(Sequence=dict(id="A", type_id=0)), names[1]
    begin = dict(
        type="TemplateProcessing", single=[dict(SpecialToken=dict(id=first, type_id=0)), text], pair=[text, text],
        special_tokens={first: dict(id=first, ids=[1], tokens=[first])},
    )
    model = dict(
        type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False,
        byte_fallback=False, ignore_merges=False, vocab=vocab, merges=MERGES,
    )
    made = dict(
        version="1.0", truncation=None, padding=None, added_tokens=[token(i) for i in sorted(names)], normalizer=None,
        pre_tokenizer=bytes_of, post_processor=begin if begins else bytes_of, decoder=bytes_of, model=model,
    )
    own = dict(bos_token=names[1]) if begins else {}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(made)), pad_token=names[0], eos_token=names[2], extra_special_tokens=special, **own
    )


# Templates ------------------------------------------------------------------------------------------------------------


def turns(begin, head, image, end, ask, text="part.text", parts_only=False):
    """A template: what stands before all, before a message, for an image and behind a message, and what asks for an answer, all of them expressions."""
    parts = f"{{% for part in message.content %}}{{{{ {image} if part.type == 'image' else {text} }}}}{{% endfor %}}"
    if not parts_only:
        whole = text.replace("part.text", "message.content")
        parts = f"{{% if message.content is string %}}{{{{ {whole} }}}}{{% else %}}{parts}{{% endif %}}"
    message = f"{{{{ {head} }}}}{parts}{{{{ {end} }}}}"
    asked = f"{{% if add_generation_prompt %}}{{{{ {ask} }}}}{{% endif %}}"
    return f"{{{{ {begin} }}}}{{% for message in messages %}}{message}{{% endfor %}}{asked}"


USER = "message.role == 'user'"
CHATML = "'<|im_start|>' ~ message.role ~ '\\n'"
TEMPLATES = dict(
    gemma=turns(
        "bos_token", "'<start_of_turn>' ~ ('model' if message.role == 'assistant' else message.role) ~ '\\n'", "'<start_of_image>'",
        "'<end_of_turn>\\n'", "'<start_of_turn>model\\n'", text="part.text | trim",
    ),
    qwen=turns("''", CHATML, "'<|vision_start|><|image_pad|><|vision_end|>'", "'<|im_end|>\\n'", "'<|im_start|>assistant\\n'"),
    mistral=turns("bos_token", f"'[INST]' if {USER} else ''", "'[IMG]'", f"'[/INST]' if {USER} else eos_token", "''"),
    # Whose users speak behind a space, unless they show something.
    idefics=turns(
        "bos_token", "message.role | capitalize ~ (':' if message.content[0].type == 'image' else ': ')", "'<image>'",
        "'<end_of_utterance>\\n'", "'Assistant:'", parts_only=True,
    ),
    smolvlm=turns(
        "'<|im_start|>'", "message.role | capitalize ~ (':' if message.content[0].type == 'image' else ': ')", "'<image>'",
        "'<end_of_utterance>\\n'", "'Assistant:'", parts_only=True,
    ),
    internvl=turns("''", CHATML, "'<IMG_CONTEXT>\\n'", "'<|im_end|>\\n'", "'<|im_start|>assistant\\n'"),
    llava=turns("bos_token", "message.role | upper ~ ': '", "'<image>\\n'", f"' ' if {USER} else eos_token", "'ASSISTANT:'"),
)


# Families -------------------------------------------------------------------------------------------------------------

CLIP = dict(image_mean=[0.48145466, 0.4578275, 0.40821073], image_std=[0.26862954, 0.26130258, 0.27577711])
IMAGENET = dict(image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225])
HALVES = dict(image_mean=[0.5, 0.5, 0.5], image_std=[0.5, 0.5, 0.5])


class Family:
    """What the models of one processor have in common. `special`: tokens that the tokenizer has by a name of their own."""

    def __init__(self, processor, image, tokens, template, marker, begins=True, special={}, film=None):
        self.processor, self.image, self.template, self.marker, self.begins = processor, image, template, marker, begins
        self.tokens, self.special, self.film = tokens, special, film

    def make(self, image, processor):
        """The processor, with the settings of its image processor and its own."""
        names = {0: "<pad>", 1: "<s>", 2: "</s>"} | self.tokens
        special = {key: names[i] for key, i in self.special.items()}
        parts = dict(
            image_processor=getattr(transformers, self.image)(**image), tokenizer=vocabulary(names, self.begins, special),
            chat_template=TEMPLATES[self.template],
        )
        if self.film:
            parts["video_processor"] = getattr(transformers, self.film)()
        cls = getattr(transformers, self.processor)
        # A vocabulary of one's own is of no family's class.
        cls.check_argument_for_proper_class = lambda self, name, part: type(part)
        return cls(**parts, **processor)


CHATML_TOKENS = {2: "<|im_end|>", 126: "<|im_start|>"}
QWEN_TOKENS = CHATML_TOKENS | {IMAGE: "<|image_pad|>", FILM: "<|video_pad|>", BEFORE: "<|vision_start|>", BEHIND: "<|vision_end|>"}
IDEFICS_TOKENS = {2: "<end_of_utterance>", IMAGE: "<image>", BEFORE: "<fake_token_around_image>"}

GEMMA3 = Family(
    "Gemma3Processor", "Gemma3ImageProcessorFast",
    {1: "<bos>", 2: "<end_of_turn>", IMAGE: "<image_soft_token>", BEFORE: "<start_of_image>", BEHIND: "<end_of_image>", 126: "<start_of_turn>"},
    "gemma", "<start_of_image>", special=dict(image_token=IMAGE, boi_token=BEFORE, eoi_token=BEHIND),
)
QWEN2 = Family(
    "Qwen2VLProcessor", "Qwen2VLImageProcessorFast", QWEN_TOKENS, "qwen", "<|vision_start|><|image_pad|><|vision_end|>", begins=False,
    film="Qwen2VLVideoProcessor",
)
QWEN25 = Family("Qwen2_5_VLProcessor", QWEN2.image, QWEN_TOKENS, "qwen", QWEN2.marker, begins=False, film=QWEN2.film)
QWEN3 = Family("Qwen3VLProcessor", QWEN2.image, QWEN_TOKENS, "qwen", QWEN2.marker, begins=False, film="Qwen3VLVideoProcessor")
PIXTRAL = Family(
    "PixtralProcessor", "PixtralImageProcessorFast",
    {IMAGE: "[IMG]", BEFORE: "[IMG_BREAK]", BEHIND: "[IMG_END]", 126: "[INST]", 125: "[/INST]"}, "mistral", "[IMG]",
)
# Its squares are named in plain text, and SmolVLM's by tokens.
IDEFICS3 = Family("Idefics3Processor", "Idefics3ImageProcessorFast", IDEFICS_TOKENS, "idefics", "<image>")
SMOLVLM = Family(
    "SmolVLMProcessor", "SmolVLMImageProcessorFast",
    IDEFICS_TOKENS | {1: "<|im_start|>", 126: "<global-img>", 125: "<row_1_col_1>", 124: "<row_1_col_2>", 123: "<row_2_col_1>", 122: "<row_2_col_2>"},
    "smolvlm", "<image>", begins=False, film="SmolVLMVideoProcessor",
)
INTERNVL = Family(
    "InternVLProcessor", "GotOcr2ImageProcessorFast",
    CHATML_TOKENS | {IMAGE: "<IMG_CONTEXT>", FILM: "<video>", BEFORE: "<img>", BEHIND: "</img>"}, "internvl", "<IMG_CONTEXT>\n", begins=False,
    special=dict(context_image_token=IMAGE, video_token=FILM, start_image_token=BEFORE, end_image_token=BEHIND), film="InternVLVideoProcessor",
)
LLAVA = Family("LlavaProcessor", "CLIPImageProcessorFast", {IMAGE: "<image>"}, "llava", "<image>\n")


def squares(side):
    return dict(size=dict(height=side, width=side))


def qwen(least, most):
    return dict(min_pixels=least, max_pixels=most, patch_size=2, merge_size=2, temporal_patch_size=2)


# Family, settings of the image processor and of the processor, and two images. Those of SmolVLM and Idefics 3, which resize in single precision, are such
# that no level is rounded otherwise by `ogive-vision`.
MODELS = {
    "gemma3": (GEMMA3, dict(squares(24), resample=2, **HALVES), dict(image_seq_length=9), ["noise", "wide"]),
    "qwen2-vl": (QWEN2, dict(qwen(32, 320), **CLIP), {}, ["smooth", "noise"]),
    "qwen2.5-vl": (QWEN25, dict(qwen(64, 256), **CLIP), {}, ["tall", "smooth"]),
    "qwen3-vl": (QWEN3, dict(size=dict(shortest_edge=64, longest_edge=256), patch_size=2, merge_size=2, **HALVES), {}, ["noise", "alpha"]),
    "mistral3": (
        PIXTRAL, dict(size=dict(longest_edge=32), patch_size=4, **CLIP), dict(patch_size=4, spatial_merge_size=2), ["smooth", "grey"],
    ),
    "pixtral": (PIXTRAL, dict(size=dict(longest_edge=16), patch_size=dict(height=4, width=4), **CLIP), dict(patch_size=4), ["smooth", "noise"]),
    "smolvlm": (
        SMOLVLM, dict(size=dict(longest_edge=48), max_image_size=dict(longest_edge=24), resample=1, **HALVES), dict(image_seq_len=9), ["wide", "palette"],
    ),
    "idefics3": (
        IDEFICS3, dict(size=dict(longest_edge=72), max_image_size=dict(longest_edge=36), resample=1, **HALVES), dict(image_seq_len=9), ["wide", "tall"],
    ),
    "llava": (
        LLAVA, dict(size=dict(shortest_edge=12), crop_size=dict(height=12, width=12), do_center_crop=True, **CLIP),
        dict(patch_size=4, vision_feature_select_strategy="default", num_additional_image_tokens=1), ["smooth", "tall"],
    ),
    "internvl": (INTERNVL, dict(squares(16), max_patches=3, min_patches=1, resample=3, **IMAGENET), dict(image_seq_length=4), ["smooth", "tall"]),
    "internvl-norms": (INTERNVL, dict(squares(16), max_patches=6, min_patches=1, resample=3, **IMAGENET), dict(image_seq_length=1), ["large", "noise"]),
}


# What they make of images and texts -----------------------------------------------------------------------------------


def filled(name):
    """The model, with the weights that were saved of it."""
    model = vision.build(name)
    found = model.load_state_dict({key: value.float() for key, value in load_file(WEIGHTS / name / "model.safetensors").items()}, strict=False)
    assert not found.unexpected_keys and set(found.missing_keys) <= set(model._tied_weights_keys or []), found
    model.tie_weights()
    return model


def conversation(images):
    """Two turns, of which the first shows the images. [messages of the first, messages of both]"""
    shown = [dict(type="image", image=load_image(str(IMAGES / image))) for image in images]
    said = lambda role, text, shown=[]: dict(role=role, content=shown + [dict(type="text", text=text)])
    first = [said("user", "What is this?", shown)]
    return [first, first + [said("assistant", "Ok."), said("user", "the end")]]


def make(name):
    family, image, processor, images = MODELS[name]
    out = OUT / name
    out.mkdir(parents=True, exist_ok=True)
    for old in out.iterdir():
        old.unlink()
    processor = family.make(image, processor)
    processor.save_pretrained(out)
    # For films, and what is in tokenizer.json.
    for more in ["video_preprocessor_config.json", "special_tokens_map.json"]:
        (out / more).unlink(missing_ok=True)
    model, cases = filled(name), []

    def keep(case, given, **more):
        with torch.no_grad():
            logits = model(**given, use_cache=False).logits[0]
        ids = given["input_ids"][0].tolist()
        assert len(ids) <= MOST and max(ids) < VOCAB and len(processor.tokenizer) == VOCAB, (name, case, len(ids))
        cases.append(dict(name=case, **more, ids=ids, logits=f"logits_{case}.npy"))
        numpy.save(out / cases[-1]["logits"], logits[-LAST:].numpy())

    images = [f"{image}.png" for image in images]
    texts = [("one", f"Look: {family.marker}it is", images[:1]), ("two", f"{family.marker} is the {family.marker}\n\nof the", images)]
    for case, text, shown in texts:
        files = [load_image(str(IMAGES / image)) for image in shown]
        keep(case, processor(images=[files], text=[text], return_tensors="pt"), text=text, images=shown)
    for case, messages in zip(["asked", "asked_on"], conversation(images[:1])):
        given = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt")
        keep(case, given, images=images[:1])
    versions = dict(torch=torch.__version__.split("+")[0], transformers=transformers.__version__)
    lines = ",\n".join(json.dumps(case) for case in cases)
    (out / "cases.json").write_text(f'{{"made_by": "xtask/golden/sight.py", "versions": {json.dumps(versions)}, "cases": [\n{lines}\n]}}\n')
    size = sum(file.stat().st_size for file in out.iterdir())
    print(f"{name:16} {size / 1024:5.1f} KB, {[len(case['ids']) for case in cases]} tokens")
    if size > 100 * 1024:
        sys.exit(f"{name}: more than 100 KB, which is what the repository takes")


for name in sys.argv[1:] or MODELS:
    make(name)
