# SPDX-License-Identifier: Apache-2.0
"""Bodies made to cost host memory or host time, against the real server in a memory control group of what
it takes idle and its budget of 64 MiB: whatever a body becomes is charged before, so the kernel kills
nobody, every body is answered or refused, and the server goes on.

Bodies: $PLIMSOLL_HOSTILE_BODIES (default 300; 1000 take a few minutes). Skipped where no group can be made."""
import collections
import json
import os
import pathlib
import queue
import random
import tempfile
import threading

from cgroup import Group, NoGroup
from harness import NotHere, Server, case, check, main, same, sanitized, skip

MIB = 1024 * 1024
BODIES = int(os.environ.get("PLIMSOLL_HOSTILE_BODIES", "300"))
CLIENTS = 8
MODEL = pathlib.Path(__file__).parent.parent / "data/models/llama-tied-q4_1.gguf"

# Reads all that a conversation may bring, and parses text again.
TEMPLATE = """{% for m in messages %}{{ m.role }}{% if m.content is string %}\
{% if m.content.startswith('[') %}{{ m.content | from_json | length }}{{ m.content }}{% else %}{{ m.content }}{% endif %}\
{% elif m.content %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}\
{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}\
{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}{% if k %}{{ k | tojson }}{% endif %}{% if grow %}\
{% set ns = namespace(s='a') %}{% for i in range(1000) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{% endif %}"""


def user(content):
    return {"role": "user", "content": content}


def chat(*messages, **fields):
    return "/v1/chat/completions", {"messages": list(messages), "max_tokens": 1} | fields


def calls(arguments):
    return chat(user("a"), {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}]})


# By what they make grow; each is given a number that sets its size.
KINDS = {
    "escaped arguments": lambda n: calls('{"a":[' + ",".join(["{}"] * n * 4) + "]}"),
    "deep arguments": lambda n: calls('{"a":' + "[" * n + "]" * n + "}"),
    "arguments": lambda n: calls({f"m{i}": {} for i in range(n)}),
    "from_json": lambda n: chat(user("[" + ",".join(["{}"] * n * 4) + "]")),
    "from_json of numbers": lambda n: chat(user("[" + ",".join(["1.5"] * n * 4) + "]")),
    "template that grows": lambda n: chat(user("a"), chat_template_kwargs={"grow": True}),
    "nulls": lambda n: chat(user("a") | {f"m{i}": None for i in range(n)}),
    "members": lambda n: chat(user("a") | {f"m{i}": {} for i in range(n)}),
    "messages": lambda n: chat(*[user("a")] * n),
    "parts": lambda n: chat(user([{"type": "text", "text": "a"}] * n)),
    "empty objects": lambda n: chat(user("a"), chat_template_kwargs={"k": [{}] * n}),
    "empty arrays": lambda n: chat(user("a"), chat_template_kwargs={"k": [[]] * n}),
    "deep": lambda n: chat(user("a"), chat_template_kwargs={"k": deep(60)}),
    "too deep": lambda n: chat(user("a"), chat_template_kwargs={"k": deep(n % 900 + 70)}),
    "long text": lambda n: chat(user("a long text " * n * 8)),
    "escaped text": lambda n: chat(user("\u2028\n" * n * 8)),
    "one word": lambda n: ("/tokenize", {"content": "x" * n * 100}),
    "tokens": lambda n: ("/v1/completions", {"prompt": [7] * n * 4, "max_tokens": 1}),
    "detokenize": lambda n: ("/detokenize", {"tokens": [7] * n * 4}),
    "stops": lambda n: ("/v1/completions", {"prompt": "a", "stop": ["a stop"] * n * 4}),
    "biases": lambda n: ("/v1/completions", {"prompt": "a", "logit_bias": {str(i): 1 for i in range(n * 4)}}),
    "tools": lambda n: chat(user("a"), tools=[{"type": "function", "function": {"name": "f"}}] * n),
    "objects as tools": lambda n: chat(user("a"), tools=[{}] * n),
    "fields": lambda n: ("/v1/completions", {"prompt": "a"} | {f"field_{i}": 1 for i in range(n)}),
    "rendered only": lambda n: ("/apply-template", {"messages": [user("a")] * n}),
}


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


def make(i):
    """(kind, path, body): body i, the same in every run."""
    rng = random.Random(i)
    kind = list(KINDS)[i % len(KINDS)]
    path, body = KINDS[kind](rng.choice([100, 3000, 20000, 40000]))
    return kind, path, body


def send_all(server):
    """By kind and status, how often; and what went wrong on the way."""
    work, counts, errors = queue.SimpleQueue(), collections.Counter(), []
    for i in range(BODIES):
        work.put(i)

    def client():
        try:
            while True:
                kind, path, body = make(work.get_nowait())
                status, _, data = server.request("POST", path, body, timeout=300)
                code = "" if status == 200 else json.loads(data)["error"]["code"] or ""
                counts[kind, status, code] += 1
        except queue.Empty:
            pass
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts, errors


@case
def no_body_takes_more_than_the_budget():
    if sanitized():
        raise NotHere("the memory of a sanitizer is in no budget")
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template, Group(4096 * MIB) as group:
        template.write(TEMPLATE)
        template.flush()
        with Server("-c", "512", "-np", "4", "--host-limit", "64MiB", "--chat-template-file", template.name,
                    prefix=group.prefix) as server:
            idle = group.usage()
            group.set(idle + 64 * MIB)
            counts, errors = send_all(server)
            check(server.process.poll() is None, f"the server ended:\n{server.text()[-2000:]}")
            same(errors, [])
            same(server.post("/v1/completions", {"prompt": "a", "max_tokens": 2})[0], 200)
            for kind in KINDS:
                line = ", ".join(f"{n} {status} {code}".strip() for (k, status, code), n in
                                 sorted(counts.items()) if k == kind)
                print(f"      {kind}: {line}")
                check(all(status in (200, 400, 413, 503) for k, status, _ in counts if k == kind), line)
            peak, host = group.peak(), server.memory()["host"]
            print(f"      idle {idle / MIB:.1f} MiB; {(peak - idle) / MIB:.1f} MiB more at most" if peak else "")
            print(f"      host budget: {host}")


try:
    with Group(64 * MIB):
        pass
except NoGroup as reason:
    skip(f"no memory control group can be made: {reason}")
main(model=str(MODEL))
