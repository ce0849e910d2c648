"""Makes a tiny random model and what transformers computes with it.

python make.py ROOT NAME...        (or `all`)

The model's folder below ROOT, the repository, gets config.json, model.safetensors (bfloat16), and for each of two prompts the logits and the last hidden
states, [tokens, vocab] and [tokens, dim] in single precision, with golden.json to say what is what. The same versions
give the same bytes: weights are whole numbers of a counted generator, scaled, and torch is kept to one thread and to
instructions that every machine has. An encoder's folder has no logits, but what sentence-transformers wants of one: a
tokenizer, how to pool, and the vectors of some texts.
"""

import os

# Before torch is there: both read them once.
os.environ["ATEN_CPU_CAPABILITY"] = "default"
os.environ["MKL_CBWR"] = "COMPATIBLE"

import json
import pathlib
import sys
import zlib

# A torch for CUDA without its libraries still loads if no function is looked up before it is called.
if sys.platform == "linux":
    sys.setdlopenflags(os.RTLD_LAZY | os.RTLD_GLOBAL)

import numpy
import tokenizers
import torch
import transformers
from safetensors.torch import save_file

import pieces
import texts
import vision
from architectures import ARCHITECTURES, ASKED, DENSE, ENCODERS, LENGTHS, POOLING, RERANKERS, SALT, SEEING, VOCAB, build, folder

torch.set_num_threads(1)
torch.backends.mkldnn.enabled = False


def kept_less_one(model_type, name):
    """Whether a norm's factors are what is kept, and one."""
    if "vision_tower" in name or "visual" in name:
        return False
    hybrid = model_type.startswith(("qwen3_next", "qwen3_5"))
    gemma = "gemma" in model_type and not model_type.startswith(("gemma3n", "gemma4"))
    return gemma or hybrid and not name.endswith("linear_attn.norm.weight")


def fill(model, generator):
    """Uniform weights that bfloat16 holds exactly enough: rounded before anything is computed with them.

    Norms are near 1 and biases are not 0, as their defaults would hide a mistake; matrices keep what passes through
    them at its size.
    """
    seen, gemma4 = set(), model.config.model_type.startswith(("gemma3n", "gemma4"))
    for name, p in sorted(model.named_parameters()):
        if p.data_ptr() in seen:
            continue
        seen.add(p.data_ptr())
        whole = generator.integers(-32768, 32768, size=tuple(p.shape), dtype=numpy.int32)
        uniform = torch.from_numpy(whole.astype(numpy.float32) / 32768)
        if p.dim() == 1:
            centre = 0.0 if name.endswith("bias") or kept_less_one(model.config.model_type, name) else 1.0
            # Decays that leave something of the first tokens.
            centre = -2.0 if name.endswith("A_log") else centre
            # Scores that nothing else makes small.
            centre = 0.5 if gemma4 and name.endswith(("q_norm.weight", "k_norm.weight")) else centre
            value = centre + 0.3 * uniform
        elif name.endswith("e_score_correction_bias"):
            # About as much as the shares of experts differ by.
            value = 0.1 * uniform
        else:
            # Gemma 4's router is given what was divided by the root already, and Gemma 3n's what was divided by the width. A patch is all that a convolution over it is given.
            fan_in = p[0].numel() if p.dim() > 3 else p.shape[-1]
            power = 0 if gemma4 and name.endswith("router.proj.weight") else 0.5 if name.endswith("modality_router.weight") else -0.5
            # Streams that are not mixed so much that they take each other away.
            size = 0.5 if name.endswith(("prediction_coefs.weight", "correction_coefs.weight")) else 1.7
            value = uniform * (size * fan_in**power)
        p.data = value.to(torch.bfloat16).to(torch.float32)
    # What training moves by hand, and no gradient: the choice of experts, and what blocks are multiplied by.
    centres = {"e_score_correction_bias": 0.0, "expert_bias": 0.0, "layer_scalar": 1.0}
    for name, b in sorted(model.named_buffers()):
        if (centre := centres.get(name.rsplit(".")[-1])) is not None:
            whole = generator.integers(-32768, 32768, size=tuple(b.shape), dtype=numpy.int32)
            value = centre + 0.3 * torch.from_numpy(whole.astype(numpy.float32) / 32768)
            b.copy_(value.to(torch.bfloat16).to(torch.float32))


