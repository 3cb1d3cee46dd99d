# SPDX-License-Identifier: Apache-2.0
"""What follows the colon of --device is judged also where no device is opened, and for backends that are not in
the build: `plan --device-memory` and `bench --explain`."""
import pathlib
import re
import subprocess

import harness
from harness import case, check, main, same

TINY = pathlib.Path(__file__).parent.parent / "data/models/llama-tied-q4_0.gguf"
GPU = "there are graphs, early, elastic and spill"
COMMANDS = (["plan", "--device-memory", "8GiB"], ["plan"], ["bench", "--explain", "--bandwidth", "100"])


def run(command, device):
    return subprocess.run([harness.BINARY, *command, "-m", str(TINY), "--device", device], capture_output=True, text=True,
                          timeout=120)


@case
def wrong_options_are_named_beside_the_known_ones():
    for device, said in (("cuda:0,typo", "cuda"), ("cuda:0,typo=1", "cuda: no option 'typo'; " + GPU),
                         ("hip:0,graph=on", "hip: no option 'graph'; " + GPU),
                         ("cuda:0,graphs=maybe", "graphs"), ("cuda:0,graphs=on,graphs", "graphs"),
                         ("vulkan:0,maths=f16", "vulkan: no option 'maths'; there are math, dot, coopmat,"),
                         ("vulkan:0,math=f64", "math"), ("vulkan:0,submit_ms=-1", "submit_ms is '-1'"),
                         ("cpu:x", "what follows ':' is no device index"), ("sim:no-such-file", "no-such-file")):
        for command in COMMANDS:
            done = run(command, device)
            same((done.returncode, done.stdout), (1, ""))
            check(said in done.stderr and len(done.stderr.splitlines()) == 1, (device, done.stderr))


@case
def right_ones_are_taken_without_a_device():
    for device in ("cuda", "cuda:0", "cuda:h100,graphs=off,spill=on", "hip:1,early=off", "vulkan:radeon,math=f16,dot=off",
                   "vulkan:0,cache=/nowhere/file", "cpu:0", "sim"):
        for command in (COMMANDS[0], COMMANDS[2]):
            done = run(command, device)
            same((done.returncode, done.stderr), (0, ""))


@case
def a_bench_names_what_it_ran_on():
    done = run(["bench", "-p", "0", "-n", "2", "--users", "0", "-r", "1", "-t", "2", "--memory-limit", "512MiB"], "cpu")
    same(done.returncode, 0)
    line = done.stdout.splitlines()[1]
    check(re.fullmatch(r"device cpu \(.+\), 2 threads; context \d+, 1 sequences, batch 512; "
                       r"load line \d+ MiB of \d+, memory limit 512 MiB", line), line)


main()
