"""Packs tiny models in NVFP4 as ModelOpt and compressed-tensors do, and what transformers computes with what their numbers are.

python fp4.py ROOT               (by hand: `target/golden/bin/python xtask/golden/fp4.py .`)

A mixture whose experts are packed one by one, as ModelOpt names its tensors, and a Llama as compressed-tensors does, both of matrices that are whole
blocks of ggml's. Codes and scales are found here as the format's description has it (the largest of 16 becomes 6, the largest of all 6 · 448), with torch's own
`float8_e4m3fn`, and the reference has a level times its scale times the matrix's factor, in single precision, and computes in it: how activations would be
rounded to four bits is left out.
"""

import json
import pathlib
import sys
import zlib

import make  # torch as every machine has it
import numpy
import torch
import transformers
from architectures import BASE, LENGTHS, VOCAB
from safetensors.torch import save_file

LEVELS = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
SIZES = dict(BASE, hidden_size=64, intermediate_size=128, num_attention_heads=4, head_dim=16)
WEIGHTS = dict(dynamic=False, num_bits=4, type="float", group_size=16)
GROUPS = dict(group_0=dict(targets=["Linear"], weights=WEIGHTS, input_activations=WEIGHTS))

MODELS = {
    "qwen3-moe": ("qwen3_moe", dict(SIZES, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=True), dict(
        quant_method="modelopt", quant_algo="NVFP4", config_groups=GROUPS, ignore=["lm_head"],
        producer=dict(name="modelopt", version="0.33.0"),
    )),
    "llama": ("llama", dict(SIZES, attention_bias=True), dict(
        quant_method="compressed-tensors", format="nvfp4-pack-quantized", ignore=["lm_head"], quantization_status="compressed",
        config_groups=dict(group_0=dict(
            targets=["Linear"], weights=WEIGHTS | dict(symmetric=True, strategy="tensor_group"),
            input_activations=WEIGHTS | dict(symmetric=True, strategy="tensor_group", dynamic="local"),
        )),
    )),
}


def pack(w):
    """Codes, two to a byte and the first in its low half; scales, the factor of all; and what they are."""
    rows, cols = w.shape
    factor = w.abs().max() / (6 * 448)
    groups = w.reshape(rows, cols // 16, 16)
    scales = (groups.abs().amax(dim=2) / 6 / factor).to(torch.float8_e4m3fn)
    each = scales.to(torch.float32)[:, :, None]
    apart = (groups.abs()[..., None] / (each * factor)[..., None] - LEVELS).abs()
    codes = apart.argmin(dim=3)
    values = torch.where(groups < 0, -LEVELS[codes], LEVELS[codes])
    codes = (codes + 8 * (groups < 0)).to(torch.uint8).reshape(rows, cols)
    return codes[:, ::2] | codes[:, 1::2] << 4, scales, factor, (values * each * factor).reshape(rows, cols)


def run(root, name):
    model_type, sizes, settings = MODELS[name]
    out = root / "crates/ogive-models/tests/fp4" / name
    out.mkdir(parents=True, exist_ok=True)
    generator = numpy.random.Generator(numpy.random.PCG64(zlib.crc32(f"fp4 {name}".encode())))
    config = transformers.AutoConfig.for_model(model_type, **sizes)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    make.fill(model, generator)
    cases = [dict(name=case, ids=generator.integers(0, VOCAB, size=n).tolist()) for case, n in LENGTHS.items()]
    before = [logits(model, case) for case in cases]
    linear = {f"{at}.weight" for at, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    tensors = {}
    for key, value in sorted(model.state_dict().items()):
        if key not in linear or key.endswith(("lm_head.weight", "mlp.gate.weight")):
            tensors[key] = value.to(torch.bfloat16).contiguous()
            continue
        codes, scales, factor, values = pack(value)
        value.copy_(values)
        stem = key.removesuffix("weight")
        tensors[stem + "weight_scale"] = scales
        if settings["quant_method"] == "modelopt":
            tensors |= {key: codes, stem + "weight_scale_2": factor, stem + "input_scale": torch.tensor(0.01)}
        else:
            # The reference divides by what the file has.
            whole = (1 / factor).reshape(1)
            value.copy_(values / factor / whole)
            tensors |= {stem + "weight_packed": codes, stem + "weight_global_scale": whole}
            tensors[stem + "input_global_scale"] = torch.tensor([300.0])
    save_file({key: value.contiguous() for key, value in tensors.items()}, out / "model.safetensors", metadata={"format": "pt"})
    said = {k: v for k, v in model.config.to_dict().items() if not k.startswith("_") and k != "transformers_version"}
    said |= dict(architectures=[type(model).__name__], dtype="bfloat16", quantization_config=settings)
    make.write(out / "config.json", said)
    for case, old in zip(cases, before):
        case["logits"] = f"logits_{case['name']}.npy"
        new = logits(model, case)
        numpy.save(out / case["logits"], new)
        print(f"{name:12} {case['name']:6} packing moves logits by up to {numpy.abs(old - new).max():.2f}")
    versions = dict(torch=torch.__version__.split("+")[0], transformers=transformers.__version__)
    make.write(out / "golden.json", dict(cases=cases, made_by="xtask/golden/fp4.py", versions=versions))


def logits(model, case):
    with torch.no_grad():
        return model(torch.tensor([case["ids"]]), use_cache=False).logits[0].numpy()


if __name__ == "__main__":
    for model in MODELS:
        run(pathlib.Path(sys.argv[1]), model)
