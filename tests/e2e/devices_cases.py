# SPDX-License-Identifier: Apache-2.0
"""What a machine without Vulkan sees: the build starts, answers on the CPU, and `plimsoll devices` says
what is missing. The loader is hidden behind a file of its name that is no library, or a driver behind an
empty list."""
import json
import os
import pathlib
import subprocess
import tempfile

import harness
from harness import case, check, main, same

TINY = pathlib.Path(__file__).parent.parent / "data/models/llama-tied-q4_0.gguf"


def run(*args, env):
    return subprocess.run([harness.BINARY, *args], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **env})


def has_vulkan():
    return "vulkan" in run("version", env={}).stdout


def without_loader(folder):
    for name in ("libvulkan.so.1", "libvulkan.so"):
        (pathlib.Path(folder) / name).write_text("no library\n")
    return {"LD_LIBRARY_PATH": folder}


def only_the_cpu(env):
    """Lists the CPU, answers on it, and refuses --device vulkan; returns what devices says is missing."""
    done = run("devices", "--json", env=env)
    same(done.returncode, 0)
    same([device["id"] for device in json.loads(done.stdout)], ["cpu"])
    answer = run("run", "-m", str(TINY), "-p", "hi", "-n", "4", "--temp", "0", env=env)
    same(answer.returncode, 0)
    refused = run("run", "-m", str(TINY), "-p", "hi", "--device", "vulkan", env=env)
    same(refused.returncode, 1)
    check("vulkan" in refused.stderr, refused.stderr)
    return done.stderr


@case
def without_a_loader_the_cpu_serves():
    with tempfile.TemporaryDirectory() as folder:
        missing = only_the_cpu(without_loader(folder))
    if has_vulkan():
        check("libvulkan.so.1" in missing and "libvulkan1" in missing, missing)
    else:
        same(missing, "")


@case
def without_a_driver_the_cpu_serves():
    if not has_vulkan():
        return
    # An empty list of drivers, by both names that loaders know.
    missing = only_the_cpu({"VK_ICD_FILENAMES": "/dev/null", "VK_DRIVER_FILES": "/dev/null"})
    check("driver" in missing, missing)


main()
