"""Vocabularies of encoders that are not BERT's: XLM-RoBERTa's pieces with scores, and RoBERTa's pairs of bytes.

The table of normalisations has the form that SentencePiece compiles its rules to (`builder.cc`, Darts-clone's double array): here of a
few of the rules that its `nmt_nfkc` has, made by the lines below, as the table of all would be larger than any of the models.
"""

import base64
import math
import struct
import unicodedata

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["the", "cat", "dog", "on", "mat", "tax", "like", "un", "s", "ing", "able", "2024", "кот", "猫", "座る"]

TEXTS = [
    "The cats sat on the mat.",
    "dogs, unlike cats, dislike  tax-forms!  ",
    "  ｃａｆｅ\u0301 cafe\u0301 Ａ\u0301 ①½ \ufb01ne \u2122",
    "猫座る、ねこのｶ\uff9e",
    " \t tabs\u00a0and\u2003spaces\u200b \x01\x07\ufffd\n",
    "</s> is no token here, <mask>  neither; don't",
    "unlikeable " + "x" * 20 + " " + "y" * 50,
    "кот \uac00\u1100\u1161\u11a8 \U0001f642\U0001f469\u200d\U0001f469 2024 \u2581 the",
    "",
]

# What BERT's relatives are asked.
QUERY = "cats on the mat?"
DOCUMENTS = ["The cats sat on the mat.", "a tax on dogs", "", "2024"]
# What Qwen3-Reranker is asked, by its model card: before and after what it is told, and what that is where nobody says.
ASKED = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer "
    'can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n'
)
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"


def rules():
    """Characters, or a letter with its accents, and what they become."""
    made = {c: " " for c in "\t\n\r\u00a0\u2003\u200b\u3000\u2581\ufffd"} | {c: "" for c in "\x01\x07"}
    wide = "".join(chr(0xff01 + i) for i in range(94)) + "①½ﬁ™ｶ"
    made |= {c: unicodedata.normalize("NFKC", c) for c in wide}
    for letter in "aeiounAEIOUN":
        for accent in "\u0300\u0301\u0303\u0308":
            composed = unicodedata.normalize("NFKC", letter + accent)
            made |= {letter + accent: composed} if len(composed) == 1 else {}
    return made | {s: unicodedata.normalize("NFKC", s) for s in ["\u1100\u1161\u11a8", "ｶ\uff9e", "か\u3099"]}


def charsmap(made):
    """The double array of these rules, and their texts behind it."""
    texts, places = b"", {}
    for text in sorted(set(made.values())):
        places[text] = len(texts)
        texts += text.encode() + b"\0"
    root = {}
    for key, text in made.items():
        node = root
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[0] = places[text]

    units, waiting = {0: 0}, [(root, 0, 0)]
    while waiting:
        node, at, label = waiting.pop(0)
        # Places are within a block of 256 units, and only those of node 0 may be at its beginning.
        base = next(b for b in range(1, 1 << 20) if all((b ^ byte) not in units for byte in node))
        units[at] = (at ^ base) << 10 | (0 in node) << 8 | label
        for byte, child in node.items():
            units[base ^ byte] = child | 1 << 31 if byte == 0 else 0
        waiting += [(child, base ^ byte, byte) for byte, child in node.items() if byte]
    size = (max(units) | 255) + 1
    # What nobody goes to has a label that is not asked for there.
    array = [units.get(i, 0) for i in range(size)]
    return struct.pack("<I", 4 * size) + struct.pack(f"<{size}I", *array) + texts


def added(tokens, vocab):
    flags = dict(single_word=False, rstrip=False, normalized=False, special=True)
    return [dict(id=vocab[t], content=t, lstrip="mask" in t.lower(), **flags) for t in tokens]


def unigram():
    """tokenizer.json as transformers' XLMRobertaTokenizerFast saves it, of so few pieces that most words are cut to letters."""
    mark = "\u2581"
    pieces = [mark] + [mark + w for w in WORDS] + WORDS + list(LETTERS) + list("0123456789.,;!?'-Aáéガ가각<>/") + ["TM", "1⁄2"]
    pieces = list(dict.fromkeys(pieces))
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    # As exact in single precision as those that are published.
    score = lambda i, piece: -round(1024 * math.log(2 + i)) / 1024 - (0.0 if len(piece) > 2 else 4.0)
    vocab = [[t, 0.0] for t in special] + [[p, score(i, p)] for i, p in enumerate(pieces)] + [["<mask>", 0.0]]
    ids = {piece: i for i, (piece, _) in enumerate(vocab)}
    token = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
    text = lambda name: {"Sequence": {"id": name, "type_id": 0}}
    single = [token("<s>"), text("A"), token("</s>")]
    precompiled = dict(type="Precompiled", precompiled_charsmap=base64.b64encode(charsmap(rules())).decode())
    metaspace = dict(type="Metaspace", replacement=mark, prepend_scheme="always", split=True)
    return dict(
        version="1.0", truncation=None, padding=None, added_tokens=added(special + ["<mask>"], ids),
        normalizer=precompiled,
        pre_tokenizer=dict(type="Sequence", pretokenizers=[dict(type="WhitespaceSplit"), metaspace]),
        post_processor=dict(
            type="TemplateProcessing", single=single, pair=single + [token("</s>"), text("B"), token("</s>")],
            special_tokens={t: dict(id=t, ids=[ids[t]], tokens=[t]) for t in ["<s>", "</s>"]},
        ),
        decoder=metaspace,
        model=dict(type="Unigram", unk_id=3, vocab=vocab, byte_fallback=False),
    )


