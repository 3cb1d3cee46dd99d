# SPDX-License-Identifier: Apache-2.0
"""Real memory, really enforced: the real server with a real model in a memory control group just
above the smallest one that starts, under mixed requests. The kernel kills nobody; every request is
answered or refused with numbers that add up; and what is answered has the same tokens as without a
limit.

Requests per group: $PLIMSOLL_CGROUP_REQUESTS (default 60, in the tightest group alone; with 500 in
all three). Skipped without $PLIMSOLL_TEST_MODELS or where no group can be made."""
import json
import os
import pathlib
import queue
import random
import re
import subprocess
import threading

import harness
from cgroup import Group, NoGroup
from harness import Server, case, check, main, same, skip, wait_until

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
MIB = 1024 * 1024
REQUESTS = int(os.environ.get("PLIMSOLL_CGROUP_REQUESTS", "60"))
MARGINS = (25, 12, 5) if REQUESTS >= 500 else (5,)  # percent above the smallest total
CLIENTS = 8
CONTEXT = 512
SIZES = ["-c", str(CONTEXT), "-np", "4", "-b", "128", "--queue-timeout", "600"]
WORDS = "the sea a ship load line winter salt water mark hull fresh deep tide of and under".split()


# ---- the smallest total ----

def plan_in(group):
    done = subprocess.run([*group.prefix, harness.BINARY, "plan", "-m", harness.MODEL, *SIZES],
                          capture_output=True, text=True, timeout=300)
    return done.returncode, done.stderr


def smallest_total():
    """A start that fails says what it needs and what there is; it is given what is missing until it
    starts. What the kernel charges beside the process's own memory differs a little each time."""
    total = 64 * MIB
    with Group(total) as group:
        for tries in range(1, 9):
            group.set(total)
            status, text = plan_in(group)
            if status == 0:
                return total, tries
            named = re.search(r"needs (\d+) bytes, there are (\d+)", text)
            check(status == 1 and named, f"in {total} bytes: {status} {text}")
            needed, there = map(int, named.groups())
            check(needed > there, text)
            total += needed - there + MIB
    raise AssertionError(f"{total} bytes do not start either: {text}")


# ---- requests ----

def words(rng, n):
    return " ".join(rng.choice(WORDS) for _ in range(n))


def make(i):
    """(path, body, leaves): request i, the same in every run."""
    rng = random.Random(i)
    body = {"max_tokens": rng.randint(1, 6), "seed": i, "temperature": rng.choice([0, 0.8]),
            "ignore_eos": rng.random() < 0.5}
    kind = rng.random()
    if kind < 0.15:
        body["messages"] = [{"role": "user", "content": words(rng, rng.randint(1, 12))}]
        return "/v1/chat/completions", body, False
    body["prompt"] = words(rng, rng.randint(1, 30))
    if kind < 0.25:
        body["prompt"] = "under the sea " * 12 + body["prompt"]  # a beginning that many share
    elif kind < 0.35:
        body |= {"n": rng.randint(2, 3), "logprobs": 2}
    elif kind < 0.40:
        body["stop"] = ["e", "\n"]
    elif kind < 0.45:
        return "/v1/completions", body | {"stream": True, "max_tokens": 64}, True
    elif kind < 0.50:
        body |= {"max_tokens": 100, "ignore_eos": True, "n": 4}  # blocks run short
    elif kind < 0.54:
        body["max_tokens"] = CONTEXT  # too long
    elif kind < 0.58:
        body |= {"n": 16, "max_tokens": 400}  # may need more blocks than there are
    elif kind < 0.62:
        body["temperature"] = -1
    elif kind < 0.65:
        body["prompt"] = "sea " * rng.randint(10000, 1000000)  # megabytes, and far too long
    elif kind < 0.66:
        del body["prompt"]  # more host memory than the budget has
        body["messages"] = [{"role": "user", "content": "a"}] * 40000
        return "/v1/chat/completions", body, False
    return "/v1/completions", body, False


def leave(server, path, body):
    stream = server.stream(path, body, timeout=600)
    status = stream.head()
    if status == 200:
        next(stream.events(), None)
    stream.close()
    return "left" if status == 200 else status


