# SPDX-License-Identifier: Apache-2.0
"""Every field of tools/serve/fields.def is sent to the server, with a value that asks for something and with those that
ask for nothing, and the answer must be what the table says. Then the forms that values have elsewhere."""
import json
import pathlib
import re
import sys

from harness import Server, case, check, main, same, wait_until

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
import fields_table  # noqa: E402

TABLE = list(fields_table.fields(ROOT / "tools/serve/fields.def"))
BASE = {
    "CHAT": {"messages": [{"role": "user", "content": "hi"}]}, "TEXT": {"prompt": "hi"}, "TOKENIZE": {"content": "hi"},
    "DETOKENIZE": {"tokens": [97]}, "TEMPLATE": {"messages": [{"role": "user", "content": "hi"}]}, "SLEEP": {}, "WAKE": {},
}
# No field takes it.
WRONG = [[[]], {"x": [[]]}]


def body(form, name, value):
    """A body with the field; members of an object lie in it, and bring what the object needs."""
    fields = dict(BASE[form])
    outer, _, inner = name.partition(".")
    if not inner:
        fields[name] = value
    else:
        fields[outer] = {"type": "text", inner: value} if outer == "response_format" else {inner: value}
    if outer == "stream_options":
        fields["stream"] = True
    if name == "prompt" and form == "TOKENIZE":
        del fields["content"]
    return fields


def ask(server, form, fields):
    status, headers, data = server.request("POST", fields_table.PATHS[form], fields)
    is_stream = headers.get("content-type", "").startswith("text/event-stream")
    if form == "SLEEP" and status == 200:
        same(server.post("/v1/wake", {})[0], 200)
    return status, {} if is_stream else json.loads(data)


@case
def every_field_is_what_the_table_says():
    counts = {"HONOURED": 0, "HINT": 0, "REFUSED": 0}
    with Server() as server:
        for _, kind, forms, name, neutral, sample, _ in TABLE:
            for form in forms:
                status, answer = ask(server, form, body(form, name, sample))
                counts[kind] += 1
                if kind == "REFUSED":
                    check(status == 400 and answer["error"]["param"] == name and answer["error"]["code"] == "unsupported",
                          f"{form} {name}={sample}: {status} {answer}")
                else:
                    same((form, name, status), (form, name, 200))
                for value in fields_table.neutral_values(neutral) if kind == "REFUSED" else []:
                    if "." in name and value == "null":
                        continue
                    status, answer = ask(server, form, body(form, name, json.loads(value)))
                    check(status == 200, f"{form} {name}={value} asks for nothing: {status} {answer}")
        text = server.text()
        for _, kind, _, name, _, _, _ in TABLE:
            named = len(re.findall(rf'"{re.escape(name)}" is ignored', text))
            if kind == "HINT":
                same((name, named), (name, 1))
            check(kind == "HINT" or named == 0 or any(n == name and k == "HINT" for _, k, _, n, _, _, _ in TABLE),
                  f"{name} is said to be ignored")
    print("  " + ", ".join(f"{n} {kind.lower()}" for kind, n in counts.items()))


@case
def honoured_fields_are_read():
    """Whoever reads a field refuses what it can not be."""
    with Server() as server:
        for _, kind, forms, name, _, _, _ in TABLE:
            for form in forms if kind == "HONOURED" else []:
                refused = [ask(server, form, body(form, name, wrong)) for wrong in WRONG]
                check(any(status == 400 and (answer["error"]["param"] or "").startswith(name)
                          for status, answer in refused), f"{form} {name}: {refused}")


@case
def unknown_fields_are_named_once_and_boundedly():
    with Server() as server:
        for i in range(3):
            same(server.chat("hi", never_heard_of=i)[0], 200)
        same(server.chat("hi", **{"a\nb\u001b[2J" + "x" * 500: 1})[0], 200)
        for i in range(40):
            same(server.chat("hi", **{f"made_up_{i}_{j}": 1 for j in range(20)})[0], 200)
        text = server.text()
        same(text.count('"never_heard_of" is not known and is ignored'), 1)
        check("\x1b" not in text and max(map(len, text.split("\n"))) < 300, "a line of the log stays a line")
        check(text.count("made_up_") <= 256, "names without end fill the log")


@case
def spelled_with_escapes_it_is_the_same_field():
    with Server() as server:
        status, answer = server.post("/v1/completions", b'{"prompt":"hi","dry\\u005fmultiplier":0.8}')
        same((status, answer["error"]["param"]), (400, "dry_multiplier"))