def byte_pairs(special, post_processor, more=()):
    """tokenizer.json as transformers' RobertaTokenizerFast saves it, or as ModernBERT has it; with more pairs."""
    direct = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {b: chr(b) for b in direct} | {b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in direct)}
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("a", "t"), ("c", "at"), ("Ġ", "cat"), *more]
    tokens = special[:4] + [letters[b] for b in range(256)] + [a + b for a, b in merges] + special[4:]
    vocab = {token: i for i, token in enumerate(tokens)}
    byte_level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    return dict(
        version="1.0", truncation=None, padding=None, added_tokens=added(special, vocab), normalizer=None,
        pre_tokenizer=byte_level, decoder=byte_level,
        post_processor=post_processor,
        model=dict(
            type="BPE", dropout=None, unk_token=None, continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False,
            byte_fallback=False, ignore_merges=False, vocab=vocab, merges=[list(pair) for pair in merges],
        ),
    )


def roberta():
    processor = dict(type="RobertaProcessing", sep=["</s>", 2], cls=["<s>", 0], trim_offsets=True, add_prefix_space=False)
    return byte_pairs(["<s>", "<pad>", "</s>", "<unk>", "<mask>"], processor)


def modern_bert():
    """Between texts one token, and types that the model does not have."""
    token = lambda name, kind: {"SpecialToken": {"id": name, "type_id": kind}}
    text = lambda name, kind: {"Sequence": {"id": name, "type_id": kind}}
    single = [token("[CLS]", 0), text("A", 0), token("[SEP]", 0)]
    ids = {"[CLS]": 0, "[SEP]": 2}
    processor = dict(
        type="TemplateProcessing", single=single, pair=single + [text("B", 1), token("[SEP]", 1)],
        special_tokens={t: dict(id=t, ids=[i], tokens=[t]) for t, i in ids.items()},
    )
    return byte_pairs(["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"], processor)


def qwen():
    """Qwen's tokens around a turn, a thought, and answers of one token."""
    more = [("y", "e"), ("ye", "s"), ("n", "o"), ("Ġ", "D"), ("Ċ", "Ċ")]
    return byte_pairs(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"], None, more)


def gemma():
    """tokenizer.json as transformers' GemmaTokenizerFast saves it for EmbeddingGemma: bytes for what has no piece, and an end behind every text."""
    special, mark = ["<pad>", "<eos>", "<bos>", "<unk>"], "▁"
    merges = [("t", "h"), ("th", "e"), (mark, "the"), ("a", "t"), ("c", "at"), (mark, "cat"), (mark, mark)]
    letters = [mark, *"abcdefghijklmnopqrstuvwxyz.,!?'-é猫"]
    tokens = special + [f"<0x{b:02X}>" for b in range(256)] + [a + b for a, b in merges] + letters
    vocab = {token: i for i, token in enumerate(tokens)}
    token = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
    single = [token("<bos>"), {"Sequence": {"id": "A", "type_id": 0}}, token("<eos>")]
    pair = single + [token("<bos>"), {"Sequence": {"id": "B", "type_id": 1}}, token("<eos>")]
    replace = lambda old, new: dict(type="Replace", pattern={"String": old}, content=new)
    return dict(
        version="1.0", truncation=None, padding=None, added_tokens=added(special, vocab), normalizer=replace(" ", mark),
        pre_tokenizer=dict(type="Split", pattern={"String": " "}, behavior="MergedWithPrevious", invert=False),
        post_processor=dict(
            type="TemplateProcessing", single=single, pair=pair,
            special_tokens={t: dict(id=t, ids=[vocab[t]], tokens=[t]) for t in ["<bos>", "<eos>"]},
        ),
        decoder=dict(type="Sequence", decoders=[replace(mark, " "), dict(type="ByteFallback"), dict(type="Fuse")]),
        model=dict(
            type="BPE", dropout=None, unk_token="<unk>", continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=True,
            byte_fallback=True, ignore_merges=False, vocab=vocab, merges=[list(pair) for pair in merges],
        ),
    )


def config(kind):
    """tokenizer_config.json."""
    return dict(
        tokenizer_class=f"{kind}Tokenizer", bos_token="<s>", eos_token="</s>", unk_token="<unk>", sep_token="</s>", pad_token="<pad>",
        cls_token="<s>", mask_token="<mask>",
    )


# For each model: its tokenizer.json and what lies beside it.
MODERN = dict(
    tokenizer_class="PreTrainedTokenizerFast", unk_token="[UNK]", sep_token="[SEP]", pad_token="[PAD]", cls_token="[CLS]",
    mask_token="[MASK]",
)
VOCABULARIES = {
    "xlm-roberta": (unigram(), config("XLMRoberta")),
    "roberta": (roberta(), config("Roberta")),
    "modern-bert": (modern_bert(), MODERN),
    "embedding-gemma": (
        gemma(),
        dict(
            tokenizer_class="GemmaTokenizerFast", add_bos_token=True, add_eos_token=True, bos_token="<bos>", eos_token="<eos>",
            pad_token="<pad>", unk_token="<unk>",
        ),
    ),
}
VOCABULARIES["qwen3"] = (
    qwen(), dict(tokenizer_class="Qwen2Tokenizer", bos_token=None, eos_token="<|endoftext|>", pad_token="<|endoftext|>"),
)
QWEN_SIZE = len(VOCABULARIES["qwen3"][0]["model"]["vocab"])
GEMMA_SIZE = len(VOCABULARIES["embedding-gemma"][0]["model"]["vocab"])
