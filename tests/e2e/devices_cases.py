# SPDX-License-Identifier: Apache-2.0
"""What a machine without any driver sees: the build starts, answers on the CPU, and `plimsoll devices`
says what is missing and where it comes from. Libraries are hidden behind files of their names that are no
library, Vulkan's drivers also behind an empty list."""
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


# What a backend opens, and words of what is said where it is not there.
LIBRARIES = {
    "vulkan": (["libvulkan.so.1", "libvulkan.so"], ["libvulkan.so.1", "libvulkan1"]),
    "cuda": (["libcuda.so.1"], ["libcuda.so.1", "NVIDIA driver"]),
    "hip": (["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"],
            ["libamdhip64.so", "hip: "]),
}


def built():
    """Backends of this build that need a library."""
    text = run("version", env={}).stdout
    return [name for name in LIBRARIES if name in text]


def hidden(folder, backends):
    for name in (name for backend in backends for name in LIBRARIES[backend][0]):
        (pathlib.Path(folder) / name).write_text("no library\n")
    return {"LD_LIBRARY_PATH": folder}


def only_the_cpu(env, *without):
    """Nothing of the backends `without` is listed, the CPU answers, and --device with one of them is refused
    with what devices says is missing, which is returned."""
    done = run("devices", "--json", env=env)
    same(done.returncode, 0)
    ids = [device["id"] for device in json.loads(done.stdout)]
    check("cpu" in ids and not [i for i in ids if i.split(":")[0] in without], ids)
    answer = run("run", "-m", str(TINY), "-p", "hi", "-n", "4", "--temp", "0", env=env)
    same(answer.returncode, 0)
    for backend in without:
        refused = run("run", "-m", str(TINY), "-p", "hi", "--device", backend, env=env)
        same(refused.returncode, 1)
        said = refused.stderr.removeprefix("plimsoll run: ").strip()
        check(backend in said and (backend not in built() or said in done.stderr), (said, done.stderr))
    return done.stderr


@case
def without_libraries_the_cpu_serves():
    with tempfile.TemporaryDirectory() as folder:
        missing = only_the_cpu(hidden(folder, LIBRARIES), *LIBRARIES)
    for backend, (_, words) in LIBRARIES.items():
        for word in words:
            check((word in missing) == (backend in built()), (word, missing))


@case
def each_is_missed_alone():
    for backend in built():
        with tempfile.TemporaryDirectory() as folder:
            missing = only_the_cpu(hidden(folder, [backend]), backend)
        check(all(word in missing for word in LIBRARIES[backend][1]), (backend, missing))


@case
def without_a_driver_the_cpu_serves():
    if "vulkan" not in built():
        return
    # An empty list of drivers, by both names that loaders know.
    missing = only_the_cpu({"VK_ICD_FILENAMES": "/dev/null", "VK_DRIVER_FILES": "/dev/null"}, "vulkan")
    check("driver" in missing, missing)


main()