@case
def constraints_in_every_form_are_refused():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    with Server() as server:
        for fields, param in [
            ({"response_format": {"type": "json_object", "schema": schema}}, "response_format"),
            ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}, "response_format"),
            ({"response_format": {"type": "regex", "value": "a+"}}, "response_format.type"),
            ({"response_format": {"type": "grammar", "grammar": "root ::= x"}}, "response_format.type"),
            ({"response_format": {"type": "structural_tag", "structures": []}}, "response_format.type"),
            ({"response_format": {}}, "response_format.type"),
            ({"response_format": "json_object"}, "response_format"),
            ({"guided_json": {}}, "guided_json"),
            ({"guided_json": "{}"}, "guided_json"),
            ({"structured_outputs": {"json": schema}}, "structured_outputs"),
            ({"structured_outputs": True}, "structured_outputs"),
            ({"format": schema}, "format"),
            ({"logit_bias": [[5, False]]}, "logit_bias"),
            ({"logit_bias": {"hello": -100}}, "logit_bias"),
            ({"stop_token_ids": [300]}, "stop_token_ids[0]"),
            ({"stop_token_ids": [True]}, "stop_token_ids[0]"),
            ({"stop_token_ids": [5] * 65}, "stop_token_ids"),
            ({"stop_token_ids": 5}, "stop_token_ids"),
            ({"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
             "stream_options.continuous_usage_stats"),
            ({"typical_p": 0.99}, "typical_p"), ({"mirostat": 1}, "mirostat"), ({"n_probs": 1}, "n_probs"),
            ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"), ({"truncate_prompt_tokens": "2"}, "truncate_prompt_tokens"),
            ({"best_of": 1.5}, "best_of"), ({"n": 2, "best_of": 3}, "best_of"),
        ]:
            for path, base in ("/v1/chat/completions", BASE["CHAT"]), ("/v1/completions", BASE["TEXT"]):
                status, answer = server.post(path, {**base, **fields})
                check(status == 400 and answer["error"]["param"] == param, f"{path} {fields}: {status} {answer}")
        status, answer = server.post("/v1/completions", {**BASE["TEXT"], "echo": True, "truncate_prompt_tokens": 2})
        same((status, answer["error"]["param"]), (400, "echo"))
        for logprobs in "true", [], 2:
            same(server.chat("hi", logprobs=logprobs)[0], 400)
        for logprobs in True, "2", -1:
            same(server.post("/v1/completions", {"prompt": "hi", "logprobs": logprobs})[0], 400)
        for fields in {"n": 2, "best_of": 2}, {"logit_bias": {}}, {"stop": []}, {"stop_token_ids": []}, \
                {"stream": True, "stream_options": {}}, {"tool_choice": "auto"}:
            same(server.request("POST", "/v1/chat/completions", {**BASE["CHAT"], **fields})[0], 200)


@case
def minus_one_is_no_limit():
    """As -n -1 is: whatever the server's own default, an answer goes on to the end of the context."""
    with Server("-n", "3") as server:
        for name in "max_tokens", "max_completion_tokens", "n_predict", "max_new_tokens":
            for path, fields in ("/v1/chat/completions", {"messages": [{"role": "user", "content": "@tokens=40"}]}), \
                    ("/v1/completions", {"prompt": "@tokens=40"}):
                same(server.post(path, fields)[1]["usage"]["completion_tokens"], 3)
                same(server.post(path, {**fields, name: 7})[1]["usage"]["completion_tokens"], 7)
                same(server.post(path, {**fields, name: -1})[1]["usage"]["completion_tokens"], 40)
                for wrong in 0, -2, 1.5, "-1":
                    status, answer = server.post(path, {**fields, name: wrong})
                    same((status, answer["error"]["param"]), (400, name))


@case
def stops_reach_the_engine():
    with Server() as server:
        # The pretended answer is "abcdefgh"...; a token is a byte.
        for fields, text, finish in [
            ({"stop_token_ids": [ord("d"), ord("f")]}, "abc", "stop"),
            ({"stop_token_ids": [ord("d")], "include_stop_str_in_output": True}, "abcd", "stop"),
            ({"stop_token_ids": [ord("d")], "no_stop_trim": True}, "abcd", "stop"),
            ({"stop_token_ids": [ord("d")], "ignore_eos": True}, "abc", "stop"),
            ({"stop_token_ids": [1]}, "abcdefgh", "stop"),
        ]:
            status, answer = server.chat("@tokens=8", **fields)
            same((status, answer["choices"][0]["message"]["content"], answer["choices"][0]["finish_reason"]),
                 (200, text, finish))


if __name__ == "__main__":
    main()
