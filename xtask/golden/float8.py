"""Packs tiny models in FP8 as those who publish such do, and what transformers computes with what their numbers are.

python float8.py ROOT            (by hand: `target/golden/bin/python xtask/golden/float8.py .`)

Each is one of the models that `make.py` made, with torch's own `float8_e4m3fn` for its projections, and factors beside them: DeepSeek's for tiles, smaller
here as the models are (a head is no whole number of them, and the last tile of a matrix is smaller), compressed-tensors' for rows and ModelOpt's for matrices. The reference has
an element times its factor, in single precision, and computes in it: how activations would be rounded on a GPU is left out.
"""

import json
import pathlib
import sys

import make  # torch as every machine has it
import numpy
import torch
import transformers
from safetensors.torch import save_file

MOST = torch.finfo(torch.float8_e4m3fn).max
FLOATS = dict(num_bits=8, type="float", symmetric=True, dynamic=False)

# The model, how its factors lie (tiles, else rows or all), what they are called, in what, and what settings say.
PACKED = {
    "llama": ("row", "weight_scale", torch.bfloat16, dict(
        quant_method="compressed-tensors", format="float-quantized", ignore=["lm_head"],
        config_groups=dict(group_0=dict(targets=["Linear"], weights=FLOATS | dict(strategy="channel")))
    )),
    "deepseek-v3": ((16, 32), "weight_scale_inv", torch.float32, dict(
        quant_method="fp8", activation_scheme="dynamic", fmt="e4m3", weight_block_size=[16, 32]
    )),
    "qwen3-moe": ("all", "weight_scale", torch.float32, dict(quant_method="modelopt", quant_algo="FP8")),
}


def pack(w, how, dtype):
    """Elements, factors, and what both are."""
    rows, cols = w.shape
    high, wide = how if isinstance(how, tuple) else (1, cols) if how == "row" else (rows, cols)
    tall, broad = -(-rows // high), -(-cols // wide)
    padded = torch.zeros(tall * high, broad * wide)
    padded[:rows, :cols] = w
    tiles = padded.reshape(tall, high, broad, wide)
    factors = (tiles.abs().amax(dim=(1, 3)) / MOST).to(dtype).to(torch.float32)
    each = factors.repeat_interleave(high, 0).repeat_interleave(wide, 1)[:rows, :cols]
    # A factor that was rounded down would make the largest element too large.
    elements = (w / each).clamp(-MOST, MOST).to(torch.float8_e4m3fn)
    kept = factors.reshape([]) if how == "all" else factors
    return elements, kept.to(dtype), elements.to(torch.float32) * each


def run(root, name):
    how, leaf, dtype, settings = PACKED[name]
    source = root / make.folder(name)
    out = root / "crates/ogive-models/tests/float8" / name
    out.mkdir(parents=True, exist_ok=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    linear = {f"{at}.weight" for at, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    tensors = {}
    for key, value in sorted(model.state_dict().items()):
        if key in linear and not key.endswith(("lm_head.weight", "mlp.gate.weight")):
            elements, factors, value_of_both = pack(value, how, dtype)
            value.copy_(value_of_both)
            tensors[key] = elements
            tensors[key.removesuffix("weight") + leaf] = factors
            if settings["quant_method"] == "modelopt":
                tensors[key.removesuffix("weight") + "input_scale"] = torch.tensor(0.01)
        else:
            tensors[key] = value.to(torch.bfloat16).contiguous()
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    make.write(out / "config.json", config | dict(quantization_config=settings))
    cases = json.loads((source / "golden.json").read_text())["cases"]
    cases = [dict(name=case["name"], ids=case["ids"], logits=case["logits"]) for case in cases]
    for case in cases:
        with torch.no_grad():
            logits = model(torch.tensor([case["ids"]]), use_cache=False).logits[0]
        numpy.save(out / case["logits"], logits.numpy())
        before = numpy.load(source / case["logits"])
        print(f"{name:12} {case['name']:6} packing moves logits by up to {numpy.abs(before - logits.numpy()).max():.2f}")
    versions = dict(torch=torch.__version__.split("+")[0], transformers=transformers.__version__)
    make.write(out / "golden.json", dict(cases=cases, made_by="xtask/golden/float8.py", versions=versions))


if __name__ == "__main__":
    for model in PACKED:
        run(pathlib.Path(sys.argv[1]), model)
