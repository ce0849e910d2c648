"""Records in jinja.json what jinja2 prints for each template there (null: it fails).

Run `python3 jinja.py` in this folder after adding `["template", null]` lines; needs jinja2 3.1.6. The environment is
set up as transformers sets up chat templates.
"""

import datetime
import json
import pathlib

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2025, 1, 15, 12, 34, 56)
FILE = pathlib.Path(__file__).with_name("jinja.json")


class Generation(Extension):
    """The tag that marks the assistant's text: its body, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("pass_through"), [], [], body).set_lineno(line)

    def pass_through(self, caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def record(env, source, variables):
    try:
        return env.from_string(source).render(**variables)
    except Exception:  # Whatever the template made Python raise.
        return None


env = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
)
env.filters["tojson"] = tojson
env.globals.update(raise_exception=raise_exception, strftime_now=NOW.strftime)
data = json.loads(FILE.read_text())
absent = {"tools": None, "documents": None, "add_generation_prompt": False}
cases = [[source, record(env, source, absent | data["variables"])] for source, _ in data["cases"]]
lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
variables = json.dumps(data["variables"], ensure_ascii=False)
FILE.write_text(f'{{\n"variables": {variables},\n"cases": [\n{lines}\n]\n}}\n')
