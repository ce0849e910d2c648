"""What the matrices of some of the tiny models are given, by hooks on transformers' own modules.

python importance.py ROOT

Writes `crates/ogive/tests/importance.json` below ROOT, the repository, of the models that `make.py` made: for each the ids of its first prompt, and for
each matrix the squares of its inputs, column by column, summed over rows, and how many rows there were. Experts, which transformers has one by
one, are gathered under the name that they share.
"""

import json
import os
import pathlib
import re
import sys

# As in make.py: a torch for CUDA without its libraries still loads if no function is looked up before it is called.
if sys.platform == "linux":
    sys.setdlopenflags(os.RTLD_LAZY | os.RTLD_GLOBAL)

import torch
import transformers
from transformers.pytorch_utils import Conv1D

MODELS = ["llama", "mixtral", "qwen2-moe", "gpt2", "gemma3", "mamba"]


def sums(folder):
    """The ids and, by weight, sums of squares and counts, expert after expert."""
    case = json.loads((folder / "golden.json").read_text())["cases"][0]
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True
    ).eval()
    found = {}

    def hook(name):
        def note(module, given):
            x = given[0].reshape(-1, given[0].shape[-1]).double()
            total, count = found.get(name, (0, 0))
            found[name] = (total + (x * x).sum(0), count + x.shape[0])

        return note

    for name, module in model.named_modules():
        if isinstance(module, (torch.nn.Linear, Conv1D)) and "lm_head" not in name:
            module.register_forward_pre_hook(hook(name))
    with torch.no_grad():
        model(torch.tensor([case["ids"]]), use_cache=False)
    weights = {}
    for name, module in model.named_modules():
        if not isinstance(module, (torch.nn.Linear, Conv1D)) or "lm_head" in name:
            continue
        cols = module.weight.shape[0 if isinstance(module, Conv1D) else 1]
        total, count = found.get(name, (torch.zeros(cols), 0))
        if count == 0 and ".experts." not in name:
            continue  # Mamba's steps: multiplied by the weight itself, and not through the module.
        shared = re.sub(r"\.experts\.\d+\.", ".experts.", name) + ".weight"
        entry = weights.setdefault(shared, {"sums": [], "counts": []})
        entry["sums"] += [float(f"{v:.6g}") for v in total.tolist()]
        entry["counts"].append(count)
    return {"ids": case["ids"], "weights": weights}


def main():
    root = pathlib.Path(sys.argv[1])
    golden = root / "crates/ogive-models/tests/golden"
    out = {name: sums(golden / name) for name in MODELS}
    text = json.dumps(out, separators=(",", ":"))
    # A line for each matrix.
    text = text.replace('},"', '},\n"')
    (root / "crates/ogive/tests/importance.json").write_text(text + "\n")


main()
