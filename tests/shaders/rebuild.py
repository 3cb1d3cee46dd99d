#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Changes a shader and a file that it includes in a copy of the tree, and looks whether the object
that goes into the library then holds the new module.

Usage: rebuild.py ROOT GLSLC
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PROJECT = """project('rebuild', 'c')
inc_root = include_directories('.')
fs = import('fs')
python = import('python').find_installation('python3')
embed_py = files('backends/embed.py')
subdir('shaders')
"""
SPV = "shaders/copy.spv"
OBJECT = "shaders/libplimsoll_shaders.a.p/meson-generated_.._copy.c.o"


def build(folder):
    """Builds one module and its object; returns the module's bytes, which the object must hold."""
    subprocess.run(["ninja", "-C", folder / "build", SPV, OBJECT], check=True,
                   stdout=subprocess.DEVNULL)
    module = (folder / "build" / SPV).read_bytes()
    if module not in (folder / "build" / OBJECT).read_bytes():
        sys.exit("the object does not hold the module")
    return module


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    if old not in text:
        sys.exit(f"{path.name} has no {old!r} to change")
    path.write_text(text.replace(old, new), encoding="utf-8")
    # Some file systems keep whole seconds.
    later = path.stat().st_mtime + 2
    os.utime(path, (later, later))


def main():
    root, glslc = pathlib.Path(sys.argv[1]), sys.argv[2]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for part in ("shaders", "kernels", "backends/vulkan"):
            shutil.copytree(root / part, folder / part)
        shutil.copy(root / "backends/embed.py", folder / "backends")
        shutil.copy(root / "meson_options.txt", folder)
        (folder / "meson.build").write_text(PROJECT, encoding="utf-8")
        os.environ["PATH"] = f"{pathlib.Path(glslc).parent}:{os.environ['PATH']}"
        subprocess.run(["meson", "setup", folder / "build", folder], check=True,
                       stdout=subprocess.DEVNULL)
        modules = [build(folder)]
        edit(folder / "shaders/copy.comp", "a.dst + i", "a.dst - i")
        modules.append(build(folder))
        edit(folder / "shaders/lib/words.glsl", "PLM_GROUP_WORDS 16384", "PLM_GROUP_WORDS 4096")
        modules.append(build(folder))
    if len(set(modules)) != 3:
        sys.exit("a change did not reach the module")
    print("a change of a shader and one of an include are embedded")


if __name__ == "__main__":
    main()