def refusal(status, headers, body):
    """How it was refused, after its numbers were checked."""
    error = body["error"]
    check(error["message"], body)
    if error["code"] == "memory_budget_exceeded":
        same((status, headers.get("retry-after")), (400, None))
        check(error["needed_bytes"] > error["limit_bytes"] > 0, error)
    elif error["code"] == "context_length_exceeded":
        same((status, error["n_ctx"]), (400, CONTEXT))
        check(error["n_prompt_tokens"] > 0, error)
        return "refused"
    elif status == 503:
        check(int(headers["retry-after"]) >= 1, headers)
        check(error["code"] in ("insufficient_memory", "queue_full"), error)
    else:
        check((status, error["param"]) == (400, "temperature"), error)
        return "wrong"
    # A body that the host budget has no room for never reaches the engine.
    return "refused early" if error.get("term", "host") == "host" else "refused"


def ask(server, i):
    path, body, leaves = make(i)
    if leaves:
        return leave(server, path, body)
    status, headers, data = server.request("POST", path, body, timeout=600)
    answer = json.loads(data)
    if status != 200:
        return refusal(status, headers, answer)
    usage = answer["usage"]
    same(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
    return answer["choices"], usage["prompt_tokens"], usage["completion_tokens"]


def serve(requests, *args, prefix=()):
    """The results of requests 0, 1, ..., and the server's account of them."""
    results, errors, work = [None] * requests, [], queue.SimpleQueue()
    for i in range(requests):
        work.put(i)

    def client(server):
        try:
            while True:
                i = work.get_nowait()
                results[i] = ask(server, i)
        except queue.Empty:
            pass
        except BaseException as error:
            errors.append(error)

    with Server(*SIZES, *args, prefix=prefix) as server:
        threads = [threading.Thread(target=client, args=(server,)) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check(server.process.poll() is None, f"the server ended:\n{server.text()[-2000:]}")
        if errors:
            raise errors[0]
        wait_until(lambda: server.memory()["requests"]["running"] == 0, "all have ended")
        account = {"memory": server.memory(),
                   "ended": server.metric("plimsoll:request_success_total"),
                   "refused": server.metric("plimsoll:admission_rejected_total")}
    return results, account


def judge(results, account, want):
    """Same answers as in `want`; counts and memory that add up. Returns a line about it."""
    answered = 0
    counts = dict.fromkeys(["refused", "refused early", "wrong", "left"], 0)
    for i, (got, other) in enumerate(zip(results, want)):
        if isinstance(got, tuple):
            answered += 1
            if isinstance(other, tuple):
                same((i, got), (i, other))
        else:
            check(got in counts, f"request {i}: {got}")
            counts[got] += 1
    same(answered + sum(counts.values()), len(results))
    same(account["ended"], answered + counts["left"])
    early = account["refused"] - counts["refused"]
    check(0 <= early <= counts["refused early"], f"{account['refused']} refusals, not {counts}")
    memory = account["memory"]
    device = memory["devices"][0]
    same(memory["counters"]["allocations_in_step"], 0)
    same(memory["counters"]["audit_excess"], 0)
    check(device["used_bytes"] <= device["limit_bytes"], device)
    same(device["blocks"]["used"], 0)
    return f"{answered} answered, " + ", ".join(f"{n} {what}" for what, n in counts.items())


@case
def no_kill_and_the_same_tokens_just_above_the_smallest_total():
    try:
        total, tries = smallest_total()
    except NoGroup as reason:
        raise harness.NotHere(reason)
    print(f"      smallest total that starts: {total / MIB:.1f} MiB, found in {tries} tries")
    want, account = serve(REQUESTS)
    print(f"      no limit: {judge(want, account, want)}", flush=True)
    for percent in MARGINS:
        limit = total * (100 + percent) // 100
        with Group(limit) as group:
            results, account = serve(REQUESTS, prefix=group.prefix)
            line = judge(results, account, want)
            blocks = account["memory"]["devices"][0]["blocks"]["total"]
            peak = group.peak()
            shown = f"{peak / MIB:.1f} MiB at most" if peak else "no peak known"
            print(f"      {limit / MIB:.1f} MiB (+{percent} %): {line}; {blocks} blocks, {shown}",
                  flush=True)


models = os.environ.get("PLIMSOLL_TEST_MODELS")
model = pathlib.Path(models or ".") / NAME
if not models or not model.exists():
    skip(f"{NAME} is not under $PLIMSOLL_TEST_MODELS")
try:
    with Group(64 * MIB):
        pass
except NoGroup as reason:
    skip(f"no memory control group can be made: {reason}")
main(model=str(model))
