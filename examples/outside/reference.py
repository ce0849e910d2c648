"""Writes what transformers computes, for `compare` to be held against.

python reference.py MODEL FOLDER 1,2,3

MODEL is a folder or a name on the Hugging Face hub, the last argument token ids. FOLDER gets ids.npy, logits.npy
[tokens, vocab], hidden.npy (after the last norm) and h.0.npy, h.1.npy, ... (after each block but the last, whose output
transformers does not tell), all [tokens, dim], and golden.json, which names them for tests/golden.rs.
"""

import json
import pathlib
import sys

import numpy
import torch
import transformers

name, folder, ids = sys.argv[1], pathlib.Path(sys.argv[2]), [int(i) for i in sys.argv[3].split(",")]
# Single precision and the plain attention: anything else rounds differently.
model = transformers.AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, attn_implementation="eager")
with torch.no_grad():
    out = model.eval()(torch.tensor([ids]), output_hidden_states=True)

folder.mkdir(parents=True, exist_ok=True)
numpy.save(folder / "ids.npy", numpy.array(ids, dtype=numpy.uint32))
numpy.save(folder / "logits.npy", out.logits[0].numpy())
*blocks, last = out.hidden_states[1:]
numpy.save(folder / "hidden.npy", last[0].numpy())
for i, block in enumerate(blocks):
    numpy.save(folder / f"h.{i}.npy", block[0].numpy())
case = {"ids": ids, "logits": "logits.npy", "hidden": "hidden.npy"}
(folder / "golden.json").write_text(json.dumps({"cases": [case]}) + "\n")
