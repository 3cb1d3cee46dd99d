#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether work on a request grows as the request does: each case of linear.c runs with its size
and with its double under callgrind, which counts instructions. More than FACTOR_MAX times as many
for twice the size is a loop in a loop. Exit 77 (skipped) where valgrind is missing."""

import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

PROCESSES = 4
FACTOR_MAX = 2.5  # n log n comes to about 2.2 at these sizes
# The tokenizers of these two split and merge by different rules.
MODELS = {"chat": "qwen2-untied-q4_1.gguf", "other": "llama-rope3-q8_0.gguf"}


def count(program, model, cases):
    """Of each case the instructions of its size and of its double."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--quiet",
             "--toggle-collect=linear_measured", "--dump-after=linear_measured", program, model,
             *cases], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{done.returncode}: {done.stdout}{done.stderr}")
        counts = []
        for i in range(len(cases)):
            pair = []
            for turn in (2, 3):  # the first one warms up
                with open(f"{out}.{3 * i + turn}", encoding="ascii") as file:
                    pair.append(int(re.search(r"^summary: (\d+)", file.read(), re.M).group(1)))
            counts.append(pair)
        return counts


def main():
    program, only = sys.argv[1], sys.argv[2:]
    if shutil.which("valgrind") is None:
        print("valgrind is missing (Debian: valgrind)")
        return 77
    cases = subprocess.run([program, "--list"], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    cases = [case for case in cases if not only or case in only]
    # The start of an engine is most of a case's time, so a process runs a handful of them.
    jobs = [(MODELS["chat"], cases[at::PROCESSES]) for at in range(PROCESSES)]
    jobs.append((MODELS["other"], [case for case in cases if case.startswith("text of")]))
    jobs = [job for job in jobs if job[1]]
    failed = total = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for (model, names), counts in zip(jobs, pool.map(lambda job: count(program, *job), jobs)):
            for case, (once, twice) in zip(names, counts):
                bad = twice > FACTOR_MAX * once
                failed += bad
                total += 1
                print(f"{'FAIL' if bad else 'ok  '} {twice / once:5.2f}  {once:>12,} {twice:>12,}  "
                      f"{case} ({model.split('-')[0]})", flush=True)
    print(f"{total} cases, {failed} grow more than {FACTOR_MAX} times")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
