# SPDX-License-Identifier: Apache-2.0
"""Reads tools/serve/fields.def, for the tests; called with its path, writes docs/fields.md to stdout, and with
--check PAGE compares that page with it."""
import ast
import json
import pathlib
import re
import sys

PATHS = {
    "CHAT": "/v1/chat/completions", "TEXT": "/v1/completions", "TOKENIZE": "/tokenize", "DETOKENIZE": "/detokenize",
    "TEMPLATE": "/apply-template", "SLEEP": "/v1/sleep", "WAKE": "/v1/wake",
}
# Each as JSON; AS_N is n's own value, which is 1 where none is given.
NEUTRAL = {
    "ZERO": ["0", "0.0"], "ONE": ["1", "1.0"], "MINUS": ["-1"], "NO": ["false"], "YES": ["true"],
    "EMPTY": ['""', "[]", "{}"], "NONE": ['"none"'], "AUTO": ['"auto"'], "AS_N": [],
}
LINE = re.compile(r"^(HONOURED|HINT|REFUSED)\((.*)\)$")

INTRODUCTION = """# Fields of requests

What each field of a body means, by path. The table is `tools/serve/fields.def`, from which the server answers and the
tests ask; this page is made of it (`python3 tests/support/fields_table.py tools/serve/fields.def >docs/fields.md`).

- **honoured**: read; a wrong type or value is refused with 400 and its name in `param`.
- **hint**: ignored, since it tunes or informs; named in the log once.
- **refused**: 400 with `param` and code `unsupported`, since the answer would be another one. `null` and the values in
  the third column ask for nothing and are taken.

A field that is not here is a hint. `max_tokens` and its other names take -1 for no limit. Of `response_format` only
`{"type": "text"}` is taken, of `tool_choice` `"none"` and `"auto"`, of `modalities` `["text"]`.
"""


def fields(path):
    """Of each line: section, kind, formats, name, neutral values, sample, advice."""
    section = ""
    for number, line in enumerate(pathlib.Path(path).read_text().split("\n"), 1):
        if line.startswith("// ---- "):
            section = line.strip("/- ")
        if not line or line.startswith("//"):
            continue
        found = LINE.match(line)
        if not found:
            raise SystemExit(f"{path}:{number}: no field: {line}")
        kind, rest = found.groups()
        formats, name, *more = [part.strip() for part in re.split(r',(?=(?:[^"\\]|\\.|"(?:[^"\\]|\\.)*")*$)', rest)]
        neutral = []
        if kind == "REFUSED":
            words = more.pop(0)
            neutral = [] if words == "0" else [w.strip() for w in words.split("|")]
        sample = json.loads(ast.literal_eval(more[0]))
        advice = ast.literal_eval(more[1]) if kind == "REFUSED" else ""
        yield section, kind, [f.strip() for f in formats.split("|")], ast.literal_eval(name), neutral, sample, advice


def neutral_values(words):
    return ["null"] + [value for word in words for value in NEUTRAL[word]]


def page(path):
    lines, section = [INTRODUCTION], None
    for here, kind, formats, name, neutral, _, advice in fields(path):
        if here != section:
            section = here
            lines += [f"## {section[0].upper()}{section[1:]}", "", "| field | path | | taken, as it asks for nothing | instead |",
                      "|---|---|---|---|---|"]
        taken = ", ".join(f"`{v}`" for word in neutral for v in NEUTRAL[word] if v not in ("0.0", "1.0"))
        taken += " the value of `n`" if "AS_N" in neutral else ""
        lines.append(f"| `{name}` | {', '.join(PATHS[f] for f in formats)} | {kind.lower()} | {taken} | {advice} |")
    text = []
    for at, line in enumerate(lines):
        if line.startswith("## ") and at > 1:
            text.append("")
        text.append(line)
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    if len(sys.argv) > 3:
        want = pathlib.Path(sys.argv[3]).read_text()
        if page(sys.argv[1]) != want:
            sys.exit(f"{sys.argv[3]} is not what {sys.argv[1]} makes; see its second line")
        print(f"{sys.argv[3]} says what {sys.argv[1]} does")
    else:
        sys.stdout.write(page(sys.argv[1]))