def uncached(model, name):
    """What keeps a model from holding keys, where it could."""
    return {} if name in RERANKERS or model.config.model_type == "modernbert" else dict(use_cache=False)


def last(model, got):
    """The last hidden states, normed: ModernBERT lists them as they are before that."""
    states = got.hidden_states[-1]
    return model.base_model.final_norm(states).detach() if model.config.model_type == "modernbert" else states


def make(name, out):
    """One model's folder."""
    seed = zlib.crc32(name.encode()) + SALT.get(name, 0)
    generator = numpy.random.Generator(numpy.random.PCG64(seed))
    model = build(name)
    fill(model, generator)
    model.tie_weights()
    out.mkdir(parents=True, exist_ok=True)
    for old in [path for path in out.rglob("*") if path.is_file()]:
        old.unlink()

    if name in SEEING:
        save(model, vision.show(model, SEEING[name], generator, out), name, seed, out)
        return
    if name in ASKED:
        save(model, dict(pairs=ask(model, vocabulary(name, out))), name, seed, out)
        return
    cases = []
    for case, length in LENGTHS.items():
        ids = generator.integers(0, getattr(model, "tokens", VOCAB), size=length).tolist()
        if "roberta" in name:
            # Positions of tokens that fill up batches are not counted.
            ids = [0 if i == 1 else i for i in ids]
        with torch.no_grad():
            got = model(torch.tensor([ids]), output_hidden_states=True, **uncached(model, name))
        cases.append(dict(name=case, ids=ids))
        logits = None if name in RERANKERS else getattr(got, "logits", None)
        for what, value in [("logits", logits), ("hidden", last(model, got))]:
            if value is not None:
                cases[-1][what] = f"{what}_{case}.npy"
                numpy.save(out / cases[-1][what], value[0].numpy())
    golden = dict(cases=cases)
    if name in RERANKERS:
        golden["pairs"] = rank(model, vocabulary(name, out))
    elif name in ENCODERS:
        golden["texts"] = encode(model, name, out, generator)
    save(model, golden, name, seed, out)


def save(model, golden, name, seed, out):
    """Weights, settings, and what is told of what was computed with them."""
    # A head that is the embedding once more is not in a checkpoint.
    of = model.config.get_text_config(decoder=True)
    said = of["tie_word_embeddings"] if isinstance(of, dict) else of.tie_word_embeddings
    tied = (model._tied_weights_keys or []) if said else []
    kept = {key: value for key, value in model.state_dict().items() if key not in tied}
    tensors = {key: value.to(torch.bfloat16).contiguous() for key, value in sorted(kept.items())}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    # All settings and not only those that differ from a class's defaults, as those change between versions.
    settings = {k: v for k, v in model.config.to_dict().items() if not k.startswith("_") and k != "transformers_version"}
    # The class halves it, of a file that it saved itself once more.
    if getattr(model.config, "use_bidirectional_attention", None) is True:
        settings["sliding_window"] = ENCODERS[name][1]["sliding_window"]
    # The example's is a class that Ogive does not know.
    own = "Own" if name == "gpt-neox" else ""
    settings |= dict(architectures=[own + type(model).__name__], dtype="bfloat16")
    write(out / "config.json", settings)
    versions = dict(torch=torch.__version__.split("+")[0], transformers=transformers.__version__)
    write(out / "golden.json", dict(golden, made_by="cargo xtask golden", versions=versions, seed=seed))
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    print(f"{name:18} {type(model).__name__:20} {size / 1024:6.1f} KB")
    if size > 300 * 1024:
        sys.exit(f"{name}: more than 300 KB, which is what the repository takes")


def vocabulary(name, out):
    """An encoder's vocabulary, and the tokenizer that it is."""
    usual = texts.tokenizer(VOCAB), texts.TOKENIZER_CONFIG
    tokenizer, config = pieces.VOCABULARIES.get(name.removesuffix("-reranker"), usual)
    write(out / "tokenizer.json", tokenizer)
    write(out / "tokenizer_config.json", config)
    return tokenizers.Tokenizer.from_file(str(out / "tokenizer.json"))


