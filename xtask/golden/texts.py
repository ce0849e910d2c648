"""What an encoder's folder has besides its weights: a vocabulary of word pieces and sentence-transformers' settings.

The vocabulary is uncased as that of nearly all published encoders, small enough that most words are cut to letters, and
has a few words, pieces and signs, so that each rule of BERT's tokenizer has a text here on which it shows.
"""

import string

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["the", "cat", "dog", "on", "mat", "tax", "cafe", "un", "like", "2024"]
PIECES = ["##s", "##ing", "##ly", "##able", "##é", "##の"]
SIGNS = list(".,!?-'[]#") + ["猫", "座", "る", "、", "ß", "ё", "ⅷ", "한", "é"]

TEXTS = [
    "The cats sat on the mat.",
    "Dogs, unlike cats, DISLIKE tax-forms!",
    "café CAFÉ cafe\u0301 — Ёлка",
    "猫座る、ねこの",
    " \t tabs\u00a0and\u2003spaces\u200b \x00\x07\ufffd\n",
    "[CLS] is no token here, ##ing neither; don't",
    "unlikeable " + "x" * 100 + " " + "y" * 101,
    "Ⅷ straße 한국 \U0001f642 2024",
    "",
]


def vocabulary(size):
    letters = list(string.ascii_lowercase + string.digits)
    tokens = SPECIAL + SIGNS + WORDS + PIECES + letters + ["##" + c for c in letters[:26] if c != "s"]
    assert len(set(tokens)) == len(tokens) <= size, len(tokens)
    return tokens + [f"[unused{i}]" for i in range(size - len(tokens))]


def tokenizer(size):
    """tokenizer.json as transformers' BertTokenizerFast saves it."""
    vocab = {token: i for i, token in enumerate(vocabulary(size))}
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    sequence = lambda name, kind: {"Sequence": {"id": name, "type_id": kind}}
    special = lambda token, kind: {"SpecialToken": {"id": token, "type_id": kind}}
    single = [special("[CLS]", 0), sequence("A", 0), special("[SEP]", 0)]
    return dict(
        version="1.0", truncation=None, padding=None,
        added_tokens=[dict(id=vocab[t], content=t, **flags) for t in SPECIAL],
        normalizer=dict(
            type="BertNormalizer", clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True
        ),
        pre_tokenizer=dict(type="BertPreTokenizer"),
        post_processor=dict(
            type="TemplateProcessing", single=single, pair=single + [sequence("B", 1), special("[SEP]", 1)],
            special_tokens={t: dict(id=t, ids=[vocab[t]], tokens=[t]) for t in ["[CLS]", "[SEP]"]},
        ),
        decoder=dict(type="WordPiece", prefix="##", cleanup=True),
        model=dict(
            type="WordPiece", unk_token="[UNK]", continuing_subword_prefix="##", max_input_chars_per_word=100,
            vocab=vocab,
        ),
    )


TOKENIZER_CONFIG = dict(
    tokenizer_class="BertTokenizer", do_lower_case=True, strip_accents=None, tokenize_chinese_chars=True,
    unk_token="[UNK]", sep_token="[SEP]", pad_token="[PAD]", cls_token="[CLS]", mask_token="[MASK]",
)


def sentence_transformers(dim, pooling, dense):
    """modules.json and the settings of its pooling, with so many layers behind it."""
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling")] + [(f"{i + 2}_Dense", "Dense") for i in range(dense)]
    kinds += [(f"{len(kinds)}_Normalize", "Normalize")]
    modules = [
        dict(idx=i, name=str(i), path=path, type=f"sentence_transformers.models.{kind}")
        for i, (path, kind) in enumerate(kinds)
    ]
    modes = ["cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"]
    settings = {f"pooling_mode_{mode}": mode == pooling for mode in modes}
    return modules, dict(word_embedding_dimension=dim, include_prompt=True, **settings)
