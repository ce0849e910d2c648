"""Records in ruby.json what Hugging Face's tokenizers makes of each text there by each pattern: every match becomes `#`.

Run `python3 ruby.py` in this folder after adding `["pattern", []]` lines; needs tokenizers 0.23.3, which runs Oniguruma.
Patterns must not match nothing.
"""

import json
import pathlib

from tokenizers import Regex, normalizers

FILE = pathlib.Path(__file__).with_name("ruby.json")

data = json.loads(FILE.read_text())
cases = []
for pattern, _ in data["cases"]:
    replace = normalizers.Replace(Regex(pattern), "#")
    cases.append([pattern, [replace.normalize_str(text) for text in data["texts"]]])
lines = ",\n".join(json.dumps(case) for case in cases)
FILE.write_text(f'{{\n"texts": {json.dumps(data["texts"])},\n"cases": [\n{lines}\n]\n}}\n')