def rank(model, tokenizer):
    """What a question is answered with: texts, and with it their ids, types and logits."""
    pairs = [tokenizer.encode(pieces.QUERY, document) for document in pieces.DOCUMENTS]
    scores = []
    for pair in pairs:
        ids, types = torch.tensor([pair.ids]), torch.tensor([pair.type_ids])
        with torch.no_grad():
            typed = {} if model.config.model_type == "modernbert" else dict(token_type_ids=types)
            scores += model(ids, **typed).logits[0].tolist()
    encoded = dict(ids=[pair.ids for pair in pairs], types=[pair.type_ids for pair in pairs])
    return dict(query=pieces.QUERY, documents=pieces.DOCUMENTS, scores=scores, **encoded)


def ask(model, tokenizer):
    """What a question is answered with, as Qwen3-Reranker's model card has it: by how much the logit of yes is above that of no."""
    before, after = pieces.ASKED.split("{}")
    around = [tokenizer.encode(part, add_special_tokens=False).ids for part in [before, after]]
    tokens = [tokenizer.token_to_id(word) for word in ["yes", "no"]]
    all_ids, scores = [], []
    for instruction in [pieces.INSTRUCTION, "like cats"]:
        for document in pieces.DOCUMENTS:
            asked = f"<Instruct>: {instruction}\n<Query>: {pieces.QUERY}\n<Document>: {document}"
            all_ids.append(around[0] + tokenizer.encode(asked, add_special_tokens=False).ids + around[1])
            with torch.no_grad():
                logits = model(torch.tensor([all_ids[-1]])).logits[0, -1]
            scores.append((logits[tokens[0]] - logits[tokens[1]]).item())
    half = len(scores) // 2
    return dict(
        query=pieces.QUERY, documents=pieces.DOCUMENTS, ids=all_ids[:half], scores=scores[:half], instruction="like cats",
        instructed=scores[half:],
    )


def project(name, out, generator):
    """The layers that an encoder's vectors go through, as sentence-transformers saves them, in single precision."""
    layers = []
    for i, (taken, given) in enumerate(DENSE.get(name, [])):
        whole = generator.integers(-32768, 32768, size=(given, taken), dtype=numpy.int32)
        weight = (torch.from_numpy(whole.astype(numpy.float32) / 32768) * 1.7 * taken**-0.5).to(torch.bfloat16)
        place = out / f"{i + 2}_Dense"
        place.mkdir(exist_ok=True)
        save_file({"linear.weight": weight}, place / "model.safetensors", metadata={"format": "pt"})
        identity = "torch.nn.modules.linear.Identity"
        write(place / "config.json", dict(in_features=taken, out_features=given, bias=False, activation_function=identity))
        layers.append(weight.to(torch.float32))
    return layers


def encode(model, name, out, generator):
    """An encoder's texts as ids and as vectors of length 1, by sentence-transformers' formulas. Of a text that does not fit, the vector is
    that of its beginning."""
    tokenizer, pooling, xlm = vocabulary(name, out), POOLING[name], name == "xlm-roberta"
    own = pieces.TEXTS if xlm else texts.TEXTS
    all_ids = [tokenizer.encode(text).ids for text in own]
    most = getattr(model.config, "max_trained_positions", None) or model.config.max_position_embeddings
    # Positions are counted from behind the one of padding.
    most -= model.config.pad_token_id + 1 if xlm else 0
    vectors, layers = [], project(name, out, generator)
    for ids in all_ids:
        kept = ids if len(ids) <= most else ids[: most - 1] + ids[-1:]
        with torch.no_grad():
            hidden = last(model, model(torch.tensor([kept]), output_hidden_states=True, **uncached(model, name)))[0]
        vector = hidden[0] if pooling == "cls_token" else hidden.mean(dim=0)
        for layer in layers:
            vector = layer @ vector
        vectors.append((vector / vector.norm()).numpy())
    numpy.save(out / "vectors.npy", numpy.stack(vectors))
    modules, settings = texts.sentence_transformers(vectors[0].size, pooling, len(layers))
    write(out / "modules.json", modules)
    (out / "1_Pooling").mkdir(exist_ok=True)
    write(out / "1_Pooling/config.json", settings)
    return dict(of=own, ids=all_ids, vectors="vectors.npy")


def write(path, value):
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    root, *names = sys.argv[1:]
    known = {**ARCHITECTURES, **ENCODERS, **ASKED, **SEEING}
    for name in known if names == ["all"] else names:
        if name not in known:
            sys.exit(f"no architecture `{name}`; known are {', '.join(known)}")
        make(name, pathlib.Path(root) / folder(name))
