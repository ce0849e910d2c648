"""Makes the tests' adapters and what PEFT computes with them.

python adapters.py ROOT        (with PEFT beside what `cargo xtask golden` sets up; the repository's are of 0.17.1)

Each lies over the golden model of its name below ROOT, the repository: `adapter_config.json` and `adapter_model.safetensors` as PEFT saves them,
and in `logits.npy` the logits of that model's long prompt, [tokens, vocab] in single precision. The same versions give the same bytes.
"""

import json
import pathlib
import sys
import zlib

# First, as it keeps torch to what every machine has.
import make as golden
import numpy
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

# Matrices by themselves, of which one has another rank and one another factor; matrices that are kept transposed, by the root of the rank;
# several in one, one below the other or in turns; and a hybrid's.
ADAPTERS = {
    "llama": dict(
        r=3, lora_alpha=5, rank_pattern={"down_proj": 2}, alpha_pattern={"q_proj": 9},
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"],
    ),
    "gpt2": dict(r=4, lora_alpha=2, use_rslora=True, fan_in_fan_out=True, target_modules=["c_attn", "c_proj", "c_fc"]),
    # Rows that come head by head.
    "gptneox": dict(
        r=3, lora_alpha=4, target_modules=["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h", "embed_out"],
    ),
    "phi3": dict(r=2, lora_alpha=3, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]),
    "granite-hybrid": dict(
        r=2, lora_alpha=4, target_modules=["q_proj", "v_proj", "in_proj", "out_proj", "input_linear", "output_linear"]
    ),
}


def make(name, settings, root):
    plain = root / "crates/ogive-models/tests/golden" / name
    out = root / "crates/ogive-models/tests/adapters" / name
    model = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float32, attn_implementation="eager")
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **settings)).eval()
    generator = numpy.random.Generator(numpy.random.PCG64(zlib.crc32(name.encode())))
    for key, p in sorted(model.named_parameters()):
        if "lora_" in key:
            whole = generator.integers(-32768, 32768, size=tuple(p.shape), dtype=numpy.int32)
            uniform = torch.from_numpy(whole.astype(numpy.float32) / 32768)
            p.data = (uniform * p.shape[-1] ** -0.5).to(torch.bfloat16).to(torch.float32)
    case = next(case for case in json.loads((plain / "golden.json").read_text())["cases"] if case["name"] == "long")
    with torch.no_grad():
        logits = model(torch.tensor([case["ids"]]), use_cache=False).logits[0].numpy()
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    (out / "README.md").unlink(missing_ok=True)
    path = out / "adapter_config.json"
    written = json.loads(path.read_text())
    # Where the model was is nobody's business, and a set has no order.
    golden.write(path, written | {"base_model_name_or_path": name, "target_modules": sorted(written["target_modules"])})
    numpy.save(out / "logits.npy", logits)
    before = numpy.load(plain / case["logits"])
    print(name, "moved by", abs(logits - before).max(), "of", abs(before).max())


for name, settings in ADAPTERS.items():
    make(name, settings, pathlib.Path(sys.argv[1]))
