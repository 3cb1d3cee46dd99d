# SPDX-License-Identifier: Apache-2.0
"""The memory limit is kept by the process itself, by the kernel's own count of resident pages: while
it plans, while it serves, and down to the limit below which it does not start and says which one
would do. Skipped without $PLIMSOLL_TEST_MODELS."""
import json
import os
import pathlib
import re
import subprocess

import harness
from harness import Server, case, check, main, parallel, same, skip

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
MIB = 1024 * 1024
SIZES = ["-c", "1024", "-np", "2"]


def plan(limit, *args):
    """(exit status, stdout, stderr, peak resident bytes)"""
    process = subprocess.Popen(
        [harness.BINARY, "plan", "-m", harness.MODEL, *SIZES, "--memory-limit", str(limit), *args],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    return os.waitstatus_to_exitcode(status), out, err, usage.ru_maxrss * 1024


@case
def planning_stays_under_each_limit_until_none_is_possible():
    started, blocks = [], []
    for mib in (600, 400, 300, 250, 220, 190, 160, 64):
        status, out, err, peak = plan(f"{mib}MiB", "--json")
        check(peak <= mib * MIB, f"--memory-limit {mib}MiB: {peak / MIB:.1f} MiB were resident")
        started.append(status == 0)
        if status == 0:
            facts = json.loads(out)["plan"]
            check(facts["line"] <= mib * MIB, facts)
            blocks.append(facts["blocks"])
        else:
            check(status == 1 and "--memory-limit at least" in err, f"{mib}: {err}")
    check(started[0] and not started[-1], started)
    same(started, sorted(started, reverse=True))  # once it is too small, it stays so
    same(blocks, sorted(blocks, reverse=True))


@case
def the_suggested_limit_works():
    status, _, err, _ = plan("150MiB")
    same(status, 1)
    named = re.search(r"--memory-limit at least (\w+)", err)
    check(named, err)
    status, _, err, _ = plan(named.group(1))
    check(status == 0, err)


@case
def serving_stays_under_the_limit():
    with Server(*SIZES, "--memory-limit", "300MiB") as server:
        def ask(i):
            body = {"prompt": f"{i} once upon a time " * (1 + i % 40), "max_tokens": 16,
                    "ignore_eos": True}
            return server.post("/v1/completions", body, timeout=300)[0]
        same(set(parallel(ask, range(24))), {200})
        with open(f"/proc/{server.process.pid}/status") as file:
            peak = int(re.search(r"VmHWM:\s+(\d+) kB", file.read()).group(1)) * 1024
        check(peak <= 300 * MIB, f"{peak / MIB:.1f} MiB were resident")
        memory = server.memory()
        same(memory["counters"]["allocations_in_step"], 0)
        device = memory["devices"][0]
        check(device["high_water_bytes"] <= 300 * MIB, device)


models = os.environ.get("PLIMSOLL_TEST_MODELS")
model = pathlib.Path(models or ".") / NAME
if not models or not model.exists():
    skip(f"{NAME} is not under $PLIMSOLL_TEST_MODELS")
main(model=str(model))
